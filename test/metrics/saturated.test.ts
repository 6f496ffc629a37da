/** `nereid_saturation` of a real server whose model has more to do than it can. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { TestServer } from '../server/harness.js'

test('a model that is behind says for how long, and 0 when all is answered', { timeout: 60_000 }, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-saturated-'))
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  mkdirSync(join(directory, 'slow', '1'), { recursive: true })
  const tensor = (name: string): string => `[ { name: "${name}" data_type: TYPE_FP32 dims: [ -1 ] } ]`
  writeFileSync(
    join(directory, 'slow', 'config.pbtxt'),
    `backend: "identity"\nmax_batch_size: 0\ninput ${tensor('INPUT0')}\noutput ${tensor('OUTPUT0')}\ninstance_group [ { count: 2 kind: KIND_CPU } ]\nparameters { key: "execute_delay_ms" value { string_value: "100" } }\n`,
  )
  const server = await TestServer.start(directory, [])
  onTestFinished(async () => void (await server.stop()))
  const saturation = async (): Promise<number> =>
    Number(/^nereid_saturation\{model="slow",version="1"\} (\S+)$/m.exec(await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text())?.[1])
  const ask = (): Promise<Response> => fetch(`${server.url}/v2/models/slow/infer`, { method: 'POST', body: '{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}' })
  expect(await saturation()).toBe(0)
  await ask()
  const asked = Promise.all(Array.from({ length: 40 }, ask))
  // 40 requests of 100 ms on two instances are two seconds.
  await vi.waitFor(async () => expect(await saturation()).toBeGreaterThan(1), 10_000)
  expect(await saturation()).toBeLessThan(3)
  await asked
  await vi.waitFor(async () => expect(await saturation()).toBe(0), 10_000)
})

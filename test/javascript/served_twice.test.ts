/** B-API-01: two servers of one process, each with models in worker threads. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { Server } from '../../src/index.js'

const directory = mkdtempSync(join(tmpdir(), 'nereid-twice-'))
afterAll(() => rmSync(directory, { recursive: true }))
mkdirSync(join(directory, 'one/1'), { recursive: true })
writeFileSync(
  join(directory, 'one/1/model.mjs'),
  `import { InferenceResponse, Tensor } from 'nereid/backend'
export default {
  inputs: { IN: { datatype: 'INT32', dims: [1] } },
  outputs: { OUT: { datatype: 'INT32', dims: [1] } },
  execute: (requests) => requests.map((r) => new InferenceResponse([Tensor.from('OUT', r.input('IN').data)])),
}
`,
)

test('the end of a server leaves the workers of another one alone', async () => {
  const options = { modelRepository: directory, http: { address: '127.0.0.1', port: 0 }, grpc: false, metrics: false }
  const [stays, ends] = [await Server.start(options as never), await Server.start(options as never)]
  try {
    const ask = async (server: Server): Promise<unknown> => {
      const body = { inputs: [{ name: 'IN', datatype: 'INT32', shape: [1], data: [7] }] }
      const url = `http://127.0.0.1:${server.ports.http}/v2/models/one/infer`
      const response = await fetch(url, { method: 'POST', body: JSON.stringify(body) })
      return [response.status, ((await response.json()) as { outputs?: { data: number[] }[] }).outputs?.[0]?.data]
    }
    expect(await ask(stays)).toEqual([200, [7]])
    expect(await ask(ends)).toEqual([200, [7]])
    const start = performance.now()
    await ends.stop()
    expect(performance.now() - start).toBeLessThan(5000)
    for (let i = 0; i < 20; i += 1) {
      expect(await ask(stays)).toEqual([200, [7]])
      await new Promise((done) => setTimeout(done, 20))
    }
  } finally {
    await stays.stop()
  }
})

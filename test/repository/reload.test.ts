/** Reloads of `nereid dev` while clients load the same model. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startServer, type RunningServer } from '../../src/api/server.js'
import { readOptions } from '../../src/cli/sources.js'
import { resolveSettings } from '../../src/cli/settings.js'
import { createLogger } from '../../src/log/index.js'
import { fp32 } from '../javascript/served.js'

const root = mkdtempSync(join(tmpdir(), 'nereid-reload-'))
const ready: string[] = []
const logged: string[] = []
let server: RunningServer

beforeAll(async () => {
  const args = [`--model-repository=${root}`, '--model-control-mode=explicit', '--http-port=0', '--grpc-port=0']
  const { settings } = resolveSettings(await readOptions([...args, '--metrics-port=0'], {}))
  settings.development = true
  const logger = createLogger(settings.log, (line) => logged.push(line))
  server = await startServer(settings, logger, {
    observe({ model, phase }) {
      if (phase === 'ready') ready.push(model)
    },
  })
})
afterAll(async () => {
  await server.stop(1000)
  rmSync(root, { recursive: true })
})

/** A model whose import takes a while, after which it ends with `end`. */
function write(name: string, end = ''): void {
  const wait = 'await new Promise((resolve) => setTimeout(resolve, 600))'
  mkdirSync(join(root, name, '1'), { recursive: true })
  writeFileSync(join(root, name, '1/model.ts'), `${wait}\n${end}\n${fp32('return answers(requests)')}`)
}
const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 300))

test('a reload is not lost in a load that began before the change', async () => {
  write('a')
  const load = server.repository.load('a')
  await soon()
  const reload = server.repository.reload('a')
  await load
  expect(await reload).toEqual([])
  expect(ready).toEqual(['a', 'a'])
})

test('a failed reload does not withdraw what was loaded after it', async () => {
  write('b', 'throw new Error("no")')
  const reload = server.repository.reload('b')
  await soon()
  const load = server.repository.load('b')
  write('b')
  await load
  expect(await reload).toEqual([])
  expect(server.repository.isServing('b')).toBe(true)
  write('b', 'throw new Error("no")')
  expect(await server.repository.reload('b')).toMatchObject([{ model: 'b' }])
  expect(server.repository.isServing('b')).toBe(false)
})

test('errors of the repository are logged, but not why a model does not load', async () => {
  rmSync(root, { recursive: true })
  server.repository.index(false)
  mkdirSync(root)
  expect(logged.filter((line) => line.includes('failed to read model repository'))).toHaveLength(1)
  expect(logged.filter((line) => line.includes('failed to load'))).toEqual([])
})

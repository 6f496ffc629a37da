import { afterAll, beforeAll, expect, test } from 'vitest'
import { Server } from '../../src/index.js'
import { repositories } from './harness.js'

const models = repositories()
let server: Server

beforeAll(async () => {
  // No ports: the API is enough.
  server = await Server.start({ modelRepository: models.path('main') })
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

const sixteen = (value: number) => ({ shape: [1, 16], data: new Int32Array(16).fill(value) })

test('no port is open unless asked for', () => {
  expect(server.ports).toEqual({ http: 0, grpc: 0, metrics: 0 })
  expect([server.live(), server.ready()]).toEqual([true, true])
})

test('a request gives what it would give over the network', async () => {
  const result = await server
    .model('simple')
    .infer({ id: 'r', inputs: { INPUT0: sixteen(3), INPUT1: sixteen(1) }, outputs: ['OUTPUT0'] })
  expect([result.model, result.version, result.id]).toEqual(['simple', '1', 'r'])
  expect(result.outputs).toHaveLength(1)
  expect(result.output('OUTPUT0').data).toEqual(new Int32Array(16).fill(4))
})

test('strings and response parameters arrive', async () => {
  const strings = await server.model('id_string').infer({ inputs: { INPUT0: { shape: [1, 2], data: ['a', '\u00fc'] } } })
  expect(strings.output('OUTPUT0').strings()).toEqual(['a', '\u00fc'])
  const echo = await server.model('echo').infer({ inputs: { INPUT0: new Float32Array([1, 2]) } })
  expect(echo.parameters).toMatchObject({ param0: 'an example string parameter', param2: false })
})

test('versions are chosen as over the network', async () => {
  const inputs = { INPUT0: { shape: [1, 4], data: new Int32Array([1, 2, 3, 4]) } }
  const first = async (version: number | string) =>
    Array.from((await server.model('versions', version).infer({ inputs })).output('OUTPUT0').data as Int32Array)
  expect(await first(1)).toEqual([2, 3, 4, 5])
  expect(await first('')).toEqual([10, 20, 30, 40])
})

test.each([
  ['nope', 'NOT_FOUND', "Request for unknown model: 'nope' is not found"],
  ['simple', 'INVALID_ARG', /expected 2 inputs but got 0 inputs for model 'simple'/],
])('a wrong request to %s is a typed error with the text of the network API', async (model, code, message) => {
  const error: unknown = await server.model(model).infer({ inputs: {} }).catch((e: unknown) => e)
  expect(error).toMatchObject({ code })
  expect((error as Error).message).toMatch(message)
})

test('an AbortSignal takes a request out of the queue', async () => {
  const inputs = { INPUT0: new Int32Array([1]) }
  const running = server.model('slow_drain').infer({ inputs })
  const from = performance.now()
  const queued = server.model('slow_drain').infer({ inputs }, { signal: AbortSignal.timeout(50) })
  await expect(queued).rejects.toMatchObject({ code: 'CANCELLED' })
  expect(performance.now() - from).toBeLessThan(700)
  expect((await running).output('OUTPUT0').data).toEqual(new Int32Array([1]))
})

test('statistics count requests of this process like any other', async () => {
  interface Stats {
    model_stats: { inference_count: number }[]
  }
  const count = () => (server.model('constant').statistics() as Stats).model_stats[0]?.inference_count ?? Number.NaN
  const before = count()
  await server.model('constant').infer({ inputs: {} })
  expect(count()).toBe(before + 1)
  expect(await server.metricsText()).toContain('nv_inference_count{model="constant",version="1"}')
})

test('a bad option is refused with the text of the command line', async () => {
  await expect(Server.start({ modelRepository: '/nowhere/at/all' })).rejects.toThrow(/failed to stat file/)
})

test('a repository that can not be read leaves a server neither live nor ready, with exitOnError false', async () => {
  const other = await Server.start({ modelRepository: '/nowhere/at/all', exitOnError: false, strictReadiness: false, log: () => {} })
  expect([other.live(), other.ready(), other.failures]).toEqual([false, false, []])
  expect(await other.stop()).toBe(0)
})

test('several servers live side by side and stop apart', async () => {
  const other = await Server.start({ modelRepository: models.path('small'), http: { address: '127.0.0.1' } })
  expect(other.ports.http).toBeGreaterThan(0)
  expect((await fetch(`http://127.0.0.1:${other.ports.http}/v2/health/ready`)).status).toBe(200)
  expect(await other.stop()).toBe(0)
  expect(other.live()).toBe(false)
  expect(server.ready()).toBe(true)
})

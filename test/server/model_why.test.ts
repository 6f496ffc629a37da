/** `GET /v2/models/M/why`: sums, advice and replays of a real server under loads of real clients. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { TestServer } from './harness.js'

const root = mkdtempSync(join(tmpdir(), 'nereid-model-why-'))
const DELAY_MS = 10
let server: TestServer

beforeAll(async () => {
  const tensors = [[['INPUT0', 'TYPE_FP32', [1]]], [['OUTPUT0', 'TYPE_FP32', [1]]]] as const
  const settings = (count: number): string =>
    `instance_group [ { count: ${String(count)} kind: KIND_CPU } ]\n` +
    `parameters { key: "execute_delay_ms" value { string_value: "${String(DELAY_MS)}" } }\n`
  writeModel(root, 'short', { config: config('identity', 0, ...tensors, settings(1)) })
  writeModel(root, 'enough', { config: config('identity', 0, ...tensors, settings(4)) })
  writeModel(root, 'unused', { config: config('identity', 0, ...tensors, settings(1)) })
  server = await TestServer.start(root)
})

afterAll(async () => {
  await server.stop()
  rmSync(root, { recursive: true })
})

interface Speed {
  rate: number
  p50_us: number
  p99_us: number
}

interface Why {
  model: string
  version: string
  seconds: number
  requests: number
  failures: number
  mean_us: Record<string, number>
  batch: number
  arrivals: string
  clients?: number
  causes: Record<string, number>
  behind: Record<string, number>
  advice: { change: string; setting: string; from: number; to: number; text: string; now: Speed; expected: Speed }[]
  simulated?: Speed & { changes: Record<string, number> }
  text?: string
}

async function why(path: string, status = 200): Promise<Why> {
  const response = await fetch(`${server.url}/v2/models/${path}`)
  expect(response.status).toBe(status)
  expect(response.headers.get('content-type')).toBe('application/json')
  return (await response.json()) as Why
}

/** Sends requests from clients that wait for their responses. */
async function load(model: string, clients: number, each: number): Promise<void> {
  const body = JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [1], datatype: 'FP32', data: [1] }] })
  const client = async (): Promise<void> => {
    for (let i = 0; i < each; i += 1) {
      const response = await fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', body })
      expect(response.status).toBe(200)
      await response.arrayBuffer()
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
}

test('a model with too few instances is told how many', async () => {
  await load('short', 4, 100)
  const found = await why('short/why')
  expect(found).toMatchObject({ model: 'short', version: '1', requests: 400, failures: 0 })
  expect(found).toMatchObject({ arrivals: 'closed', clients: 4 })
  expect(found.batch).toBe(1)
  expect(found.causes['instance_freed']).toBeGreaterThan(0.9)
  expect(found.behind['short']).toBeGreaterThan(0.9)
  expect(found.mean_us['infer']).toBeGreaterThan(DELAY_MS * 1000)
  expect(found.mean_us['queue']).toBeGreaterThan(found.mean_us['infer'] ?? 0)
  const [advice] = found.advice
  expect(advice).toMatchObject({ change: 'instances', from: 1 })
  expect(advice?.setting).toBe(`instance_group [ { count: ${String(advice?.to)} } ]`)
  expect(advice?.expected.rate).toBeGreaterThan(2 * (advice?.now.rate ?? Number.NaN))
  const { simulated } = await why(`short/versions/1/why?simulate=instances:${String(advice?.to)}`)
  expect(simulated?.changes).toEqual({ instances: advice?.to })
  // The use of the cores was read again meanwhile.
  const ratio = (simulated?.rate ?? 0) / (advice?.expected.rate ?? 1)
  expect(ratio).toBeGreaterThan(0.85)
  expect(ratio).toBeLessThan(1.15)
})

test('a model with enough instances gets no advice', async () => {
  await load('enough', 2, 50)
  const found = await why('enough/why')
  expect(found).toMatchObject({ requests: 100, advice: [] })
  expect(found.behind).toEqual({})
  expect(found.simulated).toBeUndefined()
})

test('a model without requests has zeros, and says why nothing was replayed', async () => {
  const found = await why('unused/why?simulate=delay_us:0')
  expect(found).toMatchObject({ requests: 0, causes: {}, behind: {}, advice: [] })
  expect(found.simulated).toBeUndefined()
  expect(found.text).toMatch(/^Nothing was replayed: too few requests/)
})

test('wrong changes and unknown models have an error that names them', async () => {
  for (const wrong of ['instances', 'instances:0', 'instances:-1', 'threads:1000001', 'speed:2', 'delay_us:a']) {
    const { error } = (await why(`short/why?simulate=${wrong}`, 400)) as unknown as { error: string }
    expect(error).toMatch(new RegExp(`^'simulate' has '${wrong}': expected instances, delay_us`))
  }
  const { error } = (await why('nope/why', 404)) as unknown as { error: string }
  expect(error).toBe("Request for unknown model: 'nope' is not found")
})

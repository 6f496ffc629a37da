/** The two gauges that routers read: of all models, without labels, in both formats and in a part of a scrape. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { config, ensemble, step, writeModel } from '../../scripts/models/repository.mjs'
import { TestServer } from '../server/harness.js'
import { parseExposition } from './strict.js'

const TENSORS = [[['INPUT0', 'TYPE_FP32', [1]]], [['OUTPUT0', 'TYPE_FP32', [1]]]] as const
const DELAY = 'parameters { key: "execute_delay_ms" value { string_value: "1500" } }\n'
const group = (count: number): string => `instance_group [ { count: ${count} kind: KIND_CPU } ]\n`

async function start(
  flags: string[] = [],
): Promise<{ server: TestServer; ask: (model: string, count: number) => Promise<Response[]> }> {
  const root = mkdtempSync(join(tmpdir(), 'nereid-requests-'))
  onTestFinished(() => rmSync(root, { recursive: true, force: true }))
  const chain = ensemble(0, ...TENSORS, [step('slow', -1, 'INPUT0', 'OUTPUT0')])
  for (const [name, text] of Object.entries({
    // First in every family with a series per model, and never busy.
    idle: config('identity', 0, ...TENSORS, group(1)),
    slow: config('identity', 0, ...TENSORS, group(1) + DELAY),
    two: config('identity', 0, ...TENSORS, group(2) + DELAY),
    chain,
    one_place: chain.replace('ensemble_scheduling {', 'ensemble_scheduling {\n  max_inflight_requests: 1'),
  }))
    writeModel(root, name, { config: text })
  const server = await TestServer.start(root, flags)
  onTestFinished(async () => void (await server.stop()))
  const body = JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [1], datatype: 'FP32', data: [1] }] })
  const one = (model: string): Promise<Response> =>
    fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', body })
  return { server, ask: (model, count) => Promise.all(Array.from({ length: count }, () => one(model))) }
}

test('requests that wait and run are counted over all models, those of ensembles once', async () => {
  const { server, ask } = await start()
  const scrape = async (path: string, accept = 'text/plain'): Promise<Map<string, string>> => {
    const response = await fetch(`http://127.0.0.1:${server.metricsPort}${path}`, { headers: { accept } })
    const format = accept === 'text/plain' ? 'text' : 'openmetrics'
    expect(response.headers.get('content-type')).toContain(accept)
    const { series, types } = parseExposition(await response.text(), format)
    for (const name of ['nereid_requests_waiting', 'nereid_requests_running']) expect(types.get(name)).toBe('gauge')
    return series
  }
  const counts = (series: Map<string, string>): (string | undefined)[] =>
    ['nereid_requests_waiting', 'nereid_requests_running'].map((name) => series.get(name))
  expect(counts(await scrape('/metrics'))).toEqual(['0', '0'])

  // Three of `two`: two run. Of the five that need the one instance of `slow`, one runs, and two wait for their place.
  const asked = [ask('two', 3), ask('slow', 2)]
  await vi.waitFor(async () => expect(counts(await scrape('/metrics/requests'))).toEqual(['2', '3']))
  asked.push(ask('chain', 1), ask('one_place', 3))
  await vi.waitFor(async () => expect(counts(await scrape('/metrics/requests'))).toEqual(['6', '3']))
  const text = await scrape('/metrics')
  expect(counts(text)).toEqual(['6', '3'])
  expect(counts(await scrape('/metrics', 'application/openmetrics-text'))).toEqual(['6', '3'])
  const part = await scrape('/metrics/requests', 'application/openmetrics-text')
  expect([...part].toSorted()).toEqual([
    ['nereid_requests_running', '3'],
    ['nereid_requests_waiting', '6'],
  ])
  // A router would read the first series of Triton's family.
  const pending = [...text].find(([key]) => key.startsWith('nv_inference_pending_request_count'))
  expect(pending).toEqual(['nv_inference_pending_request_count{model="chain",version="1"}', '0'])

  const answers = (await Promise.all(asked)).flat()
  expect(answers.map(({ status }) => status)).toEqual(Array(9).fill(200))
  expect(counts(await scrape('/metrics'))).toEqual(['0', '0'])
}, 60_000)

test('requests of a model that was unloaded are counted until they end', async () => {
  const { server, ask } = await start(['--model-control-mode=explicit', '--load-model=*'])
  const counts = async (): Promise<string[]> => {
    const text = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics/requests`)).text()
    return [...text.matchAll(/^nereid_requests_\w+ (\d+)$/gm)].map(([, count]) => count ?? '')
  }
  const change = (verb: string): Promise<Response> =>
    fetch(`${server.url}/v2/repository/models/two/${verb}`, { method: 'POST', body: '{}' })
  const states = async (): Promise<unknown> => {
    const index = await fetch(`${server.url}/v2/repository/index`, { method: 'POST' })
    return ((await index.json()) as { name: string; state?: string }[]).find(({ name }) => name === 'two')?.state
  }
  const asked = ask('two', 3)
  await vi.waitFor(async () => expect(await counts()).toEqual(['1', '2']))
  const unloaded = change('unload')
  await vi.waitFor(async () => expect(await states()).not.toBe('READY'))
  expect(await counts()).toEqual(['1', '2'])
  expect((await asked).map(({ status }) => status)).toEqual(Array(3).fill(200))
  expect((await unloaded).status).toBe(200)
  await vi.waitFor(async () => expect(await counts()).toEqual(['0', '0']))
}, 60_000)

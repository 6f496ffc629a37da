/** S-38: responses that the response cache of this process cannot keep. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import { chained, config, ensemble, writeModel } from '../../scripts/models/repository.mjs'
import { TestServer } from './harness.js'

const directory = mkdtempSync(join(tmpdir(), 'nereid-cache-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const CACHE = 'response_cache { enable: true }\n'
const int = (name: string): [string, string, number[]][] => [[name, 'TYPE_INT32', [-1]]]
writeModel(directory, 'same', { config: config('identity', 0, int('INPUT0'), int('OUTPUT0'), CACHE) })
writeModel(directory, 'plain', { config: config('identity', 0, int('INPUT0'), int('OUTPUT0')) })
writeModel(directory, 'chain', {
  config: ensemble(0, int('INPUT0'), int('OUTPUT0'), chained(['plain', 'plain'])) + CACHE,
})

const FAILED =
  /Failed to insert key \[[0-9a-f]{32}\] into response cache: Requested byte_size: \d+ is greater than total cache size: 200 \(model '(\w+)'\)/

interface Stats {
  model_stats: { inference_stats: Record<string, { count: number }> }[]
}

test.each(['same', 'chain'])('S-38, S-44 a response larger than the cache is a miss of model %s', async (model) => {
  const server = await TestServer.start(directory, [
    '--cache-config=local,size=200',
    '--log-verbose=1',
    '--log-format=default',
  ])
  try {
    const body = JSON.stringify({
      inputs: [{ name: 'INPUT0', datatype: 'INT32', shape: [64], data: Array(64).fill(7) }],
    })
    const ask = () => fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', body })
    for (let i = 0; i < 3; i += 1) {
      const answer = (await (await ask()).json()) as { outputs: { data: number[] }[] }
      expect(answer.outputs[0]).toMatchObject({ datatype: 'INT32', shape: [64], data: Array(64).fill(7) })
    }
    const stats = (await (await fetch(`${server.url}/v2/models/${model}/stats`)).json()) as Stats
    const of = (name: string) => stats.model_stats[0]?.inference_stats[name]?.count
    expect([of('success'), of('cache_hit'), of('cache_miss')]).toEqual([3, 0, 3])
    const lines = (): string[] =>
      server
        .output()
        .split('\n')
        .filter((line) => line.includes('Failed to insert key'))
    await vi.waitFor(() => expect(lines()).toHaveLength(3), { timeout: 20_000, interval: 20 })
    for (const line of lines()) expect(FAILED.exec(line)?.[1]).toBe(model)
    expect(
      lines()
        .map((line) => line[0])
        .toSorted(),
    ).toEqual(['E', 'I', 'I'])
  } finally {
    await server.stop()
  }
})

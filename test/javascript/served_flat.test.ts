/** Models in TypeScript over time: memory, threads and descriptors of many calls and loads, and files that change. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { IN_PROCESS, IS_NIGHTLY, Repository, Served, fp32, numbers, until } from './served.js'

const CALLS = IS_NIGHTLY ? 100_000 : 10_000
/** Calls of 300 KiB: each costs as much as some of 64 B. */
const LARGE_CALLS = IS_NIGHTLY ? 20_000 : 1000
const LOADS = IS_NIGHTLY ? 1000 : 50
/** Garbage that is not collected yet, of every heap. */
const GROWTH_MIB_MAX = 64

const repository = new Repository()
const live = new Repository()
let served: Served
let polled: Served

/** All of the configuration: a load starts one worker, not also one that completes it. */
const IO = ['input [ { name: "IN"', 'output [ { name: "OUT"']
  .map((tensor) => `${tensor} data_type: TYPE_FP32 dims: [ -1 ] } ]\n`)
  .join('')

const adds = (number: number) => fp32(`return answers(requests, (x) => x + ${number})`)
const one = async (from: Served, model: string) => (await from.http.infer(model, numbers(1))).output('OUT').floats()[0]

beforeAll(async () => {
  repository.model('thread', adds(1), IO)
  repository.model('process', adds(1), IO + IN_PROCESS)
  repository.model('comes', adds(1), IO)
  repository.model('comes_process', adds(1), IO + IN_PROCESS)
  live.model('edited', adds(1))
  ;[served, polled] = await Promise.all([
    Served.start(repository, [
      '--model-control-mode=explicit',
      '--load-model=thread',
      '--load-model=process',
      '--disable-auto-complete-config',
    ]),
    Served.start(live, ['--model-control-mode=poll', '--repository-poll-secs=1']),
  ])
}, 60_000)
afterAll(async () => {
  await Promise.all([served?.stop(), polled?.stop()])
  repository.remove()
  live.remove()
})

/** Runs work in parts; resources after the first of them are those to compare with. */
async function isFlat(parts: number, work: () => Promise<void>): Promise<void> {
  const resources = () => ({ threads: served.threads(), descriptors: served.descriptors(), MiB: served.residentMiB() })
  await work()
  const first = resources()
  for (let part = 1; part < parts; part += 1) await work()
  // The last worker may be ending.
  await until('threads and descriptors are as before', () => {
    const { threads, descriptors } = resources()
    return threads <= first.threads + 2 && descriptors <= first.descriptors + 4
  })
  expect(resources().MiB - first.MiB).toBeLessThan(GROWTH_MIB_MAX)
}

test.each([
  ['64 B', 16, CALLS],
  ['300 KiB', 75 << 10, LARGE_CALLS],
])('B-JS-06: calls with %s leave nothing behind', { timeout: 600_000 }, async (_, elements, calls) => {
  const data = new Float32Array(elements)
  const inputs = { IN: { data, shape: [elements], datatype: 'FP32' as const } }
  await isFlat(5, async () => {
    let left = calls / 5
    const ask = async (model: string) => {
      while (left-- > 0) await served.http.infer(model, inputs)
    }
    await Promise.all(['thread', 'thread', 'thread', 'process'].map(ask))
  })
})

test('B-JS-05: loads and unloads leave nothing behind', { timeout: 1_800_000 }, async () => {
  await isFlat(5, async () => {
    for (let i = 0; i < LOADS / 5; i += 1) {
      const model = i % 10 === 0 ? 'comes_process' : 'comes'
      await served.load(model)
      expect(await one(served, model)).toBe(2)
      await served.http.unload(model)
    }
  })
})

test('B-JS-04: a saved file is served, a broken one leaves the old one serving', async () => {
  expect(await one(polled, 'edited')).toBe(2)
  live.model('edited', adds(10))
  await until('the new code serves', async () => (await one(polled, 'edited')) === 11)
  live.model('edited', 'export default {')
  await until('the error is logged', () => /edited[^]*SyntaxError|SyntaxError[^]*edited/.test(polled.server.output()))
  expect(await one(polled, 'edited')).toBe(11)
  live.model('edited', adds(20))
  await until('the mended code serves', async () => (await one(polled, 'edited')) === 21)
})

/** Seconds of pending work, from the counters of scrapes. */
import { expect, test } from 'vitest'
import { Saturation, instancesOf } from '../../src/metrics/saturation.js'
import { parsePbtxt } from '../../src/config/index.js'

const SECOND = 1_000_000_000n

/** Counters after `requests` with `seconds` of executions in total. */
const seen = (requests: number, seconds: number, inflight: number) => ({
  success: { count: BigInt(requests), ns: 0n },
  executionNs: BigInt(seconds * 1000) * (SECOND / 1000n),
  inflight: BigInt(inflight),
})

test('the backlog is cost times pending and running requests divided by instances', () => {
  const saturation = new Saturation()
  expect(saturation.of('m:1', seen(0, 0, 0), 2, 0), 'nothing came').toBe(0)
  expect(saturation.of('m:1', seen(0, 0, 3), 2, 1000), 'what they cost is not known').toBeNull()
  expect(saturation.of('m:1', seen(100, 10, 40), 2, 10_000)).toBe(2)
  expect(saturation.of('m:1', seen(100, 10, 0), 2, 11_000)).toBe(0)
  expect(saturation.of('m:1', seen(100, 10, 5), 0, 12_000), 'an ensemble').toBeNull()
})

test('the cost is that of the last minute, or the previous one if nothing was answered', () => {
  const saturation = new Saturation()
  for (let s = 0; s <= 120; s += 5) saturation.of('m:1', seen(s * 10, s, 1), 1, s * 1000)
  // 0.1 s per request so far, then 1 s.
  for (let s = 5; s <= 60; s += 5) saturation.of('m:1', seen(1200 + s, 120 + s, 1), 1, 120_000 + s * 1000)
  expect(saturation.of('m:1', seen(1265, 185, 1), 1, 185_000)).toBeCloseTo(1, 1)
  expect(saturation.of('m:1', seen(1265, 185, 4), 1, 500_000)).toBeCloseTo(0.58, 1)
})

test('counters that restart give no negative cost, and removed versions are forgotten', () => {
  const saturation = new Saturation()
  saturation.of('m:1', seen(1000, 100, 1), 1, 0)
  expect(saturation.of('m:1', seen(10, 10, 3), 1, 10_000)).toBe(3)
  saturation.keep(new Set())
  expect(saturation.of('m:1', seen(10, 5, 2), 1, 11_000)).toBe(1)
})

test('instances are counted on each device of their group', () => {
  const of = (groups: string): number => instancesOf(parsePbtxt(`instance_group [ ${groups} ]`, 'config.pbtxt'))
  expect([
    of('{ count: 3 kind: KIND_CPU }'),
    of('{ count: 2 kind: KIND_GPU gpus: [ 0, 1 ] }, { count: 1 kind: KIND_MODEL }'),
    instancesOf(parsePbtxt('', 'config.pbtxt')),
  ]).toEqual([3, 5, 0])
})

/** The seconds of work at hand, from counters as scrapes see them. */
import { expect, test } from 'vitest'
import { Saturation, instancesOf } from '../../src/metrics/saturation.js'
import { parsePbtxt } from '../../src/config/index.js'

const SECOND = 1_000_000_000n

/** Counters after `requests` that took `seconds` of executions in all. */
const seen = (requests: number, seconds: number, inflight: number) => ({ success: { count: BigInt(requests), ns: 0n }, executionNs: BigInt(seconds * 1000) * (SECOND / 1000n), inflight: BigInt(inflight) })

test('work at hand is what requests cost, times those that wait or run, over the instances', () => {
  const saturation = new Saturation()
  expect(saturation.of('m:1', seen(0, 0, 0), 2, 0), 'nothing came').toBe(0)
  expect(saturation.of('m:1', seen(0, 0, 3), 2, 1000), 'what they cost is not known').toBeNull()
  expect(saturation.of('m:1', seen(100, 10, 40), 2, 10_000)).toBe(2)
  expect(saturation.of('m:1', seen(100, 10, 0), 2, 11_000)).toBe(0)
  expect(saturation.of('m:1', seen(100, 10, 5), 0, 12_000), 'an ensemble').toBeNull()
})

test('what requests cost is that of the last minute; where none was answered, that of before', () => {
  const saturation = new Saturation()
  for (let s = 0; s <= 120; s += 5) saturation.of('m:1', seen(s * 10, s, 1), 1, s * 1000)
  // 0.1 s each until here, then 1 s each.
  for (let s = 5; s <= 60; s += 5) saturation.of('m:1', seen(1200 + s, 120 + s, 1), 1, 120_000 + s * 1000)
  expect(saturation.of('m:1', seen(1265, 185, 1), 1, 185_000)).toBeCloseTo(1, 1)
  expect(saturation.of('m:1', seen(1265, 185, 4), 1, 500_000)).toBeCloseTo(0.58, 1)
})

test('counters that begin again after a load are no negative cost, and versions that are gone are forgotten', () => {
  const saturation = new Saturation()
  saturation.of('m:1', seen(1000, 100, 1), 1, 0)
  expect(saturation.of('m:1', seen(10, 10, 3), 1, 10_000)).toBe(3)
  saturation.keep(new Set())
  expect(saturation.of('m:1', seen(10, 5, 2), 1, 11_000)).toBe(1)
})

test('instances are counted on each device of their group', () => {
  const of = (groups: string): number => instancesOf(parsePbtxt(`instance_group [ ${groups} ]`, 'config.pbtxt'))
  expect([of('{ count: 3 kind: KIND_CPU }'), of('{ count: 2 kind: KIND_GPU gpus: [ 0, 1 ] }, { count: 1 kind: KIND_MODEL }'), instancesOf(parsePbtxt('', 'config.pbtxt'))]).toEqual([3, 5, 0])
})

/** The suite `compute`: its verdicts, and control groups with a quota. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { cpuGroup } from '../../bench/lib/cgroup.mjs'
import { parseOptions } from '../../bench/lib/options.mjs'
import { judge } from '../../bench/report/targets.mjs'
import { BEFORE, BEST, SERVED, SPINNING, limited } from '../../bench/suites/compute.mjs'

const cell = (subject: string, workload: string, c: number, run: object, transport = 'HTTP') => ({
  suite: 'compute',
  subject,
  workload,
  c,
  transport,
  kind: 'nereid',
  runs: [run],
})
const rowOf = (what: string, cells: object[]) =>
  judge({ quick: false, cells, tritonReference: null }).find((row) => row.what.includes(what))

test('one request at a time is compared with the spinning loop, more with the best', () => {
  const loops = [
    cell(SPINNING, 'mlp', 1, { rate: 100 }, 'in process'),
    cell(BEST, 'mlp', 8, { rate: 300 }, 'in process'),
  ]
  const ours = [cell(SERVED, 'mlp', 1, { rate: 99 }), cell(SERVED, 'mlp', 8, { rate: 294 })]
  const cells = [...loops, ...ours]
  expect(rowOf(`MLP of 1 ms, c=1: rate ÷ ${SPINNING}`, cells)).toMatchObject({ figure: 0.99, verdict: 'missed' })
  expect(rowOf(`MLP of 1 ms, c=8: rate ÷ ${BEST}`, cells)).toMatchObject({ figure: 0.98, verdict: 'met' })
  expect(rowOf('ResNet-50, c=1', cells)).toBeUndefined()
})

test('a condition is judged beside the baseline of the same condition', () => {
  const condition = limited('mlp', 0.5)
  const cells = [
    cell(SERVED, condition, 8, { rate: 90, p99: 10, cpuUs: 5 }),
    cell(BEFORE, condition, 8, { rate: 100, p99: 11, cpuUs: 5 }),
  ]
  const what = `${limited('MLP of 1 ms', 0.5)}, c=8`
  expect(rowOf(`${what}: rate`, cells)).toMatchObject({ figure: 0.9, verdict: 'missed' })
  expect(rowOf(`${what}: p99`, cells)).toMatchObject({ verdict: 'met' })
  expect(rowOf(`${what}: cpuUs`, cells)).toMatchObject({ figure: 1, verdict: 'met' })
})

test('a group has its quota until it is removed, or there is a reason', () => {
  const group = cpuGroup(`nereid-test-${process.pid}`, 0.5)
  if (group.directory === undefined) return expect(group.reason).toMatch(/EACCES|EROFS|ENOENT|EPERM/)
  const v1 = join(group.directory, 'cpu.cfs_quota_us')
  const quota = existsSync(v1) ? v1 : join(group.directory, 'cpu.max')
  expect(readFileSync(quota, 'utf8')).toMatch(/^50000\b/)
  group.remove()
  expect(existsSync(group.directory)).toBe(false)
})

test('settings of the suite are read from the command line', () => {
  expect(parseOptions(['compute', '--compute=/d', '--compute-baseline=a=b,--c=d', '--only=mlp,bert'])).toMatchObject({
    suites: ['compute'],
    compute: '/d',
    computeBaseline: 'a=b,--c=d',
    only: ['mlp', 'bert'],
    computeInit: [],
  })
})

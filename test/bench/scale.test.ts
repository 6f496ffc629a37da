/** The suite `scale`: which sizes a machine is asked for, and what is told of the others. */
import { expect, test } from 'vitest'
import { scaleRows } from '../../bench/report/scale.mjs'
import { sizesFor } from '../../bench/suites/scale.mjs'

test('a machine is asked for no more reactors than it has cores, and the rest is told', () => {
  expect(sizesFor(2)).toEqual({
    sizes: [1, 2],
    notes: [
      'not measured: 4 and 8 reactors and instances, as this machine has 2 cores',
      'at 2 reactors the load generators share the 2 cores with the server: rates are lower than they could ' +
        'be, CPU per request is not',
    ],
  })
  expect(sizesFor(8)).toMatchObject({ sizes: [1, 2, 4, 8], notes: [expect.stringContaining('at 8 reactors')] })
  expect(sizesFor(16)).toEqual({ sizes: [1, 2, 4, 8], notes: [] })
  expect(sizesFor(16, true).sizes).toEqual([1, 2])
})

test('each size is compared with one reactor, repetition by repetition', () => {
  const cell = (n: number, transport: string, rates: number[]) => {
    const runs = rates.map((rate) => ({ rate, cpuUs: 10 + n, cores: n / 2 }))
    const spread = { median: rates[0], min: rates[0], max: rates[0], n: 1 }
    return {
      suite: 'scale',
      subject: `Nereid, ${n} reactor${n === 1 ? ' and instance' : 's and instances'}`,
      workload: 'simple',
      transport,
      runs,
      rate: spread,
      cpuUs: { ...spread, median: 10 + n },
    }
  }
  const rows = scaleRows([cell(1, 'HTTP', [100, 200]), cell(2, 'HTTP', [190, 380]), cell(2, 'gRPC', [50])])
  expect(rows.map(([, size, , times, , , cores]: string[]) => [size, times, cores])).toEqual([
    ['1', '', '0.50'],
    ['2', '1.90 (1.90–1.90)', '1.00'],
    // Nothing to compare with.
    ['2', '', '1.00'],
  ])
})

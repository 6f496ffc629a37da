/**
 * The cross-check reads perf_analyzer's table by column name: a column that moves or goes must not become another
 * figure.
 */
import { expect, test } from 'vitest'
import { perfAnalyzerArguments, readTable } from '../../bench/subjects/perf_analyzer.mjs'

const HEAD = 'Concurrency,Inferences/Second,Client Send,p50 latency,p90 latency,p95 latency,p99 latency'

test('figures come from their columns', () => {
  expect(readTable(`${HEAD}\n8,18301.8,32,308,553,771,3624\n`)).toEqual({
    rate: 18_301.8,
    p50: 308,
    p90: 553,
    p99: 3624,
  })
  expect(readTable('Request Rate,p99 latency,p90 latency,p50 latency,Inferences/Second\n2000,4,3,2,1')).toEqual({
    rate: 1,
    p50: 2,
    p90: 3,
    p99: 4,
  })
})

test('a table without a figure is refused', () => {
  expect(() => readTable(HEAD)).toThrow('no Inferences/Second')
  expect(() => readTable('Concurrency,Inferences/Second\n8,5')).toThrow('no p50 latency')
})

test('a closed loop asks for concurrency, an open one for a Poisson rate', () => {
  const args = (c: number, rate: number | null) =>
    perfAnalyzerArguments({ transport: 'gRPC', address: 'a:1', c, rate, seconds: 1.5, table: 't' }).join(' ')
  expect(args(8, null)).toContain(
    '-i grpc -u a:1 -f t --concurrency-range 8 --sync --measurement-mode time_windows -p 500',
  )
  expect(args(64, 2000)).toContain('--request-rate-range 2000 --request-distribution poisson')
})

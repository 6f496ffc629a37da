/** Our load generator beside perf_analyzer, as a table with its reading. */
import { whole, withRange } from './format.mjs'

export const CROSSCHECK_TEXT =
  'The same loads by our generator and by perf_analyzer, on one server, in turn; requests are counted by the ' +
  'server itself. With 8 requests at a time whoever is done sooner asks sooner, so the generator that needs ' +
  'less of the shared machine finds a faster server: ' +
  'compare the last column. With 2000 arrivals a second both ask for the same work. What is left then: ' +
  'perf_analyzer gives every request an id of its own, so the server cannot recognise a JSON head it has read ' +
  'before, ' +
  'and a core whose other half is busy with the generator does less per microsecond.'

export const CROSSCHECK_HEAD = [
  'load',
  'generator',
  'requests/s',
  'p50 µs',
  'p99 µs',
  'server CPU µs/request',
  'generator’s CPU µs/request',
]

export function crosscheckRows(cells) {
  return cells
    .filter((c) => c.suite === 'crosscheck')
    .map((c) => [
      `${c.transport}, ${c.targetRate === null ? `${c.c} at a time` : `${whole(c.targetRate)}/s`}`,
      c.subject,
      withRange(c.rate),
      withRange(c.p50),
      withRange(c.p99),
      withRange(c.cpuUs),
      withRange(c.clientCpuUs),
    ])
}

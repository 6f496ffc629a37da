/** Results of the suite `scale`, for both reports: each size, and one reactor with one instance in the same run. */
import { pairedRatio } from '../lib/stats.mjs'
import { short, withRange } from './format.mjs'

export const SCALE_TEXT =
  'Servers of so many reactors and instances, measured in turn. `simple` runs where it arrives, so reactors ' +
  'are measured; `millisecond` computes for a millisecond on one thread, so instances are. The rate is that ' +
  'of as many load generators as reactors.'

export const SCALE_HEAD = [
  '',
  'reactors and instances',
  'requests/s',
  '× of one',
  'CPU µs/request',
  '× of one',
  'cores used',
]

const sizeOf = (cell) => Number(/, (\d+) reactor/.exec(cell.subject)?.[1] ?? 0)

export function scaleRows(cells) {
  const own = cells.filter((c) => c.suite === 'scale')
  return own.map((c) => {
    const one = own.find((x) => sizeOf(x) === 1 && x.workload === c.workload && x.transport === c.transport)
    const times = (key) => (one === undefined || one === c ? '' : withRange(pairedRatio(c, one, key)))
    const cores = c.runs.map((r) => r.cores).filter(Number.isFinite)
    return [
      `${c.workload}, ${c.transport}`,
      `${sizeOf(c)}`,
      withRange(c.rate),
      times('rate'),
      withRange(c.cpuUs),
      times('cpuUs'),
      cores.length === 0 ? '' : short(Math.max(...cores)),
    ]
  })
}

/** Targets of the suite `compute`. */
import {
  BEFORE,
  BEST,
  CONCURRENCY,
  FASTAPI,
  NETWORKS,
  QUOTAS,
  SERVED,
  SPINNING,
  busy,
  limited,
} from '../suites/compute.mjs'
import { cellWith, withRange } from './format.mjs'

const CONDITIONS = [busy, ...QUOTAS.map((cores) => (name) => limited(name, cores))]

/** @param row, ratio as in `judge` */
export function computeRows(result, { row, ratio }) {
  const of = (subject, workload, c, transport = subject === SERVED || subject === FASTAPI ? 'HTTP' : 'in process') =>
    cellWith(result.cells, { suite: 'compute', subject, workload, c, transport })
  const isMeasured = (name) => result.cells.some((x) => x.suite === 'compute' && x.workload === name)
  for (const [name, { title }] of Object.entries(NETWORKS).filter(([key]) => isMeasured(key))) {
    for (const c of CONCURRENCY) {
      const [ours, loop] = [of(SERVED, name, c), of(c === 1 ? SPINNING : BEST, name, c)]
      const what = `${title}, c=${c}`
      const note = loop
        ? `${withRange(ours?.rate)}/s; loop ${withRange(loop.rate)}/s` +
          (c === 1 ? '' : `, ${loop.connections} × ${loop.streams} threads`)
        : ''
      const limit = c === 1 ? 1 : 0.97
      row(`${what}: rate ÷ ${c === 1 ? SPINNING : BEST}`, limit, 'least', ratio(ours, loop, 'rate'), { note })
    }
  }
  for (const [name, { title }] of Object.entries(NETWORKS)) {
    for (const condition of CONDITIONS.filter((one) => isMeasured(one(name)))) {
      for (const c of [1, 8]) {
        const [ours, before] = [SERVED, BEFORE].map((subject) => of(subject, condition(name), c, 'HTTP'))
        for (const [key, limit, direction] of [
          ['rate', 1, 'least'],
          ['p99', 1, 'most'],
          ['cpuUs', 1, 'most'],
        ])
          row(`${condition(title)}, c=${c}: ${key} ÷ the baseline's`, limit, direction, ratio(ours, before, key))
      }
    }
  }
}

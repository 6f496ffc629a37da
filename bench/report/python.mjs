/** Targets and words of the suite `python`, for the table of targets and both reports. */
import { spread } from '../lib/stats.mjs'
import { BUILT_IN, CODE, IDENTITY, WAKES } from '../suites/python.mjs'
import { pythonPaced } from '../workloads.mjs'
import { cellWith, withRange } from './format.mjs'

export const PYTHON_TEXT =
  'The same model.py in Nereid and in Triton, each in a process of its own. CPU is that of the server and of ' +
  'its Python processes together.'

/**
 * @param row, ratio as in `judge`
 * @param python name of the peer with a Python backend
 */
export function pythonRows(result, { row, ratio, python }) {
  const peer = ['Triton', python].find((name) => result.cells.some((c) => c.suite === 'python' && c.subject === name))
  const of = (subject, transport, workload, c = 1) =>
    cellWith(result.cells, { suite: 'python', subject, transport, workload, c })
  const missing = {
    missing: result.cells.some((c) => c.suite === 'python')
      ? 'one of the two servers did not run it: see “not compared”'
      : 'its suite did not run',
  }
  const p50 = (cell) => (cell?.p50 ? `${withRange(cell.p50)} µs` : '–')
  for (const transport of ['HTTP', 'gRPC']) {
    for (const size of ['64 B', '4 KiB']) {
      const [ours, builtIn] = [IDENTITY(size), BUILT_IN(size)].map((workload) => of('Nereid', transport, workload))
      const wakes = of(WAKES[transport], transport, BUILT_IN(size))
      const added = (ours?.runs ?? []).map((run, i) => (run.p50 - builtIn?.runs[i]?.p50) / wakes?.runs[i]?.p50)
      row(
        `${transport}, c=1, ${size}: p50 that Python adds to an identity ÷ p50 of two processes that wake each other`,
        1.3,
        'most',
        spread(added),
        {
          ...missing,
          note: ours
            ? `${p50(ours)}, built in ${p50(builtIn)}, ${WAKES[transport]} ${p50(wakes)}; Triton's: ` +
              p50(of(peer, transport, IDENTITY(size)))
            : '',
        },
      )
    }
    for (const c of [1, 8]) {
      const pair = ['Nereid', peer].map((subject) => of(subject, transport, IDENTITY('4 KiB'), c))
      row(
        `${transport}, c=${c}: CPU of a Python identity of 4 KiB ÷ Triton's, all processes`,
        0.4,
        'most',
        ratio(...pair, 'cpuUs'),
        {
          ...missing,
          note: pair[0]
            ? `${withRange(pair[0].cpuUs)} µs, ${withRange(pair[0].cpuMainUs)} of them the server's; Triton ` +
              `${withRange(pair[1]?.cpuUs)} and ${withRange(pair[1]?.cpuMainUs)}`
            : '',
        },
      )
    }
    const [ours, theirs] = ['Nereid', peer].map((subject) => of(subject, transport, pythonPaced.name, 16))
    row(
      `${pythonPaced.name} from a Python model, 16 streams over ${transport}: CPU of all processes per response`,
      100,
      'most',
      ours?.cpuUs,
      { ...missing, unit: 'µs', note: ours ? `Triton: ${withRange(theirs?.cpuUs)}` : '' },
    )
  }
  for (const form of ['json', 'binary']) {
    for (const [c, limit] of [
      [1, 1.3],
      [32, 2],
    ]) {
      const pair = ['Nereid', 'Fastify'].map((subject) => of(subject, 'HTTP', CODE(form), c))
      const note = pair[0] ? `p50 ${p50(pair[0])} and ${p50(pair[1])}` : ''
      const what = `of a TypeScript model ÷ Fastify with the same code, ${form}`
      row(`HTTP, c=${c}: rate ${what}`, limit, 'least', ratio(...pair, 'rate'), { ...missing, note })
    }
  }
}

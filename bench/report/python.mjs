/** Targets and words of the suite `python`, for the table of targets and both reports. */
import { pairedDifference } from '../lib/stats.mjs'
import { BUILT_IN, BUSY, CALLER, CODE, IDENTITY, PLAIN, STRINGS } from '../suites/python.mjs'
import { pythonBurst, pythonPaced } from '../workloads.mjs'
import { cellWith, short, withRange } from './format.mjs'

export const PYTHON_TEXT =
  'The same model.py in Nereid and in Triton, each in a process of its own. CPU is that of the server and of ' +
  'its Python processes together.'

/** µs that a request through Python may take longer than one to what is built in, by size. */
export const ADDED_US = { '64 B': 30, '4 KiB': 30, '600 KB': 120 }
const RATE = { 1: 2.3, 8: 3 }

/**
 * @param row, ratio, single as in `judge`
 * @param python name of the peer with a Python backend
 */
export function pythonRows(result, { row, ratio, single, python }) {
  const peer = ['Triton', python].find((name) => result.cells.some((c) => c.suite === 'python' && c.subject === name))
  const of = (subject, transport, workload, c = 1) =>
    cellWith(result.cells, { suite: 'python', subject, transport, workload, c })
  const missing = {
    missing: result.cells.some((c) => c.suite === 'python')
      ? 'one of the two servers did not run it: see “not compared”' : 'its suite did not run',
  }
  const p50 = (cell) => (cell?.p50 ? `${withRange(cell.p50)} µs` : '–')
  for (const transport of ['HTTP', 'gRPC']) {
    for (const [size, limit] of Object.entries(ADDED_US)) {
      const ours = of('Nereid', transport, IDENTITY(size))
      row(
        `${transport}, c=1, ${size}: p50 of a Python identity minus the identity that is built in`, limit, 'most',
        pairedDifference(ours, of('Nereid', transport, BUILT_IN(size)), 'p50'),
        {
        ...missing,
        unit: 'µs',
        note: ours ? `${p50(ours)}; Triton's: ${p50(of(peer, transport, IDENTITY(size)))}` : '',
      })
    }
    for (const [c, limit] of Object.entries(RATE)) {
      const pair = ['Nereid', peer].map((subject) => of(subject, transport, IDENTITY('4 KiB'), Number(c)))
      row(
        `${transport}, c=${c}: rate of a Python identity of 4 KiB ÷ Triton's`, limit, 'least', ratio(...pair, 'rate'),
        missing,
      )
      row(
        `${transport}, c=${c}: CPU of a Python identity of 4 KiB ÷ Triton's, all processes`, 0.4, 'most',
        ratio(...pair, 'cpuUs'),
        {
        ...missing,
          note: pair[0]
            ? `${withRange(pair[0].cpuUs)} µs, ${withRange(pair[0].cpuMainUs)} of them the server's; Triton ` +
              `${withRange(pair[1]?.cpuUs)} and ${withRange(pair[1]?.cpuMainUs)}`
            : '',
      })
    }
    const busy = ['Nereid', peer].map((subject) => of(subject, transport, BUSY, 8))
    row(`${transport}, c=8: rate of ${BUSY} ÷ Triton's`, 2, 'least', ratio(...busy, 'rate'), {
      ...missing, note: busy[0] ? `p50 ${p50(busy[0])} and ${p50(busy[1])}` : '',
    })
    const strings = ['Nereid', peer].map((subject) => of(subject, transport, STRINGS))
    row(`${transport}, c=1: p50 of ${STRINGS} through a Python model ÷ Triton's`, 1, 'most', ratio(...strings, 'p50'), {
      ...missing, note: strings[0] ? `${p50(strings[0])} and ${p50(strings[1])}` : '',
    })
    const call = (subject) => pairedDifference(of(subject, transport, CALLER), of(subject, transport, PLAIN), 'p50')
    const theirs = call(peer)
    row(
      `${transport}, c=1: p50 of a Python model that calls \`simple\` minus one that computes the same`, 40, 'most',
      call('Nereid'),
      {
      ...missing,
      unit: 'µs',
        note: theirs
          ? `Triton, where \`simple\` is a Python model${peer === python ? '' : ' or not'}: ${withRange(theirs)} µs`
          : '',
    })
    for (const [workload, c] of [[pythonPaced, 16], [pythonBurst, 4]]) {
      const cells = ['Nereid', peer].map((subject) => of(subject, transport, workload.name, c))
      row(
        `${workload.name} from a Python model, ${c} streams over ${transport}: CPU of the server per response`, 15,
        'most', cells[0]?.cpuMainUs,
        {
        ...missing,
        unit: 'µs',
          note: cells[0]
            ? `with its Python process ${withRange(cells[0].cpuUs)}; Triton: ` +
              `${withRange(cells[1]?.cpuMainUs)}, with its own ${withRange(cells[1]?.cpuUs)}`
            : '',
      })
    }
  }
  for (const form of ['json', 'binary']) {
    for (const [c, limit] of [[1, 1.3], [32, 2]]) {
      const pair = ['Nereid', 'Fastify'].map((subject) => of(subject, 'HTTP', CODE(form), c))
      const note = pair[0] ? `p50 ${p50(pair[0])} and ${p50(pair[1])}` : ''
      const what = `of a TypeScript model ÷ Fastify with the same code, ${form}`
      row(`HTTP, c=${c}: rate ${what}`, limit, 'least', ratio(...pair, 'rate'), { ...missing, note })
      if (c === 1) row(`HTTP, c=${c}: CPU ${what}`, 0.9, 'most', ratio(...pair, 'cpuUs'), missing)
    }
  }
  const idle = result.python?.idle
  const [other] = result.python?.peers ?? []
  const notes = [idle && `${idle.seconds} s`, other && `Triton: ${short(other.cpuUsPerSecond)} µs`]
  row('an instance that nobody asks: CPU of its process in a second', 0, 'most', single(idle?.cpuUsPerSecond), {
    ...missing,
    unit: 'µs',
    note: notes.filter(Boolean).join('; '),
  })
  row('an instance that nobody asks: memory of its process (PSS)', 30, 'most', single(idle?.pssMB), {
    ...missing,
    unit: 'MB',
    note: other ? `Triton, one of ${other.processes}: ${withRange(other.pssMB)} MB` : '',
  })
}

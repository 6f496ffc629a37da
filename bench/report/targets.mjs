/**
 * The project's targets beside what was found. One row per figure, judged on varied traffic where there are both kinds;
 * what repeated traffic gives stands in the note. A target is met or missed when all of the interval that holds the
 * median (`spread`) is on one side of the limit, and undecided when the limit lies inside it.
 */
import { pairedDifference, pairedRatio } from '../lib/stats.mjs'
import { PACED } from '../subjects/floors.mjs'
import { burst, paced } from '../workloads.mjs'
import { computeRows } from './compute.mjs'
import { peerTargets } from './peers.mjs'
import { pythonRows } from './python.mjs'
import { textRows } from './text.mjs'
import { short, withRange } from './format.mjs'

const LARGE = 16 << 20
/** Moves of a request's own values are some 20 kB; tensor bytes copied in small pieces would be many times this. */
const SMALL_MOVES_MAX = 1 << 20

/** Which side of the limit the median is on. */
function verdictOf({ min, max, low = min, high = max }, limit, direction) {
  const [isWithin, isBeyond] = direction === 'most' ? [high <= limit, low > limit] : [low >= limit, high < limit]
  return isWithin ? 'met' : isBeyond ? 'missed' : 'undecided'
}

/**
 * @returns rows of `{ what, target, figure, range, verdict, note }`; verdict is `met`, `missed`, `undecided` or `not
 * measured`
 */
export function judge(result) {
  const rows = []
  const find = (suite, subject, transport, more) =>
    result.cells.find((c) => c.suite === suite && c.subject === subject && c.transport === transport && more(c))
  const row = (what, limit, direction, found, { unit = '×', note = '', missing = 'its suite did not run' } = {}) => {
    const sign = direction === 'most' ? '≤' : '≥'
    const target = `${sign} ${limit}${unit === '×' ? '' : ` ${unit}`}`
    if (found === null || found === undefined)
      return rows.push({ what, target, figure: null, range: null, verdict: 'not measured', note: missing })
    rows.push({
      what,
      target,
      figure: found.median,
      range: [found.min, found.max],
      pairs: found.n,
      unit,
      verdict: verdictOf(found, limit, direction),
      note,
    })
  }
  const single = (value) =>
    value === null || value === undefined ? null : { median: value, min: value, max: value, n: 1 }
  const ratio = (a, b, key) => (a && b ? pairedRatio(a, b, key) : null)
  const at =
    (c, traffic = 'varied') =>
    (x) =>
      x.c === c && x.workload === 'simple' && (x.traffic ?? traffic) === traffic
  /** The same ratio when one request is repeated, for a note. */
  const repeated = (transport, c, other, key) => {
    const found = ratio(
      find('front', 'Nereid', transport, at(c, 'repeated')),
      find('front', other, transport, at(c, 'repeated')),
      key,
    )
    return found && `repeated: ${withRange(found)}`
  }

  for (const [transport, floor, limit] of [
    ['HTTP', 'hyper echo', 1.3],
    ['gRPC', 'h2 echo', 1.2],
  ]) {
    for (const c of [8, 32]) {
      row(
        `${transport} \`simple\`, c=${c}: CPU per request ÷ ${floor}`,
        limit,
        'most',
        ratio(find('front', 'Nereid', transport, at(c)), find('front', floor, transport, at(c)), 'cpuUs'),
        { note: repeated(transport, c, floor, 'cpuUs') ?? '' },
      )
    }
  }

  const triton = result.tritonReference
  // Limits are those beside a Triton that runs the model: answers from its cache are a figure, and no verdict.
  const isCompiled = triton === 'Triton'
  const besideTriton = (what, transport, c, key, limit, direction) => {
    const [ours, theirs] = ['Nereid', triton].map((subject) => find('front', subject, transport, at(c)))
    const found = ratio(ours, theirs, key)
    row(`${transport}, c=${c}: ${what} ÷ Triton's with ONNX Runtime`, limit, direction, isCompiled ? found : null, {
      note: repeated(transport, c, triton, key) ?? '',
      missing: `needs --triton${found ? `; ÷ answers of Triton's response cache: ${withRange(found)}` : ''}`,
    })
  }
  for (const [transport, cpu, rates] of [
    ['HTTP', 0.15, { 1: 2, 8: 4.5, 32: 4 }],
    ['gRPC', 0.12, { 1: 2.3, 8: 5.5, 32: 5.5 }],
  ]) {
    for (const c of [8, 32]) besideTriton('CPU per request', transport, c, 'cpuUs', cpu, 'most')
    for (const [c, limit] of Object.entries(rates))
      besideTriton('throughput', transport, Number(c), 'rate', limit, 'least')
  }
  peerTargets(result, { row, ratio })
  const noTriton = {
    missing: 'no Triton in this run: see “not compared”',
    note: triton !== null && !isCompiled ? 'Triton answers from its response cache: no ONNX Runtime backend here' : '',
  }
  for (const transport of ['HTTP', 'gRPC']) {
    const theirs = result.cells
      .filter((c) => c.suite === 'curves' && c.subject === triton && c.transport === transport)
      .toSorted((a, b) => a.targetRate - b.targetRate)
    // Shares are sorted like rates; full runs have 10, 20, 40, 60 and 80 %, quick ones 20, 40 and 70 %.
    const picks = result.quick ? { 20: theirs[0], 40: theirs[1] } : { 20: theirs[1], 40: theirs[2] }
    for (const [percent, other] of Object.entries(picks)) {
      const ours = other && find('curves', 'Nereid', transport, (c) => c.targetRate === other.targetRate)
      for (const [key, limit] of [
        ['p50', 0.65],
        ['p99', 0.7],
      ]) {
        const reason = result.quick && triton && transport === 'gRPC' ? { missing: 'only in full runs' } : noTriton
        row(
          `${transport}, open loop at ${percent} % of Triton's saturation: ${key} ÷ Triton's`,
          limit,
          'most',
          ratio(ours, other, key),
          reason,
        )
      }
    }
  }

  for (const [transport, floor, limit] of [
    ['HTTP', 'epoll echo', 1.6],
    ['gRPC', 'h2 echo', 1.5],
  ]) {
    const big = (c) => c.bytes === LARGE && c.form === 'binary'
    row(
      `16 MiB identity over ${transport}: CPU ÷ ${floor}`,
      limit,
      'most',
      ratio(find('sizes', 'Nereid', transport, big), find('sizes', floor, transport, big), 'cpuUs'),
    )
  }
  const python = 'Triton (Python backend)'
  for (const bytes of [1 << 20, LARGE]) {
    const of = (subject) =>
      find(
        'sizes',
        subject,
        'gRPC',
        (c) => c.bytes === bytes && c.form === 'binary' && c.workload.startsWith('identity'),
      )
    const what = `${bytes >> 20} MiB identity over gRPC`
    const missing = result.quick && bytes !== LARGE ? { missing: 'only in full runs' } : {}
    const http = find(
      'sizes',
      'Nereid',
      'HTTP',
      (c) => c.bytes === bytes && c.form === 'binary' && c.workload.startsWith('identity'),
    )
    row(`${what}: CPU ÷ HTTP's of the same bytes`, 1.15, 'most', ratio(of('Nereid'), http, 'cpuUs'), missing)
  }
  for (const transport of ['HTTP', 'gRPC']) {
    for (const c of [1, 8]) {
      const of = (model) => find('pipeline', 'Nereid', transport, (x) => x.c === c && x.workload === model)
      row(
        `${transport}, c=${c}: CPU of an ensemble of 6 tiny models minus one of 1, per step`,
        20,
        'most',
        pairedDifference(of('chain_6'), of('chain_1'), 'cpuUs', 5),
        { unit: 'µs', note: `a step in Triton, on the same kind of machine: ${c === 1 ? 144 : 92} µs` },
      )
    }
  }
  pythonRows(result, { row, ratio, single, python })
  for (const [workload, limit, c] of [
    [paced.name, 10, '64 streams'],
    [burst.name, 1.5, '4 streams'],
  ]) {
    for (const transport of ['gRPC', 'HTTP']) {
      const of = (subject) => find('stream', subject, transport, (x) => x.workload === workload)
      const theirs = of('Triton') ?? of(python)
      const floor = of(PACED)
      row(`${workload}, ${c} over ${transport}: CPU per response`, limit, 'most', of('Nereid')?.cpuUs, {
        unit: 'µs',
        note:
          (floor ? `a wake and a send: ${withRange(floor.cpuUs)} µs; ` : '') +
          (theirs?.cpuMainUs
            ? `Triton: ${withRange(theirs.cpuMainUs)} ` +
              `µs${theirs.subject === python ? ', without the process of its Python model' : ''}`
            : ''),
      })
    }
  }
  const counted = (key) => result.counts?.rows.find((r) => r.key === key)
  const shm = counted('shm')
  const [chain, alone] = [counted('chain'), counted('large http')]
  // Copies in small pieces do not grow with the tensor; if they did, they would be many, and all bytes count.
  const copiedOf = ({ ours }) => (ours.copiedBytes.median > SMALL_MOVES_MAX ? ours.copiedBytes : ours.largeCopiedBytes)
  const copied = shm && copiedOf(shm)
  row('16 MiB through shared memory into an ONNX model: bytes we copy', 0, 'most', copied, {
    unit: 'bytes',
    note: shm
      ? `the model itself copies ${shm.onnxruntime.largeCopiedBytes.median} inside ONNX Runtime; ` +
        `${Math.round(shm.ours.copiedBytes.median / 1000)} kB of moves of small values`
      : '',
  })
  const between = chain && alone && Math.max(0, copiedOf(chain).median - copiedOf(alone).median)
  row(
    '16 MiB between the steps of an ensemble of three: bytes we copy, beyond those of one model',
    0,
    'most',
    single(between),
    {
      unit: 'bytes',
      note:
        chain && alone
          ? `both copy what came with the head: ${copiedOf(alone).median}; the models copy ` +
            `${chain.onnxruntime.largeCopiedBytes.median} inside ONNX Runtime`
          : '',
    },
  )
  const json = find('sizes', 'Nereid', 'HTTP', (c) => c.form === 'json' && c.workload.startsWith('identity'))
  const perFloat = json?.cpuUs && {
    ...json.cpuUs,
    ...Object.fromEntries(['median', 'min', 'max'].map((k) => [k, (json.cpuUs[k] * 1000) / (256 << 10)])),
  }
  row('JSON, 256 Ki floats as numpy prints them, in and out: CPU per float, both ways', 40, 'most', perFloat, {
    unit: 'ns',
    note: json?.traffic === 'varied' ? '`data` before `datatype` in every other request' : '',
  })

  computeRows(result, { row, ratio })
  textRows(result, { row, ratio })

  for (const model of ['mlp', 'minilm']) {
    const of = (variant) =>
      result.cells.filter((c) => c.suite === 'batching' && c.workload === model && c.subject === `Nereid, ${variant}`)
    const ratios = of('learned batching')
      .map((on) => ({
        c: on.c,
        r: ratio(
          on,
          of('no batching').find((off) => off.c === on.c),
          'rate',
        ),
      }))
      .filter((x) => x.r)
    const worst = ratios.toSorted((a, b) => a.r.median - b.r.median)[0]
    row(`batching on ÷ off, ${model}, worst concurrency`, 0.97, 'least', worst?.r, {
      note: worst ? `c=${worst.c} of ${ratios.map((x) => x.c).join(', ')}` : '',
      ...(result.quick && model !== 'mlp' && { missing: 'only in full runs' }),
    })
    if (model === 'mlp') row('batching on ÷ off, mlp, c=64', 1.3, 'least', ratios.find((x) => x.c === 64)?.r)
  }

  const second = result.memory?.secondInstance
  row('second instance of a model: added memory ÷ the model', 0.03, 'most', single(second?.share), {
    note: second ? `${second.oneMiB.toFixed(0)} → ${second.twoMiB.toFixed(0)} MiB` : '',
    ...(result.quick && { missing: 'only in full runs' }),
  })
  const latency = result.isolation?.latency ?? []
  // One that computes takes a core away as well: its figure stands in the table of the suite.
  for (const start of ['JavaScript thread blocked (asleep)', 'metrics scraped']) {
    const found = latency.find((l) => l.name.startsWith(start))
    const control = latency.find((l) => l.name === found?.control)
    row(`p99 while ${found?.name ?? start} ÷ quiet`, 1.2, 'most', found?.p99Ratio, {
      note: [
        found && `${found.p99Quiet.median.toFixed(0)} → ${found.p99Disturbed.median.toFixed(0)} µs`,
        found?.note,
        control?.p99Ratio && `${control.name}: ${withRange(control.p99Ratio)}`,
      ]
        .filter(Boolean)
        .join('; '),
    })
  }
  const load = result.isolation?.heavy.find((l) => l.name.startsWith('a model that loads'))
  row('p99 beside a model that loads ÷ at a server that loads none, at the same moment', 1.2, 'most', load?.p99Ratio, {
    note: load
      ? `${load.p99Control.median.toFixed(0)} → ${load.p99Disturbed.median.toFixed(0)} µs; ${short(load.share)} cores`
      : '',
  })
  row('longest hold of a reactor for one client, of all heavy requests', 1, 'most', single(result.isolation?.holdMs), {
    unit: 'ms',
    note: 'CPU time between two polls, by nereid_reactor_hold_seconds_max',
  })
  row('times that the JavaScript thread runs for a request', 0.01, 'most', result.isolation?.scriptRuns, {
    unit: 'times',
    note: 'counted by the kernel in the quiet runs: a thread that does not run cannot delay one',
  })
  const many = result.isolation?.many
  for (const transport of ['HTTP', 'gRPC']) {
    row(
      `${transport}: CPU per request with 200 models ÷ with 1`,
      1.1,
      'most',
      many?.rows.find((r) => r.name.endsWith(transport))?.cpuRatio,
    )
  }
  row('threads added by 199 idle models', 0, 'most', single(many?.idleThreads), { unit: 'threads' })
  const bodies = result.memory?.bodies
  row('resident memory after 16 MiB bodies and quiet, minus before', 64, 'most', single(bodies?.growthMiB), {
    unit: 'MiB',
    note: bodies
      ? `${bodies.seconds} s of load, ${bodies.quietSeconds} s of ` +
        `quiet${result.quick ? ' (short form; the target is for 600 s and 60 s)' : ''}`
      : '',
  })
  row('ready with two small models, from process start', 300, 'most', result.startUp?.readyMs, { unit: 'ms' })
  return rows
}

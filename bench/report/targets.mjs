/**
 * The project's targets beside what was found. One row per figure, judged on varied traffic where there are both kinds;
 * what repeated traffic gives stands in the note. A target is met or missed when the whole range of the repetitions is
 * on one side of the limit, and undecided when the limit lies inside the range.
 */
import { median, pairedDifference, pairedRatio } from '../lib/stats.mjs'
import { PACED } from '../subjects/floors.mjs'
import { burst, paced } from '../workloads.mjs'
import { clientTargets } from './client.mjs'
import { computeRows } from './compute.mjs'
import { frameworkRows } from './frameworks.mjs'
import { pythonRows } from './python.mjs'
import { textRows } from './text.mjs'
import { short, withRange } from './format.mjs'

const LARGE = 16 << 20
/** Moves of a request's own values are some 20 kB; tensor bytes copied in small pieces would be many times this. */
const SMALL_MOVES_MAX = 1 << 20

/** Which side of the limit a range is on. */
function verdictOf({ min, max }, limit, direction) {
  const [isWithin, isBeyond] = direction === 'most' ? [max <= limit, min > limit] : [min >= limit, max < limit]
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
      what, target, figure: found.median, range: [found.min, found.max], pairs: found.n, unit,
      verdict: verdictOf(found, limit, direction), note,
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
      find('front', 'Nereid', transport, at(c, 'repeated')), find('front', other, transport, at(c, 'repeated')), key,
    )
    return found && `repeated: ${withRange(found)}`
  }

  for (const [transport, floor, limit] of [['HTTP', 'hyper echo', 1.7], ['gRPC', 'h2 echo', 1.8]]) {
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
  const stand =
    triton === 'Triton (response cache)' ? 'Triton answers from its response cache: no ONNX Runtime backend here' : ''
  const noTriton = { missing: 'no Triton in this run: see “not compared”', note: stand }
  for (const [transport, limit] of [['HTTP', 0.38], ['gRPC', 0.4]]) {
    for (const c of [8, 32]) {
      row(
        `${transport}, c=${c}: CPU per request ÷ Triton's`, limit, 'most',
        ratio(find('front', 'Nereid', transport, at(c)), find('front', triton, transport, at(c)), 'cpuUs'),
        { ...noTriton, note: [stand, repeated(transport, c, triton, 'cpuUs')].filter(Boolean).join('; ') },
      )
    }
  }
  for (const [transport, floor, limits] of [
    ['HTTP', 'hyper echo', { 1: 1.5, 8: 2, 32: 1.8 }],
    ['gRPC', 'h2 echo', { 1: 1.9, 8: 1.9, 32: 1.9 }],
  ]) {
    for (const [c, limit] of Object.entries(limits)) {
      const over = (subject) =>
        ratio(find('front', subject, transport, at(Number(c))), find('front', triton, transport, at(Number(c))), 'rate')
      // The ratio that a server without any work could reach here.
      const echo = over(floor)
      row(`${transport}, c=${c}: throughput ÷ Triton's`, limit, 'least', over('Nereid'), {
        ...noTriton,
        note: [stand, echo && `the ${floor} reaches ${withRange(echo)}`, repeated(transport, Number(c), triton, 'rate')]
          .filter(Boolean)
          .join('; '),
      })
    }
  }
  for (const transport of ['HTTP', 'gRPC']) {
    const theirs = result.cells
      .filter((c) => c.suite === 'curves' && c.subject === triton && c.transport === transport)
      .toSorted((a, b) => a.targetRate - b.targetRate)
    // Shares are sorted like rates; full runs have 10, 20, 40, 60 and 80 %, quick ones 20, 40 and 70 %.
    const picks = result.quick ? { 20: theirs[0], 40: theirs[1] } : { 20: theirs[1], 40: theirs[2] }
    for (const [percent, other] of Object.entries(picks)) {
      const ours = other && find('curves', 'Nereid', transport, (c) => c.targetRate === other.targetRate)
      for (const [key, limit] of [['p50', 0.65], ['p99', 0.7]]) {
        const reason = result.quick && triton && transport === 'gRPC' ? { missing: 'only in full runs' } : noTriton
        row(
          `${transport}, open loop at ${percent} % of Triton's saturation: ${key} ÷ Triton's`, limit, 'most',
          ratio(ours, other, key), reason,
        )
      }
    }
  }

  for (const [transport, floor, limit] of [['HTTP', 'epoll echo', 1.6], ['gRPC', 'h2 echo', 1.5]]) {
    const big = (c) => c.bytes === LARGE && c.form === 'binary'
    row(
      `16 MiB identity over ${transport}: CPU ÷ ${floor}`, limit, 'most',
      ratio(find('sizes', 'Nereid', transport, big), find('sizes', floor, transport, big), 'cpuUs'),
    )
  }
  const python = 'Triton (Python backend)'
  // An identity in Python would flatter every server beside it: an echo on bare sockets has no model, and is the least
  // that the transport takes.
  for (const bytes of [1 << 20, LARGE]) {
    const of = (subject) =>
      find(
        'sizes', subject, 'gRPC', (c) => c.bytes === bytes && c.form === 'binary' && c.workload.startsWith('identity'),
      )
    const what = `${bytes >> 20} MiB identity over gRPC`
    const missing = result.quick && bytes !== LARGE ? { missing: 'only in full runs' } : {}
    row(`${what}: CPU ÷ frame echo`, 1.6, 'most', ratio(of('Nereid'), of('frame echo'), 'cpuUs'), missing)
    row(`${what}: rate ÷ frame echo`, 0.7, 'least', ratio(of('Nereid'), of('frame echo'), 'rate'), missing)
    const http = find(
      'sizes', 'Nereid', 'HTTP', (c) => c.bytes === bytes && c.form === 'binary' && c.workload.startsWith('identity'),
    )
    row(`${what}: CPU ÷ HTTP's of the same bytes`, 1.15, 'most', ratio(of('Nereid'), http, 'cpuUs'), missing)
  }
  for (const transport of ['HTTP', 'gRPC']) {
    for (const c of [1, 8]) {
      const of = (model) => find('pipeline', 'Nereid', transport, (x) => x.c === c && x.workload === model)
      const peer = (model) =>
        [triton, python]
          .map((subject) => find('pipeline', subject, transport, (x) => x.c === c && x.workload === model))
          .find(Boolean)
      const here = pairedDifference(peer('chain_2'), peer('identity'), 'cpuMainUs')
      const theirs =
        `Triton on the same kind of machine: ${c === 1 ? 144 : 92} ` +
        `µs${here ? `; here, without the process of its Python model: ${withRange(here)}` : ''}`
      row(
        `${transport}, c=${c}: CPU of an ensemble of 6 tiny models minus one of 1, per step`, 20, 'most',
        pairedDifference(of('chain_6'), of('chain_1'), 'cpuUs', 5), { unit: 'µs' },
      )
      row(
        `${transport}, c=${c}: CPU of an ensemble of 2 tiny models minus one model alone`, 40, 'most',
        pairedDifference(of('chain_2'), of('identity'), 'cpuUs'), { unit: 'µs', note: theirs },
      )
    }
  }
  const three = (subject) =>
    result.cells.find((c) => c.suite === 'pipeline' && c.workload === 'three_milliseconds' && c.subject === subject)
  const bare = three('bare ONNX Runtime loop')
  row(
    'ensemble of three steps of a millisecond, c=1: time ÷ the same runs in one function', 1.05, 'most',
    ratio(bare, three('Nereid'), 'rate'),
    { note: bare?.rate ? `the runs alone: ${(1000 / bare.rate.median).toFixed(2)} ms` : '' },
  )
  for (const transport of ['HTTP', 'gRPC']) {
    for (const c of [8, 32]) {
      const of = (subject, model) => find('sequence', subject, transport, (x) => x.c === c && x.workload === model)
      for (const strategy of ['direct', 'oldest']) {
        const model = `simple_${strategy}`
        const [theirs, cpu] = [ratio(of('Nereid', model), of(python, model), 'rate'), of(python, model)?.cpuMainUs]
        row(
          `${transport}, c=${c}: rate of requests in sequences, ${strategy} ÷ without sequences`, 0.4, 'least',
          ratio(of('Nereid', model), of('Nereid', 'simple_stateless'), 'rate'),
          {
            note: theirs
              ? `÷ Triton's, whose model is in Python: ${withRange(theirs)}; CPU of its server alone ` +
                `${withRange(cpu)} µs, ours ${withRange(of('Nereid', model)?.cpuUs)}`
              : '',
        })
      }
    }
  }
  pythonRows(result, { row, ratio, single, python })
  frameworkRows(result, { row, ratio })
  for (const [transport, floor] of [['HTTP', 'hyper echo'], ['gRPC', 'h2 echo']]) {
    for (const c of [8, 32]) {
      const of = (subject) => find('cache', subject, transport, (x) => x.c === c)
      row(
        `${transport}, answers from the response cache, c=${c}: CPU per request ÷ ${floor}`, 1.3, 'most',
        ratio(of('Nereid'), of(floor), 'cpuUs'),
      )
    }
  }
  for (const [transport, floor] of [['HTTP', 'tokio-rustls echo'], ['gRPC', 'h2 echo over TLS']]) {
    const small = (subject) => find('tls', subject, transport, (x) => x.c === 8 && x.workload === 'simple')
    const [over, plain] = [small('Nereid (TLS)'), small('Nereid (plain)')]
    row(
      `${transport} \`simple\` over TLS, c=8: CPU per request minus plain`, 3, 'most',
      over && plain ? pairedDifference(over, plain, 'cpuUs') : null,
      {
      unit: 'µs',
        note:
          over && plain
            ? `p50 ${withRange(over.p50)} µs, plain ${withRange(plain.p50)}; p99 ${withRange(over.p99)} µs, ` +
              `plain ${withRange(plain.p99)}`
            : '',
    })
    const large = (subject) => find('tls', subject, transport, (x) => x.bytes === LARGE)
    row(
      `16 MiB identity over ${transport} and TLS: CPU ÷ ${floor}`, 1.2, 'most',
      ratio(large('Nereid (TLS)'), large(floor), 'cpuUs'),
    )
  }
  for (const [workload, limit, c] of [[paced.name, 10, '64 streams'], [burst.name, 1.5, '4 streams']]) {
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
  for (const transport of ['gRPC', 'HTTP']) {
    const all = result.stream?.counted.find((x) => x.transport === transport)
    row(`responses over ${transport} that are lost, doubled or swapped`, 0, 'most', single(all?.wrong), {
      unit: 'responses', note: all ? `of ${all.asked.toLocaleString('en')}` : '',
    })
  }
  const slow = result.stream?.slow
  row(
    'p99 of a client beside readers that do not read ÷ beside readers of the same that do', 1.2, 'most', slow?.ratio,
    {
      note: slow
        ? `${slow.p99Read.median.toFixed(0)} → ${slow.p99Slow.median.toFixed(0)} µs; alone: ` +
          `${slow.p99Quiet.median.toFixed(0)} µs`
        : '',
  })

  clientTargets(result, row, single)

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
    '16 MiB between the steps of an ensemble of three: bytes we copy, beyond those of one model', 0, 'most',
    single(between),
    {
    unit: 'bytes',
      note:
        chain && alone
          ? `both copy what came with the head: ${copiedOf(alone).median}; the models copy ` +
            `${chain.onnxruntime.largeCopiedBytes.median} inside ONNX Runtime`
          : '',
  })
  const http = counted('http')
  row(
    'system calls per HTTP `simple` request, c=8', 4, 'most', http && (http.kernelSystemCalls ?? http.ours.systemCalls),
    {
    unit: 'calls',
      note: http
        ? `counted by ${http.kernelSystemCalls ? 'the kernel' : 'the library in front of the C library'}; ` +
          `ours: ${http.ours.systemCalls.median.toFixed(2)}`
        : '',
  })
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

  /**
   * One setting beside the best of others at each concurrency: the row is about the concurrency where it does worst.
   */
  const best = (suite, model, setting, isOther, what, limit, control) => {
    const cells = result.cells.filter((c) => c.suite === suite && c.workload === model)
    const rate = (c) => median(c.runs.map((r) => r.rate))
    const pairs = cells
      .filter((c) => c.subject === `Nereid, ${setting}`)
      .map((own) => {
        // Chosen by its median: the worst of many noisy ratios would be the noise's.
        const other = cells.filter((c) => isOther(c.subject) && c.c === own.c).toSorted((x, y) => rate(y) - rate(x))[0]
        const same = cells.find((c) => c.subject === `Nereid, ${control}` && c.c === own.c)
        return {
          c: own.c, other: other?.subject.replace('Nereid, ', ''), r: ratio(own, other, 'rate'),
          same: ratio(own, same, 'rate'),
        }
      })
      .filter((p) => p.r)
    const worst = pairs.toSorted((x, y) => x.r.median - y.r.median)[0]
    row(what, limit, 'least', worst?.r, {
      note: worst
        ? `c=${worst.c} of ${pairs.map((p) => p.c).join(', ')}, against ` +
          `${worst.other}${worst.same ? `; control, against itself in a second process: ${withRange(worst.same)}` : ''}`
        : '',
      ...(result.quick && { missing: 'only in full runs' }),
    })
  }
  for (const model of ['mlp', 'minilm']) {
    const of = (variant) =>
      result.cells.filter((c) => c.suite === 'batching' && c.workload === model && c.subject === `Nereid, ${variant}`)
    const ratios = of('learned batching')
      .map((on) => ({
        c: on.c,
        r: ratio(
          on, of('no batching').find((off) => off.c === on.c), 'rate',
        ),
      }))
      .filter((x) => x.r)
    const worst = ratios.toSorted((a, b) => a.r.median - b.r.median)[0]
    row(`batching on ÷ off, ${model}, worst concurrency`, 0.97, 'least', worst?.r, {
      note: worst ? `c=${worst.c} of ${ratios.map((x) => x.c).join(', ')}` : '',
      ...(result.quick && model !== 'mlp' && { missing: 'only in full runs' }),
    })
    if (model === 'mlp') row('batching on ÷ off, mlp, c=64', 1.3, 'least', ratios.find((x) => x.c === 64)?.r)
    best(
      'batching', model, 'learned batching', (subject) => subject.includes('fixed delay'),
      `learned batching ÷ best fixed delay, ${model}, worst concurrency`, 1,
    )
  }

  for (const model of ['mlp', 'minilm', 'resnet50']) {
    best(
      'threads', model, 'default', (subject) => !subject.startsWith('Nereid, default'),
      `default threads ÷ best by hand, ${model}, worst concurrency`, 0.97, 'default again',
    )
  }

  const second = result.memory?.secondInstance
  row('second instance of a model: added memory ÷ the model', 0.03, 'most', single(second?.share), {
    note: second ? `${second.oneMiB.toFixed(0)} → ${second.twoMiB.toFixed(0)} MiB` : '',
    ...(result.quick && { missing: 'only in full runs' }),
  })
  const latency = result.isolation?.latency ?? []
  for (const start of [
    'JavaScript thread blocked (asleep)', 'JavaScript thread blocked (computing)', 'metrics scraped'
  ]) {
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
  for (const client of result.isolation?.heavy ?? []) {
    row(
      `p99 of ${client.of} beside ${client.name} ÷ at a server that is not asked, at the same moment`, 1.2, 'most',
      client.p99Ratio,
      {
      note: [
          `${client.p99Control.median.toFixed(0)} → ${client.p99Disturbed.median.toFixed(0)} µs; ` +
            `${short(client.share)} cores`,
        client.p99Quiet && `quiet: ${client.p99Quiet.median.toFixed(0)} µs`,
      ]
        .filter(Boolean)
        .join('; '),
    })
  }
  const many = result.isolation?.many
  for (const transport of ['HTTP', 'gRPC']) {
    row(
      `${transport}: CPU per request with 200 models ÷ with 1`, 1.1, 'most',
      many?.rows.find((r) => r.name.endsWith(transport))?.cpuRatio,
    )
  }
  row('threads added by 199 idle models', 0, 'most', single(many?.idleThreads), { unit: 'threads' })
  const loading = result.memory?.loading
  const mib = (of) => `${of.peak.toFixed(0)} and ${of.rest.toFixed(0)} MiB`
  row('peak memory of a load ÷ a bare session', 1.1, 'most', single(loading?.peakRatio), {
    note: loading
      ? `${loading.model}, peak and rest: bare ${mib(loading.bare)}, first load ${mib(loading.first)}, after ` +
        `an unload ${mib(loading.second)}`
      : '',
  })
  row('memory of a loaded model ÷ a bare session', 1.05, 'most', single(loading?.restRatio), {
    note: loading ? `${loading.model}; ${loading.unloadedMiB.toFixed(0)} MiB stay when it is unloaded` : '',
  })
  row(
    'peak memory while a model that serves is loaded again ÷ two bare sessions', 1.1, 'most',
    single(loading?.reloadRatio), { note: loading ? `${loading.model}: ${mib(loading.again)}` : '' },
  )
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

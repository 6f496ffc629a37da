/** The results as one page that needs nothing but itself: what was asked, targets, plots, every figure, conditions. */
import { COUNTS_HEAD, COUNTS_TEXT, SITES_HEAD, countRows, siteRows } from './counts.mjs'
import { CROSSCHECK_HEAD, CROSSCHECK_TEXT, crosscheckRows } from './crosscheck.mjs'
import { DEEP, FAMILIES, LOOP, SERVED } from '../suites/frameworks.mjs'
import { FRAMEWORKS_TEXT, TREES_HEAD, TREES_TEXT, treeRows } from './frameworks.mjs'
import { PEERS_HEAD, PEERS_TEXT, peerNotes, peerRows } from './peers.mjs'
import { PYTHON_TEXT } from './python.mjs'
import { SCALE_HEAD, SCALE_TEXT, scaleRows } from './scale.mjs'
import { STREAM_NOTES, STREAM_TEXT } from './stream.mjs'
import { conditionsText, figure, short, whole, withRange } from './format.mjs'
import { barChart, colourOf, escape, lineChart } from './plots.mjs'

const STYLE = `
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; max-width: 1320px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; }
h2 { margin-top: 2.4rem; border-bottom: 1px solid #d8dde3; padding-bottom: .2rem; }
p { max-width: 70ch; } .small { color: #59636e; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #e6e9ed; vertical-align: top; }
td.n, th.n { text-align: right; } td.n { white-space: nowrap; }
td.met, td.missed, td.none { white-space: nowrap; }
.met { color: #1a7f37; } .missed { color: #b42318; font-weight: 600; } .none { color: #6e7781; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(560px, 1fr)); gap: 1.2rem; }
svg { width: 100%; max-width: 680px; height: auto; font: 13px system-ui, sans-serif; }
svg .title { font-weight: 600; font-size: 14px; } svg .unit { fill: #59636e; font-weight: 400; font-size: 12px; }
svg .grid { stroke: #e6e9ed; } svg .range { stroke: #1f2328; stroke-width: 1.2; }
details { margin: .6rem 0; } summary { cursor: pointer; }
`

/** The paragraph below each heading of plots. */
const SECTION_TEXTS = {
  front:
    'The model adds and subtracts 16 integers, so nearly all of the cost is the server. ' +
    'Thin lines show the range over the repetitions.',
  curve:
    'Requests arrive at random times whatever the server does (open loop), and latency counts from when a request ' +
    'was due: a stall is seen in full.',
  pipeline: 'Models that return their inputs, in a chain: the cost of another step.',
  sequence:
    'The same model without sequences and with them, direct and oldest: the cost of finding the slot of a sequence.',
  cache: 'The cache has the response before the model runs, so the rest of the cost is the server alone.',
  batching:
    'Requests of one model can run together. Nereid learns the cost of a batch and decides whether to wait for more ' +
    'requests; other servers wait for a fixed time that somebody has to choose (dashed: the full time).',
  compute: 'Networks with default settings, beside bare loops of onnxruntime that know their requests, and FastAPI.',
  heavy: 'p99 at the server that does the work, and at the same moment at another server that does not.',
}

const median = (c, key) => c[key]?.median ?? null

function bars(cells, key, scale = 1) {
  const names = [...new Set(cells.map((c) => c.subject))]
  return cells
    .filter((c) => c[key] !== null)
    .map((c) => ({
      label: c.subject,
      value: c[key].median * scale,
      min: c[key].min * scale,
      max: c[key].max * scale,
      colour: colourOf(c.subject, names),
    }))
    .toSorted((a, b) => a.value - b.value)
}

function frontPlots(result) {
  const varied = result.cells.filter((x) => x.suite === 'front' && x.traffic !== 'repeated')
  const of = (transport, c) => varied.filter((x) => x.transport === transport && x.c === c)
  const out = []
  for (const transport of ['HTTP', 'gRPC']) {
    for (const c of [8, 32]) {
      out.push(
        barChart({
          title: `${transport}, ${c} requests at a time`,
          unit: 'server CPU, µs per request: shorter is better',
          bars: bars(of(transport, c), 'cpuUs'),
        }),
      )
    }
    out.push(
      barChart({
        title: `${transport}, 8 requests at a time`,
        unit: 'requests per second: longer is better',
        bars: bars(of(transport, 8), 'rate'),
      }),
    )
    const cells = varied.filter((x) => x.transport === transport)
    const names = [...new Set(cells.map((c) => c.subject))]
    const lines = names.map((name) => ({
      label: name,
      colour: colourOf(name, names),
      points: cells.filter((c) => c.subject === name && c.rate !== null).map((c) => [c.c, median(c, 'rate')]),
    }))
    const both = result.cells.filter(
      (x) =>
        x.suite === 'front' &&
        x.transport === transport &&
        x.c === 8 &&
        ['Nereid', 'hyper echo', 'h2 echo', 'Triton (response cache)', 'Triton'].includes(x.subject),
    )
    if (both.some((x) => x.traffic === 'repeated')) {
      const named = both.map((x) => ({ ...x, subject: `${x.subject}, ${x.traffic}` }))
      out.push(
        barChart({
          title: `${transport}: varied beside repeated, 8 requests at a time`,
          unit: 'server CPU, µs per request: shorter is better',
          bars: bars(named, 'cpuUs'),
        }),
      )
    }
    out.push(
      lineChart({
        title: `${transport}: scaling with concurrency`,
        xLabel: 'requests at a time',
        yLabel: 'requests per second',
        lines,
        xTicks: [1, 8, 32],
      }),
    )
  }
  return out
}

function curvePlots(result) {
  return ['HTTP', 'gRPC'].map((transport) => {
    const cells = result.cells.filter((c) => c.suite === 'curves' && c.transport === transport && c.p50 !== null)
    const names = [...new Set(cells.map((c) => c.subject))]
    const lines = names.flatMap((name) =>
      ['p50', 'p99'].map((key) => ({
        label: `${name}, ${key}`,
        colour: colourOf(name, names),
        isDashed: key === 'p99',
        points: cells.filter((c) => c.subject === name).map((c) => [c.targetRate, median(c, key)]),
      })),
    )
    return lineChart({
      title: `${transport}: latency over rate`,
      xLabel: 'requests per second that arrive (Poisson)',
      yLabel: 'µs from when a request was due',
      lines,
    })
  })
}

/**
 * Rate over concurrency, one plot per model and a line per setting; `isPlain` tells which lines are what a user gets.
 */
function settingPlots(result, suite, models, isPlain) {
  return models.map(([model, title]) => {
    const cells = result.cells.filter((c) => c.suite === suite && c.workload === model && c.rate !== null)
    const names = [...new Set(cells.map((c) => c.subject))]
    const lines = names.map((name) => ({
      label: name.replace('Nereid, ', ''),
      colour: colourOf(name, names),
      isDashed: !isPlain(name),
      points: cells.filter((c) => c.subject === name).map((c) => [c.c, median(c, 'rate')]),
    }))
    const xTicks = [...new Set(cells.map((c) => c.c))]
    return lineChart({ title, xLabel: 'requests at a time', yLabel: 'requests per second', lines, xTicks })
  })
}

const NETWORKS = [
  ['mlp', 'small network (MLP, 3 layers)'],
  ['minilm', 'transformer (MiniLM size)'],
]
const batchingPlots = (result) => settingPlots(result, 'batching', NETWORKS, (name) => !name.includes('fixed'))

function computePlots(result) {
  const models = [...new Set(result.cells.filter((c) => c.suite === 'compute').map((c) => c.workload))]
  return models.map((model) => {
    const cells = result.cells.filter((c) => c.suite === 'compute' && c.workload === model && c.rate !== null)
    const named = cells.map((c) => ({
      ...c,
      subject: `${c.subject}${c.transport === 'gRPC' ? ' (gRPC)' : ''}, ${c.c} at a time`,
    }))
    return barChart({ title: model, unit: 'requests per second: longer is better', bars: bars(named, 'rate') })
  })
}

function sizePlots(result) {
  return ['HTTP', 'gRPC'].map((transport) => {
    const cells = result.cells.filter(
      (c) =>
        c.suite === 'sizes' &&
        c.transport === transport &&
        c.form === 'binary' &&
        c.workload.startsWith('identity') &&
        c.cpuUs !== null,
    )
    const sizes = [...new Set(cells.map((c) => c.bytes))]
    if (sizes.length < 2) {
      return barChart({
        title: `${transport}: ${cells[0]?.workload ?? ''}`,
        unit: 'server CPU, ms per request: shorter is better',
        bars: bars(cells, 'cpuUs', 0.001),
      })
    }
    const names = [...new Set(cells.map((c) => c.subject))]
    const lines = names.map((name) => ({
      label: name,
      colour: colourOf(name, names),
      points: cells.filter((c) => c.subject === name).map((c) => [c.bytes, median(c, 'cpuUs')]),
    }))
    return lineChart({
      title: `${transport}: cost over size`,
      xLabel: 'bytes of the tensor, each way',
      yLabel: 'server CPU, µs per request',
      lines,
      xTicks: sizes,
    })
  })
}

function pipelinePlots(result) {
  return ['HTTP', 'gRPC'].map((transport) => {
    const cells = result.cells.filter(
      (c) => c.suite === 'pipeline' && c.transport === transport && c.c === 8 && c.cpuUs !== null,
    )
    const model = (workload) =>
      workload === 'identity' ? 'the model alone' : `ensemble of ${workload.replace('chain_', '')}`
    const named = cells.map((c) => ({ ...c, subject: `${c.subject}, ${model(c.workload)}` }))
    return barChart({
      title: `${transport}, 8 requests at a time`,
      unit: 'server CPU, µs per request: shorter is better',
      bars: bars(named, 'cpuUs'),
    })
  })
}

function pythonPlots(result) {
  return ['HTTP', 'gRPC'].map((transport) => {
    const cells = result.cells.filter(
      (c) => c.suite === 'python' && c.transport === transport && c.workload.endsWith(' 4 KiB') && c.cpuUs !== null,
    )
    const named = cells.map((c) => ({ ...c, subject: `${c.subject}, c=${c.c}` }))
    return cells.length === 0
      ? null
      : barChart({
          title: `${transport}, an identity of 4 KiB in Python`,
          unit: 'CPU of all processes, µs per request: shorter is better',
          bars: bars(named, 'cpuUs'),
        })
  })
}

/** Rates of the slow network in the server and in the bare loop of its framework. */
function frameworkPlots(result) {
  const deep = result.cells.filter((c) => c.suite === 'frameworks' && c.workload === DEEP && c.rate !== null)
  return FAMILIES.map(({ title }) => {
    const named = deep
      .filter((c) => [SERVED(title), LOOP(title)].includes(c.subject))
      .map((c) => ({ ...c, subject: c.kind === 'floor' ? c.subject : `${c.subject}, ${c.c} at a time` }))
    return named.length === 0
      ? null
      : barChart({
          title: `${title}, a deep network`,
          unit: 'requests per second: longer is better',
          bars: bars(named, 'rate'),
        })
  })
}

function treesSection({ cells }) {
  const rows = treeRows(cells)
  return rows.length === 0 ? '' : `<h2>Trees</h2><p>${escape(TREES_TEXT)}</p>${table(TREES_HEAD, rows)}`
}

function sequencePlots(result) {
  return ['HTTP', 'gRPC'].map((transport) => {
    const cells = result.cells.filter(
      (c) => c.suite === 'sequence' && c.transport === transport && c.c === 32 && c.cpuUs !== null,
    )
    const named = cells.map((c) => ({ ...c, subject: `${c.subject}, ${c.workload.replace('simple_', '')}` }))
    return barChart({
      title: `${transport}, 32 requests at a time`,
      unit: 'server CPU, µs per request: shorter is better',
      bars: bars(named, 'cpuUs'),
    })
  })
}

function cachePlots(result) {
  return ['HTTP', 'gRPC'].map((transport) => {
    const cells = result.cells.filter(
      (c) => c.suite === 'cache' && c.transport === transport && c.c === 8 && c.cpuUs !== null,
    )
    return barChart({
      title: `${transport}, 8 requests at a time`,
      unit: 'server CPU, µs per request: shorter is better',
      bars: bars(cells, 'cpuUs'),
    })
  })
}

function streamPlots(result) {
  const cells = result.cells.filter((c) => c.suite === 'stream' && c.cpuUs !== null)
  return [...new Set(cells.map((c) => c.workload))].map((workload) => {
    const named = cells
      .filter((c) => c.workload === workload)
      .map((c) => ({ ...c, subject: `${c.subject}, ${c.transport}` }))
    return barChart({
      title: `${workload}, ${named[0].c} streams`,
      unit: 'server CPU, µs per response: shorter is better',
      bars: bars(named, 'cpuUs'),
    })
  })
}

const tableRow = (cell, values) =>
  `<tr>${values.map((v, i) => `<${cell}${i > 1 ? ' class="n"' : ''}>${escape(v)}</${cell}>`).join('')}</tr>`

const table = (head, rows) =>
  `<table><thead>${tableRow('th', head)}</thead><tbody>${rows.map((r) => tableRow('td', r)).join('')}</tbody></table>`

function targetRows(targets) {
  const cls = { met: 'met', missed: 'missed', undecided: 'none', 'not measured': 'none' }
  const rows = targets.map(
    (t) =>
      `<tr><td>${escape(t.what).replace(/`([^`]+)`/g, '<code>$1</code>')}</td><td ` +
      `class="n">${escape(t.target)}</td><td class="n">${escape(figure(t))}</td><td ` +
      `class="${cls[t.verdict]}">${t.verdict}</td><td class="small">${escape(t.note)}</td></tr>`,
  )
  return (
    '<table><thead><tr><th>what</th><th class="n">target</th><th class="n">found ' +
    `(range)</th><th>verdict</th><th></th></tr></thead><tbody>${rows.join('')}</tbody></table>`
  )
}

function everyCell(result) {
  const rows = result.cells.map((c) => [
    c.subject,
    [
      c.workload,
      c.transport,
      c.form === 'binary' ? '' : c.form,
      c.traffic,
      c.targetRate === null ? `${c.c} at a time` : `${whole(c.targetRate)}/s asked`,
    ]
      .filter(Boolean)
      .join(', '),
    withRange(c.rate),
    ...['p50', 'p90', 'p99', 'p999'].map((key) => whole(median(c, key))),
    withRange(c.cpuUs),
    c.errors + c.unsent === 0 ? '0' : `${c.errors} / ${c.unsent}`,
  ])
  return table(
    ['subject', 'load', 'requests/s', 'p50 µs', 'p90', 'p99', 'p99.9', 'CPU µs/request', 'errors / unsent'],
    rows,
  )
}

function section(title, text, plots) {
  const shown = plots.filter(Boolean)
  return shown.length === 0 ? '' : `<h2>${title}</h2><p>${text}</p><div class="plots">${shown.join('')}</div>`
}

function countsSection({ counts }) {
  if (!counts) return ''
  const sites = siteRows(counts)
  const who =
    sites.length === 0
      ? ''
      : `<details><summary>Who allocates, and who copies most</summary>${table(SITES_HEAD, sites)}</details>`
  return `<h2>Counts per request</h2><p>${escape(COUNTS_TEXT)}</p>${table(COUNTS_HEAD, countRows(counts))}${who}`
}

function scaleSection({ cells, scale }) {
  const rows = scaleRows(cells)
  const notes = (scale?.notes ?? []).map((note) => `<li>${escape(note)}</li>`).join('')
  return rows.length === 0
    ? ''
    : `<h2>Reactors and instances</h2><p>${escape(SCALE_TEXT)}</p>${table(SCALE_HEAD, rows)}<ul>${notes}</ul>`
}

function peersSection(result) {
  const rows = peerRows(result)
  const notes = result.peers
    ? peerNotes(result.peers)
        .map((note) => `<li>${escape(note)}</li>`)
        .join('')
    : ''
  return rows.length === 0
    ? ''
    : `<h2>Beside other servers</h2><p>${escape(PEERS_TEXT)}</p>${table(PEERS_HEAD, rows)}<ul>${notes}</ul>`
}

function crosscheckSection({ cells }) {
  const rows = crosscheckRows(cells)
  return rows.length === 0
    ? ''
    : `<h2>Cross-check of the load generator</h2><p>${escape(CROSSCHECK_TEXT)}</p>${table(CROSSCHECK_HEAD, rows)}`
}

export function page(result) {
  const count = (verdict) => result.targets.filter((t) => t.verdict === verdict).length
  const gone = [
    ...result.absent,
    ...result.failed,
    ...(result.counts?.missing ?? []).map((m) => ({ name: `counts by ${m.tool}`, reason: m.reason })),
  ]
  const latency = result.isolation?.latency ?? []
  const counts = ['met', 'missed', 'undecided', 'not measured'].map(
    (verdict, i) => `${count(verdict)} ${i === 0 ? 'targets ' : ''}${verdict}`,
  )
  const unmeasured = result.targets.filter((t) => t.verdict === 'not measured')
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Nereid: measurements</title><style>${STYLE}</style></head><body>
<h1>Nereid: measurements</h1>
<p>Nereid is an inference server with the network API of NVIDIA Triton. This page shows what a request costs in it,
beside other servers and beside bare <b>echoes</b>: programs that only move the bytes of the same request, built from
the same libraries. <b>Varied</b> traffic, the default, sends requests that differ in id, data, rows, headers and
deadline; <b>repeated</b> traffic sends one again and again. <b>CPU per request</b> decides how many machines a service
needs.</p>
<p><b>${counts.join(', ')}</b>${result.quick ? ' in a quick run' : ''}.</p>
<p class="small">${escape(conditionsText(result))}</p>
${peersSection(result)}
${section('Small requests', SECTION_TEXTS.front, frontPlots(result))}
${section('Latency over rate', SECTION_TEXTS.curve, curvePlots(result))}
${section('Ensembles', SECTION_TEXTS.pipeline, pipelinePlots(result))}
${section('Models in Python', PYTHON_TEXT, pythonPlots(result))}
${section('Models of frameworks', FRAMEWORKS_TEXT, frameworkPlots(result))}
${treesSection(result)}
${section('Sequences', SECTION_TEXTS.sequence, sequencePlots(result))}
${section('Response cache', SECTION_TEXTS.cache, cachePlots(result))}
${section('Many answers', STREAM_TEXT, streamPlots(result))}
${
  result.stream
    ? `<ul>${STREAM_NOTES(result.stream)
        .map((text) => `<li>${escape(text)}</li>`)
        .join('')}</ul>`
    : ''
}
${section('Sizes', 'The same floats come back.', sizePlots(result))}
${section('Batching', SECTION_TEXTS.batching, batchingPlots(result))}
${section('Models that compute', SECTION_TEXTS.compute, computePlots(result))}
${scaleSection(result)}
${countsSection(result)}
${
  latency.length === 0
    ? ''
    : `<h2>Isolation</h2><p>p99 at ${latency[0].rate} requests/s, quiet and with something else going on.</p>${table(
        ['while', 'note', 'quiet µs', 'disturbed µs', 'ratio'],
        latency.map((l) => [l.name, l.note, withRange(l.p99Quiet), withRange(l.p99Disturbed), withRange(l.p99Ratio)]),
      )}`
}
${
  (result.isolation?.heavy ?? []).length === 0
    ? ''
    : `<h3>Clients that request much work</h3><p>${SECTION_TEXTS.heavy}</p>${table(
        ['p99 of', 'beside', 'other server µs', 'this server µs', 'ratio', 'cores'],
        result.isolation.heavy.map((l) => [
          l.of,
          l.name,
          withRange(l.p99Control),
          withRange(l.p99Disturbed),
          withRange(l.p99Ratio),
          short(l.share),
        ]),
      )}`
}
${crosscheckSection(result)}
<h2>Targets</h2>
<p>Ratios compare two sides that were measured in turn; the figure is the median of the pairs, with the range behind it.
A target is undecided when its limit lies inside the range of five pairs, or inside the part of more pairs that holds
the median as surely.</p>
${targetRows(result.targets.filter((t) => t.verdict !== 'not measured'))}
${
  unmeasured.length === 0
    ? ''
    : `<details><summary>${unmeasured.length} not measured here, with the reasons</summary>
${targetRows(unmeasured)}</details>`
}
<h2>Memory</h2>
${table(
  ['server', 'version', 'resting MiB', 'peak MiB'],
  result.subjects.map((s) => [s.name, s.version ?? '', whole(s.restingMiB), whole(s.peakMiB)]),
)}
${
  result.startUp
    ? `<p>Nereid with two small models: ready after ${withRange(result.startUp.readyMs)} ms, then
${short(result.startUp.restingMiB.median)} MiB.</p>`
    : ''
}
<h2>Not compared</h2>
${
  gone.length === 0
    ? '<p>Everything ran.</p>'
    : `<ul>${gone.map((g) => `<li><b>${escape(g.name)}</b>: ${escape(g.reason)}</li>`).join('')}</ul>`
}
<h2>Every figure</h2>
<details${result.cells.length < 30 ? ' open' : ''}><summary>${result.cells.length} cells</summary>
${everyCell(result)}</details>
</body></html>
`
}

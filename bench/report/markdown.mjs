/** The results as Markdown: the targets first, then every figure. */
import { pairedRatio } from '../lib/stats.mjs'
import { COUNTS_HEAD, COUNTS_TEXT, SITES_HEAD, countRows, siteRows } from './counts.mjs'
import { CROSSCHECK_HEAD, CROSSCHECK_TEXT, crosscheckRows } from './crosscheck.mjs'
import { SCALE_HEAD, SCALE_TEXT, scaleRows } from './scale.mjs'
import { CLIENT_HEAD, CLIENT_TEXT, clientNotes, clientRows } from './client.mjs'
import { FRAMEWORKS_TEXT, TREES_HEAD, TREES_TEXT, frameworkNotes, treeRows } from './frameworks.mjs'
import { PEERS_HEAD, PEERS_TEXT, peerNotes, peerRows } from './peers.mjs'
import { STREAM_NOTES } from './stream.mjs'
import { conditionsText, figure, short, whole, withRange } from './format.mjs'

const MARK = { met: 'met', missed: '**missed**', undecided: 'undecided', 'not measured': 'not measured' }
const ECHO = { HTTP: 'hyper echo', gRPC: 'h2 echo' }

function targetTable(targets) {
  return [
    '| target | limit | found | |',
    '|---|---|---|---|',
    ...targets.map(
      (t) => `| ${t.what} | ${t.target} | ${figure(t)} | ${MARK[t.verdict]}${t.note ? `: ${t.note}` : ''} |`,
    ),
  ]
}

const TITLES = {
  front: 'Small requests: `simple`',
  sizes: 'Sizes and forms',
  batching: 'Batching',
  compute: 'Models that compute',
  curves: 'Latency over rate, open loop',
  pipeline: 'Ensembles: `identity` alone, and so many times in a chain',
  python: 'Models in Python; decoupled ones: figures of one response',
  frameworks: 'Models of frameworks, beside bare loops in Python',
  sequence: 'Sequences: `simple` without, and in the middle of 64 sequences',
  cache: 'Response cache',
  tls: 'TLS: `simple` beside the same over plain TCP; 16 MiB beside an echo',
  unix: 'Unix sockets: `simple` beside the same over TCP on loopback',
  embed: 'Inside other servers: the API in one process with `node:http`, Fastify, `fetch` or grpc-js, beside the ports',
  stream: 'Many answers: `repeat`, figures of one response',
}

function cellTable(result, suite) {
  const cells = result.cells.filter((c) => c.suite === suite)
  if (cells.length === 0) return []
  const lines = [
    `### ${TITLES[suite]}`,
    '',
    '| | | requests/s | p50 µs | p90 µs | p99 µs | p99.9 µs | server CPU µs/request | ÷ echo | errors |',
    '|---|---|---|---|---|---|---|---|---|---|',
  ]
  for (const c of cells) {
    const echo = cells.find(
      (f) =>
        f.subject === ECHO[c.transport] &&
        f.traffic === c.traffic &&
        f.transport === c.transport &&
        f.workload === c.workload &&
        f.form === c.form &&
        f.c === c.c &&
        f.targetRate === c.targetRate,
    )
    const ratio = echo && c.kind !== 'floor' ? pairedRatio(c, echo, 'cpuUs') : null
    const load = c.targetRate === null ? `c=${c.c}` : `${whole(c.targetRate)}/s asked`
    const what = [c.workload, c.transport, c.form === 'binary' ? '' : c.form, load, c.traffic]
      .filter(Boolean)
      .join(', ')
    const value = (key) => whole(c[key]?.median)
    const errors = c.errors + c.unsent === 0 ? '0' : `${c.errors}${c.unsent > 0 ? ` and ${c.unsent} unsent` : ''}`
    lines.push(
      `| ${c.subject} | ${what} | ${short(c.rate?.median)} | ${value('p50')} | ${value('p90')} | ` +
        `${value('p99')} | ${value('p999')} | ${withRange(c.cpuUs)} | ${ratio ? short(ratio.median) : ''} | ` +
        `${errors} |`,
    )
  }
  return [...lines, '']
}

const table = (head, rows) => [
  `| ${head.join(' | ')} |`,
  `|${'---|'.repeat(head.length)}`,
  ...rows.map((r) => `| ${r.join(' | ')} |`),
  '',
]

export function markdown(result) {
  const lines = [conditionsText(result), '']
  const beside = peerRows(result)
  if (beside.length > 0)
    lines.push(
      '### Beside other servers',
      '',
      PEERS_TEXT,
      '',
      ...table(PEERS_HEAD, beside),
      ...(result.peers ? peerNotes(result.peers) : []).map((note) => `- ${note}`),
      '',
    )
  lines.push('### Targets', '', ...targetTable(result.targets), '')
  for (const suite of Object.keys(TITLES)) lines.push(...cellTable(result, suite))
  const crossed = crosscheckRows(result.cells)
  if (crossed.length > 0)
    lines.push('### Cross-check of the load generator', '', CROSSCHECK_TEXT, '', ...table(CROSSCHECK_HEAD, crossed))
  if (result.frameworks)
    lines.push(...[FRAMEWORKS_TEXT, ...frameworkNotes(result.frameworks)].map((text) => `- ${text}`), '')
  const forests = treeRows(result.cells)
  if (forests.length > 0) lines.push('### Trees', '', TREES_TEXT, '', ...table(TREES_HEAD, forests))
  const scaled = scaleRows(result.cells)
  if (scaled.length > 0)
    lines.push(
      '### Reactors and instances',
      '',
      SCALE_TEXT,
      '',
      ...table(SCALE_HEAD, scaled),
      ...(result.scale?.notes ?? []).map((note) => `- ${note}`),
      '',
    )
  if (result.stream) {
    lines.push(...STREAM_NOTES(result.stream).map((text) => `- ${text}`), '')
  }
  if (result.client)
    lines.push(
      '### The client in TypeScript',
      '',
      CLIENT_TEXT,
      '',
      ...table(CLIENT_HEAD, clientRows(result.client)),
      ...clientNotes(result.client).map((note) => `- ${note}`),
      '',
    )
  if (result.counts) {
    lines.push('### Counts per request', '', COUNTS_TEXT, '', ...table(COUNTS_HEAD, countRows(result.counts)))
    const sites = siteRows(result.counts).filter((r) => r[1].startsWith('allocation'))
    if (sites.length > 0) lines.push('Who allocates:', '', ...table(SITES_HEAD, sites))
  }
  if (result.isolation?.latency.length > 0) {
    lines.push(
      '### Isolation',
      '',
      `| at ${result.isolation.latency[0].rate} requests/s | p99 quiet µs | p99 disturbed µs | ratio | errors |`,
      '|---|---|---|---|---|',
    )
    for (const l of result.isolation.latency)
      lines.push(
        `| ${l.name} | ${withRange(l.p99Quiet)} | ${withRange(l.p99Disturbed)} | ${withRange(l.p99Ratio)} | ` +
          `${l.errors} |`,
      )
    lines.push('')
  }
  if (result.isolation?.heavy?.length > 0) {
    lines.push(
      'Beside work that one client asks for: at the server that does it, and at the same moment at another ' +
        'that does not:',
      '',
      '| p99 of | beside | other server µs | this server µs | ratio | cores |',
      '|---|---|---|---|---|---|',
    )
    for (const l of result.isolation.heavy)
      lines.push(
        `| ${l.of} | ${l.name} | ${withRange(l.p99Control)} | ${withRange(l.p99Disturbed)} | ` +
          `${withRange(l.p99Ratio)} | ${short(l.share)} |`,
      )
    lines.push('')
  }
  lines.push('### Memory and start', '', '| | version | resting MiB | peak MiB |', '|---|---|---|---|')
  for (const s of result.subjects)
    lines.push(`| ${s.name} | ${s.version ?? ''} | ${whole(s.restingMiB)} | ${whole(s.peakMiB)} |`)
  if (result.startUp)
    lines.push(
      `| Nereid with two small models; ready after ${withRange(result.startUp.readyMs)} ms | | ` +
        `${withRange(result.startUp.restingMiB)} | |`,
    )
  if (result.isolation?.many)
    lines.push(
      `| Nereid with 200 models (with 1: ${whole(result.isolation.many.restingMiB.one)} MiB) | | ` +
        `${whole(result.isolation.many.restingMiB.many)} | |`,
    )
  if (result.memory) {
    const b = result.memory.bodies
    lines.push(
      `| Nereid, ${b.seconds} s of 16 MiB bodies, then ${b.quietSeconds} s of quiet: ${whole(b.afterMiB)} ` +
        `MiB | | ${whole(b.beforeMiB)} | ${whole(b.peakMiB)} |`,
    )
  }
  lines.push('')
  const gone = [
    ...result.absent.map((a) => `${a.name}: ${a.reason}`),
    ...result.failed.map((f) => `${f.name}: ${f.reason}`),
    ...(result.counts?.missing ?? []).map((m) => `counts by ${m.tool}: ${m.reason}`),
  ]
  if (gone.length > 0) lines.push('### Not compared', '', ...gone.map((g) => `- ${g}`), '')
  return lines.join('\n')
}

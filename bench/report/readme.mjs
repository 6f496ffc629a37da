#!/usr/bin/env node
/**
 * The README's part: `node bench/report/readme.mjs bench/results/full.json` writes a run's chart, a short table and how
 * many targets were missed between the marks in README.md. So what the README says is what a run found. Which targets
 * were missed stands on the page of the results.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { withPart } from '../../scripts/lib/part.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { BARE } from '../subjects/floors.mjs'
import { short } from './format.mjs'
import { barChart, colourOf } from './plots.mjs'

const COLUMNS = [['HTTP', 1], ['HTTP', 8], ['HTTP', 32], ['gRPC', 1], ['gRPC', 8], ['gRPC', 32]]
/** The echoes speak one transport each: one row for both. */
const ECHOES = { HTTP: 'hyper echo', gRPC: 'h2 echo' }

const title = ([transport, c]) => `${transport}, ${transport === 'gRPC' && c > 8 ? `${c / 8}×8` : `c=${c}`}`
const rateText = (rate) => (rate >= 10_000 ? `${Math.round(rate / 1000)}k` : `${(rate / 1000).toFixed(1)}k`)

/** Server CPU per request and rate of every subject on the small model. */
function smallTable(result) {
  const cell = (subject, [transport, c]) => {
    const found = result.cells.find(
      (x) =>
        x.suite === 'front' &&
        x.workload === 'simple' &&
        x.subject === subject &&
        x.transport === transport &&
        x.c === c &&
        x.traffic !== 'repeated',
    )
    return found?.cpuUs && found.rate ? `${short(found.cpuUs.median)} (${rateText(found.rate.median)})` : '–'
  }
  const servers = [
    ...new Set(result.cells.filter((c) => c.suite === 'front' && c.kind !== 'floor').map((c) => c.subject)),
  ]
  const rows = servers.map((s) => [s === 'Nereid' ? '**Nereid**' : s, ...COLUMNS.map((column) => cell(s, column))])
  rows.push(['bare hyper / h2 echo, no model', ...COLUMNS.map((column) => cell(ECHOES[column[0]], column))])
  const head = ['server CPU per request, µs (requests/s)', ...COLUMNS.map(title)]
  return [head, head.map(() => '---'), ...rows].map((r) => `| ${r.join(' | ')} |`)
}

/** CPU per request at 8 requests at a time, as a picture. */
function readmeChart(result) {
  const cells = ['HTTP', 'gRPC'].flatMap((transport) =>
    result.cells.filter(
      (c) =>
        c.suite === 'front' &&
        c.transport === transport &&
        c.c === 8 &&
        c.traffic !== 'repeated' &&
        c.cpuUs &&
        !BARE.includes(c.subject),
    ),
  )
  const names = [...new Set(cells.map((c) => c.subject))]
  const bars = cells.map((c) => ({
    label: `${c.subject}, ${c.transport}`,
    value: c.cpuUs.median,
    min: c.cpuUs.min,
    max: c.cpuUs.max,
    colour: colourOf(c.subject, names),
  }))
  const isVaried = cells.some((c) => c.traffic === 'varied')
  const title = `simple, 8 requests at a time${isVaried ? ', every request different' : ''}`
  return barChart({
    title, unit: 'server CPU, µs per request: shorter is better', bars: bars.toSorted((a, b) => a.value - b.value),
    standalone: true,
  })
}

export function readmePart(result, path) {
  const count = (verdict) => result.targets.filter((t) => t.verdict === verdict).length
  const { conditions: c, repetitions, seconds } = result
  // A run may have measured some suites only; the others are those of earlier runs.
  const { date, commit } = result.measured?.find(({ suites }) => suites.includes('front')) ?? {
    date: result.date, commit: c.commit,
  }
  return [
    `![Server CPU per request beside other servers](${path.replace(/\.md$/, '.svg')})`,
    '',
    ...smallTable(result),
    '',
    `Medians of ${repetitions} repetitions of ${seconds} s, measured on ${date.slice(0, 10)} at commit ` +
      `${commit} on ${c.cpus} × ${c.cpu} (Linux ${c.kernel}, Node ${c.node}), with the load`,
    'generator on the same machine. The model is small: the larger a network, the less of its time is the ' +
      `server's. Of ${result.targets.length} targets, ${count('met')} are met, ${count('missed')} are missed, ` +
      `${count('undecided')} are undecided`,
    `(the limit is inside the range of the repetitions) and ${count('not measured')} are not measured. ` +
      `[${path}](${path}) lists each target with its range and conditions.`,
  ].join('\n')
}

function write(from) {
  const file = join(ROOT, 'README.md')
  const text = readFileSync(file, 'utf8')
  const result = JSON.parse(readFileSync(from, 'utf8'))
  const part = readmePart(result, relative(ROOT, from.replace(/\.json$/, '.md')))
  writeFileSync(from.replace(/\.json$/, '.svg'), readmeChart(result))
  writeFileSync(file, withPart(text, 'bench/report/readme.mjs', part))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const from = process.argv[2]
  if (from === undefined) {
    console.error('usage: node bench/report/readme.mjs bench/results/full.json')
    process.exitCode = 1
  } else {
    write(resolve(from))
  }
}

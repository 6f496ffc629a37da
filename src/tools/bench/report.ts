/** The report as one HTML file: a table and curves, without scripts and without the network, light and dark. */

import { timeOf } from '../why/record.js'
import type { Row } from './measure.js'
import type { Goal, Statistic } from './settings.js'
import { loadText } from './table.js'

interface Point {
  x: number
  y: number
}

interface Curve {
  label: string
  points: Point[]
}

interface Chart {
  title: string
  xLabel: string
  curves: Curve[]
  x: (value: number) => string
  y: (value: number) => string
  /** The x axis is that of percentiles, which is far to the right for most. */
  isLogarithmic?: true
  /** Points are single runs, with no line between them. */
  isDotted?: true
  limit?: { text: string; y: number }
}

const [WIDTH, HEIGHT] = [640, 260]
const [LEFT, TOP, RIGHT, BOTTOM] = [72, 16, 32, 40]
/** Curves of a chart; more cannot be told apart. */
const CURVES_MAX = 6
const TICKS = 5

const escaped = (text: string): string =>
  text.replace(/[&<>"]/g, (one) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[one] ?? one)

/**
 * @param title says what was measured
 * @param lines are those of the terminal: failures first, the table, remarks
 */
export function reportOf(
  title: string,
  lines: readonly string[],
  rows: readonly Row[],
  goal: Goal | null,
  at: Date,
): string {
  const isOpen = rows.some(({ load }) => load.kind === 'rate')
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}</title>
<style>${STYLE}</style>
<h1>${escaped(title)}</h1>
<p>Measured by nereid bench, ${at.toISOString().slice(0, 16).replace('T', ' ')} UTC.${
    isOpen ? '\nLatencies of an open loop count from when a request was due.' : ''
  }</p>
<pre>${escaped(lines.join('\n'))}</pre>
${chartsOf(rows, goal).map(chartText).join('\n')}
</html>
`
}

function chartsOf(all: readonly Row[], goal: Goal | null): Chart[] {
  // The closed loop that begins a search is no point of its curve.
  const rows = goal === null ? all : all.filter(({ load }) => load.kind === 'rate')
  const each = Math.max(1, (rows.length - 1) / (CURVES_MAX - 1))
  const shown = rows.filter((_, i) => Math.round(Math.round(i / each) * each) === i)
  const rate = (value: number): string => `${Number(value.toPrecision(3)).toLocaleString('en-US')}/s`
  const byRate = rows.toSorted((a, b) => a.result.rate - b.result.rate)
  const labels = shown.map(({ load }) => loadText(load))
  // Several runs at a rate have names of their own.
  const labelOf = (i: number): string => {
    const before = labels.slice(0, i).filter((one) => one === labels[i]).length
    return before === 0 ? (labels[i] ?? '') : `${labels[i]}, run ${before + 1}`
  }
  const latency = (name: Statistic): Curve => ({
    label: name,
    points: byRate.map(({ result }) => ({ x: result.rate, y: result.latency_us[name] })),
  })
  return [
    ...(rows.length < 2
      ? []
      : [
          {
            title: 'Latency by rate',
            xLabel: 'answered requests',
            curves: (goal === null ? (['p50', 'p90', 'p99'] as const) : [goal.statistic]).map(latency),
            x: rate,
            y: timeOf,
            ...(goal !== null && { isDotted: true as const, limit: { text: goal.text, y: goal.limitUs } }),
          },
        ]),
    {
      title: 'Latency by percentile',
      xLabel: 'percentile of the requests',
      isLogarithmic: true as const,
      curves: shown.map(({ result }, i) => ({ label: labelOf(i), points: percentiles(result.histogram) })),
      x: (value: number) => `${Number((100 * (1 - 10 ** -value)).toPrecision(6))} %`,
      y: timeOf,
    },
    {
      title: 'Rate over time',
      xLabel: 'seconds',
      curves: shown.map(({ result }, i) => ({
        label: labelOf(i),
        points: result.series.map((point) => ({ x: point.at_s, y: point.rate })),
      })),
      x: (value: number) => `${Number(value.toPrecision(3))} s`,
      y: rate,
    },
  ].filter(({ curves }) => curves.some(({ points }) => points.length > 1))
}

/** Latencies by the count of nines: 1 is 90 %, 2 is 99 %. */
function percentiles(histogram: readonly [number, number][]): Point[] {
  const total = histogram.reduce((sum, [, count]) => sum + count, 0)
  const most = Math.min(5, Math.log10(Math.max(total, 1)))
  let below = 0
  return histogram.map(([upper, count]) => {
    below += count
    return { x: below === total ? most : Math.min(most, -Math.log10(1 - below / total)), y: upper }
  })
}

function chartText({ title, xLabel, curves, x, y, isLogarithmic, isDotted, limit }: Chart): string {
  const points = curves.flatMap((curve) => curve.points)
  const xMost = Math.max(...points.map((point) => point.x))
  const xLeast = isLogarithmic === true ? 0 : Math.min(...points.map((point) => point.x), xMost * 0.999)
  const yMost = Math.max(limit?.y ?? 0, ...points.map((point) => point.y)) * 1.05 || 1
  const left = (value: number): string =>
    (LEFT + ((value - xLeast) / (xMost - xLeast || 1)) * (WIDTH - LEFT - RIGHT)).toFixed(1)
  const top = (value: number): string => (HEIGHT - BOTTOM - (value / yMost) * (HEIGHT - TOP - BOTTOM)).toFixed(1)
  const ticks = Array.from({ length: TICKS }, (_, i) => i / (TICKS - 1))
  const xTicks =
    isLogarithmic === true
      ? Array.from({ length: Math.floor(xMost) + 1 }, (_, i) => i)
      : ticks.map((part) => xLeast + part * (xMost - xLeast))
  const grid = [
    ...ticks
      .map((part) => part * yMost)
      .map(
        (value) =>
          `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${top(value)}" y2="${top(value)}"/>` +
          `<text x="${LEFT - 6}" y="${top(value)}" dy="4" text-anchor="end">${escaped(y(value))}</text>`,
      ),
    // The first and the last label stay inside of the picture.
    ...xTicks.map(
      (value, i) =>
        `<text x="${left(value)}" y="${HEIGHT - BOTTOM + 16}" ` +
        `text-anchor="${i === 0 ? 'start' : i === xTicks.length - 1 ? 'end' : 'middle'}">${escaped(x(value))}</text>`,
    ),
    `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 6}" text-anchor="middle">${escaped(xLabel)}</text>`,
  ]
  const drawn = curves.map(({ points }, k) =>
    isDotted === true
      ? points.map((point) => `<circle class="c${k}" cx="${left(point.x)}" cy="${top(point.y)}" r="3"/>`).join('')
      : `<polyline class="c${k}" points="${points.map((point) => `${left(point.x)},${top(point.y)}`).join(' ')}"/>`,
  )
  if (limit !== undefined)
    drawn.push(
      `<line class="limit" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${top(limit.y)}" y2="${top(limit.y)}"/>` +
        `<text x="${LEFT + 4}" y="${top(limit.y)}" dy="-4">${escaped(limit.text)}</text>`,
    )
  const legend = curves.map((curve, k) => `<li class="c${k}">${escaped(curve.label)}</li>`)
  return `<figure>
<figcaption>${escaped(title)}</figcaption>
<div><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escaped(title)}">${[...grid, ...drawn].join(
    '',
  )}</svg></div>
<ul>${legend.join('')}</ul>
</figure>`
}

const COLOURS = ['#2563eb', '#c2410c', '#15803d', '#9333ea', '#be185d', '#0f766e']

const STYLE = `
:root { color-scheme: light dark; --text: #1f2328; --back: #fff; --line: #d0d7de }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --line: #30363d } }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: var(--text); background: var(--back);
  font: 1rem/1.5 system-ui, sans-serif }
h1 { font-size: 1.4rem; overflow-wrap: anywhere }
pre { overflow-x: auto; font-size: 0.85rem }
figure { margin: 2rem 0 }
.limit { stroke: #c2410c; stroke-dasharray: 6 4 }
circle { fill: none; stroke-width: 2 }
figcaption { font-weight: 600 }
figure div { overflow-x: auto }
svg { width: 100%; min-width: 28rem; height: auto }
svg text { fill: var(--text); font-size: 11px }
svg line:not(.limit) { stroke: var(--line) }
polyline { fill: none; stroke-width: 2 }
ul { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: 0; list-style: none }
li::before { content: '■ '; color: currentColor }
li { color: var(--text) }
${COLOURS.map((colour, k) => `.c${k} { stroke: ${colour} } li.c${k}::before { color: ${colour} }`).join('\n')}
`

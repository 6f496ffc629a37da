/** Plots as SVG text: bars, and lines over one or two logarithmic axes. No script, no font, nothing to fetch. */
import { short } from './format.mjs'

const COLOURS = ['#0b6e99', '#d1495b', '#edae49', '#5b8c5a', '#7b5ea7', '#8d6e63', '#00897b', '#9e9e9e']
const GREY = '#b4b9c0'

export const escape = (text) =>
  String(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')

/** Nereid always has the first colour and echoes are grey, so that a reader learns them once. */
export function colourOf(name, names) {
  if (name.startsWith('Nereid') && !names.some((n) => n !== name && n.startsWith('Nereid'))) return COLOURS[0]
  if (/echo|bare /.test(name)) return GREY
  const others = names.filter((n) => !/echo|bare /.test(n))
  return COLOURS[others.indexOf(name) % COLOURS.length]
}

/**
 * Horizontal bars with their range.
 *
 * @param bars `{ label, value, min, max, colour }`
 */
export function barChart({ title, unit, bars }) {
  if (bars.length === 0) return ''
  const [labelWidth, plotWidth, rowHeight, top] = [200, 380, 24, 30]
  const highest = Math.max(...bars.map((b) => b.max))
  const x = (v) => (v / highest) * plotWidth
  const rows = bars.map((b, i) => {
    const y = top + i * rowHeight
    const middle = y + rowHeight / 2
    return (
      `<text x="${labelWidth - 8}" y="${middle + 4}" text-anchor="end">${escape(b.label)}</text>` +
      `<rect x="${labelWidth}" y="${y + 4}" width="${Math.max(1, x(b.value)).toFixed(1)}" ` +
      `height="${rowHeight - 8}" fill="${b.colour}"/>` +
      `<line x1="${(labelWidth + x(b.min)).toFixed(1)}" x2="${(labelWidth + x(b.max)).toFixed(1)}" ` +
      `y1="${middle}" y2="${middle}" class="range"/>` +
      `<text x="${(labelWidth + x(b.max) + 6).toFixed(1)}" y="${middle + 4}">${short(b.value)}</text>`
    )
  })
  const height = top + bars.length * rowHeight + 6
  return (
    `<svg viewBox="0 0 ${labelWidth + plotWidth + 80} ${height}" role="img" ` +
    `aria-label="${escape(title)}"><text x="0" y="16" class="title">${escape(title)} <tspan ` +
    `class="unit">${escape(unit)}</tspan></text>${rows.join('')}</svg>`
  )
}

/** 1, 2 and 5 of each decade; every digit where that leaves a reader with fewer than three. */
function ticks(low, high, steps = [1, 2, 5]) {
  const out = []
  for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high * 1.0001; decade *= 10) {
    for (const step of steps) if (decade * step >= low * 0.999 && decade * step <= high * 1.001) out.push(decade * step)
  }
  return out.length < 3 && steps.length === 3 ? ticks(low, high, [1, 2, 3, 4, 5, 6, 8]) : out
}

/**
 * Lines over logarithmic axes.
 *
 * @param lines `{ label, colour, isDashed, points: [[x, y], …] }`
 * @param xTicks where to mark the x axis; left out, decades
 */
export function lineChart({ title, xLabel, yLabel, lines, xTicks }) {
  const points = lines.flatMap((l) => l.points).filter(([a, b]) => a > 0 && b > 0)
  if (points.length === 0) return ''
  const [left, top, width, height, legend] = [64, 46, 400, 250, 210]
  const range = (k) => {
    const values = points.map((p) => p[k])
    const [low, high] = [Math.min(...values), Math.max(...values)]
    return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1]
  }
  const [[x0, x1], [y0, y1]] = [range(0), range(1)]
  const x = (v) => left + (Math.log(v / x0) / Math.log(x1 / x0)) * width
  const y = (v) => top + height - (Math.log(v / y0) / Math.log(y1 / y0)) * height
  const parts = [`<text x="0" y="16" class="title">${escape(title)}</text>`]
  for (const v of xTicks ?? ticks(x0, x1)) {
    parts.push(
      `<line x1="${x(v).toFixed(1)}" x2="${x(v).toFixed(1)}" y1="${top}" y2="${top + height}" ` +
        `class="grid"/><text x="${x(v).toFixed(1)}" y="${top + height + 16}" ` +
        `text-anchor="middle">${short(v).replace(/\.0+$/, '')}</text>`,
    )
  }
  for (const v of ticks(y0, y1)) {
    parts.push(
      `<line x1="${left}" x2="${left + width}" y1="${y(v).toFixed(1)}" y2="${y(v).toFixed(1)}" ` +
        `class="grid"/><text x="${left - 6}" y="${(y(v) + 4).toFixed(1)}" ` +
        `text-anchor="end">${short(v).replace(/\.0+$/, '')}</text>`,
    )
  }
  parts.push(
    `<text x="${left + width / 2}" y="${top + height + 34}" text-anchor="middle" class="unit">${escape(xLabel)}</text>`,
  )
  parts.push(`<text x="${left}" y="${top - 10}" class="unit">${escape(yLabel)}</text>`)
  lines.forEach((line, i) => {
    const path = line.points.toSorted((a, b) => a[0] - b[0]).map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`)
    const dash = line.isDashed ? ' stroke-dasharray="5 4"' : ''
    parts.push(`<polyline points="${path.join(' ')}" fill="none" stroke="${line.colour}" stroke-width="2"${dash}/>`)
    for (const p of path)
      parts.push(`<circle cx="${p.split(',')[0]}" cy="${p.split(',')[1]}" r="3" fill="${line.colour}"/>`)
    const at = top + 10 + i * 18
    parts.push(
      `<line x1="${left + width + 14}" x2="${left + width + 38}" y1="${at}" y2="${at}" ` +
        `stroke="${line.colour}" stroke-width="2"${dash}/><text x="${left + width + 44}" ` +
        `y="${at + 4}">${escape(line.label)}</text>`,
    )
  })
  return (
    `<svg viewBox="0 0 ${left + width + legend} ${top + height + 40}" role="img" ` +
    `aria-label="${escape(title)}">${parts.join('')}</svg>`
  )
}

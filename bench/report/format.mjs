/** Numbers as people read them. */

export const whole = (n) =>
  n === null || n === undefined ? '–' : Math.round(n).toLocaleString('en').replaceAll(',', ' ')
export const short = (n) =>
  n === null || n === undefined ? '–' : Math.abs(n) >= 100 ? whole(n) : Math.abs(n) >= 10 ? n.toFixed(1) : n.toFixed(2)
export const withRange = (s) =>
  s === null || s === undefined
    ? '–'
    : s.n > 1
      ? `${short(s.median)} (${short(s.min)}–${short(s.max)})`
      : short(s.median)

/** One target's figure with its range and unit. */
export function figure(row) {
  if (row.figure === null) return '–'
  const range = row.range && row.range[0] !== row.range[1] ? ` (${short(row.range[0])}–${short(row.range[1])})` : ''
  return `${short(row.figure)}${row.unit && row.unit !== '×' ? ` ${row.unit}` : ''}${range}`
}

/** The conditions in a sentence or two. */
export function conditionsText({ conditions: c, repetitions, seconds, minutes, date, measured = [] }) {
  const older = measured
    .slice(1)
    .map((m) => ` ${m.suites.join(', ')}: measured on ${m.date.slice(0, 10)} at commit ${m.commit}.`)
    .join('')
  const load = (l) => l.map((n) => n.toFixed(1)).join(' ')
  return (
    `${date.slice(0, 10)}; ${c.cpus} × ${c.cpu}, ${c.memoryGiB} GiB, Linux ${c.kernel}, Node ${c.node}, ${c.rust}; ` +
    `commit ${c.commit}${c.modified ? ' with changes' : ''}; ONNX Runtime ${c.onnxruntime} (libonnxruntime ` +
    `${c.libonnxruntimeSha256.slice(0, 12)}). ` +
    `Medians (and ranges) of ${repetitions} interleaved repetitions of ${seconds} s, ${minutes.toFixed(0)} ` +
    'min in all; load generator on the same machine. ' +
    `Load average ${load(c.loadBefore)} before, ${load(c.loadAfter)} after; ` +
    `${c.busyPercent?.toFixed(0) ?? '?'} % busy, ${c.stealPercent?.toFixed(1) ?? '?'} % stolen.${older}`
  )
}

/** The first cell with all of these properties. */
export const cellWith = (cells, facts) =>
  cells.find((x) => Object.entries(facts).every(([key, value]) => x[key] === value))

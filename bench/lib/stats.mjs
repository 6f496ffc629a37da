/** Medians and ranges over repetitions. A cell that never ran has no figures, which is not zero. */

export function median(list) {
  const sorted = list.filter((x) => x !== null && !Number.isNaN(x)).sort((a, b) => a - b)
  if (sorted.length === 0) return null
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** `{ median, min, max, n }`, or null without values. */
export function spread(list) {
  const values = list.filter((x) => x !== null && x !== undefined && Number.isFinite(x))
  if (values.length === 0) return null
  return { median: median(values), min: Math.min(...values), max: Math.max(...values), n: values.length }
}

/** The difference of two cells that were measured in turn, repetition by repetition, divided by `parts`. */
export function pairedDifference(subject, base, key, parts = 1) {
  const pairs = Math.min(subject?.runs.length ?? 0, base?.runs.length ?? 0)
  return spread(Array.from({ length: pairs }, (_, i) => (subject.runs[i][key] - base.runs[i][key]) / parts))
}

/**
 * The ratio of two cells that were measured in turn: repetition by repetition, so that what the machine did at that
 * time falls on both sides of a pair.
 */
export function pairedRatio(subject, base, key) {
  const pairs = Math.min(subject?.runs.length ?? 0, base?.runs.length ?? 0)
  const ratios = []
  for (let i = 0; i < pairs; i += 1) ratios.push(subject.runs[i][key] / base.runs[i][key])
  return spread(ratios)
}

/** Medians and ranges over repetitions. A cell that never ran has no figures, which is not zero. */

export function median(list) {
  const sorted = list.filter((x) => x !== null && !Number.isNaN(x)).sort((a, b) => a - b)
  if (sorted.length === 0) return null
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** Chance that the true median is beyond the range of five values. */
const BEYOND_MAX = 2 * 2 ** -5

/**
 * `{ median, min, max, n }`, or null without values. Of more than five values `low` and `high` hold the true median as
 * surely as the range of five does, in 94 of 100 cases: a range only grows with repetitions, and decides ever less.
 */
export function spread(list) {
  const values = list.filter((x) => x !== null && x !== undefined && Number.isFinite(x)).toSorted((a, b) => a - b)
  const n = values.length
  if (n === 0) return null
  const found = { median: median(values), min: values[0], max: values[n - 1], n }
  // The chance that k or fewer of n values are below the true median is that of k or fewer heads of n coins.
  let [out, ways, chance] = [0, 1, 2 ** -n]
  for (let k = 1; k < n / 2; k += 1) {
    ways *= (n - k + 1) / k
    chance += ways * 2 ** -n
    if (2 * chance <= BEYOND_MAX) out = k
  }
  return out === 0 ? found : { ...found, low: values[out], high: values[n - 1 - out] }
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

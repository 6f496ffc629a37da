/** Finds the known word closest to a misspelled one, for hints in error messages. */

/** Characters that a word must share with the start of a name that is not near; and at least two thirds of its own. */
const PREFIX_CHARS_MIN = 6

/** The nearest candidate by edit distance, or null if none is close enough. */
export function nearest(word: string, candidates: Iterable<string>): string | null {
  // A longer word is not a misspelling, and distances cost length².
  if (word.length > 64) return null
  const limit = Math.max(1, Math.floor(word.length / 3))
  let best: string | null = null
  let bestDistance = limit + 1
  for (const candidate of candidates) {
    // Case and separators are the most common mistakes, so they do not count.
    const distance = editDistance(fold(word), fold(candidate))
    if (distance < bestDistance) {
      best = candidate
      bestDistance = distance
    }
  }
  return best
}

/** The nearest name, or else the one with the longest equal start: `max_queue_delay_microseconds` for `…_ms`. */
export function nearestName(word: string, names: readonly string[]): string | null {
  let best = nearest(word, names)
  if (best !== null) return best
  let longest = Math.max(PREFIX_CHARS_MIN, Math.ceil((word.length * 2) / 3)) - 1
  for (const candidate of names) {
    const length = commonPrefix(fold(word), fold(candidate))
    if (length <= longest) continue
    best = candidate
    longest = length
  }
  return best
}

function commonPrefix(a: string, b: string): number {
  let length = 0
  while (length < a.length && a[length] === b[length]) length += 1
  return length
}

function fold(word: string): string {
  return word.toLowerCase().replaceAll(/[_-]/g, '')
}

/** Number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let beforePrevious: number[] = []
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let cost = Math.min(at(row, j - 1) + 1, at(previous, j) + 1, at(previous, j - 1) + (same ? 0 : 1))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        cost = Math.min(cost, at(beforePrevious, j - 2) + 1)
      row.push(cost)
    }
    beforePrevious = previous
    previous = row
  }
  return at(previous, b.length)
}

function at(row: number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY
}

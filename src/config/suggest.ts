/** Finds the known word closest to a misspelled one, for hints in error messages. */

/** The nearest candidate by edit distance, or else by its first words; null if none is close enough. */
export function nearest(word: string, candidates: Iterable<string>): string | null {
  // A longer word is not a misspelling, and distances cost length².
  if (word.length > 64) return null
  const all = [...candidates]
  return bySpelling(word, all) ?? byFirstWords(word, all)
}

/** The only candidate that begins with the same words, of which it has one more or another one at the end. */
function byFirstWords(word: string, candidates: readonly string[]): string | null {
  const first = word.toLowerCase().split(/[_-]/).slice(0, -1)
  if (first.length < 2) return null
  const found = candidates.filter((candidate) => {
    const words = candidate.toLowerCase().split(/[_-]/)
    return words.length === first.length + 1 && first.every((part, at) => part === words[at])
  })
  return found.length === 1 ? (found[0] ?? null) : null
}

function bySpelling(word: string, candidates: readonly string[]): string | null {
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

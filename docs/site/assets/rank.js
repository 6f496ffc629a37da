/* Which entries of the index a search finds, best first. Apart from page.js, so that a test can ask it. */

/** Words that say nothing about a page; without others they count. */
const SMALL = new Set(['a', 'an', 'and', 'for', 'how', 'in', 'is', 'of', 'on', 'or', 'the', 'to', 'with'])

function wordsOf(text) {
  const words = text
    .toLowerCase()
    .split(/[\s,;?]+/)
    .filter((word) => word !== '')
  const telling = words.filter((word) => !SMALL.has(word))
  return telling.length > 0 ? telling : words
}

/** 3: the text is the word. 2: a word of it begins so. 1: it is inside. */
function place(text, word) {
  const at = text.indexOf(word)
  if (at === -1) return 0
  if (text.length === word.length) return 3
  return at === 0 || text.includes(` ${word}`) ? 2 : 1
}

/** Points of an entry: 0 when a word is missing. A heading counts more than the text, a page's own title most. */
function points([, title, heading, text, aliases], words) {
  const [name, head, below, others] = [title, heading, text, aliases].map((one) => one.toLowerCase())
  const isPage = name === head
  let sum = 0
  for (const word of words) {
    const at = below.indexOf(word)
    const inHead = place(head, word)
    const inOthers = place(others, word)
    if (at === -1 && inHead === 0 && inOthers === 0 && !name.includes(word)) return 0
    sum += [0, 4, 6, 8][inHead] * (isPage ? 1.5 : 1) + [0, 2, 8, 8][inOthers]
    sum += (at === -1 ? 0 : 2 - at / below.length) + [0, 0.1, 1, 1][place(name, word)] + 0.1
  }
  // The words as one phrase are what somebody looks for.
  const phrase = words.join(' ')
  if (`, ${others},`.includes(`, ${phrase},`)) sum += 20
  if (head === phrase) sum += 6
  return sum
}

function rank(index, text) {
  const words = wordsOf(text)
  const found = index.map((entry) => [points(entry, words), entry]).filter(([sum]) => sum > 0)
  return found.toSorted(([a], [b]) => b - a).map(([, entry]) => entry)
}

globalThis.NEREID_RANK = { rank, wordsOf }

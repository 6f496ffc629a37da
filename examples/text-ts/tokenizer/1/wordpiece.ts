/** Words into pieces of a vocabulary, as BERT does: the longest piece first, `##` in front of those inside a word. */

const WORD = /[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu

export class WordPiece {
  readonly #ids: ReadonlyMap<string, number>

  /** `vocabulary` has a piece on each line, in the order of their ids. */
  constructor(vocabulary: string) {
    this.#ids = new Map(
      vocabulary
        .trimEnd()
        .split('\n')
        .map((piece, id) => [piece, id]),
    )
  }

  get size(): number {
    return this.#ids.size
  }

  /** Ids of a text between those of [CLS] and [SEP], at most `lengthMax` in all. */
  encode(text: string, lengthMax = 128): number[] {
    const words = text.normalize('NFKC').toLowerCase().match(WORD) ?? []
    const ids = words.flatMap((word) => this.#word(word))
    return [this.#id('[CLS]'), ...ids.slice(0, lengthMax - 2), this.#id('[SEP]')]
  }

  #id(piece: string): number {
    const id = this.#ids.get(piece)
    if (id === undefined) throw new Error(`the vocabulary has no ${piece}`)
    return id
  }

  #word(word: string): number[] {
    const found: number[] = []
    for (let at = 0; at < word.length;) {
      const prefix = at === 0 ? '' : '##'
      let end = word.length
      while (end > at && !this.#ids.has(prefix + word.slice(at, end))) end -= 1
      if (end === at) return [this.#id('[UNK]')]
      found.push(this.#id(prefix + word.slice(at, end)))
      at = end
    }
    return found
  }
}

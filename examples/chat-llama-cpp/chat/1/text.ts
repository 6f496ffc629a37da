/** Makes text of tokens, piece by piece, and ends it at stop texts. */

/** The tokenizer of a model. */
export interface Decodes {
  decode(ids: number[], options: { skip_special_tokens: boolean }): string
}

/** Invalid UTF-8, as a character is whose last bytes are in the next token. */
const INCOMPLETE = '\ufffd'

/** Texts of tokens that join to the text of all tokens. */
export class Pieces {
  readonly #tokenizer: Decodes
  /** Tokens that were returned as text: the text of the next one may depend on the one before. */
  #before: number[] = []
  #pending: number[] = []

  constructor(tokenizer: Decodes) {
    this.#tokenizer = tokenizer
  }

  /** Text that the token completes, '' if a character is not complete. */
  push(token: number): string {
    this.#pending.push(token)
    return this.#take(false)
  }

  /** Text of tokens that make no complete character. */
  end(): string {
    return this.#take(true)
  }

  #take(isEnd: boolean): string {
    const known = this.#decode(this.#before)
    const text = this.#decode([...this.#before, ...this.#pending])
    if (text.endsWith(INCOMPLETE) && !isEnd) return ''
    this.#before = this.#pending
    this.#pending = []
    return text.slice(known.length)
  }

  #decode(ids: number[]): string {
    // The tokenizer rejects a list without tokens.
    return ids.length === 0 ? '' : this.#tokenizer.decode(ids, { skip_special_tokens: true })
  }
}

/** Holds back text that may be the beginning of a stop text. */
export class Stops {
  readonly #stops: readonly string[]
  #held = ''
  hasStopped = false

  constructor(stops: readonly string[]) {
    this.#stops = stops
  }

  /** Text that can be sent: all before the first stop text, which is not part of it. */
  push(piece: string): string {
    const text = this.#held + piece
    const found = this.#stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0)
    if (found.length > 0) {
      this.hasStopped = true
      this.#held = ''
      return text.slice(0, Math.min(...found))
    }
    const kept = text.length - Math.max(0, ...this.#stops.map((stop) => overlap(text, stop)))
    this.#held = text.slice(kept)
    return text.slice(0, kept)
  }

  /** Text that was held back and has not become a stop text. */
  end(): string {
    const held = this.#held
    this.#held = ''
    return held
  }
}

/** Length of the longest end of `text` with which `stop` begins. */
function overlap(text: string, stop: string): number {
  for (let length = Math.min(text.length, stop.length - 1); length > 0; length -= 1)
    if (stop.startsWith(text.slice(-length))) return length
  return 0
}

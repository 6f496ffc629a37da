/** The kept part of a stream. Pure, and bounded however long the stream is. */

import type { Event } from './call.js'

/** Responses that are kept. */
const KEPT_MAX = 1000
/** Characters of a response, and of the text of an output; of a longer text the end is kept. */
const EVENT_CHARACTERS_MAX = 2000
const TEXT_CHARACTERS_MAX = 20_000

export class StreamLog {
  count = 0
  firstMs = 0
  lastMs = 0
  readonly kept: { index: number; atMs: number; text: string }[] = []
  readonly texts = new Map<string, string>()

  add({ atMs, text, pieces }: Event): void {
    if (this.count === 0) this.firstMs = atMs
    this.lastMs = atMs
    const short = text.length > EVENT_CHARACTERS_MAX ? `${text.slice(0, EVENT_CHARACTERS_MAX)}…` : text
    this.kept.push({ index: this.count, atMs, text: short })
    if (this.kept.length > KEPT_MAX) this.kept.shift()
    this.count += 1
    for (const [name, piece] of pieces)
      this.texts.set(name, `${this.texts.get(name) ?? ''}${piece}`.slice(-TEXT_CHARACTERS_MAX))
  }
}

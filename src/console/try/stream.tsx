/** Responses of a stream as they come: the last ones, and the texts that they make together. */

import { useEffect, useRef, useState } from 'preact/hooks'
import { timeText } from '../format.js'
import type { Event } from './call.js'

/** Responses that are kept, and the last of them that are shown. */
const KEPT_MAX = 1000
const SHOWN_MAX = 50
/** Characters of a response, and of the text of an output; of a longer text the end is kept. */
const EVENT_CHARACTERS_MAX = 2000
const TEXT_CHARACTERS_MAX = 20_000
/** Between two updates of the page: a fast stream must not freeze it. */
const SHOW_MS = 100

/** What is known of a stream; bounded, however long it is. */
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

/** `isOver` stops the updates. */
export function StreamView({ log, isOver }: { log: StreamLog; isOver: boolean }) {
  const [, again] = useState(0)
  const list = useRef<HTMLOListElement>(null)
  useEffect(() => {
    if (isOver) return
    const timer = setInterval(() => again(log.count), SHOW_MS)
    return () => clearInterval(timer)
  }, [log, isOver])
  useEffect(() => {
    // Follows the end, as a terminal does.
    if (list.current !== null) list.current.scrollTop = list.current.scrollHeight
  })
  const shown = log.kept.slice(-SHOWN_MAX)
  const responses = `${log.count.toLocaleString('en')} ${log.count === 1 ? 'response' : 'responses'}`
  const times = log.count === 0 ? '' : `, the first after ${timeText(log.firstMs * 1000)}, ` +
    `the last after ${timeText(log.lastMs * 1000)}`
  return (
    <>
      <p><b>{responses}</b>{times}</p>
      {[...log.texts].map(([name, text]) => (
        <section key={name} class="tensor">
          <h4><code>{name}</code> <span class="quiet">all pieces</span></h4>
          <pre class="values wrap" role="region" aria-label={`text of ${name}`} tabIndex={0}>{text}</pre>
        </section>
      ))}
      <ol class="events" ref={list} tabIndex={0} aria-label="Responses" start={(shown[0]?.index ?? 0) + 1}>
        {shown.map(({ index, atMs, text }) => (
          <li key={index} value={index + 1}><span class="quiet">{timeText(atMs * 1000)}</span> <code>{text}</code></li>
        ))}
      </ol>
    </>
  )
}

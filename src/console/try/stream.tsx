/** Responses of a stream as they come: the last ones, and the texts that they make together. */

import { useEffect, useRef, useState } from 'preact/hooks'
import { timeText } from '../format.js'
import type { StreamLog } from './log.js'
import { Pre } from './outputs.js'

/** Responses that are shown. */
const SHOWN_MAX = 50
/** Between two updates of the page: a fast stream must not freeze it. */
const SHOW_MS = 100

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
  const times =
    log.count === 0
      ? ''
      : `, the first after ${timeText(log.firstMs * 1000)}, the last after ${timeText(log.lastMs * 1000)}`
  return (
    <>
      <p>
        <b>{responses}</b>
        {times}
      </p>
      {[...log.texts].map(([name, text]) => (
        <section key={name} class="tensor">
          <h3>
            <code>{name}</code> <span class="quiet">all pieces</span>
          </h3>
          <Pre label={`text of ${name}`} text={text} />
        </section>
      ))}
      <ol class="events" ref={list} tabIndex={0} aria-label="Responses" start={(shown[0]?.index ?? 0) + 1}>
        {shown.map(({ index, atMs, text }) => (
          <li key={index} value={index + 1}>
            <span class="quiet">{timeText(atMs * 1000)}</span> <code>{text}</code>
          </li>
        ))}
      </ol>
    </>
  )
}

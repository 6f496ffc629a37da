/** Small parts of the console. */

import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { PHASES } from '../../tools/why/words.js'
import { percentText, timeText } from '../format.js'

/** A section with a heading; `note` stands beside it. */
export const Section = ({
  id,
  title,
  note,
  children,
}: {
  id: string
  title: string
  note?: ComponentChildren
  children: ComponentChildren
}) => (
  <section class="card" aria-labelledby={id}>
    <header class="head">
      <h2 id={id}>{title}</h2>
      {note !== undefined && <p class="quiet">{note}</p>}
    </header>
    {children}
  </section>
)

/** `kind` is the colour of its value. */
export type Tile = readonly [title: string, value: string, note: string, kind?: string]

/** Large numbers, each with its name and a note. */
export const Tiles = ({ tiles }: { tiles: readonly Tile[] }) => (
  <dl class="tiles">
    {tiles.map(([title, value, note, kind]) => (
      <div key={title} class="tile">
        <dt>{title}</dt>
        <dd>
          <b class={kind}>{value}</b>
          <span class="quiet">{note}</span>
        </dd>
      </div>
    ))}
  </dl>
)

export interface Column {
  title: string
  /** Numbers stand at the right. */
  number?: boolean
  /** On a phone it is not shown: what matters most remains. */
  wide?: boolean
}

const classOf = ({ number, wide }: Column): string => [number && 'number', wide && 'wide'].filter(Boolean).join(' ')

/** A table with a caption for screen readers. */
export const Table = ({
  caption,
  columns,
  rows,
}: {
  caption: string
  columns: readonly Column[]
  rows: readonly { key: string; cells: readonly ComponentChildren[] }[]
}) => (
  <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
    <table>
      <caption class="hidden">{caption}</caption>
      <thead>
        <tr>
          {columns.map((column) => (
            <th key={column.title} scope="col" class={classOf(column)}>
              {column.title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map(({ key, cells }) => (
          <tr key={key}>
            {cells.map((cell, i) => (
              <td key={i} class={classOf(columns[i] ?? { title: '' })}>
                {cell}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </div>
)

/** A phase in the colours of the style: waiting, computing, or all else. */
const kindOf = (phase: string): string =>
  phase === 'queue' ? 'waits' : phase === 'infer' || phase === 'model' || phase === 'responses' ? 'computes' : 'moves'

/** Where the time of a request went, as a bar and as text. */
export function Phases({ phases, isLong = false }: { phases: Readonly<Record<string, number>>; isLong?: boolean }) {
  const known = Object.keys(PHASES).flatMap((name) => (phases[name] === undefined ? [] : [{ name, us: phases[name] }]))
  const total = known.reduce((sum, { us }) => sum + us, 0)
  if (total <= 0) return null
  const large = known.toSorted((a, b) => b.us - a.us)
  const says = ({ name, us }: { name: string; us: number }) => `${PHASES[name]?.[0] ?? name} ${timeText(us)}`
  return (
    <div class="phases">
      <Bar parts={known.map(({ name, us }) => ({ kind: kindOf(name), share: us / total }))} />
      {isLong ? (
        <ul class="plain">
          {large
            .filter(({ us }) => us > total / 1000)
            .map(({ name, us }) => (
              <li key={name}>
                <i class={`swatch ${kindOf(name)}`} />
                <b>{timeText(us)}</b> {PHASES[name]?.[0]}
                <span class="quiet"> {percentText(us / total)}</span>
              </li>
            ))}
        </ul>
      ) : (
        <span class="quiet">
          {large
            .slice(0, 2)
            .filter(({ us }) => us > total / 50)
            .map(says)
            .join(', ')}
        </span>
      )}
    </div>
  )
}

/** A bar of parts; the text beside it says the same. */
export const Bar = ({ parts }: { parts: readonly { kind: string; share: number }[] }) => (
  <svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
    {parts.map(({ kind, share }, i) => (
      <rect
        key={i}
        class={kind}
        height="1"
        width={Math.max(0, Math.min(1, share)) * 100}
        x={parts.slice(0, i).reduce((sum, part) => sum + part.share, 0) * 100}
      />
    ))}
  </svg>
)

/** A line of the last minutes, without axes: for a look at the trend. */
export function Trend({ values }: { values: readonly (number | null)[] }) {
  const known = values.map((value) => value ?? 0)
  const max = Math.max(...known, 1e-9)
  const points = known.map((value, i) => `${i},${(20 - (value / max) * 18).toFixed(1)}`).join(' ')
  return (
    <svg
      class="trend"
      viewBox={`0 0 ${Math.max(1, known.length - 1)} 21`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      <polyline points={points} />
    </svg>
  )
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** Result of an action: what the server said. */
export interface Outcome {
  isGood: boolean
  text: string
}

/** Runs an action, and keeps what came of it. */
export function useAction(): { busy: boolean; outcome: Outcome | null; run: (act: () => Promise<string>) => void } {
  const [busy, setBusy] = useState(false)
  const [outcome, setOutcome] = useState<Outcome | null>(null)
  const run = (act: () => Promise<string>) => {
    setBusy(true)
    setOutcome(null)
    act()
      .then((text) => setOutcome({ isGood: true, text }))
      .catch((error: unknown) => setOutcome({ isGood: false, text: messageOf(error) }))
      .finally(() => setBusy(false))
  }
  return { busy, outcome, run }
}

export const OutcomeText = ({ outcome }: { outcome: Outcome | null }) => (
  <p role="status" class={`outcome ${outcome === null ? '' : outcome.isGood ? 'good' : 'bad'}`}>
    {outcome?.text}
  </p>
)

/** The value of a route, asked now and each `seconds` while the part is shown; `again` asks at once. */
export function useAsked<Value>(
  ask: () => Promise<Value>,
  seconds: number,
  key: string,
): { value: Value | null; error: string | null; again: () => void } {
  const [reply, setReply] = useState<{ key: string; value: Value | null; error: string | null } | null>(null)
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    let timer = 0
    let isOver = false
    const later = () => (timer = setTimeout(() => (document.hidden ? later() : void once()), seconds * 1000))
    const once = async (): Promise<void> => {
      const next = await ask().then(
        (value) => ({ key, value, error: null }),
        (error: unknown) => ({ key, value: null, error: messageOf(error) }),
      )
      if (isOver) return
      setReply(next)
      if (seconds > 0) later()
    }
    void once()
    return () => {
      isOver = true
      clearTimeout(timer)
    }
  }, [key, turn])
  const known = reply !== null && reply.key === key ? reply : null
  return { value: known?.value ?? null, error: known?.error ?? null, again: () => setTurn((count) => count + 1) }
}

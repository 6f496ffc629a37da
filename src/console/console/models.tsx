/** The table of what serves: the versions with requests, trouble first. Only the rows in sight are drawn. */

import { useMemo, useRef, useState } from 'preact/hooks'
import { ageText, counted, numberText, timeText } from '../format.js'
import { isFailed, isUnloaded } from './attention.js'
import { Bar, Section, Trend } from './parts.js'
import { keyOf, type Figures, type Picture, type Version } from './picture.js'

const ROW_PX = 40
/** Rows of the table before it gets a bar to scroll with. */
const ROWS_IN_SIGHT = 14
/** Rows that are drawn above and below those in sight. */
const ROWS_BESIDE = 6

interface Shown {
  key: string
  version: Version
  figures: Figures
}

type Order = 'trouble' | 'name' | 'rate' | 'time' | 'waiting' | 'failed'

/** The state of a version comes first: what does not serve must not be below thousands of rows. */
const trouble = ({ version, figures }: Shown): number =>
  isFailed(version)
    ? 1e15
    : version.state !== 'READY' && !isUnloaded(version)
      ? 1e14
      : figures.failed * 1e9 + figures.waited_us * figures.rate * 10 + figures.mean_us * figures.rate + figures.waiting

const ORDERS: Readonly<Record<Order, (one: Shown) => number>> = {
  trouble,
  name: () => 0,
  rate: ({ figures }) => figures.rate,
  time: ({ figures }) => figures.mean_us,
  waiting: ({ figures }) => figures.waiting,
  failed: ({ figures }) => figures.failed,
}

const byName = (a: Shown, b: Shown) =>
  a.version.name.localeCompare(b.version.name) ||
  a.version.version.localeCompare(b.version.version, 'en', { numeric: true })

export function Models({
  picture,
  figures,
  onOpen,
}: {
  picture: Picture
  figures: ReadonlyMap<string, Figures>
  onOpen: (name: string, version: string) => void
}) {
  const [filter, setFilter] = useState('')
  const [order, setOrder] = useState<Order>('trouble')
  const [top, setTop] = useState(0)
  /** Rows keep their places while a pointer or the focus is on them: nobody clicks on what moved there just now. */
  const holds = useRef({ pointer: false, focus: false })
  const places = useRef({ order, filter, at: new Map<string, number>() })
  const isHeld = holds.current.pointer || holds.current.focus

  const all = [...picture.versions].flatMap(([key, version]): Shown[] => {
    const own = figures.get(key)
    return own === undefined ? [] : [{ key, version, figures: own }]
  })
  const wanted = filter.toLowerCase()
  const found = all.filter(
    ({ version }) => wanted === '' || version.name.toLowerCase().includes(wanted) || stateOf(version)[1] === wanted,
  )
  const rows = found.toSorted((a, b) => ORDERS[order](b) - ORDERS[order](a) || byName(a, b))
  // A new order is what the pointer in the table asked for.
  if (isHeld && places.current.order === order && places.current.filter === filter) {
    const at = ({ key }: Shown) => places.current.at.get(key) ?? Number.MAX_SAFE_INTEGER
    rows.sort((a, b) => at(a) - at(b))
  } else {
    places.current = { order, filter, at: new Map(rows.map(({ key }, i) => [key, i])) }
  }
  const first = Math.max(0, Math.floor(top / ROW_PX) - ROWS_BESIDE)
  const drawn = rows.slice(first, first + ROWS_IN_SIGHT + 2 * ROWS_BESIDE)
  const serving = all.filter(({ version }) => version.state === 'READY').length
  const note = `${counted(serving, 'version')} of ${numberText(all.length)} ${serving === 1 ? 'serves' : 'serve'}`
  const head = (title: string, by: Order, classes = 'number') => (
    <th scope="col" class={classes} aria-sort={order === by ? (by === 'name' ? 'ascending' : 'descending') : undefined}>
      <button type="button" class="sort" onClick={() => setOrder(order === by ? 'trouble' : by)}>
        {title} <span aria-hidden="true">{order !== by ? '▽' : by === 'name' ? '▲' : '▼'}</span>
      </button>
    </th>
  )
  return (
    <Section id="models" title="Models" note={note}>
      <div class="tools">
        <label for="filter">Filter</label>
        <input
          id="filter"
          type="search"
          placeholder="name or state"
          value={filter}
          autocomplete="off"
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <span class="quiet" role="status">
          {wanted === '' ? '' : `${counted(rows.length, 'version')} found`}
        </span>
        {isHeld && <span class="quiet wide">Rows keep their places while you are in the table.</span>}
      </div>
      <div
        class="scroll models"
        role="region"
        aria-label="Table of models"
        tabIndex={0}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        onPointerEnter={() => (holds.current.pointer = true)}
        onPointerLeave={() => (holds.current.pointer = false)}
        onFocusIn={() => (holds.current.focus = true)}
        onFocusOut={() => (holds.current.focus = false)}
      >
        <table aria-rowcount={rows.length + 1}>
          <caption class="hidden">Versions of models, those with trouble first</caption>
          <thead>
            <tr>
              {head('Model', 'name', '')}
              <th scope="col" class="wide">
                State
              </th>
              {head('Waiting', 'waiting')}
              {head('Requests/s', 'rate', 'number wide')}
              <th scope="col" class="wide">
                5 minutes
              </th>
              {head('Mean time', 'time')}
              <th scope="col" class="wide">
                Queue, compute
              </th>
              {head('Failed/s', 'failed', 'number wide')}
              <th scope="col" class="number wide">
                Busy
              </th>
              <th scope="col" class="number wide">
                Batch
              </th>
              <th scope="col" class="number wide">
                Last
              </th>
            </tr>
          </thead>
          <tbody>
            {first > 0 && <Space key="above" rows={first} />}
            {drawn.map((one, i) => (
              <Row {...one} key={one.key} index={first + i + 2} now={picture.now?.time_ms ?? 0} onOpen={onOpen} />
            ))}
            {first + drawn.length < rows.length && <Space key="below" rows={rows.length - first - drawn.length} />}
          </tbody>
        </table>
        {rows.length === 0 && (
          <p class="empty">
            {all.length === 0
              ? 'The repository has no models.'
              : `No model has "${filter}" in its namein its name or state (such as "serves" or "not loaded").`}
          </p>
        )}
      </div>
    </Section>
  )
}

/** The place of rows that are not drawn. */
const Space = ({ rows }: { rows: number }) => (
  <tr aria-hidden="true">
    <td class="space" ref={(cell) => cell?.style.setProperty('height', `${rows * ROW_PX}px`)} />
  </tr>
)

function Row({
  version,
  figures,
  index,
  now,
  onOpen,
}: Omit<Shown, 'key'> & {
  index: number
  now: number
  onOpen: (name: string, version: string) => void
}) {
  const { name, row, rings, state } = version
  const { mean_us, waited_us, rate, failed, waiting, batch } = figures
  const isQuiet = row === null || rings === null
  const last = row?.last_inference ?? 0
  // A curve of 300 numbers changes little in a second; it is made again when one second in five passes.
  const turn = Math.floor(now / 5000)
  const trend = useMemo(() => (rings === null ? null : <Trend values={rings.values('answered')} />), [rings, turn])
  return (
    <tr aria-rowindex={index} class={isQuiet ? 'still' : ''}>
      <th scope="row">
        <button type="button" class="name" title={name} onClick={() => onOpen(name, version.version)}>
          {name}
        </button>{' '}
        <span class="quiet version">{version.version}</span>
      </th>
      <td class="wide">
        <State version={version} />
      </td>
      <td class={`number ${waiting > 0 ? 'strong' : ''}`}>{isQuiet ? '' : numberText(waiting)}</td>
      <td class="number wide">{isQuiet ? '' : numberText(rate)}</td>
      <td class="wide">{trend}</td>
      <td class="number">
        {mean_us > 0 && timeText(mean_us)}
        {mean_us === 0 && state !== 'READY' && (
          <span class="narrow">
            <State version={version} isShort />
          </span>
        )}
      </td>
      <td class="wide">
        {mean_us > 0 && (
          <Bar
            parts={[
              { kind: 'waits', share: waited_us / mean_us },
              { kind: 'computes', share: 1 - waited_us / mean_us },
            ]}
          />
        )}
        {mean_us > 0 && <span class="hidden">{timeText(waited_us)} in the queue</span>}
      </td>
      <td class={`number wide ${failed > 0 ? 'bad' : ''}`}>{isQuiet ? '' : numberText(failed)}</td>
      <td class="number wide">{row === null || row.instances === 0 ? '' : `${row.running}/${row.instances}`}</td>
      <td class="number wide">{batch > 0 ? numberText(batch) : ''}</td>
      <td class="number wide quiet">{last > 0 ? ageText((now - last) / 1000) : ''}</td>
    </tr>
  )
}

const STATES: Readonly<Record<string, [kind: string, text: string]>> = {
  READY: ['good', 'serves'],
  LOADING: ['warn', 'is loading'],
  UNLOADING: ['warn', 'is unloading'],
}

type Stated = Pick<Version, 'state' | 'reason'>

const stateOf = (version: Stated): [kind: string, text: string] =>
  STATES[version.state] ?? (isUnloaded(version) ? ['quiet', 'not loaded'] : ['bad', 'does not serve'])

/** The state in words; the colour only repeats it. */
export function State({ version, isShort = false }: { version: Stated; isShort?: boolean }) {
  const [kind, text] = stateOf(version)
  return (
    <span class={`state ${kind}`} title={version.reason}>
      {isShort && kind === 'bad' ? 'fails' : text}
    </span>
  )
}

/** The fragment of `/console` that opens a model. */
export const fragmentOf = (name: string, version: string): string =>
  `#${new URLSearchParams({ model: name, ...(version === '' ? {} : { version }) })}`

export const findVersion = (picture: Picture, name: string, version: string): Version | undefined =>
  picture.versions.get(keyOf(name, version)) ??
  [...picture.versions.values()].findLast((one) => one.name === name && one.state === 'READY') ??
  [...picture.versions.values()].findLast((one) => one.name === name)

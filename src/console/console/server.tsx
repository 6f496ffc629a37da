/** Parts of the console about the whole server, in the order in which operators look. */

import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { behindText, causeOf } from '../../tools/why/words.js'
import type { Fault, RequestRecord } from '../contract.js'
import { ageText, bytesText, clockText, counted, numberText, percentText, timeText } from '../format.js'
import { FINDINGS_MAX, type Finding } from './attention.js'
import { Curve } from './curve.js'
import { POINTS } from './history.js'
import { Bar, Phases, Section, Table, Tiles, type Tile } from './parts.js'
import { failedLately, keyOf, type Picture } from './picture.js'

export type OpenModel = (name: string, version: string) => void

/** The findings in sentences. */
export function Findings({
  found,
  picture,
  isLive,
  onOpen,
}: {
  found: readonly Finding[]
  picture: Picture
  isLive: boolean
  onOpen: OpenModel
}) {
  const more = found.length - FINDINGS_MAX
  const place = useRef<HTMLElement>(null)
  const [kind, text] = nothingFound(picture, isLive)
  // The page below must not move each time a finding comes or goes.
  useLayoutEffect(() => keepHeight(place.current, picture.now?.time_ms ?? 0))
  return (
    <section class="findings" aria-labelledby="findings" ref={place}>
      <h2 id="findings" class="hidden">
        What to look at first
      </h2>
      {found.length > 0 && !isLive && picture.now !== null && (
        <p class="quiet">As of {clockText(picture.now.time_ms)}:</p>
      )}
      {found.length === 0 ? (
        <p class={`finding ${kind}`}>{text}</p>
      ) : (
        <ul>
          {found.slice(0, FINDINGS_MAX).map(({ key, level, version, text }) => (
            <li key={key} class={`finding ${level}`}>
              <span class="hidden">{level === 'bad' ? 'Bad: ' : 'Warning: '}</span>
              <span class="words">
                {version !== null && (
                  <button type="button" class="name" onClick={() => onOpen(version.name, version.version)}>
                    {version.name}
                  </button>
                )}{' '}
                {text}
              </span>
            </li>
          ))}
          {more > 0 && <li class="quiet">And {numberText(more)} more: the table of models has all.</li>}
        </ul>
      )}
    </section>
  )
}

/** A sentence for when there are no findings. */
function nothingFound({ now, versions, hello }: Picture, isLive: boolean): readonly [kind: string, text: string] {
  const serving = [...versions.values()].filter(({ state }) => state === 'READY').length
  if (now === null) return ['neutral', 'Waiting for the figures of the server.']
  if (!isLive) return ['neutral', `No figures of the server since ${clockText(now.time_ms)}.`]
  const how =
    hello?.explicit === true
      ? 'Load one by its name under Settings, or with POST /v2/repository/models/NAME/load.'
      : 'Put a model into the repository that --model-repository names; with --model-control-mode=none, start the ' +
        'server again.'
  if (versions.size === 0) return ['neutral', `The repository has no models. ${how}`]
  if (serving === 0) return ['neutral', `No model is loaded. ${how}`]
  const serve = `${counted(serving, 'version')} ${serving === 1 ? 'serves' : 'serve'}`
  return ['good', `Nothing unusual: ${serve}, no queue is long, and nothing fails.`]
}

/** The height of the findings shrinks only when they needed less for so long. */
const HEIGHT_MS = 60_000

function keepHeight(place: HTMLElement | null, now_ms: number): void {
  if (place === null) return
  const { style, dataset } = place
  const kept = Number.parseFloat(style.minHeight) || 0
  style.minHeight = ''
  const wanted = place.offsetHeight
  const isOver = now_ms - Number(dataset['since']) >= HEIGHT_MS
  if (!(wanted < kept) || isOver) dataset['since'] = String(now_ms)
  style.minHeight = `${isOver ? wanted : Math.max(kept, wanted)}px`
}

/** Waiting requests, and what comes in against what goes out. */
export function Traffic({ picture }: { picture: Picture }) {
  const { now, server, clock } = picture
  const [accepted, answered] = [server.rate('accepted'), server.rate('answered')]
  const cpu = server.rate('cpu')
  const lately = server.sum('failed', POINTS)
  const tiles: Tile[] = [
    ['Waiting', numberText(now?.waiting ?? 0), `${numberText(now?.running ?? 0)} running`],
    ['In', `${numberText(accepted)}/s`, counted(now?.connections ?? 0, 'connection')],
    ['Out', `${numberText(answered)}/s`, accepted > answered * 1.1 + 1 ? 'less than comes in' : 'keeps up'],
    [
      'Failed',
      `${numberText(server.rate('failed'))}/s`,
      `${numberText(Math.round(lately))} in ${ageText(Math.min(POINTS, Math.max(1, clock.count - 1)))}`,
      lately > 0 ? 'bad' : '',
    ],
    ['CPU', cpu.toFixed(cpu < 10 ? 2 : 1), `of ${counted(now?.cores ?? 0, 'core')}`],
    ['Memory', bytesText(now?.memory.process ?? 0), `${bytesText(now?.memory.used ?? 0)} of requests`],
  ]
  return (
    <section aria-labelledby="traffic">
      <h2 id="traffic" class="hidden">
        Requests
      </h2>
      <Tiles tiles={tiles} />
      <div class="curves">
        <Curve
          title="Waiting requests"
          clock={clock}
          text={numberText}
          lines={[{ label: 'waiting', color: '--warn', values: server.values('waiting'), fill: true }]}
        />
        <Curve
          title="Requests per second"
          clock={clock}
          text={numberText}
          lines={[
            { label: 'in', color: '--accent', values: server.values('accepted'), fill: true },
            { label: 'out', color: '--good', values: server.values('answered') },
            { label: 'failed', color: '--bad', values: server.values('failed') },
          ]}
        />
      </div>
    </section>
  )
}

const FAULTS: Readonly<Record<Fault, string>> = {
  client: 'of the client: a wrong shape, an unknown model, a missing key, a quota that is used up',
  model: 'of the model: an exception, a process that ended, an output of another shape',
  server: 'of the server: a full queue, starting or shutting down',
  environment: 'of the environment: a memory limit, a GPU, a disk, a network',
}

const timeOfDay = ({ time }: RequestRecord): string => (time === undefined ? '' : clockText(Date.parse(time)))

const ModelName = ({ record, onOpen }: { record: RequestRecord; onOpen: OpenModel }) => (
  <>
    {record.model !== undefined && (
      <button type="button" class="name" onClick={() => onOpen(record.model ?? '', record.version ?? '')}>
        {record.model}
      </button>
    )}
  </>
)

/** Kinds of failures that are listed. */
const FAILURES_SHOWN = 5

/** Failures that differ in more than the id of their request, and how many there are. `records`: the newest first. */
function kindsOf(records: readonly RequestRecord[]): { record: RequestRecord; text: string; count: number }[] {
  const kinds = new Map<string, { record: RequestRecord; text: string; count: number }>()
  for (const record of records) {
    const text = (record.error ?? '').replace(/^\[request id: [^\]]*\] /, '')
    const key = JSON.stringify([record.code, record.model, text])
    const kind = kinds.get(key) ?? { record, text, count: 0 }
    kinds.set(key, { ...kind, count: kind.count + 1 })
  }
  return [...kinds.values()]
}

export function Failures({ picture, onOpen }: { picture: Picture; onOpen: OpenModel }) {
  const counts = picture.failedSince().filter(({ all }) => all > 0)
  const models = [...picture.versions.values()]
    .map(({ name, version, row }) => ({ name, version, count: row?.inference_stats.fail.count ?? 0 }))
    .filter(({ count }) => count > 0)
    .toSorted((a, b) => b.count - a.count)
  const last = kindsOf(failedLately(picture)).slice(0, FAILURES_SHOWN)
  return (
    <Section id="failures" title="Failures" note={`the last ${picture.slowest?.minutes ?? 15} minutes`}>
      {counts.length === 0 && last.length === 0 && <p class="empty">No request has failed.</p>}
      {counts.length > 0 && (
        <ul class="plain">
          {counts.map(({ fault, since, all }) => (
            <li key={fault}>
              <b>{numberText(all)}</b> by fault {FAULTS[fault]}
              <span class="quiet"> ({numberText(since)} while this page is open)</span>
            </li>
          ))}
        </ul>
      )}
      {models.length > 0 && (
        <p class="words">
          In models:{' '}
          {models.slice(0, FAILURES_SHOWN).map(({ name, version, count }, i) => (
            <span key={keyOf(name, version)}>
              {i > 0 && ', '}
              <button type="button" class="name" onClick={() => onOpen(name, version)}>
                {name}
              </button>{' '}
              {numberText(count)}
            </span>
          ))}
          <span class="quiet"> since each was loaded</span>
        </p>
      )}
      {last.length > 0 && <h3>The last ones</h3>}
      <ul class="entries">
        {last.map(({ record, text, count }) => (
          <li key={`${record.code} ${record.model} ${text}`}>
            <p class="entry-head">
              <time>{timeOfDay(record)}</time>
              {record.model !== undefined && <ModelName record={record} onOpen={onOpen} />}
              <span class="bad">{record.code}</span>
              {count > 1 && <span class="quiet">at least {numberText(count)} of this kind</span>}
            </p>
            <p class="words">{text}</p>
          </li>
        ))}
      </ul>
    </Section>
  )
}

/** Rows before "show more". */
const SLOWEST_SHOWN = 6

export function SlowestRequests({ picture, onOpen }: { picture: Picture; onOpen: OpenModel }) {
  const [isAll, setAll] = useState(false)
  const kept = picture.slowest?.slowest ?? []
  const records = kept.flatMap(({ requests }) => requests).toSorted((a, b) => (b.total_us ?? 0) - (a.total_us ?? 0))
  const shown = isAll ? records : records.slice(0, SLOWEST_SHOWN)
  return (
    <Section id="slowest" title="Slowest requests" note={`the last ${picture.slowest?.minutes ?? 15} minutes`}>
      {records.length === 0 ? (
        <p class="empty">No requests yet.</p>
      ) : (
        <Table
          caption="The slowest requests, with where their time went and why their batch began"
          columns={[
            { title: 'Took', number: true },
            { title: 'Model' },
            { title: 'Where the time went' },
            { title: 'Why it ran when it did', wide: true },
          ]}
          rows={shown.map((record, i) => ({
            key: `${record.time} ${i}`,
            cells: [
              <b>{timeText(record.total_us ?? 0)}</b>,
              <>
                <ModelName record={record} onOpen={onOpen} />
                <br />
                <span class="quiet id">
                  <time>{timeOfDay(record)}</time> {record.id}
                </span>
              </>,
              <Phases phases={record.phases_us ?? {}} />,
              <span class="words quiet">{causeText(record)}</span>,
            ],
          }))}
        />
      )}
      {records.length > SLOWEST_SHOWN && (
        <button type="button" class="more" onClick={() => setAll(!isAll)}>
          {isAll ? 'Show fewer' : `Show all ${records.length}`}
        </button>
      )}
    </Section>
  )
}

/** Why a request ran when it did, as a sentence. */
export function causeText({ cause, behind, batch, model }: RequestRecord): string {
  const other = behind?.model === model ? undefined : behind?.model
  const waited = other === undefined ? '' : `${behindText(other)} `
  if (cause === undefined) return waited
  const text = causeOf(cause)
  if (cause === 'no_batch') return `${waited}${text.charAt(0).toUpperCase()}${text.slice(1)}.`
  return `${waited}Its batch of ${counted(batch ?? 1, 'row')} began because ${text}.`
}

/** Models whose memory is listed. */
const MEMORY_SHOWN = 10

export function Memory({ picture, onOpen }: { picture: Picture; onOpen: OpenModel }) {
  const { now } = picture
  const held = [...picture.versions.values()]
    .flatMap(({ name, version, row }) => {
      const { process_bytes = 0, device_bytes = 0, file_bytes = 0 } = row ?? {}
      const parts = [
        [process_bytes, 'in its processes'],
        [device_bytes, 'on GPUs'],
        [file_bytes, 'of files'],
      ] as const
      const bytes = process_bytes + device_bytes + file_bytes
      return bytes === 0 ? [] : [{ name, version, bytes, parts: parts.filter(([one]) => one > 0) }]
    })
    .toSorted((a, b) => b.bytes - a.bytes)
  const most = held[0]?.bytes ?? 1
  const devices = now?.devices ?? []
  const share = (used: number, limit: number) => (limit > 0 ? used / limit : 0)
  return (
    <Section id="memory" title="Memory" note={`${bytesText(now?.memory.process ?? 0)} in this process`}>
      <ul class="meters">
        <li>
          <span>Requests</span>
          <Bar parts={[{ kind: 'accent', share: share(now?.memory.used ?? 0, now?.memory.limit ?? 0) }]} />
          <span class="number">
            {bytesText(now?.memory.used ?? 0)} of {bytesText(now?.memory.limit ?? 0)}
          </span>
        </li>
        {devices.map(({ name, used, limit, utilization }, i) => (
          <li key={i}>
            <span>{name}</span>
            <Bar parts={[{ kind: 'accent', share: share(used, limit) }]} />
            <span class="number">
              {bytesText(used)} of {bytesText(limit)}, {percentText(utilization)} busy
            </span>
          </li>
        ))}
        {held.slice(0, MEMORY_SHOWN).map(({ name, version, bytes, parts }) => (
          <li key={keyOf(name, version)}>
            <button type="button" class="name" onClick={() => onOpen(name, version)}>
              {name}
            </button>
            <Bar parts={[{ kind: 'computes', share: bytes / most }]} />
            <span class="number">{parts.map(([one, where]) => `${bytesText(one)} ${where}`).join(', ')}</span>
          </li>
        ))}
      </ul>
      {held.length > MEMORY_SHOWN && (
        <p class="quiet">And {numberText(held.length - MEMORY_SHOWN)} versions with less.</p>
      )}
      {devices.length === 0 && <p class="quiet">The server uses no GPU.</p>}
    </Section>
  )
}

export function Log({ picture }: { picture: Picture }) {
  const [isAll, setAll] = useState(false)
  const lines = isAll ? picture.log : picture.log.filter(({ level }) => !/^(info|verbose)/i.test(level))
  return (
    <Section id="log" title="Log" note="lines about requests are in the access log">
      <label class="check">
        <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} />
        informational lines as well
      </label>
      {lines.length === 0 ? (
        <p class="empty">{isAll ? 'No lines.' : 'No warnings and no errors.'}</p>
      ) : (
        <div class="scroll log" role="region" aria-label="Lines of the log, the newest first" tabIndex={0}>
          <ol class="plain">
            {lines.toReversed().map(({ time_ms, level, message }, i) => (
              <li key={`${time_ms} ${lines.length - i}`}>
                <time>{clockText(time_ms)}</time> <span class={`level ${level.toLowerCase()}`}>{level}</span> {message}
              </li>
            ))}
          </ol>
        </div>
      )}
    </Section>
  )
}

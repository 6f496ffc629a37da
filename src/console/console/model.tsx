/** The panel of one model: what it does, why it is slow, what to change, its configuration, and a place to try it. */

import { useEffect, useRef } from 'preact/hooks'
import { CAUSES } from '../../tools/why/causes.js'
import { causeOf, changeOf, isOutside } from '../../tools/why/words.js'
import type { Api } from '../api.js'
import { ONLY_GRPC, ageText, counted, isInPaths, numberText, percentText, timeText } from '../format.js'
import { modelPath } from '../try/call.js'
import { TryModel } from '../try/try.js'
import { isUnloaded } from './attention.js'
import { Control } from './control.js'
import { Curve } from './curve.js'
import { factsOf, type ModelConfig } from './facts.js'
import { State } from './models.js'
import { Phases, Table, Tiles, type Tile, useAsked } from './parts.js'
import { figuresOf, type Picture, type Version } from './picture.js'

/** The advice is made of the last minutes: it does not change faster. */
const WHY_SECONDS = 5

interface Expected {
  rate: number
  p50_us: number
  p99_us: number
}

/** `GET /v2/models/M/why` (docs/why.md). */
interface Why extends Expected {
  seconds: number
  requests: number
  failures: number
  mean_us: Readonly<Record<string, number>>
  batch: number
  arrivals: string
  clients?: number
  causes: Readonly<Record<string, number>>
  behind: Readonly<Record<string, number>>
  replayed: boolean
  advice: readonly {
    change: string
    setting?: string | null
    from?: number | string | null
    to?: number | string | null
    text: string
    now?: Expected | null
    expected?: Expected | null
  }[]
}

export function ModelPanel({
  version,
  picture,
  api,
  onOpen,
  onClose,
}: {
  version: Version
  picture: Picture
  api: Api
  onOpen: (name: string, version: string) => void
  onClose: () => void
}) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current?.showModal(), [])
  const { name } = version
  const isServing = version.state === 'READY'
  const isAsked = isInPaths(name)
  const others = [...picture.versions.values()].filter((one) => one.name === name)
  return (
    <dialog
      class="panel"
      ref={dialog}
      aria-labelledby="panel-title"
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && dialog.current?.close()}
    >
      <div class="inside">
        <header class="panel-head">
          <h2 id="panel-title">{name}</h2>
          <button type="button" class="close" aria-label={`Close ${name}`} onClick={() => dialog.current?.close()}>
            ×
          </button>
        </header>
        <div class="tools">
          <State version={version} />
          {others.length > 1 ? (
            <select
              aria-label="Version"
              value={version.version}
              onChange={(event) => onOpen(name, event.currentTarget.value)}
            >
              {others.map((one) => (
                <option key={one.version} value={one.version}>
                  version {one.version}
                </option>
              ))}
            </select>
          ) : (
            <span class="quiet">{version.version !== '' && `version ${version.version}`}</span>
          )}
          {isAsked && <Control key={name} version={version} picture={picture} api={api} />}
        </div>
        {version.reason !== '' && <p class={`words ${isUnloaded(version) ? 'quiet' : 'bad'}`}>{version.reason}</p>}
        {isServing && <Numbers version={version} />}
        {!isAsked && <p class="words">{ONLY_GRPC}</p>}
        {isServing && isAsked && <WhySlow version={version} api={api} />}
        {isServing && <Curves version={version} picture={picture} />}
        {isServing && <Batches version={version} />}
        {isServing && isAsked && (
          <section>
            <h3>Try it</h3>
            {picture.hello?.may.infer === false ? (
              <p class="quiet">This key may not send requests to models.</p>
            ) : (
              <TryModel
                key={name}
                model={name}
                version={version.version}
                api={api}
                grpcPort={picture.hello?.grpc_port}
              />
            )}
          </section>
        )}
        {isServing && isAsked && <Configuration key={name} name={name} version={version.version} api={api} />}
      </div>
    </dialog>
  )
}

function Numbers({ version }: { version: Version }) {
  const { row } = version
  const { rate, failed, mean_us, waited_us, waiting } = figuresOf(version)
  const tiles: Tile[] = [
    ['Requests', `${numberText(rate)}/s`, `${numberText(failed)} failed/s`],
    [
      'Mean time',
      ...(mean_us > 0
        ? ([timeText(mean_us), `${timeText(waited_us)} in the queue`] as const)
        : (['–', 'no requests'] as const)),
    ],
    ['Waiting', numberText(waiting), `${row?.running ?? 0} of ${counted(row?.instances ?? 0, 'instance')} busy`],
    ['Oldest', (row?.oldest_ms ?? 0) > 0 ? timeText((row?.oldest_ms ?? 0) * 1000) : '–', 'running execution'],
  ]
  return (
    <section>
      <h3 class="hidden">Numbers</h3>
      <Tiles tiles={tiles} />
    </section>
  )
}

function Curves({ version: { rings }, picture }: { version: Version; picture: Picture }) {
  if (rings === null) return null
  const means = rings.values('ms').map((ms, i) => {
    const answered = rings.values('answered')[i] ?? 0
    return ms === null || answered === 0 ? null : ms / answered
  })
  return (
    <section>
      <h3>The last minutes</h3>
      <div class="curves">
        <Curve
          title="Requests per second"
          clock={picture.clock}
          text={numberText}
          lines={[
            { label: 'out', color: '--accent', values: rings.values('answered'), fill: true },
            { label: 'failed', color: '--bad', values: rings.values('failed') },
          ]}
        />
        <Curve
          title="Mean time of a request"
          clock={picture.clock}
          text={(ms) => timeText(ms * 1000)}
          top={0.1}
          lines={[{ label: 'time', color: '--warn', values: means, fill: true }]}
        />
      </div>
    </section>
  )
}

const ratesText = ({ rate, p50_us, p99_us }: Expected): string =>
  `${numberText(rate)} requests/s, median ${timeText(p50_us)}, p99 ${timeText(p99_us)}`

/** Where the time goes, why batches begin, what requests wait behind, and what to change. */
function WhySlow({ version: { name, version }, api }: { version: Version; api: Api }) {
  const path = `${modelPath(name, version)}/why`
  const { value, error } = useAsked(async () => (await api.json(path)) as Why, WHY_SECONDS, path)
  if (error !== null)
    return (
      <section>
        <h3>Why</h3>
        <p class="bad">{error}</p>
      </section>
    )
  if (value === null)
    return (
      <section>
        <h3>Why</h3>
        <p class="quiet">Asking the server …</p>
      </section>
    )
  const { requests, failures, seconds, causes, behind, advice } = value
  if (requests + failures === 0)
    return (
      <section>
        <h3>Why</h3>
        <p class="empty">No requests in the last {ageText(seconds)}.</p>
      </section>
    )
  const shares = (of: Readonly<Record<string, number>>) =>
    Object.entries(of)
      .filter(([, share]) => share > 0.005)
      .toSorted((a, b) => b[1] - a[1])
      .slice(0, 4)
  const others = shares(behind).filter(([model]) => model !== name)
  return (
    <section class="why">
      <h3>What to change</h3>
      {advice.length === 0 && (
        <p class="empty">
          {value.replayed
            ? 'Nothing: no setting that the server tried would help.'
            : 'Not known yet. Changes are tried once enough requests waited or ran on worker threads.'}
        </p>
      )}
      {advice.length > 0 && (
        <ol class="advice">
          {advice.map(({ change, setting, from, to, text, now, expected }) => (
            <li key={`${change} ${to}`}>
              <p>
                <b>{changeOf(change, from, to)}</b>: {text}
              </p>
              {setting &&
                (isOutside(change) ? (
                  <p class="words">What helps: {setting}.</p>
                ) : (
                  <pre tabIndex={0}>
                    <code>{setting}</code>
                  </pre>
                ))}
              {now && expected && <p class="quiet">now: {ratesText(now)}</p>}
              {expected && <p>expected: {ratesText(expected)}</p>}
            </li>
          ))}
        </ol>
      )}
      <h3>Where the time goes</h3>
      <p>
        {counted(requests, 'request')} in {ageText(seconds)}
        {failures > 0 && `, and ${numberText(failures)} failed`}: {ratesText(value)}
      </p>
      <Phases phases={value.mean_us} isLong />
      {shares(causes).length > 0 && (
        <>
          <h3>Why batches begin</h3>
          <ul class="plain">
            {shares(causes).map(([cause, share]) => (
              <li key={cause}>
                <b>{percentText(share)}</b> {cause in CAUSES ? causeOf(cause) : cause}
              </li>
            ))}
          </ul>
        </>
      )}
      {others.length > 0 && (
        <p>
          Requests wait behind other models:{' '}
          {others.map(([model, share]) => `${model} (${percentText(share)})`).join(', ')}.
        </p>
      )}
    </section>
  )
}

function Batches({ version: { row } }: { version: Version }) {
  const batches = row?.batch_stats ?? []
  const all = batches.reduce((sum, one) => sum + one.compute_infer.count, 0)
  if (all === 0) return null
  return (
    <section>
      <h3>Batches</h3>
      <Table
        caption="Executions by the rows of their batch, since the model was loaded"
        columns={['Batch', 'Executions', 'Share', 'Mean time'].map((title) => ({ title, number: true }))}
        rows={batches.map(({ batch_size, compute_infer: { count, ns } }) => ({
          key: String(batch_size),
          // A model without batching runs requests as they are.
          cells: [
            batch_size === 0 ? '1 request' : counted(batch_size, 'row'),
            numberText(count),
            percentText(count / all),
            timeText(ns / Math.max(1, count) / 1000),
          ],
        }))}
      />
    </section>
  )
}

function Configuration({ name, version, api }: { name: string; version: string; api: Api }) {
  const path = `${modelPath(name, version)}/config`
  const { value, error } = useAsked(async () => (await api.json(path)) as ModelConfig, 0, path)
  return (
    <details>
      <summary>
        <h3>Configuration</h3>
      </summary>
      {error !== null && <p class="bad">{error}</p>}
      {value !== null && (
        <>
          <dl class="facts">
            {factsOf(value).map(([title, text]) => (
              <div key={title}>
                <dt>{title}</dt>
                <dd>{text}</dd>
              </div>
            ))}
          </dl>
          <pre class="config" tabIndex={0}>
            <code>{JSON.stringify(value, null, 2)}</code>
          </pre>
        </>
      )}
    </details>
  )
}

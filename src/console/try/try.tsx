/** A form for a model, made of its metadata, that sends the real call and shows the answer. */

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { ModelMetadata } from '../../../client/src/types.js'
import type { Api } from '../api.js'
import type { RequestRecord } from '../contract.js'
import { ONLY_GRPC, isInPaths, timeText } from '../format.js'
import { snippetOf, type Role } from '../snippets.js'
import { generate, infer, modelPath, requestOf, type Answered } from './call.js'
import { NO_OPTIONS, fieldsOf, inputOf, type Field, type Options } from './fields.js'
import { findingsOf } from './findings.js'
import { FoundView, type PictureFile } from './found.js'
import { InputField, OptionFields } from './inputs.js'
import { StreamLog } from './log.js'
import { OutputView } from './outputs.js'
import { Programs, SendButton } from './programs.js'
import { RecordView } from './record.js'
import { bytesShown } from './show.js'
import { StreamView } from './stream.js'
import { TextTrial, roleOf } from './texts.js'

interface Config {
  max_batch_size?: number
  input?: readonly { name?: string; optional?: boolean }[]
  model_transaction_policy?: { decoupled?: boolean }
  sequence_batching?: object
  parameters?: Readonly<Record<string, unknown>>
}

interface Known {
  metadata: ModelMetadata
  config: Config
  role: Role | null
}

/** Facts of a model. The configuration needs a permission that the key may lack: then the form knows less. */
async function read(api: Api, model: string, version: string): Promise<Known> {
  const path = modelPath(model, version)
  const metadata = (await api.json(path)) as ModelMetadata
  const config = (await api.json(`${path}/config`).catch(() => ({}))) as Config
  const isText = metadata.platform === 'text' || config.parameters?.['nereid.text'] !== undefined
  return { metadata, config, role: isText ? await roleOf(api, model) : null }
}

export function TryModel({
  model,
  version = '',
  api,
  grpcPort,
}: {
  model: string
  version?: string
  api: Api
  /** Where the programs find gRPC; 0 without it. */
  grpcPort?: number | undefined
}) {
  const [known, setKnown] = useState<Known | null>(null)
  const [error, setError] = useState('')
  useEffect(() => {
    let isShown = true
    setKnown(null)
    setError('')
    read(api, model, version).then(
      (found) => isShown && setKnown(found),
      (reason: unknown) => isShown && setError((reason as Error).message),
    )
    return () => {
      isShown = false
    }
  }, [api, api.key, model, version])
  if (!isInPaths(model)) return <p class="words">{ONLY_GRPC}</p>
  if (error !== '')
    return (
      <p role="alert" class="bad">
        {error}
      </p>
    )
  if (known === null) return <p class="quiet">Reading the description of the model …</p>
  const form = (
    <TensorTrial
      key={`${model}\0${version}`}
      model={model}
      version={version}
      api={api}
      known={known}
      grpcPort={grpcPort}
    />
  )
  if (known.role === null) return form
  return (
    <>
      <TextTrial model={version === '' ? model : `${model}:${version}`} role={known.role} api={api} />
      <details>
        <summary>As tensors</summary>
        {form}
      </details>
    </>
  )
}

/** The picture that a request sends, null without one. */
function pictureOf(fields: readonly Field[]): PictureFile | null {
  for (const { tensor, isSent, source, file } of fields) {
    if (!isSent || tensor.datatype !== 'BYTES' || source !== 'file' || file === null) continue
    const shown = bytesShown(file.bytes)
    if (shown.kind === 'image') return { name: file.name, ...shown }
  }
  return null
}

type Outcome =
  | { answered: Answered; picture: PictureFile | null }
  | { log: StreamLog; why: RequestRecord | null; error: string }
  | { error: string }

function TensorTrial({
  model,
  version,
  api,
  known,
  grpcPort,
}: {
  model: string
  version: string
  api: Api
  known: Known
  grpcPort: number | undefined
}) {
  const { metadata, config } = known
  const isStream = config.model_transaction_policy?.decoupled === true
  const [fields, setFields] = useState<readonly Field[]>(() => fieldsOf(metadata, config))
  const [options, setOptions] = useState<Options>(() => ({
    ...NO_OPTIONS,
    // The route of streams has no sequences.
    sequence: config.sequence_batching === undefined || isStream ? null : { id: '1', isStart: true, isEnd: false },
  }))
  const [outcome, setOutcome] = useState<Outcome | null>(null)
  const [running, setRunning] = useState<AbortController | null>(null)
  const form = useRef<HTMLFormElement>(null)
  const current = useRef(running)
  current.current = running
  // A stream of a model that is no longer shown must not go on.
  useEffect(() => () => current.current?.abort(), [])

  const request = () => requestOf(model, version, fields.filter(({ isSent }) => isSent).map(inputOf), options)
  const run = async (abort: AbortController): Promise<Outcome> => {
    if (!isStream) return { answered: await infer(api, request(), abort.signal), picture: pictureOf(fields) }
    const log = new StreamLog()
    setOutcome({ log, why: null, error: '' })
    try {
      return { log, why: await generate(api, request(), abort.signal, (event) => log.add(event)), error: '' }
    } catch (error) {
      return { log, why: null, error: abort.signal.aborted ? 'stopped' : (error as Error).message }
    }
  }
  const send = (event: { preventDefault(): void }) => {
    event.preventDefault()
    if (running !== null) return
    // Its message is beside it.
    const wrong = form.current?.querySelector<HTMLElement>('[aria-invalid=true]')
    if (wrong instanceof HTMLElement) {
      wrong.closest('details')?.setAttribute('open', '')
      return wrong.focus()
    }
    const abort = new AbortController()
    setRunning(abort)
    run(abort)
      .catch((error: unknown): Outcome => ({ error: abort.signal.aborted ? 'stopped' : (error as Error).message }))
      .then((found) => {
        setRunning(null)
        setOutcome(found)
        // The next request of the sequence; after the last one another begins.
        if ('answered' in found)
          setOptions((was) => ({
            ...was,
            sequence: was.sequence && { ...was.sequence, isStart: was.sequence.isEnd, isEnd: false },
          }))
      })
  }
  return (
    <div class="try">
      <form ref={form} onSubmit={send} aria-label={`Try ${model}`}>
        {fields.map((field, i) => (
          <InputField
            key={field.tensor.name}
            field={field}
            change={(more) => setFields((was) => was.map((one, k) => (k === i ? { ...one, ...more } : one)))}
          />
        ))}
        {fields.length === 0 && <p class="quiet">This model has no inputs.</p>}
        <OptionFields
          options={options}
          isStream={isStream}
          change={(more) => setOptions((was) => ({ ...was, ...more }))}
        />
        <div class="row">
          <SendButton isRunning={running !== null} />
          {running !== null && (
            <button type="button" onClick={() => running.abort()}>
              Stop
            </button>
          )}
        </div>
        <Programs
          hasKey={api.key !== ''}
          write={(language) =>
            snippetOf(language, {
              origin: location.origin,
              request: request(),
              isStream,
              hasKey: api.key !== '',
              grpcPort,
            })
          }
        />
      </form>
      <section class="answer" aria-label="Answer">
        <OutcomeView outcome={outcome} isRunning={running !== null} />
      </section>
    </div>
  )
}

function OutcomeView({ outcome, isRunning }: { outcome: Outcome | null; isRunning: boolean }) {
  const says = isRunning
    ? 'Waiting for the response …'
    : outcome === null
      ? 'No request was sent yet.'
      : 'answered' in outcome
        ? `Response after ${timeText(outcome.answered.ms * 1000)}, measured here.`
        : ''
  return (
    <>
      <p role="status" class="quiet">
        {says}
      </p>
      {outcome !== null && 'error' in outcome && outcome.error !== '' && (
        <p role="alert" class={outcome.error === 'stopped' ? 'quiet' : 'bad'}>
          {outcome.error}
        </p>
      )}
      {outcome !== null && 'log' in outcome && (
        <>
          <StreamView log={outcome.log} isOver={!isRunning} />
          {outcome.why !== null && <RecordView record={outcome.why} />}
        </>
      )}
      {outcome !== null && 'answered' in outcome && <AnswerView {...outcome.answered} picture={outcome.picture} />}
    </>
  )
}

function AnswerView({ result, why, picture }: Answered & { picture: PictureFile | null }) {
  const parameters = Object.entries(result.parameters)
  const found = useMemo(() => (picture === null ? null : findingsOf(result.outputs)), [result, picture])
  const tensors = result.outputs.map((tensor) => <OutputView key={tensor.name} tensor={tensor} />)
  return (
    <>
      {found === null || picture === null ? (
        tensors
      ) : (
        <>
          <FoundView found={found} picture={picture} />
          <details>
            <summary>As tensors</summary>
            {tensors}
          </details>
        </>
      )}
      {parameters.length > 0 && (
        <p class="quiet">parameters: {parameters.map(([name, value]) => `${name}=${String(value)}`).join(', ')}</p>
      )}
      {why !== null && <RecordView record={why} />}
    </>
  )
}

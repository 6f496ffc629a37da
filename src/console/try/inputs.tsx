/** Fields for the inputs and the options of a request. */

import { useId, useMemo, useState } from 'preact/hooks'
import { decodeText } from '../../../client/src/bytes.js'
import { hintOf, parametersOf, sourcesOf, wholeOf, wrongOf, type Field, type Options, type Source } from './fields.js'
import { Picture } from './outputs.js'
import { bytesShown } from './show.js'

/** Bytes of a chosen file: the page reads it whole. */
const FILE_BYTES_MAX = 256 << 20
/** Lines of a text field before it is scrolled. */
const ROWS_MAX = 8

export function InputField({ field, change }: { field: Field; change: (more: Partial<Field>) => void }) {
  const id = useId()
  const [hint, wrong] = useMemo(() => {
    let says = 'not sent'
    const why = wrongOf(() => field.isSent && (says = hintOf(field)))
    return [says, why]
  }, [field])
  const {
    tensor: { name, datatype, shape },
    isOptional,
    isBatched,
    isSent,
    source,
    text,
    dims,
  } = field
  const isUnwritten = source === 'zeros' || source === 'ones' || source === 'random' || source === 'file'
  const isWritten = source === 'values' || source === 'text' || source === 'lines'
  return (
    <fieldset class="input">
      <legend>
        <code>{name}</code>{' '}
        <span class="quiet">
          {datatype} [{shape.join(', ')}]
        </span>
      </legend>
      {isOptional && <Check label="send this optional input" value={isSent} set={(on) => change({ isSent: on })} />}
      {isSent && (
        <>
          <div class="row">
            <label for={`${id}s`}>from</label>
            <select
              id={`${id}s`}
              value={source}
              aria-invalid={isUnwritten && wrong !== ''}
              aria-describedby={`${id}h`}
              onChange={(event) => change({ source: event.currentTarget.value as Source })}
            >
              {sourcesOf(datatype).map(([value, words]) => (
                <option key={value} value={value}>
                  {words}
                </option>
              ))}
            </select>
            {shape.map(
              (dim, i) =>
                dim < 0 && (
                  <label key={i}>
                    {isBatched && i === 0 ? 'batch' : `dim ${i}`}{' '}
                    <input
                      class="dim"
                      inputMode="numeric"
                      autocomplete="off"
                      placeholder="auto"
                      value={dims[i]}
                      aria-invalid={wrong.includes(`dimension ${i} is`)}
                      aria-describedby={`${id}h`}
                      onInput={(event) => change({ dims: dims.with(i, event.currentTarget.value) })}
                    />
                  </label>
                ),
            )}
          </div>
          {isWritten && (
            <textarea
              aria-label={`${name}: ${source}`}
              aria-describedby={`${id}h`}
              spellcheck={false}
              aria-invalid={wrong !== '' && !/: dimension \d+ is/.test(wrong)}
              rows={Math.min(ROWS_MAX, Math.max(2, text.split('\n', ROWS_MAX).length))}
              value={text}
              onInput={(event) => change({ text: event.currentTarget.value })}
            />
          )}
          {(source === 'file' || source === 'lines') && (
            <FileInput field={field} change={change} describedBy={`${id}h`} />
          )}
        </>
      )}
      <p id={`${id}h`} class={`hint ${wrong === '' ? 'quiet' : 'bad'}`}>
        {wrong || hint}
      </p>
    </fieldset>
  )
}

function FileInput({
  field,
  change,
  describedBy,
}: {
  field: Field
  change: (more: Partial<Field>) => void
  describedBy: string
}) {
  const {
    tensor: { name, datatype },
    source,
    file,
  } = field
  const [says, setSays] = useState('')
  const image = useMemo(() => (file === null ? null : bytesShown(file.bytes)), [file])
  const read = async (chosen: File | undefined) => {
    if (chosen === undefined) return
    const isLarge = chosen.size > FILE_BYTES_MAX
    setSays(isLarge ? `'${chosen.name}' has ${chosen.size} bytes, and this page reads at most ${FILE_BYTES_MAX}` : '')
    const file = isLarge ? null : { name: chosen.name, bytes: new Uint8Array(await chosen.arrayBuffer()) }
    // The lines of a text are values, which can be changed.
    change(source === 'lines' ? { text: decodeText(file?.bytes ?? new Uint8Array()) } : { file })
  }
  return (
    <>
      <input
        type="file"
        aria-label={`${name}: file`}
        aria-describedby={describedBy}
        onChange={(event) => void read(event.currentTarget.files?.[0])}
      />
      <p class="quiet">
        {source === 'lines'
          ? 'Its lines become the texts.'
          : datatype === 'BYTES'
            ? 'Its bytes are one element.'
            : `Its bytes are the elements: raw ${datatype}, little-endian.`}
      </p>
      {says !== '' && (
        <p role="alert" class="bad">
          {says}
        </p>
      )}
      {source === 'file' && image?.kind === 'image' && (
        <Picture bytes={image.bytes} type={image.type} label={file?.name ?? ''} />
      )}
    </>
  )
}

export function OptionFields({
  options,
  isStream,
  change,
}: {
  options: Options
  /** The route of streams has neither priorities nor timeouts. */
  isStream: boolean
  change: (more: Partial<Options>) => void
}) {
  const { sequence } = options
  const id = useId()
  const wrong = {
    id: '',
    priority: wrongOf(() => wholeOf('the priority', options.priority)),
    timeout: wrongOf(() => wholeOf('the timeout', options.timeout)),
  }
  const wrongParameters = wrongOf(() => parametersOf(options.parameters))
  const line = (label: string, key: 'id' | 'priority' | 'timeout') => (
    <div>
      <label>
        {label}{' '}
        <input
          autocomplete="off"
          value={options[key]}
          aria-invalid={wrong[key] !== ''}
          aria-describedby={`${id}${key}`}
          onInput={(event) => change({ [key]: event.currentTarget.value })}
        />
      </label>
      <p id={`${id}${key}`} class="bad hint">
        {wrong[key]}
      </p>
    </div>
  )
  const inSequence = (more: Partial<NonNullable<Options['sequence']>>) =>
    sequence !== null && change({ sequence: { ...sequence, ...more } })
  return (
    <>
      {sequence !== null && (
        <fieldset class="input">
          <legend>Sequence</legend>
          <div class="row">
            <label>
              id{' '}
              <input
                class="dim"
                autocomplete="off"
                value={sequence.id}
                onInput={(event) => inSequence({ id: event.currentTarget.value })}
              />
            </label>
            <Check label="first" value={sequence.isStart} set={(on) => inSequence({ isStart: on })} />
            <Check label="last" value={sequence.isEnd} set={(on) => inSequence({ isEnd: on })} />
          </div>
        </fieldset>
      )}
      <details>
        <summary>Options of the request</summary>
        <div class="row">
          {line('request id', 'id')}
          {!isStream && (
            <>
              {line('priority', 'priority')}
              {line('timeout, µs', 'timeout')}
            </>
          )}
        </div>
        <label class="block">
          parameters, a line <code>name=value</code> each
          <textarea
            rows={2}
            spellcheck={false}
            placeholder="name=value"
            value={options.parameters}
            aria-invalid={wrongParameters !== ''}
            aria-describedby={`${id}p`}
            onInput={(event) => change({ parameters: event.currentTarget.value })}
          />
        </label>
        <p id={`${id}p`} class="bad hint">
          {wrongParameters}
        </p>
      </details>
    </>
  )
}

export const Check = ({ label, value, set }: { label: string; value: boolean; set: (on: boolean) => void }) => (
  <label class="check">
    <input type="checkbox" checked={value} onChange={(event) => set(event.currentTarget.checked)} /> {label}
  </label>
)

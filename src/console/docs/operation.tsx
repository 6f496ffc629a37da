/** A form for one operation of the API: it sends what is in it, and shows the answer as it is. */

import { useEffect, useId, useRef, useState } from 'preact/hooks'
import type { Api } from '../api.js'
import { timeText } from '../format.js'
import { shell } from '../snippets.js'
import { Copy, SendButton } from '../try/programs.js'
import { Pre } from '../try/outputs.js'
import { exampleOf, indented, type Schema, type Schemas } from './schema.js'

export interface Parameter {
  name: string
  in: string
  required?: boolean
  description?: string
  schema?: Schema
}

type Content = Readonly<Record<string, { schema?: Schema }>>

export interface Operation {
  operationId: string
  summary?: string
  tags?: readonly string[]
  parameters?: readonly Parameter[]
  requestBody?: { required?: boolean; content: Content }
  responses: Readonly<Record<string, { description?: string; $ref?: string; content?: Content }>>
}

/** Characters of an answer that are read; a stream may have no end. */
const ANSWER_CHARACTERS_MAX = 1 << 20
/** The part that is shown of these. */
const SHOWN_CHARACTERS_MAX = 50_000
const SHOW_MS = 100

interface Answer {
  status: string
  headers: string
  body: string
  ms: number
  isWhole: boolean
}

/** The path with its names and its query. */
function pathOf(path: string, parameters: readonly Parameter[], values: Readonly<Record<string, string>>): string {
  const query = new URLSearchParams(
    parameters.flatMap(({ in: place, name }) => (place === 'query' && values[name] ? [[name, values[name]]] : [])),
  )
  const filled = path.replace(/\{([^}]+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? ''))
  return `${filled}${query.size === 0 ? '' : `?${query}`}`
}

export function TryOperation({
  path,
  method,
  operation,
  parameters,
  schemas,
  api,
}: {
  path: string
  method: 'get' | 'post'
  operation: Operation
  parameters: readonly Parameter[]
  schemas: Schemas
  api: Api
}) {
  const id = useId()
  const fields = parameters.filter(({ in: place }) => place === 'path' || place === 'query')
  const schema = operation.requestBody?.content['application/json']?.schema
  const [values, setValues] = useState<Readonly<Record<string, string>>>({})
  const [body, setBody] = useState(() =>
    schema === undefined ? '' : indented(JSON.stringify(exampleOf(schema, schemas))),
  )
  const [models, setModels] = useState<readonly string[]>([])
  const [answer, setAnswer] = useState<Answer | null>(null)
  const [error, setError] = useState('')
  const [running, setRunning] = useState<AbortController | null>(null)
  const current = useRef(running)
  current.current = running
  useEffect(() => () => current.current?.abort(), [])
  useEffect(() => {
    if (!fields.some(({ name }) => name === 'model')) return
    api.json('/v2/models').then(
      (found) => setModels((found as { models: string[] }).models),
      () => {},
    )
  }, [])

  const target = pathOf(path, parameters, values)
  const hasBody = method === 'post' && body.trim() !== ''
  const send = (event: { preventDefault(): void }) => {
    event.preventDefault()
    if (running !== null) return
    const abort = new AbortController()
    setRunning(abort)
    setAnswer(null)
    setError('')
    const headers = hasBody ? { 'content-type': 'application/json' } : { accept: 'application/json' }
    const init = { method: method.toUpperCase(), headers, signal: abort.signal, ...(hasBody ? { body } : {}) }
    answerOf(api, target, init, setAnswer)
      .catch((reason: unknown) => !abort.signal.aborted && setError((reason as Error).message))
      .finally(() => setRunning(null))
  }
  const command = [
    `curl -i ${shell(location.origin + target)}`,
    ...(method === 'post' && !hasBody ? ['-X POST'] : []),
    ...(api.key === '' ? [] : ['-H "Authorization: Bearer $NEREID_KEY"']),
    ...(hasBody ? [`-d ${shell(body)}`] : []),
  ].join(' \\\n  ')
  return (
    <form class="operation-try" onSubmit={send} aria-label={`Try ${operation.operationId}`}>
      <h3>Try it</h3>
      <div class="row">
        {fields.map(({ name, required }) => (
          <label key={name}>
            {name}{' '}
            <input
              autocomplete="off"
              spellcheck={false}
              required={required}
              value={values[name] ?? ''}
              list={name === 'model' ? `${id}m` : undefined}
              onInput={(event) => setValues({ ...values, [name]: event.currentTarget.value })}
            />
          </label>
        ))}
        {path.includes('{model}') && values['model'] && (
          <a href={`/docs?model=${encodeURIComponent(values['model'])}#${operation.operationId}`}>
            with the tensors of {values['model']}
          </a>
        )}
        <datalist id={`${id}m`}>
          {models.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      </div>
      {method === 'post' && (
        <label class="block">
          body{schema === undefined && <span class="quiet"> (none)</span>}
          <textarea
            rows={Math.min(12, body.split('\n').length + 1)}
            spellcheck={false}
            value={body}
            onInput={(event) => setBody(event.currentTarget.value)}
          />
        </label>
      )}
      <div class="row">
        <SendButton isRunning={running !== null} />
        {running !== null && (
          <button type="button" onClick={() => running.abort()}>
            Stop
          </button>
        )}
      </div>
      {error !== '' && (
        <p role="alert" class="bad">
          {error}
        </p>
      )}
      <p role="status">{answer === null ? '' : `${answer.status}, after ${timeText(answer.ms * 1000)}`}</p>
      {answer !== null && (
        <>
          <Pre label="Headers of the response" text={answer.headers} />
          <Pre isCode label="Body of the response" text={shown(answer)} />
        </>
      )}
      <details>
        <summary>As curl</summary>
        <Pre isCode label="The call in curl" text={command} />
        <div class="row">
          <Copy text={command} />
        </div>
      </details>
    </form>
  )
}

function shown({ body, isWhole }: Answer): string {
  const text = isWhole && body.length <= SHOWN_CHARACTERS_MAX ? indented(body) : body.slice(0, SHOWN_CHARACTERS_MAX)
  const rest = body.length - SHOWN_CHARACTERS_MAX
  return rest > 0 ? `${text}\n… and at least ${rest.toLocaleString('en')} more characters` : text
}

/** Reads an answer, of any status, up to the limit, and calls back as it comes. */
async function answerOf(api: Api, path: string, init: RequestInit, tell: (answer: Answer) => void): Promise<void> {
  const from = performance.now()
  const response = await api.send(path, init)
  const status = `${response.status} ${response.statusText}`.trim()
  const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n')
  const decoder = new TextDecoder()
  const reader = response.body?.getReader()
  let body = ''
  let told = 0
  for (let isWhole = false; !isWhole;) {
    const part = await reader?.read()
    isWhole = part === undefined || part.done
    if (part?.value !== undefined) body += decoder.decode(part.value, { stream: true })
    const isFull = body.length > ANSWER_CHARACTERS_MAX
    const now = performance.now()
    if (isWhole || isFull || now - told > SHOW_MS) tell({ status, headers, body, ms: now - from, isWhole })
    if (now - told > SHOW_MS) told = now
    if (isFull) return reader?.cancel()
  }
}

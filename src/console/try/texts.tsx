/** Text models: the neighbours of a text among samples, documents by relevance, classes as bars. */

import { useId, useState } from 'preact/hooks'
import { Call } from '../../../client/src/call.js'
import { embedBody, embeddingsOf, rankingOf, rerankBody } from '../../../client/src/text.js'
import type { Api } from '../api.js'
import { textSnippetOf, type Role } from '../snippets.js'
import { cosine } from './cosine.js'
import { Scores } from './found.js'
import { Programs, SendButton } from './programs.js'

/** Lines that are sent. */
const LINES_MAX = 1000

const SAMPLES = [
  'The cat sat on the mat.',
  'A dog sleeps in front of the house.',
  'Paris is the capital of France.',
  'Berlin is a city in Germany.',
  'The film was bad, and far too long.',
  'This is a good book.',
  'How do I reset my password?',
  'Tensors are arrays of numbers.',
  'The model is loaded when the server starts.',
  'It rains in the morning.',
  'The train to Rome is late.',
  'Bread is made of flour, water and salt.',
]

/** The role of a text model, null if the server knows none. */
export async function roleOf(api: Api, model: string): Promise<Role | null> {
  const info = (await api.json(`/info?model=${encodeURIComponent(model)}`).catch(() => ({}))) as {
    model_type?: Record<string, unknown>
  }
  const [type = ''] = Object.keys(info.model_type ?? {})
  const roles: Readonly<Record<string, Role>> = { embedding: 'embed', reranker: 'rerank', classifier: 'classify' }
  return roles[type] ?? null
}

/** A text and its score. */
export interface Scored {
  label: string
  score: number
}

const best = (rows: readonly Scored[]): Scored[] => rows.toSorted((a, b) => b.score - a.score)

/** The best first. @throws {ApiError} with the server's text */
async function ask(api: Api, model: string, role: Role, text: string, lines: readonly string[]): Promise<Scored[]> {
  const call = new Call({})
  if (role === 'embed') {
    const answer = await api.post('/v1/embeddings', embedBody([text, ...lines], { model }))
    const [first = new Float32Array(), ...vectors] = embeddingsOf(call, answer).vectors
    return best(vectors.map((vector, i) => ({ label: lines[i] ?? '', score: cosine(first, vector) })))
  }
  if (role === 'rerank') {
    const answer = await api.post('/v1/rerank', rerankBody(text, lines, { model }))
    return best(rankingOf(call, answer).results.map(({ index, score }) => ({ label: lines[index] ?? '', score })))
  }
  const { data } = (await api.post('/v1/classify', { model, input: text })) as {
    data: { probs: number[]; label: string }[]
  }
  const labels = await labelsOf(api, model)
  const { probs = [], label = '' } = data[0] ?? {}
  const top = probs.indexOf(Math.max(...probs))
  return best(probs.map((score, i) => ({ label: labels[i] ?? (i === top ? label : `class ${i}`), score })))
}

/** Names of all classes by their numbers; `/v1/classify` names only the best one. */
async function labelsOf(api: Api, model: string): Promise<Readonly<Record<string, string>>> {
  const info = (await api.json(`/info?model=${encodeURIComponent(model)}`)) as {
    model_type?: { classifier?: { id2label?: Record<string, string> } }
  }
  return info.model_type?.classifier?.id2label ?? {}
}

const WORDS: Readonly<Record<Role, readonly [title: string, text: string, lines: string, button: string]>> = {
  embed: ['Neighbours of a text', 'Text', 'Samples, one per line', 'Find neighbours'],
  rerank: ['Documents by relevance', 'Query', 'Documents, one per line', 'Rank documents'],
  classify: ['Classes of a text', 'Text', '', 'Classify'],
}

export function TextTrial({ model, role, api }: { model: string; role: Role; api: Api }) {
  const id = useId()
  const [text, setText] = useState('Which town is the capital of France?')
  const [lines, setLines] = useState(SAMPLES.join('\n'))
  const [rows, setRows] = useState<readonly Scored[]>([])
  const [error, setError] = useState('')
  const [isRunning, setRunning] = useState(false)
  const [title, first, second, button] = WORDS[role]
  const samples = () =>
    lines
      .split('\n')
      .filter((line) => line.trim() !== '')
      .slice(0, LINES_MAX)
  const send = (event: { preventDefault(): void }) => {
    event.preventDefault()
    if (isRunning) return
    setRunning(true)
    setError('')
    ask(api, model, role, text, samples())
      .then(setRows, (reason: unknown) => setError((reason as Error).message))
      .finally(() => setRunning(false))
  }
  return (
    <div class="try">
      <form onSubmit={send} aria-label={title}>
        <label class="block" for={`${id}t`}>
          {first}
        </label>
        <textarea id={`${id}t`} rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        {second !== '' && (
          <>
            <label class="block" for={`${id}l`}>
              {second}
            </label>
            <textarea id={`${id}l`} rows={8} value={lines} onInput={(event) => setLines(event.currentTarget.value)} />
          </>
        )}
        <div class="row">
          <SendButton label={button} isRunning={isRunning} />
        </div>
        <Programs
          needs=""
          hasKey={api.key !== ''}
          write={(language) =>
            textSnippetOf(language, {
              origin: location.origin,
              role,
              model,
              text,
              lines: samples(),
              hasKey: api.key !== '',
            })
          }
        />
      </form>
      <section class="answer" aria-label={title}>
        <p role="status" class="quiet">
          {isRunning ? 'Waiting for the response …' : rows.length === 0 ? '' : title}
        </p>
        {error !== '' && (
          <p role="alert" class="bad">
            {error}
          </p>
        )}
        <Scores rows={rows} />
      </section>
    </div>
  )
}

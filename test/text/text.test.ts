/**
 * Text endpoints over sockets: what they answer for tiny models of each role, beside the numbers of another
 * implementation (record.py: tokenizers, onnxruntime and numpy). test/heavy/text.mjs has trained weights and clients.
 */
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { writeText } from '../models/text.mjs'
import { TestServer } from '../server/harness.js'

interface Recorded {
  texts: string[]
  tokens: number[]
  ids: number[][]
  vectors: number[][]
  query: string
  documents: string[]
  scores: [number][]
  classes: number[][]
}
const recorded = JSON.parse(readFileSync(new URL('recorded.json', import.meta.url), 'utf8')) as Recorded
const { texts, tokens, ids, vectors, query, documents } = recorded
const scores = recorded.scores.map(([score]) => score)
const TOLERANCE = 1e-5

const directory = mkdtempSync(join(tmpdir(), 'nereid-text-'))
let server: TestServer
/** Threads that rayon starts at its first use, by its variable: many more than the server has for a model. */
const THREADS_RAYON = 64
const threads = (): number => readdirSync(`/proc/${server.process.pid}/task`).length
let threadsBefore = 0

beforeAll(async () => {
  writeText(directory)
  const env = { ...process.env, RAYON_NUM_THREADS: `${THREADS_RAYON}`, TOKENIZERS_PARALLELISM: 'true' }
  server = await TestServer.start(directory, ['--text-alias=ours=embed,tokens=own'], { env })
  threadsBefore = threads()
})

afterAll(async () => {
  await server.stop()
  rmSync(directory, { recursive: true })
})

interface Answer {
  status: number
  headers: Headers
  json: {
    data: { index: number; embedding: number[] | string; score: number; probs: number[]; label: string }[]
    results: { index: number; relevance_score: number }[]
    usage: { prompt_tokens: number; total_tokens: number }
    error: { message: string; code: string | null }
    outputs: { shape: number[]; datatype: string; data: number[] }[]
  }
}

async function post(path: string, body: object): Promise<Answer> {
  const response = await fetch(`${server.url}${path}`, { method: 'POST', body: JSON.stringify(body) })
  return { status: response.status, headers: response.headers, json: (await response.json()) as Answer['json'] }
}

/** The same shape, and no value further away than the noise of floats. */
function near(found: number[][], wanted: number[][]): void {
  expect(found.map((row) => row.length)).toEqual(wanted.map((row) => row.length))
  found.forEach((row, i) => row.forEach((x, k) => expect(Math.abs(x - (wanted[i]?.[k] ?? 0))).toBeLessThan(TOLERANCE)))
}

const floats = (base64: string): number[] => [...new Float32Array(new Uint8Array(Buffer.from(base64, 'base64')).buffer)]
const rows = ({ json }: Answer): number[][] =>
  json.data.map(({ embedding }) => (typeof embedding === 'string' ? floats(embedding) : embedding))

test('vectors are those of another implementation, as lists and as base64', async () => {
  for (const form of ['float', 'base64', undefined]) {
    const answer = await post('/v1/embeddings', { model: 'embed', input: texts, encoding_format: form })
    expect(answer.status).toBe(200)
    near(rows(answer), vectors)
    expect(answer.json.data.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4])
    expect(answer.json.data.map(({ embedding }) => typeof embedding)).toEqual(
      texts.map(() => (form === 'base64' ? 'string' : 'object')),
    )
    const sum = tokens.reduce((a, b) => a + b)
    expect(answer.json.usage).toEqual({ prompt_tokens: sum, total_tokens: sum })
    expect(answer.headers.get('content-type')).toBe('application/json')
  }
})

test('a text alone and among 500 has the same vector', async () => {
  const many = Array.from({ length: 500 }, (_, i) => texts[i % 5] ?? '')
  near(
    rows(await post('/v1/embeddings', { model: 'embed', input: many })),
    many.map((_, i) => vectors[i % 5] ?? []),
  )
  expect(threads() - threadsBefore).toBeLessThan(THREADS_RAYON / 2)
  near(rows(await post('/v1/embeddings', { model: 'embed', input: texts[0] })), vectors.slice(0, 1))
})

test('token ids have the vectors of their texts if they are declared or complete', async () => {
  near(rows(await post('/v1/embeddings', { model: 'ours', input: ids })), vectors)
  near(rows(await post('/v1/embeddings', { model: 'embed', input: ids[0] })), vectors.slice(0, 1))
  const answer = await post('/v1/embeddings', { model: 'embed', input: ids[0]?.slice(1) })
  expect(answer.status).toBe(400)
  expect(answer.json.error.message).toMatch(/tokens=/)
})

test('scores order documents, and classes have their labels', async () => {
  const order = scores.map((_, i) => i).toSorted((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))
  for (const path of ['/rerank', '/v1/rerank', '/v2/rerank']) {
    const { json } = await post(path, { model: 'rerank', query, documents, top_n: 3 })
    expect(json.results.map(({ index }) => index)).toEqual(order.slice(0, 3))
    near([json.results.map((one) => one.relevance_score)], [order.slice(0, 3).map((i) => scores[i] ?? 0)])
  }
  const scored = await post('/v1/score', { model: 'rerank', text_1: query, text_2: documents })
  near([scored.json.data.map(({ score }) => score)], [scores])
  const classified = await post('/v1/classify', { model: 'classify', input: texts })
  near(
    classified.json.data.map(({ probs }) => probs),
    recorded.classes,
  )
  const best = recorded.classes.map((row) => ['bad', 'good', 'unknown'][row.indexOf(Math.max(...row))])
  expect(classified.json.data.map(({ label }) => label)).toEqual(best)
})

test('the v2 API has the same models as ordinary ones: a batch of texts', async () => {
  const infer = (model: string, shape: number[], name: string): Promise<Answer> =>
    post(`/v2/models/${model}/infer`, { inputs: [{ name, shape, datatype: 'BYTES', data: texts }] })
  for (const [model, shape, name] of [
    ['embed', [5, 1], 'text'],
    ['flat', [5], 'input_text'],
  ] as const) {
    const [output] = (await infer(model, [...shape], name)).json.outputs
    expect(output).toMatchObject({ shape: [5, 32], datatype: 'FP32' })
    near([output?.data ?? []], [vectors.flat()])
  }
})

test('errors have a code, a text and an id; a repeat is not asked for', async () => {
  const answer = await post('/v1/embeddings', { model: 'nobody', input: 'a' })
  expect([answer.status, answer.json.error.code]).toEqual([404, 'model_not_found'])
  expect(answer.json.error.message).toContain('nobody')
  expect(answer.headers.get('x-request-id')).toMatch(/./)
  expect(answer.headers.get('x-should-retry')).toBe('false')
  expect((await post('/v1/embeddings', { model: 'embed', input: [] })).status).toBe(400)
  const cut = await post('/v1/embeddings', { model: 'embed', input: 'a '.repeat(100), truncate: false })
  expect([cut.status, cut.json.error.code]).toEqual([400, 'context_length_exceeded'])
  const role = await post('/v1/embeddings', { model: 'rerank', input: 'a' })
  expect(role.status).toBe(400)
  expect(role.json.error.message).toContain('rerank')
})

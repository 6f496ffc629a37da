/** Text endpoints over models of the backend `text`: usage, options, token ids, errors of texts that are too long. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { LENGTH, WIDTH } from '../models/text.mjs'
import { TestServer, repositories } from './harness.js'

const models = repositories()
let server: TestServer
let triton: TestServer

beforeAll(async () => {
  const flags = ['--text-alias=openai-own=embed,tokens=own']
  server = await TestServer.start(models.path('text'), flags)
  triton = await TestServer.start(models.path('text'), [...flags, '--openai-errors=triton'])
})
afterAll(async () => {
  await Promise.all([server?.stop(), triton?.stop()])
  models.remove()
})

type Body = Record<string, unknown>

// oxlint-disable-next-line typescript/no-explicit-any
type Answer = { status: number; headers: Headers; body: any }

async function post(path: string, body: Body, to = server): Promise<Answer> {
  const response = await fetch(`http://127.0.0.1:${to.httpPort}${path}`, { method: 'POST', body: JSON.stringify(body) })
  return { status: response.status, headers: response.headers, body: await response.json() }
}

async function vectors(body: Body): Promise<{ rows: number[][]; tokens: number }> {
  const answer = await post('/v1/embeddings', { model: 'embed', ...body })
  expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  const { data, usage } = answer.body as { data: { index: number; embedding: number[] }[]; usage: Body }
  expect(data.map(({ index }) => index)).toEqual(data.map((_, at) => at))
  expect(usage['total_tokens']).toBe(usage['prompt_tokens'])
  return { rows: data.map(({ embedding }) => embedding), tokens: Number(usage['prompt_tokens']) }
}

const LONG = 'a '.repeat(100)

describe('embeddings', () => {
  test('usage counts the tokens that ran, those of a text that is cut up to the cut', async () => {
    const { rows, tokens } = await vectors({ input: ['the cat', '', 'a dog sat'] })
    expect([rows.map((row) => row.length), tokens]).toEqual([[WIDTH, WIDTH, WIDTH], 4 + 2 + 5])
    expect((await vectors({ input: LONG })).tokens).toBe(LENGTH)
    expect((await vectors({ input: LONG, truncate_prompt_tokens: 10 })).tokens).toBe(10)
    expect((await vectors({ input: LONG, truncate_prompt_tokens: -1 })).tokens).toBe(LENGTH)
  })

  test('base64 has the values of the list, also of 3,000 texts', async () => {
    const input = Array.from({ length: 3000 }, (_, n) => `the cat ${n}`)
    const { rows } = await vectors({ input })
    const answer = await post('/v1/embeddings', { model: 'embed', input, encoding_format: 'base64' })
    const data = answer.body.data as { embedding: string }[]
    expect(data.length).toBe(3000)
    const values = (text: string) => [...new Float32Array(new Uint8Array(Buffer.from(text, 'base64')).buffer)]
    for (const at of [0, 1024, 2999]) expect(values(data[at]?.embedding ?? '')).toEqual(rows[at]?.map(Math.fround))
  })

  test('v2 clients get the same vectors', async () => {
    const { rows } = await vectors({ input: ['the cat', 'a dog'] })
    const text = { name: 'text', shape: [2, 1], datatype: 'BYTES', data: ['the cat', 'a dog'] }
    const { body } = await post('/v2/models/embed/infer', { inputs: [text] })
    expect(body.outputs[0].shape).toEqual([2, WIDTH])
    expect(body.outputs[0].data.map(Math.fround)).toEqual(rows.flat().map(Math.fround))
  })

  test('token ids of the model have its vectors', async () => {
    const { body } = await post('/tokenize', { inputs: 'the cat', model: 'embed' })
    const tokens = body[0] as { id: number; text: string; special: boolean; start: number | null }[]
    expect(tokens.map(({ text }) => text)).toEqual(['[CLS]', 'the', 'cat', '[SEP]'])
    expect(tokens.map(({ start }) => start)).toEqual([null, 0, 4, null])
    const ids = tokens.map(({ id }) => id)
    const text = await vectors({ input: 'the cat' })
    expect(await vectors({ input: ids })).toEqual(text)
    expect((await vectors({ input: [ids, ids] })).rows).toEqual([...text.rows, ...text.rows])
    const bare = ids.slice(1, -1)
    expect(await vectors({ model: 'openai-own', input: bare })).toEqual(text)
    const refused = await post('/v1/embeddings', { model: 'embed', input: bare })
    expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringContaining('tokens=')])
  })

  test('a text that is too long and may not be cut is rejected, by each form', async () => {
    const openai = await post('/v1/embeddings', { model: 'embed', input: ['a', LONG], truncate: false })
    expect([openai.status, openai.body.error.code]).toEqual([400, 'context_length_exceeded'])
    const cohere = await post('/v2/embed', { model: 'embed', texts: [LONG], truncate: 'NONE' })
    expect([cohere.status, cohere.body.error.code]).toEqual([400, 'context_length_exceeded'])
    const tei = await post('/embed?model=embed', { inputs: LONG })
    expect([tei.status, tei.body.error_type]).toEqual([413, 'Validation'])
    const cut = await post('/embed?model=embed', { inputs: LONG, truncate: true })
    expect([cut.status, cut.headers.get('x-compute-tokens')]).toEqual([200, String(LENGTH)])
    const left = await post('/v2/embed', { model: 'embed', texts: [`${LONG}the cat`], truncate: 'START' })
    const right = await post('/v2/embed', { model: 'embed', texts: [`${LONG}the cat`], truncate: 'END' })
    expect(left.body.embeddings.float[0]).not.toEqual(right.body.embeddings.float[0])
    expect(left.body.meta.billed_units).toEqual({ input_tokens: LENGTH })
  })
})

test('rerank and score agree, and have the score that the model returns', async () => {
  const documents = ['the cat', 'paris is the capital of france', 'a dog']
  const ranks = (await post('/v1/rerank', { query: 'where is paris', documents })).body
  const scores = (await post('/v1/score', { text_1: 'where is paris', text_2: documents })).body
  const text = { name: 'text', shape: [3, 2], datatype: 'BYTES', data: documents.flatMap((d) => ['where is paris', d]) }
  const { outputs } = (await post('/v2/models/rerank/infer', { inputs: [text] })).body
  const own = outputs[0].data as number[]
  const found = scores.data as { score: number }[]
  found.forEach(({ score }, at) => expect(score).toBeCloseTo(own[at] ?? NaN, 6))
  for (const { index, relevance_score: score } of ranks.results) expect(score).toBe(found[index]?.score)
  expect(ranks.usage).toEqual(scores.usage)
  expect(ranks.usage.prompt_tokens).toBeGreaterThan(3 * 6)
})

test('classes have the labels of the model, in each form', async () => {
  const { data } = (await post('/v1/classify', { input: ['a good film', 'bad'] })).body
  for (const { label, probs, num_classes: count } of data) {
    expect([probs.length, count]).toEqual([3, 3])
    expect(label).toBe(['bad', 'good', 'unknown'][probs.indexOf(Math.max(...probs))])
  }
  const classes = (await post('/predict', { inputs: 'a good film' })).body as { label: string; score: number }[]
  expect(classes.map(({ score }) => score)).toEqual([...data[0].probs].sort((a: number, b: number) => b - a))
  expect(classes[0]?.label).toBe(data[0].label)
})

test('with --openai-errors=triton errors are those of its front end', async () => {
  const check = async (body: Body, status: number, detail: unknown) => {
    const answer = await post('/v1/embeddings', body, triton)
    expect([answer.status, answer.body]).toEqual([status, { detail }])
  }
  const wrong = (msg: string) => [expect.objectContaining({ msg })]
  await check({}, 422, wrong('Field required'))
  await check({ input: 'a' }, 422, wrong('Field required'))
  await check({ model: 'embed' }, 422, wrong('Field required'))
  await check({ model: 123, input: 'a' }, 422, wrong('Input should be a valid string'))
  await check({ model: null, input: 'a' }, 422, wrong('Input should be a valid string'))
  await check({ model: 'embed', input: null }, 422, wrong('Input should be a valid string'))
  await check({ model: 'embed', input: '' }, 422, wrong('Value should have at least 1 item after validation, not 0'))
  await check({ model: 'embed', input: [] }, 422, wrong('Value should have at least 1 item after validation, not 0'))
  await check({ model: 'Invalid', input: 'a' }, 400, 'Unknown model: Invalid')
  await check({ model: '', input: 'a' }, 400, 'Unknown model: ')
  await check({ model: 'embed', input: 'a', more: 1 }, 422, wrong("Extra inputs are not permitted: 'more'"))
  await check({ model: 'embed', input: 'a', encoding_format: 'invalid' }, 422, [expect.anything()])
  const good = await post('/v1/embeddings', { model: 'embed', input: 'a', user: 'u', encoding_format: 'float' }, triton)
  expect(good.status).toBe(200)
})

/** Text endpoints through the client: vectors and ranks of a tiny text model, and their errors. */
import { describe, expect, test } from 'vitest'
import { WIDTH } from '../models/text.mjs'
import { WAYS, serving } from './transports.js'

const { client } = serving([], 'text')
const TEXTS = ['the cat sat on the mat', 'a dog', '']

describe.each(WAYS.filter(({ isGrpc }) => !isGrpc))('$name', (way) => {
  test('P-227: vectors are those of the model, in the order of the texts', async () => {
    const target = client(way)
    const { model, tokens, vectors } = await target.embed(TEXTS, { model: 'embed' })
    // Each text has a [CLS] and a [SEP].
    expect([model, tokens]).toEqual(['embed', 8 + 4 + 2])
    const { data } = (await target.infer('embed', { text: { data: TEXTS, shape: [3, 1] } })).output('embedding')
    expect(vectors.map((vector) => [vector.constructor, vector.length])).toEqual(TEXTS.map(() => [Float32Array, WIDTH]))
    expect(vectors.flatMap((vector) => [...vector])).toEqual([...(data as Float32Array)])
    expect((await target.embed('a dog', { model: 'embed' })).vectors).toEqual([vectors[1]])
  })

  test('ranks are sorted by score and have the places of their texts', async () => {
    const target = client(way)
    const documents = ['the cat', 'a house in paris', 'paris is the capital of france']
    const { tokens, results } = await target.rerank('what is paris', documents, { model: 'rerank' })
    const pairs = documents.flatMap((text) => ['what is paris', text])
    const answer = await target.infer('rerank', { text: { data: pairs, shape: [3, 2] } })
    const scores = [...(answer.output('score').data as Float32Array)]
    expect(results.map(({ index }) => index).toSorted()).toEqual([0, 1, 2])
    for (const { index, score } of results) expect(score).toBeCloseTo(scores[index] ?? NaN, 6)
    expect(results.map(({ score }) => score)).toEqual(results.map(({ score }) => score).toSorted((a, b) => b - a))
    expect(tokens).toBeGreaterThan(3 * 3)
    const best = await target.rerank('what is paris', documents, { model: 'rerank', topN: 1 })
    expect(best.results).toEqual(results.slice(0, 1))
  })

  test('errors are those of the server, with its text', async () => {
    const target = client(way)
    await expect(target.embed('a', { model: 'nobody' })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      status: 404,
      text: expect.stringContaining('nobody') as string,
    })
    await expect(target.embed('a', { model: 'embed', dimensions: 7 })).rejects.toMatchObject({
      code: 'INVALID_ARG',
      status: 400,
      text: expect.stringContaining('dimensions') as string,
    })
    await expect(target.embed('a '.repeat(100), { model: 'embed', truncate: false })).rejects.toMatchObject({
      code: 'INVALID_ARG',
      status: 400,
    })
  })

  test('wrong arguments are not sent', async () => {
    const target = client(way)
    const wrong: [Promise<unknown>, string][] = [
      [target.embed([], { model: 'm' }), 'texts must be an array of at least one string, got an array'],
      [target.embed(['\ud800'], { model: 'm' }), 'texts must be an array of at least one string, got an array'],
      [target.embed('a', { model: 'm', dimensions: 0 }), 'dimensions must be an integer of at least 1, got 0'],
      [target.rerank('a', ['b'], { topN: 1.5 }), 'topN must be an integer of at least 1, got 1.5'],
      [target.rerank(1 as unknown as string, ['b']), 'query must be a string, got 1'],
    ]
    for (const [call, text] of wrong) await expect(call).rejects.toMatchObject({ code: 'INVALID_ARG', status: 0, text })
  })
})

test('over gRPC there are no text endpoints', async () => {
  const way = WAYS.find(({ isGrpc }) => isGrpc)
  if (way === undefined) throw new Error('gRPC is gone')
  const text = 'gRPC has no embed and rerank: connect to the HTTP port of the server (http://HOST:8000)'
  await expect(client(way).embed('a', { model: 'embed' })).rejects.toMatchObject({ code: 'UNSUPPORTED', text })
})

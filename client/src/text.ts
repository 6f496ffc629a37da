/** Requests to the endpoints of text models, and their responses. Pure. */

import type { Call } from './call.js'
import { check, TEXTS } from './check.js'
import { viewOf } from './datatypes.js'
import { textOf } from './errors.js'
import type { CallOptions } from './types.js'

/** Options of all text calls. */
export interface TextOptions extends CallOptions {
  /** False rejects a text that is longer than the model takes; by default it is cut. */
  truncate?: boolean
}

export interface EmbedOptions extends TextOptions {
  /** Name, `name:version` or alias; by default the only model that embeds. */
  model?: string
  /** Values of each vector, for a model that was trained to be cut. */
  dimensions?: number
}

export interface RerankOptions extends TextOptions {
  /** Name, `name:version` or alias; by default the only model that reranks. */
  model?: string
  /** Number of best texts to return; all by default. */
  topN?: number
}

export interface Embeddings {
  model: string
  /** Tokens that ran, special ones included. */
  tokens: number
  /** A vector for each text, in their order. */
  vectors: Float32Array[]
}

export interface Ranking {
  model: string
  tokens: number
  /** The best text first; `index` is its place in the request. */
  results: { index: number; score: number }[]
}

export function embedBody(
  texts: string | readonly string[],
  { model, truncate, dimensions }: EmbedOptions,
): Record<string, unknown> {
  if (typeof texts !== 'string') check('texts', texts, TEXTS)
  return { model, input: texts, truncate, dimensions, encoding_format: 'base64' }
}

export function rerankBody(
  query: string,
  texts: readonly string[],
  { model, truncate, topN }: RerankOptions,
): Record<string, unknown> {
  check('texts', texts, TEXTS)
  return { model, query, documents: texts, truncate, top_n: topN, return_documents: false }
}

interface Answer {
  model: string
  usage: { total_tokens: number }
}

/** @throws {ClientError} `PROTOCOL` for a response of another form */
export function embeddingsOf(call: Call, answer: unknown): Embeddings {
  return read(call, answer, ({ model, usage, data }: Answer & { data: { index: number; embedding: string }[] }) => ({
    model,
    tokens: usage.total_tokens,
    vectors: data.toSorted((a, b) => a.index - b.index).map(({ embedding }) => floats(embedding)),
  }))
}

/** @throws {ClientError} `PROTOCOL` for a response of another form */
export function rankingOf(call: Call, answer: unknown): Ranking {
  type Row = { index: number; relevance_score: number }
  return read(call, answer, ({ model, usage, results }: Answer & { results: Row[] }) => ({
    model,
    tokens: usage.total_tokens,
    results: results.map(({ index, relevance_score: score }) => ({ index, score })),
  }))
}

function read<A, T>(call: Call, answer: unknown, reading: (answer: A) => T): T {
  try {
    return reading(answer as A)
  } catch (error) {
    throw call.error('PROTOCOL', `the response has an unexpected form: ${textOf(error)}`, { cause: error })
  }
}

/** Little-endian floats in base64. */
function floats(base64: string): Float32Array {
  return viewOf(
    'FP32',
    Uint8Array.from(atob(base64), (byte) => byte.charCodeAt(0)),
  ) as Float32Array
}

/** Sends what a user filled in, and reads the answer. */

import { Call } from '../../../client/src/call.js'
import { eventsOf } from '../../../client/src/http/events.js'
import { partsOf } from '../../../client/src/http/fetch.js'
import { decodeInfer, encodeInfer } from '../../../client/src/http/infer.js'
import { parseJson, printJson } from '../../../client/src/json.js'
import { Tensor, type InferResult } from '../../../client/src/tensor.js'
import type { InferRequest } from '../../../client/src/wire.js'
import type { Api } from '../api.js'
import type { RequestRecord } from '../contract.js'
import { parametersOf, sequenceId, wholeOf, type Filled, type Options } from './fields.js'

/** Path of a model, with its version if one was chosen. */
export const modelPath = (model: string, version: string): string =>
  `/v2/models/${encodeURIComponent(model)}${version === '' ? '' : `/versions/${encodeURIComponent(version)}`}`

/** @throws {Error} for an option that is no value */
export function requestOf(model: string, version: string, inputs: readonly Filled[], options: Options): InferRequest {
  const { id, priority, timeout, parameters, sequence } = options
  return {
    model,
    version,
    id,
    inputs,
    outputs: [],
    binaryInputs: true,
    parameters: parametersOf(parameters),
    sequence: sequence === null ? null : { id: sequenceId(sequence.id), start: sequence.isStart, end: sequence.isEnd },
    priority: wholeOf('the priority', priority),
    timeoutUs: wholeOf('the timeout', timeout),
    compress: null,
  }
}

/** Elements as JSON has them, in one flat list. */
export function listOf({ name, datatype, shape, raw }: Filled): unknown[] {
  const tensor = new Tensor(name, datatype as 'FP32', shape as number[], raw)
  if (datatype === 'BYTES') return tensor.strings()
  if (datatype === 'BOOL') return Array.from(raw, (byte) => byte !== 0)
  if (datatype === 'FP16' || datatype === 'BF16') return Array.from(tensor.floats())
  return Array.from(tensor.data as ArrayLike<number | bigint>)
}

/** Members of a body of `generate`: a value, or a flat list, for each input; the server finds the shape. */
export function generateMembers({ id, inputs, parameters }: InferRequest): (readonly [string, unknown])[] {
  const values = inputs.map((input): [string, unknown] => {
    const list = listOf(input as Filled)
    return [input.name, list.length === 1 ? list[0] : list]
  })
  return [...values, ...(id === '' ? [] : [['id', id] as const]), ...parameters]
}

export interface Answered {
  result: InferResult
  /** From the call to the last byte, in the browser. */
  ms: number
  why: RequestRecord | null
}

/** @throws {ApiError} with the server's text */
export async function infer(api: Api, request: InferRequest, signal: AbortSignal): Promise<Answered> {
  const { parts, headerLength } = encodeInfer(request)
  const headers: Record<string, string> = { 'nereid-why': '1', 'content-type': 'application/octet-stream' }
  if (headerLength !== null) headers['inference-header-content-length'] = String(headerLength)
  const init = { method: 'POST', headers, body: new Blob(parts as Uint8Array<ArrayBuffer>[]), signal }
  const from = performance.now()
  const response = await api.raw(`${modelPath(request.model, request.version)}/infer`, init)
  const body = new Uint8Array(await response.arrayBuffer())
  const ms = performance.now() - from
  const header = (name: string): string | undefined => response.headers.get(name) ?? undefined
  const result = decodeInfer(new Call({}), { status: response.status, header, body })
  const why = header('nereid-why')
  return { result, ms, why: why === undefined ? null : (JSON.parse(why) as RequestRecord) }
}

export interface Event {
  atMs: number
  /** The response as JSON, without the members that each one has. */
  text: string
  /** Texts of outputs, for models that write one piece by piece. */
  pieces: readonly (readonly [string, string])[]
}

/** Time for a stream before the browser gets its turn. */
const WORK_MS_MAX = 30

/**
 * Calls back with each response of a stream, and resolves with its record. Browsers do not show trailers, where the
 * record is, so it is asked for afterwards: by an id, which the stream gets for that if it has none.
 *
 * @throws {ApiError} with the server's text
 */
export async function generate(
  api: Api,
  request: InferRequest,
  signal: AbortSignal,
  each: (event: Event) => void,
): Promise<RequestRecord | null> {
  const id = request.id === '' ? `console-${Math.random().toString(36).slice(2)}` : request.id
  const body = printJson(Object.fromEntries(generateMembers({ ...request, id })))
  const headers = { 'content-type': 'application/json' }
  const from = performance.now()
  const path = `${modelPath(request.model, request.version)}/generate_stream`
  const response = await api.raw(path, { method: 'POST', headers, body, signal })
  let since = from
  for await (const data of eventsOf(
    partsOf(
      response.body,
      (error) => error as Error,
      () => {},
    ),
  )) {
    // A fast stream has always a next response, and the browser would draw nothing meanwhile.
    if (performance.now() - since > WORK_MS_MAX) {
      await new Promise((resolve) => setTimeout(resolve))
      since = performance.now()
    }
    const { model_name: model, model_version: _, id: _id, ...rest } = parseJson(data) as Record<string, unknown>
    if (model === undefined && typeof rest['error'] === 'string') throw new Error(rest['error'])
    const pieces = Object.entries(rest).filter((one): one is [string, string] => typeof one[1] === 'string')
    each({ atMs: performance.now() - from, text: printJson(rest), pieces })
  }
  const kept = await api.json(`/v2/why?id=${encodeURIComponent(id)}`).catch(() => ({}))
  return (kept as { requests?: readonly RequestRecord[] }).requests?.[0] ?? null
}

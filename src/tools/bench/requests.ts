/** Requests as bytes for the load generator, and the file that it sends them from. */

import { CommandError } from '../../internal.js'
import { textsOf, type Entry } from './inputs.js'
import type { Model } from './model.js'
import type { Form } from './generator.js'
import type { Region } from './region.js'
import { isChat, textPath, type Settings, type Target } from './settings.js'
import { valuesOf, type Tensor } from './tensors.js'

export interface Requests {
  path: string
  form: Form
  responses: 'one' | 'final'
  ring: Request[]
}

interface Request {
  headers: [string, string][]
  body: Buffer
}

type Parameter = readonly [string, string | number | boolean]

/** Texts of a request, and texts that are generated. */
const TEXTS = 64
/** Documents of a rerank without --batch. */
const DOCUMENTS = 8

/** Requests for tensors, for the members of a generate request, or for texts. */
export function requestsOf(
  target: Target,
  model: Model,
  settings: Settings,
  entries: readonly Entry[],
  region: Region | null,
): Requests {
  const { endpoint } = settings
  const name = encodeURIComponent(model.name)
  const version = model.version === '' ? '' : `/versions/${encodeURIComponent(model.version)}`
  const one = { form: 'single', responses: 'one' } as const
  const path = textPath(endpoint)
  if (path !== null) {
    const form = isChat(endpoint) ? ({ form: 'events', responses: 'final' } as const) : one
    return { ...form, path: target.base + path, ring: textBodies(model, settings).map(json) }
  }
  if (endpoint === 'generate' || endpoint === 'generate_stream') {
    const ring = entries.map(({ inputs }) => json({ ...membersOf(inputs), ...Object.fromEntries(settings.parameters) }))
    return {
      path: `${target.base}/v2/models/${name}${version}/${endpoint}`,
      ring,
      form: endpoint === 'generate' ? 'single' : 'events',
      responses: 'final',
    }
  }
  if (target.protocol === 'grpc') {
    const isStream = endpoint === 'stream'
    // Without it, a model that ends without a response would leave the request open.
    const final: Parameter[] = isStream && model.isDecoupled ? [['triton_enable_empty_final_response', true]] : []
    const parameters = [...settings.parameters, ...final]
    return {
      path: `/inference.GRPCInferenceService/${isStream ? 'ModelStreamInfer' : 'ModelInfer'}`,
      form: isStream ? 'stream' : 'single',
      responses: isStream && model.isDecoupled ? 'final' : 'one',
      ring: entries.map((entry, i) => ({ headers: [], body: grpcBody(model, parameters, entry, region, i) })),
    }
  }
  if (model.isDecoupled)
    throw new CommandError(
      `the model '${model.name}' is decoupled: use gRPC (--endpoint=stream with grpc://HOST:8001) or ` +
        `--endpoint=generate_stream`,
    )
  const ring = entries.map((entry, i) => httpRequest(settings, entry, region, i))
  return { ...one, path: `${target.base}/v2/models/${name}${version}/infer`, ring }
}

const json = (body: object): Request => ({
  headers: [['content-type', 'application/json']],
  body: Buffer.from(JSON.stringify(body)),
})

/** Inputs as members of a generate request: single elements alone, others as lists. */
function membersOf(inputs: readonly Tensor[]): Record<string, unknown> {
  return Object.fromEntries(
    inputs.map((input) => {
      const values = valuesOf(input)
      return [input.name, values.length === 1 ? values[0] : values]
    }),
  )
}

function textBodies(model: Model, settings: Settings): object[] {
  const texts = textsOf(settings, TEXTS * settings.batch)
  const at = (i: number): string => texts[i % texts.length] ?? ''
  const several = (from: number, count: number): string[] => Array.from({ length: count }, (_, k) => at(from + k))
  const batch = settings.endpoint === 'rerank' && settings.batch === 1 ? DOCUMENTS : settings.batch
  const count = Math.max(1, Math.min(TEXTS, Math.ceil(texts.length / (settings.endpoint === 'rerank' ? 1 : batch))))
  const stream = { model: model.name, stream: true, ...Object.fromEntries(settings.parameters) }
  return Array.from({ length: count }, (_, i) => {
    switch (settings.endpoint) {
      case 'rerank':
        return { model: model.name, query: at(i), documents: several(i + 1, batch) }
      case 'chat':
        return { ...stream, messages: [{ role: 'user', content: at(i) }] }
      case 'completions':
        return { ...stream, prompt: at(i) }
      default:
        return { model: model.name, input: batch === 1 ? at(i) : several(i * batch, batch), encoding_format: 'base64' }
    }
  })
}

function httpRequest({ tensors, parameters }: Settings, { inputs }: Entry, region: Region | null, i: number): Request {
  const isBinary = tensors === 'binary' && region === null
  const given: Parameter[] = isBinary ? [...parameters, ['binary_data_output', true]] : parameters
  const head = Buffer.from(
    JSON.stringify({
      ...(given.length === 0 ? {} : { parameters: Object.fromEntries(given) }),
      inputs: inputs.map(({ name, shape, datatype, data }, k) => ({
        name,
        shape,
        datatype,
        ...(region !== null
          ? { parameters: Object.fromEntries(region.input(i, k)) }
          : isBinary
            ? { parameters: { binary_data_size: data.length } }
            : { data: valuesOf({ datatype, data }) }),
      })),
      ...(region !== null && {
        outputs: region.outputs.map(({ name, parameters }) => ({ name, parameters: Object.fromEntries(parameters) })),
      }),
    }),
  )
  if (!isBinary) return { headers: [['content-type', 'application/json']], body: head }
  return {
    headers: [
      ['content-type', 'application/octet-stream'],
      ['inference-header-content-length', String(head.length)],
    ],
    body: Buffer.concat([head, ...inputs.map(({ data }) => data)]),
  }
}

function varint(value: number): Buffer {
  const out: number[] = []
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...out, rest])
    out.push((rest % 128) | 0x80)
  }
}

const field = (number: number, ...parts: readonly Uint8Array[]): Buffer => {
  const content = Buffer.concat(parts)
  return Buffer.concat([Buffer.of((number << 3) | 2), varint(content.length), content])
}
const text = (number: number, value: string): Buffer => field(number, Buffer.from(value))

/** An entry of a map of InferParameter. */
function parameter(number: number, [name, value]: Parameter): Buffer {
  const double = Buffer.alloc(9, (4 << 3) | 1)
  if (typeof value === 'number') double.writeDoubleLE(value, 1)
  const choice =
    typeof value === 'string'
      ? text(3, value)
      : typeof value === 'boolean'
        ? Buffer.of(1 << 3, value ? 1 : 0)
        : Number.isSafeInteger(value) && value >= 0
          ? Buffer.concat([Buffer.of(2 << 3), varint(value)])
          : double
  return field(number, text(1, name), field(2, choice))
}

/** A ModelInferRequest, with raw contents or with those in a region. */
function grpcBody(
  { name, version }: Model,
  parameters: readonly Parameter[],
  { inputs }: Entry,
  region: Region | null,
  i: number,
): Buffer {
  return Buffer.concat([
    text(1, name),
    ...(version === '' ? [] : [text(2, version)]),
    ...parameters.map((one) => parameter(4, one)),
    ...inputs.map((input, k) =>
      field(
        5,
        text(1, input.name),
        text(2, input.datatype),
        field(3, ...input.shape.map(varint)),
        ...(region === null ? [] : region.input(i, k).map((one) => parameter(4, one))),
      ),
    ),
    ...(region?.outputs ?? []).map((output) =>
      field(6, text(1, output.name), ...output.parameters.map((one) => parameter(2, one))),
    ),
    ...(region === null ? inputs.map(({ data }) => field(7, data)) : []),
  ])
}

/** The file of requests: for each a line `<body bytes> <tail bytes> <counter or -> <headers>`, and its body. */
export function ringFile(ring: readonly Request[], headers: readonly [string, string][]): Buffer {
  return Buffer.concat(
    ring.flatMap((request) => {
      const fields = JSON.stringify([...headers, ...request.headers])
      return [Buffer.from(`${request.body.length} 0 - ${fields}\n`), request.body]
    }),
  )
}

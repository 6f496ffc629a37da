/** Reads a model from a server: its inputs, whether it batches, what it counted. */

import { readFileSync } from 'node:fs'
import { ClientError, connect, type Client, type ModelStatistics } from 'nereid/client'
import { CommandError, headersWithKey, membersOf } from '../../internal.js'
import { textPath, type Settings, type Target } from './settings.js'

export interface TensorFacts {
  name: string
  datatype: string
  /** Without the dimension of the batch; −1 for any size. */
  dims: number[]
  isOptional: boolean
}

export interface Model {
  name: string
  /** Empty lets the server choose. */
  version: string
  inputs: TensorFacts[]
  outputs: TensorFacts[]
  /** Rows of a batch; 0 for a model that does not batch, infinite if the server does not say. */
  batchMax: number
  isDecoupled: boolean
}

/** Longest wait for an answer about a model: a server that is frozen must not hold the command. */
const ANSWER_MS_MAX = 2000

/** A client of a server, for everything but the load. */
export function clientOf(target: Target, settings: Settings): Client {
  const { ca, certificate, key } = settings.tls
  const tls = {
    ...(ca === null ? {} : { ca: readPem('--tls-ca', ca) }),
    ...(certificate === null ? {} : { cert: readPem('--tls-cert', certificate) }),
    ...(key === null ? {} : { key: readPem('--tls-key', key) }),
  }
  return connect(target.url, {
    headers: Object.fromEntries(headersWithKey(settings.headers)),
    deadlineMs: ANSWER_MS_MAX,
    retry: false,
    ...(target.isSecure ? { tls } : {}),
  })
}

function readPem(option: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new CommandError(`${option}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/**
 * The model that was asked for, or the only one that is ready.
 *
 * @throws {CommandError} if the server is none of the protocol
 */
export async function modelOf(target: Target, client: Client, settings: Settings, signal: AbortSignal): Promise<Model> {
  try {
    return await readModel(client, settings, signal)
  } catch (error) {
    if (error instanceof CommandError) throw error
    if (error instanceof ClientError && error.code !== 'PROTOCOL') throw error
    const port = target.protocol === 'http' ? 'the HTTP port, 8000' : 'the gRPC port, 8001'
    throw new CommandError(`${target.url} does not respond like a server of the v2 protocol: give ${port} by default`)
  }
}

async function readModel(client: Client, settings: Settings, signal: AbortSignal): Promise<Model> {
  const name = settings.model === '' ? await onlyModel(client, signal) : settings.model
  if (textPath(settings.endpoint) !== null)
    return { name, version: '', inputs: [], outputs: [], batchMax: Infinity, isDecoupled: false }
  const { version } = settings
  const options = version === '' ? { signal } : { signal, version }
  const metadata = await client.modelMetadata(name, options)
  const config = await optional(() => client.modelConfig(name, options))
  if (config !== null && membersOf(config)['sequence_batching'] !== undefined)
    throw new CommandError(
      `the model '${name}' has sequences, whose requests depend on each other; nereid bench sends requests that ` +
        'stand alone',
    )
  const configured = Number(membersOf(config)['max_batch_size'] ?? 0)
  const isOpen = metadata.inputs.every(({ shape }) => shape.length > 1 && shape[0] === -1)
  const mayBatch = metadata.inputs.length > 0 && isOpen
  const batchMax = config === null ? (mayBatch ? Infinity : 0) : configured
  const inputs = membersOf(config)['input']
  const optionals = (Array.isArray(inputs) ? inputs : []).map(membersOf).filter((one) => one['optional'] === true)
  const facts = (tensors: typeof metadata.inputs): TensorFacts[] =>
    tensors.map((one) => ({
      name: one.name,
      datatype: one.datatype,
      dims: one.shape.slice(batchMax > 0 ? 1 : 0).map(Number),
      isOptional: optionals.some((each) => each['name'] === one.name),
    }))
  return {
    name,
    version,
    inputs: facts(metadata.inputs),
    outputs: facts(metadata.outputs),
    batchMax,
    isDecoupled: membersOf(membersOf(config)['model_transaction_policy'])['decoupled'] === true,
  }
}

async function onlyModel(client: Client, signal: AbortSignal): Promise<string> {
  const index = await client.index({ ready: true, signal })
  const rows = index.filter(({ state }) => state === undefined || state === 'READY')
  const names = [...new Set(rows.map(({ name }) => name))]
  const [only] = names
  if (only !== undefined && names.length === 1) return only
  const listed = names.length === 0 ? 'no model that is ready' : `the models ${names.sort().join(', ')}`
  throw new CommandError(`--model is missing: the server has ${listed}`)
}

/** Null where a server lacks an extension, a key may not use it, or the server has gone. */
async function optional<T>(ask: () => Promise<T>): Promise<T | null> {
  try {
    return await ask()
  } catch (error) {
    if (error instanceof ClientError) return null
    throw error
  }
}

/** Counts and times of a model since its load. */
export interface Counted {
  requests: number
  executions: number
  inferences: number
  totalNs: number
  queueNs: number
  inputNs: number
  inferNs: number
  outputNs: number
}

/** Null if the server has no statistics, or does not send them in time. */
export async function counted(client: Client, { name, version }: Model, signal: AbortSignal): Promise<Counted | null> {
  const found = await optional(() => client.statistics(name, version === '' ? { signal } : { signal, version }))
  if (found === null || found.length === 0) return null
  const sum = (of: (one: ModelStatistics) => number | bigint | undefined): number =>
    found.reduce((total, one) => total + Number(of(one) ?? 0), 0)
  const ns = (name: 'queue' | 'compute_input' | 'compute_infer' | 'compute_output' | 'success'): number =>
    sum((one) => one.inference_stats[name]?.ns)
  return {
    requests: sum((one) => one.inference_stats.success?.count),
    executions: sum((one) => one.execution_count),
    inferences: sum((one) => one.inference_count),
    totalNs: ns('success'),
    queueNs: ns('queue'),
    inputNs: ns('compute_input'),
    inferNs: ns('compute_infer'),
    outputNs: ns('compute_output'),
  }
}

/** Means per request between two counts, in us. */
export interface ServerTimes {
  requests: number
  batch: number
  total: number
  queue: number
  input: number
  infer: number
  output: number
}

export function timesBetween(before: Counted | null, after: Counted | null): ServerTimes | null {
  if (before === null || after === null) return null
  const requests = after.requests - before.requests
  // The model may have been loaded again, or the server started.
  const isBack = (Object.keys(after) as (keyof Counted)[]).some((name) => after[name] < before[name])
  if (requests <= 0 || isBack) return null
  const us = (name: keyof Counted): number => (after[name] - before[name]) / 1000 / requests
  return {
    requests,
    batch: (after.inferences - before.inferences) / Math.max(1, after.executions - before.executions),
    total: us('totalNs'),
    queue: us('queueNs'),
    input: us('inputNs'),
    infer: us('inferNs'),
    output: us('outputNs'),
  }
}

/** Reads the arguments of `nereid bench`. */

import { accessSync, constants, existsSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { CommandError, commandNamed, headerOf, readArguments } from '../../internal.js'
import { rewritten, type Extra, type Given } from './perf_analyzer.js'

/** Endpoints below /v1, whose requests are texts, with their paths. */
const OF_TEXTS = {
  embeddings: 'embeddings',
  rerank: 'rerank',
  chat: 'chat/completions',
  completions: 'completions',
} as const
type TextEndpoint = keyof typeof OF_TEXTS

export const ENDPOINTS = [
  ...(['infer', 'stream', 'generate', 'generate_stream'] as const),
  ...(Object.keys(OF_TEXTS) as TextEndpoint[]),
]
export type Endpoint = (typeof ENDPOINTS)[number]

/** The path of an endpoint below /v1; null for another one. */
export const textPath = (endpoint: Endpoint): string | null =>
  Object.hasOwn(OF_TEXTS, endpoint) ? `/v1/${OF_TEXTS[endpoint as TextEndpoint]}` : null

/** Whether requests are texts that a model continues, in a stream. */
export const isChat = (endpoint: Endpoint): boolean => endpoint === 'chat' || endpoint === 'completions'

/** A closed loop of so many requests in flight, or an open one of so many requests per second. */
export interface Load {
  kind: 'concurrency' | 'rate'
  value: number
}

export interface Goal {
  statistic: Statistic
  limitUs: number
  text: string
}

/** Statistics of latencies, by their names in results. */
export const STATISTICS = ['mean', 'p50', 'p90', 'p95', 'p99', 'p999', 'max'] as const
export type Statistic = (typeof STATISTICS)[number]

/** A server, as it was named. */
export interface Target {
  /** With http, https, grpc or grpcs, and without a slash at the end. */
  url: string
  protocol: 'http' | 'grpc'
  isSecure: boolean
  /** `HOST:PORT`. */
  address: string
  /** Path before those of the protocol. */
  base: string
}

export interface Settings {
  targets: Target[]
  /** Empty for the only one of the server. */
  model: string
  version: string
  endpoint: Endpoint
  loads: Load[]
  arrivals: 'constant' | 'poisson'
  seconds: number
  warmupSeconds: number
  warmupRequests: number
  /** Requests of a measurement; 0 = as many as there is time for. */
  requests: number
  /** Percent by which three windows may differ; null measures one window. */
  stopWithin: number | null
  windowsMax: number
  /** Percentile that must be stable and is reported as well; null for the mean. */
  percentile: number | null
  /** Latency that ends a sweep, in us; null for none. */
  latencyMaxUs: number | null
  goal: Goal | null
  connections: number | null
  /** After which a connection, or a request without a response, has failed. */
  timeoutSeconds: number
  /** Runs of each server in a comparison. */
  pairs: number
  seed: number
  shapes: ReadonlyMap<string, number[]>
  batch: number
  /** `zero`, `random`, or paths. */
  data: string[]
  /** Mean and standard deviation of the words of generated texts. */
  words: [number, number]
  stringLength: number
  stringData: string | null
  parameters: [string, string | number | boolean][]
  sharedMemory: boolean
  outputBytes: number
  tensors: 'binary' | 'json'
  headers: [string, string][]
  tls: { ca: string | null; certificate: string | null; key: string | null }
  csv: string | null
  /** Null for none, empty for standard output. */
  json: string | null
  report: string | null
  notes: string[]
}

/** Runs of a server in a comparison, at least and by default. */
export const PAIRS = 10
/** Loads of one sweep; each takes seconds. */
const LOADS_MAX = 1000
const CONCURRENCY_MAX = 100_000

/** @throws {CommandError} that says which argument is wrong, and how it is written */
export function settingsOf(args: readonly string[]): Settings {
  const { args: own, extras, notes, given } = rewritten(args)
  const { rest, options, all } = readArguments(commandNamed('bench'), own)
  const every = (name: string): string[] => all.filter(([each]) => each === name).map(([, value]) => value)
  checkGiven(given)
  const amount = (name: string, otherwise: number, least: number): number =>
    amountOf(`--${name}`, options.get(name) ?? null, otherwise, least)
  const extra = (name: Extra, otherwise: number): number =>
    amountOf(`--${name}`, extras.get(name) ?? null, otherwise, 0)
  const endpoint = choiceOf('endpoint', options.get('endpoint') ?? 'infer', ENDPOINTS)
  if (rest.length > 2) throw new CommandError(`bench takes one server, or two to compare; got '${rest.join("', '")}'`)
  const protocol = options.get('protocol') ?? (endpoint === 'stream' ? 'grpc' : null)
  const isSecure = ['1', 'true'].includes(extras.get('ssl-grpc-use-ssl') ?? '')
  const targets = (rest.length === 0 ? [''] : rest).map((text) => targetOf(text, protocol, isSecure))
  const isGrpc = targets.some((target) => target.protocol === 'grpc')
  if (isGrpc && endpoint !== 'infer' && endpoint !== 'stream')
    throw new CommandError(`--endpoint=${endpoint} is on the HTTP port: give its URL, such as http://localhost:8000`)
  if (endpoint === 'stream' && targets.some((target) => target.protocol === 'http'))
    throw new CommandError('streams of tensors are on the gRPC port: give its URL, such as grpc://localhost:8001')
  const loads = loadsOf(options.get('concurrency') ?? null, options.get('rate') ?? null)
  const goal = options.has('goal') ? goalOf(options.get('goal') ?? '') : null
  checkEffect(given, { endpoint, targets, isGrpc })
  for (const name of ['csv', 'json', 'report']) checkPath(name, options.get(name) ?? '')
  if (targets.length === 2) {
    if (loads.length > 1)
      throw new CommandError('a comparison needs a single load: --concurrency or --rate with one value')
  }
  const latencyMax = extra('latency-threshold', 0)
  const requests = amount('requests', 0, 0) || extra('measurement-request-count', 0)
  return {
    targets,
    model: options.get('model') ?? '',
    version: options.get('version') ?? '',
    endpoint,
    loads,
    goal,
    arrivals: options.get('arrivals') === 'constant' ? 'constant' : 'poisson',
    seconds: amount('seconds', requests > 0 ? 3600 : targets.length === 2 ? 1 : 5, 0.01),
    requests,
    warmupSeconds: requests > 0 ? 0 : amount('warmup', 0.5, 0),
    warmupRequests: extra('warmup-request-count', 0),
    stopWithin: options.has('stop-within') ? amount('stop-within', 10, 0) : null,
    windowsMax: Math.max(1, extra('max-trials', 10)),
    percentile: percentileOf(options.get('percentile') ?? null),
    latencyMaxUs: latencyMax > 0 ? latencyMax * 1000 : null,
    connections: options.has('connections') ? amount('connections', 1, 1) : null,
    timeoutSeconds: amount('timeout', 30, 0.01),
    pairs: Math.floor(amount('pairs', PAIRS, PAIRS)),
    seed: amount('seed', 1, 0),
    shapes: new Map(every('shape').map(shapeOf)),
    batch: amount('batch', 1, 1),
    data: every('data').length === 0 ? ['random'] : every('data'),
    words: wordsOf(options.get('text-words') ?? '30,10'),
    stringLength: extra('string-length', 128),
    stringData: extras.get('string-data') ?? null,
    parameters: every('request-parameter').map(parameterOf),
    sharedMemory: sharedMemoryOf(options.get('shared-memory') ?? 'none', endpoint),
    outputBytes: extra('output-shared-memory-size', 102_400),
    tensors: options.get('tensors') === 'json' ? 'json' : 'binary',
    headers: every('header').map(headerOf),
    tls: {
      ca: options.get('tls-ca') ?? null,
      certificate: options.get('tls-cert') ?? null,
      key: options.get('tls-key') ?? null,
    },
    csv: options.get('csv') ?? null,
    json: options.get('json') ?? null,
    report: options.get('report') ?? null,
    notes,
  }
}

/** Options that are read more than once. */
const REPEATED = new Set(['shape', 'data', 'header', 'request-parameter'])

/** @throws {CommandError} if an option is given twice, maybe under perf_analyzer's name */
function checkGiven(given: readonly Given[]): void {
  for (const [i, { name, label }] of given.entries()) {
    const other = given.slice(0, i).find((one) => one.name === name)
    if (other === undefined || REPEATED.has(name)) continue
    if (other.label === label) throw new CommandError(`${label} is given twice: give it once`)
    throw new CommandError(`${other.label} and ${label} are the same: give only one of them`)
  }
}

/**
 * Options that have no effect together with another one, or without it.
 *
 * @throws {CommandError} that names both
 */
function checkEffect(
  given: readonly Given[],
  { endpoint, targets, isGrpc }: { endpoint: Endpoint; targets: readonly Target[]; isGrpc: boolean },
): void {
  const of = (name: string): Given | undefined => given.find((one) => one.name === name)
  const isText = textPath(endpoint) !== null
  const isInfer = endpoint === 'infer' || endpoint === 'stream'
  const by = `with --endpoint=${endpoint}`
  const check = (isWrong: boolean, names: readonly string[], other: string): void => {
    const found = names.map(of).find((one) => one !== undefined)
    if (isWrong && found !== undefined) throw new CommandError(`${found.label} has no effect ${other}`)
  }
  const isOpen = of('rate') !== undefined || of('goal') !== undefined
  check(!isOpen, ['arrivals'], 'without --rate or --goal')
  check(targets.length < 2, ['pairs'], 'without two URLs to compare')
  check(!isText, ['text-words'], 'without --endpoint=embeddings, rerank, chat or completions')
  check(of('data') !== undefined, ['text-words'], 'with --data, which gives the texts')
  check(isText, ['shape', 'tensors', 'version'], by)
  check(isText && !isChat(endpoint), ['request-parameter'], by)
  check(isChat(endpoint), ['batch'], by)
  check(!isInfer, ['tensors'], by)
  check(isGrpc, ['tensors'], 'with gRPC, which has one form of tensors')
  check(of('shared-memory') !== undefined, ['tensors'], 'with --shared-memory')
  const found = ['rate', 'concurrency', 'stop-within', 'requests']
  check(of('goal') !== undefined, found, 'with --goal, which finds the rate')
  const two = 'with two URLs: a comparison runs both in turns'
  check(targets.length === 2, ['goal', 'csv', 'report', 'stop-within', 'percentile'], two)
  const { value = '0', label = '' } = of('warmup') ?? {}
  if (Number(value) > 0 && of('requests') !== undefined)
    throw new CommandError(`${label} has no effect with ${of('requests')?.label}: --warmup-request-count=N warms up`)
}

/** Before a measurement that may take hours. */
function checkPath(option: string, path: string): void {
  if (path === '') return
  try {
    const isThere = existsSync(path)
    if (isThere && statSync(path).isDirectory()) throw new Error('it is a directory, but a file is needed')
    accessSync(isThere ? path : dirname(path), constants.W_OK)
  } catch (error) {
    throw new CommandError(`--${option}=${path}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/** perf_analyzer writes -1 for the mean. */
function percentileOf(text: string | null): number | null {
  if (text === null || text === '-1') return null
  const value = Number(text.replace(/^p/, ''))
  if (value >= 1 && value <= 99.9) return value
  throw new CommandError(`--percentile is a number from 1 to 99.9, such as 97; got '${text}'`)
}

function amountOf(label: string, text: string | null, otherwise: number, least: number): number {
  if (text === null) return otherwise
  const value = Number(text)
  if (text.trim() !== '' && Number.isFinite(value) && value >= least) return value
  throw new CommandError(`${label} is a number of at least ${least}; got '${text}'`)
}

function choiceOf<T extends string>(name: string, text: string, choices: readonly T[]): T {
  const found = choices.find((choice) => choice === text)
  if (found === undefined) throw new CommandError(`--${name} is ${choices.join(' or ')}; got '${text}'`)
  return found
}

/** `http://HOST:PORT`, `grpc://HOST:PORT`, or `HOST:PORT` with `--protocol`. */
function targetOf(text: string, protocol: string | null, tls: boolean): Target {
  const asked = protocol === 'grpc' || (protocol === null && /^grpcs?:/.test(text)) ? 'grpc' : 'http'
  const secure = tls ? 's' : ''
  const named = text === '' ? 'localhost' : text
  const whole = /^\w+:\/\//.test(named) ? named : `${asked}${secure}://${named}`
  let url: URL
  try {
    // Special schemes have hosts that are checked.
    url = new URL(whole.replace(/^grpc(s?):/, 'http$1:'))
  } catch {
    throw new CommandError(`'${text}' is not a URL of a server, such as http://localhost:8000 or grpc://localhost:8001`)
  }
  const scheme = whole.slice(0, whole.indexOf(':'))
  if (!['http', 'https', 'grpc', 'grpcs'].includes(scheme))
    throw new CommandError(`'${text}' is not a URL of http, https, grpc or grpcs`)
  const found = scheme.startsWith('grpc') ? 'grpc' : 'http'
  if (found !== asked)
    throw new CommandError(`--protocol=${asked} and '${text}' differ: give the ${asked} port, ${asked}://HOST:PORT`)
  const isSecure = scheme.endsWith('s')
  const port = url.port !== '' ? url.port : (/:(80|443)\b/.exec(whole)?.[1] ?? (asked === 'grpc' ? '8001' : '8000'))
  const address = `${url.hostname}:${port}`
  const base = url.pathname.replace(/\/+$/, '')
  if (asked === 'grpc' && base !== '') throw new CommandError(`'${text}' has a path, which gRPC does not have`)
  return { url: `${scheme}://${address}${base}`, protocol: asked, isSecure, address, base }
}

/** `8`, `1:8`, `1:8:2` or `1,2,4`. */
function rangeOf(label: string, text: string): number[] {
  const numbers = text.split(/[:,]/).map(Number)
  const isWrong = text.trim() === '' || numbers.some((value) => !(value > 0))
  const wrong = (): CommandError =>
    new CommandError(`${label} is N, START:END, START:END:STEP or N,N,N, of numbers above 0; got '${text}'`)
  if (isWrong || (text.includes(':') && text.includes(','))) throw wrong()
  if (!text.includes(':')) return numbers
  const [start = 1, end = start, step = 1, ...more] = numbers
  if (more.length > 0 || end < start) throw wrong()
  const count = Math.floor((end - start) / step + 1e-9) + 1
  if (count > LOADS_MAX) throw new CommandError(`${label}=${text} has ${count} loads, more than ${LOADS_MAX}`)
  return Array.from({ length: count }, (_, i) => start + i * step)
}

function loadsOf(concurrency: string | null, rate: string | null): Load[] {
  if (rate === null) {
    const values = rangeOf('--concurrency', concurrency ?? '1')
    const wrong = values.find((value) => !Number.isInteger(value) || value > CONCURRENCY_MAX)
    if (wrong !== undefined)
      throw new CommandError(`--concurrency is a whole number of at most ${CONCURRENCY_MAX}; got ${wrong}`)
    return values.map((value) => ({ kind: 'concurrency', value }))
  }
  if (concurrency !== null) throw new CommandError('--concurrency is a closed loop and --rate an open one: give one')
  return rangeOf('--rate', rate).map((value) => ({ kind: 'rate', value }))
}

const UNITS: Readonly<Record<string, number>> = { us: 1, ms: 1000, s: 1_000_000 }

function goalOf(text: string): Goal {
  const [, name, value, unit = ''] = /^\s*(\w+)\s*<=?\s*([\d.]+)\s*(us|ms|s)\s*$/.exec(text) ?? []
  const statistic = STATISTICS.find((one) => one === name)
  const limitUs = Number(value) * (UNITS[unit] ?? Number.NaN)
  if (statistic === undefined || !(limitUs > 0))
    throw new CommandError(
      `--goal has a form such as 'p99<20ms', with ${STATISTICS.join(', ')}, in us, ms or s; got '${text}'`,
    )
  return { statistic, limitUs, text: `${statistic} < ${value} ${unit}` }
}

function shapeOf(text: string): [string, number[]] {
  const colon = text.lastIndexOf(':')
  const dims = text
    .slice(colon + 1)
    .split(',')
    .map(Number)
  if (colon < 1 || dims.some((dimension) => !Number.isInteger(dimension) || dimension < 0))
    throw new CommandError(`--shape is INPUT:1,3,224,224; got '${text}'`)
  return [text.slice(0, colon), dims]
}

function wordsOf(text: string): [number, number] {
  const [mean = NaN, deviation = 0, ...more] = text.split(',').map(Number)
  if (!(mean >= 1) || !(deviation >= 0) || more.length > 0)
    throw new CommandError(`--text-words is MEAN or MEAN,DEVIATION of the words of a text; got '${text}'`)
  return [mean, deviation]
}

/** `name:value:type` as perf_analyzer writes it. */
function parameterOf(text: string): [string, string | number | boolean] {
  const [, name = '', value = '', type] = /^([^:]+):(.*):(\w+)$/s.exec(text) ?? []
  if (type === 'string') return [name, value]
  if (type === 'bool' && /^(true|false)$/.test(value)) return [name, value === 'true']
  const number = value.trim() === '' ? Number.NaN : Number(value)
  if (/^u?int/.test(type ?? '') && Number.isInteger(number)) return [name, number]
  if ((type === 'float' || type === 'double') && Number.isFinite(number)) return [name, number]
  throw new CommandError(`--request-parameter is NAME:VALUE:TYPE, of int, float, bool or string; got '${text}'`)
}

function sharedMemoryOf(text: string, endpoint: Endpoint): boolean {
  if (text === 'none') return false
  if (endpoint !== 'infer' && endpoint !== 'stream')
    throw new CommandError(`--shared-memory is for tensors, and --endpoint=${endpoint} has none`)
  return true
}

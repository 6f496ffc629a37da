/** The protocol over HTTP: its paths, bodies and responses. */

import { decodeText, encodeText } from '../bytes.js'
import type { Call } from '../call.js'
import { jsonOf } from '../check.js'
import { codeOfHttp, textOf, type ClientError } from '../errors.js'
import { parseJson } from '../json.js'
import type { InferResult } from '../tensor.js'
import type {
  CudaRegion,
  IndexRow,
  LogSettings,
  ModelMetadata,
  ModelStatistics,
  ServerMetadata,
  SystemRegion,
  TraceSettings,
  TraceUpdate,
} from '../types.js'
import type { InferRequest, Wire, WireStream } from '../wire.js'
import { eventsOf } from './events.js'
import { decodeInfer, encodeInfer } from './infer.js'
import type { HttpAnswer, HttpEvents, HttpRequest, Transport } from './transport.js'

/** Limit of a text from a server that does not follow the protocol. */
const TEXT_CHARS_MAX = 4096

export interface HttpOptions {
  /** Headers of every request: they include keys, so they are never printed. */
  headers: Readonly<Record<string, string>>
  acceptCompressed: boolean
}

export class HttpWire implements Wire {
  readonly url: string
  readonly #base: string
  readonly #transport: Transport
  readonly #options: HttpOptions
  readonly #paths = new Map<string, string>()

  constructor(url: URL, transport: Transport, options: HttpOptions) {
    this.#base = url.pathname.replace(/\/+$/, '')
    this.url = `${url.origin}${this.#base}`
    this.#transport = transport
    this.#options = options
  }

  async live(call: Call): Promise<boolean> {
    return (await this.#send(call, 'GET', '/v2/health/live')).status === 200
  }

  async ready(call: Call): Promise<boolean> {
    return this.#isReady(call, await this.#send(call, 'GET', '/v2/health/ready'))
  }

  async modelReady(call: Call, model: string, version: string): Promise<boolean> {
    return this.#isReady(call, await this.#send(call, 'GET', this.#model(model, version, '/ready')))
  }

  async serverMetadata(call: Call): Promise<ServerMetadata> {
    return (await this.#json(call, 'GET', '/v2')) as ServerMetadata
  }

  async modelMetadata(call: Call, model: string, version: string): Promise<ModelMetadata> {
    return (await this.#json(call, 'GET', this.#model(model, version, ''))) as ModelMetadata
  }

  async modelConfig(call: Call, model: string, version: string): Promise<Record<string, unknown>> {
    return (await this.#json(call, 'GET', this.#model(model, version, '/config'))) as Record<string, unknown>
  }

  async statistics(call: Call, model: string, version: string): Promise<ModelStatistics[]> {
    const path = model === '' ? '/v2/models/stats' : this.#model(model, version, '/stats')
    return ((await this.#json(call, 'GET', path)) as { model_stats: ModelStatistics[] }).model_stats
  }

  async index(call: Call, ready: boolean): Promise<IndexRow[]> {
    return (await this.#json(call, 'POST', '/v2/repository/index', { ready })) as IndexRow[]
  }

  async load(
    call: Call,
    model: string,
    config: string | null,
    files: readonly (readonly [string, Uint8Array])[],
  ): Promise<void> {
    const parameters = Object.fromEntries(files.map(([path, content]) => [`file:${path}`, base64(content)]))
    await this.#json(call, 'POST', `/v2/repository/models/${encodeURIComponent(model)}/load`, {
      parameters: config === null ? parameters : { config, ...parameters },
    })
  }

  async unload(call: Call, model: string, dependents: boolean): Promise<void> {
    await this.#json(call, 'POST', `/v2/repository/models/${encodeURIComponent(model)}/unload`, {
      parameters: { unload_dependents: dependents },
    })
  }

  async trace(call: Call, model: string, update: TraceUpdate | null): Promise<TraceSettings> {
    const path = model === '' ? '/v2/trace/setting' : `/v2/models/${encodeURIComponent(model)}/trace/setting`
    return (await this.#json(call, update === null ? 'GET' : 'POST', path, update ?? undefined)) as TraceSettings
  }

  async log(call: Call, update: Partial<LogSettings> | null): Promise<LogSettings> {
    return (await this.#json(call, update === null ? 'GET' : 'POST', '/v2/logging', update ?? undefined)) as LogSettings
  }

  async systemStatus(call: Call, name: string): Promise<SystemRegion[]> {
    return (await this.#json(call, 'GET', `/v2/systemsharedmemory${region(name)}/status`)) as SystemRegion[]
  }

  async systemRegister(call: Call, { name, ...more }: SystemRegion): Promise<void> {
    await this.#json(call, 'POST', `/v2/systemsharedmemory${region(name)}/register`, more)
  }

  async systemUnregister(call: Call, name: string): Promise<void> {
    await this.#json(call, 'POST', `/v2/systemsharedmemory${region(name)}/unregister`)
  }

  async cudaStatus(call: Call, name: string): Promise<CudaRegion[]> {
    return (await this.#json(call, 'GET', `/v2/cudasharedmemory${region(name)}/status`)) as CudaRegion[]
  }

  async cudaRegister(call: Call, { name, ...more }: CudaRegion, handle: Uint8Array): Promise<void> {
    await this.#json(call, 'POST', `/v2/cudasharedmemory${region(name)}/register`, {
      raw_handle: { b64: base64(handle) },
      ...more,
    })
  }

  async cudaUnregister(call: Call, name: string): Promise<void> {
    await this.#json(call, 'POST', `/v2/cudasharedmemory${region(name)}/unregister`)
  }

  async infer(call: Call, request: InferRequest): Promise<InferResult> {
    const { parts, headerLength } = encodeInfer(request)
    const headers: Record<string, string> = {
      'content-type': headerLength === null ? 'application/json' : 'application/octet-stream',
    }
    if (headerLength !== null) headers['inference-header-content-length'] = String(headerLength)
    if (this.#options.acceptCompressed) headers['accept-encoding'] = 'gzip, deflate'
    let body: readonly Uint8Array[] = parts
    if (request.compress !== null) {
      headers['content-encoding'] = request.compress
      body = [await this.#transport.compress(request.compress, parts)]
    }
    const answer = await this.#transport.send(
      call,
      this.#request(call, 'POST', this.#model(request.model, request.version, '/infer'), body, headers),
    )
    if (answer.status !== 200) throw this.#error(call, answer)
    return decodeInfer(call, answer)
  }

  async stream(call: Call): Promise<WireStream> {
    call.asked = this.url
    throw call.error(
      'UNSUPPORTED',
      'HTTP has no streams of tensors: connect to the gRPC port of the server (grpc://HOST:8001), or use ' +
        'generateStream',
    )
  }

  async generate(call: Call, model: string, version: string, body: object): Promise<Record<string, unknown>> {
    const answer = (await this.#json(call, 'POST', this.#model(model, version, '/generate'), body)) as Record<
      string,
      unknown
    >
    if (typeof answer['error'] === 'string' && !('model_name' in answer))
      throw call.error('INTERNAL', answer['error'], { status: 200 })
    return answer
  }

  async *generateStream(
    call: Call,
    model: string,
    version: string,
    body: object,
  ): AsyncIterable<Record<string, unknown>> {
    const request = this.#request(
      call,
      'POST',
      this.#model(model, version, '/generate_stream'),
      [encodeText(jsonOf('body', body))],
      { 'content-type': 'application/json' },
    )
    const answer = await this.#transport.open(call, request)
    if (!/event-stream/.test(answer.header('content-type') ?? '')) {
      let text = ''
      for await (const part of answer.parts) text += decodeText(part)
      throw this.#error(call, answer, text)
    }
    for await (const event of eventsOf(answer.parts)) {
      const value = this.#parse(call, event) as Record<string, unknown>
      if (typeof value['error'] === 'string' && !('model_name' in value))
        throw call.error(codeOfHttp(answer.status === 200 ? 500 : answer.status), value['error'], {
          status: answer.status,
        })
      yield value
    }
  }

  async text(call: Call, path: string, body: object): Promise<unknown> {
    return await this.#json(call, 'POST', path, body)
  }

  close(): void {
    this.#transport.close()
  }

  /** Cached: there are few paths, and each is used often. */
  #model(model: string, version: string, what: string): string {
    const key = `${model}\0${version}\0${what}`
    const known = this.#paths.get(key)
    if (known !== undefined) return known
    const versions = version === '' ? '' : `/versions/${encodeURIComponent(version)}`
    const path = `/v2/models/${encodeURIComponent(model)}${versions}${what}`
    if (this.#paths.size < PATHS_MAX) this.#paths.set(key, path)
    return path
  }

  #request(
    call: Call,
    method: 'GET' | 'POST',
    path: string,
    body: readonly Uint8Array[] | null,
    headers: Record<string, string>,
  ): HttpRequest {
    call.asked = `${method} ${this.url}${path}`
    // The call may have ended while a body was compressed.
    const ended = call.ended(false)
    if (ended !== null) throw ended
    return {
      method,
      path: `${this.#base}${path}`,
      headers: { ...this.#options.headers, ...headers, ...call.headers },
      body,
    }
  }

  async #send(call: Call, method: 'GET' | 'POST', path: string, body?: object): Promise<HttpAnswer> {
    const headers: Record<string, string> = body === undefined ? {} : { 'content-type': 'application/json' }
    const bytes = body === undefined ? null : [encodeText(jsonOf('body', body))]
    return await this.#transport.send(call, this.#request(call, method, path, bytes, headers))
  }

  async #json(call: Call, method: 'GET' | 'POST', path: string, body?: object): Promise<unknown> {
    const answer = await this.#send(call, method, path, body)
    if (answer.status !== 200) throw this.#error(call, answer)
    return answer.body.length === 0 ? null : this.#parse(call, decodeText(answer.body))
  }

  /** A server that is not ready responds validly; other statuses are errors. */
  #isReady(call: Call, answer: HttpAnswer): boolean {
    if (answer.status === 401 || answer.status === 403 || answer.status === 429) throw this.#error(call, answer)
    return answer.status === 200
  }

  #parse(call: Call, text: string): unknown {
    try {
      return parseJson(text)
    } catch (error) {
      throw call.error('PROTOCOL', textOf(error), { cause: error })
    }
  }

  #error(
    call: Call,
    answer: HttpAnswer | HttpEvents,
    body = 'body' in answer ? decodeText(answer.body) : '',
  ): ClientError {
    const { status } = answer
    const after = Number(answer.header('retry-after') ?? NaN)
    const retryAfterMs = after >= 0 ? after * 1000 : null
    const fault = answer.header('nereid-fault')
    // The server checks quotas first, and a server out of memory closes the connection without reading the request. One
    // that shuts down closes it, too, but may have run the request.
    const isUnread = status === 503 && answer.header('connection') === 'close' && fault !== 'server'
    const mayHaveRun = retryAfterMs === null || !(status === 429 || isUnread)
    return call.error(codeOfHttp(status), errorText(status, body), { status, fault, retryAfterMs, mayHaveRun })
  }
}

const PATHS_MAX = 1000

/** The server's error text, or the text of a proxy or another server. */
function errorText(status: number, body: string): string {
  try {
    const { error } = JSON.parse(body) as { error?: unknown }
    // An object in the form of OpenAI, at text endpoints.
    const text = typeof error === 'object' && error !== null && 'message' in error ? error.message : error
    if (typeof text === 'string') return text
  } catch {
    // Return the text as it is.
  }
  return body === '' ? `the response is ${status} without a text` : `${status}: ${body.slice(0, TEXT_CHARS_MAX)}`
}

const region = (name: string): string => (name === '' ? '' : `/region/${encodeURIComponent(name)}`)

/** In pieces: a large file has too many bytes for one call's arguments. */
function base64(bytes: Uint8Array): string {
  const step = 0x8001
  let out = ''
  for (let at = 0; at < bytes.length; at += step) out += btoa(String.fromCharCode(...bytes.subarray(at, at + step)))
  return out
}

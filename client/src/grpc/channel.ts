/** Calls through `@grpc/grpc-js`, which is loaded with the first of them: whoever speaks HTTP only need not have it. */

import type { Client as GrpcClient, ClientDuplexStream, ClientUnaryCall, Metadata, ServiceError } from '@grpc/grpc-js'
import type { Call } from '../call.js'
import { ClientError, codeOfGrpc, textOf } from '../errors.js'
import type { ConnectOptions } from '../types.js'

type Grpc = typeof import('@grpc/grpc-js')

const SERVICE = '/inference.GRPCInferenceService/'
const MESSAGE_BYTES_MAX = 2 ** 31 - 1
/** What may come before it is read: with HTTP/2's own 64 KiB a large answer waits for the network again and again. */
const WINDOW_BYTES = 4 << 20
const UNAVAILABLE = 14
const DEADLINE_EXCEEDED = 4
const COMPRESSION = { deflate: 1, gzip: 2 } as const

interface Opened {
  grpc: Grpc
  client: GrpcClient
  metadata: Metadata
}

export class Channel {
  readonly url: string
  readonly #target: string
  readonly #isSecure: boolean
  readonly #options: ConnectOptions
  readonly #headers: Readonly<Record<string, string>>
  #opened: Opened | null = null
  #isClosed = false

  constructor(url: URL, options: ConnectOptions, headers: Readonly<Record<string, string>>) {
    this.#isSecure = url.protocol === 'grpcs:'
    this.#target = options.socketPath === undefined ? `${url.hostname}:${url.port === '' ? 8001 : url.port}` : `unix:${options.socketPath}`
    this.url = `${url.protocol}//${url.hostname}:${url.port === '' ? 8001 : url.port}`
    this.#options = options
    this.#headers = headers
  }

  /** One message, one answer; `about` is a name in it, for errors. */
  async unary<T>(call: Call, method: string, about: string, message: () => Buffer, decode: (bytes: Buffer) => T): Promise<T> {
    call.asked = about === '' ? `${method} ${this.url}` : `${method}(${about}) ${this.url}`
    const { client, metadata } = this.#opened ?? (await this.#open(call))
    return await new Promise<T>((resolve, reject) => {
      let sent: ClientUnaryCall | null = null
      const stop = call.signal === null ? () => {} : call.onAbort(() => sent?.cancel())
      sent = client.makeUnaryRequest<null, T>(SERVICE + method, message, decode, null, this.#metadataOf(call, metadata), deadlineOf(call), (error, value) => {
        stop()
        if (error === null) resolve(value as T)
        else reject(this.#error(call, error, sent?.getPeer()))
      })
    })
  }

  async duplex<T>(call: Call, method: string, decode: (bytes: Buffer) => T): Promise<{ stream: ClientDuplexStream<Buffer, T>; wrap: (error: unknown) => ClientError; stop: () => void }> {
    call.asked = `${method} ${this.url}`
    const { client, metadata } = this.#opened ?? (await this.#open(call))
    const stream = client.makeBidiStreamRequest<Buffer, T>(SERVICE + method, (bytes) => bytes, decode, this.#metadataOf(call, metadata), deadlineOf(call))
    const stop = call.onAbort(() => stream.cancel())
    return { stream, stop, wrap: (error) => (error instanceof ClientError ? error : this.#error(call, error as ServiceError, stream.getPeer())) }
  }

  close(): void {
    this.#isClosed = true
    this.#opened?.client.close()
  }

  async #open(call: Call): Promise<Opened> {
    let grpc: Grpc
    try {
      grpc = await load()
    } catch (error) {
      throw call.error('UNSUPPORTED', 'gRPC needs the package @grpc/grpc-js: npm install @grpc/grpc-js', { cause: error })
    }
    if (this.#isClosed) throw call.error('CANCELLED', 'the client is closed', { mayHaveRun: false })
    if (this.#opened !== null) return this.#opened
    const { answerBytesMax = MESSAGE_BYTES_MAX, compress, tls = {} } = this.#options
    const pem = (text: string | Uint8Array | undefined) => (text === undefined ? null : Buffer.from(text as string))
    const credentials = this.#isSecure ? grpc.credentials.createSsl(pem(tls.ca), pem(tls.key), pem(tls.cert)) : grpc.credentials.createInsecure()
    const client = new grpc.Client(this.#target, credentials, {
      'grpc.max_receive_message_length': answerBytesMax,
      'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
      // Whether a call is made again is decided in retry.ts.
      'grpc.enable_retries': 0,
      // Connections of its own, as over HTTP.
      'grpc.use_local_subchannel_pool': 1,
      'grpc-node.flow_control_window': WINDOW_BYTES,
      ...(compress === undefined ? {} : { 'grpc.default_compression_algorithm': COMPRESSION[compress] }),
      ...(tls.serverName === undefined ? {} : { 'grpc.ssl_target_name_override': tls.serverName, 'grpc.default_authority': tls.serverName }),
    })
    const metadata = new grpc.Metadata()
    for (const [name, value] of Object.entries(this.#headers)) metadata.set(name, value)
    this.#opened = { grpc, client, metadata }
    return this.#opened
  }

  #metadataOf(call: Call, metadata: Metadata): Metadata {
    const more = Object.entries(call.headers)
    if (more.length === 0) return metadata
    const all = metadata.clone()
    for (const [name, value] of more) all.set(name.toLowerCase(), value)
    return all
  }

  #error(call: Call, { code, details }: ServiceError, peer = 'unknown'): ClientError {
    // What the decoder threw.
    const ended = code === DEADLINE_EXCEEDED || call.signal?.aborted === true ? call.ended() : null
    if (ended !== null) return ended
    // A call that has not left yet has no peer but its target.
    const isSent = peer !== 'unknown' && !peer.endsWith(this.#target)
    if (code === UNAVAILABLE && !isSent) return call.error('UNREACHABLE', `there is no connection: ${details}`, { status: code, mayHaveRun: false })
    return call.error(codeOfGrpc(code), details, { status: code })
  }
}

function deadlineOf(call: Call): { deadline?: number } {
  const { remainingMs } = call
  return remainingMs === Infinity ? {} : { deadline: Date.now() + remainingMs }
}

let loading: Promise<Grpc> | null = null

function load(): Promise<Grpc> {
  loading ??= import('@grpc/grpc-js').then((all) => ('default' in all ? (all.default as unknown as Grpc) : all))
  return loading.catch((error: unknown) => {
    loading = null
    throw new Error(textOf(error), { cause: error })
  })
}

/** A grpc-js server with the services of a server in the same process, and a client that sends bytes. */
import {
  Client,
  Metadata,
  Server as GrpcServer,
  ServerCredentials,
  credentials,
  status,
  type ChannelOptions,
  type ClientDuplexStream,
  type ClientReadableStream,
  type ServiceError,
  type StatusObject,
} from '@grpc/grpc-js'
import { grpcService, type GrpcOptions } from '../../src/embed/index.js'
import type { Server } from '../../src/index.js'
import { inferMessage } from './protobuf.js'

export const INFERENCE = '/inference.GRPCInferenceService/'
export const ANY_SIZE = { 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1 }

/** Serves on a free loopback port; `close` closes the connections. */
export async function outerServer(
  server: Server,
  {
    channel = ANY_SIZE,
    service = {},
    port = 0,
  }: { channel?: ChannelOptions; service?: GrpcOptions; port?: number } = {},
): Promise<{ address: string; end: () => void }> {
  const outer = new GrpcServer(channel)
  const { definition, implementation } = grpcService(server, service)
  outer.addService(definition, implementation)
  const bound = await new Promise<number>((resolve, reject) =>
    outer.bindAsync(`127.0.0.1:${port}`, ServerCredentials.createInsecure(), (error, at) =>
      error === null ? resolve(at) : reject(error),
    ),
  )
  return { address: `127.0.0.1:${bound}`, end: () => outer.forceShutdown() }
}

const same = (bytes: Buffer): Buffer => bytes

/** Result of a call. */
export interface Answer {
  code: string
  details: string
  messages: Buffer[]
  trailers: Record<string, string>
}

export function metadataOf(fields: Record<string, string>): Metadata {
  const metadata = new Metadata()
  for (const [name, value] of Object.entries(fields)) metadata.add(name, value)
  return metadata
}

/** Removes the fields that the servers' libraries add. */
function answerOf({ code, details, metadata }: StatusObject | ServiceError, messages: Buffer[]): Answer {
  const ours = Object.entries(metadata.getMap()).filter(
    ([name]) => !['content-type', 'date', 'grpc-encoding', 'grpc-accept-encoding'].includes(name),
  )
  return {
    code: status[code],
    details: code === status.OK ? '' : details,
    messages,
    trailers: Object.fromEntries(ours.map(([name, value]) => [name, String(value)])),
  }
}

/** A client with its own connection. */
export class BytesClient {
  readonly #client: Client

  constructor(address: string, options: ChannelOptions = {}) {
    this.#client = new Client(address, credentials.createInsecure(), {
      ...ANY_SIZE,
      'grpc.use_local_subchannel_pool': 1,
      ...options,
    })
  }

  async unary(
    path: string,
    message: Buffer,
    { fields = {}, deadlineMs = 30_000 }: { fields?: Record<string, string>; deadlineMs?: number } = {},
  ): Promise<Answer> {
    return await new Promise((resolve) => {
      const messages: Buffer[] = []
      const call = this.#client.makeUnaryRequest(
        path,
        same,
        same,
        message,
        metadataOf(fields),
        { deadline: Date.now() + deadlineMs },
        (_error, answer) => answer !== undefined && messages.push(answer),
      )
      call.on('status', (ended) => resolve(answerOf(ended, messages)))
    })
  }

  /** Sends all messages and half-closes. */
  async stream(
    path: string,
    sent: Buffer[],
    { fields = {}, deadlineMs = 30_000 }: { fields?: Record<string, string>; deadlineMs?: number } = {},
  ): Promise<Answer> {
    const call = this.open(path, fields, deadlineMs)
    const messages: Buffer[] = []
    call.on('data', (message: Buffer) => messages.push(message))
    const ended = new Promise<Answer>((resolve) => void call.on('status', (end) => resolve(answerOf(end, messages))))
    for (const message of sent)
      if (!call.write(message)) await new Promise((resolve) => void call.once('drain', resolve))
    call.end()
    return await ended
  }

  open(path: string, fields: Record<string, string> = {}, deadlineMs = 30_000): ClientDuplexStream<Buffer, Buffer> {
    const call = this.#client.makeBidiStreamRequest(path, same, same, metadataOf(fields), {
      deadline: Date.now() + deadlineMs,
    })
    call.on('error', () => {})
    return call
  }

  watch(path: string): ClientReadableStream<Buffer> {
    const call = this.#client.makeServerStreamRequest(path, same, same, Buffer.alloc(0), new Metadata(), {})
    call.on('error', () => {})
    return call
  }

  close(): void {
    this.#client.close()
  }
}

export const int32 = (...values: number[]): Buffer => Buffer.from(Int32Array.from(values).buffer)

export const simple = (n: number, id = ''): Buffer => {
  const row = int32(...Array.from({ length: 16 }, () => n))
  return inferMessage(
    'simple',
    [
      ['INPUT0', 'INT32', [1, 16], row],
      ['INPUT1', 'INT32', [1, 16], row],
    ],
    id,
  )
}

/** A request to the decoupled model, which returns each value after its delay in ms. */
export function repeat(values: number[], delays: number[], wait = 0, id = ''): Buffer {
  const uint32 = (...all: number[]): Buffer => Buffer.from(Uint32Array.from(all).buffer)
  return inferMessage(
    'repeat',
    [
      ['IN', 'INT32', [values.length], int32(...values)],
      ['DELAY', 'UINT32', [delays.length], uint32(...delays)],
      ['WAIT', 'UINT32', [1], uint32(wait)],
    ],
    id,
  )
}

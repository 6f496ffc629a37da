/** gRPC messages in the body of a stream: a compression flag and a length precede each. */

import { promisify } from 'node:util'
import { constants, deflate, gunzip, gzip, inflate } from 'node:zlib'
import type { Call } from '../call.js'
import { ClientError, textOf } from '../errors.js'
import type { Compression } from '../types.js'

const PREFIX_BYTES = 5
/** Messages up to this size are written in one piece. */
const ONE_PIECE_BYTES = 16 << 10
const ALIGNMENT = 8

const INFLATE = { gzip: promisify(gunzip), deflate: promisify(inflate) } as const
const DEFLATE = { gzip: promisify(gzip), deflate: promisify(deflate) } as const

function prefix(length: number, isCompressed: boolean): Buffer {
  const bytes = Buffer.allocUnsafe(PREFIX_BYTES)
  bytes[0] = isCompressed ? 1 : 0
  bytes.writeUInt32BE(length, 1)
  return bytes
}

/** The frame of a message; large tensors among its parts are not copied. */
export function framed(parts: readonly Uint8Array[]): readonly Uint8Array[] {
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  const all = [prefix(length, false), ...parts]
  return length <= ONE_PIECE_BYTES ? [Buffer.concat(all, PREFIX_BYTES + length)] : all
}

export async function compressed(how: Compression, parts: readonly Uint8Array[]): Promise<readonly Uint8Array[]> {
  const bytes = await DEFLATE[how](Buffer.concat(parts), { level: constants.Z_BEST_SPEED })
  return [prefix(bytes.length, true), bytes]
}

/** A message as received. */
export interface Frame {
  isCompressed: boolean
  bytes: Buffer
}

/** @throws {ClientError} `PROTOCOL` if it cannot be decompressed */
export async function plain(
  call: Call,
  { isCompressed, bytes }: Frame,
  encoding: string | undefined,
  max: number,
): Promise<Buffer> {
  if (!isCompressed) return bytes
  if (encoding !== 'gzip' && encoding !== 'deflate')
    throw call.error('PROTOCOL', `a message is compressed as '${encoding}', which was not requested`)
  try {
    return await INFLATE[encoding](bytes, { maxOutputLength: max })
  } catch (error) {
    throw call.error('PROTOCOL', `a message cannot be decompressed: ${textOf(error)}`, { cause: error })
  }
}

const NOTHING = Buffer.alloc(0)

/** Splits received data into messages. */
export class Frames {
  readonly #max: number
  /** The received part of an incomplete prefix; all of a complete one. */
  #prefix: Buffer = NOTHING
  #prefixed = 0
  /** The incomplete message. */
  #message: Buffer | null = null
  #filled = 0

  constructor(max: number) {
    this.#max = max
  }

  /** True if no message is incomplete. */
  get isEmpty(): boolean {
    return this.#prefixed === 0
  }

  /** Calls `take` for each completed message. @throws {ClientError} `RESOURCE_EXHAUSTED` for one that is too long */
  push(chunk: Buffer, take: (frame: Frame) => void): void {
    for (let at = 0; at < chunk.length || this.#message?.length === this.#filled;) {
      if (this.#message === null) {
        const taken = Math.min(chunk.length - at, PREFIX_BYTES - this.#prefixed)
        const part = chunk.subarray(at, at + taken)
        this.#prefix = this.#prefixed === 0 ? part : Buffer.concat([this.#prefix, part])
        this.#prefixed += taken
        at += taken
        if (this.#prefixed < PREFIX_BYTES) return
        const length = this.#prefix.readUInt32BE(1)
        if (length > this.#max)
          throw new ClientError(
            'RESOURCE_EXHAUSTED',
            `a message has ${length} bytes, more than ${this.#max}, see answerBytesMax`,
          )
        // A complete message needs no buffer of its own.
        if (at + length <= chunk.length && length <= ONE_PIECE_BYTES) {
          this.#prefixed = 0
          take({ isCompressed: this.#prefix[0] === 1, bytes: chunk.subarray(at, at + length) })
          at += length
          continue
        }
        this.#message = alignedEnd(length)
        this.#filled = 0
      }
      const copied = chunk.copy(this.#message, this.#filled, at)
      this.#filled += copied
      at += copied
      if (this.#filled < this.#message.length) return
      const bytes = this.#message
      this.#message = null
      this.#prefixed = 0
      take({ isCompressed: this.#prefix[0] === 1, bytes })
    }
  }
}

/** A buffer whose end is aligned: the last tensor of a response ends there, so its data needs no copy. */
function alignedEnd(length: number): Buffer {
  const pad = (ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT
  return Buffer.allocUnsafeSlow(pad + length).subarray(pad)
}

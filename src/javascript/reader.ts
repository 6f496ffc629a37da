/** Reads frames. Contents are views of the frame, which belongs to the receiver, or of a block of a request. */

import { NAMES, arrayOf } from './datatypes.js'
import { TritonError, codeNamed } from './errors.js'
import { Answer, AnswerFlag, AnswerHead, Header, Place, TensorHead } from './generated/protocol.js'
import { InferenceResponse, type Parameters } from './response.js'
import { type Tensor, tensorOf } from './tensor.js'

const NAMES_CACHED_MAX = 64

/** One frame of a delivery. `at` is the first byte after its header. */
export interface Received {
  readonly bytes: Buffer
  readonly view: DataView
  readonly frame: number
  readonly flags: number
  readonly count: number
  readonly model: number
  readonly instance: number
  readonly at: number
  readonly end: number
}

/** Splits a delivery, or a part of one, into its frames. */
export function eachFrame(frames: Uint8Array, receive: (frame: Received) => void, from = 0, to = frames.length): void {
  const bytes = Buffer.isBuffer(frames) ? frames : Buffer.from(frames.buffer, frames.byteOffset, frames.length)
  const view = new DataView(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.length)
  for (let at = from; at < to;) {
    const start = at + Header.BYTES
    const end = start + view.getUint32(at + Header.length, true)
    if (end > to) throw new RangeError(`a frame of ${end - at} bytes came with ${to - at}`)
    receive({
      bytes,
      view,
      at: start,
      end,
      frame: view.getUint8(at + Header.frame),
      flags: view.getUint8(at + Header.flags),
      count: view.getUint16(at + Header.count, true),
      model: view.getUint16(at + Header.model, true),
      instance: view.getUint16(at + Header.instance, true),
    })
    at = end
  }
}

/** Reads a u64 that is below 2^53: an id, an offset, a size. */
export const readU64 = (view: DataView, at: number): number =>
  view.getUint32(at + 4, true) * 4294967296 + view.getUint32(at, true)

/** Reads ids. */
export const readIds = (view: DataView, at: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => readU64(view, at + 8 * i))

/** An answer to a call. */
export interface AnswerOfCall {
  /** Null: the end comes alone. */
  readonly response: InferenceResponse | null
  readonly isLast: boolean
}

/** Memory that tensors may be in. */
export interface Blocks {
  take(segment: number, offset: number, bytes: number): ArrayBuffer
}

export class Reader {
  /** End of what was read last. */
  end = 0
  readonly #requests: Blocks | null
  readonly #responses: Blocks | null
  readonly #names: { bytes: Uint8Array; name: string }[] = []

  /** `responses` is for the receiver of responses: a server. */
  constructor(requests: Blocks | null, responses: Blocks | null = null) {
    this.#requests = requests
    this.#responses = responses
  }

  /** Reads tensors; appends their blocks to `blocks`. */
  tensors(bytes: Buffer, view: DataView, from: number, count: number, blocks: ArrayBuffer[]): Tensor[] {
    const tensors: Tensor[] = []
    let at = from
    for (let i = 0; i < count; i += 1) {
      const nameBytes = view.getUint16(at + TensorHead.nameBytes, true)
      const datatype = NAMES[view.getUint8(at + TensorHead.datatype)]
      const rank = view.getUint8(at + TensorHead.rank)
      const place = view.getUint8(at + TensorHead.place)
      const size = readU64(view, at + TensorHead.bytes)
      const start = at + TensorHead.BYTES
      const name = this.#name(bytes, start, start + nameBytes)
      if (datatype === undefined) throw new RangeError(`tensor '${name}' has no datatype`)
      let end = start + nameBytes
      const shape: number[] = []
      for (let dim = 0; dim < rank; dim += 1) {
        shape.push(readU64(view, end))
        end += 8
      }
      if (place === Place.INLINE) {
        const step = arrayOf(datatype)?.BYTES_PER_ELEMENT ?? 1
        const first = bytes.byteOffset + end
        if (end + size > bytes.length) throw new RangeError(`tensor '${name}' ends after its frame`)
        // Typed arrays start at a multiple of their element's size, and names have any length: the contents are moved
        // back over their head, which was read.
        const ahead = first % step
        if (ahead > 0) bytes.copyWithin(end - ahead, end, end + size)
        const contents = { buffer: bytes.buffer as ArrayBuffer, offset: first - ahead, bytes: size }
        tensors.push(tensorOf(name, datatype, shape, contents))
        end += size
      } else {
        const memory = place === Place.REQUEST ? this.#requests : place === Place.RESPONSE ? this.#responses : null
        if (memory === null) throw new RangeError(`tensor '${name}' is in an unknown location: ${place}`)
        const segment = view.getUint16(at + TensorHead.segment, true)
        const buffer = memory.take(segment, readU64(view, at + TensorHead.offset), size)
        blocks.push(buffer)
        tensors.push(tensorOf(name, datatype, shape, { buffer, offset: 0, bytes: size }))
      }
      at = end
    }
    this.end = at
    return tensors
  }

  /** Reads a text that comes again and again. */
  #name(bytes: Buffer, start: number, end: number): string {
    const length = end - start
    search: for (const known of this.#names) {
      if (known.bytes.length !== length) continue
      for (let i = 0; i < length; i += 1) if (known.bytes[i] !== bytes[start + i]) continue search
      return known.name
    }
    const name = bytes.toString('utf8', start, end)
    if (this.#names.length < NAMES_CACHED_MAX) this.#names.push({ bytes: Buffer.from(name), name })
    return name
  }

  /** Reads an answer, that of a RESULT, a RESPOND or a CALL_RESPONSE. */
  answer(bytes: Buffer, view: DataView, at: number, blocks: ArrayBuffer[]): AnswerOfCall & { kind: number } {
    const kind = view.getUint8(at + AnswerHead.kind)
    const isLast = (view.getUint8(at + AnswerHead.flags) & AnswerFlag.FINAL) !== 0
    const parametersEnd = at + AnswerHead.BYTES + view.getUint32(at + AnswerHead.parametersBytes, true)
    const textEnd = parametersEnd + view.getUint32(at + AnswerHead.errorBytes, true)
    if (textEnd > bytes.length) throw new RangeError('a response ends after its frame')
    const parameters = bytes.toString('utf8', at + AnswerHead.BYTES, parametersEnd)
    const code = view.getUint32(at + AnswerHead.code, true)
    const text = bytes.toString('utf8', parametersEnd, textEnd)
    const outputs = this.tensors(bytes, view, textEnd, view.getUint16(at + AnswerHead.outputs, true), blocks)
    if (kind === Answer.ERROR) {
      const error = new TritonError(codeNamed(code), text)
      return { kind, isLast, response: new InferenceResponse({ error }) }
    }
    if (kind !== Answer.RESPONSE) return { kind, isLast, response: null }
    const given = parameters === '' ? {} : { parameters: JSON.parse(parameters) as Parameters }
    return { kind, isLast, response: new InferenceResponse({ outputs, ...given }) }
  }
}

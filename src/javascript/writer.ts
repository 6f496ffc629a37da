/** Writes frames into one buffer that is used again for each: a channel reads it before `send` returns. */

import type { LentBlocks, ResponseBlocks } from './arena.js'
import { offsetOf, segmentOf } from './arena.js'
import { RuleError, cut } from './errors.js'
import {
  AnswerHead,
  Answer,
  Code,
  DataType,
  FRAME_BYTES_MAX,
  Header,
  INLINE_BYTES_MAX,
  Place,
  RANK_MAX,
  TENSORS_MAX,
  TensorHead,
} from './generated/protocol.js'
import type { Parameters } from './response.js'
import { type Tensor, contentsOf } from './tensor.js'

const FIRST_BYTES = 1 << 16
/** A longer buffer is not kept for the next frame. */
const KEPT_BYTES_MAX = 1 << 22
const NAMES_CACHED_MAX = 4096
const NAME_BYTES_MAX = 65535
const PARAMETERS_BYTES_MAX = 1 << 24

/** Frames whose reader may use memory of requests in place; others get a copy, since the model goes on. */
export type Reference = 'result' | 'call' | null

/** Memory that a frame uses. */
export interface Taken {
  /** Functions that give it back if the frame is not sent. */
  readonly undo: (() => void)[]
  /** Functions that end the use of a request's memory by a call, once it is answered. */
  readonly uses: (() => void)[]
}

export const nothingTaken = (): Taken => ({ undo: [], uses: [] })

/** Gives back memory of a frame that is not sent, or of the end of one. */
export const giveBack = ({ undo }: Taken, from = 0): void => {
  for (const one of undo.splice(from)) one()
}

export class Writer {
  /** Model and instance of the frames that follow. */
  model = 0
  instance = 0
  bytes = Buffer.allocUnsafeSlow(FIRST_BYTES)
  view = new DataView(this.bytes.buffer)
  length = 0
  readonly #lent: LentBlocks | null
  readonly #blocks: ResponseBlocks | null
  readonly #names = new Map<string, Uint8Array>()
  #start = 0

  constructor(lent: LentBlocks | null, blocks: ResponseBlocks | null) {
    this.#lent = lent
    this.#blocks = blocks
  }

  /** Makes room for more bytes; returns where they begin. */
  take(bytes: number): number {
    const at = this.length
    this.length = at + bytes
    if (this.length > this.bytes.length) this.#grow()
    return at
  }

  #grow(): void {
    if (this.length > FRAME_BYTES_MAX)
      throw new RuleError(`a message may have ${FRAME_BYTES_MAX} bytes without shared memory, this one has more`)
    const { bytes } = this
    this.#allocate(Math.min(2 * this.length, FRAME_BYTES_MAX))
    this.bytes.set(bytes)
  }

  #allocate(bytes: number): void {
    this.bytes = Buffer.allocUnsafeSlow(bytes)
    this.view = new DataView(this.bytes.buffer)
  }

  /** Begins the only frame of the buffer. */
  begin(frame: number, flags = 0, count = 0, isOfProcess = false): void {
    this.length = 0
    if (this.bytes.length > KEPT_BYTES_MAX) this.#allocate(FIRST_BYTES)
    this.#start = this.take(Header.BYTES)
    const { view } = this
    view.setUint8(Header.frame, frame)
    view.setUint8(Header.flags, flags)
    view.setUint16(Header.count, count, true)
    view.setUint16(Header.model, isOfProcess ? 0 : this.model, true)
    view.setUint16(Header.instance, isOfProcess ? 0 : this.instance, true)
  }

  /** The whole frame, valid until the next one begins. */
  end(): Uint8Array {
    this.view.setUint32(this.#start + Header.length, this.length - this.#start - Header.BYTES, true)
    return this.bytes.subarray(this.#start, this.length)
  }

  u64(at: number, value: number): void {
    this.view.setUint32(at, value, true)
    this.view.setUint32(at + 4, value / 4294967296, true)
  }

  /** Appends bytes. */
  append(bytes: Uint8Array): void {
    const at = this.take(bytes.byteLength)
    this.bytes.set(bytes, at)
  }

  /** Appends a text; returns its size. */
  text(text: string): number {
    if (text === '') return 0
    const at = this.take(3 * text.length)
    const size = this.bytes.write(text, at)
    this.length = at + size
    return size
  }

  ids(ids: readonly number[]): void {
    for (const id of ids) this.u64(this.take(8), id)
  }

  /** Appends a response. @throws what `tensors` throws; nothing of it is in the buffer then. */
  response(
    tensors: readonly Tensor[],
    parameters: Parameters | null,
    flags: number,
    by: Reference,
    taken: Taken,
  ): void {
    const start = this.length
    const before = taken.undo.length
    try {
      const at = this.take(AnswerHead.BYTES)
      let size = 0
      if (parameters !== null) {
        size = this.text(parametersText(parameters))
        if (size > PARAMETERS_BYTES_MAX)
          throw new RuleError(`parameters of a response have at most ${PARAMETERS_BYTES_MAX} bytes, these have ${size}`)
      }
      this.#answer(at, Answer.RESPONSE, flags, tensors.length, 0, size, 0)
      this.tensors(tensors, 'output', by, taken)
    } catch (error) {
      this.length = start
      giveBack(taken, before)
      throw error
    }
  }

  /** Appends an answer that is an error. */
  error(code: keyof typeof Code, text: string, flags: number): void {
    const at = this.take(AnswerHead.BYTES)
    const size = this.text(cut(text))
    this.#answer(at, Answer.ERROR, flags, 0, Code[code], 0, size)
  }

  /** Appends an answer without content. */
  bare(kind: number, flags: number): void {
    this.#answer(this.take(AnswerHead.BYTES), kind, flags, 0, 0, 0, 0)
  }

  #answer(at: number, kind: number, flags: number, outputs: number, code: number, parameters: number, error: number) {
    const { view } = this
    view.setUint8(at + AnswerHead.kind, kind)
    view.setUint8(at + AnswerHead.flags, flags)
    view.setUint16(at + AnswerHead.outputs, outputs, true)
    view.setUint32(at + AnswerHead.code, code, true)
    view.setUint32(at + AnswerHead.parametersBytes, parameters, true)
    view.setUint32(at + AnswerHead.errorBytes, error, true)
  }

  /**
   * Appends tensors.
   *
   * @throws {NoRoom} if shared memory has to grow first.
   * @throws {RuleError} if they fit into no frame.
   */
  tensors(tensors: readonly Tensor[], kind: string, by: Reference, taken: Taken): void {
    if (tensors.length > TENSORS_MAX)
      throw new RuleError(`a message has at most ${TENSORS_MAX} ${kind}s, this one has ${tensors.length}`)
    let room = this.#blocks === null ? FRAME_BYTES_MAX : INLINE_BYTES_MAX
    for (const tensor of tensors) {
      const { buffer, offset, bytes } = contentsOf(tensor)
      if (bytes > 0 && buffer.byteLength === 0)
        throw new RuleError(`${kind} '${tensor.name}' is memory of a request that has ended`)
      if (bytes <= room) {
        room -= bytes
        this.#head(tensor, bytes, Place.INLINE, 0)
        this.append(new Uint8Array(buffer, offset, bytes))
      } else if (this.#blocks === null)
        throw new RuleError(`${kind} '${tensor.name}' has ${bytes} bytes, which do not fit into a message`)
      else this.#inSegment(this.#blocks, tensor, by, taken)
    }
  }

  #inSegment(blocks: ResponseBlocks, tensor: Tensor, by: Reference, taken: Taken): void {
    const { buffer, offset, bytes } = contentsOf(tensor)
    const lent = by === null ? undefined : this.#lent?.idOf(buffer)
    if (lent !== undefined) {
      this.#head(tensor, bytes, Place.REQUEST, lent + offset)
      if (by === 'call') {
        const end = (this.#lent as LentBlocks).use(buffer)
        taken.undo.push(end)
        taken.uses.push(end)
      } else (this.#lent as LentBlocks).name(buffer)
      return
    }
    const filled = blocks.takeFilled(buffer, offset, bytes)
    if (filled !== null) {
      taken.undo.push(() => blocks.untake(filled))
      this.#head(tensor, bytes, Place.RESPONSE, filled)
      return
    }
    const id = blocks.take(bytes)
    taken.undo.push(() => blocks.give(id))
    const block = blocks.bytesOf(id)
    block.all.set(new Uint8Array(buffer, offset, bytes), block.offset)
    this.#head(tensor, bytes, Place.RESPONSE, id)
  }

  #head(tensor: Tensor, bytes: number, place: number, id: number): void {
    const { shape } = tensor
    const name = this.#name(tensor.name)
    const rank = shape.length
    if (rank > RANK_MAX) throw new RuleError(`tensor '${tensor.name}' has ${rank} dimensions; ${RANK_MAX} are the most`)
    const at = this.take(TensorHead.BYTES + name.length + 8 * rank)
    const { view } = this
    view.setUint16(at + TensorHead.nameBytes, name.length, true)
    view.setUint8(at + TensorHead.datatype, DataType[tensor.datatype])
    view.setUint8(at + TensorHead.rank, rank)
    view.setUint8(at + TensorHead.place, place)
    view.setUint8(at + TensorHead.reserved, 0)
    view.setUint16(at + TensorHead.segment, segmentOf(id), true)
    this.u64(at + TensorHead.offset, offsetOf(id))
    this.u64(at + TensorHead.bytes, bytes)
    let end = at + TensorHead.BYTES
    this.bytes.set(name, end)
    end += name.length
    for (let i = 0; i < rank; i += 1) this.u64(end + 8 * i, shape[i] as number)
  }

  #name(name: string): Uint8Array {
    let bytes = this.#names.get(name)
    if (bytes === undefined) {
      bytes = Buffer.from(name)
      if (bytes.length > NAME_BYTES_MAX)
        throw new RuleError(`the name of a tensor has ${bytes.length} bytes; ${NAME_BYTES_MAX} are the most`)
      if (this.#names.size >= NAMES_CACHED_MAX) this.#names.clear()
      this.#names.set(name, bytes)
    }
    return bytes
  }
}

/** Parameters as JSON text. */
export function parametersText(parameters: Parameters): string {
  const text = JSON.stringify(parameters, (name, value: unknown) => {
    // JSON would make null of it.
    if (typeof value === 'number' && !Number.isFinite(value))
      throw new RuleError(`parameter '${name}' is ${value}, and numbers of parameters must be finite`)
    return typeof value === 'string' ? cut(value) : value
  })
  return text === '{}' ? '' : text
}

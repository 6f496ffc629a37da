/** Blocks of shared memory: those of requests, which the server lends, and those of responses, allocated here. */

import type { SharedMemory } from './channel.js'
import { ALIGNMENT, BLOCK_OFFSET_BITS } from './generated/protocol.js'

const SEGMENT_SPAN = 2 ** BLOCK_OFFSET_BITS
/** Id of a block. It is a whole number in JavaScript too: there are at most 64 segments. */
export const blockId = (segment: number, offset: number) => segment * SEGMENT_SPAN + offset
export const segmentOf = (id: number) => Math.floor(id / SEGMENT_SPAN)
export const offsetOf = (id: number) => id % SEGMENT_SPAN

interface Lent {
  readonly id: number
  readonly bytes: number
  /** Frames whose reader is not known to be done. */
  uses: number
  isOver: boolean
}

/** Blocks of requests. They are given back after the frame that names them, so that no frame names a free one. */
export class LentBlocks {
  readonly #memory: SharedMemory
  readonly #lent = new Map<ArrayBuffer, Lent>()
  readonly #report: () => void
  #reportBytes: number
  #named: Lent[] = []
  #free: number[] = []
  #freeBytes = 0

  /** `report` is called when so much memory is free that it should be told at once. */
  constructor(memory: SharedMemory, segmentBytes: number, report: () => void) {
    this.#memory = memory
    this.#reportBytes = segmentBytes / 4
    this.#report = report
  }

  added(segmentBytes: number): void {
    this.#reportBytes = segmentBytes / 4
  }

  take(segment: number, offset: number, bytes: number): ArrayBuffer {
    const buffer = this.#memory.request(segment, offset, bytes)
    this.#lent.set(buffer, { id: blockId(segment, offset), bytes, uses: 0, isOver: false })
    return buffer
  }

  /** Id of the block that a buffer is; undefined for other memory. */
  idOf(buffer: ArrayBuffer): number | undefined {
    return this.#lent.size === 0 ? undefined : this.#lent.get(buffer)?.id
  }

  /** A frame names the block: it is given back once the returned function has been called. */
  use(buffer: ArrayBuffer): () => void {
    const block = this.#lent.get(buffer)
    if (block === undefined) return () => {}
    block.uses += 1
    return () => {
      block.uses -= 1
      if (block.isOver && block.uses === 0) this.#release(block)
    }
  }

  /** A RESULT names the block, which stays until the next batch: frames of the two ways have no order. */
  name(buffer: ArrayBuffer): void {
    const block = this.#lent.get(buffer)
    if (block === undefined) return
    block.uses += 1
    this.#named.push(block)
  }

  /** The server has read the last RESULT. */
  batchCame(): void {
    if (this.#named.length === 0) return
    const named = this.#named
    this.#named = []
    for (const block of named) {
      block.uses -= 1
      if (block.isOver && block.uses === 0) this.#release(block)
    }
  }

  /** Ends the views of blocks. */
  end(buffers: readonly ArrayBuffer[]): void {
    for (const buffer of buffers) {
      const block = this.#lent.get(buffer)
      if (block === undefined) continue
      this.#lent.delete(buffer)
      this.#memory.detach(buffer)
      block.isOver = true
      if (block.uses === 0) this.#release(block)
    }
  }

  #release(block: Lent): void {
    this.#free.push(block.id)
    this.#freeBytes += block.bytes
    if (this.#freeBytes > this.#reportBytes) this.#report()
  }

  /** Ids of a frame that was not sent. */
  putBack(free: readonly number[]): void {
    if (free.length > 0) this.#free.push(...free)
  }

  /** Ids to give back. */
  takeFree(): readonly number[] {
    const free = this.#free
    if (free.length > 0) {
      this.#free = []
      this.#freeBytes = 0
    }
    return free
  }
}

/** A segment of responses: free ranges by start, in order; adjacent ranges are merged. */
class Segment {
  readonly buffer: ArrayBuffer
  readonly bytes: Uint8Array
  readonly #starts: number[] = [0]
  readonly #sizes: number[]
  readonly #used = new Map<number, number>()

  constructor(buffer: ArrayBuffer) {
    this.buffer = buffer
    this.bytes = new Uint8Array(buffer)
    this.#sizes = [buffer.byteLength]
  }

  take(size: number): number | null {
    const at = this.#sizes.findIndex((room) => room >= size)
    if (at < 0) return null
    const start = this.#starts[at] as number
    const room = this.#sizes[at] as number
    if (room === size) {
      this.#starts.splice(at, 1)
      this.#sizes.splice(at, 1)
    } else {
      this.#starts[at] = start + size
      this.#sizes[at] = room - size
    }
    this.#used.set(start, size)
    return start
  }

  sizeOf(start: number): number {
    return this.#used.get(start) ?? 0
  }

  give(start: number): void {
    let size = this.#used.get(start)
    if (size === undefined) return
    this.#used.delete(start)
    let at = this.#starts.findIndex((other) => other > start)
    if (at < 0) at = this.#starts.length
    if (this.#starts[at] === start + size) {
      size += this.#sizes[at] as number
      this.#starts.splice(at, 1)
      this.#sizes.splice(at, 1)
    }
    const before = at - 1
    if (before >= 0 && (this.#starts[before] as number) + (this.#sizes[before] as number) === start)
      this.#sizes[before] = (this.#sizes[before] as number) + size
    else {
      this.#starts.splice(at, 0, start)
      this.#sizes.splice(at, 0, size)
    }
  }
}

/** No segment has room for so many bytes. */
export class NoRoom extends Error {
  readonly bytes: number

  constructor(bytes: number) {
    super(`no room for ${bytes} bytes`)
    this.bytes = bytes
  }
}

/** Blocks of responses. */
export class ResponseBlocks {
  readonly #memory: SharedMemory
  readonly #segments: Segment[] = []
  readonly #need: (bytes: number) => void
  #waiting: { bytes: number; promise: Promise<boolean>; resolve(hasRoom: boolean): void } | null = null
  /** Blocks that a model fills itself, until they are sent. */
  readonly #filled = new Set<number>()

  /** `need` asks the server for a segment. */
  constructor(memory: SharedMemory, need: (bytes: number) => void) {
    this.#memory = memory
    this.#need = need
    this.#segments.push(new Segment(memory.responses(0)))
  }

  /** The server's answer to `need`: the number of a segment, or null. */
  came(segment: number | null): void {
    if (segment !== null) this.#segments.push(new Segment(this.#memory.responses(segment)))
    const waiting = this.#waiting
    this.#waiting = null
    waiting?.resolve(segment !== null)
  }

  /** Id of a new block. @throws {NoRoom} if no segment has room: `grow` helps. */
  take(bytes: number): number {
    const size = Math.max(1, Math.ceil(bytes / ALIGNMENT)) * ALIGNMENT
    for (const [number, segment] of this.#segments.entries()) {
      const offset = segment.take(size)
      if (offset !== null) return blockId(number, offset)
    }
    throw new NoRoom(size)
  }

  /** Asks for a segment, unless one is on its way; false if the server has none of so many bytes. */
  grow(bytes: number): Promise<boolean> {
    const waiting = this.#waiting
    if (waiting !== null)
      return waiting.promise.then((hasRoom) => hasRoom || (bytes < waiting.bytes && this.grow(bytes)))
    let resolve: (hasRoom: boolean) => void = () => {}
    const promise = new Promise<boolean>((settle) => (resolve = settle))
    this.#waiting = { bytes, promise, resolve }
    this.#need(bytes)
    return promise
  }

  /** Memory of a block. */
  bytesOf(id: number): { buffer: ArrayBuffer; all: Uint8Array; offset: number } {
    const { buffer, bytes } = this.#segments[segmentOf(id)] as Segment
    return { buffer, all: bytes, offset: offsetOf(id) }
  }

  /** A block for a model to fill; null without room, where a later one finds some. */
  fill(bytes: number): { buffer: ArrayBuffer; offset: number } | null {
    try {
      const id = this.take(bytes)
      this.#filled.add(id)
      return this.bytesOf(id)
    } catch (error) {
      if (!(error instanceof NoRoom)) throw error
      void this.grow(error.bytes)
      return null
    }
  }

  /** Takes over a block that a model has filled; null for other memory. */
  takeFilled(buffer: ArrayBuffer, offset: number, bytes: number): number | null {
    if (this.#filled.size === 0) return null
    const number = this.#segments.findIndex((segment) => segment.buffer === buffer)
    const id = blockId(number, offset)
    if (number < 0 || !this.#filled.has(id) || (this.#segments[number] as Segment).sizeOf(offset) < bytes) return null
    this.#filled.delete(id)
    return id
  }

  /** Puts back a filled block whose frame was not sent. */
  untake(id: number): void {
    this.#filled.add(id)
  }

  /** Frees blocks that were filled and never sent; no request of the model is open. */
  dropFilled(): void {
    for (const id of this.#filled) this.give(id)
    this.#filled.clear()
  }

  give(id: number): void {
    this.#segments[segmentOf(id)]?.give(offsetOf(id))
  }
}

/**
 * Memory for large bodies of replies, used again: a fresh buffer of a megabyte costs a garbage collection per few of them, and a page fault for each of its pages.
 *
 * Who has written a body out gives its buffer back. One that is not given back is the garbage collector's, as any other.
 */

/** Of the buffers that are kept for the next bodies, together. */
const KEPT_BYTES_MAX = 16 * 1024 * 1024

export class Buffers {
  /** By length, a power of two. */
  readonly #kept = new Map<number, ArrayBufferLike[]>()
  #bytes = 0
  /** Handed out. What is not among them is not taken back. */
  readonly #lent = new WeakSet<ArrayBufferLike>()

  /** Bytes that are kept. */
  get bytes(): number {
    return this.#bytes
  }

  /** A buffer of exactly this length; what it holds is not said. */
  take(length: number): Buffer {
    const size = 2 ** Math.ceil(Math.log2(Math.max(1, length)))
    if (size > KEPT_BYTES_MAX) return Buffer.allocUnsafeSlow(length)
    const kept = this.#kept.get(size)?.pop()
    if (kept !== undefined) this.#bytes -= size
    const memory = kept ?? Buffer.allocUnsafeSlow(size).buffer
    this.#lent.add(memory)
    return Buffer.from(memory, 0, length)
  }

  /** Nobody reads or writes `buffer` any more. Others than those of `take`, and those that were given back before, are let be. */
  give({ buffer: memory }: Buffer): void {
    const size = memory.byteLength
    if (!this.#lent.delete(memory) || this.#bytes + size > KEPT_BYTES_MAX) return
    this.#bytes += size
    const kept = this.#kept.get(size)
    if (kept === undefined) this.#kept.set(size, [memory])
    else kept.push(memory)
  }
}

/** Of the process: servers of one process have one event loop. */
export const replies = new Buffers()

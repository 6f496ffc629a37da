/**
 * Pool of memory for large response bodies. A fresh buffer of a megabyte costs a page fault for each of its pages, and
 * a garbage collection for every few buffers.
 *
 * A buffer is given back after its body was written out. Buffers that are not given back are garbage-collected.
 */

/** Maximum total size of the buffers in the pool. */
const KEPT_BYTES_MAX = 16 * 1024 * 1024

export class Buffers {
  /** Free buffers by length, a power of two. */
  readonly #kept = new Map<number, ArrayBufferLike[]>()
  #bytes = 0
  /** Buffers handed out; others are not taken back. */
  readonly #lent = new WeakSet<ArrayBufferLike>()

  /** Total size of the buffers in the pool. */
  get bytes(): number {
    return this.#bytes
  }

  /** Returns a buffer of exactly this length with unspecified contents. */
  take(length: number): Buffer {
    const size = 2 ** Math.ceil(Math.log2(Math.max(1, length)))
    if (size > KEPT_BYTES_MAX) return Buffer.allocUnsafeSlow(length)
    const kept = this.#kept.get(size)?.pop()
    if (kept !== undefined) this.#bytes -= size
    const memory = kept ?? Buffer.allocUnsafeSlow(size).buffer
    this.#lent.add(memory)
    return Buffer.from(memory, 0, length)
  }

  /** Takes back an unused buffer. Ignores buffers that are not from `take` or were given back before. */
  give({ buffer: memory }: Buffer): void {
    const size = memory.byteLength
    if (!this.#lent.delete(memory) || this.#bytes + size > KEPT_BYTES_MAX) return
    this.#bytes += size
    const kept = this.#kept.get(size)
    if (kept === undefined) this.#kept.set(size, [memory])
    else kept.push(memory)
  }
}

/** Process-wide, because the servers of a process share one event loop. */
export const replies = new Buffers()

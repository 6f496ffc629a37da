/**
 * Collects the garbage of an instance that has little to do. V8 does so only while code makes more: buffers of a burst
 * would stay until the next one, and a server that is short of memory because of them gives the model no request.
 */

import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Time without a batch after which an instance is idle. */
const IDLE_MS = 2000
/** Most batches in this time of an instance that is nearly idle, such as one whose clients repeat rejected requests. */
const BATCHES_MAX = 500
/** Bytes of buffers that may stay. */
const BUFFER_BYTES_KEPT = 16 << 20
/** The same while batches come: V8 itself collects instances that make many buffers. */
const BUFFER_BYTES_KEPT_NEARLY = 64 << 20
/** Longest time between collections that find little, in times of `IDLE_MS`. */
const WAIT_IDLES_MAX = 64
/** Largest heap that is collected: each MiB of small objects takes 1.5 ms, and a request may come meanwhile. */
const HEAP_BYTES_MAX = 64 << 20
/** The same while batches come. */
const HEAP_BYTES_MAX_NEARLY = 32 << 20

// A model may replace the global ones.
const { performance, setTimeout } = globalThis
const { memoryUsage } = process

type Collect = () => unknown

export class IdleCollector {
  readonly #idleMs: number
  readonly #make: () => Collect
  #isTimed = false
  /** Batches since the timer began. */
  #batches = 0
  /** Time before which no collection is made, because the last one found few unused buffers. */
  #notBeforeMs = 0
  /** How long that was after the last one. */
  #waitMs = 0
  #collect: Collect | null = null

  constructor(idleMs = IDLE_MS, make: () => Collect = collector) {
    this.#idleMs = idleMs
    this.#make = make
  }

  /** A batch came. */
  used(): void {
    this.#batches += 1
    if (!this.#isTimed) this.#later()
  }

  #later(): void {
    this.#isTimed = true
    this.#batches = 0
    setTimeout(() => {
      const isIdle = this.#batches === 0
      if (isIdle) this.#look(BUFFER_BYTES_KEPT, HEAP_BYTES_MAX)
      else if (this.#batches <= BATCHES_MAX) this.#look(BUFFER_BYTES_KEPT_NEARLY, HEAP_BYTES_MAX_NEARLY)
      this.#isTimed = false
      if (!isIdle) this.#later()
    }, this.#idleMs).unref()
  }

  #look(keptBytes: number, heapBytesMax: number): void {
    const { arrayBuffers } = memoryUsage()
    if (arrayBuffers < keptBytes || performance.now() < this.#notBeforeMs) return
    if (getHeapStatistics().used_heap_size > heapBytesMax) return
    this.#collect ??= this.#make()
    this.#collect()
    const isLittle = memoryUsage().arrayBuffers > arrayBuffers / 2
    this.#waitMs = isLittle ? Math.min(Math.max(2 * this.#waitMs, 2 * this.#idleMs), WAIT_IDLES_MAX * this.#idleMs) : 0
    this.#notBeforeMs = performance.now() + this.#waitMs
  }
}

/** V8's own collection. */
function collector(): Collect {
  if (globalThis.gc !== undefined) return globalThis.gc
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as Collect
  setFlagsFromString('--no-expose-gc')
  return collect
}

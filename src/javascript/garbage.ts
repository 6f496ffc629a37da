/**
 * Collects the garbage of an instance that has become idle. V8 does so only while code runs: buffers of a burst would
 * stay until the next one, and a server that is short of memory because of them gives the model no request.
 */

import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Time without a batch after which an instance is idle. */
const IDLE_MS = 2000
/** Most batches in this time of an instance that is nearly idle, such as one whose clients repeat rejected requests. */
const BATCHES_MAX = 100
/** Bytes of buffers that may stay. */
const BUFFER_BYTES_KEPT = 16 << 20
/** Largest heap that is collected: each MiB of small objects takes 1.5 ms, and a request may come meanwhile. */
const HEAP_BYTES_MAX = 64 << 20
/** The same while batches come. */
const HEAP_BYTES_MAX_NEARLY = 16 << 20

// A model may replace the global ones.
const { setTimeout } = globalThis
const { memoryUsage } = process

type Collect = () => unknown

export class IdleCollector {
  readonly #idleMs: number
  readonly #make: () => Collect
  #isTimed = false
  /** Batches since the timer began. */
  #batches = 0
  /** Bytes of buffers that live. */
  #living = 0
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
      if (this.#batches <= BATCHES_MAX) this.#look(isIdle ? HEAP_BYTES_MAX : HEAP_BYTES_MAX_NEARLY)
      this.#isTimed = false
      if (!isIdle) this.#later()
    }, this.#idleMs).unref()
  }

  #look(heapBytesMax: number): void {
    const { arrayBuffers } = memoryUsage()
    if (arrayBuffers < this.#living + BUFFER_BYTES_KEPT) return
    if (getHeapStatistics().used_heap_size > heapBytesMax) return
    this.#collect ??= this.#make()
    this.#collect()
    this.#living = memoryUsage().arrayBuffers
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

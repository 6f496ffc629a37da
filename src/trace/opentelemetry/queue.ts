/**
 * A bounded queue of spans for a collector, sent in batches, one message at a time. Nothing waits for it: spans that
 * find the queue full are dropped and counted, and so are those of a batch that the collector rejects.
 *
 * Replaces the SDK's batch span processor, which does not expose its count of dropped spans and logs them in other
 * words than Triton, whose operators search for them.
 */

import type { ReadableSpan } from '@opentelemetry/sdk-trace'

/** Sends one batch. Rejects when the collector did not accept it; must settle in a bounded time. */
export type SendSpans = (spans: ReadableSpan[]) => Promise<void>

export interface SpanQueueOptions {
  queueSpansMax: number
  batchSpansMax: number
  delayMs: number
}

export interface SpanCounts {
  exported: number
  /** Dropped because the queue was full. */
  dropped: number
  /** Rejected by the collector, or not accepted in time. */
  failed: number
}

export class SpanQueue {
  readonly counts: SpanCounts = { exported: 0, dropped: 0, failed: 0 }
  readonly #send: SendSpans
  readonly #options: SpanQueueOptions
  readonly #warn: (text: string) => void
  #queued: ReadableSpan[] = []
  #timer: NodeJS.Timeout | null = null
  /** The message that is being sent. */
  #sending: Promise<void> | null = null
  /** Each kind of loss is logged once, until a batch succeeds. */
  #loggedFull = false
  #loggedFailed = false

  constructor(send: SendSpans, options: SpanQueueOptions, warn: (text: string) => void) {
    this.#send = send
    this.#options = options
    this.#warn = warn
  }

  /** Number of queued spans, without those being sent. */
  get waiting(): number {
    return this.#queued.length
  }

  add(spans: readonly ReadableSpan[]): void {
    const room = this.#options.queueSpansMax - this.#queued.length
    this.#queued.push(...spans.slice(0, room))
    if (spans.length > room) this.drop(spans.length - room)
    this.#next()
  }

  get isFull(): boolean {
    return this.#queued.length >= this.#options.queueSpansMax
  }

  /** Counts spans that do not fit; a caller that checks `isFull` need not create them. */
  drop(count: number): void {
    this.counts.dropped += count
    if (!this.#loggedFull) this.#warn('BatchSpanProcessor queue is full - dropping span.')
    this.#loggedFull = true
  }

  /** Sends the queue. Resolves when all is sent or lost, at the latest after `timeoutMs`; the rest counts as failed. */
  async flush(timeoutMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<'late'>((resolve) => (timer = setTimeout(resolve, timeoutMs, 'late')))
    while (this.#sending !== null || this.#queued.length > 0) {
      this.#start()
      if ((await Promise.race([this.#sending, late])) === 'late') break
    }
    clearTimeout(timer)
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
    this.counts.failed += this.#queued.length
    this.#queued = []
  }

  /** Sends a full batch at once, or a partial one after the delay. */
  #next(): void {
    if (this.#sending !== null || this.#queued.length === 0) return
    if (this.#queued.length >= this.#options.batchSpansMax) return this.#start()
    if (this.#timer !== null) return
    this.#timer = setTimeout(() => {
      this.#timer = null
      this.#start()
    }, this.#options.delayMs)
    // The timer must not keep the process alive; closing flushes.
    this.#timer.unref()
  }

  #start(): void {
    if (this.#sending !== null || this.#queued.length === 0) return
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
    const batch = this.#queued.splice(0, this.#options.batchSpansMax)
    this.#sending = this.#send(batch)
      .then(
        () => {
          this.counts.exported += batch.length
          this.#loggedFull = false
          this.#loggedFailed = false
        },
        (error: unknown) => {
          this.counts.failed += batch.length
          const why = error instanceof Error ? error.message : String(error)
          if (!this.#loggedFailed)
            this.#warn(`the collector of traces rejects spans, which are lost until it accepts them: ${why}`)
          this.#loggedFailed = true
        },
      )
      .then(() => {
        this.#sending = null
        this.#next()
      })
  }
}

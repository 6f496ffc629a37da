/**
 * Spans on their way to a collector: a bounded queue, sent in batches, one message at a time. Nothing waits for it: a span that finds the
 * queue full is dropped and counted, and so are those of a batch that the collector does not take.
 *
 * The batch span processor of the SDK drops without a count that others could read, and says so in words of its own; operators look for
 * those of the reference.
 */

import type { ReadableSpan } from '@opentelemetry/sdk-trace'

/** Sends one batch. Rejects when the collector did not take it; must end in a bounded time. */
export type SendSpans = (spans: ReadableSpan[]) => Promise<void>

export interface SpanQueueOptions {
  queueSpansMax: number
  batchSpansMax: number
  delayMs: number
}

export interface SpanCounts {
  exported: number
  /** The queue was full. */
  dropped: number
  /** The collector did not take them, or not in time. */
  failed: number
}

export class SpanQueue {
  readonly counts: SpanCounts = { exported: 0, dropped: 0, failed: 0 }
  readonly #send: SendSpans
  readonly #options: SpanQueueOptions
  readonly #warn: (text: string) => void
  #waiting: ReadableSpan[] = []
  #timer: NodeJS.Timeout | null = null
  /** The message on its way. */
  #sending: Promise<void> | null = null
  /** The one message about each kind of loss was logged; a batch that arrives makes both new. */
  #toldFull = false
  #toldFailed = false

  constructor(send: SendSpans, options: SpanQueueOptions, warn: (text: string) => void) {
    this.#send = send
    this.#options = options
    this.#warn = warn
  }

  /** Spans that wait; those of the message on its way are no part of them. */
  get waiting(): number {
    return this.#waiting.length
  }

  add(spans: readonly ReadableSpan[]): void {
    const room = this.#options.queueSpansMax - this.#waiting.length
    this.#waiting.push(...spans.slice(0, room))
    if (spans.length > room) this.drop(spans.length - room)
    this.#next()
  }

  get isFull(): boolean {
    return this.#waiting.length >= this.#options.queueSpansMax
  }

  /** Counts spans that there is no room for: who sees that it is full need not make them. */
  drop(count: number): void {
    this.counts.dropped += count
    if (!this.#toldFull) this.#warn('BatchSpanProcessor queue is full - dropping span.')
    this.#toldFull = true
  }

  /** Sends what is there. Resolves when it is sent or lost, at the latest after `timeoutMs`; what is left then is counted as failed. */
  async flush(timeoutMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<'late'>((resolve) => (timer = setTimeout(resolve, timeoutMs, 'late')))
    while (this.#sending !== null || this.#waiting.length > 0) {
      this.#start()
      if ((await Promise.race([this.#sending, late])) === 'late') break
    }
    clearTimeout(timer)
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
    this.counts.failed += this.#waiting.length
    this.#waiting = []
  }

  /** Sends at once when there is a batch, else when the first span has waited its time. */
  #next(): void {
    if (this.#sending !== null || this.#waiting.length === 0) return
    if (this.#waiting.length >= this.#options.batchSpansMax) return this.#start()
    if (this.#timer !== null) return
    this.#timer = setTimeout(() => {
      this.#timer = null
      this.#start()
    }, this.#options.delayMs)
    // Ending is not to wait for it: who ends, flushes.
    this.#timer.unref()
  }

  #start(): void {
    if (this.#sending !== null || this.#waiting.length === 0) return
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
    const batch = this.#waiting.splice(0, this.#options.batchSpansMax)
    this.#sending = this.#send(batch).then(
      () => {
        this.counts.exported += batch.length
        this.#toldFull = false
        this.#toldFailed = false
      },
      (error: unknown) => {
        this.counts.failed += batch.length
        const why = error instanceof Error ? error.message : String(error)
        if (!this.#toldFailed) this.#warn(`the collector of traces does not take spans, which are lost until it does: ${why}`)
        this.#toldFailed = true
      },
    ).then(() => {
      this.#sending = null
      this.#next()
    })
  }
}

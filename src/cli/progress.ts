/**
 * Progress of slow loads: live lines on a terminal, one per loading version, redrawn in place below the log; and log
 * lines about slow loads, wherever the log goes.
 *
 * Nothing is drawn before `DELAY_MS`, so that a fast start does not flicker. Log lines pass through `around`, which
 * removes the live lines and draws them again, so the log stays readable and complete.
 */

import { cleanCell, fittingEnd } from '../log/index.js'
import type { LoadEvent } from '../repository/index.js'

const DELAY_MS = 150
const REDRAW_MS = 100
/** Assumed if a terminal does not report its width. */
const COLUMNS_UNKNOWN = 80
const ROWS_UNKNOWN = 24
/** Lines above the screen cannot be cleared; a low terminal gets fewer. */
const LINES_MAX = 12
const FRAMES = ['|', '/', '-', '\\']

export interface Terminal {
  columns: number
  rows: number
  write(text: string): void
}

/** A load that takes this long is logged at this interval, and once more with its duration at its end. */
const SLOW_MS = 10_000

/** Logs models that load slowly. */
export class SlowLoads {
  readonly #loading = new Map<string, { sinceMs: number; timer: NodeJS.Timeout }>()
  readonly #info: (message: string) => void

  constructor(info: (message: string) => void) {
    this.#info = info
  }

  observe(event: LoadEvent): void {
    const key = keyOf(event)
    const before = this.#loading.get(key)
    if (before !== undefined) clearInterval(before.timer)
    this.#loading.delete(key)
    if (event.phase === 'loading') {
      const sinceMs = performance.now()
      const timer = setInterval(
        () => this.#info(`still loading ${key}, ${Math.round((performance.now() - sinceMs) / 1000)} s`),
        SLOW_MS,
      )
      timer.unref()
      this.#loading.set(key, { sinceMs, timer })
    } else if (before !== undefined) {
      const seconds = (performance.now() - before.sinceMs) / 1000
      if (seconds * 1000 >= SLOW_MS)
        this.#info(
          event.phase === 'ready'
            ? `loaded ${key} in ${seconds.toFixed(1)} s`
            : `stopped waiting for ${key} after ${seconds.toFixed(1)} s`,
        )
    }
  }
}

function keyOf({ model, version }: LoadEvent): string {
  return version === null || version === 1 ? model : `${model}:${version}`
}

export class Progress {
  readonly #terminal: Terminal
  readonly #startedMs = performance.now()
  readonly #loading = new Map<string, number>()
  readonly #timer: NodeJS.Timeout
  #drawn = 0
  #frame = 0
  #done = 0

  constructor(terminal: Terminal) {
    this.#terminal = terminal
    this.#timer = setInterval(() => this.#redraw(), REDRAW_MS)
    this.#timer.unref()
  }

  observe(event: LoadEvent): void {
    // A directory, and so a model, may have any name.
    const key = cleanCell(event.version === null ? event.model : `${event.model}:${event.version}`)
    if (event.phase === 'loading') {
      this.#loading.set(key, performance.now())
    } else {
      this.#loading.delete(key)
      this.#done += 1
    }
  }

  /** Runs `write` while the live lines are cleared. */
  around(write: () => void): void {
    this.#erase()
    write()
    this.#draw()
  }

  /** Clears the lines for good. */
  end(): void {
    clearInterval(this.#timer)
    this.#loading.clear()
    this.#erase()
  }

  #redraw(): void {
    this.#frame += 1
    this.#erase()
    this.#draw()
  }

  #draw(): void {
    const now = performance.now()
    if (this.#loading.size === 0 || now - this.#startedMs < DELAY_MS) return
    const frame = FRAMES[this.#frame % FRAMES.length] ?? ''
    const lines = [...this.#loading]
      .slice(0, Math.max(1, Math.min(LINES_MAX, this.#terminal.rows - 2)))
      .map(([key, since]) => `${frame} loading ${key}  ${((now - since) / 1000).toFixed(1)} s`)
    if (this.#loading.size > lines.length)
      lines.push(`  and ${this.#loading.size - lines.length} more, ${this.#done} done`)
    for (const line of lines)
      this.#terminal.write(`${line.slice(0, fittingEnd(line, Math.max(1, this.#terminal.columns - 1)))}\n`)
    this.#drawn = lines.length
  }

  #erase(): void {
    // Cursor up, then clear to the end of the screen.
    if (this.#drawn > 0) this.#terminal.write(`\u001B[${this.#drawn}A\u001B[J`)
    this.#drawn = 0
  }
}

/** The terminal of stdout, or null if live lines are not useful there. */
export function liveTerminal(): Terminal | null {
  if (!process.stdout.isTTY || process.env['TERM'] === 'dumb') return null
  return {
    get columns() {
      // The width is 0 if the terminal does not report it, such as that of docker run -t at first.
      return process.stdout.columns || COLUMNS_UNKNOWN
    },
    get rows() {
      return process.stdout.rows || ROWS_UNKNOWN
    },
    write: (text) => void process.stdout.write(text),
  }
}

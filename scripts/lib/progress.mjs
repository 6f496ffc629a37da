/**
 * Reports jobs that run at the same time. On a terminal one line shows them with their progress; elsewhere a line is
 * printed every ten seconds, so that a log shows activity.
 */
const LINE_MS = 10_000
const TERMINAL_MS = 500

export class Progress {
  #running = new Map()
  #out = process.stderr
  #name
  #timer

  constructor(name) {
    this.#name = name
    this.#timer = setInterval(() => this.#show(), this.#out.isTTY ? TERMINAL_MS : LINE_MS)
    this.#timer.unref()
  }

  begin(job) {
    this.#running.set(job, { from: Date.now(), done: '' })
  }

  /** Sets a job's progress: `57 of 143 crates`. */
  tell(job, done) {
    const one = this.#running.get(job)
    if (one !== undefined) one.done = done
  }

  over(job, how) {
    this.#running.delete(job)
    this.#clear()
    this.#out.write(`${this.#name}: ${job} ${how}\n`)
  }

  end() {
    clearInterval(this.#timer)
    this.#clear()
  }

  #show() {
    const parts = [...this.#running].map(
      ([job, { from, done }]) => `${job}: ${done === '' ? '' : `${done}, `}${Math.round((Date.now() - from) / 1000)} s`,
    )
    if (parts.length === 0) return
    const text = `${this.#name}: ${parts.join(' · ')}`
    if (!this.#out.isTTY) this.#out.write(`${text}\n`)
    else {
      this.#clear()
      this.#out.write(text.slice(0, this.#out.columns - 1))
    }
  }

  /** The next output overwrites the line. */
  #clear() {
    if (this.#out.isTTY) this.#out.write('\r\x1b[K')
  }
}

/**
 * Messages to the service manager (systemd) that started this process, by the protocol of `sd_notify`: readiness,
 * status, stop and liveness. Without NOTIFY_SOCKET in the environment nothing is sent.
 *
 * An unreachable manager does not affect clients: there is one warning.
 */

import type { Ports } from '../api/ports.js'
import { notifyManager } from '../native/index.js'
import type { LoadEvent } from '../repository/index.js'

/** Minimum interval between status messages of loads: a thousand models must not send a thousand messages. */
const STATUS_MS = 100
/** Watchdog messages per period. */
const WATCHDOG_PARTS = 3
const STATUS_CHARS_MAX = 200

type Warn = (message: string) => void

export class ServiceManager {
  readonly #socket: string | null
  /** Watchdog period of the manager; null = it has none. */
  readonly #watchdogMs: number | null
  #warn: Warn | null = null
  #timer: NodeJS.Timeout | null = null
  readonly #loading = new Set<string>()
  #done = 0
  #failed = 0
  #toldMs = -STATUS_MS
  /** Status while nothing loads; null before the server is ready. */
  #serving: string | null = null

  /** Removes the protocol's variables from the environment: child processes must not send messages for the server. */
  constructor(environment: NodeJS.ProcessEnv, pid: number) {
    const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: time, WATCHDOG_PID: owner } = environment
    for (const variable of ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']) delete environment[variable]
    this.#socket = socket === undefined || socket === '' ? null : socket
    const us = time !== undefined && /^\d{1,15}$/.test(time) ? Number(time) : 0
    const isOurs = owner === undefined || owner === String(pid)
    this.#watchdogMs = this.#socket !== null && isOurs && us > 0 ? us / 1000 : null
  }

  /** Receives the warning that the manager cannot be reached. */
  set warn(warn: Warn) {
    this.#warn = warn
  }

  /** Sends the status of loading models. */
  observe({ model, version, phase }: LoadEvent): void {
    if (this.#socket === null) return
    const key = version === null ? model : `${model}:${version}`
    if (phase === 'loading') {
      this.#loading.add(key)
    } else {
      this.#loading.delete(key)
      if (phase === 'ready') this.#done += 1
      else this.#failed += 1
    }
    // Models may also load later; the status then returns to the serving one.
    if (this.#serving !== null && this.#loading.size === 0) return this.status(this.#serving)
    const now = performance.now()
    if (now - this.#toldMs < STATUS_MS) return
    this.#toldMs = now
    const failed = this.#failed === 0 ? '' : `, ${this.#failed} failed`
    this.status(`Loading ${[...this.#loading].join(', ')} (${this.#done} versions ready${failed})`)
  }

  status(text: string): void {
    this.#send(`STATUS=${oneLine(text)}`)
  }

  /** Announces readiness. Ports are for other managers: systemd ignores variables that begin with `X_`. */
  ready(status: string, ports: Ports): void {
    this.#serving = status
    this.#send(`READY=1\nX_NEREID_PORTS=${JSON.stringify(ports)}\nSTATUS=${oneLine(status)}`)
  }

  stopping(status: string): void {
    this.#send(`STOPPING=1\nSTATUS=${oneLine(status)}`)
  }

  /**
   * Feeds the manager's watchdog while `isAlive`. The timer proves that the JavaScript thread runs, `isAlive` that the
   * threads which own the connections do; if either stops, the manager restarts the server.
   */
  watch(isAlive: () => boolean): void {
    if (this.#watchdogMs === null) return
    this.#timer ??= setInterval(() => {
      if (isAlive()) this.#send('WATCHDOG=1')
    }, this.#watchdogMs / WATCHDOG_PARTS)
    this.#timer.unref()
  }

  #send(message: string): void {
    if (this.#socket === null) return
    try {
      notifyManager(this.#socket, message)
    } catch (error) {
      this.#warn?.((error as Error).message)
      this.#warn = null
    }
  }
}

/** The protocol has one variable per line; a line feed in a model's name must not start another. */
function oneLine(text: string): string {
  // oxlint-disable-next-line no-control-regex
  const clean = text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\p{Bidi_Control}]/gu, ' ')
  return clean.length > STATUS_CHARS_MAX ? `${clean.slice(0, STATUS_CHARS_MAX)}...` : clean
}

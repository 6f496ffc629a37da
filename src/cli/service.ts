/**
 * What the service manager (systemd) that started this process is told, by the protocol of `sd_notify`: that the server is ready, what it
 * does, that it stops, and that it is alive. Without NOTIFY_SOCKET in the environment nothing is said.
 *
 * A manager that cannot be told changes nothing for clients: it is a warning, once.
 */

import type { Ports } from '../api/ports.js'
import { notifyManager } from '../native/index.js'
import type { LoadEvent } from '../repository/index.js'

/** Loads tell of themselves this often at most: a thousand models must not be a thousand messages. */
const STATUS_MS = 100
/** A watchdog is fed this often within its time. */
const WATCHDOG_PARTS = 3
const STATUS_CHARS_MAX = 200

type Warn = (message: string) => void

export class ServiceManager {
  readonly #socket: string | null
  /** Time within which the manager wants to hear; null = it does not. */
  readonly #watchdogMs: number | null
  #warn: Warn | null = null
  #timer: NodeJS.Timeout | null = null
  readonly #loading = new Set<string>()
  #done = 0
  #failed = 0
  #toldMs = -STATUS_MS
  /** What is said while nothing loads; null before the server is ready. */
  #serving: string | null = null

  /** Takes the variables of the protocol out of the environment: programs that the server starts must not speak for it. */
  constructor(environment: NodeJS.ProcessEnv, pid: number) {
    const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: time, WATCHDOG_PID: owner } = environment
    for (const variable of ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']) delete environment[variable]
    this.#socket = socket === undefined || socket === '' ? null : socket
    const us = time !== undefined && /^\d{1,15}$/.test(time) ? Number(time) : 0
    const isOurs = owner === undefined || owner === String(pid)
    this.#watchdogMs = this.#socket !== null && isOurs && us > 0 ? us / 1000 : null
  }

  /** Where it is said that the manager cannot be reached. */
  set warn(warn: Warn) {
    this.#warn = warn
  }

  /** Follows the models that load. */
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
    // Models may come and go later, too: what is said then must not stay behind.
    if (this.#serving !== null && this.#loading.size === 0) return this.status(this.#serving)
    const now = performance.now()
    if (now - this.#toldMs < STATUS_MS) return
    this.#toldMs = now
    const failed = this.#failed === 0 ? '' : `, ${this.#failed} failed`
    this.status(`Loading ${[...this.#loading].join(', ')} (${this.#done} versions ready${failed})`)
  }

  status(text: string): void {
    this.#tell(`STATUS=${oneLine(text)}`)
  }

  /** Ports are for other managers: systemd passes over variables that begin with `X_`. */
  ready(status: string, ports: Ports): void {
    this.#serving = status
    this.#tell(`READY=1\nX_NEREID_PORTS=${JSON.stringify(ports)}\nSTATUS=${oneLine(status)}`)
  }

  stopping(status: string): void {
    this.#tell(`STOPPING=1\nSTATUS=${oneLine(status)}`)
  }

  /**
   * Feeds the manager's watchdog while `isAlive`. The timer is the sign of life of the JavaScript thread, what `isAlive` says that of the
   * threads that own the connections; without either the manager hears nothing and restarts the server.
   */
  watch(isAlive: () => boolean): void {
    if (this.#watchdogMs === null) return
    this.#timer ??= setInterval(() => {
      if (isAlive()) this.#tell('WATCHDOG=1')
    }, this.#watchdogMs / WATCHDOG_PARTS)
    this.#timer.unref()
  }

  #tell(message: string): void {
    if (this.#socket === null) return
    try {
      notifyManager(this.#socket, message)
    } catch (error) {
      this.#warn?.((error as Error).message)
      this.#warn = null
    }
  }
}

/** The protocol has a variable per line; a name of a model must not become one. */
function oneLine(text: string): string {
  // oxlint-disable-next-line no-control-regex
  const clean = text.replace(/[\u0000-\u001f\u007f]/g, ' ')
  return clean.length > STATUS_CHARS_MAX ? `${clean.slice(0, STATUS_CHARS_MAX)}...` : clean
}

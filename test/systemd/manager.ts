/** Drives manager.py: a service manager with one service. */

import { spawn, spawnSync, type ChildProcessWithoutNullStreams } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

export interface Told {
  command: string[]
  listen?: { name?: string; port?: number; kind?: 'tcp' | 'tcp6' | 'udp' | 'idle' | 'unix' }[]
  notify?: string
  env?: Record<string, string>
}

interface Said {
  ports?: number[]
  pid?: number
  notify?: string
  exit?: number
}

const WAIT_MS_MAX = 20_000

/** Why there can be none here; '' when there can. */
export const missing =
  process.platform !== 'linux'
    ? 'only Linux has systemd'
    : spawnSync('python3', ['--version']).status === 0
      ? ''
      : 'python3 is not installed'

export class Manager {
  readonly #process: ChildProcessWithoutNullStreams
  readonly said: Said[] = []
  /** Log of the service. */
  stderr = ''
  #waiting: (() => void)[] = []

  private constructor(told: Told) {
    this.#process = spawn('python3', [fileURLToPath(new URL('manager.py', import.meta.url)), JSON.stringify(told)], {
      stdio: 'pipe',
    })
    this.#process.stderr.on('data', (chunk: Buffer) => (this.stderr += chunk.toString()))
    createInterface({ input: this.#process.stdout }).on('line', (line) => {
      this.said.push(JSON.parse(line) as Said)
      const waiting = this.#waiting
      this.#waiting = []
      for (const wake of waiting) wake()
    })
  }

  static async of(told: Told): Promise<Manager> {
    const manager = new Manager(told)
    await manager.until('the sockets', () => manager.said.length > 0)
    return manager
  }

  get ports(): number[] {
    return this.said[0]?.ports ?? []
  }

  /** All variables that the service told, in order, as `NAME=value`. */
  get notified(): string[] {
    return this.said.flatMap((one) => one.notify?.split('\n') ?? [])
  }

  get exits(): number[] {
    return this.said.flatMap((one) => (one.exit === undefined ? [] : [one.exit]))
  }

  get pid(): number {
    return this.said.findLast((one) => one.pid !== undefined)?.pid ?? 0
  }

  async until(what: string, condition: () => boolean): Promise<void> {
    const end = performance.now() + WAIT_MS_MAX
    while (!condition()) {
      if (performance.now() > end)
        throw new Error(`waited too long for ${what}: ${JSON.stringify(this.said)}\n${this.stderr}`)
      await new Promise<void>((wake) => {
        this.#waiting.push(wake)
        setTimeout(wake, 100)
      })
    }
  }

  async start(): Promise<void> {
    const before = this.said.length
    this.#process.stdin.write('start\n')
    await this.until('the start', () => this.said.slice(before).some((one) => one.pid !== undefined))
  }

  async exited(): Promise<number> {
    await this.until('the end', () => this.exits.length === this.said.filter((one) => one.pid !== undefined).length)
    return this.exits.at(-1) ?? -1
  }

  async term(): Promise<number> {
    this.#process.stdin.write('term\n')
    return await this.exited()
  }

  async quit(): Promise<void> {
    if (this.#process.exitCode !== null) return
    const closed = new Promise((done) => this.#process.once('close', done))
    this.#process.stdin.write('quit\n')
    await closed
  }
}

/**
 * A process that runs the library of one repository agent (`crates/backend-host/src/agents.rs`, which describes its
 * messages). It lives while models use the agent. A library that fails costs this process only.
 */

import { spawn, type ChildProcess } from 'node:child_process'
import type { Duplex, Readable } from 'node:stream'
import type { Log } from '../config/index.js'
import { ServerError, asServerError, type LibraryProcess } from '../native/index.js'

/** The program and its environment. */
export type AgentHost = Pick<LibraryProcess, 'program' | 'library' | 'environment' | 'user' | 'missing'>

/** Maximum characters of a line that the library prints, and of an answer. */
const LINE_CHARS_MAX = 16 * 1024
const ANSWER_CHARS_MAX = 1024 * 1024

interface Waiting {
  done(answer: Record<string, unknown>): void
  failed(error: ServerError): void
}

export class AgentProcess {
  readonly #name: string
  readonly #child: ChildProcess
  readonly #socket: Duplex
  readonly #waiting = new Map<number, Waiting>()
  readonly #ended: Promise<void>
  #next = 1
  #models = 0
  #isEnding = false

  /** Starts the process; the agent is initialized before its first answer. */
  constructor(name: string, library: string, host: AgentHost, log: Log) {
    this.#name = name
    const stdio = ['ignore', 'pipe', 'pipe', 'pipe'] as const
    const args = [host.library, 'agent', library, ...(host.user === null ? [] : [`--user=${host.user}`])]
    // In a group of its own: signals of a terminal are for the server, which lets the agent finalize.
    const options = { env: host.environment, detached: true, stdio: [...stdio] }
    this.#child = spawn(host.program, args, options)
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      if (stream === null) continue
      eachLine(stream, LINE_CHARS_MAX, (line) => log('info', `repository agent '${name}': ${line}`))
    }
    this.#socket = this.#child.stdio[3] as Duplex
    // The end of the process says more.
    this.#socket.on('error', () => {})
    eachLine(this.#socket, ANSWER_CHARS_MAX, (line) => this.#answer(line))
    this.#ended = new Promise((done) => {
      const end = (why: string): void => {
        this.#isEnding = true
        const error = new ServerError('UNAVAILABLE', `the process of repository agent '${name}' ended: ${why}`)
        for (const { failed } of this.#waiting.values()) failed(error)
        this.#waiting.clear()
        done()
      }
      this.#child.once('error', (error) => end(error.message))
      this.#child.once('exit', (status, signal) => end(signal === null ? `status ${status}` : signal))
    })
  }

  /** False once it ends: a new model needs another process. */
  get isUsable(): boolean {
    return !this.#isEnding
  }

  /** Numbers a new model. The process ends with the last model that is closed. */
  add(): number {
    this.#models++
    return this.#next++
  }

  /** Notes that a model was closed, or never opened. */
  remove(): void {
    this.#models--
    if (this.#models === 0) this.end()
  }

  /** Resolves when the process has ended. */
  async gone(): Promise<void> {
    await this.#ended
  }

  /** Closes the socket: the agent ends its models, and the process itself. */
  end(): void {
    this.#isEnding = true
    this.#socket.end()
  }

  /** Waits for the end, and kills the process after `ms`. */
  async ended(ms: number): Promise<void> {
    this.end()
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), ms)
    await this.#ended
    clearTimeout(timer)
  }

  /** @throws {ServerError} the agent's, or `UNAVAILABLE` if the process has ended. */
  async ask(operation: string, members: object): Promise<Record<string, unknown>> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
      throw new ServerError('UNAVAILABLE', `the process of repository agent '${this.#name}' has ended`)
    }
    const id = this.#next++
    return new Promise((done, failed) => {
      this.#waiting.set(id, { done, failed })
      this.#socket.write(`${JSON.stringify({ id, operation, ...members })}\n`)
    })
  }

  #answer(line: string): void {
    let answer: Record<string, unknown>
    try {
      answer = JSON.parse(line) as Record<string, unknown>
    } catch {
      return
    }
    const id = Number(answer['id'])
    const waiting = this.#waiting.get(id)
    this.#waiting.delete(id)
    const error = answer['error'] as { code: string; message: string } | undefined
    if (error === undefined) waiting?.done(answer)
    else waiting?.failed(asServerError(Object.assign(new Error(error.message), { code: error.code })))
  }
}

/** Calls `take` with each line; what is beyond the limit is cut. */
function eachLine(stream: Readable, charsMax: number, take: (line: string) => void): void {
  let rest = ''
  stream.setEncoding('utf8')
  stream.on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    rest = (lines.pop() ?? '').slice(0, charsMax)
    for (const line of lines) take(line.slice(0, charsMax))
  })
  stream.on('end', () => {
    if (rest !== '') take(rest)
  })
}

/**
 * A process that runs the library of one repository agent (`crates/backend-host/src/agents.rs`, which describes its
 * messages). It lives while models use the agent. A library that fails costs this process only: one that sends what is
 * no answer, or does not answer in time, is killed.
 */

import { spawn, type ChildProcess } from 'node:child_process'
import type { Duplex } from 'node:stream'
import type { Log } from '../config/index.js'
import { ServerError, type LibraryProcess } from '../native/index.js'
import { eachLine, logLines, readAnswer, type AgentAnswer } from './agent_lines.js'

/** The program and its environment. */
export type AgentHost = Pick<LibraryProcess, 'program' | 'library' | 'environment' | 'user' | 'missing'>

/** Maximum characters of an answer; a longer one ends the process. */
const ANSWER_CHARS_MAX = 1024 * 1024

/**
 * Maximum time of an answer: a load waits for it, and in mode `poll` all models do. An agent may read and write the
 * whole model before it is opened.
 */
const ANSWER_MS_MAX = { open: 600_000, act: 60_000, close: 60_000 } as const

type Operation = keyof typeof ANSWER_MS_MAX

interface Waiting {
  operation: Operation
  done(answer: Record<string, unknown>): void
  failed(error: ServerError): void
}

export class AgentProcess {
  readonly #name: string
  readonly #child: ChildProcess
  /** Null if the process did not start. */
  readonly #socket: Duplex | null
  readonly #answerMsMax: Readonly<Record<Operation, number>>
  readonly #waiting = new Map<number, Waiting>()
  readonly #ended: Promise<void>
  #next = 1
  #models = 0
  /** For the answer that is next. */
  #timer: NodeJS.Timeout | undefined
  #isEnding = false
  #hasEnded = false
  /** Why we killed it, which says more than the signal. */
  #killedFor: string | null = null

  /** Starts the process; the agent is initialized before its first answer. */
  constructor(
    name: string,
    library: string,
    host: AgentHost,
    log: Log,
    answerMsMax: Readonly<Record<Operation, number>> = ANSWER_MS_MAX,
  ) {
    this.#name = name
    this.#answerMsMax = answerMsMax
    const stdio = ['ignore', 'pipe', 'pipe', 'pipe'] as const
    const args = [host.library, 'agent', library, ...(host.user === null ? [] : [`--user=${host.user}`])]
    // In a group of its own: signals of a terminal are for the server, which lets the agent finalize.
    const options = { env: host.environment, detached: true, stdio: [...stdio] }
    this.#child = spawn(host.program, args, options)
    // First of all: a process that could not be started may have none of its streams, and says why in this event only.
    this.#ended = new Promise((done) => {
      const end = (why: string): void => {
        this.#isEnding = true
        this.#hasEnded = true
        this.#fail(this.#killedFor ?? why)
        done()
      }
      this.#child.on('error', (error) => {
        // Also when a signal cannot be sent; such a process lives.
        if (this.#child.pid === undefined) end(error.message)
      })
      this.#child.once('exit', (status, signal) => end(signal === null ? `status ${status}` : signal))
    })
    const streams = [this.#child.stdout, this.#child.stderr].filter((stream) => stream !== null && stream !== undefined)
    logLines(streams, (line) => log('info', `repository agent '${name}': ${line}`))
    this.#socket = (this.#child.stdio?.[3] as Duplex | null | undefined) ?? null
    if (this.#socket === null) return
    // The end of the process says more.
    this.#socket.on('error', () => {})
    eachLine(this.#socket, ANSWER_CHARS_MAX, (line, isCut) => this.#answer(isCut ? null : readAnswer(line)))
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
    this.#socket?.end()
  }

  /** Waits for the end, and kills the process after `ms`. */
  async ended(ms: number): Promise<void> {
    this.end()
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), ms)
    await this.#ended
    clearTimeout(timer)
  }

  /** @throws {ServerError} the agent's, or `UNAVAILABLE` if the process has ended or does not answer in time. */
  async ask(operation: Operation, members: object): Promise<Record<string, unknown>> {
    const socket = this.#socket
    if (this.#hasEnded) {
      throw new ServerError('UNAVAILABLE', `the process of repository agent '${this.#name}' has ended`)
    }
    const id = this.#next++
    return new Promise((done, failed) => {
      this.#waiting.set(id, { operation, done, failed })
      if (this.#waiting.size === 1) this.#watch()
      // Without a socket the process ends at once, and all that wait fail with the reason.
      socket?.write(`${JSON.stringify({ id, operation, ...members })}\n`)
    })
  }

  /** Gives the next answer its time. Those behind it wait for the same thread of the process. */
  #watch(): void {
    clearTimeout(this.#timer)
    const [next] = this.#waiting.values()
    if (next === undefined) return
    const ms = this.#answerMsMax[next.operation]
    this.#timer = setTimeout(() => this.#kill(`no response in ${ms / 1000} s`), ms)
  }

  #fail(why: string): void {
    const error = new ServerError('UNAVAILABLE', `the process of repository agent '${this.#name}' ended: ${why}`)
    for (const { failed } of this.#waiting.values()) failed(error)
    this.#waiting.clear()
    clearTimeout(this.#timer)
  }

  #kill(why: string): void {
    this.#killedFor ??= why
    this.#isEnding = true
    // Before the end is seen: the kernel may hold the process for long.
    this.#fail(this.#killedFor)
    this.#child.kill('SIGKILL')
  }

  #answer(answer: AgentAnswer | null): void {
    const waiting = answer === null ? undefined : this.#waiting.get(answer.id)
    if (answer === null || waiting === undefined) {
      this.#kill('its message is not a valid response')
      return
    }
    this.#waiting.delete(answer.id)
    this.#watch()
    if (answer.error === null) waiting.done(answer.members)
    else waiting.failed(answer.error)
  }
}

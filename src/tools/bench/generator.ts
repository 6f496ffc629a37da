/** Runs `nereid-load`, the program that sends the requests and measures: one plan, one result. */

import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { CommandError, membersOf, nativeProgram } from '../../internal.js'

/** One response; server-sent events; or messages of a stream. */
export type Form = 'single' | 'events' | 'stream'

/** Times in us. */
export interface Times {
  mean: number
  std: number
  min: number
  p50: number
  p90: number
  p95: number
  p99: number
  p999: number
  max: number
}

/** Members as the program prints them. */
export interface Result {
  /** Requests that were answered without an error. */
  requests: number
  responses: number
  errors: number
  failures: { text: string; count: number }[]
  seconds: number
  rate: number
  /** Arrivals of an open loop that were never sent. */
  unsent: number
  latency_us: Times
  /** Upper ends in us, with counts. */
  histogram: [number, number][]
  late_us?: Times
  /** From the request to its first response, and from one to the next, where there may be several. */
  first_us?: Times
  between_us?: Times
  bytes_out: number
  bytes_in: number
  cpu_us: number
  series: { at_s: number; rate: number; p50_us: number; p99_us: number }[]
}

export interface Progress {
  at_s: number
  requests: number
  errors: number
  rate: number
  p50_us: number
  p99_us: number
}

/** Members as the program reads them. */
export interface Plan {
  protocol: 'http' | 'grpc'
  address: string
  tls: { ca?: string; certificate?: string; key?: string } | null
  path: string
  form: Form
  responses: 'one' | 'final'
  connections: number
  streams: number
  arrivals: 'closed' | 'constant' | 'poisson'
  rate: number
  seed: number
  warmup_s: number
  seconds: number
  requests_max: number
  /** After which a connection or a request has failed. */
  timeout_s: number
}

const PROGRAM = 'nereid-load'
/** Characters that are kept of an error text of the program. */
const PROBLEM_CHARS_MAX = 2000
/** Milliseconds that the program has to print its result after it was told to end. */
const END_MS_MAX = 2000
/** Seconds between lines of progress. */
const PROGRESS_S = 0.5

export class Generator {
  readonly #program: string
  readonly #directory = mkdtempSync(join(tmpdir(), 'nereid-bench-'))
  readonly #onProgress: (progress: Progress) => void
  #files = 0
  #stop: (() => void) | null = null
  readonly #stopped = new AbortController()

  constructor(onProgress: (progress: Progress) => void) {
    this.#onProgress = onProgress
    const { path, missing } = nativeProgram(PROGRAM)
    if (!existsSync(path)) throw new CommandError(`the load generator ${PROGRAM} is missing: ${missing}`)
    this.#program = path
  }

  /** Aborted when the user ends the measurements early. */
  get stopped(): AbortSignal {
    return this.#stopped.signal
  }

  get isStopped(): boolean {
    return this.stopped.aborted
  }

  file(bytes: Uint8Array): string {
    const path = join(this.#directory, String((this.#files += 1)))
    writeFileSync(path, bytes, { mode: 0o600 })
    return path
  }

  /** Ends the current measurement, which has a result, and all later ones. */
  stop(): void {
    this.#stopped.abort()
    this.#stop?.()
  }

  close(): void {
    rmSync(this.#directory, { recursive: true, force: true })
  }

  /**
   * @returns null if it was ended before there was a result
   * @throws {CommandError} with the text of the program if it has no result
   */
  async run(plan: Plan, requests: string): Promise<Result | null> {
    if (this.isStopped) return null
    const path = this.file(Buffer.from(JSON.stringify({ ...plan, requests, progress_s: PROGRESS_S })))
    // The end of its standard input ends it: it does not outlive this process.
    const child = spawn(this.#program, [path], { stdio: ['pipe', 'pipe', 'pipe'] })
    let last: NodeJS.Timeout | undefined
    this.#stop = () => {
      child.stdin.end()
      last = setTimeout(() => child.kill('SIGKILL'), END_MS_MAX)
    }
    child.stdin.on('error', () => {})
    let problem = ''
    child.stderr.on('data', (text: Buffer) => (problem = (problem + text.toString()).slice(-PROBLEM_CHARS_MAX)))
    let result: Result | null = null
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { progress, result: found } = membersOf(JSON.parse(line))
      if (progress !== undefined) this.#onProgress(progress as Progress)
      if (found !== undefined) result = found as Result
    })
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject)
      child.once('close', resolve)
    })
    this.#stop = null
    clearTimeout(last)
    rmSync(path, { force: true })
    if (result !== null || this.isStopped) return result
    throw new CommandError(problem.trim() === '' ? `${PROGRAM} ended with ${code} and no result` : problem.trim())
  }
}

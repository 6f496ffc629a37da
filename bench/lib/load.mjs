/** Drives the load generator: one answer for the check, a checked pass, timed runs. */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { answerTail, checkAnswer, grpcBody, httpBody } from '../messages.mjs'
import { cpuBetween, cpuSnapshot } from './process.mjs'
import { median } from './stats.mjs'

/**
 * Requests of a ring: enough that caches of heads and of headers do not hold them all, and no more memory than this.
 */
const RING_REQUESTS_MAX = 200
const RING_REQUESTS_MIN = 3
const RING_BYTES_MAX = 32 << 20
/** Different requests that are looked at one by one. */
const CHECKED = 8

const headerText = (headers) =>
  Object.entries(headers)
    .map(([k, v]) => `${k}:${v}`)
    .join(';')

/** A port of loopback, or a Unix socket as `unix:PATH`. */
const addressOf = (port) => (typeof port === 'string' ? port : `127.0.0.1:${port}`)

/** For subjects that speak TLS on all their ports. */
const overTls = (subject) => (subject.tls ? { tls: 'yes' } : {})

/** Headers for tracing, and a distant deadline on every other request over gRPC. */
function contextHeaders(i, transport) {
  const hex = (n, digits) => n.toString(16).padStart(digits, '0')
  const trace = { traceparent: `00-${hex(i + 1, 32)}-${hex(i + 1, 16)}-01` }
  return transport === 'gRPC' && i % 2 === 0 ? { ...trace, 'grpc-timeout': `${20_000 + i}m` } : trace
}

/** Drives a subject, and says what CPU that took of it: for each of what `units` counts in the result. */
async function charged(subject, drive, units) {
  const pids = subject.pids()
  const [main] = pids
  const before = cpuSnapshot(pids)
  const from = performance.now()
  const text = await drive()
  const after = cpuSnapshot(pids)
  const result = JSON.parse(text)
  const n = Math.max(1, units(result))
  const ofMain = (snapshot) => new Map([...snapshot].filter(([thread]) => thread.startsWith(`${main}/`)))
  return {
    result,
    cpuUs: cpuBetween(before, after) / n,
    /** Cores that the subject used. */
    cores: cpuBetween(before, after) / ((performance.now() - from) * 1000),
    // Without model processes, where a server has them.
    cpuMainUs: cpuBetween(ofMain(before), ofMain(after)) / n,
  }
}

/** The record of a run. */
const figures = (result, cpu) => ({
  rate: result.rate,
  p50: result.p50_us,
  p90: result.p90_us,
  p99: result.p99_us,
  p999: result.p999_us,
  requests: result.requests,
  errors: result.errors,
  unsent: result.unsent,
  firstError: result.first_error,
  ...cpu,
})

export class Generator {
  #binary
  #directory
  #files = 0
  /** First answer of each network, by workload: the reference of all others. */
  #references = new Map()

  constructor(binary, directory) {
    this.#binary = binary
    this.#directory = directory
    mkdirSync(directory, { recursive: true })
  }

  file(bytes) {
    const path = join(this.#directory, `${(this.#files += 1)}`)
    writeFileSync(path, bytes)
    return path
  }

  /**
   * Starts one of its commands, without blocking us: the output of servers is read meanwhile. `over` resolves with what
   * it printed.
   */
  #start(command, args) {
    const words = Object.entries(args).map(([name, value]) => `--${name}=${value}`)
    const child = spawn(this.#binary, [command, ...words], { stdio: ['pipe', 'pipe', 'pipe'] })
    let text = ''
    let problem = ''
    child.stdout.on('data', (chunk) => (text += chunk))
    child.stderr.on('data', (chunk) => (problem += chunk))
    // Told to end after it failed: its exit says so.
    child.stdin.on('error', () => {})
    const over = new Promise((resolve, reject) => {
      child.on('error', reject)
      child.on('exit', (code) =>
        code === 0
          ? resolve(text.trim())
          : reject(new Error(problem.trim() || `nereid-bench ${command} ended with ${code}`)),
      )
    })
    return { child, over }
  }

  load(args) {
    return this.#start('load', args).over
  }

  /**
   * Starts what is to go on beside a measurement. The function that comes back ends it and resolves with what it
   * printed.
   */
  beside(command, args = {}) {
    const { child, over } = this.#start(command, args)
    // Looked at when it is told to end.
    over.catch(() => {})
    const stop = () => {
      child.stdin.end()
      return over
    }
    return Object.assign(stop, { pid: child.pid })
  }

  /** One request: path, body and headers. Subjects with a protocol of their own bring `custom`. */
  #request(subject, workload, transport, form, regions) {
    const custom = subject.custom?.(workload, transport, form)
    if (custom !== undefined) return { headers: {}, ...custom, protocol: 'http' }
    if (transport === 'gRPC')
      return {
        protocol: 'grpc',
        path: '/inference.GRPCInferenceService/ModelInfer',
        body: grpcBody(workload),
        headers: {},
      }
    return { protocol: 'http', path: `/v2/models/${workload.model}/infer`, ...httpBody(workload, form, regions) }
  }

  /** Where a workload goes, as arguments: the same request again and again. */
  target(subject, workload, transport, form, regions) {
    if (workload.path !== undefined) {
      return {
        protocol: 'http',
        address: addressOf(subject.http),
        method: 'GET',
        path: workload.path,
        body: this.file(Buffer.alloc(0)),
        ...overTls(subject),
      }
    }
    const { protocol, path, body, headers } = this.#request(subject, workload, transport, form, regions)
    const port = protocol === 'grpc' ? subject.grpc : subject.http
    return {
      protocol,
      address: addressOf(port),
      path,
      headers: headerText(headers),
      body: this.file(body),
      ...overTls(subject),
    }
  }

  /** The same for varied traffic: requests that differ in id, data, rows, headers and deadline. */
  ring(subject, workload, transport, form, regions) {
    const one = this.#request(subject, workload, transport, form, regions)
    const count = Math.max(RING_REQUESTS_MIN, Math.min(RING_REQUESTS_MAX, Math.floor(RING_BYTES_MAX / one.body.length)))
    const parts = []
    for (let i = 0; i < count; i += 1) {
      const other = { ...workload.vary(i), model: workload.model }
      const { body, headers, counterAt = null } = this.#request(subject, other, transport, form, regions)
      const isRaw = form === 'binary' && (subject.custom === undefined || subject.isRaw)
      const hasTail = isRaw && other.expected !== undefined
      const tail = hasTail ? answerTail(other.expected, transport) : Buffer.alloc(0)
      const line =
        `${body.length} ${tail.length} ${counterAt ?? '-'} ` +
        `${headerText({ ...headers, ...contextHeaders(i, transport) })}\n`
      parts.push(Buffer.from(line), body, tail)
    }
    const port = one.protocol === 'grpc' ? subject.grpc : subject.http
    return {
      protocol: one.protocol,
      address: addressOf(port),
      path: one.path,
      ring: this.file(Buffer.concat(parts)),
      ...overTls(subject),
    }
  }

  async once(target) {
    const path = join(this.#directory, `once-${(this.#files += 1)}`)
    await this.load({ ...target, once: path })
    return readFileSync(path)
  }

  /**
   * The pass that looks at answers: one against what the workload says, then, under concurrency, each against the
   * first. Returns the answer, which the floors send back.
   */
  async check(cell) {
    const { subject, workload, transport, form, target } = cell
    const answer = await this.once(target)
    if (subject.decode !== undefined) {
      await this.#checkEach(cell)
    } else if (subject.verify !== undefined) {
      subject.verify(answer, workload)
    } else if (form === 'shm') {
      cell.verifyRegion()
    } else if (workload.expected !== undefined) {
      checkAnswer(answer, workload.expected, { transport, form, tolerance: workload.tolerance })
    } else {
      if (!this.#references.has(workload.name))
        this.#references.set(workload.name, answer.subarray(-workload.outputBytes))
      checkAnswer(answer, [this.#references.get(workload.name)], { transport, form, tolerance: workload.tolerance })
    }
    if (subject.answersVary) {
      // Every answer has a fresh id in it: some more are looked at one by one.
      for (let i = 0; i < 8; i += 1) subject.verify(await this.once(target), workload)
    } else if (workload.tolerance === undefined && !cell.answersVary) {
      const { connections, streams } = cell
      const requests = Math.min(
        2000,
        Math.max(connections * streams * 2, Math.floor((256 << 20) / Math.max(answer.length, 65536))),
      )
      const result = JSON.parse(
        await this.load({
          ...target,
          connections,
          streams,
          requests,
          warmup: 0,
          duration: 2,
          expect: this.file(answer),
        }),
      )
      if (result.errors > 0)
        throw new Error(
          `${result.errors} of ${result.requests + result.errors} answers were wrong: ${result.first_error}`,
        )
    }
    if (cell.traffic === 'varied') await this.#checkRing(cell)
    return answer
  }

  /** Different requests at once, as a batch has them: each must get the answer to itself. */
  async #checkEach({ subject, workload, transport, form }) {
    const one = async (i) => {
      const asked = { ...workload.vary(i), model: workload.model }
      const answer = await this.once(this.target(subject, asked, transport, form))
      const how = { transport: 'HTTP', form: 'binary', tolerance: asked.tolerance }
      checkAnswer(subject.decode(answer, asked), asked.wanted ?? asked.expected, how)
    }
    await Promise.all(Array.from({ length: CHECKED }, (_, i) => one(i)))
  }

  /** Every request of a ring is answered with what it must be, under the concurrency of the cell. */
  async #checkRing({ ring, connections, streams, subject }) {
    const verify = subject.kind === 'floor' ? {} : { verify: 'yes' }
    const result = JSON.parse(
      await this.load({ ...ring, ...verify, connections, streams, requests: 400, warmup: 0, duration: 2 }),
    )
    if (result.errors > 0)
      throw new Error(
        `${result.errors} of ${result.requests + result.errors} varied answers were wrong: ${result.first_error}`,
      )
  }

  /** One timed run of a cell, with the CPU the subject used for it. */
  async run(cell, seconds, { rate = cell.rate ?? 0, warmup = 0, seed = 1 } = {}) {
    const target = cell.traffic === 'varied' ? cell.ring : cell.target
    const args = {
      ...target,
      connections: cell.connections,
      streams: cell.streams,
      warmup,
      duration: seconds,
      rate,
      seed,
    }
    const { result, ...cpu } = await charged(
      cell.subject,
      () => this.load(args),
      (r) => r.requests,
    )
    return figures(result, cpu)
  }

  /**
   * The same by several generators at once, each with the connections of the cell and beginning elsewhere in the ring.
   * Rates add up; of percentiles, which do not, there are the median of all medians and the worst of the others.
   */
  async runTogether(cell, seconds, count) {
    const target = cell.traffic === 'varied' ? cell.ring : cell.target
    const one = (seed) =>
      this.load({
        ...target,
        connections: cell.connections,
        streams: cell.streams,
        warmup: 0.2,
        duration: seconds,
        rate: 0,
        seed,
      })
    const drive = async () => {
      const all = (await Promise.all(Array.from({ length: count }, (_, i) => one(i + 1)))).map((text) =>
        JSON.parse(text),
      )
      const sum = (key) => all.reduce((n, r) => n + r[key], 0)
      const worst = (key) => Math.max(...all.map((r) => r[key]))
      const firstError = all.find((r) => r.errors > 0)?.first_error ?? ''
      return JSON.stringify({
        rate: sum('rate'),
        requests: sum('requests'),
        errors: sum('errors'),
        unsent: sum('unsent'),
        first_error: firstError,
        p50_us: median(all.map((r) => r.p50_us)),
        p90_us: worst('p90_us'),
        p99_us: worst('p99_us'),
        p999_us: worst('p999_us'),
      })
    }
    const { result, ...cpu } = await charged(cell.subject, drive, (r) => r.requests)
    return figures(result, cpu)
  }

  /**
   * One run of requests with many responses. Rate, requests and CPU are those of responses; what the connections cost
   * is in them.
   */
  async stream(cell, args) {
    const { subject, transport } = cell
    const isGrpc = transport === 'gRPC'
    const target = { protocol: isGrpc ? 'grpc' : 'http', address: `127.0.0.1:${isGrpc ? subject.grpc : subject.http}` }
    const { result, ...cpu } = await charged(
      subject,
      () => this.#start('stream', { ...target, ...args }).over,
      (r) => r.responses,
    )
    return {
      rate: result.rate,
      p50: result.p50_us,
      p99: result.p99_us,
      requests: result.responses,
      errors: result.errors,
      unsent: 0,
      firstError: result.first_error,
      ...cpu,
    }
  }
}

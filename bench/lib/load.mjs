/** Drives the load generator: one answer for the check, a checked pass, timed runs. */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { checkAnswer, grpcBody, httpBody } from '../messages.mjs'
import { cpuBetween, cpuSnapshot } from './process.mjs'

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

  /** Starts one of its commands, without blocking us: the output of servers is read meanwhile. `over` resolves with what it printed. */
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
      child.on('exit', (code) => (code === 0 ? resolve(text.trim()) : reject(new Error(problem.trim() || `nereid-bench ${command} ended with ${code}`))))
    })
    return { child, over }
  }

  load(args) {
    return this.#start('load', args).over
  }

  /** Starts what is to go on beside a measurement. The function that comes back ends it and resolves with what it printed. */
  beside(command, args = {}) {
    const { child, over } = this.#start(command, args)
    // Looked at when it is told to end.
    over.catch(() => {})
    return () => {
      child.stdin.end()
      return over
    }
  }

  /** Where a workload goes, as arguments. Subjects with a protocol of their own bring `custom`. */
  target(subject, workload, transport, form, regions) {
    const custom = subject.custom?.(workload, transport)
    if (custom !== undefined) {
      const headers = Object.entries(custom.headers ?? {}).map(([k, v]) => `${k}:${v}`).join(';')
      return { protocol: 'http', address: `127.0.0.1:${subject.http}`, path: custom.path, headers, body: this.file(custom.body) }
    }
    if (transport === 'gRPC') {
      return {
        protocol: 'grpc',
        address: `127.0.0.1:${subject.grpc}`,
        path: '/inference.GRPCInferenceService/ModelInfer',
        body: this.file(grpcBody(workload)),
      }
    }
    const { body, headers } = httpBody(workload, form, regions)
    return {
      protocol: 'http',
      address: `127.0.0.1:${subject.http}`,
      path: `/v2/models/${workload.model}/infer`,
      headers: Object.entries(headers).map(([k, v]) => `${k}:${v}`).join(';'),
      body: this.file(body),
    }
  }

  async once(target) {
    const path = join(this.#directory, 'once')
    await this.load({ ...target, once: path })
    return readFileSync(path)
  }

  /**
   * The pass that looks at answers: one against what the workload says, then, under concurrency, each against the first. Returns
   * the answer, which the floors send back.
   */
  async check(cell) {
    const { subject, workload, transport, form, target } = cell
    const answer = await this.once(target)
    if (subject.verify !== undefined) {
      subject.verify(answer, workload)
    } else if (form === 'shm') {
      cell.verifyRegion()
    } else if (workload.expected !== undefined) {
      checkAnswer(answer, workload.expected, { transport, form })
    } else {
      if (!this.#references.has(workload.name)) this.#references.set(workload.name, answer.subarray(-workload.outputBytes))
      checkAnswer(answer, [this.#references.get(workload.name)], { transport, form, tolerance: workload.tolerance })
    }
    if (subject.answersVary) {
      // Every answer has a fresh id in it: some more are looked at one by one.
      for (let i = 0; i < 8; i += 1) subject.verify(await this.once(target), workload)
    } else if (workload.tolerance === undefined) {
      const { connections, streams } = cell
      const requests = Math.min(2000, Math.max(connections * streams * 2, Math.floor((256 << 20) / Math.max(answer.length, 65536))))
      const result = JSON.parse(
        await this.load({ ...target, connections, streams, requests, warmup: 0, duration: 2, expect: this.file(answer) }),
      )
      if (result.errors > 0) throw new Error(`${result.errors} of ${result.requests + result.errors} answers were wrong: ${result.first_error}`)
    }
    return answer
  }

  /** One timed run of a cell, with the CPU the subject used for it. */
  async run(cell, seconds, { rate = cell.rate ?? 0, warmup = 0, seed = 1 } = {}) {
    const pids = cell.subject.pids()
    const [main] = pids
    const before = cpuSnapshot(pids)
    const text = await this.load({ ...cell.target, connections: cell.connections, streams: cell.streams, warmup, duration: seconds, rate, seed })
    const after = cpuSnapshot(pids)
    const result = JSON.parse(text)
    const requests = Math.max(1, result.requests)
    const ofMain = (snapshot) => new Map([...snapshot].filter(([thread]) => thread.startsWith(`${main}/`)))
    return {
      rate: result.rate,
      p50: result.p50_us,
      p90: result.p90_us,
      p99: result.p99_us,
      p999: result.p999_us,
      requests: result.requests,
      errors: result.errors,
      unsent: result.unsent,
      firstError: result.first_error,
      cpuUs: cpuBetween(before, after) / requests,
      // Without model processes, where a server has them.
      cpuMainUs: cpuBetween(ofMain(before), ofMain(after)) / requests,
    }
  }
}

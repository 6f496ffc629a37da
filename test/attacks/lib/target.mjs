/** A running server under attack, and what a row may do with it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { answers, end, memoryMiB, start } from '../../../bench/lib/process.mjs'
import { nereidCommand } from '../../../bench/subjects/nereid.mjs'
import { ROOT } from '../../../scripts/setup.mjs'
import { RawConnection } from '../../server/raw.mjs'
import { Container } from './container.mjs'
import { besideHealth } from './health.mjs'
import { standardModels } from './servers.mjs'

const START_MS_MAX = 60_000
const ANSWER_MS_MAX = 60_000

/** Status, headers and text of an answer. @throws {Error} if a header stands twice, whose values `fetch` joins. */
async function heard(answer) {
  for (const [name, value] of answer.headers) {
    const values = value.split(', ')
    if (new Set(values).size < values.length) throw new Error(`an answer has ${name} twice: ${value}`)
  }
  return { status: answer.status, headers: answer.headers, text: await answer.text() }
}

/** A bare socket: `received` is everything that came, `ended` resolves when the server closed it. */
export class Socket {
  received = Buffer.alloc(0)

  constructor(socket) {
    this.socket = socket
    this.isClosed = false
    this.ended = new Promise((resolve) =>
      socket.once('close', () => {
        this.isClosed = true
        resolve()
      }),
    )
    socket.on('data', (chunk) => (this.received = Buffer.concat([this.received, chunk])))
    socket.on('error', () => {})
  }

  static open(port) {
    return new Promise((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port, noDelay: true })
      socket.once('error', reject)
      socket.once('connect', () => resolve(new Socket(socket)))
    })
  }

  send(data) {
    return new Promise((resolve) => this.socket.write(data, resolve))
  }

  /** Whether the server closes it within this time. */
  async endsWithin(ms) {
    let timer
    await Promise.race([this.ended, new Promise((resolve) => (timer = setTimeout(resolve, ms)))])
    clearTimeout(timer)
    return this.isClosed
  }

  destroy() {
    this.socket.destroy()
  }
}

export class Target {
  failures = []
  /** Whether rows have their whole volume. */
  isNightly = false
  /** Bytes that the server printed since it was ready. */
  printedBytes = 0

  static async start(description) {
    const root = mkdtempSync(join(tmpdir(), 'nereid-attack-'))
    if (description.standard) standardModels(root)
    await description.models(root)
    const { command, ports } = await nereidCommand(ROOT, [root], description.flags, description.program)
    const container = description.containerMiB === null ? null : Container.make(description.containerMiB)
    const before = [
      ...(description.descriptors === null ? [] : [`ulimit -n ${description.descriptors}`]),
      ...(container instanceof Container ? [container.enter] : []),
    ]
    const limited = before.length === 0 ? [] : ['-c', `${before.join(' && ')} && exec "$@"`, 'sh']
    const [program, args] = limited.length === 0 ? [command[0], command.slice(1)] : ['sh', [...limited, ...command]]
    // A server whose log goes elsewhere says nothing.
    const silent = description.flags.some((flag) => flag.startsWith('--log-file='))
    const ready = silent
      ? answers(`http://127.0.0.1:${ports.http}/v2/health/ready`)
      : description.program === undefined
        ? /Started HTTPService at/
        : /^listening$/m
    const options = { ready, timeoutMs: START_MS_MAX, env: description.env }
    const started = await start(`server "${description.name}"`, program, args, options)
    return Object.assign(new Target(description, root, started, ports), { container })
  }

  constructor(description, root, started, ports) {
    this.description = description
    this.root = root
    this.child = started.child
    this.pid = started.child.pid
    this.output = started.output
    // `output` keeps the end only.
    for (const stream of [this.child.stdout, this.child.stderr])
      stream.on('data', (chunk) => (this.printedBytes += chunk.length))
    this.httpPort = ports.http
    this.grpcPort = ports.grpc
    this.metricsPort = ports.metrics
    this.url = `http://127.0.0.1:${ports.http}`
  }

  get isAlive() {
    return this.child.exitCode === null && this.child.signalCode === null
  }

  /** Notes a failure of the row that runs; it goes on, so that one run tells everything. */
  check(ok, text) {
    if (!ok) this.failures.push(text)
  }

  /** Output of the server since `printedBytes` had this value; only the end is kept. */
  printedSince(bytes) {
    const count = this.printedBytes - bytes
    return count === 0 ? '' : this.output().slice(-count)
  }

  /** How much of something a row sends: a part in the usual run, all of it nightly. */
  volume(usual, nightly) {
    return this.isNightly ? nightly : usual
  }

  raw(port = this.httpPort) {
    return RawConnection.open(port)
  }

  socket(port = this.httpPort) {
    return Socket.open(port)
  }

  /** One POST over HTTP: status, headers and text of the answer. */
  async post(path, body, headers = {}) {
    const answer = await fetch(`${this.url}${path}`, {
      method: 'POST',
      body,
      headers,
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    })
    return await heard(answer)
  }

  async get(path) {
    return await heard(await fetch(`${this.url}${path}`, { signal: AbortSignal.timeout(ANSWER_MS_MAX) }))
  }

  /** Resident memory in MiB. */
  rssMiB() {
    return memoryMiB([this.pid], 'VmRSS')
  }

  async metrics() {
    const answer = await fetch(`http://127.0.0.1:${this.metricsPort}/metrics`, {
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    })
    return answer.text()
  }

  /** Sum of the samples of this name whose labels contain `labels`; undefined when there is none. */
  async metric(name, labels = '') {
    const found = sample(await this.metrics(), name, labels)
    return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0)
  }

  /** Runs `work` beside questions for health; see health.mjs. */
  health(work) {
    return besideHealth(this.httpPort, work)
  }

  /**
   * Runs `work` and tells how long a reactor was held meanwhile at most: the bound of the highest bucket of
   * `nereid_reactor_hold_seconds` that grew, in milliseconds of the reactor's own CPU time; `bounds` are those of all
   * buckets.
   */
  async hold(work) {
    const buckets = async () => sample(await this.metrics(), 'nereid_reactor_hold_seconds_bucket', '')
    const before = new Map((await buckets()).map(({ labels, value }) => [labels, value]))
    const result = await work()
    let below = 0
    let ms = 0
    const bounds = []
    for (const { labels, value } of await buckets()) {
      const bound = 1000 * Number(/le="([^"]+)"/.exec(labels)?.[1].replace('+Inf', 'Infinity'))
      bounds.push(bound)
      const grown = value - (before.get(labels) ?? 0)
      if (grown > below) ms = bound
      below = Math.max(below, grown)
    }
    if (below === 0) throw new Error('the server has no nereid_reactor_hold_seconds')
    return { result, ms, bounds }
  }

  /** Checks that hold after every attack. */
  async checkServes() {
    if (!this.isAlive) {
      this.check(
        false,
        `the server ended (${this.child.exitCode ?? this.child.signalCode}): ${this.output().slice(-400)}`,
      )
      return
    }
    try {
      const live = await this.get('/v2/health/live')
      this.check(live.status === 200, `health answered ${live.status} afterwards`)
      if (!this.description.standard) return
      const tensor = (name) => ({ name, shape: [1, 16], datatype: 'INT32', data: Array(16).fill(3) })
      const answer = await this.post(
        '/v2/models/simple/infer',
        JSON.stringify({ inputs: [tensor('INPUT0'), tensor('INPUT1')] }),
      )
      const sum = answer.status === 200 ? JSON.parse(answer.text).outputs[0].data[0] : answer.text
      this.check(sum === 6, `an inference answered ${JSON.stringify(sum).slice(0, 200)} afterwards`)
    } catch (error) {
      this.check(false, `no answer afterwards: ${error.message}`)
    }
  }

  async stop() {
    await end(this.child)
    if (this.container instanceof Container) await this.container.remove()
    rmSync(this.root, { recursive: true, force: true })
  }
}

/** Samples of one metric: labels as text, in the order of the exposition. */
function sample(text, name, labels) {
  const out = []
  for (const line of text.split('\n')) {
    if (!line.startsWith(name)) continue
    const match = /^[^{ ]+(\{.*\})? (\S+)/.exec(line)
    if (match === null || line.slice(0, name.length + 1).replace(/[{ ]$/, '') !== name) continue
    if (labels !== '' && !(match[1] ?? '').includes(labels)) continue
    out.push({ labels: match[1] ?? '', value: Number(match[2].replace('+Inf', 'Infinity')) })
  }
  return out
}

/**
 * Checks for each cloud: `askStore` uses its client against an emulator behind test/stores/between.mjs, `askServer`
 * starts servers whose repository is in the emulator.
 */
import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { answers, start } from '../../../bench/lib/process.mjs'
import { freePorts, listenFlags } from '../../../scripts/lib/ports.mjs'
import { addSub } from '../../../scripts/models/graphs.mjs'
import { ROOT } from '../../../scripts/setup.mjs'
import { CLOUD } from '../../../scripts/stores.mjs'
import { must } from './checks.mjs'

const READY_MS_MAX = 30_000
const SOON_MS_MAX = 5_000
/** A poll, a download and a load on a busy machine. */
const SEEN_MS_MAX = 30_000
const POLL_SECS = 1
const BIG = randomBytes(8 << 20)
const PARTS = 32
export const OBJECTS = {
  'repository/a/1/model.onnx': BIG,
  'repository/a/config.pbtxt': Buffer.from('name: "a"'),
  'repository/ab/1/model.onnx': Buffer.from('other'),
  'repository/odd +ü&%5c.txt': Buffer.from('odd'),
}

export const never = new AbortController().signal
export const clientOf = (scheme) => join(ROOT, 'dist', 'stores', `${scheme}.mjs`)

/** The version of a cloud's library, which also fills its emulator. */
export const clientVersion = (name) =>
  JSON.parse(readFileSync(join(ROOT, CLOUD, 'node_modules', name, 'package.json'), 'utf8')).version

/** Starts an emulator, and waits until it answers. */
export async function startEmulator(command, args, url, env = {}) {
  const child = spawn(command, args, { stdio: 'ignore', env: { ...process.env, ...env } })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  const until = Date.now() + READY_MS_MAX
  while (
    !(await fetch(url).then(
      () => true,
      () => false,
    ))
  ) {
    if (child.exitCode !== null || Date.now() > until) throw new Error(`${command} does not answer at ${url}`)
    await sleep(50)
  }
  return async () => {
    child.kill('SIGKILL')
    await ended
  }
}

export async function all(client) {
  const found = []
  for await (const page of client.list(never)) found.push(...page)
  return found
}

async function read(client, object, from = 0, to = object.size) {
  const parts = []
  for await (const part of await client.read(object, from, to, never)) parts.push(part)
  return Buffer.concat(parts)
}

/** Checks that `run` throws this kind of failure with these words. */
export async function mustThrow(failure, words, run) {
  const error = await run().then(
    () => null,
    (thrown) => thrown,
  )
  must(
    error?.failure === failure && error.message.includes(words),
    `expected ${failure} with "${words}", got ${error?.failure}: ${error?.message}`,
  )
  must(!error.message.includes('hidden'), `a secret is in the message: ${error.message}`)
}

async function soon(what, holds) {
  const until = Date.now() + SOON_MS_MAX
  while (!holds()) {
    must(Date.now() < until, `${what}: not within ${SOON_MS_MAX} ms`)
    await sleep(10)
  }
}

/**
 * @param place `{ scheme, url, environment, between, put(name, bytes) }` of a repository that holds OBJECTS and, in the
 *   model a, markers of directories; `urlOf(bucket)` is one in another bucket
 */
export async function askStore(checks, { scheme, url, urlOf, environment, between, put, markers }) {
  const { open } = await import(pathToFileURL(clientOf(scheme)).href)
  const client = await open(url, environment)
  const find = async (path) => (await all(client)).find((one) => one.path === path)
  await checks.step('a list has every object, with size and MD5, and the markers of directories', async () => {
    const found = new Map((await all(client)).map((one) => [one.path, one]))
    must(
      found.size === Object.keys(OBJECTS).length + markers.length && markers.every((name) => found.has(name)),
      `found ${[...found.keys()].join(', ')}`,
    )
    for (const [name, bytes] of Object.entries(OBJECTS)) {
      const { size, md5 } = found.get(name.replace('repository/', '')) ?? {}
      must(
        size === bytes.length && md5 === createHash('md5').update(bytes).digest('hex'),
        `${name}: ${size} bytes, ${md5}`,
      )
    }
  })
  await checks.step(`${PARTS} parts are read side by side`, async () => {
    const object = await find('a/1/model.onnx')
    const part = BIG.length / PARTS
    const parts = await Promise.all(
      Array.from({ length: PARTS }, (_, i) => read(client, object, i * part, (i + 1) * part)),
    )
    must(BIG.equals(Buffer.concat(parts)), 'the parts are other bytes')
    must(String(await read(client, await find('odd +ü&%5c.txt'))) === 'odd', 'an odd name is read as another')
    must((await read(client, object, 5, 5)).length === 0, 'no bytes are some')
  })
  await checks.step('an object that was written anew is known as another', async () => {
    await put('repository/ab/1/model.onnx', Buffer.from('first'))
    const object = await find('ab/1/model.onnx')
    await put('repository/ab/1/model.onnx', Buffer.from('again'))
    await mustThrow('changed', 'it differs from the listed object', () => read(client, object))
  })
  await checks.step('a bucket that is absent is told as that', async () => {
    const other = await open(urlOf('nobody'), environment)
    await mustThrow('absent', "'nobody' does not exist at", () => all(other))
    other.close()
  })
  await checks.step('an answer that storage is busy is asked again, a few times', async () => {
    between.answers.push({ status: 503, body: 'busy' }, { status: 500, body: '' })
    must((await all(client)).length === Object.keys(OBJECTS).length + markers.length, 'the list is another')
    between.answers.push(...Array.from({ length: 20 }, () => ({ status: 503, body: 'busy' })))
    await mustThrow('unavailable', 'answered 503', () => all(client))
    between.answers.length = 0
  })
  await checks.step('a connection that is cut ends the read, and no byte comes twice', async () => {
    const object = await find('a/1/model.onnx')
    between.cutAfter = 100_000
    const parts = []
    await mustThrow('unavailable', 'was cut', async () => {
      for await (const part of await client.read(object, 0, object.size, never)) parts.push(part)
    })
    between.cutAfter = null
    const got = Buffer.concat(parts)
    must(BIG.subarray(0, got.length).equals(got), 'other bytes came')
    must(BIG.subarray(got.length).equals(await read(client, object, got.length)), 'the rest is other bytes')
  })
  await checks.step('a read that nobody wants ends at once, and leaves no connection', async () => {
    const object = await find('a/1/model.onnx')
    const before = between.connections.size
    between.holdAfter = 1000
    const [stop, unread] = [new AbortController(), new AbortController()]
    const from = performance.now()
    const reading = (async () => {
      for await (const part of await client.read(object, 0, object.size, stop.signal))
        if (part.length > 0) stop.abort(new Error('enough'))
    })()
    must((await reading.catch((error) => error.message)) === 'enough', 'it ended in another way')
    await client.read(object, 0, object.size, unread.signal)
    unread.abort()
    must(performance.now() - from < SOON_MS_MAX, 'it took long')
    await soon('the connections end', () => between.connections.size <= before)
    between.holdAfter = null
    client.close()
    await soon('all connections end', () => between.connections.size === 0)
  })
  await checks.step('it prints nothing, and its process ends when it is closed', async () => {
    const program = `
      const { open } = await import(${JSON.stringify(pathToFileURL(clientOf(scheme)).href)})
      const client = await open(process.argv[1], process.env)
      const signal = new AbortController().signal
      for await (const page of client.list(signal))
        for (const object of page) if (object.size > 0) for await (const _ of await client.read(object, 0, 1, signal));
      client.close()`
    const child = spawn(process.execPath, ['--input-type=module', '-e', program, url], {
      env: { ...process.env, ...environment },
    })
    let printed = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (printed += String(text)))
    const code = await new Promise((resolve) => child.once('exit', resolve))
    must(code === 0 && printed === '', `it ended with ${code} and printed ${printed}`)
  })
  return open
}

/** A server of the repository at `url`, and what a client asks it. */
class CloudServer {
  static async start(url, environment, cache, ...flags) {
    const server = new CloudServer()
    const ports = await freePorts(3)
    const args = [
      join(ROOT, 'dist/cli/main.js'),
      `--model-repository=${url}`,
      `--repository-cache-directory=${cache}`,
      ...flags,
      ...listenFlags(ports),
    ]
    server.url = `http://127.0.0.1:${ports[0]}`
    server.metricsUrl = `http://127.0.0.1:${ports[2]}/metrics`
    const ready = answers(`${server.url}/v2/health/ready`)
    server.process = await start('the server', process.execPath, args, { ready, env: environment })
    return server
  }

  /** Asks with POST; `{ status, text }`. */
  async post(path, body = {}) {
    const answer = await fetch(`${this.url}${path}`, { method: 'POST', body: JSON.stringify(body) })
    return { status: answer.status, text: await answer.text() }
  }

  /** The version that answers a request to `model`. @throws {Error} for a failure, and for a wrong sum */
  async versionOf(model) {
    const tensor = (name) => ({ name, shape: [1, 16], datatype: 'INT32', data: Array(16).fill(3) })
    const { status, text } = await this.post(`/v2/models/${model}/infer`, {
      inputs: [tensor('INPUT0'), tensor('INPUT1')],
    })
    must(status === 200, `${model} answered ${status} ${text}: ${this.output()}`)
    const { model_version: version, outputs } = JSON.parse(text)
    must(outputs[0].data[0] === 6, `${model} says that 3 + 3 is ${outputs[0].data[0]}`)
    return Number(version)
  }

  isReady(model) {
    return fetch(`${this.url}/v2/models/${model}/ready`).then(({ status }) => status === 200)
  }

  async load(model) {
    const { status, text } = await this.post(`/v2/repository/models/${model}/load`)
    must(status === 200, `the load answered ${status} ${text}: ${this.output()}`)
  }

  /** The value of a metric of the repository. */
  async metric(name) {
    const page = await (await fetch(this.metricsUrl)).text()
    return Number(new RegExp(`^${name}\\{[^}]*\\} (\\d+)`, 'm').exec(page)?.[1])
  }

  /** Waits until `holds` resolves with true. */
  async sees(what, holds) {
    for (const from = Date.now(); !(await holds()); await sleep(50))
      must(Date.now() - from < SEEN_MS_MAX, `${what}: not within ${SEEN_MS_MAX} ms: ${this.output()}`)
  }

  output() {
    return this.process.output().slice(-2000)
  }

  /** Ends it as Kubernetes does, and resolves with its exit code. */
  async end() {
    const { child } = this.process
    if (child.exitCode !== null || child.signalCode !== null) return child.exitCode
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGTERM')
    const timer = setTimeout(() => child.kill('SIGKILL'), READY_MS_MAX)
    const code = await ended
    clearTimeout(timer)
    return code
  }
}

/**
 * Two servers, one that polls and one that loads on request, share a cache of the same repository.
 *
 * @param place `{ url, environment, cache, put(name, bytes), createBucket(), deleteBucket() }`: `put` writes an object
 *   below `url`, whose bucket is absent; `cache` is an empty directory
 */
export async function askServer(checks, { url, environment, cache, put, createBucket, deleteBucket }) {
  const upload = (version) => put(`sums/${version}/model.onnx`, addSub())
  const servers = []
  const begin = async (...flags) => {
    const server = await CloudServer.start(url, environment, cache, ...flags)
    servers.push(server)
    return server
  }
  try {
    const polling = await checks.step('a server loads a model of the bucket, and it answers', async () => {
      await createBucket()
      await put('sums/config.pbtxt', Buffer.from('max_batch_size: 8\n'))
      await upload(1)
      const server = await begin('--model-control-mode=poll', `--repository-poll-secs=${POLL_SECS}`)
      must((await server.versionOf('sums')) === 1, 'another version answers')
      must((await server.metric('nereid_download_bytes_total')) >= addSub().length, 'no downloads are counted')
      return server
    })
    const explicit = await checks.step('another one, in mode explicit, loads from the same cache', async () => {
      const server = await begin('--model-control-mode=explicit')
      must(!(await server.isReady('sums')), 'the model is loaded before a request')
      await server.load('sums')
      must((await server.versionOf('sums')) === 1, 'another version answers')
      const bytes = await server.metric('nereid_download_bytes_total')
      must(bytes === 0, `${bytes} bytes were downloaded again`)
      return server
    })
    // The other steps need both.
    if (polling === undefined || explicit === undefined) return
    await checks.step('polling finds a new version, and no request fails meanwhile', async () => {
      await upload(2)
      await polling.sees('version 2', async () => (await polling.versionOf('sums')) === 2)
      must((await explicit.versionOf('sums')) === 1, 'the other server loaded it without a request')
    })
    await checks.step('load and unload requests', async () => {
      await explicit.load('sums')
      must((await explicit.versionOf('sums')) === 2, 'another version answers')
      const { status } = await explicit.post('/v2/repository/models/sums/unload')
      must(status === 200, `the unload answered ${status}`)
      await explicit.sees('the unload', async () => !(await explicit.isReady('sums')))
      await explicit.load('sums')
      must((await explicit.versionOf('sums')) === 2, 'another version answers')
    })
    await checks.step('the bucket is deleted: what serves goes on, and a load request fails', async () => {
      await deleteBucket()
      const readable = () => polling.metric('nereid_repository_readable')
      await polling.sees('the failure', async () => (await readable()) === 0)
      // Some more polls.
      for (const from = Date.now(); Date.now() - from < 4 * POLL_SECS * 1000; await sleep(100)) {
        for (const server of [polling, explicit])
          must((await server.versionOf('sums')) === 2, 'another version answers')
      }
      const { status, text } = await explicit.post('/v2/repository/models/sums/load')
      must(status >= 400, `the load answered ${status} ${text}`)
      must((await explicit.versionOf('sums')) === 2, 'the failed load changed what serves')
      must((await readable()) === 0, 'the repository counts as readable')
    })
    await checks.step('the bucket is there again: both servers follow it', async () => {
      await createBucket()
      await put('sums/config.pbtxt', Buffer.from('max_batch_size: 8\n'))
      await upload(3)
      await polling.sees('version 3', async () => (await polling.versionOf('sums')) === 3)
      must((await polling.metric('nereid_repository_readable')) === 1, 'the repository counts as unreadable')
      await explicit.load('sums')
      must((await explicit.versionOf('sums')) === 3, 'another version answers')
    })
    await checks.step('SIGTERM ends both servers with code 0', async () => {
      for (const server of servers) {
        const code = await server.end()
        must(code === 0, `ended with ${code}: ${server.output()}`)
      }
    })
  } finally {
    for (const server of servers) await server.end()
  }
}

/** Checks for each client of cloud storage, against an emulator behind test/stores/between.mjs. */
import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { ROOT } from '../../../scripts/setup.mjs'
import { must } from './checks.mjs'

const READY_MS_MAX = 30_000
const SOON_MS_MAX = 5_000
const BIG = randomBytes(8 << 20)
const PARTS = 32
export const OBJECTS = {
  'repository/a/1/model.onnx': BIG, 'repository/a/config.pbtxt': Buffer.from('name: "a"'),
  'repository/ab/1/model.onnx': Buffer.from('other'), 'repository/odd +ü&%5c.txt': Buffer.from('odd'),
}

export const never = new AbortController().signal
export const clientOf = (scheme) => join(ROOT, 'dist', 'stores', `${scheme}.mjs`)

/** A program of this name: on the PATH or in one of these directories; null where it is not. */
export function programAt(name, ...directories) {
  const places = [...(process.env.PATH ?? '').split(delimiter), ...directories]
  return places.map((place) => join(place, name)).find((path) => existsSync(path)) ?? null
}

/** Starts an emulator, and waits until it answers. */
export async function startEmulator(command, args, url) {
  const child = spawn(command, args, { stdio: 'ignore' })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  const until = Date.now() + READY_MS_MAX
  while (!(await fetch(url).then(() => true, () => false))) {
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
  const error = await run().then(() => null, (thrown) => thrown)
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
    await mustThrow('changed', 'it is another object than was listed', () => read(client, object))
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

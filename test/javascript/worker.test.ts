/** B-JS-01, B-JS-05: the entry of a worker thread, over a stand-in of the native module. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MessageChannel, Worker, receiveMessageOnPort } from 'node:worker_threads'
import { afterAll, expect, test } from 'vitest'
import { ExecuteHead, Frame, Header, LogHead } from '../../src/javascript/generated/protocol.js'
import { writeRequest } from '../../src/javascript/outgoing.js'
import { Writer, nothingTaken } from '../../src/javascript/writer.js'
import { ROOT } from '../docs/pages.js'

const directory = mkdtempSync(join(tmpdir(), 'nereid-worker-'))
afterAll(() => rmSync(directory, { recursive: true }))

/** Carries frames as messages of a port. */
const LIBRARY = `const { port } = require('node:worker_threads').workerData
exports.attachRunner = (runner, wake) => {
  const waiting = []
  port.on('message', (frames) => waiting.push(frames) && wake())
  return {
    take: (into, at) => {
      const [next] = waiting
      if (next === undefined) return 0
      if (next.length > into.length - at) return -next.length
      into.set(waiting.shift(), at)
      return next.length
    },
    send: (way, frames) => void port.postMessage([way, Uint8Array.from(frames)]),
    print: (isError, text) => port.postMessage([isError ? 'err' : 'out', text]),
  }
}`
const library = join(directory, 'library.cjs')
writeFileSync(library, LIBRARY)

/** Runs a model whose `execute` has this body: kinds of frames that came, the exit code and what was printed. */
async function live(body: string, frames: readonly number[] = [Frame.EXECUTE, Frame.UNLOAD]) {
  const file = join(directory, 'model.mjs')
  const model = `export default { execute(requests, ctx) { ${body} } }`
  writeFileSync(file, `import { InferenceResponse } from 'nereid/backend'\n${model}\n`)
  const { port1: port, port2 } = new MessageChannel()
  const workerData = { library, runner: 1, port: port2 }
  const main = join(ROOT, 'dist/javascript/worker.js')
  // As src/api/javascript.ts does: source maps name files of the runtime, too.
  const execArgv = ['--enable-source-maps']
  const worker = new Worker(main, {
    workerData,
    env: {},
    stdout: true,
    stderr: true,
    execArgv,
    transferList: [port2],
  })
  const messages: unknown[] = []
  worker.on('message', (message) => messages.push(message))
  const printed = { out: '', err: '', log: '' }
  const writer = new Writer(null, null)
  writer.model = 1
  const came: number[] = []
  const send = () => port.postMessage(Uint8Array.from(writer.end()))
  const hear = ([way, sent]: ['out' | 'err', string] | [0 | 1, Uint8Array]) => {
    if (typeof sent === 'string') {
      printed[way as 'out' | 'err'] += sent
      return
    }
    if (sent[Header.frame] === Frame.LOG) {
      printed.log += Buffer.from(sent).toString('latin1', Header.BYTES + LogHead.BYTES)
      return
    }
    came.push(sent[Header.frame] ?? 0)
    const next = frames[came.length - 1]
    if (next === undefined) return
    writer.begin(next, 0, next === Frame.EXECUTE ? 1 : 0)
    if (next === Frame.EXECUTE) {
      writer.append(new Uint8Array(ExecuteHead.BYTES))
      writeRequest(writer, 0, 1, [], {}, nothingTaken())
    }
    send()
  }
  port.on('message', hear)
  writer.begin(Frame.LOAD, 2)
  writer.text(
    JSON.stringify({
      mode: 'run',
      instance: 'm_0',
      model: 'm',
      version: '1',
      model_directory: directory,
      version_directory: directory,
      file,
      arguments: {},
      inputs: [],
      outputs: [],
      decoupled: false,
      iterative: false,
      segments: null,
      config: '{ "name": "m" }',
    }),
  )
  send()
  const code = await new Promise<number>((resolve) => worker.on('exit', resolve))
  // The end may be told before the last messages are.
  for (let rest = receiveMessageOnPort(port); rest !== undefined; rest = receiveMessageOnPort(port)) hear(rest.message)
  port.close()
  // A model that posts to the main thread would keep it busy.
  expect(messages).toEqual([])
  return { came, code, ...printed }
}

test('a model has no port to the main thread', async () => {
  const post = "import('node:worker_threads').then(({ parentPort }) => parentPort.postMessage('busy'))"
  const { code, out } = await live(`return ${post}.then(() => [new InferenceResponse([])])`)
  expect([code, out]).toEqual([0, ''])
})

test('a worker runs batches and ends with UNLOAD; the console of a model is its own', async () => {
  const ended = await live("console.log('out'); console.error('err'); return [new InferenceResponse([])]")
  expect(ended).toEqual({ came: [Frame.READY, Frame.RESULT], code: 0, out: 'out\n', err: 'err\n', log: '' })
})

test('process.exit of a model ends its worker only', async () => {
  expect(await live("console.log('bye'); process.exit(7)")).toEqual({
    came: [Frame.READY],
    code: 7,
    out: 'bye\n',
    err: '',
    log: '',
  })
})

test('an uncaught exception or rejection ends a worker with 1 after its stack', async () => {
  const error = "new Error('outside')"
  for (const wrong of [`setTimeout(() => { throw ${error} })`, `void Promise.reject(${error})`]) {
    const { code, err } = await live(`${wrong}; return new Promise(() => {})`)
    expect([code, err]).toEqual([1, expect.stringMatching(/^Uncaught Error: outside\n {4}at .*model\.mjs:2:/)])
  }
})

test('frames of the runtime are in no text', async () => {
  const { log } = await live("ctx.logger.info('one'); throw new Error('two')")
  expect(log).toMatch(/^model\.mjsone/)
  expect(log).toMatch(/message: Error: two\n {4}at [^\n]*model\.mjs:2:/)
  expect(log).not.toMatch(/(?:src|dist)\/javascript|node:/)
})

/**
 * Servers that a user would pick instead, in Python and Node, each as its documentation recommends for more than one
 * core. Where a framework has no protocol of its own, the body is the raw bytes of the inputs and the answer those of
 * the outputs, which is the cheapest thing they can do. `decode` finds those bytes in an answer.
 */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { UWS, uwsModule } from '../../test/embed/uws_module.mjs'
import { answers, processTree, start } from '../lib/process.mjs'
import { MODELS } from '../models/generate.mjs'

const bytesOf = (workload) => Buffer.concat(workload.inputs.map((t) => t.data))
const json = (path, value) => ({
  path,
  body: Buffer.from(JSON.stringify(value)),
  headers: { 'Content-Type': 'application/json' },
})
const typed = ({ inputs: [{ datatype }] }) => (datatype === 'INT32' ? Int32Array : Float32Array)

/** For frameworks that pass bytes through. */
export const rawBytes = {
  isRaw: true,
  custom: (workload) =>
    workload.input === undefined
      ? { path: '/infer', body: bytesOf(workload), headers: { 'Content-Type': 'application/octet-stream' } }
      : json('/infer', { input: workload.input }),
  decode: (answer) => answer,
}
/** Lists of numbers, or a text. */
export const lists = {
  custom: (workload) =>
    json('/predict', { input: workload.input ?? [...new (typed(workload))(new Uint8Array(bytesOf(workload)).buffer)] }),
  decode: (answer, workload) => {
    const { output } = JSON.parse(answer.toString())
    return Buffer.from(typed(workload.input === undefined ? workload : { inputs: [{}] }).from(output).buffer)
  },
}

async function startPeer(ctx, name, program, words, { ready, env, ...more }) {
  const [http] = await freePorts(1)
  const { child } = await start(name, program, words(`${http}`), {
    prompt: true,
    ready: ready(http),
    env: { PATH: `${dirname(program)}:${process.env.PATH}`, ...env },
    cwd: ctx.work,
    timeoutMs: 120_000,
  })
  return { name, kind: 'peer', transports: ['HTTP'], child, http, pids: () => processTree(child.pid), ...more }
}

/** Environment that bench/peers/models.py reads. */
export const modelOf = (ctx, model, file, threads) => ({
  BENCH_MODEL: model,
  BENCH_FILE: file,
  BENCH_THREADS: `${threads}`,
  PYTHONPATH: `${ctx.root}/bench/peers:${ctx.root}/bench/frameworks`,
})

/** FastAPI in so many processes of uvicorn, with uvloop and httptools. */
export const startFastApi = (ctx, name, python, model, file, [workers, threads]) =>
  startPeer(
    ctx,
    name,
    python,
    (port) => [
      '-m',
      'uvicorn',
      'fastapi_server:app',
      '--host',
      '127.0.0.1',
      '--port',
      port,
      '--workers',
      `${workers}`,
      '--no-access-log',
    ],
    {
      ready: () => new RegExp(`(?:Application startup complete[^]*){${workers}}`),
      env: modelOf(ctx, model, file, threads),
      ...rawBytes,
    },
  )

/** LitServe with batches and so many processes that run the model. */
export const startLitServe = (ctx, name, python, model, file, [workers, threads]) =>
  startPeer(ctx, name, python, (port) => [join(ctx.root, 'bench/peers/litserve_server.py'), port, `${workers}`], {
    ready: (port) => answers(`http://127.0.0.1:${port}/health`),
    env: modelOf(ctx, model, file, threads),
    ...lists,
    // Its workers look for requests each millisecond, which takes a fifth of a core.
    isRestless: true,
  })

/** A server of Node, in one process; `main` is what node_simple.mjs starts. */
export async function startNode(ctx, name, main, more = {}) {
  if (main === 'uws') await uwsModule()
  const fastify = JSON.parse(readFileSync(join(ctx.root, 'node_modules/fastify/package.json'), 'utf8')).version
  return startPeer(ctx, name, process.execPath, (port) => [join(ctx.root, 'bench/peers/node_simple.mjs'), main, port], {
    ready: (port) => answers(`http://127.0.0.1:${port}/ready`),
    env: { BENCH_MODEL: join(MODELS, 'simple', '1', 'model.onnx') },
    version: main === 'uws' ? UWS.version : fastify,
    ...rawBytes,
    ...more,
  })
}

/** Fastify with the code of the model in TypeScript, as raw bytes and as JSON. */
export async function startFastify(ctx) {
  const numbers = ({ data }) => [...new Int32Array(new Uint8Array(data).buffer)]
  return startNode(ctx, FASTIFY, 'fastify-code', {
    custom: (workload, transport, form) =>
      form === 'json'
        ? json('/json', { a: numbers(workload.inputs[0]), b: numbers(workload.inputs[1]) })
        : rawBytes.custom(workload),
    decode: (answer) => {
      if (answer[0] !== 0x7b) return answer
      const { sum, difference } = JSON.parse(answer.toString())
      return Buffer.from(Int32Array.from([...sum, ...difference]).buffer)
    },
  })
}
export const FASTIFY = 'Fastify'

/**
 * Servers that a user would pick for the same small ONNX model, in Python and Node, each with what its documentation
 * recommends: one worker process, ONNX Runtime inside. They serve `simple`; where a framework has no protocol of its
 * own, the body is the 128 raw bytes of both inputs and the answer those of both outputs, which is the cheapest thing
 * they can do.
 */
import { dirname, join } from 'node:path'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { UWS, uwsModule } from '../../test/embed/uws_module.mjs'
import { answers, processTree, start } from '../lib/process.mjs'
import { peerEnvironment } from '../lib/venv.mjs'
import { MODELS } from '../models/generate.mjs'

const MODEL = join(MODELS, 'simple', '1', 'model.onnx')
const bytesOf = (workload) => Buffer.concat(workload.inputs.map((t) => t.data))
const sums = (workload) => Buffer.concat(workload.expected)

/** For frameworks that pass bytes through. */
const rawBytes = {
  custom: (workload) => ({
    path: '/simple', body: bytesOf(workload), headers: { 'Content-Type': 'application/octet-stream' },
  }),
  verify(answer, workload) {
    if (!answer.equals(sums(workload))) throw new Error(`wrong answer: ${answer.toString('hex')}`)
  },
}

/** A server of Node; `packages` are what it is made of. */
const ofNode = (name, main) => ({
  name: `${name} + onnxruntime-node`, main, command: (port, here) => [join(here, 'node_simple.mjs'), main, `${port}`],
  ready: '/ready', ...rawBytes,
})

const PEERS = [
  ofNode('uWebSockets.js', 'uws'),
  ofNode('Fastify', 'fastify'),
  {
    name: 'FastAPI + onnxruntime',
    peer: 'fastapi',
    packages: ['fastapi==0.165.0', 'uvicorn==0.54.0', 'onnxruntime', 'numpy'],
    main: 'fastapi',
    command: (port, here) => [
      '-m', 'uvicorn', '--app-dir', here, 'fastapi_simple:app', '--host', '127.0.0.1', '--port', `${port}`,
      '--no-access-log', '--log-level', 'warning'
    ],
    ready: '/ready',
    ...rawBytes,
  },
  {
    name: 'LitServe',
    peer: 'litserve',
    packages: ['litserve==0.2.19', 'onnxruntime'],
    main: 'litserve',
    command: (port, here) => [join(here, 'litserve_simple.py'), `${port}`],
    ready: '/health',
    custom: (workload) => ({
      path: '/predict',
      body: Buffer.from(JSON.stringify({ input: [...new Int32Array(new Uint8Array(bytesOf(workload)).buffer)] })),
      headers: { 'Content-Type': 'application/json' },
    }),
    verify(answer, workload) {
      const { output } = JSON.parse(answer.toString())
      if (!Buffer.from(Int32Array.from(output).buffer).equals(sums(workload)))
        throw new Error(`wrong answer: ${answer}`)
    },
  },
  {
    name: 'mosec',
    peer: 'mosec',
    packages: ['mosec==0.9.8', 'onnxruntime', 'numpy'],
    main: 'mosec',
    command: (port, here) => [
      join(here, 'mosec_simple.py'), '--port', `${port}`, '--address', '127.0.0.1', '--log-level', 'warning'
    ],
    ready: '/metrics',
    ...rawBytes,
    custom: (workload) => ({
      path: '/inference', body: bytesOf(workload), headers: { 'Content-Type': 'application/octet-stream' },
    }),
  },
  {
    name: 'MLServer',
    peer: 'mlserver',
    packages: ['mlserver==1.7.1', 'onnxruntime'],
    main: 'mlserver',
    transports: ['HTTP', 'gRPC'],
    form: 'json',
    ready: '/v2/health/ready',
  },
]

/** Node, which finds the packages of the clone, as `peerEnvironment`. @throws {Error} if there is no uWebSockets.js */
async function nodeEnvironment(root, main) {
  if (main === 'uws') await uwsModule()
  const fastify = JSON.parse(readFileSync(join(root, 'node_modules', 'fastify', 'package.json'), 'utf8')).version
  const versions = { uws: UWS.version, fastify, 'fastify-code': fastify }
  return { program: process.execPath, bin: dirname(process.execPath), version: (main) => versions[main] }
}

async function startMlServer(peer, environment, here, work) {
  const [http, grpc, metrics] = await freePorts(3)
  const directory = join(work, 'mlserver')
  mkdirSync(directory, { recursive: true })
  const settings = {
    http_port: http, grpc_port: grpc, metrics_port: metrics, host: '127.0.0.1', parallel_workers: 0, debug: false,
    access_log: false,
  }
  writeFileSync(join(directory, 'settings.json'), JSON.stringify(settings))
  writeFileSync(
    join(directory, 'model-settings.json'),
    JSON.stringify({ name: 'simple', implementation: 'mlserver_simple.Simple' }),
  )
  const { child } = await start(peer.name, join(environment.bin, 'mlserver'), ['start', directory], {
    prompt: true,
    ready: answers(`http://127.0.0.1:${http}${peer.ready}`),
    env: { PATH: `${environment.bin}:${process.env.PATH}`, PYTHONPATH: here, BENCH_MODEL: MODEL },
    cwd: directory,
  })
  return { child, http, grpc }
}

async function startPeer(peer, root, work, say) {
  const here = join(root, 'bench', 'peers')
  const environment =
    peer.packages === undefined ? await nodeEnvironment(root, peer.main)
      : await peerEnvironment(root, peer.peer, peer.packages, say)
  const version = environment.version(peer.main)
  const common = {
    kind: 'peer', transports: peer.transports ?? ['HTTP'], form: peer.form ?? 'binary', models: { simple: 'simple' },
    version,
  }
  if (peer.peer === 'mlserver') {
    const { child, http, grpc } = await startMlServer(peer, environment, here, work)
    const verify = (answer, workload) => {
      // Contents are raw or packed, as the request's were; either way the bytes of the sums stand in one piece.
      const [sum] = workload.expected
      const packed = Buffer.from(new Int32Array(new Uint8Array(sum).buffer))
      const isJson = answer[0] === 0x7b
      const found = isJson
        ? Buffer.from(Int32Array.from(JSON.parse(answer.toString()).outputs[0].data).buffer).equals(sum)
        : answer.includes(sum) || answer.includes(packed)
      if (!found) throw new Error(`wrong answer: ${answer.toString('latin1').slice(0, 300)}`)
    }
    return {
      ...common, name: peer.name, child, http, grpc, verify, answersVary: true, pids: () => processTree(child.pid),
    }
  }
  const [http] = await freePorts(1)
  const { child } = await start(peer.name, environment.program ?? environment.python, peer.command(http, here), {
    prompt: true,
    ready: answers(`http://127.0.0.1:${http}${peer.ready}`),
    env: { PATH: `${environment.bin}:${process.env.PATH}`, BENCH_MODEL: MODEL },
    cwd: work,
  })
  return {
    ...common, name: peer.name, child, http, custom: peer.custom, verify: peer.verify,
    pids: () => processTree(child.pid),
  }
}

/** Fastify with the code of the model in TypeScript, as raw bytes and as JSON. */
export async function startFastify(root, work) {
  const numbers = ({ data }) => [...new Int32Array(new Uint8Array(data).buffer)]
  const json = ({ inputs: [a, b] }) => ({
    path: '/json', body: Buffer.from(JSON.stringify({ a: numbers(a), b: numbers(b) })),
    headers: { 'Content-Type': 'application/json' },
  })
  const verify = (answer, workload) => {
    if (answer[0] !== 0x7b) return rawBytes.verify(answer, workload)
    const { sum, difference } = JSON.parse(answer.toString())
    rawBytes.verify(Buffer.from(Int32Array.from([...sum, ...difference]).buffer), workload)
  }
  const custom = (workload, transport, form) => (form === 'json' ? json(workload) : rawBytes.custom(workload))
  const peer = { ...ofNode('Fastify, the same code', 'fastify-code'), name: FASTIFY, custom, verify }
  return await startPeer(peer, root, work, () => {})
}
export const FASTIFY = 'Fastify'

export const PEER_NAMES = PEERS.map(({ name }) => name)

/** Starts each peer, or those chosen; a peer that cannot run is in `absent` with the reason. */
export async function startPeers(root, work, say, isChosen = () => true) {
  const [running, absent] = [[], []]
  for (const peer of PEERS.filter(isChosen)) {
    try {
      running.push(await startPeer(peer, root, work, say))
    } catch (error) {
      absent.push({ name: peer.name, reason: error.message })
    }
  }
  return { running, absent }
}

/** Servers with default flags in small containers, whose clients send more than the container holds. */
import { identity } from '../../scripts/models/graphs.mjs'
import { TYPE } from '../../scripts/models/onnx.mjs'
import { PYTHON } from '../../scripts/lib/venv.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { Container } from './lib/container.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const MIB = 1 << 20
/** The machine may be busy; a server that has no memory for health does not answer at all. */
const HEALTH_MS_MAX = 5000
const IO = [[['INPUT0', 'TYPE_UINT8', [-1]]], [['OUTPUT0', 'TYPE_UINT8', [-1]]]]
const PROCESS = 'parameters { key: "nereid.javascript.isolation" value { string_value: "process" } }\n'

const typescript = (output) => `import { InferenceResponse, Tensor } from 'nereid/backend'
export default {
  execute: (requests) =>
    requests.map((request) => new InferenceResponse([Tensor.from('OUTPUT0', ${output})])),
}
`
const python = (output) => `import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("OUTPUT0", ${output})]) for x in inputs]
`

/** Each kind of model, as files; `copy` answers as much as it gets, the others one byte. */
const MODELS = {
  identity: { config: config('identity', 0, ...IO) },
  onnx: { config: config('onnxruntime', 0, ...IO), versions: { 1: identity(TYPE.UINT8, ['n']) } },
  worker: { config: config('javascript', 0, ...IO), files: { '1/model.ts': typescript('new Uint8Array(1)') } },
  worker_copy: {
    config: config('javascript', 0, ...IO),
    files: { '1/model.ts': typescript("request.input('INPUT0').data.slice()") },
  },
  process: {
    config: config('javascript', 0, ...IO, PROCESS),
    files: { '1/model.ts': typescript('new Uint8Array(1)') },
  },
  python: { config: config('python', 0, ...IO), files: { '1/model.py': python('x[:1]') } },
  python_copy: { config: config('python', 0, ...IO), files: { '1/model.py': python('x + 1') } },
}

const small = (mib, name) =>
  server(`${name} in ${mib} MiB`, {
    containerMiB: mib,
    standard: false,
    models: (root) => writeModel(root, name, MODELS[name]),
    flags: [`--backend-config=python,python-executable=${PYTHON}`],
  })

/** Sends one request; resolves with the status (`none`: the connection ended without one) and the text's start. */
async function ask(t, model, body) {
  const socket = await t.socket()
  const json = JSON.stringify({
    inputs: [
      { name: 'INPUT0', shape: [body.length], datatype: 'UINT8', parameters: { binary_data_size: body.length } },
    ],
    outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }],
  })
  let [bytes, wanted, text] = [0, Infinity, '']
  // Kept by the socket otherwise: 100 MiB in pieces.
  socket.socket.removeAllListeners('data')
  const answered = new Promise((resolve) =>
    socket.socket.on('data', (chunk) => {
      bytes += chunk.length
      if (wanted === Infinity) {
        text += chunk.toString('latin1')
        const end = text.indexOf('\r\n\r\n')
        if (end >= 0) wanted = end + 4 + Number(/content-length: (\d+)/i.exec(text)?.[1])
      }
      if (bytes >= wanted) resolve()
    }),
  )
  socket.socket.write(
    `POST /v2/models/${model}/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: ${json.length}\r\n` +
      `Content-Length: ${json.length + body.length}\r\n\r\n${json}`,
  )
  socket.socket.write(body)
  await Promise.race([answered, socket.ended])
  socket.destroy()
  return { status: /^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 'none', text: text.slice(0, 1000) }
}

/** A body that the smallest of these containers has room for, in both directions. */
const SERVED_MIB = 16
/** Clients, and MiB that each sends. */
const LOADS = [
  [12, 45],
  [1, 100],
  [100, 1],
  [100, 10],
]

const row = (name, mib, nightly) => ({
  attack: `clients that send more than a container of ${mib} MiB holds, to the model ${name}`,
  limit:
    'By default, `--memory-limit` is three quarters of what the container leaves after the start. What is used ' +
    'beyond the charges counts, too (`memory::pressure`); refusals name the bytes.',
  server: small(mib, name),
  measures: true,
  nightly,
  async run(t) {
    if (!(t.container instanceof Container)) return `not tried: ${t.container}`
    const seen = {}
    const { worstMs } = await t.health(async () => {
      for (const [clients, bodyMiB] of t.volume(LOADS.slice(0, 1), LOADS)) {
        const body = Buffer.alloc(bodyMiB * MIB)
        const answers = await Promise.all(Array.from({ length: clients }, () => ask(t, name, body)))
        for (const { status, text } of answers) {
          seen[status] = (seen[status] ?? 0) + 1
          // A client that still writes may not see why its connection was closed.
          const isRefused = /^(400|500|503)$/.test(status) && /\d{6,} bytes/.test(text)
          t.check(isRefused || ['200', 'none'].includes(status), `answered ${text.slice(-300)}`)
        }
      }
    })
    t.check(t.container.kills === 0, `the kernel killed ${t.container.kills}`)
    t.check(worstMs < HEALTH_MS_MAX, `health answered after ${worstMs.toFixed(0)} ms`)
    // A server that refuses everything would be no better than one that was killed.
    const again = () => ask(t, name, Buffer.alloc(SERVED_MIB * MIB)).then(({ status }) => status === '200')
    t.check(await until(again, { everyMs: 200 }), `one client with ${SERVED_MIB} MiB is not served afterwards`)
    const held = async () => {
      const used = await Promise.all(
        ['bodies', 'heads', 'answers', 'unpacked', 'batches'].map((kind) =>
          t.metric('nereid_memory_used_bytes', `kind="${kind}"`),
        ),
      )
      return used.every((bytes) => bytes === 0)
    }
    t.check(await until(held, { everyMs: 200 }), `memory is held for no request: ${await t.metrics()}`)
    const counts = Object.entries(seen).map(([status, count]) => `${count} × ${status}`)
    return `${counts.join(', ')}, at most ${t.container.peakMiB.toFixed(0)} MiB, health within ${worstMs.toFixed(0)} ms`
  },
})

/** The usual run tries those whose memory was charged least. */
const USUAL = new Set(['worker_copy 400', 'python_copy 400', 'onnx 256'])

export const rows = Object.keys(MODELS).flatMap((name) =>
  [256, 400, 512, 1024].map((mib) => row(name, mib, !USUAL.has(`${name} ${mib}`))),
)

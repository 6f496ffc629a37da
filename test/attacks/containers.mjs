/** Servers with default flags in small containers, whose clients send more than the container holds. */
import { identity } from '../../scripts/models/graphs.mjs'
import { TYPE } from '../../scripts/models/onnx.mjs'
import { PYTHON } from '../../scripts/lib/venv.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'

const MIB = 1 << 20
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

/** Each kind of model, as files; \`copy\` answers as much as it gets, the others one byte. */
const MODELS = {
  identity: { config: config('identity', 0, ...IO) },
  onnx: { config: config('onnxruntime', 0, ...IO), versions: { 1: identity(TYPE.UINT8, ['n']) } },
  worker: { config: config('javascript', 0, ...IO), files: { '1/model.ts': typescript('new Uint8Array(1)') } },
  worker_copy: {
    config: config('javascript', 0, ...IO),
    files: { '1/model.ts': typescript("request.input('INPUT0').data.slice()") },
  },
  process: { config: config('javascript', 0, ...IO, PROCESS), files: { '1/model.ts': typescript('new Uint8Array(1)') } },
  python: { config: config('python', 0, ...IO), files: { '1/model.py': python('x[:1]') } },
  python_copy: { config: config('python', 0, ...IO), files: { '1/model.py': python('x + 1') } },
}

const container = (mib, name) =>
  server(`${name} in ${mib} MiB`, {
    containerMiB: mib, flags: [`--backend-config=python,python-executable=${PYTHON}`], standard: false, models: (root) => writeModel(root, name, MODELS[name]),
  })

/** One client: sends its request, and resolves with the status and the error, or with why there was no answer. */
async function client(t, model, body) {
  const socket = await t.socket()
  const json = JSON.stringify({
    inputs: [{ name: 'INPUT0', shape: [body.length], datatype: 'UINT8', parameters: { binary_data_size: body.length } }],
    outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }],
  })
  const chunks = []
  let [bytes, wanted] = [0, Infinity]
  socket.socket.removeAllListeners('data')
  const answered = new Promise((resolve) => {
    socket.socket.on('data', (chunk) => {
      bytes += chunk.length
      if (wanted === Infinity) {
        chunks.push(chunk)
        const text = Buffer.concat(chunks).toString('latin1')
        const end = text.indexOf('\r\n\r\n')
        const length = /content-length: (\d+)/i.exec(text)?.[1]
        if (end >= 0 && length !== undefined) wanted = end + 4 + Number(length)
      }
      if (bytes >= wanted) resolve()
    })
  })
  socket.socket.write(
    `POST /v2/models/${model}/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: ${json.length}\r\n` +
      `Content-Length: ${json.length + body.length}\r\n\r\n${json}`,
  )
  socket.socket.write(body)
  await Promise.race([answered, socket.ended])
  const text = Buffer.concat(chunks).toString('latin1')
  socket.destroy()
  return { status: /^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 'none', text: text.slice(0, 1000) }
}

const row = (model, mib, clients, bodyMiB, rounds, more = {}) => ({
  attack: `${clients} clients that send ${bodyMiB} MiB each to the model ${model} in a container of ${mib} MiB`,
  limit: '',
  server: container(mib, model),
  measures: true,
  ...more,
  async run(t) {
    if (t.skipped) return t.skipped
    const body = Buffer.alloc(bodyMiB * MIB)
    const seen = {}
    const { worstMs } = await t.health(async () => {
      const rounds_ = async () => {
        for (let i = 0; i < rounds; i += 1) {
          const { status, text } = await client(t, model, body)
          seen[status] = (seen[status] ?? 0) + 1
          t.check(status === '200' || (/^(400|503|none)$/.test(status) && (status === 'none' || /\d{6,} bytes/.test(text))), `answered ${text.slice(-300)}`)
        }
      }
      await Promise.all(Array.from({ length: clients }, rounds_))
    })
    const { kills, peakMiB } = t.container
    t.check(kills === 0, `the kernel killed ${kills}`)
    t.check(Number.isFinite(worstMs) , 'health gave no answer')
    console.log(t.container.read('memory.stat').match(/^(total_cache|total_rss|total_shmem|total_mapped_file|total_inactive_file|total_active_file) .*$/mg)?.join(' '))
    return `${JSON.stringify(seen)}, peak ${peakMiB.toFixed(0)} MiB, health within ${worstMs.toFixed(0)} ms, limit ${(await t.metric('nereid_memory_limit_bytes'))/MIB} used ${JSON.stringify((await t.metrics()).match(/nereid_memory_used_bytes\{.*/g))}`
  },
})

export const rows = [
  ...['identity', 'onnx', 'worker', 'worker_copy', 'process', 'python', 'python_copy'].flatMap((model) =>
    [256, 400, 512, 1024].flatMap((mib) =>
      [[12, 20], [12, 45], [1, 100], [100, 1], [100, 10]].map(([clients, body]) => row(model, mib, clients, body, 2, { nightly: true })),
    ),
  ),
]

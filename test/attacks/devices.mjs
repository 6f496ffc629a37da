/**
 * Memory for devices that clients and models hold: on a machine with a GPU, of which a stand-in of the driver's library
 * knows.
 */
import { chained, config, ensemble, writeModel } from '../../scripts/models/repository.mjs'
import { pythonModels } from '../../scripts/lib/venv.mjs'
import { buildCuda, cudaEnvironment } from './lib/cuda.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const MIB = 1 << 20
const PINNED_BYTES = 16 * MIB
/** `device::{BODIES_PINNED_SHARE, BODY_PINNED_SHARE}`: all bodies together, and one. */
const [BODIES_BYTES, BODY_BYTES] = [PINNED_BYTES / 2, PINNED_BYTES / 8]
/** `LEASES_MAX` of the runner protocol. */
const LEASES_MAX = 4096

/** Keeps what it gets, and says of the last one where it lies. */
const KEEPS = `import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        answers = []
        for request in requests:
            tensor = request.inputs()[0]
            if tensor.shape()[0] == 1:
                self.kept.clear()
            else:
                self.kept.append(tensor)
            output = pb_utils.Tensor("OUTPUT0", np.array([0 if tensor.is_cpu() else 1], np.float32))
            answers.append(pb_utils.InferenceResponse([output]))
        return answers
`

const gpu = server('a GPU, and 16 MiB of pinned memory', {
  flags: [`--pinned-memory-pool-byte-size=${PINNED_BYTES}`],
  env: { ...cudaEnvironment, ...pythonModels() },
  models(root) {
    buildCuda()
    const io = [[['INPUT0', 'TYPE_FP32', [-1]]], [['OUTPUT0', 'TYPE_FP32', [-1]]]]
    writeModel(root, 'gpu', {
      config: config('device_identity', 0, ...io, 'instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n'),
    })
    const more =
      'instance_group [ { kind: KIND_CPU } ]\nparameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { ' +
      'string_value: "no" } }\n'
    writeModel(root, 'keeps', { config: config('python', 0, ...io, more), files: { '1/model.py': KEEPS } })
    writeModel(root, 'gpu_keeps', { config: ensemble(0, ...io, chained(['gpu', 'keeps'])) })
  },
})

const head = (length) =>
  'POST /v2/models/gpu/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 100\r\nContent-Length: ' +
  `${length}\r\n\r\n`

/** Raw floats through a model and back: the status, and whether they came back as they were. */
async function infer(t, model, values) {
  const raw = Buffer.from(values.buffer)
  const json = JSON.stringify({
    inputs: [
      { name: 'INPUT0', shape: [values.length], datatype: 'FP32', parameters: { binary_data_size: raw.length } },
    ],
    parameters: { binary_data_output: true },
  })
  const body = Buffer.concat([Buffer.from(json), raw])
  const answer = await fetch(`${t.url}/v2/models/${model}/infer`, {
    method: 'POST',
    body,
    headers: { 'Inference-Header-Content-Length': String(json.length) },
  })
  const bytes = Buffer.from(await answer.arrayBuffer())
  return {
    status: answer.status,
    data: bytes.subarray(Number(answer.headers.get('inference-header-content-length') ?? 0)),
    raw,
  }
}

const pinned = (t) => t.metric('nv_pinned_memory_pool_used_bytes')

export const rows = [
  {
    attack: '40 clients that announce 2 MiB each for a model on a GPU and send one byte, with 16 MiB of pinned memory',
    limit:
      'All bodies have half of `--pinned-memory-pool-byte-size`, and one body has an eighth ' +
      '(`device::{BODIES_PINNED_SHARE, BODY_PINNED_SHARE}`). Other bodies are staged in the other half.',
    server: gpu,
    async run(t) {
      const sockets = await Promise.all(Array.from({ length: 40 }, () => t.socket()))
      for (const socket of sockets) await socket.send(`${head(BODY_BYTES - 64)}x`)
      t.check(
        await until(async () => (await pinned(t)) === BODIES_BYTES),
        `${await pinned(t)} bytes of pinned memory are held`,
      )
      const values = new Float32Array(MIB / 4).map((_, i) => i)
      let worst = 0
      for (let i = 0; i < 20; i += 1) {
        const from = performance.now()
        const { status, data, raw } = await infer(t, 'gpu', values)
        worst = Math.max(worst, performance.now() - from)
        t.check(status === 200 && data.equals(raw), `beside them a request is answered ${status}`)
      }
      const most = await pinned(t)
      for (const socket of sockets) socket.destroy()
      t.check(most <= BODIES_BYTES, `${most} bytes of pinned memory are held`)
      t.check(await until(async () => (await pinned(t)) === 0), `${await pinned(t)} bytes are left when they are gone`)
      return `${most / MIB} MiB held, 1 MiB beside them within ${worst.toFixed(0)} ms`
    },
  },
  {
    attack: 'a Python model that keeps 5,000 tensors of a GPU that it was given',
    limit:
      'A process has at most `LEASES_MAX` leases of the runner protocol; further tensors are copied to the host ' +
      '(B-SEC-07). The pool of the GPU is a second limit.',
    server: gpu,
    async run(t) {
      const leases = () => t.metric('nereid_runner_leases', 'model="keeps"')
      let onHost = 0
      for (let done = 0; done < 5000; done += 20) {
        const some = await Promise.all(Array.from({ length: 20 }, () => infer(t, 'gpu_keeps', new Float32Array(2))))
        t.check(
          some.every(({ status }) => status === 200),
          'an inference failed',
        )
        onHost += some.filter(({ data }) => data.length === 4 && data.readFloatLE(0) === 0).length
      }
      const most = await leases()
      t.check(most <= LEASES_MAX, `${most} leases`)
      t.check(onHost === 5000 - LEASES_MAX, `${onHost} came as copies`)
      t.check((await infer(t, 'gpu_keeps', new Float32Array(1))).status === 200, 'it does not let go')
      t.check(await until(async () => (await leases()) === 0), `${await leases()} leases are left`)
      t.check(
        await until(async () => (await t.metric('nereid_device_pool_bytes', 'device="0"')) === 0),
        'memory of the GPU is not given back',
      )
      return `${most} leases, ${onHost} copies`
    },
  },
]

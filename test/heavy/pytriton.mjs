/**
 * A library that others built: NVIDIA's Python backend out of PyPI's nvidia-pytriton, which is linked with a library of
 * another name than ours, serves a `model.py` here: values, two instances, calls of another model, an error, and the
 * end of one of its own processes.
 */
import { spawn } from 'node:child_process'
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { PYTRITON } from '../../bench/subjects/triton.mjs'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ask } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'pytriton')

const MODEL = `
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            values = x.as_numpy()
            if values.flat[0] == -1:
                responses.append(pb_utils.InferenceResponse([], pb_utils.TritonError("minus one")))
            elif values.flat[0] == -2:
                inner = pb_utils.InferenceRequest(model_name="inner", requested_output_names=["OUTPUT0"], inputs=[x])
                answer = inner.exec()
                y = pb_utils.get_output_tensor_by_name(answer, "OUTPUT0").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", y + np.float32(1))]))
            elif values.flat[0] == -3:
                os._exit(7)
            else:
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values * np.float32(2))]))
        return responses
`

const config = (backend, more = '') => `
backend: "${backend}"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
${more}`

/** The Python that the wheel's stub was built for, with numpy 1: with numpy 2 the stub reads sizes wrongly. */
const environment = (say) => peerEnvironment(ROOT, 'pytriton-numpy1', [PYTRITON, 'numpy<2'], say)

function write(path, text) {
  mkdirSync(join(path, '..'), { recursive: true })
  writeFileSync(path, text)
}

async function run(checks) {
  const { python, site, bin } = await environment((line) => process.stdout.write(`${line}\n`))
  rmSync(HERE, { recursive: true, force: true })
  const installed = join(site, 'pytriton', 'tritonserver')
  const backends = join(HERE, 'backends')
  mkdirSync(HERE, { recursive: true })
  cpSync(join(installed, 'backends'), backends, { recursive: true })
  const version = ask(python, ['-c', 'import sys; print("%d.%d" % sys.version_info[:2])'])
  const stub = join(installed, 'python_backend_stubs', version, 'triton_python_backend_stub')
  must(existsSync(stub), `nvidia-pytriton has no stub for Python ${version}`)
  copyFileSync(stub, join(backends, 'python', 'triton_python_backend_stub'))
  chmodSync(join(backends, 'python', 'triton_python_backend_stub'), 0o755)
  const models = join(HERE, 'models')
  write(join(models, 'outer', '1', 'model.py'), MODEL)
  write(join(models, 'outer', 'config.pbtxt'), config('python', 'instance_group [ { kind: KIND_CPU count: 2 } ]'))
  mkdirSync(join(models, 'inner', '1'), { recursive: true })
  write(join(models, 'inner', 'config.pbtxt'), config('identity'))
  const [http, grpc, metrics] = await freePorts(3)
  const libraries = ask(python, ['-c', 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))'])
  const flags = [
    `--model-repository=${models}`,
    `--backend-directory=${backends}`,
    '--backend-config=python,use-library=true',
    `--http-port=${http}`,
    `--grpc-port=${grpc}`,
    `--metrics-port=${metrics}`,
    '--http-address=127.0.0.1',
    '--grpc-address=127.0.0.1',
    '--metrics-address=127.0.0.1',
    '--exit-grace-secs=0',
    ...(process.getuid() === 0 ? ['--host-user=root'] : []),
  ]
  const env = {
    ...process.env,
    PATH: `${bin}:${process.env.PATH}`,
    LD_LIBRARY_PATH: [join(site, 'nvidia_pytriton.libs'), libraries].join(':'),
  }
  const server = spawn(process.execPath, [join(ROOT, 'dist/cli/main.js'), ...flags], { env, stdio: 'inherit' })
  const url = `http://127.0.0.1:${http}`
  const infer = async (...data) => {
    const body = { inputs: [{ name: 'INPUT0', datatype: 'FP32', shape: [data.length], data }] }
    const response = await fetch(`${url}/v2/models/outer/infer`, { method: 'POST', body: JSON.stringify(body) })
    return { status: response.status, ...(await response.json()) }
  }
  const values = (answer) => answer.outputs?.[0].data
  try {
    await checks.step('the library loads and its models are ready', async () => {
      for (let i = 0; ; i += 1) {
        if (
          await fetch(`${url}/v2/health/ready`).then(
            (r) => r.ok,
            () => false,
          )
        )
          return
        must(i < 300 && server.exitCode === null, 'the server is not ready')
        await sleep(200)
      }
    })
    await checks.step('256 requests at a time of two instances get their own values', async () => {
      const all = await Promise.all(Array.from({ length: 256 }, (_, i) => infer(i, i + 0.5)))
      for (const [i, answer] of all.entries())
        must(values(answer)?.join() === `${2 * i},${2 * i + 1}`, `${i}: ${JSON.stringify(answer)}`)
    })
    await checks.step('100,000 values pass through shared memory', async () => {
      const answer = await infer(...Array.from({ length: 100_000 }, (_, i) => i))
      must(values(answer)?.length === 100_000 && values(answer)[99_999] === 199_998, 'other values')
    })
    await checks.step('an error response of the model', async () => {
      const answer = await infer(-1)
      must(answer.status === 500 && /minus one/.test(answer.error), JSON.stringify(answer))
    })
    await checks.step('a call of another model', async () => {
      const answer = await infer(-2, 4)
      must(values(answer)?.join() === '-1,5', JSON.stringify(answer))
    })
    await checks.step('the end of a process of the library costs its request', async () => {
      const answer = await infer(-3)
      must(answer.status === 500, JSON.stringify(answer))
      must((await fetch(`${url}/v2/health/live`)).ok, 'the server is gone')
    })
  } finally {
    const ended = new Promise((resolve) => server.once('exit', resolve))
    server.kill('SIGTERM')
    await checks.step('the server ends by itself', async () => {
      const code = await Promise.race([ended, sleep(30_000).then(() => 'not at all')])
      if (code !== 0) server.kill('SIGKILL')
      must(code === 0, `it ended with ${code}`)
    })
  }
  return `libtriton_python.so of ${PYTRITON}`
}

export const pytriton = {
  about: "NVIDIA's Python backend library of nvidia-pytriton serves a model.py",
  missing: async () => [],
  run,
}

/**
 * The Triton in the wheel of nvidia-pytriton, over three Python models. It downloads more than 120 MB, so it is used
 * only if the bench or `npm test -- client --triton` installed it.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ROOT } from '../server/harness.js'

const ENVIRONMENT = join(ROOT, '.venv-bench/pytriton')
const START_MS_MAX = 90_000

const model = (batch: number, inputs: string, outputs: string, more = '') =>
  `backend: "python"\nmax_batch_size: ${batch}\ninput [ ${inputs} ]\noutput [ ${outputs} ]\n${more}`
const tensor = (name: string, type: string, dims: string) =>
  `{ name: "${name}" data_type: TYPE_${type} dims: [ ${dims} ] }`
const code = (body: string) => `import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
${body.replaceAll(/^(?=.)/gm, '        ')}`

const MODELS: Record<string, [string, string]> = {
  identity: [
    model(0, tensor('INPUT0', 'FP32', '-1'), tensor('OUTPUT0', 'FP32', '-1')),
    code(
      'return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, ' +
        '"INPUT0").as_numpy())]) for r in requests]\n',
    ),
  ],
  longs: [
    model(8, tensor('INPUT0', 'INT64', '2'), tensor('OUTPUT0', 'INT64', '2')),
    code(
      'return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, ' +
        '"INPUT0").as_numpy() + 1)]) for r in requests]\n',
    ),
  ],
  strings: [
    model(8, tensor('TEXT', 'STRING', '-1'), tensor('UPPER', 'STRING', '-1')),
    code(`out = []
for r in requests:
    texts = pb_utils.get_input_tensor_by_name(r, "TEXT").as_numpy()
    upper = np.array([[t.decode().upper().encode() for t in row] for row in texts], dtype=np.object_)
    out.append(pb_utils.InferenceResponse([pb_utils.Tensor("UPPER", upper)]))
return out
`),
  ],
  decoupled: [
    model(0, tensor('N', 'INT32', '1'), tensor('I', 'INT32', '1'), 'model_transaction_policy { decoupled: true }\n'),
    code(`for r in requests:
    sender = r.get_response_sender()
    for i in range(int(pb_utils.get_input_tensor_by_name(r, "N").as_numpy()[0])):
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([i], dtype=np.int32))]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
return None
`),
  ],
}

export interface Triton {
  httpPort: number
  grpcPort: number
  stop(): Promise<void>
}

/** Reason why it cannot start here, or null. */
export function obstacle(): string | null {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    return `nvidia-pytriton is for Linux on x64, this is ${process.platform} on ${process.arch}`
  // `bench/lib/venv.mjs` writes it after a complete installation.
  const isInstalled = existsSync(ENVIRONMENT) && readdirSync(ENVIRONMENT).some((name) => name.startsWith('installed-'))
  return isInstalled ? null : 'nvidia-pytriton is not installed: npm test -- client --triton does that'
}

const ask = (text: string): string =>
  spawnSync(join(ENVIRONMENT, 'bin/python'), ['-c', text], { encoding: 'utf8' }).stdout.trim()

export async function startTriton(): Promise<Triton> {
  const site = ask('import sysconfig; print(sysconfig.get_path("purelib"))')
  const python = ask('import sys; print("%d.%d" % sys.version_info[:2])')
  const server = join(site, 'pytriton/tritonserver')
  const work = mkdtempSync(join(tmpdir(), 'nereid-triton-'))
  // The wheel stores one stub per Python version elsewhere, and the backend needs it in its own directory.
  cpSync(join(server, 'backends'), join(work, 'backends'), { recursive: true })
  const stub = join(work, 'backends/python/triton_python_backend_stub')
  copyFileSync(join(server, 'python_backend_stubs', python, 'triton_python_backend_stub'), stub)
  for (const file of [stub, join(server, 'bin/tritonserver')]) chmodSync(file, 0o755)
  for (const [name, [config, text]] of Object.entries(MODELS)) {
    mkdirSync(join(work, 'models', name, '1'), { recursive: true })
    writeFileSync(join(work, 'models', name, 'config.pbtxt'), config)
    writeFileSync(join(work, 'models', name, '1/model.py'), text)
  }
  const [httpPort = 0, grpcPort = 0] = await freePorts(2)
  const child = spawn(
    join(server, 'bin/tritonserver'),
    [
      `--model-repository=${work}/models`,
      `--backend-directory=${work}/backends`,
      '--http-address=127.0.0.1',
      '--grpc-address=127.0.0.1',
      `--http-port=${httpPort}`,
      `--grpc-port=${grpcPort}`,
      '--allow-metrics=false',
      '--model-control-mode=explicit',
      '--load-model=*',
    ],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        PATH: `${join(ENVIRONMENT, 'bin')}:${process.env['PATH']}`,
        PYTHONPATH: site,
        LD_LIBRARY_PATH: [
          ask('import sysconfig; print(sysconfig.get_config_var("LIBDIR"))'),
          join(site, 'nvidia_pytriton.libs'),
        ].join(':'),
      },
    },
  )
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4000)))
  try {
    await untilReady(child, `http://127.0.0.1:${httpPort}/v2/health/ready`, () => output)
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  }
  return {
    httpPort,
    grpcPort,
    async stop() {
      const ended = new Promise((resolve) => child.once('exit', resolve))
      child.kill('SIGTERM')
      await ended
      rmSync(work, { recursive: true, force: true })
    },
  }
}

async function untilReady(child: ChildProcess, url: string, output: () => string): Promise<void> {
  const from = performance.now()
  while (performance.now() - from < START_MS_MAX) {
    if (child.exitCode !== null) throw new Error(`Triton ended at once: ${output()}`)
    const status = await fetch(url).then(
      (answer) => answer.status,
      () => 0,
    )
    if (status === 200) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`Triton was not ready within ${START_MS_MAX} ms: ${output()}`)
}

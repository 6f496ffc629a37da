/**
 * Real Triton servers. `nvidia-pytriton`'s wheel holds one with the Python backend and the response cache, and no other
 * backend; it starts without a GPU. With `--triton` any other build is measured, and with an ONNX Runtime backend, on
 * the same models.
 */
import { chmodSync, copyFileSync, cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ask } from '../../scripts/lib/run.mjs'
import { writeModel } from '../../scripts/models/repository.mjs'
import { answers, processTree, start } from '../lib/process.mjs'
import { peerEnvironment } from '../lib/venv.mjs'
import { CHAINS, MODELS, SEQUENCED, SEQUENCED_ROWS, chain } from '../models/generate.mjs'
import { PYTHON_MODELS, writePythonModels, writeStandIns } from '../models/python.mjs'

/** The package that brings a Triton, as pip names it. */
export const PYTRITON = 'nvidia-pytriton==0.7.0'

const CHAIN_NAMES = CHAINS.map((n) => `chain_${n}`)
/** Models that have the same name there. */
const named = (models) => Object.fromEntries(models.map((m) => [m, m]))

async function startTriton(name, command, args, env) {
  const [http, grpc] = await freePorts(2)
  const { child, output } = await start(
    name,
    command,
    [
      ...args,
      '--http-address=127.0.0.1',
      '--grpc-address=127.0.0.1',
      `--http-port=${http}`,
      `--grpc-port=${grpc}`,
      '--allow-metrics=false',
    ],
    { ready: answers(`http://127.0.0.1:${http}/v2/health/ready`), env, timeoutMs: 90_000, prompt: true },
  )
  const { version } = await (await fetch(`http://127.0.0.1:${http}/v2`)).json()
  // Stubs of the Python backend are processes of their own; the server itself comes first.
  return { name, kind: 'peer', child, http, grpc, version, pids: () => processTree(child.pid), output }
}

function writeRepository(directory) {
  writeStandIns(directory, { sequenced: SEQUENCED, rows: SEQUENCED_ROWS })
  writePythonModels(directory)
  for (const n of CHAINS) writeModel(directory, `chain_${n}`, { config: chain(n) })
}

/**
 * The server in the wheel of nvidia-pytriton, with the models that `write` makes.
 *
 * @param packages what models need beside it
 */
export async function startWheel(root, work, say, { name, write, packages = [], flags = [], env = {} }) {
  const environment = await peerEnvironment(root, 'pytriton', [PYTRITON, ...packages], say)
  const server = join(environment.site, 'pytriton', 'tritonserver')
  const python = ask(environment.python, ['-c', 'import sys; print("%d.%d" % sys.version_info[:2])'])
  const stub = join(server, 'python_backend_stubs', python, 'triton_python_backend_stub')
  if (!existsSync(stub)) throw new Error(`nvidia-pytriton has no Python backend stub for Python ${python}`)
  // The wheel keeps one stub per Python version aside, and the backend wants it beside itself.
  const backends = join(work, 'backends')
  rmSync(backends, { recursive: true, force: true })
  cpSync(join(server, 'backends'), backends, { recursive: true })
  const copy = join(backends, 'python', 'triton_python_backend_stub')
  copyFileSync(stub, copy)
  chmodSync(copy, 0o755)
  const binary = join(server, 'bin', 'tritonserver')
  chmodSync(binary, 0o755)
  const repository = mkdtempSync(join(work, 'triton-models-'))
  write(repository)
  const libraries = ask(environment.python, ['-c', 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))'])
  const subject = await startTriton(
    name,
    binary,
    [
      `--model-repository=${repository}`,
      `--backend-directory=${backends}`,
      `--cache-directory=${join(server, 'caches')}`,
      ...flags,
    ],
    {
      ...env,
      PATH: `${environment.bin}:${process.env.PATH}`,
      PYTHONPATH: [environment.site, env.PYTHONPATH].filter(Boolean).join(':'),
      LD_LIBRARY_PATH: [
        libraries,
        join(environment.site, 'nvidia_pytriton.libs'),
        process.env.LD_LIBRARY_PATH ?? '',
      ].join(':'),
    },
  )
  return { ...subject, python: environment.python }
}

/** The same for most suites: models in Python, and one that is answered from the response cache. */
export async function startPytriton(root, work, say) {
  const subject = await startWheel(root, work, say, {
    name: 'Triton (Python backend)',
    write: writeRepository,
    flags: ['--cache-config=local,size=67108864'],
  })
  // Answers out of the response cache never reach the Python backend: front end, request handling and cache lookup of
  // the same process. With no ONNX Runtime backend in the wheel this is the nearest to a model that costs nothing.
  const cached = { ...subject, name: 'Triton (response cache)', models: { simple: 'simple_cached' } }
  return [
    {
      ...subject,
      models: named(['simple', 'identity', 'repeat', ...CHAIN_NAMES, ...Object.keys(SEQUENCED), ...PYTHON_MODELS]),
    },
    cached,
  ]
}

/** A build the user names. */
export async function startGivenTriton({ triton, tritonBackends, tritonCaches }) {
  if (!existsSync(triton)) throw new Error(`--triton=${triton}: no such file`)
  if (tritonBackends !== null && !existsSync(tritonBackends))
    throw new Error(`--triton-backends=${tritonBackends}: no such directory`)
  const has = (backend) => tritonBackends !== null && existsSync(join(tritonBackends, backend))
  const models = {
    ...(has('onnxruntime') &&
      named(['simple', 'mlp', 'mlp_plain', 'minilm', 'resnet50', 'identity_onnx', ...Object.keys(SEQUENCED)])),
    ...(has('identity') && named(['identity', 'identity_bytes', ...CHAIN_NAMES])),
    ...(has('repeat') && { repeat: 'repeat' }),
    ...(has('python') && named(PYTHON_MODELS)),
  }
  if (Object.keys(models).length === 0) {
    throw new Error(
      `--triton-backends=${tritonBackends ?? '(not given)'} holds neither onnxruntime nor identity: nothing to compare`,
    )
  }
  const subject = await startTriton('Triton', triton, [
    `--model-repository=${MODELS}`,
    `--backend-directory=${tritonBackends}`,
    ...(tritonCaches === null ? [] : [`--cache-directory=${tritonCaches}`]),
    '--model-control-mode=explicit',
    ...Object.keys(models).map((m) => `--load-model=${m}`),
  ])
  return [{ ...subject, models }]
}

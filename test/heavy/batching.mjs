/**
 * Triton's own suite of custom batching libraries, qa/L0_batch_custom, by its driver test.sh: the volume and the single
 * batching example of the backend repository with an ONNX model, from each of the places where a library is found.
 *
 * git fetches the repositories at a commit; NEREID_TRITON_SERVER, NEREID_TRITON_BACKEND and NEREID_TRITON_COMMON name
 * others to fetch from, such as a mirror on disk. Of the driver, only paths are changed; the commands that it installs
 * and builds with are stand-ins that use what was fetched.
 */
import { chmodSync, cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { unpacked } from './lib/apt.mjs'
import { must } from './lib/checks.mjs'
import { fetched, sourceOf } from './vllm.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'batching')
const MODEL = 'onnx_zero_1_float16'
/** The driver has fixed ports: on an address of its own they are free. */
const ADDRESS = '127.45.1.7'
const CASES = [
  'single_batching_backend',
  'backend_directory',
  'model_directory',
  'version_directory',
  'model_config',
  'batching_init_failure',
]

const repository = (name, commit) => ({
  name,
  commit,
  source: process.env[`NEREID_TRITON_${name.toUpperCase()}`] ?? `https://github.com/triton-inference-server/${name}`,
})
const PARTS = [
  repository('server', 'e1db8a603d863b1317ee859bdeea2be19959462e'),
  repository('backend', '3f57fb90bee16b86232ee79c45eb4ce69c9ad489'),
  repository('common', '83adf7cf88a2f343005974dff3728be746de2d66'),
]

async function missing() {
  const tools = ['bash', 'curl', 'g++'].filter((tool) => ask(tool, ['--version']) === null)
  return tools.map((tool) => `${tool}: apt-get install ${tool}`)
}

function notRun() {
  const absent = PARTS.filter((part) => fetched(part, HERE) === null)
  return absent.length === 0 ? null : `absent: ${absent.map(sourceOf).join('; ')}`
}

/** Writes the model that Triton's generator makes: an identity of FP16. */
const GENERATE = `
import sys
from onnx import TensorProto, helper, save
make = helper.make_tensor_value_info
io = [make(name, TensorProto.FLOAT16, [None, None, None]) for name in ("INPUT0", "OUTPUT0")]
graph = helper.make_graph([helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])], "identity", io[:1], io[1:])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), sys.argv[1])
`

function writeModel(directory) {
  mkdirSync(join(directory, MODEL, '1'), { recursive: true })
  const tensor = (what, name) => `${what} [ { name: "${name}" data_type: TYPE_FP16 dims: [ -1, -1 ] } ]\n`
  writeFileSync(
    join(directory, MODEL, 'config.pbtxt'),
    `name: "${MODEL}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\n${tensor('input', 'INPUT0')}` +
      tensor('output', 'OUTPUT0'),
  )
  return ask(PYTHON, ['-c', GENERATE, join(directory, MODEL, '1', 'model.onnx')])
}

/** A program in the place of one that the driver calls. */
function program(name, text) {
  const path = join(HERE, 'bin', name)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, `#!/bin/bash\n${text}\n`)
  chmodSync(path, 0o755)
}

async function run(checks) {
  await pythonEnvironment()
  const [server, backend, common] = PARTS.map((part) => fetched(part, HERE))
  const rapid = await unpacked(join(HERE, 'rapidjson'), {
    release: 'bookworm',
    architecture: 'amd64',
    packages: ['rapidjson-dev'],
  })
  const [qa, opt, data] = ['qa', 'opt', 'data'].map((name) => join(HERE, name))
  for (const directory of [qa, opt, data]) rmSync(directory, { recursive: true, force: true })
  for (const suite of ['L0_batch_custom', 'common'])
    cpSync(join(server, 'qa', suite), join(qa, suite), { recursive: true })
  mkdirSync(join(opt, 'backends', 'onnxruntime'), { recursive: true })
  must(writeModel(join(data, 'qa_identity_model_repository')) !== null, 'the model was not written')
  const include = [join(ROOT, 'shm', 'include'), join(common, 'include'), join(rapid, 'usr', 'include')]
  const flags = include.map((path) => `-I'${path}'`).join(' ')
  program('git', `cp -r '${backend}' backend`)
  program('cmake', 'exit 0')
  program(
    'make',
    `for source in ../src/*.cc; do
  to=libtriton_$(basename "$source" .cc | tr -d _).so
  g++ -std=c++17 -w -shared -fPIC ${flags} -o "$to" "$source" || exit 1
done`,
  )
  // The driver expects Triton's timer, and its GPU instances run on the CPU.
  program(
    'tritonserver',
    `exec '${process.execPath}' '${join(ROOT, 'dist/cli/main.js')}' "$@" --http-address=${ADDRESS} \\
  --grpc-address=${ADDRESS} --metrics-address=${ADDRESS} --backend-directory='${join(opt, 'backends')}' \\
  --strict-batching-delay=true --gpu-fallback=cpu --exit-grace-secs=0`,
  )
  const script = join(qa, 'L0_batch_custom', 'test.sh')
  const driver = readFileSync(script, 'utf8')
    .replace(/^apt update[^]*?^cmake --version$/m, '')
    .replaceAll('/opt/tritonserver/bin/tritonserver', join(HERE, 'bin', 'tritonserver'))
    .replaceAll('/opt/tritonserver', opt)
    .replace(/^DATADIR=.*$/m, `DATADIR=${join(data, 'qa_identity_model_repository')}`)
  writeFileSync(script, driver)
  const env = {
    ...process.env,
    TRITONSERVER_IPADDR: ADDRESS,
    PATH: [join(HERE, 'bin'), dirname(PYTHON), process.env.PATH].join(delimiter),
  }
  const { code, text } = await capture('bash', [script, 'any'], { cwd: dirname(script), env, quiet: true })
  for (const name of CASES) {
    await checks.step(`L0_batch_custom: ${name}`, () => {
      const failed = new RegExp(`${name} Test|Failed to start|Error Test`).test(text) && code !== 0
      const logs = readdirSync(dirname(script)).filter((file) => file === `inference_server.log_${name}`)
      must(!failed && logs.length === 1, text.trim().split('\n').slice(-20).join('\n'))
    })
  }
  await checks.step('L0_batch_custom: the driver says that it passed', () =>
    must(code === 0 && text.includes('*** Test Passed'), `exit ${code}: ${text.trim().slice(-400)}`),
  )
  return PARTS.map(({ name, commit }) => `${name} ${commit.slice(0, 9)}`).join(', ')
}

export const batching = {
  about: "Triton's suite of custom batching libraries, L0_batch_custom, by its own driver",
  missing,
  notRun,
  run,
}

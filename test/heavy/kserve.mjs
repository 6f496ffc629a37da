/**
 * KServe's Python SDK against a server that is started with the arguments of docs/deploy/kserve, its models where the
 * storage initialiser puts them: readiness, inference and errors over HTTP and gRPC.
 */
import { cpSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { answers, end, start } from '../../bench/lib/process.mjs'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { capture } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'kserve')
const PACKAGE = 'kserve==0.21.0'

const sdk = () => peerEnvironment(ROOT, 'kserve', [PACKAGE], (text) => process.stdout.write(`${text}\n`))

const missing = () =>
  sdk().then(
    () => [],
    (error) => [`KServe's SDK: ${error.message}`],
  )

/** The arguments of the runtime, with its models elsewhere and other addresses. */
function argumentsOf(file, models, ports) {
  const [first, ...flags] = parse(readFileSync(join(ROOT, 'docs', 'deploy', 'kserve', file), 'utf8')).spec.containers[0]
    .args
  must(
    first === 'tritonserver' && flags.includes('--model-store=/mnt/models'),
    `${file} starts ${[first, ...flags].join(' ')}`,
  )
  const kept = flags
    .filter((flag) => !/^--(?:http|grpc|metrics)-port=/.test(flag))
    .map((flag) => flag.replace('/mnt/models', models))
  return [...kept, ...listenFlags(ports)]
}

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  const models = join(HERE, 'models')
  mkdirSync(models, { recursive: true })
  cpSync(join(ROOT, 'examples', 'models', 'simple'), join(models, 'simple'), { recursive: true })
  const { python } = await sdk()
  let version
  for (const file of ['runtime-http.yaml', 'runtime-grpc.yaml']) {
    const ports = await freePorts(3)
    const ready = answers(`http://127.0.0.1:${ports[0]}/v2/health/ready`)
    const { child } = await start(
      file,
      process.execPath,
      [join(ROOT, 'dist', 'cli', 'main.js'), ...argumentsOf(file, models, ports)],
      { ready },
    )
    try {
      const { text } = await capture(
        python,
        [join(ROOT, 'test', 'heavy', 'kserve', 'sdk.py'), `http://127.0.0.1:${ports[0]}`, `127.0.0.1:${ports[1]}`],
        { quiet: true },
      )
      const said = text
        .split('\n')
        .filter((line) => line.startsWith('{'))
        .map((line) => JSON.parse(line))
      version = said.shift()?.version
      await checks.step(`${file}: all steps ran`, () =>
        must(said.length === 11, `${said.length} of 11: ${text.slice(-400)}`),
      )
      for (const { name, wrong } of said) await checks.step(`${file}: ${name}`, () => must(wrong === null, wrong))
    } finally {
      await end(child)
    }
  }
  return `kserve ${version}`
}

export const kserve = { about: "KServe's Python SDK against the runtimes of docs/deploy/kserve", missing, run }

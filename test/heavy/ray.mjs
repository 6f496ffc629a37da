/**
 * docs/deploy/ray on Ray Serve: a cluster of two nodes on this machine, whose servers get signals under load, and which
 * is scaled up and down (ray/cluster.py).
 */
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'ray')
const VERSION = '2.60.0'

async function run(checks) {
  await pythonEnvironment()
  const ray = await checks.step(`Ray ${VERSION} is there`, () =>
    peerEnvironment(ROOT, 'ray', [`ray[serve]==${VERSION}`], (text) => process.stdout.write(`${text}\n`)),
  )
  if (ray === undefined) {
    process.stdout.write(`absent Ray ${VERSION}\n`)
    return 'absent: Ray'
  }
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const server = JSON.stringify([process.execPath, join(ROOT, 'dist', 'cli', 'main.js')])
  const rows = []
  const onLine = (line) => {
    if (!line.startsWith('{')) return
    const row = JSON.parse(line)
    rows.push(row)
    if (row.step === undefined)
      process.stdout.write(`ran    Ray ${row.ray}, grpcio ${row.grpcio}, ${row.nodes} nodes\n`)
    else if (row.error === undefined)
      checks.add(`${row.step}: ${row.told} (${row.seconds} s)`, { passed: 1, failed: 0 })
    else checks.add(row.step, { passed: 0, failed: 1, failures: [row.error] })
  }
  const { code, errors } = await capture(ray.python, [join(ROOT, 'test/heavy/ray/cluster.py'), HERE, server, PYTHON], {
    cwd: ROOT, quiet: true, onLine,
  })
  must(code === 0, `cluster.py ended with ${code}: ${errors.trim().split('\n').slice(-5).join(' | ')}`)
  const [about] = rows
  const told = (word) => rows.find(({ step }) => step?.includes(word))?.told ?? 'failed'
  return (
    `Ray ${about.ray}, ${about.nodes} nodes; SIGTERM: ${told('SIGTERM')}; SIGKILL: ${told('SIGKILL')}; ` +
    `${told('from 2 replicas')}`
  )
}

export const ray = {
  about: 'the deployment of Ray Serve in docs/deploy/ray, on a cluster of two nodes', missing: async () => [],
  steps: ['npm packages', 'native module', 'TypeScript'], run,
}

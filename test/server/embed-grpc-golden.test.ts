// The recorded gRPC responses of Triton, through a grpc-js server. Each suite's server has its own port for HTTP; gRPC
// goes to the outer server.
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { optionName } from '../../src/cli/flags.js'
import { parseArguments } from '../../src/cli/parse.js'
import { Server, type ServerOptions } from '../../src/index.js'
import { outerServer } from './embed-grpc.js'
import { ROOT } from './harness.js'

const GOLDEN = join(ROOT, 'test/golden')
const work = mkdtempSync(join(tmpdir(), 'nereid-embed-golden-'))

interface Suite {
  name: string
  repo: string
  flags: string[]
}
const read = (name: string): unknown =>
  JSON.parse(readFileSync(join(GOLDEN, name), 'utf8').replaceAll(/\bNaN\b/g, 'null'))
const { suites } = read('suites.json') as { suites: Suite[] }
type Listed = Record<string, Record<string, { reason: string; cases: string[] }>>
/** Cases that differ, by suite. */
const listed = (name: string, suite: string): string[] =>
  Object.values((read(name) as Listed)[suite] ?? {}).flatMap(({ cases }) => cases)

async function python(...args: string[]): Promise<string> {
  const child = spawn(PYTHON, args, { cwd: GOLDEN, env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' } })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (text += chunk.toString()))
  await new Promise((resolve) => void child.once('close', resolve))
  return text
}

beforeAll(async () => {
  await pythonEnvironment()
  await python('-c', 'import sys, models; models.build(sys.argv[1])', join(work, 'models'))
}, 300_000)
afterAll(() => rmSync(work, { recursive: true, force: true }))

/** Suites with many calls, which `--nightly` replays. */
const LONG = process.env['NEREID_NIGHTLY'] === undefined ? [] : ['main', 'defaults']
/** Suites with gRPC calls, except for `poll` and `rate`, whose calls are in other suites. */
const NAMES = [...LONG, 'explicit', 'broken', 'broken_start', 'cache', 'restricted', 'forward', 'trace']

test.each(suites.filter(({ name }) => NAMES.includes(name)))(
  '$name: recorded gRPC calls get the same responses through grpc-js',
  async ({ name, repo, flags }) => {
    const [http = 0, grpc = 0, metrics = 0] = await freePorts(3)
    const repository = join(work, 'models', repo)
    const more = ['--exit-on-error=false', ...(['main', 'forward'].includes(name) ? ['--strict-readiness=false'] : [])]
    const parsed = parseArguments([
      `--model-repository=${repository}`,
      ...more,
      ...flags.map((flag) => flag.replace('{work}', work)),
    ])
    const given = Object.fromEntries(
      [...parsed.given.keys()].map((flag) => [optionName(flag), parsed.options[optionName(flag)]]),
    )
    const [address, logInfo] = ['127.0.0.1', true]
    const server = await Server.start({
      ...given,
      http: { address, port: http },
      metrics: { address, port: metrics },
      logInfo,
      log: () => {},
    } as unknown as ServerOptions)
    const outer = await outerServer(server, { port: grpc })
    const report = join(work, `${name}.json`)
    const at = (port: number): string => `127.0.0.1:${port}`
    const said = await python(
      'replay.py',
      '--http',
      at(http),
      '--grpc',
      outer.address,
      '--metrics',
      at(metrics),
      '--suite',
      name,
      '--repo',
      repository,
      '--work',
      work,
      '--report',
      report,
    )
    outer.end()
    await server.stop()
    const { suites: results } = JSON.parse(readFileSync(report, 'utf8').replaceAll(/\bNaN\b/g, 'null')) as {
      suites: Record<string, { passed: number; mismatches: Record<string, { differences: string[] }> }>
    }
    const { passed = 0, mismatches = {} } = results[name] ?? {}
    expect(passed, said).toBeGreaterThan(0)
    const known = listed('known-differences.json', name)
    const isKnown = (id: string): boolean =>
      known.some((one) => (one.endsWith('*') ? id.startsWith(one.slice(0, -1)) : one === id))
    const differ = Object.keys(mismatches).filter((id) => !isKnown(id))
    const why = differ.map((id) => `${id}: ${mismatches[id]?.differences.join('; ').slice(0, 300)}`).join('\n')
    expect(differ.toSorted(), why).toEqual(listed('embed-differences.json', name).toSorted())
  },
  600_000,
)

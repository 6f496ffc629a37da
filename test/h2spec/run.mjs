#!/usr/bin/env node
/**
 * h2spec, another reading of RFC 9113 and RFC 7541, against the gRPC port and the HTTP port: `node
 * test/h2spec/run.mjs`. It is built from its Go module, pinned in go.mod, into target/tools. Where it cannot be built,
 * crates/http2/src/core/tests.rs still has the same cases.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { endAll } from '../../bench/lib/process.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { standard } from '../attacks/lib/servers.mjs'
import { Target } from '../attacks/lib/target.mjs'

const HERE = fileURLToPath(new URL('.', import.meta.url))
const TOOL = join(ROOT, 'target', 'tools', 'h2spec')
const MODULE = 'github.com/summerwind/h2spec/cmd/h2spec'

/** Cases that fail, and why they may. */
const KNOWN = [
  {
    port: 'http',
    case: 'Sends invalid connection preface',
    reason:
      'this port speaks HTTP/1.1 too: what is no preface is a request, and is answered as one before the ' +
      'connection ends',
  },
]

/** Why it cannot be built, null when it is there. */
async function build() {
  if (ask('go', ['version']) === null) return 'go is not installed'
  mkdirSync(join(ROOT, 'target', 'tools'), { recursive: true })
  const env = { ...process.env, GOTOOLCHAIN: 'local', GOFLAGS: '-mod=readonly' }
  const { code, text } = await capture('go', ['build', '-o', TOOL, MODULE], { cwd: HERE, env, quiet: true })
  return code === 0 ? null : `h2spec cannot be built: ${text.trim().split('\n').at(-1)}`
}

/** Runs some cases and returns each with whether it passed. */
async function run(port, path, args) {
  const file = join(ROOT, 'target', 'reports', `h2spec-${port}.xml`)
  mkdirSync(join(ROOT, 'target', 'reports'), { recursive: true })
  rmSync(file, { force: true })
  const all = ['-h', '127.0.0.1', '-p', String(port), '-P', path, '-o', '2', '-j', file, ...args]
  const { text } = await capture(TOOL, all, { quiet: true })
  if (!existsSync(file)) throw new Error(`h2spec wrote no report: ${text.trim().split('\n').at(-1)}`)
  const cases = readFileSync(file, 'utf8').match(/<testcase[^>]*?(?:\/>|>.*?<\/testcase>)/gs) ?? []
  return cases.map((one) => {
    const name = (key) =>
      (new RegExp(` ${key}="([^"]*)"`).exec(one)?.[1] ?? '').replaceAll('&#39;', "'").replaceAll('&amp;', '&')
    const failed = /<(failure|error)[ >]/.test(one)
    const actual = /<(?:failure|error)>(.*?)<\//s.exec(one)?.[1] ?? ''
    return { section: name('package'), case: name('classname'), failed, actual: actual.replaceAll('&#xA;', ' | ') }
  })
}

/**
 * A HEADERS frame is too large beyond our MAX_FRAME_SIZE of 1 MiB; h2spec takes 16 KiB for granted, and has to be told.
 */
const LARGE = {
  section: 'http2/4.2',
  case: 'Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE',
}

/**
 * Asks the gRPC port, and with `all` the HTTP port too, which has the same implementation behind another way in.
 *
 * @returns {Promise<{passed: number, failed: number, known: number, skipped?: string}>}
 */
export async function h2spec({ all = true } = {}) {
  const missing = await build()
  if (missing !== null) return { passed: 0, failed: 0, skipped: missing }
  const target = await Target.start(standard)
  const counts = { passed: 0, failed: 0, known: 0, failures: [] }
  try {
    const ports = [
      ['grpc', target.grpcPort, '/inference.GRPCInferenceService/ServerLive'],
      ['http', target.httpPort, '/v2'],
    ]
    for (const [name, port, path] of all ? ports : ports.slice(0, 1)) {
      const isLarge = (one) => one.section === LARGE.section && one.case === LARGE.case
      const usual = (await run(port, path, [])).filter((one) => !isLarge(one))
      const large = (await run(port, path, ['--max-header-length', '250000', LARGE.section])).filter(isLarge)
      for (const one of [...usual, ...large]) {
        const known = KNOWN.find((other) => other.port === name && other.case === one.case)
        const is = !one.failed ? 'passed' : known === undefined ? 'failed' : 'known'
        counts[is] += 1
        if (is === 'failed') {
          process.stdout.write(`${name} ${one.section}: ${one.case}: ${one.actual}\n`)
          counts.failures.push(`${name} ${one.section}: ${one.case}`)
        }
        if (is === 'known') process.stdout.write(`${name} ${one.section}: ${one.case}: known: ${known.reason}\n`)
      }
    }
    await target.checkServes()
  } finally {
    await target.stop()
    await endAll()
  }
  for (const failure of target.failures) process.stdout.write(`${failure}\n`)
  counts.failed += target.failures.length
  counts.failures.push(...target.failures)
  process.stdout.write(`h2spec: ${counts.passed} passed, ${counts.failed} failed, ${counts.known} known\n`)
  return counts
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { failed, skipped } = await h2spec()
  if (skipped !== undefined) process.stdout.write(`${skipped}\n`)
  process.exit(failed === 0 ? 0 : 1)
}

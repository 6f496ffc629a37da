/**
 * Libraries of test/probes, written against Triton's C API, in this server: what they report is compared with what they
 * reported in a Triton.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { Lanes, recording, replayed } from './golden.mjs'
import { capture } from './lib/run.mjs'
import { pythonEnvironment } from './lib/venv.mjs'
import { ROOT, SetupError } from './setup.mjs'

/** Where the libraries are built. */
const BUILT = join(ROOT, 'target', 'probes')

/**
 * Builds the libraries, replays all suites, and prints for each function that real libraries import the probes that
 * import it.
 */
export async function probes({ only = null, suites = [] } = {}) {
  await pythonEnvironment()
  const build = join(ROOT, 'test', 'probes', 'build.sh')
  const { code, errors } = await capture('sh', [build, join(ROOT, 'shm', 'include'), BUILT], { quiet: true })
  if (code !== 0) throw new SetupError(`the probes cannot be built: a C compiler is needed (cc)\n${errors}`)
  const from = {
    ...recording('probes'),
    script: 'drive.py',
    more: ['--built', BUILT],
    flags: [
      '--backend-directory={backends}',
      // The probes write beside themselves.
      '--host-user=root',
      // One of them is named as a backend of the core.
      '--backend-config=tensorrt,use-library=true',
    ],
  }
  const lanes = new Lanes('probes')
  const chosen = suites.length > 0 ? suites : from.suites
  const counts = await replayed(from, chosen, { lanes, only })
  lanes.end()
  const { lines, missing } = await functions()
  process.stdout.write(`probes: functions of Triton's C API, and the probes that call them\n${lines.join('\n')}\n`)
  for (const name of missing) process.stdout.write(`probes: no probe calls ${name}\n`)
  return {
    ...counts,
    passed: counts.passed + lines.length,
    failed: counts.failed + missing.length,
    failures: [...counts.failures, ...missing.map((name) => `probes: no probe calls ${name}`)],
  }
}

/** Functions that no probe calls, with the tests that do. */
const ELSEWHERE_FILE = join(ROOT, 'test', 'probes', 'elsewhere.json')

/** Functions of symbols.txt with the probes that import them. */
async function functions() {
  const table = readFileSync(join(ROOT, 'test', 'probes', 'symbols.txt'), 'utf8')
  const names = table
    .split('\n')
    .filter((line) => line.startsWith('TRITON'))
    .map((line) => line.split(/\s/)[0])
  const libraries = readdirSync(BUILT, { recursive: true }).filter((path) => path.endsWith('.so'))
  const callers = new Map(names.map((name) => [name, []]))
  for (const path of libraries) {
    const { text } = await capture('nm', ['-D', '--undefined-only', join(BUILT, path)], { quiet: true })
    const probe = path.replace(/^.*\/(?:libtriton(?:cache|repoagent)?_)?|\.so$/g, '')
    for (const [, name] of text.matchAll(/\bU (TRITON\w+)/g)) callers.get(name)?.push(probe)
  }
  const elsewhere = existsSync(ELSEWHERE_FILE) ? JSON.parse(readFileSync(ELSEWHERE_FILE, 'utf8')) : {}
  const of = (name) => [...new Set(callers.get(name)), ...(elsewhere[name] ?? [])]
  const lines = names.filter((name) => of(name).length > 0).map((name) => `  ${name}: ${of(name).join(', ')}`)
  return { lines, missing: names.filter((name) => of(name).length === 0) }
}

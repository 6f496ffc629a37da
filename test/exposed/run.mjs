#!/usr/bin/env node
/**
 * Prints the tables of docs/security/permissions.md, each row with its result:
 * `node test/exposed/run.mjs [--only=SECTION] [-v]`. Every verb is asked for over real sockets, from
 * loopback and from a network, by curl and tritonclient; openssl looks at TLS. The last line is `N passed, N failed`.
 *
 * The network is a namespace of this run's own (network.py): servers there may listen at every address, as they do
 * without flags, and nobody else can reach them. Where the machine allows none, columns of the network are not run, and
 * say so.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { end, endAll, killAll, start } from '../../bench/lib/process.mjs'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { standardModels } from '../attacks/lib/servers.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { GrpcClient, askCurl } from './ask.mjs'
import { makeKeys } from './keys.mjs'
import { makePki } from './pki.mjs'
import { sections, shownSections } from './sections.mjs'
import { cell, heading } from './table.mjs'
import { quotaRows } from './quotas.mjs'
import { tlsRows } from './tls.mjs'
import { makeTokens } from './tokens.mjs'
import { verbs as allVerbs } from './verbs.mjs'

const HERE = fileURLToPath(new URL('.', import.meta.url))
/** Ports of a server without flags; a namespace has them free. */
const DEFAULT_PORTS = { http: 8000, grpc: 8001, metrics: 8002 }
const CONTROL_PORT = 8003
const START_MS_MAX = 60_000

const network = process.env.NEREID_TEST_NETWORK ?? null
const say = (text) => process.stdout.write(`${text}\n`)

/** The command in front of a command that gives it a network of its own; a sentence where this machine allows none. */
function networkOfOwn() {
  const words = [join(HERE, 'network.py')]
  let why = 'unshare is not installed: apt-get install util-linux'
  for (const flags of [['--map-root-user', '--net'], ['--net']]) {
    const tried = spawnSync('unshare', [...flags, 'python3', ...words, 'true'], { encoding: 'utf8' })
    if (tried.status === 0) return { command: ['unshare', ...flags, 'python3', ...words] }
    if (tried.stderr) why = tried.stderr.trim().split('\n').at(-1)
  }
  return { why }
}

function repository(directory) {
  const root = join(directory, 'models')
  standardModels(root)
  const one = (name) => [[name, 'TYPE_FP32', [1]]]
  for (const name of ['spare', 'given'])
    writeModel(root, name, { config: config('identity', 0, one('INPUT0'), one('OUTPUT0')) })
  return root
}

/** A running server of a section. */
async function serve(section, context) {
  const ports = network === null ? await freePorts(3) : null
  const listen = ports === null ? [] : listenFlags(ports)
  const args = [join(ROOT, 'dist/cli/main.js'), `--model-repository=${context.models}`, ...listen, ...section.flags]
  const { child, output } = await start(`server of "${section.title}"`, process.execPath, args, {
    ready: /Started Metrics Service at/,
    timeoutMs: START_MS_MAX,
  })
  const [http, grpc, metrics] = ports ?? []
  return { child, output, ports: ports === null ? DEFAULT_PORTS : { http, grpc, metrics } }
}

/** State that a client could have changed, read over loopback. */
async function stateOf(server, ids, context) {
  const asked = context.verbs.filter(({ id }) => ids.includes(id))
  return JSON.stringify([...(await askCurl({ host: '127.0.0.1', ports: server.ports }, asked, context.directory))])
}

async function runSection(section, context) {
  const { verbs, grpc, directory } = context
  const server = await serve(section, context)
  const results = []
  const failures = []
  let changed = null
  try {
    for (const column of section.columns) {
      if (column.where === 'network' && network === null) {
        results.push(null)
        continue
      }
      const to = {
        host: column.where === 'network' ? network : '127.0.0.1',
        ...placeOf(column, server, context),
        tls: column.tls,
      }
      const state = () => stateOf(server, section.unchanged, context)
      const before = section.unchanged !== undefined && column.where === 'network' ? await state() : null
      const http = await askCurl({ ...to, headers: column.headers?.http }, verbs, directory)
      const calls = await grpc.ask({ ...to, headers: column.headers?.grpc }, verbs, context)
      results.push({ http, grpc: calls })
      if (before !== null) changed = before !== (await state())
      if (server.child.exitCode !== null) throw new Error(`the server ended: ${server.output().slice(-2000)}`)
    }
  } finally {
    await end(server.child)
  }
  say(`\n${heading(shownSections().find(({ id }) => id === section.id))}`)
  let passed = 0
  for (const verb of verbs) {
    const wrong = section.columns.flatMap((column, i) => flaws(column, verb, results[i]))
    const shown = section.columns.map((column, i) =>
      results[i] === null ? 'not run' : cell(verb, (transport) => results[i][transport].get(verb.id)?.[0]),
    )
    say(
      `${wrong.length === 0 ? 'ok    ' : 'FAILED'} | ${[verb.title, ...shown].join(' | ')} ` +
        `|${wrong.length === 0 ? '' : ` ${wrong.join('; ')}`}`,
    )
    if (wrong.length === 0) passed += 1
    else failures.push(`${section.title}: ${verb.title}`)
  }
  if (changed !== null) {
    const title = 'what a stranger asked for changed nothing'
    say(`${changed ? 'FAILED' : 'ok    '} | ${title} (${section.unchanged.join(', ')}) |`)
    if (changed) failures.push(`${section.title}: ${title}`)
    else passed += 1
  }
  return { passed, failures }
}

/** Where a column asks: at the ports, or at sockets. */
function placeOf({ at }, { ports }, { places }) {
  const socket = (name) => join(places.sockets, name)
  if (at === 'control') return { ports: { ...ports, http: places.control, grpc: places.control } }
  if (at === 'socket') return { ports, sockets: { http: socket('http'), grpc: socket('grpc') } }
  if (at === 'control socket') return { ports, sockets: { http: socket('control'), grpc: socket('control') } }
  return { ports }
}

/** Sentences about answers of one column that are not those of the table. */
function flaws(column, verb, result) {
  if (result === null) return []
  const found = []
  for (const transport of ['http', 'grpc']) {
    if (verb[transport] === null) continue
    const [status, text] = result[transport].get(verb.id) ?? ['nothing', '']
    const expected = column.expect(verb, transport)
    const who = `${transport}, ${column.where}, ${column.brings}`
    if (status !== expected) found.push(`${who}: ${status} instead of ${expected} (${text.trim().slice(0, 160)})`)
    else if (
      column.says !== undefined &&
      expected !== verb.allowed[transport] &&
      expected !== 'no connection' &&
      !column.says.test(text)
    )
      found.push(`${who}: ${text.trim().slice(0, 160)}`)
  }
  return found
}

/** @returns {Promise<{passed: number, failed: number, failures: string[], skipped: string}>} */
async function table({ only }) {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-exposed-'))
  const key = `/nereid-exposed-${process.pid}`
  const written = join(directory, 'written-by-a-client')
  writeFileSync(`/dev/shm${key}`, Buffer.alloc(64))
  const grpc = new GrpcClient()
  process.once('exit', killAll)
  const counts = { passed: 0, failed: 0, failures: [] }
  const add = ({ passed, failures }) => {
    counts.passed += passed
    counts.failed += failures.length
    counts.failures.push(...failures)
  }
  try {
    const pki = makePki(directory, ['127.0.0.1', ...(network === null ? [] : [network])])
    const places = {
      control: network === null ? (await freePorts(1))[0] : CONTROL_PORT,
      sockets: join(directory, 'sockets'),
    }
    mkdirSync(places.sockets)
    const keys = { ...makeKeys(directory), tokens: makeTokens(directory) }
    const context = {
      directory,
      models: repository(directory),
      grpc,
      verbs: allVerbs({ key, file: written }),
      key,
      file: written,
      pki,
      keys,
      places,
      network,
    }
    for (const section of sections(pki, keys, places)) {
      if (only !== null && section.id !== only) continue
      add(await runSection(section, context))
    }
    if (only === null || only === 'quotas') add(await quotaRows(context, serve))
    if (only === null || only === 'tls') add(await tlsRows(context, serve))
    const name = 'no client had a file written'
    say(`\n${existsSync(written) ? 'FAILED' : 'ok    '} | ${name} |`)
    add(existsSync(written) ? { passed: 0, failures: [name] } : { passed: 1, failures: [] })
  } finally {
    grpc.end()
    await endAll()
    rmSync(`/dev/shm${key}`, { force: true })
    rmSync(directory, { recursive: true, force: true })
  }
  return { ...counts, skipped: network === null ? `columns of the network: ${process.env.NEREID_TEST_NO_NETWORK}` : '' }
}

/** For `npm test`: in a process of its own, which may be put into another network. */
export async function exposed() {
  await pythonEnvironment()
  for (const tool of ['openssl', 'curl']) {
    if (ask(tool, [tool === 'curl' ? '--version' : 'version']) === null)
      return { passed: 0, failed: 0, skipped: `${tool} is not installed: apt-get install ${tool}` }
  }
  const { command = [], why = '' } = networkOfOwn()
  const [program, ...args] = [...command, process.execPath, fileURLToPath(import.meta.url), '--here']
  const { code, text } = await capture(program, args, {
    cwd: ROOT,
    env: { ...process.env, NEREID_TEST_NO_NETWORK: why },
  })
  const last = /(\d+) passed, (\d+) failed(?:; (.*))?\s*$/.exec(text)
  if (last === null) return { passed: 0, failed: 1, failures: [`the runner ended with ${code}`] }
  const failures = /^failed: (.*)$/m.exec(text)?.[1]
  return {
    passed: Number(last[1]),
    failed: Number(last[2]),
    failures: failures === undefined ? [] : JSON.parse(failures),
    skipped: last[3] ?? '',
  }
}

async function main() {
  if (!process.argv.includes('--here')) {
    const { command = [], why = '' } = networkOfOwn()
    const [program, ...args] = [
      ...command,
      process.execPath,
      fileURLToPath(import.meta.url),
      '--here',
      ...process.argv.slice(2),
    ]
    process.exitCode =
      spawnSync(program, args, { stdio: 'inherit', env: { ...process.env, NEREID_TEST_NO_NETWORK: why } }).status ?? 1
    return
  }
  const only = process.argv.find((a) => a.startsWith('--only='))?.slice('--only='.length) ?? null
  const { passed, failed, failures, skipped } = await table({ only })
  if (failures.length > 0) say(`failed: ${JSON.stringify(failures)}`)
  say(`${passed} passed, ${failed} failed${skipped === '' ? '' : `; ${skipped}`}`)
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main()

#!/usr/bin/env node
/**
 * Chooses the recorded answers that `npm test` asks of other servers (sample.json), of those of test/golden: every
 * status, header, encoding, content type, method and endpoint that the recording has over HTTP, every request that is
 * written byte by byte, and every kind of known difference of these servers, at least once. `node
 * test/embed/sample.mjs` writes the file.
 *
 * The same recording gives the same sample. What is chosen says why.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'

const HERE = join(ROOT, 'test', 'embed')
export const SAMPLE = join(HERE, 'sample.json')

/** Cases whose answer depends on those before them, which a sample leaves out. */
const DEPENDS = /^(?:count|seq|stats)\b/

/** Cases that others need, with what they are there for: asked as well, in the order of the recording. */
const BEFORE = {
  'main/trace.global.rate': 'sets what is read for a model after it',
  'main/trace.global.null': 'takes it back',
  'main/shm.make': 'makes the region that is registered',
  'main/shm.make2': 'makes the other region',
  'main/shm.clean': 'removes both',
}

/** All cases of test/golden, by suite, as `replay.py --list` has them. */
async function recorded() {
  const { code, text } = await capture(PYTHON, [join(ROOT, 'test/golden/replay.py'), '--list'], {
    quiet: true,
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
  })
  if (code !== 0) throw new Error(`replay.py --list ended with ${code}: ${text.slice(-1000)}`)
  return JSON.parse(text.replaceAll(/\bNaN\b/g, 'null'))
}

/** Method, path and headers of a request, also of one that is written byte by byte. */
function requestOf({ kind, method, path, headers = [], data = [] }) {
  if (kind === 'http') return { method, path, headers }
  const [line, ...lines] = data
    .filter((part) => typeof part === 'string')
    .join('')
    .split('\r\n\r\n', 1)[0]
    .split('\r\n')
  const [, verb, target] = /^([A-Z]+) (\S+) HTTP/.exec(line) ?? []
  return { method: verb, path: target, headers: lines.map((one) => one.split(/:\s*/, 2)) }
}

/** `/v2/models/plus/versions/2/infer?x=1` → `/v2/models/NAME/versions/N/infer`. */
const endpointOf = (path) =>
  path
    .replace(/[?#].*/, '')
    .replace(/\/(models|region)\/(?!stats\b)[^/]+/, '/$1/NAME')
    .replace(/\/versions\/[^/]+/, '/versions/N')

/** Headers whose value decides, and not only that they are there. */
const VALUES = new Set(['content-encoding', 'accept-encoding', 'transfer-encoding', 'expect', 'connection'])

/** Everything a case has that should be in the sample once. */
function* traits(one, suite) {
  const { method, path, headers } = requestOf(one)
  const [first] = one.answers
  if (one.kind === 'raw') yield `written byte by byte: ${one.id}`
  for (const [name, value] of headers) {
    // One of the numbered headers stands for all.
    const key = name.toLowerCase().replace(/\d+$/, 'N')
    yield `request header ${VALUES.has(key) ? `${key}: ${value}` : key}`
    // A body that cannot be decoded is answered differently.
    if (key === 'content-encoding')
      yield `${key}: ${value}, answered ${one.strict === 'notok' ? 'with an error' : first.status}`
  }
  for (const answer of one.answers) {
    if (typeof answer === 'string') yield `connection: ${answer}`
    // If any error is right, only the fact that it is an error is compared.
    if (answer.status === undefined || one.strict === 'notok') continue
    yield `status ${answer.status}`
    if (answer.continue) yield 'status 100'
    for (const [key, value] of Object.entries(answer.headers ?? {}))
      yield `answer header ${VALUES.has(key) || key === 'content-type' ? `${key}: ${value}` : key}`
    // The status has gone when something fails.
    if (
      answer.headers?.['content-type']?.startsWith('text/event-stream') &&
      answer.body?.text?.includes('data: {"error"')
    )
      yield 'an error after the head of the answer'
    if (method === undefined) continue
    yield `method ${method}`
    // A path that nothing serves is no endpoint: one 404 and one 405 stand for all. How an endpoint refuses is worth a
    // case, but no server of its own.
    if (answer.status < 400) yield `${method} ${endpointOf(path)}`
    else if (suite === 'main' && ![404, 405].includes(answer.status)) yield `${method} ${endpointOf(path)}, refused`
  }
}

/** Kinds of differences that servers are known for, by case. */
function* differences() {
  for (const [outer, suites] of Object.entries(JSON.parse(readFileSync(join(HERE, 'differences.json'), 'utf8')))) {
    for (const [suite, kinds] of Object.entries(suites))
      for (const [kind, { cases }] of Object.entries(kinds))
        for (const id of cases) yield { suite, id, trait: `different in ${outer}: ${kind}` }
  }
}

/** The sample: for each suite the ids to ask, with what each is there for. */
export async function chosen() {
  const suites = await recorded()
  const known = [...differences()]
  const left = new Set()
  const candidates = []
  for (const [suite, cases] of Object.entries(suites)) {
    for (const one of cases) {
      if (!one.judged || !['http', 'raw'].includes(one.kind) || one.port === 'metrics' || DEPENDS.test(one.id)) continue
      const has = [
        ...new Set([
          ...traits(one, suite),
          ...known.filter((k) => k.suite === suite && k.id === one.id).map(({ trait }) => trait),
        ]),
      ]
      for (const trait of has) left.add(trait)
      candidates.push({ suite, id: one.id, has })
    }
  }
  const why = new Map()
  const keyOf = (suite, id) => `${suite}/${id}`
  while (left.size > 0) {
    // Suites are in the order of the recording: another server is started only for what the first has not.
    const places = candidates.map(({ suite }) => suite)
    const open = candidates.map(({ has }) => has.filter((trait) => left.has(trait)))
    const suite = places[open.findIndex((traitsOpen) => traitsOpen.length > 0)]
    const most = Math.max(...open.filter((_, i) => places[i] === suite).map(({ length }) => length))
    const best = open.findIndex(({ length }, i) => places[i] === suite && length === most)
    why.set(keyOf(suite, candidates[best].id), open[best].join('; '))
    for (const trait of open[best]) left.delete(trait)
  }
  for (const [key, reason] of Object.entries(BEFORE)) if (!why.has(key)) why.set(key, reason)
  const ordered = Object.entries(suites).map(([suite, cases]) => [
    suite,
    Object.fromEntries(
      cases.filter(({ id }) => why.has(keyOf(suite, id))).map(({ id }) => [id, why.get(keyOf(suite, id))]),
    ),
  ])
  return Object.fromEntries(ordered.filter(([, ids]) => Object.keys(ids).length > 0))
}

export const textOf = (sample) => `${JSON.stringify(sample, null, 1)}\n`

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await pythonEnvironment()
  const sample = await chosen()
  writeFileSync(SAMPLE, textOf(sample))
  process.stdout.write(
    `${Object.entries(sample)
      .map(([suite, ids]) => `${suite}: ${Object.keys(ids).length}`)
      .join(', ')}\n`,
  )
}

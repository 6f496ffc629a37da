/** The table of SECURITY.md has every verb of the server, and stands in SECURITY.md as the suite `exposed` asks for it. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { CLASSES, published } from './cves.mjs'
import { written } from './docs.mjs'
import { sections } from './sections.mjs'
import { verbs as allVerbs } from './verbs.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const source = (name: string): string => readFileSync(join(ROOT, 'crates/frontend/src', name), 'utf8')
const files = { cert: 'a.crt', key: 'a.key' }
const KEYS = { file: 'keys.json', operator: '', app: '', ended: '', tokens: { file: 'keys.json', set: 'jwks.json' } }
const PLACES = { control: 8003, sockets: '/run/nereid' }
const verbs = allVerbs({ key: '/key', file: '/file' })

/** Names of the variants of an enum in Rust. */
function variants(text: string, name: string): string[] {
  const body = new RegExp(`pub enum ${name}[^{]*\\{\\n([\\s\\S]*?)\\n\\}`).exec(text)?.[1] ?? ''
  const found = [...body.matchAll(/^ {4}([A-Z]\w*)/gm)].map((m) => m[1] ?? '')
  expect(found.length).toBeGreaterThan(2)
  return found
}

test('every route of HTTP has a row', () => {
  const text = source('http/route.rs')
  const nested: Record<string, string> = { Model: 'ModelAction', SharedMemory: 'RegionAction' }
  const routes = variants(text, 'Route').flatMap((route) => {
    const action = nested[route]
    return action === undefined ? [route] : variants(text, action).map((one) => `${route}::${one}`)
  })
  const named = new Set(verbs.map(({ http }) => http?.route ?? null).filter((route) => route !== null))
  expect([...named].sort()).toEqual([...new Set(routes)].sort())
})

test('every call of gRPC has a row', () => {
  const named = new Set(verbs.map(({ grpc }) => grpc).filter((call) => call !== null))
  expect([...named].sort()).toEqual(variants(source('grpc/method.rs'), 'Rpc').sort())
})

test('a route that both reads and changes has a row for each', () => {
  for (const route of ['Logging', 'Trace']) {
    const methods = verbs.filter(({ http }) => http?.route === route).map(({ http, act }) => `${http?.method} ${act}`)
    expect([...new Set(methods)].sort()).toEqual(['GET read', 'POST write'])
  }
})

test('the rows are those of the gate, which says what each needs', () => {
  // Written from `VERBS` in crates/frontend/src/gate.rs by its own test.
  const table = JSON.parse(readFileSync(join(ROOT, 'crates/frontend/verbs.json'), 'utf8')) as { category: string; act: string; near: string; far: string }[]
  const kinds = (rows: { category: string | null; act: string }[]) => [...new Set(rows.filter((row) => row.category !== null).map(({ category, act }) => `${category} ${act}`))].sort()
  expect(kinds(verbs)).toEqual(kinds(table))
  const [network, , loopback] = sections({ root: files, server: files, client: files, foreign: files }, KEYS, PLACES)[0]?.columns ?? []
  for (const verb of verbs) {
    const row = table.find(({ category, act }) => category === verb.category && act === verb.act)
    for (const transport of ['http', 'grpc'] as const) {
      if (verb[transport] === null || row === undefined) continue
      const isOpen = (column: typeof network) => column?.expect(verb, transport) === verb.allowed[transport]
      expect(isOpen(loopback), `${verb.id} from loopback`).toBe(row.near === 'nothing')
      expect(isOpen(network), `${verb.id} from a network`).toBe(row.far === 'nothing')
    }
  }
})

test('each column has an answer for each verb', () => {
  for (const { columns } of sections({ root: files, server: files, client: files, foreign: files }, KEYS, PLACES)) {
    for (const { expect: rule } of columns) {
      for (const verb of verbs) {
        if (verb.http !== null) expect(rule(verb, 'http')).toMatch(/^(\d{3}|no connection)$/)
        if (verb.grpc !== null) expect(rule(verb, 'grpc')).toMatch(/^([A-Z_]+|no connection|error in the stream)$/)
      }
    }
  }
})

test('SECURITY.md has the tables as the rows say them: node test/exposed/docs.mjs', () => {
  const page = readFileSync(join(ROOT, 'SECURITY.md'), 'utf8')
  expect(written(page)).toBe(page)
})

test('every known vulnerability of Triton has its place, and no other', () => {
  const known = [...published().keys()]
  expect(known).toHaveLength(64)
  expect(CLASSES.flatMap(({ cves }) => cves).toSorted()).toEqual(known.toSorted())
})

test('what shows the answer to a vulnerability is there', () => {
  for (const { title, proofs } of CLASSES) {
    expect(proofs.length, title).toBeGreaterThan(0)
    for (const [file, words] of proofs) {
      expect(existsSync(join(ROOT, file)), `${title}: ${file}`).toBe(true)
      expect(readFileSync(join(ROOT, file), 'utf8').includes(words), `${title}: ${file}: ${words}`).toBe(true)
    }
  }
})

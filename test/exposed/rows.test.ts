/**
 * docs/security/permissions.md has every verb of the server, as the suite `exposed` asks for it.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { CLASSES, published } from './cves.mjs'
import { pages } from './docs.mjs'
import { sections } from './sections.mjs'
import { callOf, calls, routeOf, routes, verbs as allVerbs } from './verbs.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const files = { cert: 'a.crt', key: 'a.key' }
const KEYS = { file: 'keys.json', operator: '', app: '', ended: '', tokens: { file: 'keys.json', set: 'jwks.json' } }
const PLACES = { control: 8003, sockets: '/run/nereid' }
const verbs = allVerbs({ key: '/key', file: '/file' })

test('every route of HTTP has a row', () => {
  const named = new Set(
    verbs
      .map(({ http }) => (http === null ? undefined : routeOf(http)?.operation))
      .filter((operation) => operation !== undefined),
  )
  expect([...named].sort()).toEqual([...new Set(routes.map(({ operation }) => operation))].sort())
})

test('every call of gRPC has a row', () => {
  const named = new Set(
    verbs
      .map(({ grpc }) => (grpc === null ? undefined : callOf(grpc)?.operation))
      .filter((operation) => operation !== undefined),
  )
  expect([...named].sort()).toEqual([...new Set(calls.map(({ operation }) => operation))].sort())
})

test('the columns are open to those whom the gate lets in', () => {
  const [network, , loopback] =
    sections({ root: files, server: files, client: files, foreign: files }, KEYS, PLACES)[0]?.columns ?? []
  for (const verb of verbs) {
    const same = routes.find(({ category, act }) => category === verb.category && act === verb.act)
    const row = verb.category === null ? undefined : verb.http === null ? same : routeOf(verb.http)
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

test('the pages of docs/security are written from the rows: node test/exposed/docs.mjs', () => {
  for (const [path, text] of pages()) expect(readFileSync(join(ROOT, path), 'utf8'), path).toBe(text)
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

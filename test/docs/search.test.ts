/** Searches of people: searches.json has the page that each must find first. The site's own code ranks them. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runInNewContext } from 'node:vm'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { buildDocs } from '../../scripts/docs.mjs'
import { ROOT } from './pages.js'

type Entry = [address: string, title: string, heading: string, text: string, aliases: string]

const SEARCHES = JSON.parse(readFileSync(join(ROOT, 'test/docs/searches.json'), 'utf8')) as [string, string][]
const out = mkdtempSync(join(tmpdir(), 'nereid-search-'))
let find: (text: string) => Entry[]

beforeAll(async () => {
  await buildDocs(out)
  const window: { NEREID_SEARCH?: Entry[] } = {}
  const site: { window: typeof window; NEREID_RANK?: { rank: (index: unknown, text: string) => Entry[] } } = { window }
  for (const script of ['search-index.js', 'rank.js']) runInNewContext(readFileSync(join(out, script), 'utf8'), site)
  find = (text) => site.NEREID_RANK?.rank(window.NEREID_SEARCH, text) ?? []
}, 120_000)
afterAll(() => rmSync(out, { recursive: true, force: true }))

test('each search finds its page first', () => {
  expect(SEARCHES.length).toBeGreaterThanOrEqual(60)
  const wrong = SEARCHES.flatMap(([text, page]) => {
    const [first] = find(text)
    const found = first?.[0].split('#')[0]
    return found === page ? [] : [`${text}: ${found ?? 'nothing'} and not ${page}`]
  })
  expect(wrong).toEqual([])
})

test('small words are ignored, and a word that no page has finds nothing', () => {
  expect(find('how to deploy on kubernetes')[0]?.[0]).toMatch(/^deploy\.html/)
  expect(find('zxqv')).toEqual([])
})

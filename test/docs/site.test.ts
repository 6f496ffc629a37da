/** `npm run docs`: the pages work from a disk, below any path and without network, and every link in them works. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, posix, relative } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { buildDocs } from '../../scripts/docs.mjs'
import { filesBelow } from './files.js'
import { ROOT, textOf } from './pages.js'

const out = mkdtempSync(join(tmpdir(), 'nereid-docs-'))
const pages = new Map<string, string>()

beforeAll(async () => {
  await buildDocs(out)
  for (const file of filesBelow(out, /\.html$/)) pages.set(relative(out, file), readFileSync(file, 'utf8'))
}, 120_000)
afterAll(() => rmSync(out, { recursive: true, force: true }))

/** Targets of a page's links, as HTML writes them. */
const namedIn = (html: string) =>
  [...html.matchAll(/ (?:href|src)="([^"]*)"/g)].map(([, to = '']) => to.replaceAll('&amp;', '&'))
const idsOf = (html: string) => new Set([...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id))

test('every link of every page leads to a page, and to a heading that is there', () => {
  const ids = new Map([...pages].map(([address, html]) => [address, idsOf(html)]))
  const files = new Set(filesBelow(out, /./).map((file) => relative(out, file)))
  const broken: string[] = []
  let links = 0
  for (const [address, html] of pages) {
    for (const to of namedIn(html)) {
      if (/^https?:/.test(to)) {
        if (!URL.canParse(to)) broken.push(`${address}: ${to} is no address`)
        continue
      }
      links += 1
      const [path = '', anchor] = to.split('#')
      const target = path === '' ? address : posix.join(posix.dirname(address), decodeURI(path))
      if (!files.has(target)) broken.push(`${address}: ${to}`)
      else if (anchor !== undefined && ids.get(target)?.has(decodeURIComponent(anchor)) !== true)
        broken.push(`${address}: ${to} has no such heading`)
    }
  }
  expect(links).toBeGreaterThan(200)
  expect(broken).toEqual([])
})

test('no page has two places of one name', () => {
  for (const [address, html] of pages) expect([...html.matchAll(/ id="/g)].length, address).toBe(idsOf(html).size)
})

test('pages load nothing from elsewhere', () => {
  for (const [address, html] of pages) {
    const loaded = [...html.matchAll(/<(?:script|img|link)[^>]* (?:src|href)="([^"]*)"/g)].map(([, to = '']) => to)
    expect(
      loaded.filter((to) => /^(?:\w+:|\/)/.test(to)),
      address,
    ).toEqual([])
    expect(
      loaded.filter((to) => !existsSync(join(out, dirname(address), to))),
      `missing at ${address}`,
    ).toEqual([])
  }
  for (const file of filesBelow(out, /\.(?:css|js)$/))
    expect(readFileSync(file, 'utf8').replace(/^window\.NEREID_SEARCH.*/, ''), file).not.toMatch(/https?:/)
})

test('the search knows every page of the navigation, by addresses that exist', () => {
  const text = readFileSync(join(out, 'search-index.js'), 'utf8')
  const entries = JSON.parse(text.slice(text.indexOf('['))) as [string, string, string, string][]
  const missing = entries.filter(([to]) => {
    const [address = '', id = ''] = to.split('#')
    return !idsOf(pages.get(address) ?? '').has(id)
  })
  expect(missing).toEqual([])
  const navigation = namedIn(/<nav id="the-pages"[\s\S]*?<\/nav>/.exec(pages.get('index.html') ?? '')?.[0] ?? '')
  expect(navigation.length).toBeGreaterThan(5)
  expect(navigation.filter((address) => !entries.some(([to]) => to.startsWith(`${address}#`)))).toEqual([])
})

test('each search entry has a title and a heading', () => {
  const text = readFileSync(join(out, 'search-index.js'), 'utf8')
  const entries = JSON.parse(text.slice(text.indexOf('['))) as [string, string, string, string][]
  expect(entries.filter(([, title, heading]) => title === '' || heading === '')).toEqual([])
  const find = (word: string) =>
    entries
      .filter(([, title, heading, about]) => `${title} ${heading} ${about}`.toLowerCase().includes(word))
      .map(([to]) => to.split('#')[0])
  const linked = {
    autoscaling: 'operating',
    helm: 'containers',
    kubernetes: 'containers',
    memory: 'operating',
    embeddings: 'models',
    monitoring: 'operating',
    upgrade: 'operating',
    cuda: 'support',
    alpine: 'support',
    changelog: 'changes',
  }
  for (const [word, page] of Object.entries(linked)) expect(find(word), word).toContain(`${page}.html`)
})

test('comments for tests are not in the pages', () => {
  expect([...pages].filter(([, html]) => /<!--/.test(html)).map(([address]) => address)).toEqual([])
  const folders = new Set([...pages.keys()].map((address) => dirname(address)))
  const expected = ['.', 'compat', 'contract', 'decisions', 'inside']
  if (existsSync(join(ROOT, 'docs/tutorials'))) expected.push('tutorials')
  expect([...folders].filter((folder) => !folder.startsWith('files')).toSorted()).toEqual(expected)
})

test('a file that a page names is a link to its copy, with the file’s text', () => {
  const html = pages.get('inside/where.html') ?? ''
  const named = [...textOf('docs/internals/where.md').matchAll(/`((?:src|crates)\/[\w./-]+\.(?:ts|rs))`/g)]
  expect(named.length).toBeGreaterThan(20)
  const missing = named.map(([, path]) => path).filter((path) => !html.includes(`href="../files/${path}.html"`))
  expect(missing).toEqual([])
  expect(pages.get(`files/${named[0]?.[1]}.html`)).toMatch(/class="hljs/)
})

test('each page says its version and its file', () => {
  const { version } = JSON.parse(textOf('package.json')) as { version: string }
  for (const [address, html] of pages)
    expect(/<p class="origin">(.*?)<\/p>/.exec(html)?.[1], address).toMatch(`Version ${version}`)
  expect(pages.get('start.html')).toContain('docs/start.md</')
})

/**
 * Makes static pages of the Markdown that the repository holds. They need no network and no server: every link is
 * relative and names a file, so they open from a disk and below any path. `pages.mjs` lists the pages.
 */
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import page from './_includes/page.11ty.mjs'
import { ALIASES } from './aliases.mjs'
import { Files } from './files.mjs'
import { indexOf } from './index.mjs'
import { markdown } from './markdown.mjs'
import { CRATES, FOLDERS, GROUPS } from './pages.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

const listed = GROUPS.flatMap(({ pages }) => pages)
const inFolders = FOLDERS.flatMap(([folder, address]) =>
  readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith('.md') && name !== 'README.md')
    .map((name) => [`${folder}/${name}`, `${address}/${name.replace(/\.md$/, '.html')}`]),
)
const ofCrates = readdirSync(join(ROOT, CRATES))
  .map((crate) => [`${CRATES}/${crate}/README.md`, `inside/${crate}.html`])
  .filter(([source]) => existsSync(join(ROOT, source)))

/** Source → address, both from the root. */
const ADDRESSES = new Map([...listed, ...inFolders, ...ofCrates])

const { version, repository } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))

const titleOf = (text) => (/^# (.+)$/m.exec(text)?.[1] ?? '').replaceAll('`', '')

export default function configure(config) {
  const texts = new Map([...ADDRESSES.keys()].map((source) => [source, readFileSync(join(ROOT, source), 'utf8')]))
  const names = new Map(listed.map(([source, , name]) => [source, name]))
  const entry = (source) => {
    const title = titleOf(texts.get(source)) || names.get(source)
    return { source, address: ADDRESSES.get(source), title, name: names.get(source) ?? title }
  }
  const navigation = GROUPS.map(({ title, pages }) => ({ title, pages: pages.map(([source]) => entry(source)) }))
  const frame = { navigation, version, repository: repository?.url ?? null }
  const order = listed.map(([source]) => entry(source))

  for (const [source, text] of texts) {
    const at = order.findIndex((one) => one.source === source)
    config.addTemplate(`${source.replaceAll('/', '-')}`, text, {
      ...entry(source),
      permalink: ADDRESSES.get(source),
      layout: 'page.11ty.mjs',
      ...frame,
      previous: order[at - 1] ?? null,
      next: at === -1 ? null : (order[at + 1] ?? null),
    })
  }
  config.addPassthroughCopy({ assets: '.', '../images/*.png': '.' })
  config.setTemplateFormats(['md'])
  const files = new Files(ROOT)
  const md = markdown({ root: ROOT, addresses: ADDRESSES, files })
  config.setLibrary('md', md)
  config.on('eleventy.after', ({ directories, results }) => {
    const out = join(dirname(fileURLToPath(import.meta.url)), directories.output)
    // A folder's copy names more files, which the loop then reaches.
    for (const [path, address] of files.named) {
      mkdirSync(dirname(join(out, address)), { recursive: true })
      const file = { ...frame, source: path, address, title: path, previous: null, next: null }
      writeFileSync(join(out, address), page({ ...file, content: files.html(path, md) }))
    }
    const pages = results.flatMap(({ url, content }) => {
      const address = posix.join('.', url.replace(/\/$/, '/index.html')).replace(/^\//, '')
      const one = order.find((listedPage) => listedPage.address === address)
      return one === undefined ? [] : [[address, one.title, content, ALIASES[address] ?? '']]
    })
    // A script and not JSON: pages that are opened from a disk may not fetch.
    const text = `window.NEREID_SEARCH = ${JSON.stringify(indexOf(pages))}\n`
    writeFileSync(join(out, 'search-index.js'), text)
  })
  return { markdownTemplateEngine: false, dir: { input: '.', includes: '_includes', output: '../../target/site' } }
}

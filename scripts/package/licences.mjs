/**
 * The licences of what others wrote and is in the packages: crates linked into the native module, libraries packed into dist/. From what is there:
 * `cargo metadata` with the sources it names, and the source maps of dist/.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { ask } from '../lib/run.mjs'
import { filesBelow } from '../lib/stamp.mjs'
import { ROOT, SetupError } from '../setup.mjs'

const RULE = '='.repeat(100)

/** Crates linked into the module for a target, with the licence of each. */
export function cratesText(triple) {
  const json = ask('cargo', ['metadata', '--format-version=1', '--locked', '--filter-platform', triple], { cwd: ROOT, maxBuffer: 1 << 28 })
  if (json === null) throw new SetupError('cargo metadata failed')
  const { packages, resolve } = JSON.parse(json)
  const byId = new Map(packages.map((one) => [one.id, one]))
  const linked = new Set()
  const visit = (id) => {
    const { targets } = byId.get(id)
    // A macro runs in the compiler only.
    if (linked.has(id) || targets.some((one) => one.kind.includes('proc-macro'))) return
    linked.add(id)
    const node = resolve.nodes.find((one) => one.id === id)
    for (const { pkg, dep_kinds } of node.deps) if (dep_kinds.some(({ kind }) => kind === null)) visit(pkg)
  }
  visit(packages.find((one) => one.name === 'nereid-node').id)
  const crates = [...linked].map((id) => byId.get(id)).filter((one) => one.source !== null)
  const parts = crates.map((one) => ({ title: `${one.name} ${one.version}`, licence: one.license ?? 'see below', directory: dirname(one.manifest_path) }))
  return textOf('Rust crates linked into the native module, beside the Rust standard library (MIT OR Apache-2.0):', parts)
}

/** Libraries whose code is in dist/. */
export function librariesText() {
  const maps = filesBelow(ROOT, ['dist'], (path) => path.endsWith('.map')).map(({ path }) => JSON.parse(readFileSync(join(ROOT, path), 'utf8')))
  const names = new Set(maps.flatMap(({ sources }) => sources.map((source) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(source)?.[1])))
  names.delete(undefined)
  const parts = [...names].map((name) => {
    const directory = join(ROOT, 'node_modules', name)
    const { version, license } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
    return { title: `${name} ${version}`, licence: license, directory }
  })
  return textOf('Libraries whose code is in dist/:', parts)
}

const isLicence = (name) => /^(licen[cs]e|copying|notice|unlicense|copyright)/i.test(name)

/** A list, then every text once, with those it holds for. */
function textOf(head, parts) {
  parts.sort((a, b) => (a.title < b.title ? -1 : 1))
  const texts = new Map()
  for (const { title, directory } of parts) {
    const files = existsSync(directory) ? readdirSync(directory, { withFileTypes: true }).filter((one) => one.isFile() && isLicence(one.name)) : []
    for (const { name } of files.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const text = readFileSync(join(directory, name), 'utf8').replaceAll('\r\n', '\n').trim()
      // The same words, laid out in another way, are one text.
      const words = text.replaceAll(/\s+/g, ' ')
      const known = texts.get(words) ?? { text, titles: [] }
      texts.set(words, { text: known.text, titles: [...known.titles, title] })
    }
  }
  const list = parts.map(({ title, licence }) => `  ${title}: ${licence}`).join('\n')
  const blocks = [...texts.values()].map(({ text, titles }) => `${RULE}\n${[...new Set(titles)].join(', ')}\n${RULE}\n${text}\n`)
  return `${head}\n\n${list}\n\n${blocks.join('\n')}`
}

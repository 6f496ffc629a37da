/**
 * Licences of third-party code in the packages: crates linked into the native module, libraries packed into dist/. Read
 * from `cargo metadata` with its sources, and from the source maps of dist/.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { ask } from '../lib/run.mjs'
import { filesBelow } from '../lib/stamp.mjs'
import { ROOT, SetupError } from '../setup.mjs'
import { TARGETS, companions, systemName } from './targets.mjs'

const RULE = '='.repeat(100)

/**
 * Third-party crates linked into the module for a target, as `cargo metadata` describes them. `cargo tree` selects
 * them: the metadata cover the whole workspace, with features that the module does not use.
 */
export function linkedCrates(triple) {
  const cargo = (...args) => {
    const text = ask('cargo', [...args, '--locked'], { cwd: ROOT, maxBuffer: 1 << 28 })
    if (text === null) throw new SetupError(`cargo ${args[0]} failed`)
    return text
  }
  const target = TARGETS.find((one) => one.triple === triple)
  const packages = ['nereid-node', ...companions(systemName(target)).map((one) => one.package)]
  // Macros run only in the compiler.
  const tree = cargo(
    'tree',
    ...packages.flatMap((name) => ['--package', name]),
    '--target',
    triple,
    '--edges',
    'normal,no-proc-macro',
    '--prefix',
    'none',
    '--format',
    '{p}',
  )
  const linked = new Set(tree.split('\n').map((line) => line.split(' ').slice(0, 2).join(' ')))
  const { packages: all } = JSON.parse(cargo('metadata', '--format-version=1', '--filter-platform', triple))
  return all.filter(({ name, version, source }) => source !== null && linked.has(`${name} v${version}`))
}

/** Licences of those crates. */
export function cratesText(triple) {
  const parts = linkedCrates(triple).map((one) => ({
    title: `${one.name} ${one.version}`,
    licence: one.license ?? 'see below',
    directory: dirname(one.manifest_path),
  }))
  return textOf(
    'Rust crates linked into the native module, beside the Rust standard library (MIT OR Apache-2.0):',
    parts,
  )
}

/** Libraries in the page of browsers, which has no source map: scripts/generate-console.mjs compares. */
export const PAGE_LIBRARIES = ['preact', 'uplot']

/** Libraries whose code is in dist/ or in the page: name, version, licence and directory. */
export function packedLibraries() {
  // Packages of dist/stores are in another node_modules, perhaps in another version.
  const found = new Map()
  const add = (directory) => {
    const { name, version, license } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
    found.set(directory, { name, version, license, directory })
  }
  for (const name of PAGE_LIBRARIES) add(join(ROOT, 'node_modules', name))
  for (const { path } of filesBelow(ROOT, ['dist'], (name) => name.endsWith('.map'))) {
    for (const source of JSON.parse(readFileSync(join(ROOT, path), 'utf8')).sources) {
      const directory = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(resolve(ROOT, dirname(path), source))?.[0]
      if (directory !== undefined && !found.has(directory)) add(directory)
    }
  }
  // The same library may be in both.
  return [...new Map([...found.values()].map((one) => [`${one.name} ${one.version}`, one])).values()]
}

/** Licences of those libraries. */
export function librariesText() {
  const parts = packedLibraries().map(({ name, version, license, directory }) => ({
    title: `${name} ${version}`,
    licence: license,
    directory,
  }))
  return textOf('Libraries whose code is in dist/ and in the page:', parts)
}

const isLicence = (name) => /^(licen[cs]e|copying|notice|unlicense|copyright)/i.test(name)

/** A list, then each text once with the libraries that it covers. */
function textOf(head, parts) {
  parts.sort((a, b) => (a.title < b.title ? -1 : 1))
  const texts = new Map()
  for (const { title, directory } of parts) {
    const files = existsSync(directory)
      ? readdirSync(directory, { withFileTypes: true }).filter((one) => one.isFile() && isLicence(one.name))
      : []
    for (const { name } of files.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const text = readFileSync(join(directory, name), 'utf8').replaceAll('\r\n', '\n').trim()
      // Texts that differ only in layout count as one.
      const words = text.replaceAll(/\s+/g, ' ')
      const known = texts.get(words) ?? { text, titles: [] }
      texts.set(words, { text: known.text, titles: [...known.titles, title] })
    }
  }
  const list = parts.map(({ title, licence }) => `  ${title}: ${licence}`).join('\n')
  const blocks = [...texts.values()].map(
    ({ text, titles }) => `${RULE}\n${[...new Set(titles)].join(', ')}\n${RULE}\n${text}\n`,
  )
  return `${head}\n\n${list}\n\n${blocks.join('\n')}`
}

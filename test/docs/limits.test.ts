/** The names in docs/limits.md that bound each attack exist in the code. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { filesBelow } from './files.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const spans = [...readFileSync(join(ROOT, 'docs/limits.md'), 'utf8').matchAll(/`([^`\n]+)`/g)].map((m) => m[1] ?? '')

const crates = readdirSync(join(ROOT, 'crates'))
/** Files by Rust name. */
const rust = new Map(
  crates.map((name) => [name.replaceAll('-', '_'), filesBelow(join(ROOT, 'crates', name, 'src'), /\.rs$/)]),
)
const texts = new Map([...rust.values()].flat().map((file) => [file, readFileSync(file, 'utf8')]))
const typescript = filesBelow(join(ROOT, 'src'), /\.ts$/).map((file) => readFileSync(file, 'utf8'))

/** True if one of the files is the module `name`, or defines it: an item, a field, a variant or a method. */
function defines(files: readonly string[], name: string): boolean {
  const item = new RegExp(
    `\\b(?:fn|struct|enum|trait|type|const|static|mod) ${name}\\b|^\\s+(?:pub(?:\\([a-z]+\\))? )?${name}[,:({ ]`,
    'm',
  )
  return files.some(
    (file) => file.endsWith(`/${name}.rs`) || file.endsWith(`/${name}/mod.rs`) || item.test(texts.get(file) ?? ''),
  )
}

/** A path begins with a crate, or with a module of any crate. */
function leadsSomewhere(path: string): boolean {
  const [first = '', ...rest] = path.split('::')
  const ofCrate = rust.get(first)
  const files = ofCrate ?? [...texts.keys()]
  return (ofCrate === undefined ? [first, ...rest] : rest).every((part) => defines(files, part))
}

test('every Rust path in docs/limits.md exists', () => {
  const paths = spans.filter((span) => /^\w+(::\w+)+$/.test(span))
  expect(paths.length).toBeGreaterThan(10)
  expect(paths.filter((path) => !leadsSomewhere(path))).toEqual([])
})

test('every constant that docs/limits.md names alone exists, in Rust or in TypeScript', () => {
  const names = spans.filter((span) => /^[A-Z][A-Z0-9_]+$/.test(span))
  expect(names.length).toBeGreaterThan(10)
  const all = [...texts.values(), ...typescript].join('\n')
  expect(names.filter((name) => !new RegExp(`\\b(?:const|static) ${name}\\b`).test(all))).toEqual([])
})

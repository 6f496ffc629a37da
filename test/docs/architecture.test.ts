/** Pages about the internals (ARCHITECTURE.md, docs/internals, README.md of crates) name existing files and types. */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { filesBelow } from './files.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const crates = readdirSync(join(ROOT, 'crates'))
const PAGES = [
  'ARCHITECTURE.md',
  ...readdirSync(join(ROOT, 'docs/internals')).map((name) => `docs/internals/${name}`),
  ...crates.map((name) => `crates/${name}/README.md`).filter((path) => existsSync(join(ROOT, path))),
]
const TEXTS = new Map(PAGES.map((page) => [page, readFileSync(join(ROOT, page), 'utf8')]))

const rust = new Map(
  crates.map((name) => [name.replaceAll('-', '_'), filesBelow(join(ROOT, 'crates', name, 'src'), /\.rs$/)]),
)
const read = (path: string) => readFileSync(path, 'utf8')
const rustText = [...rust.values()].flat().map(read).join('\n')
const typescriptText = filesBelow(join(ROOT, 'src'), /\.ts$/).map(read).join('\n')

/** Names from third-party libraries and from the standard one. */
const FOREIGN = new Set([
  'ArcSwap',
  'Cargo',
  'Bytes',
  'OrtValue',
  'OrtRunOptions',
  'Buffer',
  'String',
  'Vec',
  'Box',
  'Option',
  'ModelInfer',
  'ModelConfig',
  'ModelStreamInfer',
  'BufferList',
  'Expect',
  'Host',
  'Upgrade',
])

const spans = [...TEXTS.values()].flatMap((text) =>
  [...text.replaceAll(/```[\s\S]*?```/g, '').matchAll(/`([^`\n]+)`/g)].map((m) => m[1] ?? ''),
)

/** `a::{b, c}::d` → `a::b::d`, `a::c::d`. */
function expanded(path: string): string[] {
  const group = /\{([^{}]*)\}/.exec(path)
  if (group === null) return [path]
  return (group[1] ?? '').split(',').flatMap((part) => expanded(path.replace(group[0], part.trim())))
}

/** True if a path such as `frontend::http::connection` or `engine::inline::InlineCost` leads to a module or an item. */
function rustPathExists(path: string): boolean {
  const [crate = '', ...rest] = path.split('::')
  const files =
    rust.get(crate) ??
    rust.get(crates.find((name) => name.replaceAll('-', '_').endsWith(`_${crate}`))?.replaceAll('-', '_') ?? '')
  // The path begins inside a crate named earlier in the sentence.
  const searched = files ?? [...rust.values()].flat()
  const parts = files === undefined ? [crate, ...rest] : rest
  return parts.every((part) => {
    const isModule = searched.some((file) => file.endsWith(`/${part}.rs`) || file.includes(`/${part}/`))
    return (
      isModule ||
      searched.some((file) =>
        new RegExp(
          `\\b(?:fn|struct|enum|trait|type|const|static|mod|macro_rules!) ${part}\\b|\\b${part}\\(|^ {4}${part}[,({ ]`,
          'm',
        ).test(read(file)),
      )
    )
  })
}

test('every Rust path that the pages name exists', () => {
  const paths = spans.filter((s) => /^[a-z_0-9]+::[A-Za-z_0-9:{}, -]+$/.test(s)).flatMap(expanded)
  expect(paths.length).toBeGreaterThan(20)
  expect(paths.filter((path) => !rustPathExists(path.replaceAll('-', '_')))).toEqual([])
})

test('every file that the pages name exists', () => {
  const named = spans.filter(
    (s) =>
      /^[\w@./*{}, -]+$/.test(s) &&
      (s.includes('/') || /\.(ts|rs|mjs|md|proto|json)$/.test(s)) &&
      !s.startsWith('/') &&
      !s.includes(' '),
  )
  const missing = named.flatMap(expanded).filter((path) => {
    if (path.includes('*') || path.startsWith('@') || path.includes('.so')) return false
    const places = ['', 'crates', 'src', 'docs', 'crates/backend-onnx', 'crates/engine'].map((at) =>
      join(ROOT, at, path),
    )
    return (
      !places.some(existsSync) &&
      !filesBelow(join(ROOT, 'crates'), /\.rs$/).some((f) => f.endsWith(`/${path}`)) &&
      !filesBelow(join(ROOT, 'src'), /\.ts$/).some((f) => f.endsWith(`/${path}`))
    )
  })
  expect(missing).toEqual([])
})

test('ARCHITECTURE.md is read in ten minutes', () => {
  expect(Buffer.byteLength(TEXTS.get('ARCHITECTURE.md') ?? '')).toBeLessThanOrEqual(16 * 1024)
})

test('every crate has a row in the map of ARCHITECTURE.md, and every row a crate', () => {
  const map = /^\| crate \| holds \|\n\|---\|---\|\n((?:\|.*\n)*)/m.exec(TEXTS.get('ARCHITECTURE.md') ?? '')?.[1] ?? ''
  const cells = map.split('\n').map((line) => line.split(' | ')[0] ?? '')
  expect(cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name)).toSorted()).toEqual(
    crates.toSorted(),
  )
})

test('every module with unsafe code is named, and no other', () => {
  const text = /`unsafe` lives in: ([\s\S]*?)\n\n/.exec(TEXTS.get('ARCHITECTURE.md') ?? '')?.[1] ?? ''
  const named = [...text.matchAll(/`([^`]+)`/g)]
    .flatMap(([, span = '']) => expanded(span))
    .map((path) => path.replace(/^ffi::/, 'backend_onnx::ffi::'))
  const found = [...crates.map((name) => `crates/${name}`), 'bench/load'].flatMap((part) =>
    filesBelow(join(ROOT, part, 'src'), /\.rs$/)
      .filter((file) => !file.includes('/tests/') && /allow\(unsafe_code\)/.test(read(file)))
      .map((file) => {
        const module = file.slice(join(ROOT, part, 'src').length + 1, -'.rs'.length).replaceAll('/', '::')
        return part === 'bench/load'
          ? `bench/load/src/${module}.rs`
          : module === 'lib'
            ? part
            : `${part.slice('crates/'.length).replaceAll('-', '_')}::${module}`
      }),
  )
  // The permission for all of `ffi` applies to the modules inside it.
  const inside = named.filter((path) => found.some((module) => path.startsWith(`${module}::`)))
  expect(found.length).toBeGreaterThan(8)
  // Each of its modules has functions of a C API.
  const parts = new Set(found.map((module) => module.replace(/^backend_host::.*/, 'crates/backend-host')))
  expect(named.filter((path) => !inside.includes(path)).sort()).toEqual([...parts].sort())
})

test('every type that the pages name exists', () => {
  const types = spans
    .flatMap((s) => s.match(/\b[A-Z][a-z]+(?:[A-Z][a-z0-9]+)*\b/g) ?? [])
    .filter((t) => /[a-z]/.test(t))
  const missing = [...new Set(types)].filter((t) => {
    if (FOREIGN.has(t)) return false
    return (
      !new RegExp(`\\b(?:struct|enum|trait|type|union) ${t}\\b|^ {4}${t}[,({ ]`, 'm').test(rustText) &&
      !new RegExp(`\\b(?:class|interface|type|enum) ${t}\\b`).test(typescriptText)
    )
  })
  expect(missing).toEqual([])
})

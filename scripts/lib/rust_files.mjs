/**
 * Finds which file of a crate uses which, for the circles in `house.mjs`. Reads text without types, so a method call on
 * a value is no use of the file that defines it; paths are (`crate::a::B`, `super::B`, `child::B`, groups of `use`),
 * also through re-exports.
 */

const TEST_MODULE = /^#\[cfg\([^\]]*\btest\b[^\]]*\)\]\n(?:#.*\n)*(?:pub(?:\([^)]*\))? )?mod \w+ \{\n[\s\S]*?^\}\n/gm
const TEST_FILE = /^#\[cfg\((?!not)[^\]]*\b(?:test|loom)\b[^\]]*\)\]\n(?:#.*\n)*(?:pub(?:\([^)]*\))? )?mod (\w+);/gm
const COMMENT = /(^|\s)\/\/.*$/gm

/** Removes test modules from a file's text. */
const withoutTests = (text) => text.replace(TEST_MODULE, '')

const inside = (module, name) => (module === '' ? name : `${module}::${name}`)
const parentOf = (module) => module.split('::').slice(0, -1).join('::')

/** The module of a file of `src`: `a/b.rs` and `a/b/mod.rs` are `a::b`; `lib.rs` and `main.rs` are ``. */
const moduleOf = (file) =>
  file
    .replace(/\.rs$/, '')
    .replace(/(^|\/)(mod|lib|main)$/, '')
    .replaceAll('/', '::')

/** Files of a crate by module, without those compiled only for tests. `files` maps a path below `src` to its text. */
export function productModules(files) {
  const ofTests = [...files].flatMap(([file, text]) =>
    [...text.matchAll(TEST_FILE)].map((found) => inside(moduleOf(file), found[1])),
  )
  const isOfTests = (module) => ofTests.some((one) => module === one || module.startsWith(`${one}::`))
  const modules = new Map()
  for (const [file, text] of files)
    if (!isOfTests(moduleOf(file))) modules.set(moduleOf(file), { file, text: withoutTests(text) })
  return modules
}

/** Paths that begin at `at`, two in `a::{b, c::d}`, and the position of their end. */
function pathsAt(text, at) {
  const name = /^\s*(\w+|\*)/.exec(text.slice(at, at + 200))
  if (name === null) return [[], at]
  let end = at + name[0].length
  let rest = [[]]
  if (text.startsWith('::{', end)) {
    rest = []
    end += 3
    for (;;) {
      end += /^[\s,]*/.exec(text.slice(end))[0].length
      const [paths, after] = pathsAt(text, end)
      if (after === end) break
      rest.push(...paths)
      end = after + /^(\s+as \w+)?/.exec(text.slice(after, after + 100))[0].length
    }
    end += 1
  } else if (/^::[\w*]/.test(text.slice(end, end + 3))) {
    ;[rest, end] = pathsAt(text, end + 2)
  }
  return [rest.map((path) => [name[1], ...path]), end]
}

/** Re-exports of each module: the whole path by name. */
function reexports(modules) {
  const all = new Map()
  for (const [module, { text }] of modules) {
    const names = new Map()
    for (const found of text.matchAll(/^pub(?:\([^)]*\))? use (?=[a-z])/gm)) {
      for (const path of pathsAt(text, found.index + found[0].length)[0]) {
        if (path[0] === 'crate') names.set(path.at(-1), path.slice(1))
        const own = path[0] === 'self' ? path.slice(1) : path
        if (modules.has(inside(module, own[0]))) names.set(own.at(-1), [...module.split('::').filter(Boolean), ...own])
      }
    }
    all.set(module, names)
  }
  return all
}

/** Modules that each module uses. The root of the crate only combines them, so it is left out. */
export function usesOf(modules) {
  const exported = reexports(modules)
  const follow = (from, path, depth) => {
    let module = from
    for (const [at, name] of path.entries()) {
      if (modules.has(inside(module, name))) {
        module = inside(module, name)
        continue
      }
      const elsewhere = exported.get(module)?.get(name)
      // A chain of re-exports ends; two that name each other do not compile.
      return elsewhere === undefined || depth === 0
        ? module
        : follow('', [...elsewhere, ...path.slice(at + 1)], depth - 1)
    }
    return module
  }
  const target = (from, path) => {
    if (path[0] === 'crate') return follow('', path.slice(1), 5)
    let module = from
    let at = 0
    for (; path[at] === 'self' || path[at] === 'super'; at += 1) if (path[at] === 'super') module = parentOf(module)
    return follow(module, path.slice(at), 5)
  }
  const uses = new Map()
  for (const [module, { text }] of modules) {
    if (module === '') continue
    const children = [...modules.keys()]
      .filter((one) => one !== '' && one !== module && parentOf(one) === module)
      .map((one) => one.split('::').at(-1))
    // Re-exports count where they are used, not in the module that has them.
    const code = text.replace(COMMENT, '').replace(/^pub(?:\([^)]*\))? use [^;]*;/gm, '')
    const found = new Set()
    for (const start of code.matchAll(
      new RegExp(`(?<![\\w:$.])(?=(?:${['crate', 'self', 'super', ...children].join('|')})::)`, 'g'),
    ))
      for (const path of pathsAt(code, start.index)[0]) found.add(target(module, path))
    uses.set(
      module,
      [...found].filter((one) => one !== module && one !== ''),
    )
  }
  return uses
}

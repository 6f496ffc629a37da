/**
 * Reads the table of the exported functions of Triton's C API: the rows of `exports!` below crates/backend-host/src.
 * A row begins with the probe that calls the function. Macros that make several rows of one body list their names.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join, relative } from 'node:path'

const ROW = /"([\w./]+)" (fn|get|delete) (TRITON\w+|\$\w+)\(([^)]*)\)(?: -> ([^={\n]+))?/g
/** A macro with rows of its own: `macro_rules! NAME { … }`, and its use, `NAME! { … }` or `NAME!(…);`. */
const MACRO = /^macro_rules! (\w+) \{\n[\s\S]*?^\}$/gm

/** Splits arguments at the commas that no bracket encloses. */
function split(list) {
  const parts = ['']
  let depth = 0
  for (const letter of list) {
    if ('<[('.includes(letter)) depth += 1
    if ('>])'.includes(letter)) depth -= 1
    if (letter === ',' && depth === 0) parts.push('')
    else parts[parts.length - 1] += letter
  }
  return parts.map((part) => part.trim()).filter((part) => part !== '' && !part.startsWith('$('))
}

/** Types of the arguments that the library passes. */
function typesOf(kind, list, result) {
  if (kind === 'delete') return [`Option<Box<${list}>>`]
  const types = split(list).map((one) => one.slice(one.indexOf(':') + 1).trim())
  return kind === 'get' ? [...types, `Out<${result.trim()}>`] : types
}

function rowsOf(text) {
  const code = text.replaceAll(/^\s*\/\/.*$/gm, '')
  const rows = []
  const row = ([, probe, kind, name, list, result]) => ({
    probe,
    name,
    types: typesOf(kind, list, result),
    returns: kind === 'fn' ? (result?.trim() ?? 'Err') : 'Err',
  })
  for (const found of code.replaceAll(MACRO, '').matchAll(ROW)) rows.push(row(found))
  for (const [body, macro] of code.matchAll(MACRO)) {
    const bodies = [...body.matchAll(ROW)].map(row)
    if (bodies.length === 0) continue
    const uses = code.matchAll(new RegExp(`^${macro}!(?: \\{\\n([\\s\\S]*?)^\\}|\\(([^)]*)\\);)`, 'gm'))
    for (const [, rowsOfUse, arguments_] of uses) {
      // One row for each line that begins with a name, or as many as the macro has bodies.
      const names = rowsOfUse?.match(/^ {4}TRITON\w+/gm) ?? arguments_?.match(/TRITON\w+/g) ?? []
      names.forEach((name, i) => rows.push({ ...bodies[i % bodies.length], name: name.trim(), types: null }))
    }
  }
  return rows
}

/** All rows of the hand-written sources below a directory. `types` is null for a row that a macro makes. */
export function rowsIn(directory) {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile() && file.name.endsWith('.rs'))
    .map((file) => join(file.parentPath, file.name))
    .filter((path) => !relative(directory, path).startsWith('generated') && !path.endsWith('/exports.rs'))
    .flatMap((path) => rowsOf(readFileSync(path, 'utf8')))
}

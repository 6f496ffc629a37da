/**
 * Makes the constants and layouts of the runner protocol for Rust, C, Python and TypeScript from `shm/protocol.json`:
 * `generate-runner.mjs [--check]`.
 *
 * --check writes nothing and fails if the committed files differ. Needs `rustfmt`.
 */
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const NOTE = 'Generated from shm/protocol.json by scripts/generate-runner.mjs: not to be edited.'
const SIZES = { u8: 1, u16: 2, u32: 4, u64: 8, i64: 8, f64: 8 }
const table = JSON.parse(readFileSync(join(ROOT, 'shm/protocol.json'), 'utf8'))

const words = (name) => name.replace(/([a-z])([A-Z])/g, '$1_$2')
const upper = (name) => words(name).toUpperCase()
const camel = (name) => name.toLowerCase().replace(/(?:^|_)([a-z0-9])/g, (_, first) => first.toUpperCase())
const sizeOf = (fields) => fields.reduce((sum, [, type]) => sum + SIZES[type], 0)

/** True for bits that can be combined, false for exclusive numbers. */
const isFlags = (name) => name.endsWith('Flag')

function rustEnum(name, members) {
  const entries = Object.entries(members)
  if (isFlags(name)) {
    const lines = entries.map(([member, value]) => `pub const ${upper(name)}_${member}: u8 = ${value};`)
    return lines.join('\n')
  }
  const variants = entries.map(([member, value]) => `${camel(member)} = ${value},`)
  const arms = entries.map(([member, value]) => `${value} => Self::${camel(member)},`)
  return `#[derive(Debug, Clone, Copy, PartialEq, Eq)] #[repr(u8)] pub enum ${name} { ${variants.join(' ')} }
impl ${name} { pub fn from_number(number: u32) -> Option<Self> {
Some(match number { ${arms.join(' ')} _ => return None }) } }`
}

function rustStruct(name, fields) {
  let at = 0
  const reads = fields.map(([field, type]) => {
    const places = Array.from({ length: SIZES[type] }, (_, i) => `from[${at + i}]`)
    at += SIZES[type]
    return `${field}: ${type}::from_le_bytes([${places.join(', ')}]),`
  })
  const writes = fields.map(([field]) => `to.extend_from_slice(&self.${field}.to_le_bytes());`)
  const members = fields.map(([field, type]) => `pub ${field}: ${type},`)
  return `#[derive(Debug, Clone, Copy, PartialEq, Default)] pub struct ${name} { ${members.join(' ')} }
impl ${name} {
pub const BYTES: usize = ${at};
pub fn read(from: &[u8; ${at}]) -> Self { Self { ${reads.join(' ')} } }
pub fn write(&self, to: &mut Vec<u8>) { ${writes.join(' ')} }
}`
}

function rust() {
  const constants = Object.entries(table.constants).map(([name, value]) => `pub const ${name}: u64 = ${value};`)
  // These are `tensor::DataType` and `tensor::Code`, which have the same numbers.
  const enums = Object.entries(table.enums).filter(([name]) => name !== 'DataType' && name !== 'Code')
  const text = [
    `//! ${NOTE}\n\n#![allow(missing_docs)]\n`,
    `pub const VERSION: u64 = ${table.version};`,
    constants.join('\n'),
    ...enums.map(([name, members]) => rustEnum(name, members)),
    ...Object.entries(table.structs).map(([name, fields]) => rustStruct(name, fields)),
  ].join('\n\n')
  const done = spawnSync('rustfmt', ['--edition', '2024', '--config-path', join(ROOT, 'rustfmt.toml')], {
    input: text,
    encoding: 'utf8',
  })
  if (done.status !== 0) throw new Error(`rustfmt: ${done.stderr || done.error?.message}`)
  return done.stdout
}

function c() {
  const types = { u8: 'uint8_t', u16: 'uint16_t', u32: 'uint32_t', u64: 'uint64_t', i64: 'int64_t', f64: 'double' }
  const constants = Object.entries(table.constants).map(([name, value]) => `#define NEREID_${name} ${value}u`)
  const enums = Object.entries(table.enums).map(([name, members]) => {
    const lines = Object.entries(members).map(([member, value]) => `  NEREID_${upper(name)}_${member} = ${value},`)
    return `enum nereid_${words(name).toLowerCase()} {\n${lines.join('\n')}\n};`
  })
  const structs = Object.entries(table.structs).map(([name, fields]) => {
    const low = words(name).toLowerCase()
    const lines = fields.map(([field, type]) => `  ${types[type]} ${field};`)
    return (
      `struct __attribute__((packed)) nereid_${low} {\n${lines.join('\n')}\n};\n#define ` +
      `NEREID_${upper(name)}_BYTES ${sizeOf(fields)}u`
    )
  })
  return `${[
    `/* ${NOTE}\n * Little-endian; see README.md. */\n` +
      '#ifndef NEREID_SHM_H\n#define NEREID_SHM_H\n\n#include <stdint.h>',
    `#define NEREID_PROTOCOL_VERSION ${table.version}u`,
    constants.join('\n'),
    ...enums,
    ...structs,
    '#endif',
  ].join('\n\n')}\n`
}

function python() {
  const codes = { u8: 'B', u16: 'H', u32: 'I', u64: 'Q', i64: 'q', f64: 'd' }
  const constants = Object.entries(table.constants).map(([name, value]) => `${name} = ${value}`)
  const enums = Object.entries(table.enums).map(([name, members]) =>
    Object.entries(members)
      .map(([member, value]) => `${upper(name)}_${member} = ${value}`)
      .join('\n'),
  )
  const structs = Object.entries(table.structs).map(
    ([name, fields]) =>
      `# ${fields.map(([field]) => field).join(', ')}\n${upper(name)} = ` +
      `Struct("<${fields.map(([, type]) => codes[type]).join('')}")`,
  )
  const head = `"""${NOTE}"""\nfrom struct import Struct`
  return `${[head, `VERSION = ${table.version}`, constants.join('\n'), ...enums, ...structs].join('\n\n')}\n`
}

/** Layouts are offsets of members, for a DataView; `BYTES` is the size of the whole. */
function typescript() {
  const member = (name) => name.replace(/_([a-z0-9])/g, (_, first) => first.toUpperCase())
  const object = (name, entries) => {
    const lines = entries.map(([key, value]) => `  ${key}: ${value},`)
    return `export const ${name} = {\n${lines.join('\n')}\n} as const`
  }
  const structs = Object.entries(table.structs).map(([name, fields]) => {
    let at = 0
    const offsets = fields.map(([field, type]) => {
      at += SIZES[type]
      return [member(field), at - SIZES[type]]
    })
    return object(name, [['BYTES', at], ...offsets])
  })
  const constants = Object.entries(table.constants).map(([name, value]) => `export const ${name} = ${value}`)
  return `${[
    `/** ${NOTE} */`,
    `export const VERSION = ${table.version}`,
    constants.join('\n'),
    ...Object.entries(table.enums).map(([name, members]) => object(name, Object.entries(members))),
    ...structs,
  ].join('\n\n')}\n`
}

const OUTPUTS = {
  'crates/frames/src/generated.rs': rust(),
  'shm/c/nereid_shm.h': c(),
  'shm/python/nereid_shm/protocol.py': python(),
  'crates/backend-python/runtime/nereid_runner/_protocol.py': python(),
  'src/javascript/generated/protocol.ts': typescript(),
}

const isCheck = process.argv.includes('--check')
for (const [path, text] of Object.entries(OUTPUTS)) {
  const file = join(ROOT, path)
  if (!isCheck) {
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
    continue
  }
  let committed = ''
  try {
    committed = readFileSync(file, 'utf8')
  } catch {}
  if (committed !== text) {
    console.error(`${path} differs from shm/protocol.json: run scripts/generate.sh and commit the result`)
    process.exitCode = 1
  }
}

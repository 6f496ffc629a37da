/**
 * Makes what follows from the headers of Triton's C API (shm/include) and from which of its functions
 * crates/backend-host defines: `generate-triton-stubs.mjs [--check]`.
 *
 * - stubs.rs: each other function, which answers that it is not supported. A library of a backend does not load if one
 *   name that it imports is missing, even if it never calls it.
 * - triton_api.ts: names of both kinds, for `nereid check`.
 *
 * --check writes nothing and fails if the committed files differ.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rowsIn } from './lib/c_abi_table.mjs'
import { HEADERS, headerText, prototypesOf } from './lib/triton_headers.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const SOURCES = 'crates/backend-host/src'
const NOTE = 'Generated from shm/include by scripts/generate-triton-stubs.mjs: not to be edited.'

/** Functions of the C API that the table in hand-written Rust sources below a directory declares. */
export function definedIn(directory) {
  return new Set(rowsIn(directory).map(({ name }) => name))
}

/** Rust types of results, and what a stub returns. */
const RESULTS = {
  'const char*': ['*const std::ffi::c_char', 'c"<unknown>".as_ptr()'],
  bool: ['bool', 'false'],
  void: ['()', '()'],
  uint32_t: ['u32', '0'],
  TRITONSERVER_DataType: ['u32', '0'],
  TRITONSERVER_Error_Code: ['u32', '0'],
  'TRITONSERVER_Parameter*': ['*mut std::ffi::c_void', 'std::ptr::null_mut()'],
}

/** Rust source of the functions that have no other definition. */
export function stubs(missing) {
  const failing = missing.filter(({ returns }) => returns === 'TRITONSERVER_Error*')
  const others = missing.filter((one) => !failing.includes(one))
  const parts = [
    `//! ${NOTE}
//!
//! Functions of Triton's C API that this host does not have. They take no arguments: in the C ABI of x86-64 and arm64
//! the caller passes and removes them, and a function that reads none can be called with any.

#![allow(unsafe_code)] // exported names`,
    `use crate::abi::{Err, missing};

macro_rules! failing {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> Err {
                missing(stringify!($name))
            }
        )*
    };
}

failing! {
${failing.map(({ name }) => `    ${name}`).join('\n')}
}`,
  ]
  if (others.length > 0) {
    const rows = others.map(({ name, returns }) => {
      const [type, value] = RESULTS[returns] ?? fail(`${name} returns ${returns}: write it by hand`)
      return `    ${name}: ${type} = ${value};`
    })
    parts.push(`// These have no error to return: one line on standard error says that they were called.
macro_rules! silent {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> $type {
                static CALLED: std::sync::Once = std::sync::Once::new();
                let line = concat!(stringify!($name), " is not provided by Nereid's backend host\\n");
                CALLED.call_once(|| drop(std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes())));
                $value
            }
        )*
    };
}

silent! {
${rows.join('\n')}
}`)
  }
  return `${parts.join('\n\n')}\n`
}

const fail = (text) => {
  throw new Error(text)
}

function typescript(prototypes, defined) {
  const list = (name, about, isIn) => {
    const lines = prototypes.filter(isIn).map((one) => `  '${one.name}',`)
    return `/** ${about} */\nexport const ${name}: readonly string[] = [\n${lines.join('\n')}\n]`
  }
  const isDefined = ({ name }) => defined.has(name)
  return `${[
    `/** ${NOTE} */`,
    list('PROVIDED', 'Functions of Triton that the host of C libraries has.', isDefined),
    list(
      'STUBS',
      'Functions that it exports and that only return an error.',
      (one) => !one.isEntryPoint && !isDefined(one),
    ),
    list('ENTRY_POINTS', 'Functions that plugins export.', (one) => one.isEntryPoint),
  ].join('\n\n')}\n`
}

function outputs() {
  const prototypes = HEADERS.flatMap((header) => prototypesOf(headerText(ROOT, header)))
  const defined = definedIn(join(ROOT, SOURCES))
  const unknown = [...defined].filter((name) => !prototypes.some((one) => one.name === name && !one.isEntryPoint))
  if (unknown.length > 0) fail(`${SOURCES} defines what no header declares: ${unknown.join(', ')}`)
  return {
    [`${SOURCES}/generated/stubs.rs`]: stubs(
      prototypes.filter(({ name, isEntryPoint }) => !isEntryPoint && !defined.has(name)),
    ),
    'src/repository/generated/triton_api.ts': typescript(prototypes, defined),
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const isCheck = process.argv.includes('--check')
  for (const [path, text] of Object.entries(outputs())) {
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
      console.error(`${path} is not what follows from shm/include and ${SOURCES}: run scripts/generate.sh`)
      process.exitCode = 1
    }
  }
}

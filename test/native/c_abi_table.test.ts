/** The table of the exported functions of Triton's C API (`exports!` in crates/backend-host) against the headers. */

import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { rowsIn } from '../../scripts/lib/c_abi_table.mjs'
import { HEADERS, headerText, prototypesOf } from '../../scripts/lib/triton_headers.mjs'
import { STUBS } from '../../src/repository/generated/triton_api.js'
import { ROOT } from '../server/harness.js'

const SOURCES = join(ROOT, 'crates/backend-host/src')
const ROWS = rowsIn(SOURCES)
interface Prototype {
  name: string
  returns: string
  arguments: { type: string; name: string }[]
  isEntryPoint: boolean
}

const PROTOTYPES: Prototype[] = HEADERS.flatMap((header) => prototypesOf(headerText(ROOT, header))).filter(
  (one: Prototype) => !one.isEntryPoint,
)

const NUMBERS: Record<string, string> = {
  bool: 'bool',
  double: 'f64',
  int: 'i32',
  int32_t: 'i32',
  int64_t: 'i64',
  size_t: 'usize',
  uint32_t: 'u32',
  uint64_t: 'u64',
  void: '()',
}

/** The value that crosses for a type of the header: a number of the same size in Rust, or a pointer. */
const crossesInC = (type: string): string => {
  if (type.includes('*') || type.endsWith('Fn_t')) return 'pointer'
  return NUMBERS[type.replace('const ', '')] ?? 'u32'
}

const crossesInRust = (type: string): string => {
  const plain = type.replace(/^Count<(\w+)>$/, '$1').replace('c_int', 'i32')
  return Object.values(NUMBERS).includes(plain) ? plain : 'pointer'
}

test('each function of the headers has one row, or only returns an error', () => {
  const declared = PROTOTYPES.map(({ name }) => name).sort()
  expect([...ROWS.map(({ name }) => name), ...STUBS].sort()).toEqual(declared)
  expect(ROWS.length).toBeGreaterThan(270)
})

test('each row has the arguments and the result of its function', () => {
  const functions = new Map(PROTOTYPES.map((one) => [one.name, one]))
  for (const { name, types, returns } of ROWS) {
    const declared = functions.get(name)
    expect(crossesInRust(returns), name).toBe(crossesInC(declared?.returns ?? ''))
    if (types === null) continue
    const passed = declared?.arguments.filter(({ name: argument }) => argument !== '') ?? []
    expect(types.map(crossesInRust), name).toEqual(passed.map(({ type }) => crossesInC(type)))
  }
})

test('an object that the library gives away comes after arguments that can be wrong', () => {
  const canBeRejected = (type: string): boolean => /^(?:&|Box<|Held<)/.test(type)
  const isGivenUp = (type: string): boolean => /^(?:Option<)?Box</.test(type)
  const wrong = ROWS.filter(({ types }) => {
    const first = types?.findIndex(isGivenUp) ?? -1
    return first >= 0 && types?.slice(first + 1).some(canBeRejected)
  })
  expect(wrong.map(({ name }) => name)).toEqual([])
})

/** Text of a file with a header beside it that it may include. */
const sourceOf = (probe: string): string => {
  const [folder, name] = probe.startsWith('embedding/')
    ? [join(ROOT, 'test/embedding/src'), probe.slice('embedding/'.length)]
    : [join(ROOT, 'test/probes/src'), probe]
  const file = join(folder, name.endsWith('.h') ? name : `${name}.c`)
  const headers = readdirSync(dirname(file)).filter((one) => one.endsWith('.h'))
  if (!existsSync(file)) return ''
  return [file, ...headers.map((one) => join(folder, one))].map((one) => readFileSync(one, 'utf8')).join('\n')
}

test('each row names a probe that calls the function', () => {
  const tests = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.rs'))
    .flatMap((path) => {
      const text = readFileSync(join(SOURCES, path), 'utf8')
      return path.endsWith('tests.rs') ? [text] : text.split('#[cfg(test)]\nmod tests {').slice(1)
    })
    .join('\n')
  const sources = new Map([...new Set(ROWS.map(({ probe }) => probe))].map((probe) => [probe, sourceOf(probe)]))
  sources.set('rust', tests)
  const wrong = ROWS.filter(({ name, probe }) => !new RegExp(`\\b${name}\\(`).test(sources.get(probe) ?? ''))
  expect(wrong.map(({ name, probe }) => `${probe}: ${name}`)).toEqual([])
})

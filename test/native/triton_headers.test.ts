/** The headers of Triton's C API against docs/spec/backends-c-abi.md, both compilers and what real plugins import. */

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { HEADERS, INCLUDE, headerText, numbersOf, prototypesOf } from '../../scripts/lib/triton_headers.mjs'
import { readLibrary } from '../../src/repository/elf.js'
import { ROOT } from '../server/harness.js'

interface Prototype {
  name: string
  returns: string
  arguments: { type: string; name: string }[]
  isEntryPoint: boolean
}

const DIRECTORY = mkdtempSync(join(tmpdir(), 'nereid-headers-'))
afterAll(() => rmSync(DIRECTORY, { recursive: true }))

const PROTOTYPES: Prototype[] = HEADERS.flatMap((header) => prototypesOf(headerText(ROOT, header)))
const NUMBERS = new Map<string, number>(HEADERS.flatMap((header) => [...numbersOf(headerText(ROOT, header))]))
const SPEC = readFileSync(join(ROOT, 'docs/spec/backends-c-abi.md'), 'utf8')

/** A section of the page, by the first words of its heading. */
const section = (heading: string): string => {
  const from = SPEC.indexOf(`\n${heading}`)
  const rest = SPEC.slice(from + 1)
  const level = /^#+ /.exec(rest)?.[0] ?? ''
  const text = rest.slice(level.length)
  const end = text.search(new RegExp(`^#{1,${level.length - 1}} `, 'm'))
  return end < 0 ? text : text.slice(0, end)
}

/** Writes out the abbreviations of the page. */
const inFull = (text: string): string =>
  text
    .replaceAll(/\bc (?=\S)/g, 'const ')
    .replaceAll(/\bB:/g, 'TRITONBACKEND_')
    .replaceAll(/\bS:/g, 'TRITONSERVER_')
    .replaceAll(/\b([ui])(32|64)\b/g, (_, sign: string, bits: string) => `${sign === 'u' ? 'u' : ''}int${bits}_t`)
    .trim()

const shown = ({ name, returns, arguments: list }: Prototype): string =>
  `${returns} ${name}(${list.map((one) => `${one.type} ${one.name}`).join(', ')})`
const declared = (prefix: string, isEntryPoint: boolean): Prototype[] =>
  PROTOTYPES.filter((one) => one.name.startsWith(`${prefix}_`) && one.isEntryPoint === isEntryPoint)

test.each([
  ['TRITONBACKEND', 91, 14],
  ['TRITONSERVER', 172, 0],
  ['TRITONREPOAGENT', 12, 5],
  // Six of Triton's header, and two that only its library has.
  ['TRITONCACHE', 8, 4],
])('%s has %d functions of the server and %d entry points', (prefix, functions, entries) => {
  expect(declared(prefix, false)).toHaveLength(functions)
  expect(declared(prefix, true)).toHaveLength(entries)
})

test('functions for backends are those of the specification', () => {
  const rows = [...section('## 3.').matchAll(/^\| `(\w+)` \| ([^|]*) \|/gm)]
  expect(declared('TRITONBACKEND', false).map(shown).sort()).toEqual(
    rows.map(([, name, list]) => `TRITONSERVER_Error* TRITONBACKEND_${name}(${inFull(list ?? '')})`).sort(),
  )
})

test('entry points of backends are those of the specification', () => {
  const rows = [...section('## 2.').matchAll(/^\| `(\w+)`\(([^)]*)\)/gm)]
  expect(declared('TRITONBACKEND', true).map(shown).sort()).toEqual(
    rows.map(([, name, list]) => `TRITONSERVER_Error* TRITONBACKEND_${name}(${inFull(list ?? '')})`).sort(),
  )
})

test('functions of the server are those of the specification', () => {
  const all = new Map(declared('TRITONSERVER', false).map((one) => [one.name, shown(one)]))
  const named = [...section('### 4b.').matchAll(/^- \*\*[^\n]*/gm)].flatMap(([line]) => line.match(/`(\w+)`/g) ?? [])
  expect([...all.keys()].sort()).toEqual(named.map((name) => `TRITONSERVER_${name.replaceAll('`', '')}`).sort())
  const rows = [...section('### 4a.').matchAll(/^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|/gm)]
  expect(rows.length).toBeGreaterThan(60)
  for (const [, name, returns = '', list = ''] of rows)
    expect(all.get(`TRITONSERVER_${name}`)).toBe(`${inFull(returns)} TRITONSERVER_${name}(${inFull(list)})`)
})

test('every function that a known plugin imports is declared', () => {
  const names = readFileSync(join(ROOT, 'test/probes/symbols.txt'), 'utf8').match(/^TRITON\w+/gm) ?? []
  expect(names).toHaveLength(177)
  const missing = names.filter((name) => !PROTOTYPES.some((one) => one.name === name && !one.isEntryPoint))
  expect(missing).toEqual([])
})

/** Members of each enum in the order of their numbers, the first of which is given. */
const ENUMS: readonly [prefix: string, first: number, members: string][] = [
  ['TRITONSERVER_TYPE_', 0, 'INVALID BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 BYTES BF16'],
  ['TRITONSERVER_MEMORY_', 0, 'CPU CPU_PINNED GPU'],
  ['TRITONSERVER_PARAMETER_', 0, 'STRING INT BOOL DOUBLE BYTES'],
  ['TRITONSERVER_INSTANCEGROUPKIND_', 0, 'AUTO CPU GPU MODEL'],
  ['TRITONSERVER_LOG_', 0, 'INFO WARN ERROR VERBOSE'],
  ['TRITONSERVER_LOG_', 0, 'DEFAULT ISO8601'],
  ['TRITONSERVER_ERROR_', 0, 'UNKNOWN INTERNAL NOT_FOUND INVALID_ARG UNAVAILABLE UNSUPPORTED ALREADY_EXISTS CANCELLED'],
  ['TRITONSERVER_METRIC_', 0, 'PROMETHEUS'],
  ['TRITONSERVER_METRIC_KIND_', 0, 'COUNTER GAUGE HISTOGRAM'],
  ['TRITONSERVER_TRACE_LEVEL_', 0, 'DISABLED MIN MAX'],
  ['TRITONSERVER_TRACE_LEVEL_', 4, 'TIMESTAMPS'],
  ['TRITONSERVER_TRACE_LEVEL_', 8, 'TENSORS'],
  [
    'TRITONSERVER_TRACE_',
    0,
    'REQUEST_START QUEUE_START COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END REQUEST_END ' +
      'TENSOR_QUEUE_INPUT TENSOR_BACKEND_INPUT TENSOR_BACKEND_OUTPUT CUSTOM_ACTIVITY',
  ],
  ['TRITONSERVER_REQUEST_FLAG_SEQUENCE_', 1, 'START END'],
  ['TRITONSERVER_REQUEST_RELEASE_', 1, 'ALL RESCHEDULE'],
  ['TRITONSERVER_RESPONSE_COMPLETE_', 1, 'FINAL'],
  ['TRITONSERVER_MODEL_CONTROL_', 0, 'NONE POLL EXPLICIT'],
  ['TRITONSERVER_RATE_LIMIT_', 0, 'OFF EXEC_COUNT'],
  ['TRITONSERVER_BATCH_', 1, 'UNKNOWN FIRST_DIM'],
  ['TRITONSERVER_INDEX_FLAG_', 1, 'READY'],
  ['TRITONSERVER_TXN_', 1, 'ONE_TO_ONE DECOUPLED'],
  ['TRITONBACKEND_ARTIFACT_', 0, 'FILESYSTEM'],
  ['TRITONBACKEND_EXECUTION_', 0, 'BLOCKING DEVICE_BLOCKING'],
  ['TRITONREPOAGENT_ARTIFACT_', 0, 'FILESYSTEM REMOTE_FILESYSTEM'],
  ['TRITONREPOAGENT_ACTION_', 0, 'LOAD LOAD_COMPLETE LOAD_FAIL UNLOAD UNLOAD_COMPLETE'],
]
const VERSIONS = {
  TRITONSERVER_API_VERSION_MAJOR: 1,
  TRITONSERVER_API_VERSION_MINOR: 34,
  TRITONBACKEND_API_VERSION_MAJOR: 1,
  TRITONBACKEND_API_VERSION_MINOR: 19,
  TRITONREPOAGENT_API_VERSION_MAJOR: 0,
  TRITONREPOAGENT_API_VERSION_MINOR: 1,
  TRITONCACHE_API_VERSION_MAJOR: 0,
  TRITONCACHE_API_VERSION_MINOR: 1,
}
const EXPECTED = new Map(
  ENUMS.flatMap(([prefix, first, members]) => members.split(' ').map((name, i) => [prefix + name, first + i] as const)),
)

test('every enum has exactly the members and numbers of the API', () => {
  expect([...NUMBERS].sort()).toEqual([...EXPECTED].sort())
})

test.each([
  ['C11', 'cc', ['-std=c11', '-x', 'c'], '_Static_assert'],
  ['C++17', 'c++', ['-std=c++17', '-x', 'c++'], 'static_assert'],
])('the headers compile as %s without warnings, in any order', (...row) => {
  const [, compiler, language, assert] = row
  const asserts = [...EXPECTED, ...Object.entries(VERSIONS)].map(
    ([name, number]) => `${assert}(${name} == ${number}, "${name}");`,
  )
  const includes = HEADERS.map((header) => `#include "triton/core/${header}.h"`)
  const source = [
    ...includes.toReversed(),
    ...includes,
    ...asserts,
    `${assert}(sizeof(TRITONSERVER_DataType) == sizeof(int), "enums are ints");`,
    'TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend)',
    '{ return backend ? 0 : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "none"); }',
  ]
  const flags = ['-pedantic', '-Wall', '-Wextra', '-Werror', '-fvisibility=hidden', '-fPIC', '-shared']
  const out = join(DIRECTORY, `${compiler}.so`)
  const done = spawnSync(compiler, [...flags, `-I${join(ROOT, INCLUDE)}`, ...language, '-', '-o', out], {
    input: source.join('\n'),
    encoding: 'utf8',
  })
  expect(done.stderr).toBe('')
  expect(readFileSync(out).includes('TRITONBACKEND_Initialize')).toBe(true)
})

test.skipIf(process.platform !== 'linux')('the library of the host exports exactly the functions of the server', () => {
  const { exports, soname } = readLibrary(join(ROOT, 'native/libtritonserver.so'))
  expect(soname).toBe('libtritonserver.so')
  const functions = PROTOTYPES.filter(({ isEntryPoint }) => !isEntryPoint).map(({ name }) => name)
  expect(exports).toEqual(functions.sort())
})

test('every probe compiles', () => {
  const out = join(DIRECTORY, 'probes')
  execFileSync('sh', [join(ROOT, 'test/probes/build.sh'), join(ROOT, INCLUDE), out])
  expect(readdirSync(join(out, 'backends')).length).toBeGreaterThan(20)
})

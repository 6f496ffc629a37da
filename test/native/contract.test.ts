/**
 * The contract of src/native against the core, where the declarations that are generated from the Rust side do not say
 * it: names that both sides write down, and flags that are passed on. `npm test -- generated` compares the declarations.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { FLAGS, type Flag } from '../../src/cli/flags.js'
import type { Core, NativeCore, Ticket } from '../../src/native/contract.js'
import { STATUS_NAMES, ServerError, type ErrorCode } from '../../src/native/errors.js'
import { ROOT } from '../server/harness.js'

const source = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

/** Methods that report their end under a ticket. */
type Ticketed<T extends Record<keyof T, (...args: never[]) => unknown>> = {
  [M in keyof T]: Parameters<T[M]>[0] extends Ticket<unknown> ? M : never
}[keyof T]

/** Compiles only for `true`. */
const holds = <_ extends true>(): void => {}

test('each native method that reports under a ticket returns a promise', () => {
  holds<'openModel' extends Ticketed<NativeCore> ? true : false>()
  holds<[Ticketed<Core>] extends [never] ? true : false>()
})

test('error codes, their names, and the usual fault and retry are those of the core', () => {
  const rows = source('crates/tensor/src/error.rs').matchAll(/=> \("(\w+)", "(.*)", \d+, \d+, Fault::(\w+), (\w+)\)/g)
  const own = Object.entries(STATUS_NAMES).map(([code, name]) => {
    const { fault, retryable } = new ServerError(code as ErrorCode, 'x')
    return [code, name, fault, String(retryable)]
  })
  expect([...rows].map(([, code, name, fault = '', retry]) => [code, name, fault.toLowerCase(), retry])).toEqual(own)
})

/** Members of a union of string literals. */
function union(name: string): string[] {
  const text = new RegExp(`export type ${name} =([^;]*?)\\n\\n`).exec(source('src/native/names.ts'))?.[1] ?? ''
  return [...text.matchAll(/'(\w+)'/g)].map(([, member = '']) => member).sort()
}

test.each([
  ['ControlOperation', 'crates/frontend/src/control.rs', /=> "(\w+)"/g],
  ['VersionState', 'crates/engine/src/table.rs', /\(Self::\w+, "([A-Z]+)"\)/g],
])('%s has the names of the core', (name, path, pattern) => {
  const found = [...source(path).matchAll(pattern)].map(([, member = '']) => member)
  expect([...new Set(found)].sort()).toEqual(union(name))
})

/** Fields of an interface that is generated from crates/options. */
function fields(name: string): string[] {
  const body =
    new RegExp(`export type ${name} = \\{([^]*?), \\};`).exec(source('src/native/generated/index.ts'))?.[1] ?? ''
  return [...body.matchAll(/^(\w+):/gm)].map(([, field = '']) => field)
}

// Fields that settings.ts makes itself, in addition to flags that are passed on unchanged.
test.each([
  ['http', 'HttpOptions', ['givenFd', 'tls', 'restrictions', 'corsOrigins']],
  ['grpc', 'GrpcOptions', ['givenFd', 'tls', 'restrictions']],
  ['listen', 'ListenOptions', ['http', 'openai', 'grpc', 'control', 'unixSocketMode', 'gate', 'openaiErrorsAsTriton']],
  [
    'engine',
    'EngineOptions',
    ['metadata', 'reasonsInErrors', 'metrics', 'responseCacheBytes', 'rateLimit', 'textAliases', 'chat'],
  ],
  ['chat', 'ChatOptions', ['isExplicit', 'isStrict']],
  ['deviceMemory', 'DeviceMemoryOptions', ['devicePools', 'loadLimits']],
  ['log', 'RequestLogOptions', []],
])('the core has a field for each flag that is passed on to %s, and no others', (part, name, made) => {
  const flags: readonly Flag[] = FLAGS
  const passed = flags.flatMap(({ to = '' }) => (to.startsWith(`${part}.`) ? [to.slice(part.length + 1)] : []))
  expect(passed.length).toBeGreaterThan(0)
  expect([...passed, ...made].sort()).toEqual(fields(name).sort())
})

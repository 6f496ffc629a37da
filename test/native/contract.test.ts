/**
 * The contract of src/native against the core: the declarations that the build generates from the Rust side, and the names and
 * numbers both sides write down. The types are compared by `tsc`, which `npm test -- --lint` runs on this file.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type * as generated from '../../native/index.js'
import type { RawCore, RawBoundPorts, RawListenOptions, RawParameter, RawRequest, RawResponse, RawTakenTraces, Settlement } from '../../src/native/bridge.js'
import type * as contract from '../../src/native/contract.js'
import { ERROR_CODES } from '../../src/native/contract.js'
import { ROOT } from '../server/harness.js'

/** One spelling of what both sides spell differently: an absent value is null, a closed set of names is a string. */
type Normal<T> = T extends undefined | null
  ? null
  : T extends string
    ? string
    : T extends boolean | number | bigint | Buffer
      ? T
      : T extends (...args: infer A) => infer R
        ? { args: { [I in keyof A]: Normal<A[I]> }; result: Normal<Void<R>> }
        : T extends readonly (infer E)[]
          ? Normal<E>[]
          : { [K in keyof T]-?: object extends Pick<T, K> ? Normal<NonNullable<T[K]>> | null : Normal<T[K]> }
type Void<R> = R extends void ? null : R

/** True when each of two types takes the values of the other. */
type Same<A, B> = [Normal<A>] extends [Normal<B>] ? ([Normal<B>] extends [Normal<A>] ? true : false) : false

/** Compiles only for `true`. */
const same = <_ extends true>(): void => {}

test('objects are the same on both sides', () => {
  same<Same<contract.CoreOptions, generated.CoreOptions>>()
  same<Same<contract.OpenSpec, generated.OpenSpec>>()
  same<Same<contract.Opened, generated.Opened>>()
  same<Same<contract.PublishSpec, generated.PublishSpec>>()
  same<Same<contract.HttpOptions, generated.HttpOptions>>()
  same<Same<contract.GrpcOptions, generated.GrpcOptions>>()
  same<Same<contract.ListenOptions, generated.ListenOptions>>()
  same<Same<RawListenOptions, generated.ListenOptions>>()
  same<Same<contract.RequestLogOptions, generated.RequestLogOptions>>()
  same<Same<contract.MetricsAddress, generated.MetricsAddress>>()
  same<Same<RawBoundPorts, generated.BoundPorts>>()
  same<Same<contract.ControlCall, generated.ControlCall>>()
  same<Same<contract.LogRecord, generated.LogRecord>>()
  same<Same<contract.Snapshot, generated.Snapshot>>()
  same<Same<RawParameter, generated.NativeParameter>>()
  same<Same<RawRequest, generated.NativeInferRequest>>()
  same<Same<RawResponse, generated.NativeInferResponse>>()
  same<Same<Settlement, generated.Settlement>>()
  same<Same<contract.TraceSetting, generated.TraceSetting>>()
  same<Same<RawTakenTraces, generated.TakenTraces>>()
})

test('the core has the methods the bridge calls, and no others', () => {
  same<Same<RawCore, generated.NativeCore>>()
})

test('what is not the same does not compile', () => {
  // @ts-expect-error a member more
  same<Same<contract.MetricsAddress & { more: number }, generated.MetricsAddress>>()
  // @ts-expect-error a member less
  same<Same<Omit<contract.LogRecord, 'line'>, generated.LogRecord>>()
  // @ts-expect-error another type
  same<Same<Omit<contract.LogRecord, 'line'> & { line: bigint }, generated.LogRecord>>()
  // @ts-expect-error an argument more
  same<Same<Omit<RawCore, 'cancel'> & { cancel(ticket: number, why: string): void }, generated.NativeCore>>()
  // @ts-expect-error a method less
  same<Same<Omit<RawCore, 'cancel'>, generated.NativeCore>>()
})

const source = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

test('error codes have the numbers of the core', () => {
  const text = /pub enum Code \{([^}]*)\}/.exec(source('crates/tensor/src/error.rs'))?.[1] ?? ''
  const found = [...text.matchAll(/(\w+) = (\d+),/g)].map(([, name = '', number]) => [Number(number), name.replace(/\B([A-Z])/g, '_$1').toUpperCase()])
  expect(found).toEqual(ERROR_CODES.map((name, i) => [i, name]))
})

/** Members of a union of string literals in the contract. */
function union(name: string): string[] {
  const text = new RegExp(`export type ${name} =([^;]*?)\\n\\n`).exec(source('src/native/contract.ts'))?.[1] ?? ''
  return [...text.matchAll(/'(\w+)'/g)].map(([, member = '']) => member).sort()
}

test.each([
  ['ControlOperation', 'crates/frontend/src/control.rs', /=> "(\w+)"/g],
  ['VersionState', 'crates/engine/src/table.rs', /"([A-Z]+)" =>/g],
])('%s has the names of the core', (name, path, pattern) => {
  const found = [...source(path).matchAll(pattern)].map(([, member = '']) => member)
  expect([...new Set(found)].sort()).toEqual(union(name))
})

/** Reports values as the Python models do: as JSON with Python's separators, sorted keys and escapes. */

import { type Datatype, InferenceResponse, type Nested, Tensor, TritonError } from 'nereid/backend'

/** Python's name of the array of a datatype. */
const ARRAYS: Record<Datatype, string> = {
  BOOL: '|b1',
  UINT8: '|u1',
  UINT16: '<u2',
  UINT32: '<u4',
  UINT64: '<u8',
  INT8: '|i1',
  INT16: '<i2',
  INT32: '<i4',
  INT64: '<i8',
  FP16: '<f2',
  FP32: '<f4',
  FP64: '<f8',
  BF16: '<bf16',
  BYTES: '|O',
}

export const dtypeOf = ({ datatype }: Tensor): string => ARRAYS[datatype]

/** The JSON text of a value; a `bigint` is a number of any size. */
export function dumps(value: unknown): string {
  if (typeof value === 'bigint') return String(value)
  if (Array.isArray(value)) return `[${value.map(dumps).join(', ')}]`
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
    return `{${members.map(([name, member]) => `${dumps(name)}: ${dumps(member)}`).join(', ')}}`
  }
  const text = JSON.stringify(value ?? null)
  return text.replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** Elements of a tensor in arrays as deep as its shape; elements of BYTES as `{ bytes }`. */
export function nested(tensor: Tensor): unknown {
  const mark = (value: Nested): unknown => (Array.isArray(value) ? value.map(mark) : { bytes: value as string })
  return tensor.datatype === 'BYTES' ? mark(tensor.toNested()) : tensor.toNested()
}

/** A tensor's contents, as Python shows its array. */
export const array = (tensor: Tensor) => ({ array: dtypeOf(tensor), shape: tensor.shape, data: nested(tensor) })

/** Any value of a snippet as something that JSON can hold. */
export function show(value: unknown): unknown {
  if (value === undefined || value === null) return null
  if (Array.isArray(value)) return value.map(show)
  if (value instanceof Tensor) return { tensor: value.name, shape: value.shape, numpy: array(value) }
  if (value instanceof InferenceResponse)
    return value.error === null ? { outputs: value.outputs.map(show) } : { error: show(value.error) }
  if (value instanceof TritonError) return { code: `__ErrorCode.${value.code}`, message: value.message }
  if (typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, show(member)]))
}

/** An exception as Python names it: the server's errors are of one class there. */
export function failure(error: unknown): { raised: string; text: string } {
  const { name, message } = error as Error
  const isRule = error instanceof TritonError || (error as Error).constructor.name === 'RuleError'
  return { raised: isRule ? 'TritonModelException' : name, text: message }
}

/** Value of a call, or the exception with which it fails. */
export async function attempt(call: () => unknown): Promise<unknown> {
  try {
    return show(await call())
  } catch (error) {
    return failure(error)
  }
}

export class ValueError extends Error {
  override name = 'ValueError'
}

export class ZeroDivisionError extends Error {
  override name = 'ZeroDivisionError'
}

export class RuntimeError extends Error {
  override name = 'RuntimeError'
}

/** A response whose output `OUT` is the JSON of a value. */
export const out = (value: unknown, parameters?: Record<string, string | number | boolean>): InferenceResponse =>
  new InferenceResponse({
    outputs: [Tensor.fromStrings('OUT', [dumps(show(value))])],
    ...(parameters === undefined ? {} : { parameters }),
  })

/** A tensor of nested values. */
export const T = (name: string, value: Nested, datatype: Datatype = 'FP32'): Tensor =>
  Tensor.fromNested(name, datatype, value)

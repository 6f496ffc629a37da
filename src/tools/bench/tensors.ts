/** Tensors as bytes of the protocol's binary form, made of JSON values, and back. */

import { bfloat16, float16 } from 'nereid/client'
import { CommandError } from '../../internal.js'

export interface Tensor {
  name: string
  datatype: string
  shape: number[]
  data: Buffer
}

interface Datatype {
  bytes: number
  write(to: DataView, at: number, value: unknown): void
  read(from: DataView, at: number): number | bigint | boolean
  /** Integers that random data is taken from; absent for floats in [0, 1). */
  below?: number
}

const small = (bytes: 1 | 2 | 4, isSigned: boolean): Datatype => {
  const bits = bytes * 8
  const kind = `${isSigned ? 'Int' : 'Uint'}${bits}` as 'Int8' | 'Uint8' | 'Int16' | 'Uint16' | 'Int32' | 'Uint32'
  return {
    bytes,
    below: 100,
    write: (to, at, value) => to[`set${kind}`](at, within(value, isSigned, bits), true),
    read: (from, at) => from[`get${kind}`](at, true),
  }
}

const large = (isSigned: boolean): Datatype => ({
  bytes: 8,
  below: 100,
  write: (to, at, value) => to.setBigInt64(at, BigInt(within(value, isSigned, 64)), true),
  read: (from, at) => (isSigned ? from.getBigInt64(at, true) : from.getBigUint64(at, true)),
})

const half = (codec: typeof float16 | typeof bfloat16): Datatype => ({
  bytes: 2,
  write: (to, at, value) => to.setUint16(at, codec.encode([numeric(value)])[0] ?? 0, true),
  read: (from, at) => codec.decode(Uint16Array.of(from.getUint16(at, true)))[0] ?? 0,
})

/** All but BYTES. */
const DATATYPES = new Map<string, Datatype>([
  [
    'BOOL',
    {
      bytes: 1,
      below: 2,
      write: (to, at, value) => to.setUint8(at, value === true || value === 1 ? 1 : 0),
      read: (from, at) => from.getUint8(at) !== 0,
    },
  ],
  ['INT8', small(1, true)],
  ['INT16', small(2, true)],
  ['INT32', small(4, true)],
  ['INT64', large(true)],
  ['UINT8', small(1, false)],
  ['UINT16', small(2, false)],
  ['UINT32', small(4, false)],
  ['UINT64', large(false)],
  ['FP16', half(float16)],
  ['BF16', half(bfloat16)],
  [
    'FP32',
    {
      bytes: 4,
      write: (to, at, value) => to.setFloat32(at, numeric(value), true),
      read: (from, at) => from.getFloat32(at, true),
    },
  ],
  [
    'FP64',
    {
      bytes: 8,
      write: (to, at, value) => to.setFloat64(at, numeric(value), true),
      read: (from, at) => from.getFloat64(at, true),
    },
  ],
])

function numeric(value: unknown): number {
  if (typeof value === 'number') return value
  throw new CommandError(`${JSON.stringify(value)} is not a number`)
}

function within(value: unknown, isSigned: boolean, bits: number): number {
  const number = value === true ? 1 : value === false ? 0 : numeric(value)
  const [least, most] = isSigned ? [-(2 ** (bits - 1)), 2 ** (bits - 1)] : [0, 2 ** bits]
  // Beyond 2^53, JSON has lost digits already.
  if (Number.isSafeInteger(number) && number >= least && number < most) return number
  throw new CommandError(`${number} is no ${isSigned ? '' : 'U'}INT${bits}`)
}

function datatypeOf(name: string): Datatype {
  const found = DATATYPES.get(name)
  if (found === undefined) throw new CommandError(`the datatype ${name} is not supported by this command`)
  return found
}

export const elementsOf = (shape: readonly number[]): number => shape.reduce((n, dimension) => n * dimension, 1)

/** Bytes of an element; null for BYTES, whose elements differ. */
export const elementBytes = (datatype: string): number | null =>
  datatype === 'BYTES' ? null : datatypeOf(datatype).bytes

/** Numbers in [0, 1) that are the same for a seed on every machine: mulberry32. */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Chooses generated elements: zeros and empty strings, or random values and strings of a length. */
export interface Generated {
  /** Null makes zeros. */
  random: (() => number) | null
  stringLength: number
  /** All strings are this one. */
  stringData: string | null
}

export function generated(datatype: string, count: number, { random, stringLength, stringData }: Generated): Buffer {
  if (datatype === 'BYTES') {
    const one = (): string => stringData ?? (random === null ? '' : word(stringLength, random))
    return encoded('BYTES', Array.from({ length: count }, one))
  }
  const { bytes, below } = datatypeOf(datatype)
  const data = Buffer.alloc(count * bytes)
  if (random === null) return data
  return encoded(
    datatype,
    Array.from({ length: count }, () => (below === undefined ? random() : Math.floor(random() * below))),
  )
}

export const word = (length: number, random: () => number): string =>
  Array.from({ length }, () => String.fromCharCode(97 + Math.floor(random() * 26))).join('')

/**
 * The elements of a list of JSON values.
 *
 * @throws {CommandError} for a value that the datatype does not have
 */
export function encoded(datatype: string, values: readonly unknown[]): Buffer {
  if (datatype === 'BYTES') {
    return Buffer.concat(
      values.flatMap((value) => {
        if (typeof value !== 'string' && !Buffer.isBuffer(value))
          throw new CommandError(`${JSON.stringify(value)} is not a string`)
        const bytes = Buffer.from(value)
        const length = Buffer.alloc(4)
        length.writeUInt32LE(bytes.length)
        return [length, bytes]
      }),
    )
  }
  const { bytes, write } = datatypeOf(datatype)
  const data = Buffer.alloc(values.length * bytes)
  const view = new DataView(data.buffer, data.byteOffset, data.length)
  values.forEach((value, i) => write(view, i * bytes, value))
  return data
}

/** The elements as values for JSON: those of BYTES as UTF-8, integers of 64 bits as numbers. */
export function valuesOf({ datatype, data }: Pick<Tensor, 'datatype' | 'data'>): (number | boolean | string)[] {
  if (datatype === 'BYTES') {
    const texts: string[] = []
    for (let at = 0; at < data.length; at += 4 + data.readUInt32LE(at))
      texts.push(data.subarray(at + 4, at + 4 + data.readUInt32LE(at)).toString())
    return texts
  }
  const { bytes, read } = datatypeOf(datatype)
  const view = new DataView(data.buffer, data.byteOffset, data.length)
  return Array.from({ length: data.length / bytes }, (_, i) => {
    const value = read(view, i * bytes)
    return typeof value === 'bigint' ? Number(value) : value
  })
}

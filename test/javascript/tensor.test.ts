/** B-JS-02: tensors of models. Shapes are checked at once, datatypes by their arrays. */
import { expect, test } from 'vitest'
import { fromBrain, fromHalf, toBrain, toHalf } from '../../src/javascript/datatypes.js'
import type { Datatype } from '../../src/javascript/datatypes.js'
import { InferenceResponse, Tensor, TritonError } from '../../src/javascript/index.js'

test('the datatype is that of the array, and the shape its length', () => {
  const arrays = [
    new Float32Array(2),
    new Float64Array(2),
    new Int8Array(2),
    new Int16Array(2),
    new Int32Array(2),
    new BigInt64Array(2),
    new Uint8Array(2),
    new Uint16Array(2),
    new Uint32Array(2),
    new BigUint64Array(2),
  ]
  expect(arrays.map((array) => Tensor.from('X', array).datatype)).toEqual([
    'FP32',
    'FP64',
    'INT8',
    'INT16',
    'INT32',
    'INT64',
    'UINT8',
    'UINT16',
    'UINT32',
    'UINT64',
  ])
  expect(Tensor.from('X', new Int8Array(6)).shape).toEqual([6])
  expect(Tensor.from('X', new Uint8Array([1]), [1], 'BOOL').toNested()).toEqual([true])
})

test('an error says which tensor, what was expected and what was found', () => {
  const data = new Float32Array(5)
  expect(() => Tensor.from('OUT', data, [2, 3])).toThrow("tensor 'OUT': shape [2, 3] expects 6 elements, found 5")
  expect(() => Tensor.from('OUT', data, [-1])).toThrow("tensor 'OUT': shape [-1] has an invalid dimension")
  expect(() => Tensor.from('OUT', data as never, [5], 'INT32')).toThrow(
    "tensor 'OUT': datatype INT32 needs Int32Array, found a value of class Float32Array",
  )
  expect(() => Tensor.from('OUT', [1] as never)).toThrow(
    "tensor 'OUT': data is a value of class Array, expected a typed array; fromNested takes numbers and a datatype",
  )
  for (const bytes of [[Buffer.from('a')], [new Uint8Array(1)], ['a']])
    expect(() => Tensor.from('OUT', bytes as never, [1], 'BYTES' as never)).toThrow(
      'expected a typed array; fromStrings takes strings and bytes, as BYTES',
    )
  expect(() => Tensor.from('OUT', data, [5], 'FP8' as 'FP32')).toThrow("tensor 'OUT': there is no datatype 'FP8'")
  expect(() => Tensor.from('', data)).toThrow("a tensor's name is a string or empty")
  expect(() => Tensor.fromStrings('S', ['a', 1 as never])).toThrow(
    "tensor 'S': element 1 is a number, expected a string or a Uint8Array",
  )
  expect(() => Tensor.fromStrings('S', 'abc' as never)).toThrow("tensor 'S': values are a string, expected an array")
  expect(() => Tensor.fromNested('N', 'INT32', [[1, 2], [3]])).toThrow(
    "tensor 'N': expected rows of 2 elements, found one of 1",
  )
  expect(() => Tensor.fromNested('N', 'INT32', [[1], 2])).toThrow(
    "tensor 'N': expected 2 levels of arrays everywhere, found a number",
  )
  expect(() => Tensor.fromNested('N', 'INT32', ['a'])).toThrow(
    "tensor 'N': element 0 is a string, which does not fit INT32",
  )
  expect(() => Tensor.from('X', data).strings()).toThrow("tensor 'X' has datatype FP32; strings() is for BYTES")
  expect(() => new TritonError('NOPE' as never, '')).toThrow("there is no code 'NOPE': codes are UNKNOWN, INTERNAL")
  expect(() => new InferenceResponse([1 as never])).toThrow(
    'an output of an InferenceResponse is a number, expected a Tensor',
  )
})

test('an element that the datatype cannot hold is named with place, value and range', () => {
  const refused = (datatype: Datatype, value: number | bigint, holds: string) =>
    expect(
      () =>
        Tensor.fromNested('N', datatype, [
          [0, 1],
          [value, 1],
        ]),
      datatype,
    ).toThrow(new TypeError(`tensor 'N': element 2 is ${value}, and ${datatype} holds ${holds}`))
  for (const value of [257, -1, 1.5, NaN, Infinity]) refused('UINT8', value, 'integers from 0 to 255')
  refused('INT8', 128, 'integers from -128 to 127')
  refused('UINT16', 65536, 'integers from 0 to 65535')
  refused('INT16', -32769, 'integers from -32768 to 32767')
  refused('INT32', 2 ** 31, 'integers from -2147483648 to 2147483647')
  refused('UINT32', 2 ** 32, 'integers from 0 to 4294967295')
  const long = 'integers from -9223372036854775808 to 9223372036854775807, beyond 2^53 as bigint'
  for (const value of [2n ** 63n, -(2n ** 63n) - 1n, 2 ** 53, 0.5, NaN]) refused('INT64', value, long)
  const unsigned = 'integers from 0 to 18446744073709551615, beyond 2^53 as bigint'
  for (const value of [-1n, 2n ** 64n, -1]) refused('UINT64', value, unsigned)
  for (const value of [2, -1, 0.5, NaN]) refused('BOOL', value, 'true and false, or 1 and 0')
  refused('FP16', -65520, 'numbers between -65520 and 65520')
  refused('BF16', 3.4e38, 'numbers between -3.39617752923046e+38 and 3.39617752923046e+38')
  refused('FP32', 1e39, 'numbers between -3.4028235677973366e+38 and 3.4028235677973366e+38')
  expect(() => Tensor.from('B', Uint8Array.of(1, 0, 2), [3], 'BOOL')).toThrow(
    new TypeError("tensor 'B': element 2 is 2, and BOOL holds true and false, or 1 and 0"),
  )

  const held: [Datatype, (number | bigint)[]][] = [
    ['UINT8', [0, 255, -0]],
    ['INT8', [-128, 127]],
    ['INT32', [-(2 ** 31), 2 ** 31 - 1]],
    ['UINT32', [2 ** 32 - 1]],
    ['INT64', [-(2n ** 63n), 2n ** 63n - 1n, 2 ** 53 - 1]],
    ['UINT64', [2n ** 64n - 1n, 7]],
  ]
  for (const [datatype, values] of held)
    expect((Tensor.fromNested('N', datatype, values).toNested() as (number | bigint)[]).map(BigInt), datatype).toEqual(
      values.map(BigInt),
    )
  expect(Tensor.fromNested('N', 'FP32', [NaN, Infinity, -Infinity, 3.4028234663852886e38]).toNested()).toEqual([
    NaN,
    Infinity,
    -Infinity,
    3.4028234663852886e38,
  ])
  expect(Tensor.fromNested('N', 'FP16', [NaN, -Infinity, 65519]).toNested()).toEqual([NaN, -Infinity, 65504])
  expect(Tensor.fromNested('N', 'FP64', [1.7e308]).toNested()).toEqual([1.7e308])
  expect(Tensor.fromNested('N', 'BOOL', [0, 1, true]).toNested()).toEqual([false, true, true])
})

test('strings are bytes with a length each, as text or as buffers', () => {
  const tensor = Tensor.fromStrings('S', ['é', new Uint8Array([1, 2]), ''], [3, 1])
  expect(tensor.data.map((one) => one.toString('hex'))).toEqual(['c3a9', '0102', ''])
  expect([tensor.strings()[0], tensor.toNested()]).toEqual(['é', [['é'], ['\u0001\u0002'], ['']]])
})

test('nested arrays have the shape of a tensor', () => {
  expect(
    Tensor.fromNested('N', 'INT64', [
      [1, 2n],
      [3, 4],
    ]).toNested(),
  ).toEqual([
    [1n, 2n],
    [3n, 4n],
  ])
  expect(Tensor.fromNested('N', 'BOOL', [true, false]).toNested()).toEqual([true, false])
  expect(Tensor.fromNested('N', 'BYTES', [['a', 'b']]).toNested()).toEqual([['a', 'b']])
  expect(Tensor.fromNested('N', 'FP32', 1.5)).toMatchObject({ shape: [] })
  expect(Tensor.fromNested('N', 'FP32', 1.5).toNested()).toBe(1.5)
  expect(Tensor.fromNested('N', 'FP32', [[], []])).toMatchObject({ shape: [2, 0] })
  expect(Tensor.fromNested('N', 'FP16', [1.5, -2]).toNested()).toEqual([1.5, -2])
  expect([...Tensor.fromNested('N', 'BF16', [1.5, -2]).toFloat32()]).toEqual([1.5, -2])
  expect([...Tensor.fromNested('N', 'INT64', [7]).toFloat32()]).toEqual([7])
})

test('every half-precision number survives the way to a number and back', () => {
  for (let bits = 0; bits < 65536; bits += 1) {
    const isNaN = (bits & 0x7c00) === 0x7c00 && (bits & 0x3ff) !== 0
    if (isNaN) expect(fromHalf(bits)).toBeNaN()
    else if (toHalf(fromHalf(bits)) !== bits) expect.fail(`half ${bits}`)
    if (!Number.isNaN(fromBrain(bits)) && toBrain(fromBrain(bits)) !== bits) expect.fail(`bfloat16 ${bits}`)
  }
  // Ties go to the even one; too large is infinite.
  const step = 2 ** -10
  expect([1 + step / 2, 1 + 1.5 * step, 65519, 65520, 1e-9, NaN].map(toHalf)).toEqual([
    0x3c00, 0x3c02, 0x7bff, 0x7c00, 0, 0x7e00,
  ])
  expect([3.4e38, NaN, 1 + 2 ** -8].map(toBrain)).toEqual([0x7f80, 0x7fc0, 0x3f80])
})

/** Fields from a model's metadata, tensors from what users fill in, and tensors as texts. */
import { expect, test } from 'vitest'
import { joinElements } from '../../client/src/bytes.js'
import { Tensor } from '../../client/src/tensor.js'
import { exampleOf, indented } from '../../src/console/docs/schema.js'
import { fieldsOf, hintOf, inputOf, parametersOf, sequenceId, type Field } from '../../src/console/try/fields.js'
import { bytesShown, nested, numbersShown } from '../../src/console/try/show.js'
import { StreamLog } from '../../src/console/try/log.js'
import { cosine } from '../../src/console/try/cosine.js'

function field(datatype: string, shape: number[], more: Partial<Field> = {}): Field {
  const inputs = [{ name: 'X', datatype, shape }]
  const [made] = fieldsOf({ name: 'm', versions: ['1'], platform: '', inputs, outputs: [] }, {})
  return { ...(made as Field), ...more }
}

/** The shape, the elements, and the datatype that is sent. */
function sent(made: Field): [string, readonly unknown[], unknown[]] {
  const { datatype, shape, raw } = inputOf(made)
  const tensor = new Tensor('X', datatype as 'INT64', shape as number[], raw)
  return [datatype, shape, datatype === 'BYTES' ? tensor.strings() : Array.from(tensor.data as ArrayLike<unknown>)]
}

test('a new form can be sent at once: tensors have values and texts have texts', () => {
  expect(sent(field('INT32', [-1, 4]))).toEqual(['INT32', [1, 4], [1, 1, 1, 1]])
  expect(field('FP32', [-1, 3, 224, 224]).source).toBe('random')
  expect(inputOf(field('FP32', [-1, 3, 224, 224]))).toMatchObject({ shape: [1, 3, 224, 224], fill: 'random' })
  expect(sent(field('BYTES', [-1, 1]))).toEqual(['BYTES', [1, 1], ['Hello']])
  expect(sent(field('BYTES', [2, 2]))).toEqual(['BYTES', [2, 2], ['1', '1', '1', '1']])
  expect(sent(field('BOOL', []))).toEqual(['BOOL', [], [1]])
})

test('values are lists of lists, or numbers with commas or spaces', () => {
  expect(sent(field('FP32', [-1, -1], { text: '[[1, 2.5], [3, NaN]]' }))).toEqual(['FP32', [2, 2], [1, 2.5, 3, NaN]])
  expect(sent(field('INT32', [-1, 2], { text: '1, 2\n3 4' }))).toEqual(['INT32', [2, 2], [1, 2, 3, 4]])
  expect(sent(field('INT8', [-1, -1], { text: '1 2 3' }))).toEqual(['INT8', [1, 3], [1, 2, 3]])
  expect(sent(field('INT8', [-1, -1], { text: '1 2 3', dims: ['3', ''] }))).toEqual(['INT8', [3, 1], [1, 2, 3]])
  expect(sent(field('BYTES', [-1], { source: 'lines', text: 'a\n\nc\n' }))).toEqual(['BYTES', [3], ['a', '', 'c']])
  expect(sent(field('BYTES', [1], { source: 'text', text: '["a"]\n' }))).toEqual(['BYTES', [1], ['["a"]\n']])
  expect(sent(field('UINT8', [2, -1], { source: 'ones', dims: ['', '2'] }))).toEqual(['UINT8', [2, 2], [1, 1, 1, 1]])
  expect(sent(field('UINT64', [2], { source: 'ones' }))[2]).toEqual([1n, 1n])
  expect(sent(field('FP16', [2], { source: 'ones' }))[2]).toEqual([0x3c00, 0x3c00])
  const random = sent(field('BOOL', [100], { source: 'random' }))[2]
  expect(new Set(random)).toEqual(new Set([0, 1]))
  const file = { name: 'a.bin', bytes: Uint8Array.of(1, 0, 2, 0) }
  expect(sent(field('INT16', [-1], { source: 'file', file }))).toEqual(['INT16', [2], [1, 2]])
  expect(sent(field('FP64', [1], { text: '9007199254740992' }))).toEqual(['FP64', [1], [9007199254740992]])
})

test('integers of 64 bits keep all of their digits', () => {
  const [low, high] = [-(2n ** 63n), 2n ** 64n - 1n]
  expect(sent(field('INT64', [-1], { text: `9007199254740993, ${low}` }))[2]).toEqual([9007199254740993n, low])
  expect(sent(field('UINT64', [-1], { text: `[${high}]` }))[2]).toEqual([high])
  expect(sequenceId('18446744073709551615')).toBe(high)
  expect(parametersOf('a=9007199254740993')).toEqual([['a', 9007199254740993n]])
  const tensor = new Tensor('X', 'INT64', [1, 1], new Uint8Array(BigInt64Array.of(9007199254740993n).buffer))
  expect(numbersShown(tensor).text).toBe('[[9007199254740993]]')
  expect(indented('{"a":[9007199254740993,1],"b":"1,{","c":[[],{}]}')).toBe(
    '{\n  "a": [9007199254740993, 1],\n  "b": "1,{",\n  "c": [\n    [],\n    {}\n  ]\n}',
  )
})

test('what does not fit is named with the input', () => {
  const wrong = (made: Field) => () => inputOf(made)
  expect(wrong(field('INT32', [-1], { text: '1, two' }))).toThrow("input 'X': 'two' is not a number")
  expect(wrong(field('UINT8', [-1], { text: '256' }))).toThrow(/input 'X': element 0 .*256.* from 0 to 255/)
  expect(wrong(field('INT32', [-1], { dims: ['a'] }))).toThrow("input 'X': dimension 0 is 'a'")
  expect(wrong(field('FP32', [-1], { source: 'zeros', dims: ['99999999999'] }))).toThrow(/at most 33554432/)
  expect(wrong(field('FP32', [-1], { source: 'file' }))).toThrow(/no file is chosen/)
  expect(hintOf(field('INT32', [4], { text: '1 2 3' }))).toBe('3 values, but shape [4] has 4')
  expect(hintOf(field('INT32', [-1, 16], { text: '1 2 3' }))).toBe('3 values, but shape [1, 16] has 16')
  expect(hintOf(field('INT32', [-1], { text: '1 2 3' }))).toBe('shape [3]')
  for (const text of ['1,,2', ',1', '1, 2,'])
    expect(wrong(field('INT32', [-1], { text }))).toThrow("input 'X': a value is missing beside a comma")
  expect(wrong(field('FP64', [-1], { text: '1e400' }))).toThrow("input 'X': 1e400 is too large for a number")
  expect(wrong(field('FP16', [-1], { text: '[70000]' }))).toThrow("input 'X': a value is too large for FP16")
  expect(wrong(field('FP32', [-1], { text: '16777217' }))).toThrow(
    "input 'X': FP32 does not hold 16777217: it would become 16777216",
  )
  expect(wrong(field('FP64', [-1], { text: '9007199254740993' }))).toThrow(/FP64 does not hold 9007199254740993/)
  expect(wrong(field('FP32', [-1], { text: '1e-60' }))).toThrow(/does not hold 1e-60: it would become 0/)
  expect(sent(field('FP32', [-1], { text: '16777216 0.1 -0' }))[2]).toEqual([16777216, Math.fround(0.1), -0])
  expect(() => parametersOf('a')).toThrow("'a' is not a parameter: write name=value")
  expect(parametersOf('a = 1\n\nb=true\nc=x=y\nd=')).toEqual([
    ['a', 1],
    ['b', true],
    ['c', 'x=y'],
    ['d', ''],
  ])
})

const floats = (datatype: 'FP32' | 'FP64', values: number[], shape = [values.length]) => {
  const bytes = new Uint8Array((datatype === 'FP32' ? Float32Array : Float64Array).from(values).buffer)
  return new Tensor('Y', datatype, shape, bytes)
}

test('small tensors are shown in their shape, with the shortest digits of their type', () => {
  expect(numbersShown(floats('FP32', [0.1, 1 / 3, 2, -0.5], [2, 2])).text).toBe('[[0.1, 0.33333334],\n [2, -0.5]]')
  expect(numbersShown(floats('FP64', [0.1 + 0.2])).text).toBe('[0.30000000000000004]')
  expect(numbersShown(new Tensor('Y', 'BOOL', [2], Uint8Array.of(1, 0))).text).toBe('[true, false]')
  expect(numbersShown(new Tensor('Y', 'FP16', [1], new Uint8Array(Uint16Array.of(0x2e66).buffer))).text).toBe('[0.1]')
  expect(numbersShown(floats('FP32', [], [0, 3])).text).toBe('[]')
  expect(numbersShown(floats('FP32', [7], [])).text).toBe('7')
  expect(nested(['1', '2', '3', '4'], [2, 1, 2])).toBe('[[[1, 2]],\n [[3, 4]]]')
})

test('large tensors are summed up, NaN apart', () => {
  const values = Array.from({ length: 1000 }, (_, i) => (i === 0 ? NaN : i))
  const { text, summary } = numbersShown(floats('FP32', values))
  expect(text.startsWith('NaN, 1, 2, 3')).toBe(true)
  expect(text.endsWith('31, …')).toBe(true)
  expect(summary).toEqual([
    ['elements', '1,000'],
    ['min', '1'],
    ['max', '999'],
    ['mean', '500'],
    ['NaN', '1'],
  ])
})

test('elements of BYTES are texts, images or bytes, and long ones are cut', () => {
  const bytes = (text: string) => joinElements([text]).subarray(4)
  expect(bytesShown(bytes('grüße <b>'))).toEqual({ kind: 'text', text: 'grüße <b>', more: 0 })
  const png = Uint8Array.of(0x89, 80, 78, 71, 13, 10, 26, 10, 0)
  expect(bytesShown(png)).toEqual({ kind: 'image', type: 'image/png', bytes: png })
  expect(bytesShown(Uint8Array.of(0xff, 0xd8, 0xff, 0xe0))).toMatchObject({ kind: 'image', type: 'image/jpeg' })
  const bmp = Uint8Array.of(66, 77, 70, 0, 0, 0, 0, 0, 0, 0, 54)
  expect(bytesShown(bmp)).toMatchObject({ kind: 'image', type: 'image/bmp' })
  expect(bytesShown(bytes('BMW is a company'))).toMatchObject({ kind: 'text' })
  expect(bytesShown(Uint8Array.of(0, 1, 255))).toEqual({ kind: 'bytes', text: '00 01 ff', more: 0 })
  const long = bytesShown(bytes('ü'.repeat(30_000)))
  expect(long).toMatchObject({ kind: 'text', text: 'ü'.repeat(10_000), more: 20_000 })
  expect(bytesShown(new Uint8Array(100_000).fill(97))).toMatchObject({ more: 60_000 })
})

test('an endless stream keeps the last 1,000 responses and the end of each text', () => {
  const log = new StreamLog()
  for (let i = 0; i < 5000; i += 1) log.add({ atMs: i, text: 'x'.repeat(3000), pieces: [['out', `word ${i} `]] })
  expect([log.count, log.kept.length, log.kept[0]?.index, log.kept[0]?.text.length]).toEqual([5000, 1000, 4000, 2001])
  expect(log.texts.get('out')?.length).toBe(20_000)
  expect(log.texts.get('out')?.endsWith('word 4999 ')).toBe(true)
})

test('an example has what a schema requires', () => {
  const schemas = {
    Tensor: {
      type: 'object',
      required: ['name', 'shape'],
      properties: {
        name: { const: 'X' },
        data: { type: 'array', items: { anyOf: [{ type: 'integer', minimum: -5, maximum: 9 }] } },
        shape: { type: 'array', prefixItems: [{ type: 'integer', minimum: 1 }, { const: 3 }] },
      },
    },
    Self: { type: 'array', items: { $ref: '#/components/schemas/Self' } },
  }
  const tensor = exampleOf({ $ref: '#/components/schemas/Tensor' }, schemas)
  expect(tensor).toEqual({ name: 'X', shape: [1, 3], data: [1, 1, 1] })
  expect(exampleOf({ type: 'object', properties: { a: { type: 'string' } } }, schemas)).toEqual({})
  expect(exampleOf({ enum: ['a', 'b'] }, schemas)).toBe('a')
  expect(JSON.stringify(exampleOf({ $ref: '#/components/schemas/Self' }, schemas)).length).toBeLessThan(100)
})

test('neighbours are sorted by the cosine', () => {
  expect(cosine(Float32Array.of(1, 0), Float32Array.of(2, 0))).toBe(1)
  expect(cosine(Float32Array.of(1, 0), Float32Array.of(0, 3))).toBe(0)
  expect(cosine(Float32Array.of(0, 0), Float32Array.of(0, 3))).toBe(0)
})

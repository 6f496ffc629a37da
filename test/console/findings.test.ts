/** Boxes and classes in answers, by names and shapes of outputs, and where they stand on the picture. */
import { expect, test } from 'vitest'
import { joinElements } from '../../client/src/bytes.js'
import { Tensor } from '../../client/src/tensor.js'
import { boxText, captionOf, drawnOf, findingsOf, type Box } from '../../src/console/try/findings.js'

const bytes = (values: { buffer: ArrayBufferLike }) => new Uint8Array(values.buffer)
const floats = (name: string, shape: number[], values: number[]) =>
  new Tensor(name, 'FP32', shape, bytes(Float32Array.from(values)))
const integers = (name: string, shape: number[], values: number[]) =>
  new Tensor(name, 'INT32', shape, bytes(Int32Array.from(values)))
const texts = (name: string, shape: number[], values: string[]) =>
  new Tensor(name, 'BYTES', shape, joinElements(values))

/** Two boxes, as the backend `boxes` gives them. */
const BOXES = [
  floats('BOXES', [1, 2, 4], [10, 20, 30, 40, 50, 60, 70, 80.25]),
  floats('SCORES', [1, 2], [0.75, 0.5]),
  integers('CLASSES', [1, 2], [3, 7]),
  texts('LABELS', [1, 2], ['cat', 'dog']),
  integers('COUNT', [1, 1], [2]),
]
const without = (...names: string[]) => BOXES.filter(({ name }) => !names.includes(name))
const summary = (outputs: Tensor[]) => findingsOf(outputs)?.map((one) => [captionOf(one), one.box && boxText(one.box)])

test('boxes have their labels and scores, in pixels', () => {
  expect(summary(BOXES)).toEqual([
    ['cat 0.75', '10, 20, 30, 40'],
    ['dog 0.50', '50, 60, 70, 80.3'],
  ])
})

test('boxes of a model with fewer outputs, without a batch, or with other datatypes', () => {
  expect(summary(without('LABELS', 'COUNT'))?.map(([caption]) => caption)).toEqual(['class 3 0.75', 'class 7 0.50'])
  expect(summary(without('LABELS', 'COUNT', 'CLASSES', 'SCORES'))?.map(([caption]) => caption)).toEqual(['', ''])
  const wide = new Tensor('classes', 'INT64', [1], bytes(BigInt64Array.of(5n)))
  expect(summary([floats('boxes', [1, 4], [1, 2, 3, 4]), wide])).toEqual([['class 5', '1, 2, 3, 4']])
})

test('rows without a box, and boxes that are no numbers, are left out', () => {
  expect(summary([...without('COUNT'), integers('COUNT', [1, 1], [1])])?.length).toBe(1)
  expect(summary([...without('COUNT', 'CLASSES'), integers('CLASSES', [1, 2], [3, -1])])?.length).toBe(1)
  expect(summary([floats('BOXES', [2, 4], [0, 0, NaN, 1, 0, 0, 1, 1])])).toEqual([['', '0, 0, 1, 1']])
  expect(summary([floats('BOXES', [1, 0, 4], []), floats('SCORES', [1, 0], []), integers('COUNT', [1], [0])])).toEqual(
    [],
  )
})

test('classes of a picture have no boxes', () => {
  const scores = floats('SCORES', [1, 3], [0.5, 0.25, 0.125])
  const labels = texts('LABELS', [1, 3], ['cat', '', 'dog'])
  const classes = integers('CLASSES', [1, 3], [2, 9, 4])
  const expected = [['cat 0.50'], ['class 9 0.25'], ['dog 0.13']].map(([caption]) => [caption, null])
  expect(summary([classes, scores, labels])).toEqual(expected)
  expect(summary([scores, labels])?.[2]).toEqual(['dog 0.13', null])
  expect(summary([scores, classes])?.[0]).toEqual(['class 2 0.50', null])
})

test('other outputs, and those of several pictures, are tensors only', () => {
  const others = [
    [],
    [floats('OUTPUT0', [1, 2, 4], Array(8).fill(0))],
    [floats('SCORES', [1, 2], [0, 0])],
    [floats('BOXES', [1, 2, 5], Array(10).fill(0))],
    [floats('BOXES', [2, 2, 4], Array(16).fill(0)), floats('SCORES', [2, 2], Array(4).fill(0))],
    [floats('SCORES', [2, 1], [0, 0]), integers('CLASSES', [2, 1], [0, 0])],
    [texts('BOXES', [1, 4], ['a', 'b', 'c', 'd']), texts('LABELS', [1], ['a'])],
    [...without('SCORES'), floats('SCORES', [1, 3], [0, 0, 0])],
    [floats('BOXES', [4], [0, 0, 1, 1])],
  ]
  for (const outputs of others) expect(findingsOf(outputs)).toBeNull()
})

test('one class has one colour, and neighbours have different ones', () => {
  const hues = (classes: number[]) =>
    findingsOf([floats('SCORES', [3], [0, 0, 0]), integers('CLASSES', [3], classes)])?.map(({ hue }) => hue)
  const [first, second, third] = hues([1, 2, 1]) ?? []
  expect(first).toBe(third)
  expect(Math.abs((first ?? 0) - (second ?? 0))).toBeGreaterThan(60)
})

test('a box stands in percent of the picture, and is cut at its borders', () => {
  const drawn = (...box: Box) => drawnOf(box, 200, 100)
  expect(drawn(20, 50, 120, 75)).toEqual({
    x: 10,
    y: 50,
    width: 50,
    height: 25,
    textX: 10,
    isEnd: false,
    isInside: false,
  })
  expect(drawn(-10, -10, 300, 300)).toMatchObject({ x: 0, y: 0, width: 100, height: 100 })
  expect(drawn(50, 50, 40, 40)).toMatchObject({ width: 0, height: 0 })
})

test('the text of a box stays on the picture at its upper and right borders', () => {
  expect(drawnOf([150, 2, 190, 90], 200, 100)).toMatchObject({ textX: 95, isEnd: true, isInside: true })
  expect(drawnOf([10, 40, 190, 90], 200, 100)).toMatchObject({ textX: 5, isEnd: false, isInside: false })
})

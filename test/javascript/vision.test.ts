/** B-JS-02: `images`, `boxes` and `labels` of models in TypeScript, on the fixtures of the crate `vision`. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { Tensor, TritonError, boxes, images, labels, type ImagePlan } from '../../src/javascript/index.js'
import { fromHalf } from '../../src/javascript/datatypes.js'
import { ROOT } from '../docs/pages.js'

const FIXTURES = join(ROOT, 'crates/vision/fixtures')
const file = (name: string) => readFileSync(join(FIXTURES, name))
const rows = (name: string) =>
  readFileSync(join(FIXTURES, name), 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(' '))

/** The error of a call. */
function errorOf(call: () => unknown): Error & { code?: string } {
  try {
    call()
  } catch (error) {
    return error as Error
  }
  throw new Error('nothing was thrown')
}

describe('images', () => {
  test.each(rows('index.txt'))('%s has the pixels that Rust decodes', (name = '', width, height, pixels = '') => {
    const picture = images.decode(file(name))
    expect([picture.width, picture.height, picture.color]).toEqual([Number(width), Number(height), 'rgb'])
    // Pillow decoded them, whose JPEG decoder rounds once where ours rounds twice.
    const expected = file(pixels)
    expect(picture.data.length).toBe(expected.length)
    const most = picture.data.reduce((most, value, i) => Math.max(most, Math.abs(value - (expected[i] as number))), 0)
    expect(most).toBeLessThanOrEqual(name.endsWith('.jpg') ? 3 : 0)
  })

  const resized = rows('resized.txt').map(([library, filter, width, height, pixels]) => ({
    plan: {
      resize: `${Number(width)}x${Number(height)}`,
      interpolation: filter as 'bilinear',
      antialias: library === 'pillow',
      datatype: 'UINT8',
      layout: 'nhwc',
    } satisfies ImagePlan<'UINT8'>,
    pixels: pixels as string,
  }))
  test.each(resized)('$plan.resize by $plan.interpolation, antialias $plan.antialias', ({ plan, pixels }) => {
    const { data, shape } = images.tensor(file('24.bmp'), plan)
    const expected = file(pixels)
    expect(shape.reduce((a, b) => a * b)).toBe(expected.length)
    const most = data.reduce((most, value, i) => Math.max(most, Math.abs(value - (expected[i] as number))), 0)
    expect(most).toBeLessThanOrEqual(1)
  })

  test('a tensor has the datatype, layout and normalisation of its plan', () => {
    const png = file('rgb.png')
    const { data: pixels, width, height } = images.decode(png)
    const bytes = images.tensor(png, { datatype: 'UINT8', layout: 'nhwc' })
    expect([bytes.shape, bytes.datatype]).toEqual([[height, width, 3], 'UINT8'])
    expect(bytes.data).toEqual(pixels)
    const plan = { scale: '1/255', mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4], color: 'bgr' } as const
    const floats = images.tensor(png, plan)
    expect([floats.shape, floats.datatype]).toEqual([[3, height, width], 'FP32'])
    const plane = width * height
    const at = (pixel: number, channel: number) =>
      ((pixels[3 * pixel + 2 - channel] as number) / 255 - (plan.mean[channel] as number)) /
      (plan.std[channel] as number)
    for (const [pixel, channel] of [
      [0, 0],
      [100, 1],
      [plane - 1, 2],
    ] as const)
      expect(floats.data[channel * plane + pixel]).toBeCloseTo(at(pixel, channel), 5)
    const halves = images.tensor(png, { ...plan, datatype: 'FP16' })
    expect(halves.data).toBeInstanceOf(Uint16Array)
    expect(Math.abs(fromHalf(halves.data[100] as number) - (floats.data[100] as number))).toBeLessThan(2e-3)
  })

  test('a letterbox says where the picture lies', () => {
    const { data, shape, placement } = images.tensor(file('rgb.jpg'), { letterbox: 64, letterboxColor: [255, 0, 0] })
    expect(shape).toEqual([3, 64, 64])
    const scale = 64 / 37
    expect(placement).toMatchObject({ offsetX: 0, offsetY: 7, width: 37, height: 29 })
    expect(placement.scaleX).toBeCloseTo(scale, 5)
    expect([data[0], data[64 * 64], data[2 * 64 * 64]]).toEqual([1, 0, 0])
  })

  test('a decoded picture makes the tensor of its file, also in memory of the caller', () => {
    const plan = { letterbox: '32x16', color: 'grey' } as const
    const jpeg = file('orientation6.jpg')
    const made = images.tensor(jpeg, plan)
    expect(made.shape).toEqual([1, 16, 32])
    expect(images.tensor(images.decode(jpeg, { color: 'grey' }), plan)).toEqual(made)
    const batch = new Float32Array(2 * made.data.length)
    const row = batch.subarray(made.data.length)
    expect(images.tensor(jpeg, plan, row).data).toBe(row)
    expect(row).toEqual(made.data)
    expect(batch.subarray(0, made.data.length).every((value) => value === 0)).toBe(true)
  })

  test('errors of pictures are those of clients, and say what was found', () => {
    const check = (bytes: Uint8Array, message: RegExp, options = {}) => {
      for (const call of [() => images.decode(bytes, options), () => images.tensor(bytes, options)]) {
        const error = errorOf(call)
        expect(error).toBeInstanceOf(TritonError)
        expect([error.code, error.message]).toEqual(['INVALID_ARG', expect.stringMatching(message)])
      }
    }
    check(new Uint8Array(0), /^picture is empty/)
    check(Buffer.from('%PDF-1.7'), /JPEG, PNG, WebP, GIF and BMP are read, and this begins with the text '%PDF-1.7'/)
    check(file('rgb.jpg').subarray(0, 700), /^JPEG picture/)
    check(file('huge.png'), /at most 67108864 pixels are accepted \(pixelsMax\)|16384 pixels per side/)
    check(file('rgb.png'), /of 37 x 29 pixels is too large: at most 100 pixels are accepted \(pixelsMax\)/, {
      pixelsMax: 100,
    })
    check(file('rgb.png'), /at most 30 pixels per side are accepted \(sideMax\)/, { sideMax: 30 })
    const cut = errorOf(() => images.tensor(file('rgb.png'), { centerCrop: 64 }))
    expect([cut.code, cut.message]).toEqual(['INVALID_ARG', expect.stringMatching(/64 x 64 .* out of 37 x 29/)])
  })

  test('no damage of a file ends the process', () => {
    const names = ['420.jpg', 'palette8.png', 'lossy.webp', 'animated.gif', '24.bmp']
    let refused = 0
    for (const bytes of names.map((name) => file(name)))
      for (let i = 0; i < 200; i += 1) {
        const damaged = Buffer.from(bytes.subarray(0, bytes.length - (i % 7) * 40))
        damaged[(i * 7919) % damaged.length] = i
        try {
          images.tensor(damaged, { resize: 8, pixelsMax: 1 << 16 })
        } catch (error) {
          expect(error).toBeInstanceOf(TritonError)
          refused += 1
        }
      }
    expect(refused).toBeGreaterThan(100)
  })

  test('errors of plans are those of the model, in the names of TypeScript', () => {
    const png = file('rgb.png')
    const check = (plan: object, message: string | RegExp, into?: Float32Array) => {
      const error = errorOf(() => images.tensor(png, plan, into))
      expect(error).not.toBeInstanceOf(TritonError)
      expect(error.message).toMatch(message)
    }
    check(
      { centerCrop: 'x' },
      "parameter 'centerCrop': expected a width and a height (640x480), or one side of a square",
    )
    check({ letterboxColour: 1 }, /images\.tensor has no parameter 'letterboxColour'; it has: .* letterboxColor,/)
    check({ datatype: 'UINT8', mean: [0, 0, 0] }, 'UINT8 cannot be normalised')
    check({ resize: 4 }, 'tensor of the picture has 192 bytes, not 188', new Float32Array(47))
    const wrong = { resize: 4, datatype: 'UINT8' } as const
    expect(errorOf(() => images.tensor(png, wrong as never, new Float32Array(12))).message).toBe(
      'images.tensor: a tensor of UINT8 needs Uint8Array, found a value of class Float32Array',
    )
    expect(errorOf(() => images.decode('text' as never)).message).toBe('a picture is a string, expected a Uint8Array')
    const grey = images.decode(png, { color: 'grey' })
    expect(errorOf(() => images.tensor(grey, {})).message).toMatch(/picture is in Grey, and the plan expects Rgb/)
    expect(errorOf(() => images.tensor({ ...grey, width: 36 }, { color: 'grey' })).message).toMatch(/needs 1044 bytes/)
  })
})

describe('boxes and labels', () => {
  /** Two boxes of 2 × 2 around (10, 10), and one around (20, 10); two classes. */
  // oxfmt-ignore
  const data = new Float32Array([
    10, 10.2, 20,
    10, 10, 10,
    2, 2, 2,
    2, 2, 2,
    0.9, 0.8, 0.1,
    0.05, 0.1, 0.75,
  ])

  test('boxes go back to the picture, and overlapping ones are dropped', () => {
    const placement = { scaleX: 2, scaleY: 2, offsetX: 0, offsetY: 4, width: 100, height: 100 }
    const output = { shape: [1, 6, 3], data }
    const found = boxes.decode([output], { layout: 'yolov8', placement })
    expect([...found.boxes]).toEqual([4.5, 2.5, 5.5, 3.5, 9.5, 2.5, 10.5, 3.5])
    expect([[...found.classes], [...found.scores]]).toEqual([
      [0, 1],
      [Math.fround(0.9), 0.75],
    ])
    const all = boxes.decode([Tensor.from('output0', data, [6, 3])], { layout: 'yolov8', nms: 'none', boxesMax: 2 })
    expect([...all.scores]).toEqual([Math.fround(0.9), Math.fround(0.8)])
    expect([...all.boxes.subarray(0, 4)]).toEqual([9, 9, 11, 11])
  })

  test('a batch has a row for each picture', () => {
    const batch = Tensor.from('output0', new Float32Array([...data.map(() => 0), ...data]), [2, 6, 3])
    expect(boxes.decode([batch], { layout: 'yolov8', row: 0 }).scores.length).toBe(0)
    expect(boxes.decode([batch], { layout: 'yolov8', row: 1 }).scores.length).toBe(2)
    const message = (row?: { row: number }) =>
      errorOf(() => boxes.decode([batch], { layout: 'yolov8', ...row })).message
    expect(message()).toBe("output 'output0' of shape [2,6,3] has 2 rows, and none is chosen")
    expect(message({ row: 2 })).toBe("output 'output0' of shape [2,6,3] has 2 rows, and 2 is not one of them")
  })

  test('the layouts of the types are those of the core, and another shape is named', () => {
    const message = errorOf(() => boxes.decode([], {} as never)).message
    const source = readFileSync(join(ROOT, 'src/javascript/boxes.ts'), 'utf8')
    const typed = [...(/layout:([^?]*?)\/\*\*/.exec(source)?.[1] ?? '').matchAll(/'(\w+)'/g)].map(([, name]) => name)
    expect(message).toBe(`boxes.decode needs the parameter 'layout': ${typed.join(', ')}`)
    const check = (given: object[], options: object, found: RegExp) =>
      expect(errorOf(() => boxes.decode(given as never, options as never)).message).toMatch(found)
    check([{ shape: [6], data }], { layout: 'yolov8' }, /'0'.*\[6\]/)
    check([{ shape: [6, 4], data }], { layout: 'yolov8' }, /'0'.*\[6,4\]/)
    check([], { layout: 'detr' }, /layout 'detr' needs 2 outputs \(logits/)
    check(
      [{ shape: [6, 3], data }],
      { layout: 'yolov8', scoreThreshold: 2 },
      /'scoreThreshold' must be .* 0 to 1, got 2/,
    )
    check([{ shape: [6, 3], data }], { layout: 'yolov8', nms: 'x' }, /'nms': expected none, per_class, all_classes/)
    check([{ shape: [6, 3], data: [] }], { layout: 'yolov8' }, /^output 0: data is a value of class Array/)
    const placement = { scaleX: 0, scaleY: 1, offsetX: 0, offsetY: 0, width: 1, height: 1 }
    check([{ shape: [6, 3], data }], { layout: 'yolov8', placement }, /scales > 0/)
  })

  test('labels are the classes with the greatest scores', () => {
    const logits = Tensor.from('logits', new Float32Array([0, Math.log(3), -100, 0]), [1, 4])
    const { classes, scores, names } = labels.top(logits, { topK: 3, names: ['cat', 'dog'] })
    expect([[...classes], names]).toEqual([
      [1, 0, 3],
      ['dog', 'cat', '3'],
    ])
    expect(scores[0]).toBeCloseTo(0.6, 6)
    expect(labels.top(logits, { activation: 'sigmoid' }).scores[1]).toBe(0.5)
    expect([...labels.top({ shape: [2, 2], data: new Float32Array(4) }, { row: 1, topK: 1 }).classes]).toEqual([0])
    expect(errorOf(() => labels.top(logits, { topK: -1 })).message).toBe(
      "parameter 'topK': expected a number, got '-1'",
    )
  })
})

test('results have the array of their datatype', () => {
  const typed = () => {
    const png = new Uint8Array()
    expectTypeOf(images.tensor(png, { letterbox: 640 }).data).toEqualTypeOf<Float32Array>()
    expectTypeOf(images.tensor(png, { datatype: 'FP16' }).data).toEqualTypeOf<Uint16Array>()
    const plan: ImagePlan = { resize: 'shortest:256', centerCrop: '224x224' }
    expectTypeOf(images.tensor(images.decode(png), plan).datatype).toEqualTypeOf<'FP32'>()
    // @ts-expect-error -- another array
    images.tensor(png, { datatype: 'UINT8' }, new Float32Array())
    // @ts-expect-error -- a misspelt option
    images.tensor(png, { letterBox: 640, resize: 8 })
    // @ts-expect-error -- no such size
    images.tensor(png, { resize: 'longest:8' })
    // @ts-expect-error -- no such layout
    boxes.decode([], { layout: 'yolov9' })
    // @ts-expect-error -- numbers of BYTES
    labels.top({ shape: [1], data: ['text'] })
  }
  expectTypeOf(typed).toBeFunction()
  expect(existsSync(FIXTURES)).toBe(true)
})

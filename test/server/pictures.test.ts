/** The backends `image`, `boxes` and `labels` over HTTP: completed configurations, shapes, values and errors. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { writeModel } from '../../scripts/models/repository.mjs'
import { ROOT, repositories, TestServer } from './harness.js'

interface Answer {
  outputs: { name: string; datatype: string; shape: number[]; data: (number | string)[] }[]
  error?: string
}

/** Two by two pixels: red, green, blue, white. */
const DOT = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEklEQVR42mP4z8DAAMIM/4EAAB/uBfvxq7p3AAAAAElFTkSuQmCC',
  'base64',
)
/** A black picture of 24 bits per pixel; the width is a multiple of 4. */
function bmp(width: number, height: number): Buffer {
  const file = Buffer.alloc(54 + width * height * 3)
  file.write('BM', 'latin1')
  const fields = [file.length, 0, 54, 40, width, height, 1 + (24 << 16)]
  fields.forEach((value, i) => file.writeUInt32LE(value, 2 + 4 * i))
  return file
}
const fixture = (name: string): Buffer => readFileSync(join(ROOT, 'crates/vision/fixtures', name))

const parameters = (values: Record<string, string>): string =>
  Object.entries(values)
    .map(([key, value]) => `parameters { key: "${key}" value { string_value: "${value}" } }\n`)
    .join('')
const config = (backend: string, batch: number, values: Record<string, string>, more = ''): string =>
  `backend: "${backend}"\nmax_batch_size: ${batch}\n${parameters(values)}${more}`

const MODELS: Record<string, string> = {
  letterbox: config('image', 8, { letterbox: '8x4', letterbox_color: '0,0,0' }),
  bytes: config('image', 8, { datatype: 'uint8', layout: 'nhwc', color: 'bgr' }),
  stride: config('image', 8, { letterbox: '64x64', stride: '32', datatype: 'uint8' }),
  fixed: config(
    'image',
    0,
    { resize: '2x2', antialias: 'false', mean: '0.5,0.5,0.5', std: '0.5,0.5,0.5' },
    'input { name: "FILE" data_type: TYPE_STRING dims: [ -1 ] }\n' +
      'output { name: "images" data_type: TYPE_FP32 dims: [ 1, 3, 2, 2 ] }\n',
  ),
  yolo: config(
    'boxes',
    8,
    { layout: 'yolov8', score_threshold: '0.5' },
    'input [ { name: "output0" data_type: TYPE_FP32 dims: [ -1, -1 ] },\n' +
      '  { name: "PLACEMENT" data_type: TYPE_FP32 dims: [ 6 ] } ]\n' +
      'output [ { name: "BOXES" data_type: TYPE_FP32 dims: [ -1, 4 ] }, { name: "SCORES" data_type: TYPE_FP32 dims: [ -1 ] },\n' +
      '  { name: "CLASSES" data_type: TYPE_INT32 dims: [ -1 ] },\n' +
      '  { name: "LABELS" data_type: TYPE_STRING dims: [ -1 ] label_filename: "labels.txt" },\n' +
      '  { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] } ]\n',
  ),
  torchvision: config(
    'boxes',
    0,
    { layout: 'torchvision', input_size: '100x50' },
    'input [ { name: "boxes" data_type: TYPE_FP32 dims: [ -1, -1, 4 ] },\n' +
      '  { name: "labels" data_type: TYPE_INT64 dims: [ -1, -1 ] }, { name: "scores" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]\n' +
      'output [ { name: "BOXES" data_type: TYPE_FP32 dims: [ -1, -1, 4 ] }, { name: "SCORES" data_type: TYPE_FP32 dims: [ -1, -1 ] },\n' +
      '  { name: "CLASSES" data_type: TYPE_INT32 dims: [ -1, -1 ] }, { name: "LABELS" data_type: TYPE_STRING dims: [ -1, -1 ] } ]\n',
  ),
  labels: config('labels', 8, {}),
}
/** Configurations that do not load, and what the error says. */
const WRONG: Record<string, [string, string]> = {
  wrong_name: [
    config('image', 8, { letter_box: '8' }),
    "backend 'image' has no parameter 'letter_box'; it has: color, resize",
  ],
  wrong_size: [
    config('image', 8, { resize: 'big' }),
    "parameter 'resize': expected 640x480, shortest:256 or within:640x480, got 'big'",
  ],
  wrong_order: [
    config('image', 8, { resize: '8', letterbox: '8' }),
    'step 2: the picture is resized already: one resize or letterbox is possible',
  ],
  wrong_layout: [config('boxes', 8, {}), "backend 'boxes' needs the parameter 'layout': yolov5, yolov8"],
  wrong_threshold: [
    config('boxes', 8, { layout: 'detr', score_threshold: '2' }),
    "'score_threshold' must be a number from 0 to 1, got 2",
  ],
  wrong_gpu: [
    config('labels', 8, {}, 'instance_group { kind: KIND_MODEL }\n'),
    "backend 'labels' runs on the CPU: set the kind of the instance group to KIND_CPU",
  ],
  wrong_top: [config('labels', 8, { top_k: 'all' }), "parameter 'top_k': expected a number, got 'all'"],
}

const models = repositories()
let server: TestServer

beforeAll(async () => {
  const root = models.path('main')
  for (const [name, text] of Object.entries(MODELS))
    writeModel(root, name, { config: text, ...(name === 'yolo' ? { files: { 'labels.txt': 'cat\ndog\n' } } : {}) })
  for (const [name, [text]] of Object.entries(WRONG)) writeModel(root, name, { config: text })
  server = await TestServer.start(root, [
    '--model-control-mode=explicit',
    ...Object.keys(MODELS).map((m) => `--load-model=${m}`),
  ])
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

async function post(path: string, body: FormData | string): Promise<Answer> {
  const answer = await fetch(`http://127.0.0.1:${server.httpPort}/v2/${path}`, { method: 'POST', body })
  const text = await answer.text()
  return (text === '' ? {} : JSON.parse(text)) as Answer
}

/** Sends files, and parameters as texts. */
function send(model: string, files: Buffer[], values: Record<string, string> = {}): Promise<Answer> {
  const form = new FormData()
  for (const file of files) form.append('file', new Blob([new Uint8Array(file)]), 'file')
  for (const [key, value] of Object.entries(values)) form.append(key, value)
  return post(`models/${model}/infer`, form)
}

const tensor = (name: string, shape: number[], data: number[], datatype = 'FP32') => ({ name, shape, datatype, data })
const ask = (model: string, inputs: object[], more: object = {}): Promise<Answer> =>
  post(`models/${model}/infer`, JSON.stringify({ inputs, ...more }))
const seen = (answer: Answer) =>
  Object.fromEntries((answer.outputs ?? []).map(({ name, datatype, shape, data }) => [name, [datatype, shape, data]]))

describe('image', () => {
  test('a letterbox has borders, and a placement that leads back', async () => {
    const { TENSOR, PLACEMENT } = seen(await send('letterbox', [DOT]))
    expect(PLACEMENT).toEqual(['FP32', [1, 6], [2, 2, 2, 0, 2, 2]])
    expect(TENSOR?.slice(0, 2)).toEqual(['FP32', [1, 3, 4, 8]])
    const values = (TENSOR?.[2] ?? []) as number[]
    const red = values.slice(0, 8)
    expect(red.map((value) => Math.round(value * 255))).toEqual([0, 0, 255, 191, 64, 0, 0, 0])
  })

  test('bytes of a picture come as they are, in the order of the layout and the colours', async () => {
    const { TENSOR, PLACEMENT } = seen(await send('bytes', [DOT]))
    expect(TENSOR).toEqual(['UINT8', [1, 2, 2, 3], [0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 255]])
    expect(PLACEMENT).toEqual(['FP32', [1, 6], [1, 1, 0, 0, 2, 2]])
  })

  test('files of a form are the rows of a batch', async () => {
    const { TENSOR, PLACEMENT } = seen(await send('letterbox', [DOT, fixture('420.jpg'), DOT]))
    expect(TENSOR?.slice(0, 2)).toEqual(['FP32', [3, 3, 4, 8]])
    expect(PLACEMENT?.slice(0, 2)).toEqual(['FP32', [3, 6]])
    const values = TENSOR?.[2] as number[]
    expect(values.slice(0, 96)).toEqual(values.slice(192))
  })

  test('a network with a fixed batch of 1 gets it without batching', async () => {
    const { images } = seen(await send('fixed', [DOT]))
    expect(images).toEqual(['FP32', [1, 3, 2, 2], [1, -1, -1, 1, -1, 1, -1, 1, -1, -1, 1, 1]])
  })

  test('a size that follows the picture is one for all rows', async () => {
    const { TENSOR } = seen(await send('stride', [DOT]))
    expect(TENSOR?.slice(0, 2)).toEqual(['UINT8', [1, 3, 64, 64]])
    const { error } = await send('stride', [DOT, bmp(40, 4)])
    expect(error).toMatch(/^pictures of a batch make tensors of one shape, but picture 1 makes \[3, \d+, \d+\]/)
  })

  test('a file that is no picture is named, with its bytes', async () => {
    expect((await send('letterbox', [DOT, Buffer.from('hello')])).error).toBe(
      'picture 1: format of the picture is not known: JPEG, PNG, WebP, GIF and BMP are read, and this begins with ' +
        "the text 'hello': if that is the name of a file, curl needs @ before it",
    )
    expect((await send('letterbox', [Buffer.from(DOT.toString('base64'))])).error).toMatch(
      /begins with 'iVBORw0KGgoAAAAN', which is base64: decode it, or set the parameter content_encoding of the input$/,
    )
    expect((await send('letterbox', [Buffer.alloc(0)])).error).toBe('picture 0: picture is empty: it has no bytes')
    expect((await send('stride', [DOT.subarray(0, 60)])).error).toMatch(/^picture 0: PNG picture cannot be decoded/)
    const huge = Buffer.from(DOT)
    huge.writeUInt32BE(100_000, 16)
    huge.writeUInt32BE(100_000, 20)
    expect((await send('letterbox', [huge])).error).toMatch(/^picture 0: PNG picture/)
  })
})

describe('boxes', () => {
  // Three boxes of two classes: a cat, the same again with a lower score, and a dog.
  const rows = [
    [4, 4, 2],
    [2, 2, 2],
    [4, 4, 2],
    [4, 4, 2],
    [0.9, 0.8, 0.1],
    [0.1, 0.1, 0.7],
  ]
  const output0 = tensor('output0', [1, 6, 3], rows.flat())
  const placement = tensor('PLACEMENT', [1, 6], [2, 2, 2, 0, 2, 2])

  test('boxes are in pixels of the picture, without those that others suppress', async () => {
    expect(seen(await ask('yolo', [output0, placement]))).toEqual({
      BOXES: ['FP32', [1, 2, 4], [0, 0, 2, 2, 0, 0.5, 0.5, 1.5]],
      SCORES: ['FP32', [1, 2], [Math.fround(0.9), Math.fround(0.7)].map((x) => expect.closeTo(x, 6) as number)],
      CLASSES: ['INT32', [1, 2], [0, 1]],
      LABELS: ['BYTES', [1, 2], ['cat', 'dog']],
      COUNT: ['INT32', [1, 1], [2]],
    })
  })

  test('parameters of a request override the thresholds', async () => {
    const answer = await ask('yolo', [output0, placement], { parameters: { score_threshold: 0.85, boxes_max: 5 } })
    expect(seen(answer)['COUNT']).toEqual(['INT32', [1, 1], [1]])
    const { error } = await ask('yolo', [output0, placement], { parameters: { iou_threshold: 7 } })
    expect(error).toContain("'iou_threshold' must be a number from 0 to 1, got 7")
  })

  test('rows with fewer boxes are filled, and counted', async () => {
    const both = tensor('output0', [2, 6, 3], [...rows.flat(), ...rows.flat().map((x, i) => (i < 12 ? x : 0))])
    const answer = await ask('yolo', [both, tensor('PLACEMENT', [2, 6], [...placement.data, ...placement.data])])
    const { BOXES, CLASSES, LABELS, COUNT } = seen(answer)
    expect(COUNT).toEqual(['INT32', [2, 1], [2, 0]])
    expect(CLASSES).toEqual(['INT32', [2, 2], [0, 1, -1, -1]])
    expect(LABELS).toEqual(['BYTES', [2, 2], ['cat', 'dog', '', '']])
    expect(BOXES?.slice(0, 2)).toEqual(['FP32', [2, 2, 4]])
  })

  test('integer labels, no batching and no placement', async () => {
    const inputs = [
      tensor('boxes', [1, 1, 4], [10, 10, 120, 20]),
      tensor('labels', [1, 1], [3], 'INT64'),
      tensor('scores', [1, 1], [0.5]),
    ]
    const { BOXES, LABELS } = seen(await ask('torchvision', inputs))
    expect(BOXES).toEqual(['FP32', [1, 1, 4], [10, 10, 100, 20]])
    expect(LABELS).toEqual(['BYTES', [1, 1], ['3']])
  })

  test('an output of another shape is named with both shapes', async () => {
    const { error } = await ask('yolo', [tensor('output0', [1, 3, 6], rows.flat()), placement])
    expect(error).toMatch(/output0.*\[4 \+ classes, boxes\].*\[3,6\]/)
  })
})

describe('labels', () => {
  test('the best classes by descending score', async () => {
    const logits = tensor('LOGITS', [2, 3], [0, Math.log(2), Math.log(5), 3, 3, -1])
    const answer = seen(await ask('labels', [logits], { parameters: { top_k: 2 } }))
    expect(answer['CLASSES']).toEqual(['INT32', [2, 2], [2, 1, 0, 1]])
    expect(answer['LABELS']).toEqual(['BYTES', [2, 2], ['2', '1', '0', '1']])
    expect(answer['SCORES']?.slice(0, 2)).toEqual(['FP32', [2, 2]])
    const scores = answer['SCORES']?.[2] as number[]
    expect(scores[0]).toBeCloseTo(5 / 8, 6)
    expect(scores[1]).toBeCloseTo(2 / 8, 6)
    const { error } = await ask('labels', [logits], { parameters: { top_k: 0 } })
    expect(error).toContain("parameter 'top_k' must be a whole number from 1, got 0")
  })
})

test.each(Object.entries(WRONG))('%s is refused with what was expected', async (name, [, text]) => {
  expect((await post(`repository/models/${name}/load`, '{}')).error).toContain(text)
})

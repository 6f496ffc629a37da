/**
 * `nereid init --task`: ensembles of tiny networks, from ONNX files and from folders of a hub. The written models are
 * served and get a PNG; limits hold for files of others.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { deflateSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { vision } from '../../scripts/models/graphs.mjs'
import { TYPE } from '../../scripts/models/onnx.mjs'
import * as check from '../../src/tools/check/index.js'
import * as init from '../../src/tools/init/index.js'
import { TestServer } from '../server/harness.js'
import { files, runs } from './harness.js'

type Content = Record<string, string | Uint8Array>
/** Arguments of `vision`. */
interface Graph {
  input?: (number | string)[]
  type?: number
  rows?: number | string | null
  outputs?: { name: string; shape: (number | string)[]; data?: number[]; type?: number }[]
  end?: string
  isSingle?: boolean
  metadata?: Record<string, string>
}

const IMAGE = [3, 32, 32]
const scores = (more: Graph = {}): Uint8Array =>
  vision({ input: IMAGE, outputs: [{ name: 'logits', shape: [3], data: [1, 5, 2] }], ...more })

async function made(content: Content, source: string, args: string[]) {
  const directory = files(content)
  const out = join(directory, 'out')
  const result = await runs(init, [join(directory, source), `--out=${out}`, ...args], directory)
  /** The configuration of the ensemble, or of a step. */
  const config = (model: string): string => readFileSync(join(out, model, 'config.pbtxt'), 'utf8')
  return { ...result, directory, models: out, config }
}

const classify = (content: Content, source: string, ...args: string[]) =>
  made(content, source, ['--task=classify', ...args])
const detect = (graph: Graph, ...args: string[]) =>
  made({ 'net.onnx': vision({ input: IMAGE, outputs: [], ...graph }) }, 'net.onnx', ['--task=detect', ...args])

/** Parameters of a configuration. */
const parameters = (text: string): Record<string, string> =>
  Object.fromEntries(
    [...text.matchAll(/^parameters \{ key: "(\w+)" value \{ string_value: "([^"]*)" \} \}$/gm)].map(
      ([, key = '', value = '']) => [key, value],
    ),
  )

/** Check sum of a part of a PNG. */
function crc(bytes: Uint8Array): number {
  let sum = -1
  for (const byte of bytes) {
    sum ^= byte
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0)
  }
  return ~sum >>> 0
}

/** A grey picture. */
function png(width: number, height: number): Buffer<ArrayBuffer> {
  const part = (type: string, data: Uint8Array): Buffer => {
    const body = Buffer.concat([Buffer.from(type), data])
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
    length.writeUInt32BE(data.length)
    sum.writeUInt32BE(crc(body))
    return Buffer.concat([length, body, sum])
  }
  const head = Buffer.alloc(13)
  head.writeUInt32BE(width)
  head.writeUInt32BE(height, 4)
  // Eight bits, RGB.
  head.set([8, 2], 8)
  const row = Buffer.concat([Buffer.of(0), Buffer.alloc(width * 3, 128)])
  const pixels = deflateSync(Buffer.concat(Array.from({ length: height }, () => row)))
  const begin = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')
  return Buffer.concat([begin, part('IHDR', head), part('IDAT', pixels), part('IEND', Buffer.alloc(0))])
}

interface Answer {
  error?: string
  outputs?: { name: string; datatype: string; shape: number[]; data: unknown[] }[]
}

/** Sends pictures to the printed address, as the printed command does. */
async function answerTo(
  out: string,
  server: TestServer,
  pictures: Buffer<ArrayBuffer>[],
  fields = {},
): Promise<Answer> {
  const [, path = ''] = /curl -F image=@cat\.jpg localhost:8000(\S+)\n/.exec(out) ?? []
  const form = new FormData()
  for (const bytes of pictures) form.append('image', new Blob([bytes]), 'cat.png')
  for (const [name, value] of Object.entries(fields)) form.append(name, String(value))
  const answer = await fetch(`http://127.0.0.1:${server.httpPort}${path}`, { method: 'POST', body: form })
  return (await answer.json()) as Answer
}

const typed = ({ outputs = [] }: Answer) => outputs.map(({ name, datatype, shape }) => [name, datatype, shape])
const data = ({ outputs = [] }: Answer, name: string) => outputs.find((output) => output.name === name)?.data

async function serving(models: string, use: (server: TestServer) => Promise<void>): Promise<void> {
  const server = await TestServer.start(models)
  try {
    await use(server)
  } finally {
    await server.stop()
  }
}

const VIT = {
  do_normalize: true,
  do_rescale: true,
  do_resize: true,
  image_mean: [0.5, 0.5, 0.5],
  image_processor_type: 'ViTImageProcessor',
  image_std: [0.5, 0.5, 0.5],
  resample: 2,
  rescale_factor: 0.00392156862745098,
  size: { height: 32, width: 32 },
}
const LABELS = { model_type: 'vit', id2label: { 0: 'cat', 1: 'dog', 2: 'bird' } }

describe('what it writes is served', () => {
  test('a folder of a hub classifies: two pictures are a batch, and labels have names', async () => {
    const hub = {
      'hub/onnx/model.onnx': scores(),
      'hub/preprocessor_config.json': JSON.stringify(VIT),
      'hub/config.json': JSON.stringify(LABELS),
    }
    const { code, out, err, models, config } = await classify(hub, 'hub')
    expect([code, err]).toEqual([0, ''])
    expect(out).toContain('./out/hub_labels/labels.txt\n')
    expect(out).toMatch(/\.\/out\/hub\/config\.pbtxt\n\nServe it:/)
    expect(parameters(config('hub_image'))).toEqual({
      resize: '32x32',
      interpolation: 'bilinear',
      scale: '1/255',
      mean: '0.5, 0.5, 0.5',
      std: '0.5, 0.5, 0.5',
    })
    expect(config('hub_image')).toContain('# preprocessor_config.json: image_mean.\n')
    expect((await runs(check, [models])).out).toContain('4 models, 0 errors, 0 warnings')
    await serving(models, async (server) => {
      const answer = await answerTo(out, server, [png(64, 48), png(20, 90)])
      expect(typed(answer)).toEqual([
        ['CLASSES', 'INT32', [2, 3]],
        ['SCORES', 'FP32', [2, 3]],
        ['LABELS', 'BYTES', [2, 3]],
      ])
      expect(data(answer, 'LABELS')).toEqual(['dog', 'bird', 'cat', 'dog', 'bird', 'cat'])
      const one = await answerTo(out, server, [png(64, 48)], { top_k: 1 })
      expect([data(one, 'CLASSES'), data(one, 'LABELS')]).toEqual([[1], ['dog']])
    })
  })

  test('an export of Ultralytics detects: boxes are in pixels of the picture', async () => {
    // A box in the middle of the input, of class 1.
    const values = [16, 16, 8, 8, 0, 0.9].flatMap((first) => [first, ...Array<number>(19).fill(0)])
    const { code, out, err, models, config } = await detect({
      rows: 1,
      outputs: [{ name: 'output0', shape: [6, 20], data: values }],
      metadata: { task: 'detect', names: `{0: 'person', 1: "driver's \\xe9"}`, stride: '32', imgsz: '[32, 32]' },
    })
    expect([code, err]).toEqual([0, ''])
    expect(out).not.toContain('Guesses')
    expect(parameters(config('net_image'))).toEqual({ letterbox: '32x32', antialias: 'false', scale: '1/255' })
    expect(parameters(config('net_boxes'))).toEqual({ layout: 'yolov8', classes: '2' })
    expect(config('net_network')).toContain('max_batch_size: 0\n')
    expect((await runs(check, [models])).out).toContain('4 models, 0 errors, 0 warnings')
    await serving(models, async (server) => {
      const answer = await answerTo(out, server, [png(64, 64)])
      expect(typed(answer)).toEqual([
        ['BOXES', 'FP32', [1, 1, 4]],
        ['SCORES', 'FP32', [1, 1]],
        ['CLASSES', 'INT32', [1, 1]],
        ['LABELS', 'BYTES', [1, 1]],
        ['COUNT', 'INT32', [1, 1]],
      ])
      expect([data(answer, 'BOXES'), data(answer, 'LABELS')]).toEqual([[24, 24, 40, 40], ["driver's é"]])
      expect(data(await answerTo(out, server, [png(64, 64)], { score_threshold: 0.95 }), 'COUNT')).toEqual([0])
      expect((await answerTo(out, server, [png(8, 8), png(8, 8)])).error).toContain('which 2 files do not fill')
    })
  })
})

describe('the layout of a detection network', () => {
  const pair = [
    { name: 'wh', shape: [2, 8, 8] },
    { name: 'reg', shape: [2, 8, 8] },
  ]
  const queries = (count: number, width: number) => [
    { name: 'logits', shape: [count, width] },
    { name: 'pred_boxes', shape: [count, 4] },
  ]
  const cases: [string, Graph][] = [
    ['yolov8', { outputs: [{ name: 'o', shape: [7, 20] }] }],
    // Masks beside the boxes.
    [
      'yolov8',
      {
        outputs: [
          { name: 'o', shape: [39, 84] },
          { name: 'p', shape: [32, 8, 8] },
        ],
      },
    ],
    ['yolov5', { outputs: [{ name: 'o', shape: [20, 8] }] }],
    ['yolov5', { outputs: [{ name: 'o', shape: [1200, 6] }] }],
    ['yolov10', { outputs: [{ name: 'o', shape: [30, 6] }] }],
    ['detr', { outputs: queries(10, 5) }],
    ['rtdetr', { outputs: queries(300, 5) }],
    ['rtdetr', { input: [3, 'height', 'width'], outputs: queries(300, 5) }],
    ['centernet', { outputs: [{ name: 'hm', shape: [5, 8, 8] }, ...pair] }],
    ['centerface', { outputs: [{ name: '537', shape: [1, 8, 8] }, ...pair, { name: '540', shape: [10, 8, 8] }] }],
    [
      'torchvision',
      {
        rows: null,
        input: [3, 'height', 'width'],
        outputs: [
          { name: 'boxes', shape: [5, 4] },
          { name: 'labels', shape: [5], type: TYPE.INT64 },
          { name: 'scores', shape: [5] },
        ],
      },
    ],
    // Bytes, channels last.
    ['yolov8', { rows: 1, type: TYPE.UINT8, input: [32, 32, 3], outputs: [{ name: 'o', shape: [7, 20] }] }],
  ]
  test.each(cases)('%s is found by the shapes, and the ensemble takes a picture', async (layout, graph) => {
    const { code, out, err, config } = await detect(graph)
    expect([code, err]).toEqual([0, ''])
    expect(parameters(config('net_boxes'))['layout']).toBe(layout)
    expect(config('net_image') + config('net_boxes')).toContain('# GUESS: ')
    expect(out).toContain('Guesses, which are comments in the configurations:\n')
    expect(out).not.toContain('Note:')
  })

  test('is that of the names of classes, or of the type of the model', async () => {
    const folder = (config: object) => ({
      'hub/model.onnx': vision({ input: IMAGE, outputs: queries(10, 4) }),
      'hub/config.json': JSON.stringify(config),
    })
    const layoutOf = async (config: object): Promise<string | undefined> =>
      parameters((await made(folder(config), 'hub', ['--task=detect'])).config('hub_boxes'))['layout']
    expect(await layoutOf({ id2label: { 0: 'a', 1: 'b', 2: 'c' } })).toBe('detr')
    expect(await layoutOf({ id2label: { 0: 'a', 1: 'b', 2: 'c', 3: 'd' } })).toBe('rtdetr')
    expect(await layoutOf({ model_type: 'deformable_detr' })).toBe('rtdetr')
    expect(await layoutOf({ model_type: 'yolos' })).toBe('detr')
  })
})

describe('preprocessor_config.json', () => {
  const COLOURS = { scale: '1/255' }
  const cases: [string, object, [number, number], object, RegExp?][] = [
    [
      'a square by a number, as of older releases',
      { feature_extractor_type: 'ViTFeatureExtractor', size: 40, resample: 3, do_normalize: false },
      [40, 40],
      { resize: '40x40', interpolation: 'bicubic', ...COLOURS },
    ],
    [
      'a shorter side and a crop',
      {
        image_processor_type: 'BitImageProcessor',
        size: { shortest_edge: 36 },
        crop_size: { height: 32, width: 32 },
        do_center_crop: true,
        resample: 4,
        do_rescale: false,
      },
      [32, 32],
      { resize: 'shortest:36', interpolation: 'area', center_crop: '32x32', scale: '1' },
    ],
    [
      'the share of the crop of ConvNext',
      { image_processor_type: 'ConvNextImageProcessor', size: { shortest_edge: 32 }, crop_pct: 0.875, resample: 2 },
      [32, 32],
      { resize: 'shortest:36', interpolation: 'bilinear', center_crop: '32x32', ...COLOURS },
    ],
    [
      'a limit of the longer side, for a network of one size',
      {
        image_processor_type: 'DetrImageProcessor',
        size: { shortest_edge: 800, longest_edge: 1333 },
        do_pad: true,
        resample: 2,
      },
      [32, 48],
      { resize: '48x32', interpolation: 'bilinear', ...COLOURS },
      /keeps their aspect ratio: they are resized to 48x32[\s\S]*Without an equivalent here:\n {2}- .*do_pad/,
    ],
    [
      'another size than the network has',
      { size: { height: 64, width: 64 }, resample: 2 },
      [32, 32],
      { resize: '32x32', interpolation: 'bilinear', ...COLOURS },
      /The file takes pictures of 32x32, and preprocessor_config\.json makes 64x64/,
    ],
    [
      'what has no equivalent',
      { size: 32, resample: 5, do_flip_channel_order: true, do_align_long_axis: true, do_thumbnail: false },
      [32, 32],
      { resize: '32x32', interpolation: 'bilinear', ...COLOURS, color: 'bgr' },
      /Hamming; "interpolation" is bilinear instead\n.*"do_align_long_axis" is not read\n\n/,
    ],
    [
      'nothing to do',
      { do_resize: false, do_normalize: false },
      [32, 32],
      { resize: '32x32', interpolation: 'bilinear', ...COLOURS },
    ],
  ]
  test.each([
    [{ longest_edge: 640 }, 'within:640x640'],
    [{ max_height: 480, max_width: 640 }, 'within:640x480'],
    [{ shortest_edge: 480, longest_edge: 640 }, 'shortest:480'],
  ])('a network of any size keeps the aspect ratio of %j', async (size, resize) => {
    const hub = {
      'hub/model.onnx': vision({ input: [3, 'height', 'width'], outputs: [{ name: 'o', shape: [30, 6] }] }),
      'hub/preprocessor_config.json': JSON.stringify({ size, resample: 2, do_normalize: false }),
    }
    const { code, out, config } = await made(hub, 'hub', ['--task=detect'])
    expect([code, parameters(config('hub_image'))]).toMatchObject([0, { resize }])
    expect(out).not.toContain('Note:')
    expect(out.includes('the longer side is limited to 640 there')).toBe(resize.startsWith('shortest'))
  })

  test.each(cases)('%s', async (_, preprocessor, size, expected, printed) => {
    const hub = {
      'hub/model.onnx': scores({ input: [3, ...size] }),
      'hub/preprocessor_config.json': JSON.stringify(preprocessor),
    }
    const { code, out, err, config } = await classify(hub, 'hub')
    expect([code, err]).toEqual([0, ''])
    expect(parameters(config('hub_image'))).toEqual(expected)
    if (printed !== undefined) expect(out).toMatch(printed)
  })
})

describe('without such files', () => {
  test('a classifier has the steps of torchvision, as a guess', async () => {
    const { out, config } = await classify({ 'net.onnx': scores({ input: [3, 224, 224] }) }, 'net.onnx')
    expect(parameters(config('net_image'))).toEqual({
      resize: 'shortest:256',
      center_crop: '224x224',
      scale: '1/255',
      mean: '0.485, 0.456, 0.406',
      std: '0.229, 0.224, 0.225',
    })
    expect(config('net_image')).toContain('# GUESS: How pictures are prepared is not in the files: ')
    expect(parameters(config('net_labels'))['activation']).toBe('softmax')
    expect(out).toContain('If the network returns probabilities, set "activation" to none')
  })

  test.each(['Softmax', 'Sigmoid'])('a graph that ends with %s has probabilities', async (end) => {
    const { out, config } = await classify({ 'net.onnx': scores({ end }) }, 'net.onnx')
    expect(parameters(config('net_labels'))['activation']).toBe('none')
    expect(out).not.toContain('"activation"')
  })

  test.each([
    ['FP16 and one channel', { type: TYPE.FP16, input: [1, 28, 28] }, { color: 'grey' }],
    ['channels last', { rows: 1, input: [28, 28, 3] }, { layout: 'nhwc' }],
    ['any size', { input: [3, 'height', 'width'] }, { center_crop: '224x224' }],
    ['scores as a map of one pixel', { outputs: [{ name: 'o', shape: [3, 1, 1] }] }, {}],
    ['one row, and such a map', { rows: 1, outputs: [{ name: 'o', shape: [3, 1, 1] }] }, {}],
  ] as [string, Graph, object][])('a classifier with %s takes a picture', async (_, graph, expected) => {
    const { code, out, err, config } = await classify({ 'net.onnx': scores(graph) }, 'net.onnx')
    expect([code, err]).toEqual([0, ''])
    expect(out).not.toContain('Note:')
    expect(parameters(config('net_image'))).toMatchObject(expected)
  })

  test('an export of Ultralytics without a size of its own has that of its metadata', async () => {
    const { out, config } = await detect({
      input: [3, 'height', 'width'],
      outputs: [{ name: 'output0', shape: [6, 20] }],
      metadata: { task: 'detect', names: "{0: 'a', 1: 'b'}", stride: '32', imgsz: '[64, 96]' },
    })
    expect(parameters(config('net_image'))).toMatchObject({ letterbox: '96x64' })
    expect(config('net_image')).toContain('with the parameter stride "32"')
    expect(out).not.toContain('Guesses')
  })
})

describe('batches', () => {
  test('a network that fails with two pictures does not batch, and the reason is printed', async () => {
    const { code, out, config } = await classify({ 'net.onnx': scores({ isSingle: true }) }, 'net.onnx')
    expect(code).toBe(0)
    expect(config('net_network')).toContain('max_batch_size: 0\n')
    expect(out).toMatch(/The network fails with two pictures \(.*Reshape.*\), so max_batch_size is 0\.\n/)
  })

  test('--batch sets the rows, and a network of one row rejects it', async () => {
    const { config } = await classify({ 'net.onnx': scores() }, 'net.onnx', '--batch=3')
    for (const model of ['net', 'net_image', 'net_network', 'net_labels'])
      expect(config(model)).toContain('max_batch_size: 3\n')
    const { code, err } = await classify({ 'net.onnx': scores({ rows: 1 }) }, 'net.onnx', '--batch')
    expect([code, err]).toEqual([1, expect.stringContaining('the network cannot batch')])
  })
})

describe('is refused, and leaves nothing', () => {
  const model = { 'hub/model.onnx': scores() }
  const preprocessor = (text: string): Content => ({ ...model, 'hub/preprocessor_config.json': text })
  const config = (text: string): Content => ({ ...model, 'hub/config.json': text })
  const cases: [string, Content, RegExp][] = [
    [
      '100 MB',
      preprocessor(`{"a": "${'x'.repeat(100 << 20)}"}`),
      /preprocessor_config\.json is too large: \d+ bytes, at most/,
    ],
    ['100,000 lists', preprocessor('['.repeat(100_000)), /preprocessor_config\.json is nested more than 32 deep/],
    ['half a file', preprocessor('{"size": '), /preprocessor_config\.json is not JSON/],
    ['a list', preprocessor('[1]'), /preprocessor_config\.json is \[1\], expected an object/],
    ['a text as a size', preprocessor('{"size": "224"}'), /'size' is "224", expected a number or an object with sides/],
    ['a size without a side', preprocessor('{"size": {"height": 3}}'), /'size\.width' is missing, expected a side/],
    ['a size of zero', preprocessor('{"size": 0}'), /'size' is 0, expected a side of 1 to 16384 pixels/],
    ['a size of a billion', preprocessor('{"size": 1000000000}'), /'size' is 1000000000, expected a side/],
    ['two means', preprocessor('{"image_mean": [1, 2]}'), /'image_mean' is \[1,2\], expected three numbers/],
    ['a text as a flag', preprocessor('{"do_resize": "no"}'), /'do_resize' is "no", expected true or false/],
    ['an unknown filter', preprocessor('{"size": 32, "resample": 9}'), /'resample' is 9, expected a filter of Pillow/],
    [
      'a factor below zero',
      preprocessor('{"rescale_factor": -1}'),
      /'rescale_factor' is -1, expected a number above 0/,
    ],
    ['a list of names', config('{"id2label": ["a"]}'), /'id2label' is \["a"\], expected names by number/],
    ['a huge id', config('{"id2label": {"9999999": "a"}}'), /'id2label' has the id "9999999", expected 0 to 65535/],
    ['a number as a name', config('{"id2label": {"0": 1}}'), /'id2label' has 1 as the name of 0/],
    [
      'a fixed number of pictures',
      { 'hub/model.onnx': scores({ rows: 4 }) },
      /hub takes 4 pictures at once.*\n.*picture FP32 \[4, 3, 32, 32\]/,
    ],
    ['no picture', { 'hub/model.onnx': scores({ input: [7] }) }, /hub has an input that does not take a picture/],
    ['five channels', { 'hub/model.onnx': scores({ input: [5, 8, 8] }) }, /with neither 3 nor 1 channels/],
    [
      'no scores',
      { 'hub/model.onnx': scores({ outputs: [{ name: 'map', shape: [3, 9, 9] }] }) },
      /has no output of scores.*\n.*Its outputs: map FP32 \[batch, 3, 9, 9\]/,
    ],
    [
      'another task',
      { 'hub/model.onnx': scores({ metadata: { task: 'segment', names: '{}' } }) },
      /has the task segment in its metadata, so give --task=detect/,
    ],
  ]
  test.each(cases)('%s', async (_, content, reported) => {
    const { code, out, err, models } = await classify(content, 'hub')
    expect([code, out]).toEqual([1, ''])
    expect(err).toMatch(reported)
    expect(err.length).toBeLessThan(1000)
    expect(existsSync(models)).toBe(false)
  })

  test('an output that fits no layout: the text has the shapes and the layouts', async () => {
    const { code, err } = await detect({ outputs: [{ name: 'o', shape: [7, 8, 8] }] })
    expect([code, err]).toEqual([1, expect.stringContaining('Its outputs: o FP32 [batch, 7, 8, 8].')])
    for (const layout of ['yolov5', 'yolov8', 'yolov10', 'detr, rtdetr', 'centernet, centerface', 'torchvision'])
      expect(err).toContain(`\n  ${layout}: `)
  })

  test('a task that does not exist, and a model of another kind', async () => {
    const { code, err } = await made({ 'net.onnx': scores() }, 'net.onnx', ['--task=segment'])
    expect([code, err]).toEqual([1, expect.stringContaining("--task is classify or detect; got 'segment'")])
    const python = await classify({ 'd/model.py': '' }, 'd')
    expect(python.err).toContain('--task=classify takes an ONNX file or a directory with one')
  })

  test('a model in the way, also that of a step, unless --force replaces it', async () => {
    const content = { 'net.onnx': scores(), 'out/net_labels/config.pbtxt': 'x' }
    const { code, err } = await classify(content, 'net.onnx')
    expect([code, err]).toEqual([1, expect.stringContaining('out/net_labels/config.pbtxt already exists')])
    const forced = await classify(content, 'net.onnx', '--force')
    expect([forced.code, forced.config('net_labels')]).toEqual([0, expect.stringContaining('backend: "labels"')])
  })
})

test('metadata that are too long, or are no dictionary, are no names', async () => {
  const outputs = [{ name: 'output0', shape: [6, 20] }]
  const named = (names: string) => ({ outputs, metadata: { task: 'detect', names } })
  const long = await detect(named(`{0: '${'x'.repeat(2 << 20)}'}`))
  expect([long.code, long.out]).toEqual([0, expect.stringContaining("the metadata 'names' are too long")])
  for (const names of ['names', "{0: 'a'", `{0: '${'\\'.repeat(5000)}'}`]) {
    const { code, out } = await detect(named(names))
    expect([code, out]).toEqual([0, expect.stringContaining('The files do not name the classes')])
  }
})

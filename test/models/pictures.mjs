/** Models that see pictures, with known answers: ensembles of `image`, a network and `boxes` or `labels`. */
import { crc32, deflateSync } from 'node:zlib'
import { fixed } from '../../scripts/models/graphs.mjs'
import { config, ensemble, writeModel } from '../../scripts/models/repository.mjs'

/** Side of the square that the networks see. */
const SIDE = 64
const SQUARE = `${SIDE}x${SIDE}`

const IDS = ['CLASSES', 'TYPE_INT32', [-1, -1]]
const SCORES = ['SCORES', 'TYPE_FP32', [-1, -1]]
const NAMES = ['LABELS', 'TYPE_STRING', [-1, -1]]

const pairs = (kind, map) =>
  Object.entries(map).map(([key, value]) => `${kind}_map { key: "${key}" value: "${value}" }`)

const step = (model, inputs, outputs) =>
  `{ model_name: "${model}" model_version: -1 ${[...pairs('input', inputs), ...pairs('output', outputs)].join(' ')} }`

/** A model of a backend of pictures, with one parameter. */
const write = (root, name, [backend, key, value], inputs, outputs, files = {}) => {
  const more = `parameters { key: "${key}" value { string_value: "${value}" } }\n`
  writeModel(root, name, { config: config(backend, 0, inputs, outputs, more), files })
}

const names = (tensors) => Object.fromEntries(tensors.map(([name]) => [name, name]))

/** Writes the ensemble NAME of the models NAME_image, NAME_network and NAME_found. */
function writeEnsemble(root, name, { first, network, last, inputs, outputs, labels }) {
  const image = ['IMAGE', 'TYPE_STRING', [-1, 1]]
  const tensors = [['image', 'TYPE_FP32', [-1, 3, SIDE, SIDE]], ...inputs.slice(1).map((row) => row.slice(0, 3))]
  const [output] = inputs
  const labelled = outputs.map((row) => (row[0] === 'LABELS' ? [...row, 'label_filename: "l.txt"'] : row))
  write(root, `${name}_image`, first, [image], tensors)
  writeModel(root, `${name}_network`, { versions: { 1: network } })
  write(root, `${name}_found`, last, inputs, labelled, { 'l.txt': labels.join('\n') })
  const steps = [
    step(`${name}_image`, names([image]), names(tensors)),
    step(`${name}_network`, { image: 'image' }, { output: output[0] }),
    step(`${name}_found`, names(inputs), names(outputs)),
  ]
  writeModel(root, name, { config: ensemble(0, [image], outputs, steps) })
}

/**
 * Writes the model NAME, which finds the same boxes in each picture. `found` has a row for each: left, top, right,
 * bottom in pixels of the picture's letterbox of 64 x 64, score, class.
 */
export function writeDetector(root, name, labels, found) {
  writeEnsemble(root, name, {
    first: ['image', 'letterbox', SQUARE],
    network: fixed([1, found.length, 6], found.flat(), [1, 3, SIDE, SIDE]),
    last: ['boxes', 'layout', 'yolov10'],
    inputs: [
      ['boxes', 'TYPE_FP32', [-1, -1, 6]],
      ['PLACEMENT', 'TYPE_FP32', [-1, 6], 'optional: true'],
    ],
    outputs: [['BOXES', 'TYPE_FP32', [-1, -1, 4]], SCORES, IDS, NAMES, ['COUNT', 'TYPE_INT32', [-1, 1]]],
    labels,
  })
}

/** Writes the model NAME, which gives the classes of each picture the same probabilities. */
export function writePictureClassifier(root, name, labels, probabilities) {
  writeEnsemble(root, name, {
    first: ['image', 'resize', SQUARE],
    network: fixed([1, labels.length], probabilities, [1, 3, SIDE, SIDE]),
    last: ['labels', 'activation', 'none'],
    inputs: [['LOGITS', 'TYPE_FP32', [-1, -1]]],
    outputs: [IDS, SCORES, NAMES],
    labels,
  })
}

/** A PNG with rectangles on grey: left, top, right, bottom in pixels, and red, green, blue. */
export function pngOf(width, height, rectangles) {
  const line = 1 + 3 * width
  const pixels = Buffer.alloc(height * line, 0xb4)
  // The first byte of a line names its filter.
  for (let y = 0; y < height; y += 1) pixels[y * line] = 0
  for (const [left, top, right, bottom, ...colour] of rectangles)
    for (let y = top; y < bottom; y += 1) for (let x = left; x < right; x += 1) pixels.set(colour, y * line + 1 + 3 * x)
  const number = (value) => Buffer.from(value.toString(16).padStart(8, '0'), 'hex')
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data])
    return Buffer.concat([number(data.length), body, number(crc32(body))])
  }
  const head = Buffer.concat([number(width), number(height), Buffer.of(8, 2, 0, 0, 0)])
  const parts = [chunk('IHDR', head), chunk('IDAT', deflateSync(pixels)), chunk('IEND', Buffer.alloc(0))]
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), ...parts])
}

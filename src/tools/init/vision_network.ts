/**
 * Reads the input and outputs of a vision network by their shapes: where its pixels and rows are, and the layout of its
 * boxes or scores. Pure.
 */

import { CommandError, DATATYPES, printable, type GraphValue, type OnnxFile } from '../../internal.js'

export type Task = 'classify' | 'detect'

/** A tensor of the graph as the configuration has it, without the rows. */
export interface NetworkTensor {
  name: string
  /** Such as `TYPE_FP32`. */
  datatype: string
  /** Dims of one row; -1 is any size. */
  row: number[]
  /** Dim of the rows, in a model that does not batch: of an output, as the graph has it. */
  lead: number
  /** Dims in the graph, if they are not a row behind the rows; without the rows in a model that batches. */
  inGraph?: (batches: boolean) => number[]
}

export interface Network {
  input: NetworkTensor
  /** In the order in which the backend `boxes` or `labels` takes them. */
  outputs: NetworkTensor[]
  isChannelsLast: boolean
  channels: 1 | 3
  /** -1 is any size. */
  width: number
  height: number
  /** The graph takes any number of rows. */
  hasRows: boolean
  /** Layout of the backend `boxes`; null for a classification network. */
  layout: string | null
  /** Number of classes; null if the shapes leave it open. */
  classes: number | null
  /** The graph ends with this activation function: Softmax or Sigmoid. */
  activation: string | null
  /** Assumptions, each with what to change if it is wrong: about the picture, and about the outputs. */
  guesses: { input: string[]; outputs: string[] }
}

/** Facts about the classes that other files have. */
export interface Hints {
  /** Number of names of classes. */
  names: number | null
  /** `model_type` of `config.json`. */
  modelType: string | null
}

type Dim = number | string

const PIXELS = ['FP32', 'FP16', 'UINT8']
const VALUES = ['FP32', 'INT32', 'INT64']
/** Boxes that networks with a selection of their own return at most. YOLOv5 has thousands, of which many are wrong. */
const SELECTED_MAX = 1000
/** Transformers whose scores are a softmax with "no object"; the scores of others are sigmoids. */
const SOFTMAX_TYPES = ['detr', 'yolos', 'table-transformer', 'maskformer']

const LAYOUTS = [
  'yolov5: one output [rows, boxes, 5 + classes]',
  'yolov8: one output [rows, 4 + classes, boxes]',
  'yolov10: one output [rows, boxes, 6], up to 1000 boxes',
  'detr, rtdetr: two outputs [rows, queries, classes] and [rows, queries, 4]',
  'centernet, centerface: three outputs [rows, classes, height, width], [rows, 2, height, width] twice',
  'torchvision: three outputs [boxes, 4], [boxes], [boxes]',
]

const shapeText = (shape: readonly Dim[] | null): string =>
  shape === null ? 'without a shape' : `[${shape.map((dim) => (dim === '' ? '?' : dim)).join(', ')}]`

/** @throws {CommandError} for a network that no configuration fits; the text lists its tensors */
export function networkOf(file: OnnxFile, task: Task, source: string, hints: Hints): Network {
  const guesses: Network['guesses'] = { input: [], outputs: [] }
  const inputs = file.inputs.filter(({ name }) => !file.initializers.has(name))
  const [picture, ...others] = inputs
  const listed = (values: readonly GraphValue[]): string =>
    values.map((value) => `${value.name} ${typeOf(value)} ${shapeText(value.shape)}`).join(', ') || 'none'
  const refuse = (what: string): never => {
    const found = `Its inputs: ${listed(inputs)}. Its outputs: ${listed(file.outputs)}.`
    throw new CommandError(`${source} ${what}.\n${printable(found)}`)
  }
  if (picture === undefined || others.length > 0)
    return refuse(
      `has ${inputs.length} inputs, and --task takes a network whose only input is a picture: export it with one, ` +
        'or write the ensemble by hand',
    )
  if (!PIXELS.includes(typeOf(picture)))
    refuse(`has an input of ${typeOf(picture)}, and pictures become ${PIXELS.join(', ')}: export it with FP32`)
  const shape = picture.shape ?? []
  if (![3, 4].includes(shape.length))
    return refuse('has an input that does not take a picture: its shape needs rows, channels, height and width')
  const hasRow = shape.length === 4
  const row = hasRow ? shape.slice(1) : shape
  const rows = hasRow ? (shape[0] ?? 1) : 1
  if (typeof rows === 'number' && rows !== 1)
    refuse(`takes ${rows} pictures at once, no more and no less: export it with one row, or with any number of rows`)
  const isChannels = (dim: Dim | undefined): dim is 1 | 3 => dim === 1 || dim === 3
  const [first, , last] = row
  const isChannelsLast = isChannels(last) && !isChannels(first)
  const found = isChannelsLast ? last : first
  if (typeof found === 'number' && !isChannels(found))
    refuse('has an input with neither 3 nor 1 channels, first or last')
  if (!isChannels(found))
    guesses.input.push(
      'The file has no number of channels: [rows, 3, height, width] is assumed. If the channels are last, set ' +
        '"layout" to nhwc and reorder the dims.',
    )
  const channels = isChannels(found) ? found : 3
  const sides = (isChannelsLast ? row.slice(0, 2) : row.slice(1)).map(sizeOf)
  const [height = -1, width = -1] = sides
  const dims = isChannelsLast ? [...sides, channels] : [channels, ...sides]
  const read = task === 'classify' ? scores : boxes
  const { outputs, layout, classes, isUnbatched } =
    read(file, { hasRow, hints, guesses: guesses.outputs }) ?? refuse(unfit(task))
  const bad = outputs.find((value) => !VALUES.includes(typeOf(value)))
  if (bad !== undefined)
    refuse(`has an output of ${typeOf(bad)}, and '${task}' reads ${VALUES.join(', ')}: export it with FP32`)
  return {
    input: {
      name: picture.name,
      datatype: `TYPE_${typeOf(picture)}`,
      row: dims,
      lead: 1,
      ...(hasRow ? {} : { inGraph: () => dims }),
    },
    outputs: outputs.map((value) => tensorOf(value, isUnbatched, task)),
    isChannelsLast,
    channels,
    width,
    height,
    hasRows: typeof rows === 'string' && !isUnbatched && outputs.every(({ shape: of }) => typeof of?.[0] === 'string'),
    layout,
    classes,
    activation: file.activations.get(outputs[0]?.name ?? '') ?? null,
    guesses,
  }
}

const typeOf = ({ type }: GraphValue): string =>
  [...DATATYPES.values()].find(({ onnx }) => onnx === type)?.name ?? `type ${type}`

const sizeOf = (dim: Dim): number => (typeof dim === 'number' && dim > 0 && Number.isSafeInteger(dim) ? dim : -1)

function unfit(task: Task): string {
  if (task === 'classify')
    return 'has no output of scores, [rows, classes]: a network that returns something else needs a step of its own'
  return (
    'has outputs that fit none of the layouts of detection networks:\n' +
    `${LAYOUTS.map((layout) => `  ${layout}`).join('\n')}\n` +
    'Export it without the steps that follow the network, or with shapes; or read its outputs in a model of your own'
  )
}

/** The tensor of the configuration; a graph's dims that differ from rows and a row are kept beside it. */
function tensorOf(value: GraphValue, isUnbatched: boolean, task: Task): NetworkTensor {
  const sizes = (value.shape ?? []).map(sizeOf)
  const tensor = { name: value.name, datatype: `TYPE_${typeOf(value)}` }
  if (isUnbatched) return { ...tensor, row: sizes, lead: 1, inGraph: () => sizes }
  const [lead = 1, ...row] = sizes
  // [rows, classes, 1, 1], as fully convolutional classifiers end.
  if (task === 'classify' && row.length > 1) {
    return { ...tensor, row: row.slice(0, 1), lead: 1, inGraph: (batches) => (batches ? row : sizes) }
  }
  return { ...tensor, row, lead }
}

interface Context {
  /** The input has rows. */
  hasRow: boolean
  hints: Hints
  guesses: string[]
}

interface Outputs {
  outputs: GraphValue[]
  layout: string | null
  classes: number | null
  /** The outputs belong to one picture, without rows. */
  isUnbatched: boolean
}

const known = (dim: Dim | undefined): number | null => (typeof dim === 'number' ? dim : null)

function scores({ outputs }: OnnxFile, { hints, guesses }: Context): Outputs | null {
  const fits = outputs.filter(({ shape }) => {
    if (shape === null || shape.length < 2) return false
    return shape.slice(2).every((dim) => dim === 1)
  })
  const [first, ...others] = fits
  if (first === undefined) return null
  const best =
    fits.find(({ name }) => /^(?:logits|scores|prob\w*)$/i.test(name)) ??
    fits.find(({ shape }) => hints.names !== null && shape?.[1] === hints.names) ??
    first
  if (others.length > 0)
    guesses.push(`The scores are taken from '${best.name}', one of ${fits.length} outputs that fit.`)
  return { outputs: [best], layout: null, classes: known(best.shape?.[1]), isUnbatched: false }
}

function boxes(file: OnnxFile, context: Context): Outputs | null {
  return final(file, context) ?? maps(file, context) ?? queries(file, context) ?? candidates(file, context)
}

const ofRank = (values: readonly GraphValue[], rank: number): GraphValue[] =>
  values.filter(({ shape }) => shape?.length === rank)

/** torchvision: boxes, labels and scores of one picture. */
function final({ outputs }: OnnxFile, { hasRow }: Context): Outputs | null {
  for (const rank of hasRow ? [2, 3] : [2]) {
    const places = ofRank(outputs, rank).filter(({ shape }) => shape?.at(-1) === 4)
    const [labels, ...more] = ofRank(outputs, rank - 1).filter((value) => typeOf(value).startsWith('INT'))
    const [scored, ...others] = ofRank(outputs, rank - 1).filter((value) => typeOf(value) === 'FP32')
    const [place] = places
    if (place === undefined || labels === undefined || scored === undefined) continue
    if (places.length > 1 || more.length > 0 || others.length > 0) continue
    return { outputs: [place, labels, scored], layout: 'torchvision', classes: null, isUnbatched: rank === 2 }
  }
  return null
}

/** CenterNet and CenterFace: a map for each class, sizes, and offsets. */
function maps({ outputs }: OnnxFile, { guesses }: Context): Outputs | null {
  const fields = ofRank(outputs, 4)
  const pairs = fields.filter(({ shape }) => shape?.[1] === 2)
  const named = (pattern: RegExp): GraphValue | undefined => pairs.find(({ name }) => pattern.test(name))
  const heat = fields.find(({ shape }) => shape?.[1] !== 2) ?? pairs[0]
  const rest = pairs.filter((value) => value !== heat)
  if (heat === undefined || rest.length !== 2 || fields.length !== outputs.length) return null
  const offset = named(/^(?:reg|off)/i) ?? rest[1]
  const size = rest.find((value) => value !== offset)
  if (offset === undefined || size === undefined) return null
  const classes = known(heat.shape?.[1])
  const layout = classes === 1 || fields.some(({ shape }) => shape?.[1] === 10) ? 'centerface' : 'centernet'
  guesses.push(
    `'${heat.name}' is taken as probabilities, '${size.name}' as sizes, '${offset.name}' as offsets, and ${layout} ` +
      'as the layout, by the number of channels. Else exchange them, or set "layout" to ' +
      `${layout === 'centernet' ? 'centerface' : 'centernet'}.`,
  )
  return { outputs: [heat, size, offset], layout, classes, isUnbatched: false }
}

/** Transformers: logits and boxes of the same number of queries. */
function queries({ outputs }: OnnxFile, { hints, guesses }: Context): Outputs | null {
  const three = ofRank(outputs, 3)
  const place =
    three.find(({ name, shape }) => /box/i.test(name) && shape?.[2] === 4) ??
    three.find(({ name, shape }) => !/logit/i.test(name) && shape?.[2] === 4)
  if (place === undefined) return null
  const others = three.filter((value) => value !== place && value.shape?.[1] === place.shape?.[1])
  const logits =
    others.find(({ name }) => /logit/i.test(name)) ??
    others.find(({ name }) => /class|label|score/i.test(name)) ??
    others[0]
  if (logits === undefined) return null
  const width = known(logits.shape?.[2])
  const count = known(logits.shape?.[1])
  const byType = hints.modelType === null ? null : SOFTMAX_TYPES.includes(hints.modelType)
  const byNames =
    hints.names === null || width === null
      ? null
      : width === hints.names + 1
        ? true
        : width === hints.names
          ? false
          : null
  const isDetr = byType ?? byNames ?? count !== 300
  if (byType === null && byNames === null)
    guesses.push(
      'Scores may be a softmax with "no object" (detr) or sigmoids (rtdetr): by the number of queries, ' +
        `${isDetr ? 'detr' : 'rtdetr'} is taken. Else set "layout" to ${isDetr ? 'rtdetr' : 'detr'}.`,
    )
  const classes = width === null ? null : isDetr ? width - 1 : width
  return { outputs: [logits, place], layout: isDetr ? 'detr' : 'rtdetr', classes, isUnbatched: false }
}

/** The YOLO family: one output of boxes. Masks and heads beside it have other ranks. */
function candidates({ outputs }: OnnxFile, { hints, guesses }: Context): Outputs | null {
  const [output, ...others] = ofRank(outputs, 3)
  if (output === undefined || others.length > 0) return null
  const [, a, b] = (output.shape ?? []).map(sizeOf)
  if (a === undefined || b === undefined || (a < 0 && b < 0)) return null
  const made = (layout: string, classes: number | null): Outputs => ({
    outputs: [output],
    layout,
    classes,
    isUnbatched: false,
  })
  const { names } = hints
  const found = `'${output.name}' ${shapeText(output.shape)} is taken as`
  if (b === 6 && (a < 0 || a <= SELECTED_MAX)) {
    if (names === null || names === 1)
      guesses.push(
        `${found} boxes that the network has selected (yolov10). If they are candidates of one class, set ` +
          '"layout" to yolov5.',
      )
    return made('yolov10', null)
  }
  // Without sizes, the side that the file has is that of values; with both, there are more boxes than values.
  const isValuesFirst = b < 0 || (a > 0 && a < b)
  const [values, boxCount] = isValuesFirst ? [a, b] : [b, a]
  const head = isValuesFirst ? 4 : 5
  const classes = names ?? values - head
  if (classes < 1 || values < head + classes) return null
  if (names === null)
    guesses.push(
      `${found} ${isValuesFirst ? 'yolov8' : 'yolov5'} with ${classes} classes` +
        `${boxCount < 0 ? '' : ', because it has more boxes than values'}. If the last values are masks or key ` +
        'points, set "classes".',
    )
  return made(isValuesFirst ? 'yolov8' : 'yolov5', classes)
}

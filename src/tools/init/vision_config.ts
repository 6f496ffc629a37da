/** Configurations of an ensemble that takes pictures: its own, and those of its steps. Pure. */

import { quoted, wrapped } from './config_text.js'
import type { ModelFile } from './place.js'
import type { Network, NetworkTensor, Task } from './vision_network.js'
import type { Setting } from './vision_steps.js'

export interface VisionPlan {
  task: Task
  name: string
  network: Network
  /** Parameters of the backend `image`. */
  settings: Setting[]
  /** Names of classes by id. */
  names: string[] | null
  /** The function from the output of a classification network to scores. */
  activation: { value: string; why: string; isGuess: boolean } | null
  /** Assumptions by the step whose configuration has them, each with what to change if it is wrong. */
  guesses: { image: string[]; network: string[]; reader: string[] }
  /** Steps that the files ask for and the backend does not have. */
  missing: string[]
}

/** A tensor of a configuration; dims are those of one row. */
interface Declared {
  name: string
  datatype: string
  row: readonly number[]
  /** Dim of the rows in a model that does not batch: 1 by default, null for none. */
  lead?: number | null
  more?: string
}

/** Outputs of the last step, which are those of the ensemble. */
const ANSWERS: Readonly<Record<Task, readonly Declared[]>> = {
  classify: [
    { name: 'CLASSES', datatype: 'TYPE_INT32', row: [-1] },
    { name: 'SCORES', datatype: 'TYPE_FP32', row: [-1] },
    { name: 'LABELS', datatype: 'TYPE_STRING', row: [-1] },
  ],
  detect: [
    { name: 'BOXES', datatype: 'TYPE_FP32', row: [-1, 4] },
    { name: 'SCORES', datatype: 'TYPE_FP32', row: [-1] },
    { name: 'CLASSES', datatype: 'TYPE_INT32', row: [-1] },
    { name: 'LABELS', datatype: 'TYPE_STRING', row: [-1] },
    { name: 'COUNT', datatype: 'TYPE_INT32', row: [1] },
  ],
}

const PLACEMENT: Declared = { name: 'PLACEMENT', datatype: 'TYPE_FP32', row: [6] }
const IMAGE: Declared = { name: 'IMAGE', datatype: 'TYPE_STRING', row: [1], lead: null }
const LABELS_FILE = 'labels.txt'

/** Names of inputs of the last step. */
const rolesOf = ({ layout, outputs }: Network): string[] => {
  if (layout === null) return ['LOGITS']
  if (outputs.length === 1) return ['DETECTIONS']
  if (layout === 'torchvision') return ['BOXES', 'CLASSES', 'SCORES'].map((role) => `NETWORK_${role}`)
  return outputs.length === 2 ? ['LOGITS', 'RELATIVE_BOXES'] : ['HEATMAP', 'SCALE', 'OFFSET']
}

/** Places of the files that `visionConfigs` will write. */
export const emptyConfigs = (name: string, task: Task): { model: string; file: ModelFile }[] =>
  modelsOf(name, task).map((model) => ({ model, file: { to: 'config.pbtxt', text: '' } }))

/** Names of the models: the ensemble, and its steps in their order. */
const modelsOf = (name: string, task: Task): readonly [string, string, string, string] => [
  name,
  `${name}_image`,
  `${name}_network`,
  `${name}_${task === 'classify' ? 'labels' : 'boxes'}`,
]

/** Files of all models, the ensemble first. `rows` is `max_batch_size`. */
export function visionConfigs(plan: VisionPlan, rows: number): { model: string; file: ModelFile }[] {
  const { name, task, names } = plan
  const [own, first, second, last] = modelsOf(name, task)
  const configs: [string, string[]][] = [
    [own, ensemble(plan, rows, last)],
    [first, image(plan, rows)],
    [second, network(plan, rows)],
    [last, task === 'classify' ? labels(plan, rows) : boxes(plan, rows)],
  ]
  return [
    ...configs.flatMap(([model, lines]) => [
      { model, file: { to: 'config.pbtxt', text: `${lines.join('\n')}\n` } },
      // A model needs a directory of a version, and Git keeps no empty ones.
      ...(model === second ? [] : [{ model, file: { to: '1/.gitkeep', text: '' } }]),
    ]),
    ...(names === null ? [] : [{ model: last, file: { to: LABELS_FILE, text: `${names.join('\n')}\n` } }]),
  ]
}

/** The beginning of a configuration; each guess is a comment of its own. */
const head = (name: string, backend: string, rows: number, comments: readonly string[]): string[] => [
  ...wrapped('Written by `nereid init`.'),
  ...comments.flatMap((comment) => wrapped(comment)),
  `name: ${quoted(name)}`,
  backend,
  `max_batch_size: ${rows}`,
]

function tensors(field: 'input' | 'output', list: readonly Declared[], rows: number): string[] {
  const text = ({ name, datatype, row, lead = 1, more = '' }: Declared): string => {
    const dims = rows > 0 || lead === null ? row : [lead, ...row]
    return `  { name: ${quoted(name)} data_type: ${datatype} dims: [ ${dims.join(', ')} ]${more} }`
  }
  return [`${field} [`, list.map(text).join(',\n'), ']']
}

const parameter = (key: string, value: string): string =>
  `parameters { key: ${quoted(key)} value { string_value: ${quoted(value)} } }`

function ensemble(
  { name, task, network: { input, outputs, ...rest } }: VisionPlan,
  rows: number,
  last: string,
): string[] {
  const roles = rolesOf({ input, outputs, ...rest })
  const pair = (kind: 'input' | 'output', key: string, value: string): string =>
    `      ${kind}_map { key: ${quoted(key)} value: ${quoted(value)} }`
  const step = (model: string, maps: readonly string[]): string =>
    ['    {', `      model_name: ${quoted(model)}`, '      model_version: -1', ...maps, '    }'].join('\n')
  const answers = ANSWERS[task]
  // Names of tensors between steps, which differ from those of the ensemble.
  const between = roles.map((role) => `network_${role}`)
  const isDetect = task === 'detect'
  const steps = [
    step(`${name}_image`, [
      pair('input', IMAGE.name, IMAGE.name),
      pair('output', 'TENSOR', 'pixels'),
      ...(isDetect ? [pair('output', PLACEMENT.name, 'placement')] : []),
    ]),
    step(`${name}_network`, [
      pair('input', input.name, 'pixels'),
      ...outputs.map((output, i) => pair('output', output.name, between[i] ?? '')),
    ]),
    step(last, [
      ...roles.map((role, i) => pair('input', role, between[i] ?? '')),
      ...(isDetect ? [pair('input', PLACEMENT.name, 'placement')] : []),
      ...answers.map((answer) => pair('output', answer.name, answer.name)),
    ]),
  ]
  return [
    ...head(name, 'platform: "ensemble"', rows, [
      `A picture as a file in, ${isDetect ? 'boxes in its pixels' : 'the best classes'} out: ` +
        `curl -F image=@cat.jpg localhost:8000/v2/models/${name}/infer`,
    ]),
    ...tensors('input', [IMAGE], rows),
    ...tensors('output', answers, rows),
    'ensemble_scheduling {',
    '  step [',
    steps.join(',\n'),
    '  ]',
    '}',
  ]
}

/** Width and height of the tensor, if the steps always make the same. */
function sizeOf(settings: readonly Setting[]): readonly [width: number, height: number] {
  const ofKey = (key: string): string => settings.find((setting) => setting.key === key)?.value ?? ''
  const last = ofKey('center_crop') || ofKey('letterbox') || ofKey('resize')
  const [, width = -1, height = -1] = (/^(\d+)x(\d+)$/.exec(last) ?? []).map(Number)
  return [width, height]
}

function image({ name, task, network: of, settings, guesses, missing }: VisionPlan, rows: number): string[] {
  const [width, height] = sizeOf(settings)
  const row = of.isChannelsLast ? [height, width, of.channels] : [of.channels, height, width]
  const tensor = { name: 'TENSOR', datatype: of.input.datatype, row }
  return [
    ...head(`${name}_image`, 'backend: "image"', rows, [
      'Files of pictures in, the tensor of the network out.',
      ...guesses.image.map((guess) => `GUESS: ${guess}`),
      ...missing.map((what) => `NO EQUIVALENT: ${what}.`),
    ]),
    ...tensors('input', [IMAGE], rows),
    ...tensors('output', task === 'detect' ? [tensor, PLACEMENT] : [tensor], rows),
    '',
    ...settings.flatMap(({ key, value, why }) => [...(why === undefined ? [] : wrapped(why)), parameter(key, value)]),
  ]
}

function network({ name, network: { input, outputs }, guesses }: VisionPlan, rows: number): string[] {
  const declared = ({ name: tensor, datatype, row, lead, inGraph }: NetworkTensor): Declared => ({
    name: tensor,
    datatype,
    row,
    lead,
    ...(inGraph === undefined ? {} : { more: ` reshape: { shape: [ ${inGraph(rows > 0).join(', ')} ] }` }),
  })
  return [
    ...head(`${name}_network`, 'backend: "onnxruntime"', rows, [
      'The network as its file has it. Outputs that no step reads are left out.',
      ...guesses.network.map((guess) => `GUESS: ${guess}`),
    ]),
    ...tensors('input', [declared(input)], rows),
    ...tensors('output', outputs.map(declared), rows),
    ...(rows > 0
      ? ['', '# Pictures that wait at the same time run together, up to max_batch_size.', 'dynamic_batching { }']
      : []),
    '',
    '# To run as many pictures (or batches) at the same time as there are instances:',
    '# instance_group [ { count: 2 kind: KIND_CPU } ]',
  ]
}

/** The last step: its inputs are the outputs of the network. */
function reader(plan: VisionPlan, rows: number, backend: string, comment: string): string[] {
  const { name, task, network: of, names, guesses } = plan
  const given = rolesOf(of).map((role, i) => ({
    name: role,
    datatype: of.outputs[i]?.datatype ?? '',
    row: of.outputs[i]?.row ?? [],
    lead: of.outputs[i]?.lead ?? 1,
  }))
  const labelled = ANSWERS[task].map((answer) =>
    answer.name === 'LABELS' && names !== null ? { ...answer, more: ` label_filename: "${LABELS_FILE}"` } : answer,
  )
  return [
    ...head(`${name}_${backend}`, `backend: "${backend}"`, rows, [
      comment,
      ...guesses.reader.map((guess) => `GUESS: ${guess}`),
    ]),
    ...tensors('input', task === 'detect' ? [...given, PLACEMENT] : given, rows),
    ...tensors('output', labelled, rows),
    '',
  ]
}

function labels(plan: VisionPlan, rows: number): string[] {
  const { value = 'softmax', why = '' } = plan.activation ?? {}
  return [
    ...reader(plan, rows, 'labels', 'Scores of the network in, the best classes out.'),
    ...wrapped(`${why} Possible: none, softmax, sigmoid.`),
    parameter('activation', value),
    '# Number of classes in a response. A request may set it: -F top_k=1.',
    parameter('top_k', '5'),
  ]
}

function boxes(plan: VisionPlan, rows: number): string[] {
  const { layout, classes } = plan.network
  const isCounted = classes !== null && ['yolov5', 'yolov8'].includes(layout ?? '')
  return [
    ...reader(plan, rows, 'boxes', 'Outputs of the network in, boxes in pixels of the picture out.'),
    parameter('layout', layout ?? ''),
    ...(isCounted
      ? ['# Values after the classes, such as masks, are skipped.', parameter('classes', String(classes))]
      : []),
    '',
    '# Values other than the usual ones of the layout. A request may set them: -F score_threshold=0.5.',
    `# ${parameter('score_threshold', '0.5')}`,
    `# ${parameter('iou_threshold', '0.5')}`,
    `# ${parameter('boxes_max', '100')}`,
  ]
}

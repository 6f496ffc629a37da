/** The `config.pbtxt` that `nereid init` writes: required fields, and suggestions as comments. */

import type { ModelIoConfig, TensorConfig } from './model_io.js'
import { statesOf, type StatePair } from './state.js'
import type { NamedTensor, TorchScript } from './torchscript.js'
import type { TreesFile } from './trees.js'

const COLUMNS = 120

/** The configuration of an ONNX model. `why` it batches or does not is null if the user decided. */
export function onnxConfigText(config: ModelIoConfig, why: string | null): string {
  const states = statesOf(config.input, config.output)
  const isState = (tensor: TensorConfig): boolean => states.some((pair) => Object.values(pair).includes(tensor))
  const lines = [
    '# Written by `nereid init`. Inputs and outputs are those of the model file; a dim of -1 is any size.',
    `name: ${quoted(config.name)}`,
    `backend: ${quoted(config.backend)}`,
    `max_batch_size: ${config.max_batch_size}`,
    ...tensors(
      'input',
      config.input.filter((one) => !isState(one)),
    ),
    ...tensors(
      'output',
      config.output.filter((one) => !isState(one)),
    ),
  ]
  if (states.length > 0) {
    lines.push(...sequenceText(states))
  } else if (config.max_batch_size > 0) {
    lines.push(
      '',
      '# Requests that wait at the same time run together, up to max_batch_size rows.',
      ...(why === null ? [] : wrapped(`Tried: ${why}.`)),
      'dynamic_batching { }',
      '# To wait a moment for more of them:',
      '# dynamic_batching { max_queue_delay_microseconds: 100 }',
    )
  } else if (why !== null) {
    lines.push('', ...wrapped(`Requests do not run together in batches: ${why}.`))
    if ([...config.input, ...config.output].every(({ dims }) => dims[0] === -1))
      lines.push('# `nereid init --batch --force` writes this file with batches nevertheless.')
  }
  lines.push(
    '',
    '# To run as many requests (or batches) at the same time as there are instances:',
    '# instance_group [ { count: 2 kind: KIND_CPU } ]',
    '',
  )
  return lines.join('\n')
}

/** A sentence as comments of at most `COLUMNS` characters. */
export function wrapped(text: string): string[] {
  const lines = ['#']
  for (const word of text.replace(/\s+/g, ' ').split(' ')) {
    if ((lines.at(-1) ?? '').length + word.length < COLUMNS) lines.push(`${lines.pop() ?? ''} ${word}`)
    else lines.push(`# ${word}`)
  }
  return lines
}

/** The server keeps the state between the requests of a sequence; the first one finds zeros. */
function sequenceText(states: readonly StatePair[]): string[] {
  return [
    '',
    '# These outputs are, by their names, inputs of the next request. The server keeps them for each sequence:',
    '# its requests have a sequence_id, the first one sequence_start, the last one sequence_end. A dim of -1 ' +
      'starts as 1.',
    'sequence_batching {',
    '  state [',
    states
      .map(({ input: { name, data_type, dims }, output }) => {
        const first = dims.map((dim) => (dim === -1 ? 1 : dim)).join(', ')
        return (
          `    {\n      input_name: ${quoted(name)} output_name: ${quoted(output.name)} data_type: ${data_type} ` +
          `dims: [ ${dims.join(', ')} ]\n` +
          `      initial_state { name: "zeros" data_type: ${data_type} dims: [ ${first} ] zero_data: true }\n    }`
        )
      })
      .join(',\n'),
    '  ]',
    '}',
  ]
}

/** The configuration of a Python model; without tensors its code declares them. */
export function pythonConfigText(name: string, io: Pick<ModelIoConfig, 'input' | 'output'> | null): string {
  const declared =
    io === null
      ? [
          '# Inputs and outputs, unless auto_complete_config in model.py sets them:',
          '# input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]',
          '# output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]',
        ]
      : ['max_batch_size: 0', ...tensors('input', io.input), ...tensors('output', io.output)]
  return [
    '# Written by `nereid init`. A dim of -1 is any size.',
    `name: ${quoted(name)}`,
    'backend: "python"',
    ...declared,
    '',
    '# Requests come together in one call of execute when the first dimension is the batch:',
    '# max_batch_size: 8 (and dims without that dimension)',
    '# dynamic_batching { }',
    '',
    '# To run in two processes at the same time:',
    '# instance_group [ { count: 2 kind: KIND_CPU } ]',
    '',
    '# Parameters that the code reads from args["model_config"]:',
    '# parameters { key: "threshold" value { string_value: "0.5" } }',
    '',
  ].join('\n')
}

/** The configuration of a PyTorch model, whose file has no shapes and datatypes: placeholders to fill in. */
export function pytorchConfigText(name: string, script: TorchScript | null): string {
  const { inputs = null, outputs = null } = script ?? {}
  const lists = (isKnown: boolean): string =>
    [['inputs', inputs] as const, ['outputs', outputs] as const]
      .filter(([, list]) => (list !== null) === isKnown)
      .map(([what]) => what)
      .join(' and ')
  const [known, unknown] = [lists(true), lists(false)]
  const hints = [
    ...(known === '' ? [] : [`# The ${known} are those of the file, which has no datatypes and dims: fill them in.`]),
    ...(unknown === ''
      ? []
      : [
          `# The file does not have the names of its ${unknown}: fill them in.`,
          '# Names are arguments of `forward`, or end in __ and their index; an output ends in the index of the ' +
            'value that is returned.',
        ]),
    '# TYPE_FP32 and dims: [ -1 ] are placeholders. A dim of -1 is any size.',
  ]
  return [
    '# Written by `nereid init`.',
    ...hints,
    `name: ${quoted(name)}`,
    'backend: "pytorch"',
    'max_batch_size: 0',
    ...tensors('input', placeholders(inputs ?? [['INPUT__0', false]])),
    ...tensors('output', placeholders(outputs ?? [['OUTPUT__0', false]])),
    ...BATCHING,
    '',
    '# Threads of an operator, for each instance:',
    '# parameters { key: "INTRA_OP_THREAD_COUNT" value { string_value: "4" } }',
    '',
  ].join('\n')
}

/** The configuration of a TensorRT plan, of which only TensorRT reads the inputs and outputs: placeholders. */
export function planConfigText(name: string): string {
  return [
    '# Written by `nereid init`. Inputs and outputs are not read from a TensorRT plan: fill them in.',
    '# `polygraphy inspect model PLAN`, with the TensorRT that made it, prints names, datatypes and dims.',
    '# A dim of -1 is any size.',
    `name: ${quoted(name)}`,
    'backend: "tensorrt"',
    'max_batch_size: 0',
    ...tensors('input', placeholders([['INPUT', false]])),
    ...tensors('output', placeholders([['OUTPUT', false]])),
    ...BATCHING,
    '',
  ].join('\n')
}

/** The configuration of an engine of vLLM, whose inputs and outputs the backend declares. */
export function vllmConfigText(name: string): string {
  return [
    '# Written by `nereid init`. The engine has its arguments in model.json, and forms its own batches.',
    `name: ${quoted(name)}`,
    'backend: "vllm"',
    '# vLLM chooses the devices.',
    'instance_group [ { count: 1 kind: KIND_MODEL } ]',
    '',
  ].join('\n')
}

const placeholders = (named: readonly NamedTensor[]): TensorConfig[] =>
  named.map(([name, isStrings]) => ({ name, data_type: isStrings ? 'TYPE_STRING' : 'TYPE_FP32', dims: [-1] }))

const BATCHING = [
  '',
  '# When the first dimension of all of them is the batch, leave it out of dims, and let requests run together:',
  '# max_batch_size: 8',
  '# dynamic_batching { }',
]

/** The configuration of a model that could not be loaded; its file declares the rest. */
export function unreadConfigText(name: string, backend: string): string {
  return [
    '# Written by `nereid init`. Inputs and outputs are read from the file when the model loads.',
    `name: ${quoted(name)}`,
    `backend: ${quoted(backend)}`,
    '',
  ].join('\n')
}

/** The configuration of trees. The server fills in input and output, since the output depends on the parameters. */
export function treesConfigText(name: string, { type, isClassifier }: TreesFile, batch: number): string {
  const more = [
    `max_batch_size: ${batch}`,
    `parameters { key: "model_type" value { string_value: ${quoted(type)} } }`,
    '',
    '# true: the response is a class. false: the prediction of the framework, for a classifier its probabilities.',
    `parameters { key: "is_classifier" value { string_value: "${isClassifier}" } }`,
    ...(isClassifier
      ? [
          '# To return the probability of each class instead of a class:',
          '# parameters { key: "predict_proba" value { string_value: "true" } }',
        ]
      : []),
    '',
    '# Requests that wait at the same time run together, up to max_batch_size rows.',
    'dynamic_batching { }',
    '',
  ]
  return unreadConfigText(name, 'fil') + more.join('\n')
}

function tensors(field: 'input' | 'output', list: readonly TensorConfig[]): string[] {
  if (list.length === 0) return []
  return [`${field} [`, list.map((tensor) => `  { ${describe(tensor)} }`).join(',\n'), ']']
}

function describe({ name, data_type, dims, reshape }: TensorConfig): string {
  const shape = reshape === undefined ? '' : ` reshape: { shape: [ ${reshape.shape.join(', ')} ] }`
  return `name: ${quoted(name)} data_type: ${data_type} dims: [ ${dims.join(', ')} ]${shape}`
}

/** A string of the text format: UTF-8, with quotes and line ends escaped. */
export function quoted(text: string): string {
  const escaped = text
    .replace(/[\\"]/g, '\\$&')
    // oxlint-disable-next-line no-control-regex
    .replace(/[\u0000-\u001f\u007f]/g, (c) => `\\${c.charCodeAt(0).toString(8).padStart(3, '0')}`)
  return `"${escaped}"`
}

/** What is asked of a server: a model, its inputs, and what must come back. */
import { SEQUENCE } from './models/graphs.mjs'
import { tensor, text } from './messages.mjs'

const plus = tensor('OUTPUT0', 'INT32', [1, 16], (i) => i + 1).data
const minus = tensor('OUTPUT1', 'INT32', [1, 16], (i) => i - 1).data

/** Sum and difference of 16 integers: the model of Triton's own examples. */
export const simple = {
  name: 'simple',
  model: 'simple',
  inputs: [tensor('INPUT0', 'INT32', [1, 16], (i) => i), tensor('INPUT1', 'INT32', [1, 16], () => 1)],
  outputs: ['OUTPUT0', 'OUTPUT1'],
  expected: [plus, minus],
}

/** Floats that come back as they are. */
export function identity(bytes, model = 'identity') {
  const input = tensor('INPUT0', 'FP32', [bytes / 4])
  const size = bytes >= 1 << 20 ? `${bytes / (1 << 20)} MiB` : bytes >= 1024 ? `${bytes / 1024} KiB` : `${bytes} B`
  return { name: `identity ${size}`, model, bytes, inputs: [input], outputs: ['OUTPUT0'], expected: [input.data] }
}

export function strings(bytes) {
  const input = text('INPUT0', bytes)
  return { name: `bytes ${bytes} B`, model: 'identity_bytes', bytes, inputs: [input], outputs: ['OUTPUT0'], expected: [input.data] }
}

/**
 * Networks. What they must return is what they returned first: batches of other sizes round differently, so later answers are
 * compared with a tolerance, and not byte by byte under load.
 */
const network = (model, inputs, outputBytes) => ({ name: model, model, inputs, outputs: ['OUTPUT0'], outputBytes, tolerance: 2e-3 })

export const mlp = (model = 'mlp') => network(model, [tensor('INPUT0', 'FP32', [1, 64])], 64)
export const resnet50 = (model = 'resnet50') => network(model, [tensor('INPUT0', 'FP32', [1, 3, 224, 224])], 4000)
const tokens = () => [tensor('INPUT0', 'INT64', [1, SEQUENCE]), tensor('INPUT1', 'INT64', [1, SEQUENCE], () => 1)]
export const minilm = (model = 'minilm') => network(model, tokens(), 384 * 4)
export const bert = (model = 'bert_base') => network(model, tokens(), 768 * 4)

/** Inputs as the bare ONNX Runtime loop wants them named. */
export const ortInputs = (workload) => workload.inputs.map((t) => `${t.name}:${t.datatype}:${t.shape.join('x')}`).join(',')

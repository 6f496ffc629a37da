/**
 * What is asked of a server: a model, its inputs, and what must come back.
 *
 * `vary(i)` is the i-th request of varied traffic: another id, other data, for small models other numbers of rows.
 */
import { SEQUENCE } from './models/graphs.mjs'
import { noise } from '../scripts/models/onnx.mjs'
import { ID, randomTensor, tensor, text } from './messages.mjs'

const plus = tensor('OUTPUT0', 'INT32', [1, 16], (i) => i + 1).data
const minus = tensor('OUTPUT1', 'INT32', [1, 16], (i) => i - 1).data

const ROWS = [1, 1, 1, 2, 4]

function varySimple(i) {
  const shape = [ROWS[i % ROWS.length], 16]
  const [a, b] = [randomTensor('INPUT0', 'INT32', shape, 2 * i), randomTensor('INPUT1', 'INT32', shape, 2 * i + 1)]
  const [x, y] = [a, b].map((t) => new Int32Array(t.data.buffer, t.data.byteOffset, t.data.length / 4))
  const each = (f) => Buffer.from(Int32Array.from(x, (v, k) => f(v, y[k])).buffer)
  return { ...simple, id: ID, inputs: [a, b], expected: [each((v, w) => v + w), each((v, w) => v - w)] }
}

/** Sum and difference of 16 integers: the model of Triton's own examples. */
export const simple = {
  name: 'simple',
  model: 'simple',
  inputs: [tensor('INPUT0', 'INT32', [1, 16], (i) => i), tensor('INPUT1', 'INT32', [1, 16], () => 1)],
  outputs: ['OUTPUT0', 'OUTPUT1'],
  expected: [plus, minus],
  vary: varySimple,
}

/** Sequences that are alive while `sequenced` is measured. */
export const SEQUENCES = 64

/**
 * One row of `simple` for a sequence. Varied requests are those in the middle of `SEQUENCES` sequences, in turn;
 * `begin(i)` begins the i-th, `end(i)` ends it. The repeated one is a sequence of its own, first and last request at
 * once.
 */
export function sequenced(model) {
  const one = (i, parameters) => {
    const [a, b] = [0, 1].map((k) => randomTensor(`INPUT${k}`, 'INT32', [1, 16], 2 * i + k))
    const [x, y] = [a, b].map((t) => new Int32Array(t.data.buffer, t.data.byteOffset, t.data.length / 4))
    const each = (f) => Buffer.from(Int32Array.from(x, (v, k) => f(v, y[k])).buffer)
    return {
      ...simple,
      name: model,
      model,
      id: ID,
      inputs: [a, b],
      expected: [each((v, w) => v + w), each((v, w) => v - w)],
      parameters,
    }
  }
  const sequence = (i) => 1 + (i % SEQUENCES)
  return {
    ...simple,
    name: model,
    model,
    parameters: { sequence_id: SEQUENCES + 1, sequence_start: true, sequence_end: true },
    vary: (i) => one(i, { sequence_id: sequence(i) }),
    begin: (i) => one(i, { sequence_id: sequence(i), sequence_start: true }),
    end: (i) => one(i, { sequence_id: sequence(i), sequence_end: true }),
  }
}

/** The same rows to a model without sequences. */
export function stateless(model) {
  const { vary } = sequenced(model)
  return { ...simple, name: model, model, vary: (i) => ({ ...vary(i), parameters: undefined }) }
}

/** Floats that come back as they are. */
export function identity(bytes, model = 'identity') {
  const input = tensor('INPUT0', 'FP32', [bytes / 4])
  const size = bytes >= 1 << 20 ? `${bytes / (1 << 20)} MiB` : bytes >= 1024 ? `${bytes / 1024} KiB` : `${bytes} B`
  const vary = (i) => {
    // `dataFirst` matters to JSON only.
    const other = { ...randomTensor('INPUT0', 'FP32', [bytes / 4], i), dataFirst: i % 2 === 1 }
    return { ...workload, id: ID, inputs: [other], expected: [other.data] }
  }
  const workload = {
    name: `identity ${size}`,
    model,
    bytes,
    inputs: [input],
    outputs: ['OUTPUT0'],
    expected: [input.data],
    vary,
  }
  return workload
}

/** The same by another name, of any number of bytes. */
export function named(name, workload) {
  const one = { ...workload, name, vary: (i) => ({ ...workload.vary(i), name }) }
  return one
}

/** Requests with many responses; the load generator makes them, each with values of its own. */
const repeated = { model: 'repeat', vary: null }
export const paced = { ...repeated, name: 'a response every 5 ms', delayMs: 5 }
export const burst = { ...repeated, name: 'bursts of 1000 responses', delayMs: 0, responses: 1000 }

/** The same of a Python model, with fewer streams: each waits in a thread of its interpreter. */
export const pythonPaced = { ...paced, model: 'python_repeat' }
export const pythonBurst = { ...burst, model: 'python_repeat' }

/** Request of a health probe. */
export const health = { name: 'health', model: null, path: '/v2/health/ready' }

/** `count` strings of this many bytes each. */
export function strings(bytes, count = 1) {
  const input = text('INPUT0', bytes, count)
  const name = count === 1 ? `bytes ${bytes} B` : `${count} strings of ${bytes} B`
  const vary = (i) => {
    const other = text('INPUT0', bytes, count, String.fromCharCode(97 + (i % 26)))
    return { ...workload, id: ID, inputs: [other], expected: [other.data] }
  }
  const workload = {
    name,
    model: 'identity_bytes',
    bytes: input.data.length,
    inputs: [input],
    outputs: ['OUTPUT0'],
    expected: [input.data],
    vary,
  }
  return workload
}

/**
 * Networks. What they must return is what they returned first: batches of other sizes round differently, so later
 * answers are compared with a tolerance, and not byte by byte under load.
 */
function network(model, inputs, outputBytes) {
  const other = (t, i) => (t.fixed ? t : randomTensor(t.name, t.datatype, t.shape, i))
  const vary = (i) => ({ ...workload, id: ID, inputs: inputs.map((t) => other(t, i)), expected: undefined })
  const workload = { name: model, model, inputs, outputs: ['OUTPUT0'], outputBytes, tolerance: 2e-3, vary }
  return workload
}

export const mlp = (model = 'mlp') => network(model, [tensor('INPUT0', 'FP32', [1, 64])], 64)
/** Layers of PyTorch and OpenVINO (bench/frameworks). */
export const deep = (model) => network(model, [tensor('INPUT0', 'FP32', [32, 1024])], 32 * 1024 * 4)
export const resnet50 = (model = 'resnet50') => network(model, [tensor('INPUT0', 'FP32', [1, 3, 224, 224])], 4000)
const tokens = () => [
  tensor('INPUT0', 'INT64', [1, SEQUENCE]),
  { ...tensor('INPUT1', 'INT64', [1, SEQUENCE], () => 1), fixed: true },
]
export const minilm = (model = 'minilm') => network(model, tokens(), 384 * 4)
export const bert = (model = 'bert_base') => network(model, tokens(), 768 * 4)

/** A network of a millisecond, or three of them one behind the other. */
export const milliseconds = (model) => network(model, [tensor('INPUT0', 'FP32', [32, 512])], 32 * 512 * 4)

/** Lengths of texts in tokens: lognormal, from 8 to the number that names them. */
export const LENGTHS = { 128: { median: 30, sigma: 0.7 }, 512: { median: 64, sigma: 0.9 } }

/** Tokens of the i-th text. */
export function textLength(i, most) {
  const { median, sigma } = LENGTHS[most]
  for (let attempt = 0; ; attempt += 1) {
    const next = noise(Math.imul(1000 * i + attempt + 1, 0x9e3779b1))
    const uniform = () => (next() + 1) / 2
    const normal = Array.from({ length: 12 }, uniform).reduce((a, b) => a + b) - 6
    const length = Math.round(Math.exp(Math.log(median) + sigma * normal))
    if (length >= 8 && length <= most) return length
  }
}

/** The i-th text, of words that are one token each; two tokens begin and end it. */
export function sentence(words, i, most) {
  const next = noise(i + 1)
  const word = () => words[Math.floor(((next() + 1) / 2) * words.length) % words.length]
  return Array.from({ length: textLength(i, most) - 2 }, word).join(' ')
}

/** Inputs as the bare ONNX Runtime loop wants them named. */
export const ortInputs = (workload) =>
  workload.inputs.map((t) => `${t.name}:${t.datatype}:${t.shape.join('x')}`).join(',')

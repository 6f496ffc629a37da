/**
 * The networks that the bench serves: real topologies and sizes, weights from a seeded generator. They cost what the
 * trained ones cost and predict nothing.
 */
import { TYPE, initializer, model, node, noise, raw, value } from '../../scripts/models/onnx.mjs'

/** Collects nodes and weights while a graph is written down from input to output. */
class Graph {
  nodes = []
  initializers = []
  #random
  #names = 0

  constructor(seed) {
    this.#random = noise(seed)
  }

  /** Uniform weights with the variance that keeps activations of one size from layer to layer. */
  weights(dims, fanIn, gain = 1) {
    const data = new Float32Array(dims.reduce((a, b) => a * b, 1))
    const scale = gain * Math.sqrt(3 / fanIn)
    const random = this.#random
    for (let i = 0; i < data.length; i += 1) data[i] = random() * scale
    return this.constant(TYPE.FP32, dims, data)
  }

  constant(type, dims, data) {
    const name = `w${(this.#names += 1)}`
    this.initializers.push(initializer(name, type, dims, raw(data)))
    return name
  }

  float(number) {
    return this.constant(TYPE.FP32, [], Float32Array.of(number))
  }

  longs(...numbers) {
    return this.constant(TYPE.INT64, [numbers.length], BigInt64Array.from(numbers, BigInt))
  }

  /** Adds a node and returns the name of its only output. */
  add(op, inputs, attributes = {}, output = `v${(this.#names += 1)}`) {
    this.nodes.push(node(op, inputs, [output], attributes))
    return output
  }

  linear(x, from, to) {
    return this.add('Add', [this.add('MatMul', [x, this.weights([from, to], from)]), this.weights([to], to, 0.02)])
  }

  file(inputs, outputs) {
    return model({ nodes: this.nodes, inputs, outputs, initializers: this.initializers })
  }
}

/** 64 → 256 → 256 → 16, Relu between: the smallest model for which batching pays. */
export function mlp() {
  const g = new Graph(1)
  let x = g.add('Relu', [g.linear('INPUT0', 64, 256)])
  x = g.add('Relu', [g.linear(x, 256, 256)])
  g.add('Identity', [g.linear(x, 256, 16)], {}, 'OUTPUT0')
  return g.file([value('INPUT0', TYPE.FP32, ['batch', 64])], [value('OUTPUT0', TYPE.FP32, ['batch', 16])])
}

/** 32 rows through two layers of 512: about a millisecond on one thread. */
export function millisecond() {
  const g = new Graph(3)
  const x = g.add('Relu', [g.linear('INPUT0', 512, 512)])
  g.add('Tanh', [g.linear(x, 512, 512)], {}, 'OUTPUT0')
  return g.file([value('INPUT0', TYPE.FP32, [32, 512])], [value('OUTPUT0', TYPE.FP32, [32, 512])])
}

/** A row through layers of 1024, 2048, 2048 and 1024, whose 8.4 M weights take about a millisecond on one thread. */
export function wide() {
  const g = new Graph(4)
  const layer = (x, from, to) => g.add('Relu', [g.linear(x, from, to)])
  g.add('Identity', [g.linear(layer(layer('INPUT0', 1024, 2048), 2048, 2048), 2048, 1024)], {}, 'OUTPUT0')
  return g.file([value('INPUT0', TYPE.FP32, ['batch', 1024])], [value('OUTPUT0', TYPE.FP32, ['batch', 1024])])
}

/** Rows, or only the `first` one whatever the others, through one square layer again and again. */
export function deep(layers, width, { first = false } = {}) {
  const g = new Graph(5)
  const [weights, bias] = [g.weights([width, width], width), g.weights([width], width, 0.02)]
  let x = first ? g.add('Slice', ['INPUT0', g.longs(0), g.longs(1)]) : 'INPUT0'
  for (let i = 0; i < layers; i += 1) x = g.add('Tanh', [g.add('Add', [g.add('MatMul', [x, weights]), bias])])
  g.add('Add', ['INPUT0', x], {}, 'OUTPUT0')
  return g.file([value('INPUT0', TYPE.FP32, ['batch', width])], [value('OUTPUT0', TYPE.FP32, ['batch', width])])
}

/**
 * ResNet-50 with its normalisations folded into the convolutions, as exporters leave it: 25.5 M weights, 4.1 GFLOP per
 * image.
 */
export function resnet50() {
  const g = new Graph(50)
  const conv = (x, from, to, size, stride, relu = true) => {
    const pad = (size - 1) >> 1
    const y = g.add('Conv', [x, g.weights([to, from, size, size], from * size * size), g.weights([to], to, 0.02)], {
      kernel_shape: [size, size],
      pads: [pad, pad, pad, pad],
      strides: [stride, stride],
    })
    return relu ? g.add('Relu', [y]) : y
  }
  let x = conv('INPUT0', 3, 64, 7, 2)
  x = g.add('MaxPool', [x], { kernel_shape: [3, 3], pads: [1, 1, 1, 1], strides: [2, 2] })
  let channels = 64
  for (const [stage, blocks] of [3, 4, 6, 3].entries()) {
    const width = 64 << stage
    for (let block = 0; block < blocks; block += 1) {
      const stride = block === 0 && stage > 0 ? 2 : 1
      const shortcut = block === 0 ? conv(x, channels, width * 4, 1, stride, false) : x
      let y = conv(x, channels, width, 1, 1)
      y = conv(y, width, width, 3, stride)
      y = conv(y, width, width * 4, 1, 1, false)
      x = g.add('Relu', [g.add('Add', [y, shortcut])])
      channels = width * 4
    }
  }
  x = g.add('Flatten', [g.add('GlobalAveragePool', [x])], { axis: 1 })
  const head = [x, g.weights([1000, channels], channels), g.weights([1000], 1000, 0.02)]
  g.add('Gemm', head, { transB: 1 }, 'OUTPUT0')
  return g.file([value('INPUT0', TYPE.FP32, ['batch', 3, 224, 224])], [value('OUTPUT0', TYPE.FP32, ['batch', 1000])])
}

/** VGG-19: 144 M weights, 411 MB of them in one matrix, and 20 GFLOP per image. */
export function vgg19() {
  const g = new Graph(19)
  let x = 'INPUT0'
  let channels = 3
  for (const [count, width] of [
    [2, 64],
    [2, 128],
    [4, 256],
    [4, 512],
    [4, 512],
  ]) {
    for (let i = 0; i < count; i += 1) {
      const weights = [g.weights([width, channels, 3, 3], channels * 9), g.weights([width], width, 0.02)]
      x = g.add('Relu', [g.add('Conv', [x, ...weights], { kernel_shape: [3, 3], pads: [1, 1, 1, 1], strides: [1, 1] })])
      channels = width
    }
    x = g.add('MaxPool', [x], { kernel_shape: [2, 2], strides: [2, 2] })
  }
  x = g.add('Flatten', [x], { axis: 1 })
  const linear = (from, to, output) =>
    g.add('Gemm', [x, g.weights([to, from], from), g.weights([to], to, 0.02)], { transB: 1 }, output)
  x = g.add('Relu', [linear(channels * 49, 4096)])
  x = g.add('Relu', [linear(4096, 4096)])
  linear(4096, 1000, 'OUTPUT0')
  return g.file([value('INPUT0', TYPE.FP32, ['batch', 3, 224, 224])], [value('OUTPUT0', TYPE.FP32, ['batch', 1000])])
}

/** Tokens of one request to a transformer. */
export const SEQUENCE = 128

/** A lookup costs the same in a table of any length, so the table is short and the file small. */
const VOCABULARY = 2048
/** Tokens that an encoder of texts takes. */
const TEXT_LENGTH = 512

/** A BERT encoder in plain operators with mean pooling: INPUT0 are token ids, INPUT1 the attention mask. */
export function transformer({ layers, hidden, heads, seed, isText = false }) {
  const [ids, shown] = isText ? ['input_ids', 'attention_mask'] : ['INPUT0', 'INPUT1']
  const g = new Graph(seed)
  const perHead = hidden / heads
  const normalise = (x) => {
    const ones = g.constant(TYPE.FP32, [hidden], new Float32Array(hidden).fill(1))
    return g.add('LayerNormalization', [x, ones, g.weights([hidden], hidden, 0.02)], {
      axis: -1,
      epsilon: { float: 1e-12 },
    })
  }
  // 0 is what the input has there.
  const place = isText ? 0 : SEQUENCE
  const split = g.longs(0, place, heads, perHead)
  const join = g.longs(0, place, hidden)
  const last = g.longs(1)
  const maskAxes = g.longs(1, 2)
  const [one, half, root2, low, scale] = [1, 0.5, Math.SQRT2, -10000, 1 / Math.sqrt(perHead)].map((n) => g.float(n))

  const mask = g.add('Cast', [g.add('Unsqueeze', [shown, maskAxes])], { to: TYPE.FP32 })
  const hide = g.add('Mul', [g.add('Sub', [one, mask]), low])
  const words = g.add('Gather', [g.weights([VOCABULARY, hidden], 1), ids], { axis: 0 })
  const places = g.weights([isText ? TEXT_LENGTH : SEQUENCE, hidden], 1)
  const tokensOf = () => g.add('Shape', [ids], { start: 1, end: 2 })
  let x = normalise(g.add('Add', [words, isText ? g.add('Slice', [places, g.longs(0), tokensOf()]) : places]))
  for (let layer = 0; layer < layers; layer += 1) {
    const part = (perm) => g.add('Transpose', [g.add('Reshape', [g.linear(x, hidden, hidden), split])], { perm })
    const [q, k, v] = [part([0, 2, 1, 3]), part([0, 2, 3, 1]), part([0, 2, 1, 3])]
    const scores = g.add('Add', [g.add('Mul', [g.add('MatMul', [q, k]), scale]), hide])
    const mixed = g.add('MatMul', [g.add('Softmax', [scores], { axis: -1 }), v])
    const joined = g.add('Reshape', [g.add('Transpose', [mixed], { perm: [0, 2, 1, 3] }), join])
    x = normalise(g.add('Add', [g.linear(joined, hidden, hidden), x]))
    const wide = g.linear(x, hidden, hidden * 4)
    const bell = g.add('Add', [g.add('Erf', [g.add('Div', [wide, root2])]), one])
    const gelu = g.add('Mul', [g.add('Mul', [wide, bell]), half])
    x = normalise(g.add('Add', [g.linear(gelu, hidden * 4, hidden), x]))
  }
  const length = isText ? 'tokens' : SEQUENCE
  const output = isText ? ['last_hidden_state', ['batch', length, hidden]] : ['OUTPUT0', ['batch', hidden]]
  if (isText) g.add('Identity', [x], {}, output[0])
  else g.add('ReduceMean', [x, last], { keepdims: 0 }, output[0])
  const inputs = [ids, shown].map((name) => value(name, TYPE.INT64, ['batch', length]))
  return g.file(inputs, [value(output[0], TYPE.FP32, output[1])])
}

/** An encoder of texts that computes nothing: an embedding of 8 values for each token. */
export function stubEncoder(vocabulary) {
  const g = new Graph(8)
  g.add('Gather', [g.weights([vocabulary, 8], 1), 'input_ids'], { axis: 0 }, 'last_hidden_state')
  const inputs = ['input_ids', 'attention_mask'].map((name) => value(name, TYPE.INT64, ['batch', 'tokens']))
  return g.file(inputs, [value('last_hidden_state', TYPE.FP32, ['batch', 'tokens', 8])])
}

/** 6 layers of 384: all-MiniLM-L6. `isText`: the encoder of a text model, for 1 to 512 tokens. */
export const miniLm = (more) => transformer({ layers: 6, hidden: 384, heads: 12, seed: 6, ...more })
/** 12 layers of 768: BERT base. */
export const bertBase = (more) => transformer({ layers: 12, hidden: 768, heads: 12, seed: 12, ...more })

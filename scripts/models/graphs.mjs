/** Graphs of the example repository and the tests. */
import { TYPE, initializer, model, node, noise, raw, subgraph, value } from './onnx.mjs'

/** OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1. */
export function addSub(type = TYPE.INT32, shape = ['batch', 16]) {
  return model({
    nodes: [node('Add', ['INPUT0', 'INPUT1'], ['OUTPUT0']), node('Sub', ['INPUT0', 'INPUT1'], ['OUTPUT1'])],
    inputs: [value('INPUT0', type, shape), value('INPUT1', type, shape)],
    outputs: [value('OUTPUT0', type, shape), value('OUTPUT1', type, shape)],
  })
}

/** `addSub` on decimal numbers written as strings. */
export function addSubStrings() {
  const shape = ['batch', 16]
  const cast = (from, to, type) => node('Cast', [from], [to], { to: type })
  return model({
    nodes: [
      cast('INPUT0', 'a', TYPE.INT32),
      cast('INPUT1', 'b', TYPE.INT32),
      node('Add', ['a', 'b'], ['sum']),
      node('Sub', ['a', 'b'], ['difference']),
      cast('sum', 'OUTPUT0', TYPE.STRING),
      cast('difference', 'OUTPUT1', TYPE.STRING),
    ],
    inputs: [value('INPUT0', TYPE.STRING, shape), value('INPUT1', TYPE.STRING, shape)],
    outputs: [value('OUTPUT0', TYPE.STRING, shape), value('OUTPUT1', TYPE.STRING, shape)],
  })
}

/** OUTPUT0 = INPUT0. */
export function identity(type, shape, input = 'INPUT0', output = 'OUTPUT0') {
  return model({
    nodes: [node('Identity', [input], [output])],
    inputs: [value(input, type, shape)],
    outputs: [value(output, type, shape)],
  })
}

/** Rows of any length: DOUBLED = 2 X, SUM = the sum of each row. */
export function variable() {
  return model({
    nodes: [node('Mul', ['X', 'two'], ['DOUBLED']), node('ReduceSum', ['X', 'last'], ['SUM'], { keepdims: 1 })],
    inputs: [value('X', TYPE.FP32, ['batch', 'length'])],
    outputs: [value('DOUBLED', TYPE.FP32, ['batch', 'length']), value('SUM', TYPE.FP32, ['batch', 1])],
    initializers: [
      initializer('two', TYPE.FP32, [], raw(Float32Array.of(2))),
      initializer('last', TYPE.INT64, [1], raw(BigInt64Array.of(-1n))),
    ],
  })
}

/** OUTPUT0 = INPUT0 <op> operand, on rows of four INT32. */
export function arithmetic(op, operand) {
  const shape = ['batch', 4]
  return model({
    nodes: [node(op, ['INPUT0', 'operand'], ['OUTPUT0'])],
    inputs: [value('INPUT0', TYPE.INT32, shape)],
    outputs: [value('OUTPUT0', TYPE.INT32, shape)],
    initializers: [initializer('operand', TYPE.INT32, [1], raw(Int32Array.of(operand)))],
  })
}

/** OUTPUT0 = the number of iterations of a loop, COUNT: the input decides the cost. */
export function loop() {
  const body = subgraph({
    nodes: [node('Identity', ['go'], ['go_on']), node('Add', ['x', 'one'], ['y'])],
    inputs: [value('i', TYPE.INT64, []), value('go', TYPE.BOOL, []), value('x', TYPE.FP32, [1])],
    outputs: [value('go_on', TYPE.BOOL, []), value('y', TYPE.FP32, [1])],
  })
  return model({
    nodes: [node('Loop', ['COUNT', 'yes', 'zero'], ['OUTPUT0'], { body: { graph: body } })],
    inputs: [value('COUNT', TYPE.INT64, [1])],
    outputs: [value('OUTPUT0', TYPE.FP32, [1])],
    initializers: [
      initializer('yes', TYPE.BOOL, [], Buffer.of(1)),
      initializer('zero', TYPE.FP32, [1], raw(Float32Array.of(0))),
      initializer('one', TYPE.FP32, [1], raw(Float32Array.of(1))),
    ],
  })
}

export const CLASSES = ['airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck']

/**
 * A 3x32x32 image to ten probabilities, shaped like a real classifier. Its weights are untrained, so labels mean
 * nothing.
 */
export function classifier() {
  const random = noise(2024)
  const weights = (name, dims, scale) => {
    const count = dims.reduce((a, b) => a * b, 1)
    return initializer(name, TYPE.FP32, dims, raw(Float32Array.from({ length: count }, () => random() * scale)))
  }
  const conv = (from, to, name) =>
    node('Conv', [from, `${name}.w`, `${name}.b`], [to], { kernel_shape: [3, 3], pads: [1, 1, 1, 1], strides: [2, 2] })
  return model({
    nodes: [
      conv('image', 'c1', 'conv1'),
      node('Relu', ['c1'], ['r1']),
      conv('r1', 'c2', 'conv2'),
      node('Relu', ['c2'], ['r2']),
      node('GlobalAveragePool', ['r2'], ['pooled']),
      node('Flatten', ['pooled'], ['features'], { axis: 1 }),
      node('Gemm', ['features', 'head.w', 'head.b'], ['logits'], { transB: 1 }),
      node('Softmax', ['logits'], ['probabilities'], { axis: 1 }),
    ],
    inputs: [value('image', TYPE.FP32, ['batch', 3, 32, 32])],
    outputs: [value('probabilities', TYPE.FP32, ['batch', CLASSES.length])],
    initializers: [
      weights('conv1.w', [16, 3, 3, 3], 0.4),
      weights('conv1.b', [16], 0.1),
      weights('conv2.w', [32, 16, 3, 3], 0.2),
      weights('conv2.b', [32], 0.1),
      weights('head.w', [CLASSES.length, 32], 2),
      weights('head.b', [CLASSES.length], 0.1),
    ],
  })
}

/**
 * A network that returns `outputs` for every picture. Each is a shape, with the values in `data` or zeros; the input
 * and outputs have `rows` first, or none if that is null. `end` is an activation function of the first output. With
 * `isSingle` it fails for more than one picture, which its shapes do not say.
 */
export function vision(network) {
  const { input, outputs, type = TYPE.FP32, rows = 'batch', end = null, isSingle = false, metadata = {} } = network
  const lead = rows === null ? [] : [rows]
  const axes = Array.from({ length: input.length }, (_, i) => BigInt(i + lead.length))
  const made = outputs.map(({ name, shape, data = null, type: to = TYPE.FP32 }, i) => {
    const sizes = shape.map((dim) => (typeof dim === 'string' ? 2 : dim))
    const count = sizes.reduce((a, b) => a * b, 1)
    const ones = [...lead.map(() => -1n), ...sizes.map(() => 1n)]
    const values = Float32Array.from({ length: count }, (_, at) => data?.[at] ?? 0)
    const sum = `${name}.sum`
    return {
      nodes: [
        node('Reshape', ['zero', `${name}.ones`], [`${name}.zero`]),
        node('Add', [`${name}.zero`, `${name}.values`], [sum]),
        i === 0 && end !== null ? node(end, [sum], [name]) : node('Cast', [sum], [name], { to }),
      ],
      value: value(name, to, [...lead, ...shape]),
      constants: [
        initializer(`${name}.ones`, TYPE.INT64, [ones.length], raw(BigInt64Array.from(ones))),
        initializer(`${name}.values`, TYPE.FP32, sizes, raw(values)),
      ],
    }
  })
  return model(
    {
      nodes: [
        node('Cast', ['picture'], ['pixels'], { to: TYPE.FP32 }),
        node('ReduceMean', ['pixels', 'axes'], ['mean'], { keepdims: 0 }),
        node('Reshape', ['mean', isSingle ? 'one' : 'all'], ['means']),
        node('ReduceMean', ['means'], ['overall'], { keepdims: 0 }),
        node('Mul', ['overall', 'nothing'], ['nil']),
        node('Mul', ['mean', 'nil'], ['zero']),
        ...made.flatMap(({ nodes }) => nodes),
      ],
      inputs: [value('picture', type, [...lead, ...input])],
      outputs: made.map((one) => one.value),
      initializers: [
        initializer('axes', TYPE.INT64, [axes.length], raw(BigInt64Array.from(axes))),
        initializer('one', TYPE.INT64, [1], raw(BigInt64Array.of(1n))),
        initializer('all', TYPE.INT64, [1], raw(BigInt64Array.of(-1n))),
        initializer('nothing', TYPE.FP32, [], raw(Float32Array.of(0))),
        ...made.flatMap(({ constants }) => constants),
      ],
    },
    metadata,
  )
}

/** The same values for each picture: a network whose answer is known. */
export function fixed(shape, values, picture) {
  return model({
    nodes: [node('Identity', ['values'], ['output'])],
    inputs: [value('image', TYPE.FP32, picture)],
    outputs: [value('output', TYPE.FP32, shape)],
    initializers: [initializer('values', TYPE.FP32, shape, raw(Float32Array.from(values)))],
  })
}

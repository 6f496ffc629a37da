/**
 * Writes ONNX files: the part of the protobuf format that small graphs need.
 *
 * The example repository and the test models must be made without Python, a network or a framework, with the same bytes
 * on every machine. Graphs are not checked here: `onnx.checker` does that in the Python tests.
 */

export const TYPE = {
  FP32: 1,
  UINT8: 2,
  INT8: 3,
  UINT16: 4,
  INT16: 5,
  INT32: 6,
  INT64: 7,
  STRING: 8,
  BOOL: 9,
  FP16: 10,
  FP64: 11,
  UINT32: 12,
  UINT64: 13,
  BF16: 16,
}

// ONNX 1.14: old enough for every runtime still in use, new enough for each operator used here.
const IR_VERSION = 9
const OPSET = 19

const WIRE_VARINT = 0
const WIRE_BYTES = 2
const WIRE_32 = 5

function varint(value) {
  // Two's complement in 64 bits, as protobuf writes a negative int64.
  let rest = BigInt.asUintN(64, BigInt(value))
  const out = []
  do {
    const low = Number(rest & 0x7fn)
    rest >>= 7n
    out.push(rest === 0n ? low : low | 0x80)
  } while (rest !== 0n)
  return Buffer.from(out)
}

const key = (field, wire) => varint((field << 3) | wire)
const int = (field, value) => Buffer.concat([key(field, WIRE_VARINT), varint(value)])
const bytes = (field, value) => {
  const data = typeof value === 'string' ? Buffer.from(value, 'utf8') : value
  return Buffer.concat([key(field, WIRE_BYTES), varint(data.length), data])
}
const float = (field, value) => {
  const data = Buffer.alloc(4)
  data.writeFloatLE(value)
  return Buffer.concat([key(field, WIRE_32), data])
}
const message = (field, ...parts) => bytes(field, Buffer.concat(parts.flat()))

/** AttributeProto: the value decides the kind. `{ float }` marks a non-integer number, `{ graph }` a subgraph. */
function attribute([name, value]) {
  const typed = (kind, ...parts) => message(5, bytes(1, name), ...parts, int(20, kind))
  if (Array.isArray(value))
    return typed(
      7,
      value.map((v) => int(8, v)),
    )
  if (typeof value === 'object' && 'float' in value) return typed(1, float(2, value.float))
  if (typeof value === 'object' && 'graph' in value) return typed(5, message(6, value.graph))
  if (typeof value === 'object') return typed(4, bytes(5, value.body))
  if (typeof value === 'string') return typed(3, bytes(4, value))
  return typed(2, int(3, value))
}

/** One operator of a graph. */
export function node(op, inputs, outputs, attributes = {}) {
  return message(
    1,
    inputs.map((name) => bytes(1, name)),
    outputs.map((name) => bytes(2, name)),
    bytes(4, op),
    Object.entries(attributes).map(attribute),
  )
}

/** A named constant. `data` is raw little-endian contents, or an array of strings for STRING. */
export function initializer(name, type, dims, data) {
  const contents = type === TYPE.STRING ? data.map((s) => bytes(6, s)) : [bytes(9, data)]
  return { body: Buffer.concat([...dims.map((d) => int(1, d)), int(2, type), ...contents, bytes(8, name)]) }
}

/** A graph input or output. A dimension is a number, or a string that names a symbolic one. */
export function value(name, type, shape) {
  const dims = shape.map((d) => message(1, typeof d === 'string' ? bytes(2, d) : int(1, d)))
  return [bytes(1, name), message(2, message(1, int(1, type), message(2, dims)))]
}

/** Parts of a GraphProto: of a model, or of an attribute `{ graph: subgraph({ … }) }`. */
export const subgraph = ({ nodes, inputs, outputs, initializers = [] }) =>
  [
    nodes,
    bytes(2, 'graph'),
    initializers.map((t) => bytes(5, t.body)),
    inputs.map((v) => message(11, v)),
    outputs.map((v) => message(12, v)),
  ].flat()

/** Bytes of a `.onnx` file. `metadata` has texts by key. */
export function model(graph, metadata = {}) {
  return Buffer.concat([
    int(1, IR_VERSION),
    bytes(2, 'nereid'),
    message(7, subgraph(graph)),
    message(8, bytes(1, ''), int(2, OPSET)),
    ...Object.entries(metadata).map(([name, text]) => message(14, bytes(1, name), bytes(2, text))),
  ])
}

/** Raw contents of numbers, for `initializer`. */
export const raw = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength)

/** Numbers in [-1, 1) that are the same on every machine and in every version of Node. */
export function noise(seed) {
  let state = seed >>> 0 || 1
  return () => {
    state ^= state << 13
    state >>>= 0
    state ^= state >>> 17
    state ^= state << 5
    state >>>= 0
    return state / 2 ** 31 - 1
  }
}

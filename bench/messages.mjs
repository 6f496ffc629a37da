/**
 * Requests as bytes, for both transports and both forms of HTTP, and the check of what comes back.
 *
 * Bodies are made once and sent many times. The check belongs to a separate pass: nothing is compared while the clock
 * runs.
 */

import { noise } from '../scripts/models/onnx.mjs'

const SIZES = { INT32: 4, FP32: 4, INT64: 8 }

/** A tensor of the bench: index modulo 7, so that every element is exact in every type and in JSON. */
export function tensor(name, datatype, shape, at = (i) => i % 7) {
  const count = shape.reduce((a, b) => a * b, 1)
  const data = Buffer.alloc(count * SIZES[datatype])
  for (let i = 0; i < count; i += 1) {
    if (datatype === 'FP32') data.writeFloatLE(at(i), i * 4)
    else if (datatype === 'INT32') data.writeInt32LE(at(i), i * 4)
    else data.writeBigInt64LE(BigInt(at(i)), i * 8)
  }
  return { name, datatype, shape, data }
}

/** Numbers that differ from seed to seed and are the same on every machine: floats in [-1, 1), integers below 1000. */
export function randomTensor(name, datatype, shape, seed) {
  const next = noise(seed + 1)
  const count = shape.reduce((a, b) => a * b, 1)
  const bytes = (array) => Buffer.from(array.buffer)
  const made = {
    FP32: () => bytes(Float32Array.from({ length: count }, next)),
    INT32: () => bytes(Int32Array.from({ length: count }, () => Math.floor((next() + 1) * 500))),
    INT64: () => bytes(BigInt64Array.from({ length: count }, () => BigInt(Math.floor((next() + 1) * 500)))),
  }
  return { name, datatype, shape, data: made[datatype]() }
}

/** Strings of the given length. */
export function text(name, length, count = 1, letter = 'a') {
  const one = Buffer.alloc(length + 4, letter)
  one.writeUInt32LE(length)
  return { name, datatype: 'BYTES', shape: [count], data: Buffer.concat(Array.from({ length: count }, () => one)) }
}

function numbers({ datatype, data }) {
  if (datatype === 'FP32') return Array.from(new Float32Array(new Uint8Array(data).buffer))
  if (datatype === 'INT32') return Array.from(new Int32Array(new Uint8Array(data).buffer))
  if (datatype === 'BYTES') {
    const out = []
    for (let at = 0; at < data.length; at += 4 + data.readUInt32LE(at))
      out.push(data.subarray(at + 4, at + 4 + data.readUInt32LE(at)).toString())
    return out
  }
  return Array.from(new BigInt64Array(new Uint8Array(data).buffer), Number)
}

/** Eight digits that the load generator overwrites with a counter. */
const COUNTER = '00000000'
/** The id of a request of varied traffic. */
export const ID = `request-${COUNTER}`

/**
 * @param parameters of the request, of integers and booleans
 * @param form `binary`, `json`, or `shm` with a region per tensor in `regions`
 * @returns body, headers, and where the counter of its id stands (null without an id)
 */
export function httpBody({ inputs, outputs, id, parameters }, form, regions = {}) {
  const region = (name) => ({
    shared_memory_region: regions[name].name,
    shared_memory_byte_size: regions[name].bytes,
  })
  const input = (t) => {
    const head = { name: t.name, shape: t.shape, datatype: t.datatype }
    // Behind the datatype for one input and before it for the next: clients do either.
    if (form === 'json')
      return t.dataFirst
        ? { name: t.name, shape: t.shape, data: numbers(t), datatype: t.datatype }
        : { ...head, data: numbers(t) }
    return { ...head, parameters: form === 'shm' ? region(t.name) : { binary_data_size: t.data.length } }
  }
  const output = (name) => {
    if (form === 'json') return { name, parameters: { binary_data: false } }
    return { name, parameters: form === 'shm' ? region(name) : { binary_data: true } }
  }
  const head = Buffer.from(
    JSON.stringify({
      ...(id === undefined ? {} : { id }),
      ...(parameters === undefined ? {} : { parameters }),
      inputs: inputs.map(input),
      outputs: outputs.map(output),
    }),
  )
  const counterAt = id === undefined ? null : head.indexOf(COUNTER)
  if (form !== 'binary') return { body: head, headers: { 'Content-Type': 'application/json' }, counterAt }
  return {
    body: Buffer.concat([head, ...inputs.map((t) => t.data)]),
    counterAt,
    headers: { 'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': head.length },
  }
}

function varint(n) {
  const out = []
  for (let rest = n; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...out, rest])
    out.push((rest % 128) | 0x80)
  }
}

const field = (number, content) => Buffer.concat([Buffer.from([(number << 3) | 2]), varint(content.length), content])

/** An entry of `map<string, InferParameter>`, of a boolean or an integer. */
const parameter = ([name, value]) =>
  field(
    4,
    Buffer.concat([
      field(1, Buffer.from(name)),
      field(2, Buffer.from([value === Number(value) ? 16 : 8, ...varint(Number(value))])),
    ]),
  )

/** A ModelInferRequest with raw contents. */
export function grpcBody({ model, inputs, outputs, id, parameters = {} }) {
  const input = (t) =>
    field(
      5,
      Buffer.concat([
        field(1, Buffer.from(t.name)),
        field(2, Buffer.from(t.datatype)),
        field(3, Buffer.concat(t.shape.map(varint))),
      ]),
    )
  return Buffer.concat([
    field(1, Buffer.from(model)),
    ...(id === undefined ? [] : [field(3, Buffer.from(id))]),
    ...Object.entries(parameters).map(parameter),
    ...inputs.map(input),
    ...outputs.map((name) => field(6, field(1, Buffer.from(name)))),
    ...inputs.map((t) => field(7, t.data)),
  ])
}

/** The end of an answer with these raw outputs. */
export const answerTail = (expected, transport) =>
  Buffer.concat(transport === 'gRPC' ? expected.map((e) => field(6, e)) : expected)

/** The raw outputs at the end of an answer, in order; `sizes` are their lengths. */
function tail(answer, sizes, isGrpc) {
  let at = answer.length
  const out = []
  for (const size of sizes.toReversed()) {
    at -= size
    if (at < 0) throw new Error(`an answer of ${answer.length} bytes is too short for its outputs`)
    out.unshift(answer.subarray(at, at + size))
    // Each raw content of a protobuf message stands behind its tag and its length.
    if (isGrpc) at -= 1 + varint(size).length
  }
  return out
}

/**
 * Throws unless an answer holds the expected outputs.
 *
 * @param expected one Buffer per output; with `tolerance`, FP32 that may differ by that much
 */
export function checkAnswer(answer, expected, { transport, form, tolerance = 0 }) {
  const wrong = (why) =>
    new Error(`the ${transport} answer is wrong: ${why}: ${answer.subarray(0, 200).toString('latin1')}`)
  let found
  if (form === 'json') {
    const { outputs } = JSON.parse(answer.toString())
    found = outputs.map(({ datatype, data }) => {
      const typed = { FP32: Float32Array, INT32: Int32Array }[datatype]
      return Buffer.from(typed.from(data).buffer)
    })
  } else {
    found = tail(
      answer,
      expected.map((e) => e.length),
      transport === 'gRPC',
    )
  }
  expected.forEach((want, i) => {
    if (tolerance === 0) {
      if (!found[i]?.equals(want)) throw wrong(`output ${i} differs`)
      return
    }
    const [a, b] = [found[i], want].map((bytes) => new Float32Array(new Uint8Array(bytes).buffer))
    const far = a.findIndex((x, k) => !(Math.abs(x - b[k]) <= tolerance))
    if (far >= 0) throw wrong(`output ${i} has ${a[far]} at ${far}, not ${b[far]}`)
  })
}

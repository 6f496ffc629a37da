/** One unary gRPC call over node:http2, with messages made by hand: what is attacked is below any client library. */
import { connect } from 'node:http2'

const MS_MAX = 60_000

/** Protobuf's variable-length integer. */
export function varint(n) {
  const out = []
  for (let rest = n; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...out, rest])
    out.push((rest % 128) | 128)
  }
}

/** A length-delimited field. */
export const field = (number, data) => {
  const bytes = Buffer.from(data)
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes])
}

/**
 * Many small fields, each made by `of` with `small(number, text)`, which has at most 127 bytes. They are made as text:
 * a million buffers would hold the event loop, and with it the rows beside, for seconds.
 */
export function smallFields(count, of) {
  const small = (number, text) => String.fromCharCode(number * 8 + 2, text.length) + text
  let out = ''
  for (let i = 0; i < count; i += 1) out += of(small, i)
  return Buffer.from(out, 'latin1')
}

/** A gRPC message with its prefix. */
export function framed(message, isPacked = false) {
  const prefix = Buffer.alloc(5)
  prefix[0] = isPacked ? 1 : 0
  prefix.writeUInt32BE(message.length, 1)
  return Buffer.concat([prefix, message])
}

/**
 * Calls `method` with the ready-made bytes of its message.
 *
 * @returns `grpc-status` as a number, `grpc-message`, and the bytes that came
 */
export function call(port, method, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const session = connect(`http://127.0.0.1:${port}`, { settings: { initialWindowSize: 2 ** 30 } })
    session.on('connect', () => session.setLocalWindowSize(2 ** 30))
    session.once('error', reject)
    const stream = session.request({
      ':method': 'POST',
      ':path': `/inference.GRPCInferenceService/${method}`,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
    })
    const timer = setTimeout(() => stream.destroy(new Error(`${method}: no response within ${MS_MAX} ms`)), MS_MAX)
    let bytes = 0
    let trailers = {}
    stream.on('response', (head) => (trailers = head))
    stream.on('trailers', (tail) => (trailers = tail))
    stream.on('data', (chunk) => (bytes += chunk.length))
    stream.once('error', reject)
    stream.once('close', () => {
      clearTimeout(timer)
      session.close()
      resolve({ status: Number(trailers['grpc-status'] ?? -1), message: trailers['grpc-message'] ?? '', bytes })
    })
    stream.end(body)
  })
}

/**
 * Sends ready-made messages on one ModelStreamInfer stream, all at once, and reads as many answers.
 *
 * @returns the ids of the answers in the order they came; an answer that is an error is told as its text
 */
export function callStream(port, messages) {
  return new Promise((resolve, reject) => {
    const session = connect(`http://127.0.0.1:${port}`, {
      maxSessionMemory: 1000,
      settings: { initialWindowSize: 2 ** 30 },
    })
    session.on('connect', () => session.setLocalWindowSize(2 ** 30))
    session.once('error', reject)
    const stream = session.request({
      ':method': 'POST',
      ':path': '/inference.GRPCInferenceService/ModelStreamInfer',
      'content-type': 'application/grpc',
      te: 'trailers',
    })
    const timer = setTimeout(() => stream.destroy(new Error(`ModelStreamInfer: no end within ${MS_MAX} ms`)), MS_MAX)
    const chunks = []
    stream.on('data', (chunk) => chunks.push(chunk))
    stream.once('error', reject)
    stream.once('close', () => {
      clearTimeout(timer)
      session.close()
      resolve(idsOf(Buffer.concat(chunks)))
    })
    for (const message of messages) stream.write(framed(message))
    stream.end()
  })
}

/** Length-delimited fields of a message: their numbers and contents. */
function* fields(message) {
  const number = () => {
    let value = 0
    for (let scale = 1; ; scale *= 128) {
      const byte = message[at++]
      value += (byte & 127) * scale
      if (byte < 128) return value
    }
  }
  let at = 0
  while (at < message.length) {
    const tag = number()
    const length = number()
    // Other kinds are numbers of one varint each in these messages.
    if ((tag & 7) !== 2) continue
    yield [tag >> 3, message.subarray(at, at + length)]
    at += length
  }
}

function idsOf(bytes) {
  const out = []
  for (let at = 0; at + 5 <= bytes.length;) {
    const length = bytes.readUInt32BE(at + 1)
    for (const [kind, part] of fields(bytes.subarray(at + 5, at + 5 + length))) {
      if (kind === 1) out.push(part.toString())
      else for (const [member, id] of fields(part)) if (member === 3) out.push(id.toString())
    }
    at += 5 + length
  }
  return out
}

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
    const timer = setTimeout(() => stream.destroy(new Error(`${method}: no answer within ${MS_MAX} ms`)), MS_MAX)
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

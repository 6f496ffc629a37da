/** Just enough protobuf to write a ModelInferRequest and read a ModelInferResponse, without a library's cost per message. */

function varint(value: number): Buffer {
  const out: number[] = []
  let rest = value
  while (rest >= 0x80) {
    out.push((rest & 0x7f) | 0x80)
    rest = Math.floor(rest / 128)
  }
  out.push(rest)
  return Buffer.from(out)
}

function field(number: number, data: Buffer | string): Buffer {
  const bytes = typeof data === 'string' ? Buffer.from(data) : data
  return Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes])
}

/** One input, sent raw. Framed as gRPC wants it: a flag byte and a length in front. */
export function inferRequest(model: string, id: string, datatype: string, shape: number[], raw: Buffer): Buffer {
  const tensor = Buffer.concat([field(1, 'INPUT0'), field(2, datatype), field(3, Buffer.concat(shape.map(varint)))])
  const message = Buffer.concat([field(1, model), field(3, id), field(5, tensor), field(7, raw)])
  const frame = Buffer.alloc(5)
  frame.writeUInt32BE(message.length, 1)
  return Buffer.concat([frame, message])
}

/** `id` and the first raw output of a framed ModelInferResponse. */
export function readResponse(framed: Buffer): { id: string; raw: Buffer } {
  let at = 5
  const number = () => {
    let value = 0
    for (let shift = 1; ; shift *= 128) {
      const byte = framed[at] ?? 0
      at += 1
      value += (byte & 0x7f) * shift
      if (byte < 0x80) return value
    }
  }
  const out: { id: string; raw: Buffer } = { id: '', raw: Buffer.alloc(0) }
  while (at < framed.length) {
    const key = number()
    if ((key & 7) !== 2) throw new Error(`unexpected wire type in field ${key >> 3}`)
    const length = number()
    const data = framed.subarray(at, at + length)
    at += length
    if (key >> 3 === 3) out.id = data.toString()
    if (key >> 3 === 6) out.raw = data
  }
  return out
}

/** Minimal protobuf codec for ModelInferRequest and ModelInferResponse, without a library's cost per message. */

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

/** Fields of a message: numbers, strings, bytes, or messages. */
export function message(...fields: [number, Buffer | string | number][]): Buffer {
  const one = ([number, value]: [number, Buffer | string | number]): Buffer[] => {
    if (typeof value === 'number') return [varint(number << 3), varint(value)]
    const bytes = Buffer.from(value as Buffer)
    return [varint((number << 3) | 2), varint(bytes.length), bytes]
  }
  return Buffer.concat(fields.flatMap(one))
}

/** Names, types, shapes and contents of inputs. */
export type Inputs = [string, string, number[], Buffer][]

export function inferMessage(model: string, inputs: Inputs, id = ''): Buffer {
  const tensors = inputs.map(([name, datatype, shape]): [number, Buffer] => [
    5,
    message([1, name], [2, datatype], [3, Buffer.concat(shape.map(varint))]),
  ])
  return message([1, model], [3, id], ...tensors, ...inputs.map(([, , , raw]): [number, Buffer] => [7, raw]))
}

/** A request with one raw input, framed for gRPC: a flag byte and the length in front. */
export function inferRequest(model: string, id: string, datatype: string, shape: number[], raw: Buffer): Buffer {
  const request = inferMessage(model, [['INPUT0', datatype, shape, raw]], id)
  const frame = Buffer.alloc(5)
  frame.writeUInt32BE(request.length, 1)
  return Buffer.concat([frame, request])
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

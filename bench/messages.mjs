/** The request both transports send to the model `simple`, and the check of what comes back. */

const A = Int32Array.from({ length: 16 }, (_, i) => i)
const B = Int32Array.from({ length: 16 }, () => 1)
const bytes = (typed) => Buffer.from(typed.buffer)

/** JSON head and two binary inputs, as tritonclient sends them. */
export function httpRequest() {
  const input = (name) => ({ name, shape: [1, 16], datatype: 'INT32', parameters: { binary_data_size: 64 } })
  const output = (name) => ({ name, parameters: { binary_data: true } })
  const head = Buffer.from(
    JSON.stringify({ inputs: [input('INPUT0'), input('INPUT1')], outputs: [output('OUTPUT0'), output('OUTPUT1')] }),
  )
  return { body: Buffer.concat([head, bytes(A), bytes(B)]), headerLength: head.length }
}

const field = (number, content) => Buffer.concat([Buffer.from([(number << 3) | 2, content.length]), content])

/** A ModelInferRequest with raw contents. Every field is shorter than 128 bytes, so lengths are one byte. */
export function grpcRequest() {
  const input = (name) =>
    Buffer.concat([field(1, Buffer.from(name)), field(2, Buffer.from('INT32')), field(3, Buffer.from([1, 16]))])
  const output = (name) => field(1, Buffer.from(name))
  return Buffer.concat([
    field(1, Buffer.from('simple')),
    field(5, input('INPUT0')),
    field(5, input('INPUT1')),
    field(6, output('OUTPUT0')),
    field(6, output('OUTPUT1')),
    field(7, bytes(A)),
    field(7, bytes(B)),
  ])
}

const expected = Buffer.concat([bytes(A.map((a, i) => a + B[i])), bytes(A.map((a, i) => a - B[i]))])

/** Throws unless the body ends with sum and difference. */
export function httpSum(answer) {
  if (!answer.subarray(-128).equals(expected)) throw new Error(`the HTTP answer is wrong: ${answer.toString('latin1')}`)
}

/** Throws unless the message ends with sum and difference, each behind its tag and length. */
export function grpcSum(answer) {
  const tail = answer.subarray(-132)
  const tensors = Buffer.concat([tail.subarray(2, 66), tail.subarray(68, 132)])
  if (!tensors.equals(expected)) throw new Error(`the gRPC answer is wrong: ${answer.toString('hex')}`)
}

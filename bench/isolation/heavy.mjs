/** Clients that ask for much work with one request: what they send, ready-made. */
import { gzipSync } from 'node:zlib'
import { httpBody, randomTensor } from '../messages.mjs'

/** Just below the server's limit of 64 MiB. */
const LARGE = 62 << 20
/** Characters of one of the numbers below, its comma included. */
const DIGITS = '0.12345678,'

const identity = (shape, binaryOut) => ({
  name: 'INPUT0',
  shape,
  datatype: 'FP32',
  output: { name: 'OUTPUT0', parameters: { binary_data: binaryOut } },
})

function jsonIn() {
  const count = Math.floor(LARGE / DIGITS.length)
  const { output, ...input } = identity([count], true)
  const text = JSON.stringify({ inputs: [{ ...input, data: [] }], outputs: [output] })
  const at = text.indexOf('"data":[') + '"data":['.length
  return { body: Buffer.from(text.slice(0, at) + DIGITS.repeat(count).slice(0, -1) + text.slice(at)), headers: {} }
}

function binary(bytes, binaryOut) {
  const made = httpBody({ inputs: [randomTensor('INPUT0', 'FP32', [bytes / 4], 1)], outputs: ['OUTPUT0'] }, 'binary')
  if (binaryOut) return made
  const length = made.headers['Inference-Header-Content-Length']
  const head = Buffer.from(
    made.body
      .subarray(0, length)
      .toString()
      .replace('"parameters":{"binary_data":true}', '"parameters":{"binary_data":false}'),
  )
  return {
    body: Buffer.concat([head, made.body.subarray(length)]),
    headers: { ...made.headers, 'Inference-Header-Content-Length': head.length },
  }
}

function gzipped() {
  const { body, headers } = binary(LARGE, true)
  return { body: gzipSync(body, { level: 1 }), headers: { ...headers, 'Content-Encoding': 'gzip' } }
}

const slowLoop = () => ({
  body: Buffer.from(JSON.stringify({ inputs: [{ name: 'COUNT', shape: [1], datatype: 'INT64', data: [200_000] }] })),
  headers: {},
})

/** A tensor whose answer is some 16 MiB of JSON: nineteen characters a float. */
const jsonOut = () => binary(Math.floor((16 << 20) / 19) * 4, false)

export const HEAVY_CLIENTS = [
  { name: '64 MiB of JSON', method: 'POST', path: '/v2/models/identity/infer', make: jsonIn },
  { name: '64 MiB of gzip', method: 'POST', path: '/v2/models/identity/infer', make: gzipped },
  { name: '16 MiB of JSON in the answer', method: 'POST', path: '/v2/models/identity/infer', make: jsonOut },
  { name: 'a slow Loop', method: 'POST', path: '/v2/models/loop/infer', make: slowLoop },
  {
    name: 'statistics of 1,000 models',
    method: 'GET',
    path: '/v2/models/stats',
    make: () => ({ body: Buffer.alloc(0), headers: {} }),
  },
]

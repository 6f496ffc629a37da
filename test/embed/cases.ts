/** Requests that every server with the API inside answers as the port does, beside the recorded ones. */
import { request as ask } from 'node:http'
import type { Server } from '../../src/index.js'
import { simpleBody } from '../server/harness.js'

export interface Answer {
  status: number
  headers: Record<string, string | undefined>
  body: Buffer
}

/** Without what is the connection's. */
export async function answer(
  at: string,
  method: string,
  path: string,
  { headers = {}, body }: { headers?: Record<string, string>; body?: Buffer | string } = {},
): Promise<Answer> {
  return await new Promise((resolve, reject) => {
    // As it is: a URL would lose a part behind `#`, and cannot hold a whole target.
    const sent = ask(at, { method, headers, path }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const names = response.rawHeaders.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase())
        if (new Set(names).size < names.length) reject(new Error(`a header stands twice: ${names.join(', ')}`))
        const { date: _, connection: _c, 'keep-alive': _k, ...rest } = response.headers
        resolve({ status: response.statusCode ?? 0, headers: rest as Answer['headers'], body: Buffer.concat(chunks) })
      })
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

export const INFER = '/v2/models/simple/infer'
const BINARY = Buffer.concat([
  Buffer.from(
    '{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":64}},' +
      '{"name":"INPUT1","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":64}}],' +
      '"parameters":{"binary_data_output":true}}',
  ),
  Buffer.alloc(128, 1),
])
const HEADER = { 'Inference-Header-Content-Length': String(BINARY.length - 128) }
/** 1 MiB, which is read in two steps. */
const LARGE = JSON.stringify({
  inputs: [{ name: 'X', shape: [1, 300_000], datatype: 'FP32', data: Array.from({ length: 300_000 }, (_, i) => i) }],
})

export const CASES: [string, string, { headers?: Record<string, string>; body?: Buffer | string }?][] = [
  ['GET', '/v2'],
  ['GET', '/v2/health/live'],
  ['GET', '/v2/health/ready'],
  ['HEAD', '/v2/health/live'],
  ['HEAD', '/v2/models/simple'],
  ['GET', '/v2/models/simple'],
  ['GET', '/v2/models/simple/config'],
  ['GET', '/v2/models/nope'],
  ['GET', '/v2/nope'],
  ['GET', '/v2%'],
  ['GET', '/v2/health/live?x'],
  ['GET', '/v2/health/live', { body: 'hello', headers: { 'Content-Length': '5' } }],
  ['GET', '/v2/'],
  ['PUT', '/v2'],
  ['POST', '/v2'],
  ['GET', '/v2/openapi.json?model=simple'],
  ['POST', '/v2/repository/index'],
  ['POST', '/v2/repository/models/simple/load'],
  ['GET', '/v2/logging'],
  ['POST', '/v2/logging', { body: '{"log_verbose_level":0}' }],
  ['POST', '/v2/logging', { body: '{"log_file":"x"}' }],
  ['POST', '/v2/systemsharedmemory/unregister'],
  ['POST', INFER, { body: simpleBody(3) }],
  ['POST', INFER, { body: '' }],
  ['POST', INFER, { body: '{' }],
  ['POST', INFER, { body: BINARY, headers: HEADER }],
  ['POST', INFER, { body: BINARY, headers: { ...HEADER, 'Accept-Encoding': 'gzip' } }],
  ['POST', INFER, { body: BINARY, headers: { 'inference-header-content-length': '-1' } }],
  ['POST', INFER, { body: 'x', headers: { 'Content-Encoding': 'br' } }],
  ['POST', '/v2/models/variable/infer', { body: LARGE }],
  ['POST', '/v2/models/variable/infer', { body: LARGE, headers: { 'Transfer-Encoding': 'chunked' } }],
  [
    'POST',
    '/v2/models/simple/generate',
    { body: '{"INPUT0":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"INPUT1":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}' },
  ],
  ['POST', '/v2/models/repeat/generate_stream', { body: '{"IN":[1,2,3],"DELAY":[0,0,0],"WAIT":0}' }],
  ['POST', '/v2/models/repeat/generate_stream', { body: '{"IN":"x"}' }],
  ['POST', '/v2/models/repeat/infer', { body: '{"inputs":[]}' }],
]

/** Targets that a `URL` cannot express. */
export const TARGETS: typeof CASES = [
  ['GET', '/v2/models/simple#part'],
  ['GET', 'http://127.0.0.1/v2/health/live'],
  ['GET', 'HTTP://a:1/v2/models/simple?x'],
  ['GET', 'http:///v2'],
  ['GET', 'http://a'],
]

/** Resolves once a request of `model` was counted as given up. @throws {Error} when none is within 10 s. */
export async function ended(server: Server, model: string): Promise<void> {
  const from = performance.now()
  while (
    !new RegExp(`nereid_requests_cancelled_total\\{model="${model}"[^}]*\\} [1-9]`).test(await server.metricsText())
  ) {
    if (performance.now() - from > 10_000) throw new Error(`no request of ${model} was given up`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

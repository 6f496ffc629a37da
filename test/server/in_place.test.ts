/**
 * Large tensors over HTTP lie in memory of the model's process from the socket on, and are sent from there. What
 * clients see is the same as with copies: any pieces, any order, wrong lengths, clients that leave, processes that die.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync, gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { TestServer } from './harness.js'
import { RawConnection, post, type RawAnswer } from './raw.mjs'

/** Two inputs, of which the second may be absent; two outputs: the inputs plus one. */
const TYPESCRIPT = `
import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'
const many = { datatype: 'FP32', dims: [-1] } as const
export default defineModel({
  inputs: { A: many, B: { ...many, optional: true } },
  outputs: { A1: many, B1: many },
  execute(requests, ctx) {
    return requests.map((request) => new InferenceResponse([...request.inputs.values()].map(({ name, data, shape }) => {
      const more = ctx.alloc('FP32', shape)
      for (let i = 0; i < data.length; i += 1) more[i] = data[i] + 1
      return Tensor.from(name + '1', more, shape)
    })))
  },
})
`
const PYTHON_MODEL = `
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(output_tensors=[more(t) for t in r.inputs()]) for r in requests]

def more(tensor):
    array = tensor.as_numpy()
    if len(array) > 1 and array[1] == -13:
        os._exit(1)
    array += 1
    return pb_utils.Tensor(tensor.name() + "1", array.copy())
`
const PYTHON_CONFIG = `
backend: "python"
input [{ name: "A", data_type: TYPE_FP32, dims: [-1] }, { name: "B", data_type: TYPE_FP32, dims: [-1], optional: true }]
output [{ name: "A1", data_type: TYPE_FP32, dims: [-1] }, { name: "B1", data_type: TYPE_FP32, dims: [-1] }]
`

const floats = (count: number, from = 0) => Float32Array.from({ length: count }, (_, i) => from + (i % 8191))
const bytesOf = (array: Float32Array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength)

interface Options {
  /** `binary_data` of the outputs. */
  isBinary?: boolean
  headers?: string[]
  /** Bytes behind those that the head announces, or missing from them. */
  more?: number
}

/** A request with binary tensors: its head, its JSON and its tensors. */
function request(model: string, inputs: Record<string, Float32Array>, options: Options = {}): Buffer[] {
  const { isBinary = true, headers = [], more = 0 } = options
  const json = Buffer.from(
    JSON.stringify({
      inputs: Object.entries(inputs).map(([name, data]) => ({
        name,
        datatype: 'FP32',
        shape: [data.length],
        parameters: { binary_data_size: data.byteLength },
      })),
      parameters: { binary_data_output: isBinary },
    }),
  )
  let tail = Buffer.concat(Object.values(inputs).map(bytesOf))
  tail = more < 0 ? tail.subarray(0, more) : Buffer.concat([tail, Buffer.alloc(more)])
  const length = `Inference-Header-Content-Length: ${json.length}`
  const whole = post(`/v2/models/${model}/infer`, Buffer.concat([json, tail]), length, ...headers)
  const head = whole.length - json.length - tail.length
  return [whole.subarray(0, head), whole.subarray(head, head + json.length), whole.subarray(head + json.length)]
}

/** Outputs of a binary response, by name. */
function outputs({ status, headers, body }: RawAnswer): Record<string, Float32Array> {
  expect([status, status === 200 ? '' : body.toString()]).toEqual([200, ''])
  const head = Number(headers.get('inference-header-content-length'))
  const json = JSON.parse(body.subarray(0, head).toString()) as {
    outputs: { name: string; parameters: { binary_data_size: number } }[]
  }
  let at = head
  return Object.fromEntries(
    json.outputs.map(({ name, parameters: { binary_data_size: size } }) => {
      const data = Buffer.from(body.subarray(at, (at += size)))
      return [name, new Float32Array(data.buffer, data.byteOffset, size / 4)]
    }),
  )
}

const plusOne = (array: Float32Array) => array.map((x) => x + 1)

/** Equal arrays of a million numbers in milliseconds. */
function expectSame(found: Float32Array | undefined, expected: Float32Array): void {
  expect(found?.length).toBe(expected.length)
  expect(Buffer.compare(bytesOf(found as Float32Array), bytesOf(expected))).toBe(0)
}

describe.skipIf(process.platform !== 'linux')('tensors in memory of the model', () => {
  const root = mkdtempSync(join(tmpdir(), 'nereid-in-place-'))
  let server: TestServer

  beforeAll(async () => {
    await pythonEnvironment()
    const write = (path: string, text: string) => {
      mkdirSync(join(root, path, '..'), { recursive: true })
      writeFileSync(join(root, path), text)
    }
    write('typescript/1/model.ts', TYPESCRIPT)
    write('python/1/model.py', PYTHON_MODEL)
    write('python/config.pbtxt', PYTHON_CONFIG)
    write('cached/1/model.py', PYTHON_MODEL)
    write('cached/config.pbtxt', `${PYTHON_CONFIG}\nresponse_cache { enable: true }`)
    write('two/1/model.py', PYTHON_MODEL)
    write('two/config.pbtxt', `${PYTHON_CONFIG}\ninstance_group [{ count: 2, kind: KIND_CPU }]`)
    server = await TestServer.start(root, [
      `--backend-config=python,python-executable=${PYTHON}`,
      '--cache-config=local,size=100000000',
      '--model-control-mode=explicit',
      '--load-model=*',
    ])
  }, 90_000)
  afterAll(async () => {
    expect(await server?.stop()).toBe(0)
    rmSync(root, { recursive: true, force: true })
  })

  const ask = async (...parts: (string | Buffer)[]) => {
    const connection = await RawConnection.open(server.httpPort)
    connection.send(...parts)
    const answer = await connection.answer()
    connection.destroy()
    return answer
  }

  /** Waits until no block of inputs is in use. A process gives the last one back with its next answer. */
  const nothingIsHeld = (model: string) =>
    expect
      .poll(
        async () => {
          await ask(...request(model, { A: floats(1) }))
          const text = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
          const line = new RegExp(`^nereid_runner_request_bytes\\{model="${model}"[^\\n]* (\\d+)$`, 'm')
          return Number(line.exec(text)?.[1])
        },
        { timeout: 10_000 },
      )
      .toBe(0)

  describe.each(['typescript', 'python'])('of %s', (model) => {
    test('of any size are right', async () => {
      for (const count of [1, 16_383, 16_384, 16_385, 25_000, 262_144, 1_000_003]) {
        const sent = floats(count, count)
        expectSame(outputs(await ask(...request(model, { A: sent })))['A1'], plusOne(sent))
      }
    })

    test('in two inputs and two outputs are right', async () => {
      const [a, b] = [floats(100_000), floats(70_001, 5)]
      const found = outputs(await ask(...request(model, { A: a, B: b })))
      expectSame(found['A1'], plusOne(a))
      expectSame(found['B1'], plusOne(b))
    })

    test('may arrive in pieces, beside each other', async () => {
      const one = async (n: number) => {
        const sent = floats(50_000 + n, n)
        const whole = Buffer.concat(request(model, { A: sent }))
        const connection = await RawConnection.open(server.httpPort)
        let from = 0
        for (const end of [10 + n, 300, 301, 20_000, 20_001 + n, 150_000, whole.length]) {
          connection.send(whole.subarray(from, end))
          from = end
          await new Promise((resolve) => setTimeout(resolve, 2))
        }
        expectSame(outputs(await connection.answer())['A1'], plusOne(sent))
        connection.destroy()
      }
      await Promise.all(Array.from({ length: 12 }, (_, n) => one(n)))
    })

    test('follow each other on one connection', async () => {
      const connection = await RawConnection.open(server.httpPort)
      const all = Array.from({ length: 20 }, (_, n) => floats(n % 3 === 0 ? 10 : 40_000 + n, n))
      for (const sent of all) connection.send(...request(model, { A: sent }))
      for (const sent of all) expectSame(outputs(await connection.answer())['A1'], plusOne(sent))
      connection.destroy()
    })

    test('as JSON, with 100-continue, and compressed both ways are right', async () => {
      const sent = floats(30_000)
      const json = JSON.parse((await ask(...request(model, { A: sent }, { isBinary: false }))).body.toString())
      expectSame(Float32Array.from(json.outputs[0].data as number[]), plusOne(sent))
      const [head, ...body] = request(model, { A: sent }, { headers: ['Expect: 100-continue'] })
      const connection = await RawConnection.open(server.httpPort)
      connection.send(head as Buffer)
      expect((await connection.answer()).status).toBe(100)
      connection.send(...body)
      expectSame(outputs(await connection.answer())['A1'], plusOne(sent))
      connection.destroy()
      const small = await ask(...request(model, { A: sent }, { headers: ['Accept-Encoding: gzip'] }))
      expect(small.headers.get('content-encoding')).toBe('gzip')
      expectSame(outputs({ ...small, body: gunzipSync(small.body) })['A1'], plusOne(sent))
      const [, text, tensor] = request(model, { A: sent })
      const packed = gzipSync(Buffer.concat([text as Buffer, tensor as Buffer]))
      const headers = [`Inference-Header-Content-Length: ${text?.length}`, 'Content-Encoding: gzip']
      expectSame(outputs(await ask(post(`/v2/models/${model}/infer`, packed, ...headers)))['A1'], plusOne(sent))
    })

    test('of a wrong length get the errors of Triton, and the connection goes on', async () => {
      const connection = await RawConnection.open(server.httpPort)
      const text = async (more: number, shape = 0) => {
        const parts = request(model, { A: floats(30_000 + shape) }, { more })
        connection.send(...parts)
        const { status, body } = await connection.answer()
        return [status, (JSON.parse(body.toString()) as { error: string }).error]
      }
      expect(await text(4)).toEqual([400, `unexpected additional input data for model '${model}'`])
      expect(await text(-4)).toEqual([
        400,
        `unexpected size for input 'A', expecting 4 additional bytes for model '${model}'`,
      ])
      connection.send(...request(model, { A: floats(30_000) }))
      expectSame(outputs(await connection.answer())['A1'], plusOne(floats(30_000)))
      connection.destroy()
    })

    test('of clients that leave are given back', async () => {
      const whole = Buffer.concat(request(model, { A: floats(250_000) }))
      for (let n = 0; n < 60; n += 1) {
        const connection = await RawConnection.open(server.httpPort)
        connection.send(whole.subarray(0, 20_000 * n))
        // Some leave while they send, some while the model runs, some before they read.
        if (n % 3 === 0) await new Promise((resolve) => setTimeout(resolve, 3))
        connection.destroy()
      }
      await nothingIsHeld(model)
      expectSame(outputs(await ask(...request(model, { A: floats(250_000) })))['A1'], plusOne(floats(250_000)))
    })

    test('of clients that do not read delay nobody', async () => {
      const slow = await Promise.all(Array.from({ length: 8 }, () => RawConnection.open(server.httpPort)))
      for (const connection of slow) connection.pause()
      for (const connection of slow) connection.send(...request(model, { A: floats(2_000_000) }))
      for (let n = 0; n < 30; n += 1)
        expectSame(outputs(await ask(...request(model, { A: floats(40_000, n) })))['A1'], plusOne(floats(40_000, n)))
      for (const connection of slow) {
        connection.resume()
        expectSame(outputs(await connection.answer())['A1'], plusOne(floats(2_000_000)))
        connection.destroy()
      }
    })

    test('that are only announced take no memory, and leave room', async () => {
      const resident = async () => {
        const text = await readFile(`/proc/${server.process.pid}/status`, 'utf8')
        return Number(/RssShmem:\s+(\d+)/.exec(text)?.[1])
      }
      const before = await resident()
      const waiting = await Promise.all(Array.from({ length: 40 }, () => RawConnection.open(server.httpPort)))
      const [head] = request(model, { A: floats(1) }, { more: 64 << 20 })
      for (const connection of waiting) connection.send(head as Buffer)
      await Promise.all(
        Array.from({ length: 30 }, async (_, n) => {
          const sent = floats(300_000, n)
          expectSame(outputs(await ask(...request(model, { A: sent })))['A1'], plusOne(sent))
        }),
      )
      expect((await resident()) - before).toBeLessThan(100 << 10)
      for (const connection of waiting) connection.destroy()
      await nothingIsHeld(model)
    })

    test('do not outlive their model, and are not lost with it', async () => {
      const first = await RawConnection.open(server.httpPort)
      const whole = Buffer.concat(request(model, { A: floats(90_000) }))
      first.send(whole.subarray(0, 200_000))
      await new Promise((resolve) => setTimeout(resolve, 50))
      for (const act of ['unload', 'load'])
        expect((await fetch(`${server.url}/v2/repository/models/${model}/${act}`, { method: 'POST' })).status).toBe(200)
      // Its first half lies in memory of the version before.
      first.send(whole.subarray(200_000))
      expectSame(outputs(await first.answer())['A1'], plusOne(floats(90_000)))
      first.destroy()
    }, 30_000)
  })

  test('of a model with a cache are found there', async () => {
    const before = server.metricsPort
    for (let n = 0; n < 3; n += 1)
      expectSame(outputs(await ask(...request('cached', { A: floats(40_000) })))['A1'], plusOne(floats(40_000)))
    const text = await (await fetch(`http://127.0.0.1:${before}/metrics`)).text()
    expect(text).toMatch(/nv_cache_num_hits_per_model\{model="cached"[^\n]* 2$/m)
  })

  test('of two instances are right', async () => {
    const answers = await Promise.all(
      Array.from({ length: 24 }, async (_, n) => {
        const { A1 } = outputs(await ask(...request('two', { A: floats(60_000, n) })))
        return A1
      }),
    )
    for (const [n, found] of answers.entries()) expectSame(found, plusOne(floats(60_000, n)))
  })

  test('that end their process fail alone', async () => {
    const deadly = floats(80_000)
    deadly[1] = -13
    for (let n = 0; n < 3; n += 1) {
      const { status, body } = await ask(...request('python', { A: deadly }))
      expect([status, body.toString()]).toEqual([500, '{"error":"Stub process \'python_0\' is not healthy."}'])
      await expect
        .poll(async () => (await fetch(`${server.url}/v2/models/python/ready`)).status, { timeout: 10_000 })
        .toBe(200)
      expectSame(outputs(await ask(...request('python', { A: floats(80_000, n) })))['A1'], plusOne(floats(80_000, n)))
    }
    await nothingIsHeld('python')
  }, 30_000)
})

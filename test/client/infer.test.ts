/** Inferences return their inputs, with every transport and datatype (P-50 to P-80 are the server's side). */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import {
  ClientError,
  bfloat16,
  float16,
  type Datatype,
  type TensorData,
  type TensorInput,
} from '../../client/src/index.js'
import { WAYS, serving } from './transports.js'

const { client } = serving()

const sixteen = Int32Array.from({ length: 16 }, (_, i) => i)

const SAMPLES: [Datatype, TensorData, readonly unknown[]][] = [
  ['BOOL', [true, false, true], [1, 0, 1]],
  ['UINT8', Uint8Array.of(0, 255), [0, 255]],
  ['UINT16', Uint16Array.of(0, 65535), [0, 65535]],
  ['UINT32', Uint32Array.of(0, 2 ** 32 - 1), [0, 2 ** 32 - 1]],
  ['UINT64', BigUint64Array.of(0n, 2n ** 64n - 1n), [0n, 2n ** 64n - 1n]],
  ['INT8', Int8Array.of(-128, 127), [-128, 127]],
  ['INT16', Int16Array.of(-32768, 32767), [-32768, 32767]],
  ['INT32', Int32Array.of(-(2 ** 31), 2 ** 31 - 1), [-(2 ** 31), 2 ** 31 - 1]],
  ['INT64', BigInt64Array.of(-(2n ** 63n), 2n ** 53n + 1n), [-(2n ** 63n), 2n ** 53n + 1n]],
  ['FP16', float16.encode([0.5, -2, Infinity]), [0x3800, 0xc000, 0x7c00]],
  ['BF16', bfloat16.encode([0.5, -2]), [0x3f00, 0xc000]],
  ['FP32', Float32Array.of(0.1, NaN, -0), [Math.fround(0.1), NaN, -0]],
  ['FP64', Float64Array.of(0.1, 1e300), [0.1, 1e300]],
]

describe.each(WAYS)('$name', (way) => {
  test('typed arrays are sent and come back, their shapes follow from the model', async () => {
    const result = await client(way).infer(
      'simple',
      { INPUT0: sixteen, INPUT1: new Int32Array(16).fill(1) },
      { id: 'seven' },
    )
    expect([result.model, result.version, result.id]).toEqual(['simple', '1', 'seven'])
    expect(result.output('OUTPUT0').shape).toEqual([1, 16])
    expect(result.output('OUTPUT0').as('INT32')).toEqual(sixteen.map((x) => x + 1))
    expect(result.output('OUTPUT1').as('INT32')).toEqual(sixteen.map((x) => x - 1))
  })

  test.each(SAMPLES)('%s has an array type, and every bit of it comes back', async (datatype, data, expected) => {
    const length = (data as ArrayLike<unknown>).length
    const result = await client(way).infer(`id_${datatype.toLowerCase()}`, { INPUT0: { data, shape: [1, length] } })
    const output = result.output('OUTPUT0')
    expect(output.datatype).toBe(datatype)
    expect(Array.from(output.data as ArrayLike<unknown>)).toEqual(expected)
  })

  test('files are elements of BYTES: a Blob, a File, a path, a list of them', async () => {
    const path = join(mkdtempSync(join(tmpdir(), 'nereid-file-')), 'a.bin')
    writeFileSync(path, Uint8Array.of(0, 255, 128))
    const blob = new Blob([Uint8Array.of(0, 255, 128)])
    const file = new File(['hello'], 'a.txt', { type: 'text/plain' })
    const ask = async (INPUT0: TensorInput) => (await client(way).infer('id_string', { INPUT0 })).output('OUTPUT0')
    // A browser has no paths.
    const place = way.name === 'fetch' ? blob : { path }
    for (const input of [blob, { data: blob, shape: [1, 1] }, place, [place]]) {
      const output = await ask(input)
      expect([output.datatype, output.shape, output.as('BYTES')]).toEqual([
        'BYTES',
        [1, 1],
        [Uint8Array.of(0, 255, 128)],
      ])
    }
    const rows = await ask({ data: [file, place], shape: [2, 1] })
    expect([rows.shape, rows.as('BYTES')]).toEqual([
      [2, 1],
      [new TextEncoder().encode('hello'), Uint8Array.of(0, 255, 128)],
    ])
    await expect(ask({ path: `${path}.absent` })).rejects.toThrow(
      way.name === 'fetch' ? 'there are no paths in a browser' : `input 'INPUT0': cannot read '${path}.absent': ENOENT`,
    )
    await expect(client(way).infer('simple', { INPUT0: blob, INPUT1: sixteen })).rejects.toThrow(
      "input 'INPUT0': BYTES was given, model 'simple' expects INT32 [-1,16]",
    )
    rmSync(path)
  })

  test('BYTES are strings or bytes', async () => {
    const texts = ['', 'ä', 'two words', '\u{1f600}']
    const one = await client(way).infer('id_string', { INPUT0: { data: texts, shape: [1, 4] } })
    expect(one.output('OUTPUT0').strings()).toEqual(texts)
    const bytes = [Uint8Array.of(0, 255, 128), new Uint8Array(0)]
    const two = await client(way).infer('id_string', { INPUT0: { data: bytes, shape: [2, 1] } })
    expect(
      two
        .output('OUTPUT0')
        .as('BYTES')
        .map((part) => [...part]),
    ).toEqual([[0, 255, 128], []])
  })

  test('a megabyte comes back, also where a tensor begins at an odd place', async () => {
    const data = Float32Array.from({ length: 262_144 }, (_, i) => i)
    for (const id of ['a', 'ab', 'abc']) {
      const result = await client(way).infer('echo', { INPUT0: data }, { id })
      expect(
        Buffer.compare(
          Buffer.from(
            result.output('OUTPUT0').as('FP32').buffer,
            result.output('OUTPUT0').as('FP32').byteOffset,
            1 << 20,
          ),
          Buffer.from(data.buffer),
        ),
      ).toBe(0)
    }
  })

  test("lists of numbers are converted to the model's datatype", async () => {
    const result = await client(way).infer('simple', { INPUT0: Array(16).fill(2), INPUT1: Array(16).fill(3n) })
    expect(result.output('OUTPUT0').as('INT32')).toEqual(new Int32Array(16).fill(5))
    const halves = await client(way).infer('id_fp16', { INPUT0: { data: [1.5, -0.25], shape: [2, 1] } })
    expect(halves.output('OUTPUT0').floats()).toEqual(Float32Array.of(1.5, -0.25))
  })

  test('a wrong input is rejected before it is sent, with its name and its value', async () => {
    const target = client(way)
    const refused = async (inputs: Parameters<typeof target.infer>[1], text: string) => {
      const error = await target.infer('simple', inputs).catch((error: unknown) => error)
      expect(error).toBeInstanceOf(ClientError)
      expect(error).toMatchObject({ code: 'INVALID_ARG', status: 0, text, mayHaveRun: false })
    }
    await refused(
      { INPUT0: new Int32Array(3) },
      "input 'INPUT0': 3 elements of INT32 do not fill the shape [-1,16] of model 'simple'",
    )
    await refused(
      { INPUT0: { data: new Int32Array(3), shape: [1, 3] } },
      "input 'INPUT0': shape [1,3] was given, model 'simple' expects [-1,16]",
    )
    await refused(
      { INPUT0: new Float32Array(16) },
      "input 'INPUT0': FP32 was given, model 'simple' expects INT32 [-1,16]",
    )
    await refused(
      { X: new Int32Array(16) },
      "input 'X': model 'simple' has no such input; it has INPUT0 INT32 [-1,16], INPUT1 INT32 [-1,16]",
    )
    await refused({ INPUT0: ['a'] }, "input 'INPUT0': BYTES was given, model 'simple' expects INT32 [-1,16]")
    await refused(
      { INPUT0: { data: [1.5], shape: [1, 16] } },
      "input 'INPUT0': element 0 is 1.5, an integer from -2147483648 to 2147483647 was expected for INT32",
    )
    await refused(
      { INPUT0: { data: new Int32Array(8), shape: [1, 16] } },
      "input 'INPUT0': 8 elements of INT32 do not fill its shape [1,16], which has 16",
    )
  })

  test('a shape that the elements leave open has to be given', async () => {
    await expect(client(way).infer('id_fp32', { INPUT0: new Float32Array(6) })).rejects.toThrow(
      /6 elements of FP32 can have the shape \[-1,-1\] of model 'id_fp32' in more than one way: give it a shape/,
    )
    const result = await client(way).infer('variable', { X: { data: new Float32Array(6).fill(1), shape: [2, 3] } })
    expect(result.output('SUM').as('FP32')).toEqual(Float32Array.of(3, 3))
  })

  test("an error has the server's text and the call", async () => {
    const error = await client(way)
      .infer('nobody', { A: new Int32Array(1) }, { id: 'x' })
      .catch((error: unknown) => error)
    expect(error).toMatchObject({
      code: 'NOT_FOUND',
      text: "Request for unknown model: 'nobody' is not found",
      requestId: 'x',
    })
    expect((error as ClientError).asked).toContain('nobody')
    const missing = await client(way)
      .infer('simple', { INPUT0: sixteen }, { id: 'y' })
      .catch((error: unknown) => error)
    expect(missing).toMatchObject({ code: 'INVALID_ARG', requestId: 'y' })
    expect((missing as ClientError).text).toContain("expected 2 inputs but got 1 inputs for model 'simple'")
  })

  test('without metadata nothing is checked here, and shapes have to be given', async () => {
    const blind = client(way, { check: false })
    await expect(blind.infer('simple', { INPUT0: sixteen })).rejects.toThrow(
      /it has no shape, and the metadata of model 'simple' are unknown/,
    )
    await expect(
      blind.infer('simple', {
        INPUT0: { data: new Int32Array(3), shape: [1, 3] },
        INPUT1: { data: new Int32Array(3), shape: [1, 3] },
      }),
    ).rejects.toThrow(/unexpected shape for input 'INPUT.' for model 'simple'. Expected \[-1,16\], got \[1,3\]/)
  })

  test('outputs can be chosen, and be asked for as classes', async () => {
    const one = await client(way).infer('simple', { INPUT0: sixteen, INPUT1: sixteen }, { outputs: ['OUTPUT1'] })
    expect(one.outputs.map((output) => output.name)).toEqual(['OUTPUT1'])
    expect(() => one.output('OUTPUT0')).toThrow(/no output 'OUTPUT0' in the response of 'simple', which has OUTPUT1/)
    const data = { data: Float32Array.of(0.5, 9, 1, 7, -3), shape: [1, 5] }
    const best = await client(way).infer(
      'classify',
      { INPUT0: data },
      { outputs: [{ name: 'OUTPUT0', classification: 3 }] },
    )
    expect(best.output('OUTPUT0').classes()).toEqual([
      { value: 9, index: 1, label: 'one' },
      { value: 7, index: 3, label: 'three with space' },
      { value: 1, index: 2, label: '' },
    ])
  })

  test('a version is chosen by number', async () => {
    const target = async (version: number) => [
      ...(await client(way).infer('versions', { INPUT0: Int32Array.of(1, 2, 3, 4) }, { version }))
        .output('OUTPUT0')
        .as('INT32'),
    ]
    expect([await target(1), await target(2)]).toEqual([
      [2, 3, 4, 5],
      [10, 20, 30, 40],
    ])
  })

  test('many at a time get their own answers', async () => {
    const answers = await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        const result = await client(way, {}).infer(
          'tag_batched',
          { INPUT0: new BigInt64Array(4).fill(BigInt(i)) },
          { id: String(i) },
        )
        return (
          result.id === String(i) &&
          result
            .output('OUTPUT0')
            .as('INT64')
            .every((x) => x === BigInt(i))
        )
      }),
    )
    expect(answers.every(Boolean)).toBe(true)
  })

  test('a response stays unchanged while others arrive', async () => {
    const target = client(way)
    for (const length of [4, 200, 100_000]) {
      const rounds = Array.from({ length: 20 }, (_, i) => i)
      const kept: ArrayLike<number>[] = []
      for (const i of rounds)
        kept.push(
          (await target.infer('echo', { INPUT0: new Float32Array(length).fill(i) })).output('OUTPUT0').as('FP32'),
        )
      expect(kept.map((data, i) => Array.from(data).every((x) => x === i))).toEqual(rounds.map(() => true))
    }
  })

  test('raw bytes match any given datatype', async () => {
    const raw = new Uint8Array(Int32Array.of(5, 6, 7, 8).buffer)
    const result = await client(way).infer('versions', { INPUT0: { data: raw, datatype: 'INT32' } }, { version: 1 })
    expect([...result.output('OUTPUT0').as('INT32')]).toEqual([6, 7, 8, 9])
  })
})

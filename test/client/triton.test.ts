/** NVIDIA's own server with Python models: the client supports it as well. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Client } from '../../client/src/index.js'
import { absent } from './absent.js'
import { WAYS, type Way } from './transports.js'
import { obstacle, startTriton, type Triton } from './triton.js'

const reason = obstacle()
if (reason !== null) absent('Triton of nvidia-pytriton', reason)

describe.skipIf(reason !== null)('Triton', () => {
  let triton: Triton
  const clients: Client[] = []
  const client = (way: Way): Client => {
    const one = way.connect(triton)
    clients.push(one)
    return one
  }
  beforeAll(async () => {
    triton = await startTriton()
  }, 120_000)
  afterAll(async () => {
    for (const one of clients) one.close()
    await triton?.stop()
  })

  describe.each(WAYS)('$name', (way) => {
    test('describes itself', async () => {
      const target = client(way)
      expect([
        await target.live(),
        await target.ready(),
        await target.modelReady('identity'),
        await target.modelReady('nobody'),
      ]).toEqual([true, true, true, false])
      expect(await target.serverMetadata()).toMatchObject({ name: 'triton', version: expect.stringMatching(/^2\./) })
      expect(await target.modelMetadata('strings')).toMatchObject({
        inputs: [{ name: 'TEXT', datatype: 'BYTES', shape: [-1, -1] }],
      })
      expect((await target.index({ ready: true })).map((row) => row.name).sort()).toEqual([
        'decoupled',
        'identity',
        'longs',
        'strings',
      ])
      expect(await target.modelConfig('longs')).toMatchObject({
        name: 'longs',
        max_batch_size: 8,
        input: [{ data_type: 'TYPE_INT64', dims: [2] }],
      })
    })

    test('returns its inputs: a few floats, a megabyte, 64-bit integers', async () => {
      const target = client(way)
      for (const length of [3, 262_144]) {
        const data = Float32Array.from({ length }, (_, i) => i)
        expect((await target.infer('identity', { INPUT0: data }, { id: 'x' })).output('OUTPUT0').as('FP32')).toEqual(
          data,
        )
      }
      const longs = await target.infer('longs', { INPUT0: BigInt64Array.of(2n ** 53n, -2n) })
      expect(longs.output('OUTPUT0').as('INT64')).toEqual(BigInt64Array.of(2n ** 53n + 1n, -1n))
    })

    test('strings', async () => {
      const result = await client(way).infer('strings', { TEXT: { data: ['ä', 'two words'], shape: [1, 2] } })
      expect(result.output('UPPER').strings()).toEqual(['Ä', 'TWO WORDS'])
    })

    test('errors, statistics and settings', async () => {
      const target = client(way)
      await expect(target.infer('nobody', { A: Int32Array.of(1) })).rejects.toMatchObject({
        code: 'NOT_FOUND',
        text: expect.stringContaining("unknown model: 'nobody'"),
      })
      await expect(target.infer('longs', { INPUT0: { data: BigInt64Array.of(1n), shape: [1, 1] } })).rejects.toThrow(
        /expects \[-1,2\]/,
      )
      await expect(target.infer('decoupled', { N: Int32Array.of(1) })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
      expect(Number((await target.statistics('identity'))[0]?.inference_count)).toBeGreaterThan(0)
      expect(await target.logSettings({ update: { log_verbose_level: 0 } })).toMatchObject({ log_info: true })
    })

    test('bodies are compressed', async () => {
      const target = way.connect(triton, { compress: 'gzip', acceptCompressed: true })
      clients.push(target)
      expect(
        (await target.infer('identity', { INPUT0: new Float32Array(10_000) })).output('OUTPUT0').as('FP32').length,
      ).toBe(10_000)
    })

    test('many answers', async () => {
      const values: unknown[] = []
      if (way.isGrpc)
        for await (const answer of client(way).inferStream('decoupled', { N: Int32Array.of(5) }))
          values.push(answer.output('I').as('INT32')[0])
      else for await (const event of client(way).generateStream('decoupled', { N: 5 })) values.push(event['I'])
      expect(values).toEqual([0, 1, 2, 3, 4])
    })

    test('models are unloaded and loaded', async () => {
      const target = client(way)
      await target.unload('longs')
      await expect.poll(() => target.modelReady('longs'), { timeout: 20_000 }).toBe(false)
      await target.load('longs')
      expect(await target.modelReady('longs')).toBe(true)
    })
  })
})

/** Everything except inference: health, metadata, configuration, statistics, repository, settings. */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { WAYS, serving } from './transports.js'

const { server, client } = serving([
  '--model-control-mode=explicit',
  '--load-model=simple',
  '--load-model=versions',
  '--load-model=id_int64',
  '--trace-config=triton,file=/dev/null',
])

describe.each(WAYS)('$name', (way) => {
  test('health and readiness are answers, not errors', async () => {
    const target = client(way)
    expect([
      await target.live(),
      await target.ready(),
      await target.modelReady('simple'),
      await target.modelReady('nobody'),
      await target.modelReady('versions', { version: 3 }),
    ]).toEqual([true, true, true, false, false])
  })

  test('metadata describe a server and its models', async () => {
    const target = client(way)
    expect((await target.serverMetadata()).extensions).toContain('binary_tensor_data')
    expect(await target.modelMetadata('versions')).toEqual({
      name: 'versions',
      versions: ['1', '2'],
      platform: 'onnxruntime_onnx',
      inputs: [{ name: 'INPUT0', datatype: 'INT32', shape: [-1, 4] }],
      outputs: [{ name: 'OUTPUT0', datatype: 'INT32', shape: [-1, 4] }],
    })
    expect((await target.modelMetadata('versions', { version: 2 })).versions).toEqual(['2'])
    await expect(target.modelMetadata('nobody')).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  test('the configuration has its defaults', async () => {
    expect(await client(way).modelConfig('simple')).toMatchObject({
      name: 'simple',
      backend: 'onnxruntime',
      max_batch_size: 8,
      input: [{ name: 'INPUT0', data_type: 'TYPE_INT32', dims: [16] }, { name: 'INPUT1' }],
    })
  })

  test('the configuration is the same over every transport', async () => {
    const whole = await (await fetch(`${server().url}/v2/models/simple/config`)).json()
    expect(await client(way).modelConfig('simple')).toEqual(whole)
  })

  test('statistics count requests', async () => {
    const target = client(way)
    const count = async () => Number((await target.statistics('simple'))[0]?.inference_stats.success.count)
    const before = await count()
    await target.infer('simple', { INPUT0: new Int32Array(16), INPUT1: new Int32Array(16) })
    await expect.poll(count).toBe(before + 1)
    expect((await target.statistics()).map((row) => row.name).sort()).toEqual([
      'id_int64',
      'simple',
      'versions',
      'versions',
    ])
  })

  test('models are loaded with a configuration and files of their own, and unloaded', async () => {
    const target = client(way)
    const file = readFileSync(`${server().repository}/id_fp32/1/model.onnx`)
    const config = {
      backend: 'onnxruntime',
      max_batch_size: 0,
      input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [-1, -1] }],
      output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [-1, -1] }],
    }
    await target.load('id_fp32', { config, files: { '3/model.onnx': file } })
    expect((await target.modelMetadata('id_fp32')).versions).toEqual(['3'])
    expect(await target.index({ ready: true })).toContainEqual({ name: 'id_fp32', version: '3', state: 'READY' })
    const result = await target.infer('id_fp32', { INPUT0: { data: Float32Array.of(1, 2, 3, 4), shape: [2, 2] } })
    expect(result.output('OUTPUT0').shape).toEqual([2, 2])
    await target.unload('id_fp32')
    await expect.poll(() => target.modelReady('id_fp32')).toBe(false)
    await expect(target.load('id_fp32', { files: { '1/model.onnx': file } })).rejects.toThrow(/files need a config/)
    await expect(target.load('nobody')).rejects.toMatchObject({
      code: 'INTERNAL',
      text: "failed to load 'nobody', failed to poll from model repository",
    })
  })

  test('a model that was loaded again with other inputs is asked for again', async () => {
    const target = client(way)
    const config = (dim: number) => ({
      backend: 'identity',
      max_batch_size: 0,
      input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [dim] }],
      output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [dim] }],
    })
    await target.load('echo', { config: config(2) })
    await target.infer('echo', { INPUT0: new Float32Array(2) })
    await client(way).load('echo', { config: config(3) })
    expect((await target.infer('echo', { INPUT0: new Float32Array(3) })).output('OUTPUT0').shape).toEqual([3])
    await target.unload('echo')
  })

  test('trace and log settings are read and changed', async () => {
    const target = client(way)
    expect(await target.traceSettings({ update: { trace_rate: '7', trace_level: ['TIMESTAMPS'] } })).toMatchObject({
      trace_rate: '7',
      trace_level: ['TIMESTAMPS'],
    })
    expect(await target.traceSettings({ model: 'simple', update: { trace_rate: '9' } })).toMatchObject({
      trace_rate: '9',
    })
    expect(await target.traceSettings({ model: 'simple', update: { trace_rate: null } })).toMatchObject({
      trace_rate: '7',
    })
    expect(await target.traceSettings({ update: { trace_rate: null, trace_level: null } })).toMatchObject({
      trace_rate: '1000',
      trace_level: ['OFF'],
    })
    expect(await target.logSettings({ update: { log_verbose_level: 1, log_info: false } })).toMatchObject({
      log_verbose_level: 1,
      log_info: false,
      log_format: 'default',
    })
    expect(await target.logSettings({ update: { log_verbose_level: 0, log_info: true } })).toMatchObject({
      log_verbose_level: 0,
      log_info: true,
    })
    await expect(target.logSettings({ update: { log_file: 'x' } })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
  })
})

/** Everything beside inference: health, metadata, configuration, statistics, repository, settings. */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { WAYS, serving } from './transports.js'

const { server, client } = serving(['--model-control-mode=explicit', '--load-model=simple', '--load-model=versions', '--load-model=id_int64', '--trace-config=triton,file=/dev/null'])

describe.each(WAYS)('$name', (way) => {
  test('health and readiness are answers, not errors', async () => {
    const asked = client(way)
    expect([await asked.live(), await asked.ready(), await asked.modelReady('simple'), await asked.modelReady('nobody'), await asked.modelReady('versions', { version: 3 })]).toEqual([true, true, true, false, false])
  })

  test('metadata say what a server and its models are', async () => {
    const asked = client(way)
    expect((await asked.serverMetadata()).extensions).toContain('binary_tensor_data')
    expect(await asked.modelMetadata('versions')).toEqual({
      name: 'versions',
      versions: ['1', '2'],
      platform: 'onnxruntime_onnx',
      inputs: [{ name: 'INPUT0', datatype: 'INT32', shape: [-1, 4] }],
      outputs: [{ name: 'OUTPUT0', datatype: 'INT32', shape: [-1, 4] }],
    })
    expect((await asked.modelMetadata('versions', { version: 2 })).versions).toEqual(['2'])
    await expect(asked.modelMetadata('nobody')).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  test('the configuration has its defaults', async () => {
    expect(await client(way).modelConfig('simple')).toMatchObject({ name: 'simple', backend: 'onnxruntime', max_batch_size: 8, input: [{ name: 'INPUT0', data_type: 'TYPE_INT32', dims: [16] }, { name: 'INPUT1' }] })
  })

  test('the configuration is the same over every transport', async () => {
    const whole = await (await fetch(`${server().url}/v2/models/simple/config`)).json()
    expect(await client(way).modelConfig('simple')).toEqual(whole)
  })

  test('statistics count what was asked', async () => {
    const asked = client(way)
    const count = async () => Number((await asked.statistics('simple'))[0]?.inference_stats.success.count)
    const before = await count()
    await asked.infer('simple', { INPUT0: new Int32Array(16), INPUT1: new Int32Array(16) })
    await expect.poll(count).toBe(before + 1)
    expect((await asked.statistics()).map((row) => row.name).sort()).toEqual(['id_int64', 'simple', 'versions', 'versions'])
  })

  test('models are loaded with a configuration and files of their own, and unloaded', async () => {
    const asked = client(way)
    const file = readFileSync(`${server().repository}/id_fp32/1/model.onnx`)
    const config = { backend: 'onnxruntime', max_batch_size: 0, input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [-1, -1] }], output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [-1, -1] }] }
    await asked.load('id_fp32', { config, files: { '3/model.onnx': file } })
    expect((await asked.modelMetadata('id_fp32')).versions).toEqual(['3'])
    expect(await asked.index({ ready: true })).toContainEqual({ name: 'id_fp32', version: '3', state: 'READY' })
    const result = await asked.infer('id_fp32', { INPUT0: { data: Float32Array.of(1, 2, 3, 4), shape: [2, 2] } })
    expect(result.output('OUTPUT0').shape).toEqual([2, 2])
    await asked.unload('id_fp32')
    await expect.poll(() => asked.modelReady('id_fp32')).toBe(false)
    await expect(asked.load('id_fp32', { files: { '1/model.onnx': file } })).rejects.toThrow(/files need a config/)
    await expect(asked.load('nobody')).rejects.toMatchObject({ code: 'INTERNAL', text: "failed to load 'nobody', failed to poll from model repository" })
  })

  test('a model that was loaded again with other inputs is asked for again', async () => {
    const asked = client(way)
    const config = (dim: number) => ({ backend: 'identity', max_batch_size: 0, input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [dim] }], output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [dim] }] })
    await asked.load('echo', { config: config(2) })
    await asked.infer('echo', { INPUT0: new Float32Array(2) })
    await client(way).load('echo', { config: config(3) })
    expect((await asked.infer('echo', { INPUT0: new Float32Array(3) })).output('OUTPUT0').shape).toEqual([3])
    await asked.unload('echo')
  })

  test('trace and log settings are read and changed', async () => {
    const asked = client(way)
    expect(await asked.traceSettings({ update: { trace_rate: '7', trace_level: ['TIMESTAMPS'] } })).toMatchObject({ trace_rate: '7', trace_level: ['TIMESTAMPS'] })
    expect(await asked.traceSettings({ model: 'simple', update: { trace_rate: '9' } })).toMatchObject({ trace_rate: '9' })
    expect(await asked.traceSettings({ model: 'simple', update: { trace_rate: null } })).toMatchObject({ trace_rate: '7' })
    expect(await asked.traceSettings({ update: { trace_rate: null, trace_level: null } })).toMatchObject({ trace_rate: '1000', trace_level: ['OFF'] })
    expect(await asked.logSettings({ update: { log_verbose_level: 1, log_info: false } })).toMatchObject({ log_verbose_level: 1, log_info: false, log_format: 'default' })
    expect(await asked.logSettings({ update: { log_verbose_level: 0, log_info: true } })).toMatchObject({ log_verbose_level: 0, log_info: true })
    await expect(asked.logSettings({ update: { log_file: 'x' } })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
  })
})

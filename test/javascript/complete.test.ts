/** B-JS-02: declarations complete config.pbtxt; what contradicts it is an error that names both. */
import { expect, test } from 'vitest'
import { Frame } from '../../src/javascript/generated/protocol.js'
import { type Configuration, type ModelConfig, defineModel } from '../../src/javascript/index.js'
import { RawHost } from './raw.js'

const declared = defineModel({
  maxBatchSize: 8,
  inputs: {
    IN: { datatype: 'FP32', dims: [-1, 3] },
    MASK: { datatype: 'BOOL', dims: [1], optional: true },
  },
  outputs: { OUT: { datatype: 'BYTES', dims: [1] } },
  execute: () => null,
})

/** The completed configuration, null, or the text of the failure. */
async function completed(model: object, config: Configuration = {}): Promise<Configuration | string | null> {
  const host = new RawHost()
  const answer = await host.load(model, { mode: 'complete', config })
  if (answer['text'] !== undefined) return String(answer['text'])
  expect(await host.ended).toBe(0)
  return answer['config'] === null ? null : (JSON.parse(String(answer['config'])) as Configuration)
}

test('declarations become inputs, outputs and the batch size of a configuration', async () => {
  expect(await completed(declared)).toEqual({
    name: 'm',
    max_batch_size: 8,
    input: [
      { name: 'IN', data_type: 'TYPE_FP32', dims: [-1, 3] },
      { name: 'MASK', data_type: 'TYPE_BOOL', dims: [1], optional: true },
    ],
    output: [{ name: 'OUT', data_type: 'TYPE_STRING', dims: [1] }],
  })
})

test('a configuration may be stricter than the declaration, and keeps what it has', async () => {
  const input = [{ name: 'IN', data_type: 'TYPE_FP32', dims: [16, 3], reshape: { shape: [48] } }]
  const wanted = { max_batch_size: 4, input: [input[0], {}] }
  expect(await completed(declared, { max_batch_size: 4, input })).toMatchObject(wanted)
})

test('an input that the configuration makes optional is not required by the model', async () => {
  const input = [{ name: 'IN', data_type: 'TYPE_FP32', dims: [3], optional: true }]
  const required = { inputs: { IN: { datatype: 'FP32', dims: [3], optional: false } }, execute: () => null }
  expect(await completed(required, { input })).toBe(
    "model 'm', tensor 'IN': the model expects optional false but the model configuration specifies optional true",
  )
  const unsaid = { inputs: { IN: { datatype: 'FP32', dims: [3] } }, execute: () => null }
  expect(await completed(unsaid, { input })).toMatchObject({ input })
})

test('a wrong declaration names the model, the key, what was found and what was meant', async () => {
  const execute = () => null
  const declared = (tensor: unknown) => completed({ inputs: { IN: tensor }, execute })
  expect(await declared({ datatype: 'FP32' })).toBe(
    "model 'm': inputs.IN.dims must be an array of integers, found undefined",
  )
  expect(await declared({ datatype: 'FP32', dims: 3 })).toMatch(/ found 3$/)
  expect(await declared({ datatype: 'FP32', dim: [3] })).toBe(
    "model 'm': inputs.IN: there is no key 'dim': did you mean 'dims'?",
  )
  expect(await declared({ datatype: 'float32', dims: [1] })).toMatch(
    /^model 'm': inputs\.IN\.datatype must be one of BOOL, .*, found "float32": did you mean 'FP32'\?$/,
  )
  expect(await declared({ datatype: 'TYPE_STRING', dims: [1] })).toMatch(/did you mean 'BYTES'\?$/)
  expect(await completed({ maxBatchSize: 1.5, execute })).toBe(
    "model 'm': maxBatchSize must be an integer of at least 0, found 1.5",
  )
  expect(await completed({ maxBatchsize: 8, execute })).toBe(
    "model 'm': there is no key 'maxBatchsize': did you mean 'maxBatchSize'?",
  )
  expect(await completed({ exceute: execute })).toBe("model 'm': there is no key 'exceute': did you mean 'execute'?")
})

test('a model may have members of its own, also ones that look like known keys', async () => {
  class Own {
    input = 5
    execute = () => null
  }
  const inputs = { IN: { datatype: 'FP32', dims: [1] } }
  expect(await completed({ execute: () => null, helper: () => 1, stats: 0, names: [] })).toBeNull()
  expect(await completed({ execute: () => null, inputs, input: 1 })).toMatchObject({ name: 'm' })
  expect(await completed(new Own())).toBeNull()
})

test('a model without declarations has nothing to say', async () => {
  expect(await completed({ execute: () => null })).toBeNull()
})

test('a contradiction names both sides', async () => {
  const input = (data_type: string, dims: number[]) => ({ input: [{ name: 'IN', data_type, dims }] })
  expect(await completed(declared, { max_batch_size: 16 })).toBe(
    "configuration specified max_batch_size 16, but model 'm' specified max_batch_size 8",
  )
  expect(await completed(declared, input('TYPE_INT8', [-1, 3]))).toBe(
    "unable to load model 'm', configuration expects datatype TYPE_INT8 for input 'IN', model provides TYPE_FP32",
  )
  expect(await completed(declared, input('TYPE_FP32', [5, 4]))).toBe(
    "model 'm', tensor 'IN': the model expects dims [-1, 3] but the model configuration specifies dims [5, 4]",
  )
  expect(await completed(declared, input('TYPE_FP32', [5]))).toContain('specifies dims [5]')
})

test('a contradiction is an error too where the configuration is complete', async () => {
  const host = new RawHost()
  expect(await host.load(declared, { config: { max_batch_size: 16 } })).toMatchObject({ missing: null, source: null })
  expect(await host.ended).toBe(1)
})

test('autoCompleteConfig completes what declarations do not say', async () => {
  const autoCompleteConfig = (config: ModelConfig) =>
    config
      .setMaxBatchSize(2)
      .setDynamicBatching()
      .addInput({ name: 'A', datatype: 'INT8', dims: [2] })
      .addOutput({ name: 'B', datatype: 'FP16', dims: [3] })
      .setDecoupled(true)
  expect(await completed({ autoCompleteConfig, execute: () => null })).toEqual({
    name: 'm',
    max_batch_size: 2,
    dynamic_batching: {},
    model_transaction_policy: { decoupled: true },
    input: [{ name: 'A', data_type: 'TYPE_INT8', dims: [2] }],
    output: [{ name: 'B', data_type: 'TYPE_FP16', dims: [3] }],
  })
  expect(await completed({ autoCompleteConfig, execute: () => null }, { sequence_batching: {} })).toBe(
    "Configuration specified scheduling_choice as 'sequence_batching', but model 'm' tries to set " +
      "scheduling_choice as 'dynamic_batching'",
  )
  expect(await completed({ autoCompleteConfig: () => 5, execute: () => null })).toBe(
    "autoCompleteConfig of model 'm' must return its config, or nothing",
  )
})

test('the server is out of reach while a configuration is completed', async () => {
  const host = new RawHost()
  const autoCompleteConfig = async () => {
    throw new Error('mine')
  }
  const failed = await host.load({ autoCompleteConfig, execute: () => null }, { mode: 'complete' })
  expect(failed['text']).toMatch(/^Error: mine\n {4}at/)
  expect(host.sent.filter(({ frame }) => frame.frame === Frame.CONTROL)).toEqual([])
})

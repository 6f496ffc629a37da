/** Changes that a model's own code may make to its configuration (B-PY-22). */
import { expect, test } from 'vitest'
import {
  finishConfig,
  NO_GPUS,
  parsePbtxt,
  prepareConfig,
  toTritonJson,
  type ModelConfig,
} from '../../src/config/index.js'
import { ServerError } from '../../src/native/errors.js'

const FLAGS = { autoComplete: true, configName: null }
const CONTEXT = { flags: FLAGS, settings: [], devices: NO_GPUS }
const INPUT = { name: 'IN', data_type: 'TYPE_FP32', dims: [-1] }
const OUTPUT = { name: 'OUT', data_type: 'TYPE_STRING', dims: [1] }

const configOf = (text: string): ModelConfig =>
  parsePbtxt(
    Buffer.from(
      'name: "m" backend: "python" default_model_filename: "model.py" version_policy { latest { ' +
        `num_versions: 1 } } ${text}`,
    ),
    'config.pbtxt',
  )

function finish(text: string, completed: object | string): ModelConfig {
  const json = typeof completed === 'string' ? completed : JSON.stringify(completed)
  return finishConfig(prepareConfig(configOf(text), FLAGS, NO_GPUS), null, { ...CONTEXT, completed: json })
}

function refusal(text: string, completed: object | string): string {
  try {
    finish(text, completed)
  } catch (error) {
    if (error instanceof ServerError) return `${error.code} ${error.message}`
    throw error
  }
  return 'taken'
}

test('B-PY-22: inputs, outputs, batching and the transaction policy are taken', () => {
  const made = {
    max_batch_size: 4,
    input: [INPUT],
    output: [OUTPUT],
    dynamic_batching: {},
    model_transaction_policy: { decoupled: true },
  }
  const full = JSON.parse(toTritonJson(finish('', made)))
  expect(full.max_batch_size).toBe(4)
  expect(full.input).toMatchObject([INPUT])
  expect(full.output).toMatchObject([OUTPUT])
  expect(full.dynamic_batching).toMatchObject({ preferred_batch_size: [4] })
  expect(full.model_transaction_policy).toEqual({ decoupled: true })
})

test('B-PY-22: nothing else is, and no mistake either', () => {
  const made = {
    name: 'other',
    backend: 'onnxruntime',
    version_policy: { all: {} },
    instance_group: [{ count: 9 }],
    parameters: { a: { string_value: 'b' } },
    sequence_batching: {},
    default_model_filename: '/etc/passwd',
    input: [INPUT],
    output: [OUTPUT],
  }
  const full = JSON.parse(toTritonJson(finish('instance_group { count: 2 }', made)))
  expect(full).toMatchObject({
    name: 'm',
    backend: 'python',
    version_policy: { latest: { num_versions: 1 } },
    parameters: {},
    default_model_filename: 'model.py',
  })
  expect(full.instance_group).toMatchObject([{ count: 2 }])
  expect(full.sequence_batching).toBeUndefined()
})

test('B-PY-22: an invalid configuration fails the load with the recorded texts', () => {
  const unreadable = "NOT_FOUND model configuration is not provided for model 'm'"
  for (const input of [
    { ...INPUT, data_type: 'STRING' },
    { ...INPUT, name: 5 },
    { ...INPUT, colour: 'red' },
  ]) {
    expect(refusal('', { input: [input], output: [OUTPUT] })).toBe(unreadable)
  }
  expect(refusal('', { max_batch_size: 4.5, input: [INPUT], output: [OUTPUT] })).toBe(unreadable)
  expect(refusal('', { nothing: 1 })).toBe(unreadable)
  expect(refusal('', '{"max_batch_size": ')).toBe('INTERNAL Failed to accept document, invalid JSON.')
  expect(refusal('', '['.repeat(5000))).toBe('INTERNAL Failed to accept document, invalid JSON.')
  // Everything that protobuf's reader accepts.
  for (const dims of [1, ['1'], [1.0]])
    expect(refusal('', { input: [{ ...INPUT, dims }], output: [OUTPUT] }), JSON.stringify(dims)).toBe('taken')
  expect(
    refusal('', {
      input: [{ ...INPUT, data_type: 13 }],
      output: [OUTPUT],
      model_transaction_policy: { decoupled: 'yes' },
    }),
  ).toBe('taken')
})

test('B-PY-22: the result is checked as a file would be', () => {
  expect(refusal('', { input: [{ ...INPUT, name: '' }], output: [OUTPUT] })).toBe(
    "INVALID_ARG model input must specify 'name' for m",
  )
  expect(refusal('', { input: [{ ...INPUT, dims: [-2] }], output: [OUTPUT] })).toBe(
    "INVALID_ARG model input 'IN' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
  )
  expect(refusal('', { max_batch_size: -1, input: [INPUT], output: [OUTPUT] })).toBe(
    "INVALID_ARG 'max_batch_size' must be non-negative value for m",
  )
})

test('B-PY-22: with auto-complete off the code is not called, and nothing changes', () => {
  const prepared = prepareConfig(configOf(''), { ...FLAGS, autoComplete: false }, NO_GPUS)
  const full = finishConfig(prepared, null, {
    ...CONTEXT,
    flags: { ...FLAGS, autoComplete: false },
    completed: JSON.stringify({ input: [INPUT] }),
  })
  expect(full.input).toEqual([])
})

test('B-PY-22: a model that returns nothing loads with its configuration', () => {
  const full = finishConfig(prepareConfig(configOf(''), FLAGS, NO_GPUS), null, CONTEXT)
  expect([full.input, full.output]).toEqual([[], []])
})

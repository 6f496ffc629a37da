/** Models of the repository `life`: good and faulty ones, by name. */

import { appendFileSync, writeFileSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { type ConfigTensor, type Context, type Datatype, Model, ModelConfig, TritonError } from 'nereid/backend'
import { answer, fine, finalized } from './fine.ts'
import { RuntimeError, ValueError, dumps } from './show.ts'

const CODE: ConfigTensor = { name: 'CODE', datatype: 'BYTES', dims: [1] }
const OUT: ConfigTensor = { name: 'OUT', datatype: 'BYTES', dims: [1] }
const X: ConfigTensor = { name: 'X', datatype: 'FP32', dims: [-1], optional: true }

const both = (config: ModelConfig) => config.addInput(CODE).addOutput(OUT)

/** A model that completes its configuration. */
const auto = (complete: (config: ModelConfig) => unknown) => () =>
  fine({ autoCompleteConfig: (config: ModelConfig) => void complete(config) })

/** A model whose `initialize` fails. */
const failing = (error: Error) => () =>
  fine({
    initialize() {
      throw error
    },
  })

const raise = (error: Error) => () => {
  throw error
}

class Mine extends Error {
  override name = 'Mine'
}

const loads: Record<string, () => unknown> = {
  import_raise: raise(new RuntimeError('at import')),
  class_imported: () => fine(),
  class_inherited: () => {
    class Base extends Model {
      execute = answer('fine')
    }
    return new (class extends Base {})()
  },
  ctor_raise: () =>
    class {
      constructor() {
        throw new ValueError('in ctor')
      }
      execute(requests: []) {
        return answer('fine')(requests)
      }
    },
  execute_static: () => fine({ execute: answer('static') }),
  execute_lambda: () => fine({ execute: answer('lambda') }),
  init_static: () =>
    fine({
      initialize({ modelName }: Context) {
        if (modelName !== 'init_static') throw new ValueError(modelName)
      },
    }),
  init_return: () => fine({ initialize: () => 5 }),
  init_value: failing(new ValueError('bad value')),
  init_model_exc: failing(new TritonError('INTERNAL', 'model exception')),
  init_custom: failing(new Mine('custom text')),
  init_chain: failing(new RuntimeError('outer', { cause: new Error('division by zero') })),
  init_nested: failing(new ValueError('deep')),
  init_multiline: failing(new ValueError('line one\nline two')),
  init_null: failing(new ValueError('a\0b')),
  init_unicode: failing(new ValueError('gr\u00fc\u00dfe \u4e2d \u{1f600}')),
  init_slow: () => fine({ initialize: () => setTimeout(2000) }),
  init_print: () =>
    fine({
      initialize() {
        process.stdout.write('printed line\n')
        process.stderr.write('to stderr\n')
        process.stdout.write('no newline')
      },
    }),
  init_mutate: () =>
    fine({
      initialize(ctx: Context) {
        ctx.config.name = 'changed'
      },
    }),
  fin: () => fine({ finalize: (ctx: Context) => appendFileSync(finalized(ctx), 'done\n') }),
  fin_two: () => fine({ finalize: (ctx: Context) => appendFileSync(finalized(ctx), 'done\n') }),
  fin_raise: () =>
    fine({
      finalize(ctx: Context) {
        appendFileSync(finalized(ctx), 'raising\n')
        throw new ValueError('in finalize')
      },
    }),
  fin_slow: () =>
    fine({
      async finalize(ctx: Context) {
        appendFileSync(finalized(ctx), 'slow\n')
        await setTimeout(1500)
        appendFileSync(finalized(ctx), 'end\n')
      },
    }),
  fin_initfail: () =>
    fine({
      initialize() {
        throw new ValueError('x')
      },
      finalize: (ctx: Context) => appendFileSync(finalized(ctx), 'after failure\n'),
    }),
  fin_atexit: () =>
    fine({
      initialize(ctx: Context) {
        process.on('exit', () => appendFileSync(finalized(ctx), 'atexit\n'))
      },
    }),
  fin_thread: () =>
    fine({
      initialize() {
        setInterval(() => {}, 60_000)
      },
    }),
}

const DATATYPES: readonly Datatype[] = [
  'BOOL',
  'UINT8',
  'UINT16',
  'UINT32',
  'UINT64',
  'INT8',
  'INT16',
  'INT32',
  'INT64',
  'FP16',
  'FP32',
  'FP64',
  'BYTES',
  'BF16',
]

/** Writes a value into the file `seen` of the model. */
const seen = (config: ModelConfig, value: unknown) => {
  writeFileSync(new URL('../seen', import.meta.url), dumps(value))
  return config
}

const completes: Record<string, () => unknown> = {
  backend_only_exec: auto(both),
  noconfig: auto(both),
  auto_classmethod: auto(both),
  auto_plainfn: auto(both),
  auto_import_fail: raise(new ValueError('import in auto')),
  auto_import_count: auto(both),
  auto_full: auto(() => raise(new ValueError('must not matter'))()),
  auto_plain: auto(both),
  auto_batch: auto((config) => both(config).setMaxBatchSize(4)),
  auto_batch0: auto((config) => both(config).setMaxBatchSize(0)),
  auto_batch_neg: auto((config) => both(config).setMaxBatchSize(-1)),
  auto_batch_less: auto((config) => both(config).setMaxBatchSize(2)),
  auto_batch_more: auto((config) => both(config).setMaxBatchSize(8)),
  auto_batch_dyn: auto((config) => both(config).setMaxBatchSize(4).setDynamicBatching()),
  auto_dyn_nobatch: auto((config) => both(config).setDynamicBatching()),
  auto_dyn_twice: auto((config) => both(config).setMaxBatchSize(4).setDynamicBatching().setDynamicBatching()),
  auto_dyn_present: auto((config) => both(config).setDynamicBatching()),
  auto_dyn_seq: auto((config) => both(config).setMaxBatchSize(4).setDynamicBatching()),
  auto_decoupled: auto((config) => both(config).setDecoupled(true)),
  auto_decoupled_false: auto((config) => both(config).setDecoupled(false)),
  auto_decoupled_conflict: auto((config) => both(config).setDecoupled(true)),
  auto_decoupled_conflict2: auto((config) => both(config).setDecoupled(false)),
  auto_decoupled_same: auto((config) => both(config).setDecoupled(true)),
  auto_return_new: auto(both),
  auto_return_subclass: () =>
    fine({
      autoCompleteConfig: (config: ModelConfig) =>
        new (class extends ModelConfig {})(both(config).json, config.json.name ?? ''),
    }),
  auto_return_other: () => fine({ autoCompleteConfig: () => 5 }),
  auto_return_dict: () => fine({ autoCompleteConfig: (config: ModelConfig) => both(config).json }),
  auto_raise_value: auto(() => raise(new ValueError('no luck'))()),
  auto_raise_model: auto(() => raise(new TritonError('INTERNAL', 'model says no'))()),
  auto_raise_empty: auto(() => raise(new RuntimeError())()),
  auto_raise_unicode: auto(() => raise(new ValueError('gr\u00fc\u00dfe \u4e2d'))()),
  auto_raise_long: auto(() => raise(new ValueError('x'.repeat(5000)))()),
  auto_in_name_empty: auto((config) => config.addInput({ ...CODE, name: '' }).addOutput(OUT)),
  auto_in_dims_empty: auto((config) => config.addInput({ ...CODE, dims: [] }).addOutput(OUT)),
  auto_in_dims_zero: auto((config) => config.addInput({ ...CODE, dims: [0] }).addOutput(OUT)),
  auto_in_dims_neg: auto((config) => config.addInput({ ...CODE, dims: [-2] }).addOutput(OUT)),
  auto_in_dims_tuple: auto(both),
  auto_in_dims_float: auto(both),
  auto_in_optional: auto((config) => both(config).addInput(X)),
  auto_in_twice: auto((config) => both(config).addInput(CODE)),
  auto_in_twice_type: auto((config) => both(config).addInput({ ...CODE, datatype: 'FP32' })),
  auto_in_twice_dims: auto((config) => both(config).addInput({ ...CODE, dims: [2] })),
  auto_in_same_as_out: auto((config) => config.addInput(CODE).addOutput(CODE)),
  auto_in_file_type: auto(both),
  auto_in_file_dims: auto(both),
  auto_in_file_dims_minus: auto(both),
  auto_in_file_same: auto(both),
  auto_in_file_notype: auto(both),
  auto_in_file_extra: auto(both),
  auto_in_file_optional: auto((config) => config.addInput({ ...CODE, optional: false }).addOutput(OUT)),
  auto_in_file_optional2: auto((config) => config.addInput({ ...CODE, optional: true }).addOutput(OUT)),
  auto_out_file_type: auto(both),
  auto_out_file_dims: auto(both),
  auto_out_file_label: auto(both),
  auto_nothing: auto(() => null),
  auto_only_in: auto((config) => config.addInput(CODE)),
  auto_only_out: auto((config) => config.addOutput(OUT)),
  auto_edit_name: auto((config) => void (both(config).json.name = 'other')),
  auto_edit_backend: auto((config) => void (both(config).json['backend'] = 'identity')),
  auto_edit_group: auto((config) => void (both(config).json['instance_group'] = [{ name: 'mine', count: 2 }])),
  auto_edit_params: auto((config) => Object.assign(both(config).json, { parameters: { k: { string_value: 'v' } } })),
  auto_edit_unknown: auto((config) => void (both(config).json['surprise'] = 1)),
  auto_edit_version: auto((config) => void (both(config).json['version_policy'] = { all: {} })),
  auto_edit_del: auto((config) => delete both(config).json.max_batch_size),
  auto_edit_dyn: auto((config) =>
    Object.assign(both(config).json, {
      max_batch_size: 8,
      dynamic_batching: { preferred_batch_size: [4], max_queue_delay_microseconds: 100 },
    }),
  ),
  auto_see: auto((config) => seen(both(config), config.json)),
  auto_see_file: auto((config) => seen(both(config), config.json)),
  auto_print: auto((config) => {
    process.stdout.write('hello\n')
    both(config)
  }),
  auto_twice_out: auto((config) => both(config).addOutput(OUT)),
  auto_with_platform: auto(both),
  ...Object.fromEntries(
    DATATYPES.map((datatype) => [
      `auto_type_${datatype === 'BYTES' ? 'string' : datatype.toLowerCase()}`,
      auto((config) => both(config).addInput({ ...X, datatype, dims: [-1, 2] })),
    ]),
  ),
}

export const models: Readonly<Record<string, () => unknown>> = { ...loads, ...completes }

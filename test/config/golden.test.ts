// Triton's responses for whole configurations: GET …/config of models that load, and reasons of models that fail.
import { describe, expect, test } from 'vitest'
import { fromBinary, toBinary, toTritonJson, parseJsonConfig } from '../../src/config/index.js'
import { ADDSUB, ADDSUB_CONFIG, finish, io, poll, reason, tensor } from './helpers.js'

const IO16 =
  '"format":"FORMAT_NONE","dims":[16],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false'
const PINNED =
  '"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":false}'
const TAIL =
  '"default_model_filename":"model.onnx","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]'

describe('effective configurations (C-31)', () => {
  test('an ONNX model without a file gets the documented configuration, byte for byte', () => {
    const config = finish(
      poll('model_test', null),
      io([tensor('images', 11, [-1, 3, -1, -1])], [tensor('output', 11, [-1, 10])]),
    )
    expect(toTritonJson(config)).toBe(
      '{"name":"model_test","platform":"onnxruntime_onnx","backend":"onnxruntime","runtime":"","version_policy":{"latest":{"num_versions":1}},"max_batch_size":4,"input":[{"name":"images","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[3,-1,-1],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}],"output":[{"name":"output","data_type":"TYPE_FP32","dims":[10],"label_filename":"","is_shape_tensor":false,"is_non_linear_format_io":false}],"batch_input":[],"batch_output":[],"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":false},"dynamic_batching":{"preferred_batch_size":[4],"max_queue_delay_microseconds":0,"preserve_ordering":false,"priority_levels":0,"default_priority_level":0,"priority_queue_policy":{}},"instance_group":[{"name":"model_test","kind":"KIND_CPU","count":2,"gpus":[],"secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],"default_model_filename":"model.onnx","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]}',
    )
  })

  test('a complete configuration gains no batcher and batch size (strict.config.full)', () => {
    expect(toTritonJson(finish(poll('full', ADDSUB_CONFIG), ADDSUB))).toBe(
      `{"name":"full","platform":"onnxruntime_onnx","backend":"onnxruntime","runtime":"","version_policy":{"latest":{"num_versions":1}},"max_batch_size":8,"input":[{"name":"INPUT0","data_type":"TYPE_INT32",${IO16}},{"name":"INPUT1","data_type":"TYPE_INT32",${IO16}}],"output":[{"name":"OUTPUT0","data_type":"TYPE_INT32","dims":[16],"label_filename":"","is_shape_tensor":false,"is_non_linear_format_io":false},{"name":"OUTPUT1","data_type":"TYPE_INT32","dims":[16],"label_filename":"","is_shape_tensor":false,"is_non_linear_format_io":false}],"batch_input":[],"batch_output":[],${PINNED},"instance_group":[{"name":"full","kind":"KIND_CPU","count":2,"gpus":[],"secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],${TAIL}}`,
    )
  })

  test('a scalar of a model that cannot batch is a vector of one (config.scalar_auto)', () => {
    const config = toTritonJson(
      finish(poll('scalar_auto', null), io([tensor('INPUT0', 11, [])], [tensor('OUTPUT0', 11, [])])),
    )
    expect(config).toContain(
      '"max_batch_size":0,"input":[{"name":"INPUT0","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[1],"is_shape_tensor":false',
    )
    expect(config).not.toContain('dynamic_batching')
  })

  test('a batch of scalars keeps its shape through an empty reshape (config.vector_auto)', () => {
    const config = toTritonJson(
      finish(poll('vector_auto', null), io([tensor('INPUT0', 11, [-1])], [tensor('OUTPUT0', 11, [-1])])),
    )
    expect(config).toContain(
      '"max_batch_size":4,"input":[{"name":"INPUT0","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[1],"reshape":{"shape":[]},"is_shape_tensor":false',
    )
    expect(config).toContain(
      '"output":[{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[1],"reshape":{"shape":[]},"label_filename":""',
    )
    expect(config).toContain('"dynamic_batching":{"preferred_batch_size":[4],')
  })

  test('an ensemble shows its transaction policy and no groups (config.ens_str)', () => {
    const text = `platform: "ensemble" max_batch_size: 4
      input [ { name: "X" data_type: TYPE_STRING dims: [ -1 ] } ]
      output [ { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] } ]
      ensemble_scheduling { step [ { model_name: "strings" model_version: -1 input_map { key: "A" value: "X" } output_map { key: "C" value: "OUT" } } ] }`
    expect(toTritonJson(finish(poll('ens_str', text, []), null))).toBe(
      '{"name":"ens_str","platform":"ensemble","backend":"","runtime":"","version_policy":{"latest":{"num_versions":1}},"max_batch_size":4,"input":[{"name":"X","data_type":"TYPE_STRING","format":"FORMAT_NONE","dims":[-1],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}],"output":[{"name":"OUT","data_type":"TYPE_STRING","dims":[-1],"label_filename":"","is_shape_tensor":false,"is_non_linear_format_io":false}],"batch_input":[],"batch_output":[],"ensemble_scheduling":{"step":[{"model_name":"strings","model_version":-1,"input_map":{"A":"X"},"output_map":{"C":"OUT"},"model_namespace":""}],"max_inflight_requests":0},"instance_group":[],"default_model_filename":"","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[],"model_transaction_policy":{"decoupled":false}}',
    )
  })

  test('a sequence batcher prints its strategy first', () => {
    const config = toTritonJson(finish(poll('seq', SEQUENCE('direct { }')), SEQUENCE_IO))
    expect(config).toContain(
      '"sequence_batching":{"direct":{"max_queue_delay_microseconds":0,"minimum_slot_utilization":0},"max_sequence_idle_microseconds":1000000,"control_input":[{"name":"START","control":[{"kind":"CONTROL_SEQUENCE_START","int32_false_true":[0,1],"fp32_false_true":[],"bool_false_true":[],"data_type":"TYPE_INVALID"}]},{"name":"CORRID","control":[{"kind":"CONTROL_SEQUENCE_CORRID","int32_false_true":[],"fp32_false_true":[],"bool_false_true":[],"data_type":"TYPE_UINT64"}]}],"state":[{"input_name":"SUM_IN","output_name":"SUM_OUT","data_type":"TYPE_INT32","dims":[1],"initial_state":[{"data_type":"TYPE_INT32","dims":["1"],"name":"zero","zero_data":true}],"use_same_buffer_for_input_output":false,"use_growable_memory":false}],"iterative_sequence":false},"instance_group":[{"name":"seq","kind":"KIND_CPU","count":2,',
    )
  })

  test('the printed form and the binary form read back as the same configuration (C-32)', () => {
    for (const text of [ADDSUB_CONFIG, SEQUENCE('oldest { max_candidate_sequences: 4 }')]) {
      const config = finish(poll('m', text), text === ADDSUB_CONFIG ? ADDSUB : SEQUENCE_IO)
      expect(parseJsonConfig(toTritonJson(config))).toEqual(config)
      expect(fromBinary(toBinary(config))).toEqual(config)
    }
  })
})

const SEQUENCE = (strategy: string): string => `
  backend: "onnxruntime" max_batch_size: 4
  input { name: "INPUT" data_type: TYPE_INT32 dims: 1 }
  output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }
  sequence_batching {
    ${strategy}
    control_input [
      { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
      { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
    ]
    state [ { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [ 1 ]
      initial_state { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true name: "zero" } } ]
  }`
const SEQUENCE_IO = io(
  [
    tensor('INPUT', 8, [-1, 1]),
    tensor('START', 8, [-1, 1]),
    tensor('CORRID', 5, [-1, 1]),
    tensor('SUM_IN', 8, [-1, 1]),
  ],
  [tensor('OUTPUT', 8, [-1, 1]), tensor('SUM_OUT', 8, [-1, 1])],
)

describe('reasons of models that do not load (R-16, C-06, C-12, C-14; suite broken_start)', () => {
  const c = (edit: (text: string) => string = (t) => t): string => edit(ADDSUB_CONFIG)
  const add = (text: string): string => ADDSUB_CONFIG + text
  const input0 = (extra: string): string =>
    c((t) => t.replace('name: "INPUT0" data_type: TYPE_INT32', `name: "INPUT0" data_type: TYPE_INT32 ${extra}`))
  const batchInput = (type: string, source: string): string =>
    `backend: "onnxruntime" max_batch_size: 8
     input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }
     batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "INPUT1" data_type: ${type} source_input: ${source} } ]`

  const cases: [string, string, string, ReturnType<typeof io>?][] = [
    [
      'dim_neg2',
      c((t) => t.replaceAll('16', '-2')),
      "Invalid argument: model input 'INPUT0' dimension must be integer >= 1, or -1 to indicate a " +
        'variable-size dimension for dim_neg2',
    ],
    [
      'dim_zero',
      c((t) => t.replaceAll('16', '0')),
      "Invalid argument: model input 'INPUT0' dimension must be integer >= 1, or -1 to indicate a " +
        'variable-size dimension for dim_zero',
    ],
    [
      'extra_input',
      add('input { name: "INPUT2" data_type: TYPE_INT32 dims: 16 }'),
      "Invalid argument: unable to load model 'extra_input', configuration expects 3 inputs, model provides 2",
    ],
    [
      'format_dims',
      input0('format: FORMAT_NCHW'),
      'Invalid argument: model input NHWC/NCHW require 3 dims for format_dims',
    ],
    [
      'input_no_dims',
      c((t) => t.replace('dims: [ 16 ]', 'dims: [ ]')),
      "Invalid argument: model input 'INPUT0' must specify 'dims' for input_no_dims",
    ],
    [
      'input_no_name',
      c((t) => t.replace('"INPUT0"', '""')),
      "Invalid argument: model input must specify 'name' for input_no_name",
    ],
    [
      'input_no_type',
      c((t) => t.replace('data_type: TYPE_INT32', '')),
      "Invalid argument: model input 'INPUT0' must specify 'data_type' for input_no_type",
    ],
    [
      'kind_cpu_gpus',
      add('instance_group [ { kind: KIND_CPU gpus: [ 0 ] } ]'),
      'Invalid argument: instance group kind_cpu_gpus_0 of model kind_cpu_gpus has kind KIND_CPU but ' +
        'specifies one or more GPUs',
    ],
    [
      'kind_gpu',
      add('instance_group [ { kind: KIND_GPU } ]'),
      'Invalid argument: instance group kind_gpu_0 of model kind_gpu has kind KIND_GPU but server does not ' +
        'support GPUs; --gpu-fallback=cpu serves it on the CPU',
    ],
    [
      'kind_model_gpus',
      add('instance_group [ { kind: KIND_MODEL gpus: [ 0 ] } ]'),
      'Invalid argument: instance group kind_model_gpus_0 of model kind_model_gpus has kind KIND_MODEL but ' +
        'specifies one or more GPUs',
    ],
    [
      'profile',
      add('instance_group [ { kind: KIND_CPU profile: [ "0" ] } ]'),
      'Invalid argument: instance group profile_0 of model profile and platform onnxruntime_onnxspecifies ' +
        'profile field which is only supported for TensorRT models',
    ],
    [
      'missing_input',
      c((t) => t.replace(/,\n.*INPUT1.*\n/, '\n')),
      "Invalid argument: unable to load model 'missing_input', configuration expects 1 inputs, model provides 2",
    ],
    [
      'nobatch_model',
      c(),
      "Invalid argument: model 'nobatch_model', tensor 'INPUT0': for the model to support batching the shape " +
        'should have at least 1 dimension and the first dimension must be -1; but shape expected by the ' +
        'model is [16]',
      addsubIo([16]),
    ],
    [
      'nobatch_model2',
      c(),
      "Invalid argument: model 'nobatch_model2', tensor 'INPUT0': for the model to support batching the " +
        'shape should have at least 1 dimension and the first dimension must be -1; but shape expected by the ' +
        'model is [1,16]',
      addsubIo([1, 16]),
    ],
    [
      'optional_batch',
      input0('optional: true'),
      "Invalid argument: unable to load model 'optional_batch', configuration expects 1 inputs, model provides 2",
    ],
    [
      'ragged_bad',
      input0('allow_ragged_batch: true'),
      "Invalid argument: unable to load model 'ragged_bad', configuration expects model provides input with " +
        "shape [-1]  for ragged input 'INPUT0', model provides [-1,16]",
    ],
    [
      'reshape_empty',
      c((t) => t.replace('max_batch_size: 8', '').replace('dims: [ 16 ]', 'dims: [ 1 ] reshape { shape: [ ] }')),
      "Invalid argument: model input 'INPUT0' cannot have empty reshape for non-batching model as scalar " +
        'tensors are not supported for reshape_empty',
    ],
    [
      'reshape_size',
      input0('reshape { shape: [ 2, 9 ] }'),
      "Invalid argument: model input 'INPUT0' has different size for dims and reshape for reshape_size",
    ],
    [
      'shape_tensor',
      input0('is_shape_tensor: true'),
      'Invalid argument: shape tensors are only supported for TensorRT platform for shape_tensor',
    ],
    [
      'wrong_dims_in',
      c((t) => t.replaceAll('16', '8')),
      "Invalid argument: model 'wrong_dims_in', tensor 'INPUT0': the model expects 2 dimensions (shape " +
        '[-1,16]) but the model configuration specifies 2 dimensions (an initial batch dimension because ' +
        'max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,8])',
    ],
    [
      'wrong_dims_nobatch',
      c((t) => t.replace('max_batch_size: 8', 'max_batch_size: 0')),
      "Invalid argument: model 'wrong_dims_nobatch', tensor 'INPUT0': the model expects 2 dimensions (shape " +
        '[-1,16]) but the model configuration specifies 1 dimensions (shape [16])',
    ],
    [
      'wrong_dtype_in',
      c((t) => t.replace('TYPE_INT32', 'TYPE_FP32')),
      "Invalid argument: unable to load model 'wrong_dtype_in', configuration expects datatype TYPE_FP32 for " +
        "input 'INPUT0', model provides TYPE_INT32",
    ],
    [
      'wrong_dtype_out',
      c((t) => t.replace('"OUTPUT1" data_type: TYPE_INT32', '"OUTPUT1" data_type: TYPE_FP32')),
      "Invalid argument: unable to load model 'wrong_dtype_out', configuration expects datatype TYPE_FP32 " +
        "for output 'OUTPUT1', model provides TYPE_INT32",
    ],
    [
      'wrong_input_name',
      c((t) => t.replace('INPUT1', 'INPUTX')),
      "Invalid argument: unexpected inference input 'INPUTX', allowed inputs are: INPUT0, INPUT1",
    ],
    [
      'wrong_output_name',
      c((t) => t.replace('OUTPUT1', 'OUTPUTX')),
      "Invalid argument: unexpected inference output 'OUTPUTX', allowed outputs are: OUTPUT0, OUTPUT1",
    ],
    [
      'wrong_rank',
      c((t) => t.replaceAll('16', '16, 1')),
      "Invalid argument: model 'wrong_rank', tensor 'INPUT0': the model expects 2 dimensions (shape [-1,16]) " +
        'but the model configuration specifies 3 dimensions (an initial batch dimension because max_batch_size ' +
        '> 0 followed by the explicit tensor shape, making complete shape [-1,16,1])',
    ],
    [
      'batch_in_src',
      batchInput('TYPE_INT32', '"NOPE"'),
      "Invalid argument: unknown source input name 'NOPE' for batch_in_src",
    ],
    [
      'batch_in_two',
      batchInput('TYPE_INT32', '[ "INPUT0", "INPUT0" ]'),
      "Invalid argument: batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 2 for batch_in_two",
    ],
    [
      'x_notype',
      batchInput('TYPE_INVALID', '"INPUT0"'),
      "Invalid argument: unexpected batch input data type 'TYPE_INVALID'",
    ],
    [
      'batch_in_type',
      batchInput('TYPE_INT64', '"INPUT0"'),
      'Invalid argument: batch input data type must be TYPE_INT32 or TYPE_FP32 for batch_in_type',
    ],
    [
      'seq_missing_ctl',
      SEQUENCE('direct { }').replace('"START"', '"NOREADY"'),
      "Internal: configuration specified sequence control 'NOREADY', but model does not provide that input",
      SEQUENCE_IO,
    ],
  ]
  test.each(cases)('%s', (name, text, expected, graph = ADDSUB) => {
    const polled = poll(name, text)
    expect(reason(() => finish(polled, graph))).toBe(expected)
  })

  test('without auto-complete, missing inputs and outputs fail (strict.index noio)', () => {
    const polled = poll('noio', 'backend: "onnxruntime"\nmax_batch_size: 8\n', ['model.onnx'], false)
    expect(reason(() => finish(polled, ADDSUB, false))).toBe(
      "Invalid argument: unable to load model 'noio', configuration expects 0 inputs, model provides 2",
    )
  })
})

function addsubIo(shape: number[]): ReturnType<typeof io> {
  const pair = (one: string, other: string) => [tensor(one, 8, shape), tensor(other, 8, shape)]
  return io(pair('INPUT0', 'INPUT1'), pair('OUTPUT0', 'OUTPUT1'))
}

// Rules that fail while polling (C-01, C-02, C-22 … C-27, S-26), each with its text; and the order among them.
import { describe, expect, test } from 'vitest'
import { normalise, parsePbtxt, validate } from '../../src/config/index.js'
import { ADDSUB_CONFIG, finish, poll, reason } from './helpers.js'

/** The error about a configuration after normalisation; `ok` without one. */
function complaint(text: string, io = false): string {
  return reason(() => validate(normalise(parsePbtxt(text, '')), { io })).replace('Invalid argument: ', '')
}

const BASE = 'name: "m" backend: "b" max_batch_size: 8 '
const ONNX = 'name: "m" backend: "onnxruntime" '
const SEQ = (body: string): string => `${BASE} sequence_batching { ${body} }`
const CONTROL = (kind: string, rest: string): string =>
  SEQ(`control_input { name: "S" control { kind: ${kind} ${rest} } }`)

/** Our hint after Triton's text. */
const PAIR = '; with backend "onnxruntime" platform is "onnxruntime_onnx", or left out'

describe('C-01 fields', () => {
  const cases: [string, string][] = [
    [BASE, 'ok'],
    ['backend: "b"', "model configuration must specify 'name'"],
    ['name: "m" platform: "nope"', "unexpected platform type 'nope' for m"],
    [
      `${BASE} metric_tags { key: "a" value: "${'x'.repeat(1025)}" }`,
      "metric tag 'a' has 1025 characters for m, at most 1024 are allowed",
    ],
    [
      `${BASE} ${Array.from({ length: 65 }, (_, i) => `metric_tags { key: "${i}" value: "x" }`).join(' ')}`,
      '65 metric_tags for m, at most 64 are allowed',
    ],
    ...['cost-center', '_a', 'ü', 'a"} 1\\nforged 1'].map((key): [string, string] => [
      `${BASE} metric_tags { key: '${key}' value: "x" }`,
      `Invalid label name: metric tag '${key.replaceAll('\\n', '\n')}' for m; a key has letters of ASCII, ` +
        "digits and '_', and does not begin with '_'",
    ]),
    [`${BASE} metric_tags { key: "cost_center" value: "a-b\\"ü" } metric_tags { key: "1" value: "" }`, 'ok'],
    [
      'name: "m" platform: "ensemble" backend: "b"',
      "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
    ],
    [
      `${ONNX} platform: "tensorrt_plan"`,
      `unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime${PAIR}`,
    ],
    [`${ONNX} platform: "onnx"`, `unexpected 'platform' and 'backend' pair, got:onnx, onnxruntime${PAIR}`],
    ['name: "m" backend: "python" platform: "anything"', 'ok'],
    ['name: "m" backend: "toString"', 'ok'],
    ['name: "m" backend: "pytorch" platform: "torch_aoti"', 'ok'],
    ['name: "m" backend: "b" max_batch_size: -1', "'max_batch_size' must be non-negative value for m"],
    // The first rule that fails is reported.
    [`${ONNX} platform: "x" max_batch_size: -1`, `unexpected 'platform' and 'backend' pair, got:x, onnxruntime${PAIR}`],
    ['name: "m" platform: "ensemble"', 'ensemble scheduling must be set for ensemble m whose platform is ensemble'],
    [
      `${BASE} ensemble_scheduling { }`,
      "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
    ],
    [
      `${BASE} model_transaction_policy { decoupled: true } response_cache { enable: true }`,
      "Response Cache does not currently support model m with 'decoupled' transaction policy. Please disable " +
        'the response cache.',
    ],
    [`${BASE} model_metrics { metric_control { } }`, "metric control must specify 'metric_identifier'"],
    [
      `${BASE} model_metrics { metric_control { metric_identifier { } } }`,
      "metric identifier must specify non-empty 'family'",
    ],
    [
      `${BASE} model_metrics { metric_control { metric_identifier { family: "f" } } }`,
      "metric control must specify 'histogram_options'",
    ],
    [
      `${BASE} model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { } } }`,
      "histogram options must specify non-empty 'buckets'",
    ],
    [
      `${BASE} model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { buckets: 1 } } }`,
      'ok',
    ],
  ]
  test.each(cases)('%j', (text, expected) => expect(complaint(text)).toBe(expected))

  test('rule 6: no version policy is refused where nothing normalised the configuration', () => {
    expect(reason(() => validate(parsePbtxt(BASE, ''), { io: false }))).toBe(
      "Invalid argument: must specify 'version policy' for m",
    )
  })

  test('C-27 a family that cannot be customised is a warning', () => {
    const lines: string[] = []
    const text =
      `${BASE} model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { ` +
      'buckets: 1 } } }'
    validate(normalise(parsePbtxt(text, '')), { io: false }, (level, line) => lines.push(`${level}: ${line}`))
    expect(lines).toEqual(["warning: Metric family 'f' in 'metric_identifier' is not a customizable metric in Nereid."])
  })
})

describe('C-22 dynamic batching', () => {
  const cases: [string, string][] = [
    ['', 'ok'],
    ['preferred_batch_size: [4, 8]', 'ok'],
    ['preferred_batch_size: 0', 'dynamic batching preferred size must be positive for m'],
    ['preferred_batch_size: [4, 9]', 'dynamic batching preferred size must be <= max batch size for m'],
    ['priority_levels: 2', 'default priority level must be in range [1, 2] for m'],
    ['priority_levels: 2 default_priority_level: 3', 'default priority level must be in range [1, 2] for m'],
    [
      'priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 5 value { } }',
      'priority queue policy must have priority level in range [1, 2] for m',
    ],
    ['priority_queue_policy { key: 5 value { } }', 'ok'],
    [
      'priority_levels: 2 default_priority_level: 1 preserve_ordering: true',
      "Only one priority level is allowed when 'preserve_ordering' is true for m",
    ],
    [
      'preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }',
      "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
    ],
    [
      'preserve_ordering: true priority_queue_policy { key: 1 value { timeout_action: DELAY ' +
        'default_timeout_microseconds: 5 } }',
      "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
    ],
    ['preserve_ordering: true default_queue_policy { timeout_action: DELAY }', 'ok'],
  ]
  test.each(cases)('%j', (body, expected) => expect(complaint(`${BASE} dynamic_batching { ${body} }`)).toBe(expected))
})

describe('C-23 sequence batching', () => {
  const LISTS = "'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
  const cases: [string, string][] = [
    [SEQ(''), 'ok'],
    [
      `${SEQ('')} response_cache { enable: true }`,
      'Response Cache does not currently support model m with sequence batching scheduler. Please disable ' +
        'the response cache.',
    ],
    [SEQ('control_input { }'), 'sequence batching control tensor must have a name for m'],
    [
      SEQ('control_input [ { name: "S" }, { name: "S" } ]'),
      "sequence batching control tensor 'S' is specified for multiple control kinds for m",
    ],
    [
      SEQ(
        'control_input [ { name: "S" control { kind: CONTROL_SEQUENCE_END bool_false_true: [0, 1] } }, { ' +
          'name: "T" control { kind: CONTROL_SEQUENCE_END bool_false_true: [0, 1] } } ]',
      ),
      'sequence batching specifies multiple CONTROL_SEQUENCE_END tensors for m',
    ],
    [
      CONTROL('CONTROL_SEQUENCE_END', ''),
      `sequence batching must specify either ${LISTS} for CONTROL_SEQUENCE_END for m`,
    ],
    [
      CONTROL('CONTROL_SEQUENCE_READY', 'int32_false_true: [0, 1] fp32_false_true: [0, 1]'),
      "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and " +
        "'bool_false_true' for CONTROL_SEQUENCE_READY for m",
    ],
    [
      CONTROL('CONTROL_SEQUENCE_START', 'int32_false_true: [0, 1, 2]'),
      "sequence batching control 'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for m",
    ],
    [
      CONTROL('CONTROL_SEQUENCE_START', 'fp32_false_true: 0'),
      "sequence batching control 'fp32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for m",
    ],
    [
      CONTROL('CONTROL_SEQUENCE_CORRID', 'int32_false_true: [0, 1] data_type: TYPE_INT32'),
      `sequence batching must not specify either ${LISTS} for CONTROL_SEQUENCE_CORRID for m`,
    ],
    [
      CONTROL('CONTROL_SEQUENCE_CORRID', 'data_type: TYPE_FP32'),
      'unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, ' +
        'TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING',
    ],
    [CONTROL('CONTROL_SEQUENCE_CORRID', 'data_type: TYPE_STRING'), 'ok'],
    [SEQ('oldest { preferred_batch_size: 0 }'), 'sequence batching preferred batch size must be positive for m'],
    [
      SEQ('oldest { preferred_batch_size: 9 }'),
      'sequence batching preferred batch size must be <= max batch size for m',
    ],
    [
      SEQ('direct { minimum_slot_utilization: 1.5 }'),
      'sequence batching minimum slot utilization must be in range (0.0, 1.0] for m',
    ],
    [
      SEQ('direct { minimum_slot_utilization: -0.1 }'),
      'sequence batching minimum slot utilization must be in range (0.0, 1.0] for m',
    ],
    [
      SEQ('direct { minimum_slot_utilization: nan }'),
      'sequence batching minimum slot utilization must be in range (0.0, 1.0] for m',
    ],
    [SEQ('direct { minimum_slot_utilization: 0 }'), 'ok'],
  ]
  test.each(cases)('%j', (text, expected) => expect(complaint(text)).toBe(expected))
})

describe('C-24 initial states, at load', () => {
  const state = (initial: string, more = ''): string =>
    `state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ 2, -1 ] ${initial} } ${more}`
  const good = 'initial_state { data_type: TYPE_INT32 dims: [ 2, 3 ] zero_data: true name: "z" }'
  const cases: [string, string][] = [
    [state(good), 'ok'],
    [state(''), 'ok'],
    [
      state(good + good),
      "initial_state field for state input 'I' must contain exactly one or zero element. Found '2' elements.",
    ],
    [
      state(good.replace('INT32', 'FP32')),
      "The data type used for 'initial_state' field of state 'I' does not match the state data type.",
    ],
    [state(good.replace('"z"', '""')), "Field 'name' must be set when using initial_state for state input 'I'."],
    [state(good, state(good)), "State input name 'I' specified more than once."],
    [
      state(good.replace('2, 3', '2')),
      "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 'I'. 1 != 2",
    ],
    [
      state(good.replace('2, 3', '2, -1')),
      "'initial_state' field for state input name 'I' contains variable dimensions.",
    ],
    [
      state(good.replace('2, 3', '4, 3')),
      "'initial_state' dim for input name 'I' doesn't match 'state' dim description. 4 != 2",
    ],
    [state(good.replace('zero_data: true', '')), "initial_state setting expects state'I' to have state_data set"],
  ]
  test.each(cases)('%j', (body, expected) => {
    expect(reason(() => finish(normalise(parsePbtxt(SEQ(body), '')), null)).replace('Invalid argument: ', '')).toBe(
      expected,
    )
  })
})

describe('C-06, C-07, C-12 inputs and outputs', () => {
  const input = (body: string): string =>
    `${ONNX} platform: "onnxruntime_onnx" max_batch_size: 8 input { name: "A" data_type: TYPE_FP32 ${body} }`
  const output = (body: string): string =>
    `${ONNX} platform: "onnxruntime_onnx" output { name: "A" data_type: TYPE_FP32 ${body} }`
  const trt = (body: string): string =>
    `name: "m" backend: "tensorrt" platform: "tensorrt_plan" input { name: "A" data_type: TYPE_FP32 ${body} }`
  const scatter = (body: string): string =>
    `${input('dims: 1')} output { name: "B" data_type: TYPE_FP32 dims: 1 } batch_output { ${body} }`
  const cases: [string, string][] = [
    [input('dims: [2, 4, -1, 6] reshape { shape: [8, -1, 1, 6] }'), 'ok'],
    [input('dims: 1 reshape { }'), 'ok'],
    [input('dims: 2 reshape { }'), "model input 'A' has different size for dims and reshape for m"],
    [
      output('dims: 1 reshape { }'),
      "model output 'A' cannot have empty reshape for non-batching model as scalar tensors are not supported for m",
    ],
    [
      output('dims: [3, 0]'),
      "model output 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ],
    [
      input('dims: 4 reshape { shape: [-2] }'),
      "model input 'A' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ],
    [input('dims: 4 reshape { shape: -1 }'), "model input 'A' has different size for dims and reshape for m"],
    [
      input('dims: [-1, 2] reshape { shape: [-1, -1] }'),
      "model input 'A' has different number of variable-size dimensions for dims and reshape for m",
    ],
    [
      input('dims: [2, -1, 6] reshape { shape: [6, -1, 2] }'),
      "model input 'A' has different size for dims and reshape for m",
    ],
    [
      input('dims: [9223372036854775807, 2] reshape { shape: 1 }'),
      "element count for tensor 'A dims' exceeds maximum size of 9223372036854775807 for m",
    ],
    [
      input('dims: 2 reshape { shape: [9223372036854775807, 2] }'),
      "element count for tensor 'A reshape' exceeds maximum size of 9223372036854775807 for m",
    ],
    [
      input('dims: 2 is_non_linear_format_io: true'),
      'Non-linear IO format is only supported for the TensorRT platform for m',
    ],
    [trt('dims: 2 is_non_linear_format_io: true'), 'Non-linear IO format input requires 3 dims for m'],
    [trt('dims: [1, 2, 3] is_non_linear_format_io: true is_shape_tensor: true'), 'ok'],
    [scatter('target_name: "B" source_input: "A"'), 'ok'],
    [
      scatter('target_name: "B"'),
      "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 0 for m",
    ],
    [scatter('target_name: "C" source_input: "A"'), "unknown target output name 'C' for m"],
    [scatter('target_name: "B" source_input: "C"'), "unknown source input name 'C' for m"],
    [scatter('target_name: ["B", "B"] source_input: "A"'), "target output name 'B' can only be specified once for m"],
    [scatter('kind: 9'), "unknown batch output kind '9' for m"],
  ]
  test.each(cases)('%j', (text, expected) => {
    expect(complaint(text, true)).toBe(expected)
    // Without [io] the same text passes: polling with auto-complete does not check it.
    expect(complaint(text, false)).toBe('ok')
  })
})

describe('S-26 ensembles, without their composing models', () => {
  const io = (kind: string, names: string[]): string =>
    names.map((n) => `${kind} { name: "${n}" data_type: TYPE_INT32 dims: 1 }`).join(' ')
  const step = (ins: string[], outs: string[], model = 'a'): string =>
    `step { model_name: "${model}" ` +
    `${ins.map((t, i) => `input_map { key: "I${i}" value: "${t}" }`).join(' ')} ` +
    `${outs.map((t, i) => `output_map { key: "O${i}" value: "${t}" }`).join(' ')} }`
  const ensemble = (ins: string[], outs: string[], steps: string, more = ''): string =>
    `name: "e" platform: "ensemble" ${io('input', ins)} ${io('output', outs)} ensemble_scheduling { ${steps} } ${more}`
  const good = step(['X'], ['Y'])
  const cases: [string, string][] = [
    [ensemble(['X'], ['Y'], good), 'ok'],
    [ensemble(['X'], ['Z'], step(['X'], ['t']) + step(['t', 'X'], ['Z'])), 'ok'],
    [ensemble(['X'], ['Z'], step(['t', 'X'], ['Z']) + step(['X'], ['t'])), 'ok'],
    [ensemble(['X'], ['Y'], good, 'instance_group { }'), "instance group should not be specified for ensemble 'e'"],
    [ensemble(['X'], ['Y'], good, 'optimization { }'), "optimization should not be specified for ensemble 'e'"],
    [ensemble(['X'], ['Y'], good, 'model_warmup { }'), "model_warmup can not be specified for ensemble 'e'"],
    [ensemble(['X'], ['Y'], ''), "must specify 'step' for ensemble 'e'"],
    [ensemble(['X'], ['Y'], step(['X'], ['Y'], '')), "must specify 'model_name' in step 0 of ensemble 'e'"],
    [ensemble(['X'], ['Y'], good + step([], ['Z'])), "must specify 'input_map' in step 1 of ensemble 'e'"],
    [ensemble(['X'], ['Y'], step(['X'], [])), "must specify 'output_map' in step 0 of ensemble 'e'"],
    [
      ensemble(['X'], ['Y'], good + good),
      "ensemble tensor 'Y' can appear in an output map only once for ensemble 'e' step 1",
    ],
    [ensemble(['X', 'W'], ['Y'], good), "ensemble input 'W' for ensemble e' is not used"],
    [ensemble(['X'], ['Y', 'Z'], good), "ensemble output 'Z' for ensemble e' is not used"],
    [
      ensemble(['X'], ['Y'], step(['X', 't'], ['Y'])),
      "output 'Y' for ensemble 'e' is not written: at least one of its depending tensors, 't', is not connected",
    ],
    [
      ensemble(['X'], ['Y'], step(['X', 't'], ['Y']) + step(['Y'], ['t'])),
      "output 'Y' for ensemble 'e' is not written: at least one of its depending tensors, 't', is not connected",
    ],
    [ensemble(['X'], ['X'], step(['X'], ['X'])), 'ok'],
    [ensemble(['X'], ['Y'], good + step(['Y'], ['X'])), 'ok'],
    [
      ensemble(['X'], ['X'], step(['X'], ['X']) + step(['X'], ['X'])),
      "ensemble tensor 'X' can appear in an output map only once for ensemble 'e' step 1",
    ],
    [ensemble(['X'], ['Y'], step(['X', 'Y'], ['Y'])), "output 'Y' for ensemble 'e' is not written"],
    [
      ensemble(['X'], ['Y'], step(['X', 'u'], ['t']) + step(['t'], ['u']) + step(['t'], ['Y'])),
      "output 'Y' for ensemble 'e' is not written: at least one of its depending tensors, 'u', is not connected",
    ],
    [ensemble(['X'], ['Y'], step(['X'], ['Y', 'u'])), "ensemble tensor 'u' is unused in ensemble 'e'"],
  ]
  test.each(cases)('%j', (text, expected) => expect(complaint(text)).toBe(expected))
})

describe('C-02 normalisation', () => {
  const shown = (text: string): unknown => {
    const { versionPolicy, schedulingChoice, optimization } = normalise(parsePbtxt(text, ''))
    return { versionPolicy: versionPolicy?.policyChoice.case, schedulingChoice, optimization }
  }
  test('version policy, preferred sizes, idle time and pinned memory get their defaults', () => {
    expect(shown('max_batch_size: 6 dynamic_batching { }')).toMatchObject({
      versionPolicy: 'latest',
      schedulingChoice: { value: { preferredBatchSize: [6] } },
      optimization: { inputPinnedMemory: { enable: true }, outputPinnedMemory: { enable: true } },
    })
    expect(shown('max_batch_size: 6 sequence_batching { oldest { } }')).toMatchObject({
      schedulingChoice: {
        value: { maxSequenceIdleMicroseconds: 1000000n, strategyChoice: { value: { preferredBatchSize: [6] } } },
      },
    })
  })
  test('existing fields stay; a batcher without batching gets no size', () => {
    expect(
      shown('version_policy { all { } } dynamic_batching { } optimization { input_pinned_memory { enable: false } }'),
    ).toMatchObject({
      versionPolicy: 'all',
      schedulingChoice: { value: { preferredBatchSize: [] } },
      optimization: { inputPinnedMemory: { enable: false }, outputPinnedMemory: { enable: true } },
    })
    expect(shown('ensemble_scheduling { }')).toMatchObject({ optimization: undefined })
  })
  test('twice is the same as once, and the argument stays as it was', () => {
    const given = parsePbtxt(`${ADDSUB_CONFIG} dynamic_batching { }`, '')
    const before = structuredClone(given)
    const once = normalise(given)
    expect(normalise(once)).toEqual(once)
    expect(given).toEqual(before)
  })
})

test('polling checks inputs and outputs only when auto-complete is off', () => {
  const bad = ADDSUB_CONFIG.replace('dims: [ 16 ]', 'dims: [ 0 ]')
  expect(reason(() => poll('m', bad))).toBe('ok')
  expect(reason(() => poll('m', bad, ['model.onnx'], false))).toBe(
    "Invalid argument: model input 'INPUT0' dimension must be integer >= 1, or -1 to indicate a " +
      'variable-size dimension for m',
  )
})

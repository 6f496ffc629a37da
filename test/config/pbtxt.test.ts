// The text format, row by row of its grammar (C-28), its reasons (C-29), and forms found in the wild (C-30).
import { toJson } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { ConfigError, ConfigSyntaxError, parsePbtxt } from '../../src/config/index.js'
import { ModelConfigSchema } from '../../src/config/generated/model_config_pb.js'

/** A text as protobuf JSON without defaults. */
function meaning(text: string): unknown {
  return toJson(ModelConfigSchema, parsePbtxt(text, 'config.pbtxt'), { useProtoFieldName: true })
}

/** `<line>:<column>: <reason>| <hint>` of an invalid configuration. */
function refusal(text: string | Uint8Array): string {
  try {
    parsePbtxt(text, 'config.pbtxt')
  } catch (error) {
    if (error instanceof ConfigSyntaxError)
      return `${error.line}:${error.column}: ${error.reason}${error.hint === '' ? '' : `| ${error.hint}`}`
    throw error
  }
  return 'accepted'
}

const INPUT = { input: [{ name: 'A', dims: ['1', '2'] }] }

describe('C-28 accepts', () => {
  const cases: [string, string, unknown][] = [
    ['nothing', '', {}],
    ['only a comment', '# nothing\n', {}],
    ['a byte-order mark', '\uFEFFname: "m"', { name: 'm' }],
    ['Windows line ends', 'name: "m"\r\nmax_batch_size: 3\r\n', { name: 'm', max_batch_size: 3 }],
    ['comments where a token may stand', 'name # c\n: # c\n"m" # c', { name: 'm' }],
    ['everything on one line', 'name:"m"max_batch_size:3', { name: 'm', max_batch_size: 3 }],
    ['braces', 'input { name: "A" dims: [1, 2] }', INPUT],
    ['braces after a colon', 'input: { name: "A" dims: [1, 2] }', INPUT],
    ['angle brackets', 'input < name: "A" dims: [1, 2] >', INPUT],
    ['angle brackets after a colon', 'input: < name: "A" dims: [1, 2] >', INPUT],
    [
      'a separator after any field',
      'name: "m"; input { name: "A", dims: [1, 2]; }, max_batch_size: 3,',
      { name: 'm', ...INPUT, max_batch_size: 3 },
    ],
    ['a repeated scalar by repetition', 'input { name: "A" dims: 1 dims: 2 }', INPUT],
    ['a repeated scalar in mixed forms', 'input { name: "A" dims: [1] dims: [] dims: 2 }', INPUT],
    ['an empty list', 'input { dims: [] }', { input: [{}] }],
    [
      'a repeated message by repetition',
      'input { name: "A" } input { name: "B" }',
      { input: [{ name: 'A' }, { name: 'B' }] },
    ],
    [
      'a repeated message as a list',
      'input [ { name: "A" }, < name: "B" > ]',
      { input: [{ name: 'A' }, { name: 'B' }] },
    ],
    ['a repeated message as a list after a colon', 'input: [ { name: "A" } ] input []', { input: [{ name: 'A' }] }],
    [
      'map entries in every form',
      'metric_tags { key: "a" value: "1" } metric_tags: [ < value: "2", key: "b"; > ]',
      { metric_tags: { a: '1', b: '2' } },
    ],
    [
      'a later map entry over an earlier one',
      'metric_tags { key: "a" value: "1" } metric_tags { key: "a" value: "2" }',
      { metric_tags: { a: '2' } },
    ],
    [
      'a map entry without its parts',
      'metric_tags { } parameters { key: "k" }',
      { metric_tags: { '': '' }, parameters: { k: {} } },
    ],
    [
      'integer map keys',
      'dynamic_batching { priority_queue_policy { key: 18446744073709551615 value { max_queue_size: 1 } } }',
      { dynamic_batching: { priority_queue_policy: { '18446744073709551615': { max_queue_size: 1 } } } },
    ],
    [
      'a default given twice, the last one',
      'max_batch_size: 0 max_batch_size: 4 name: "" name: "m"',
      { max_batch_size: 4, name: 'm' },
    ],
    ['single quotes', "name: 'm\"'", { name: 'm"' }],
    ['adjacent literals', 'name: "a" \'b\'\n  "c"', { name: 'abc' }],
    ['simple escapes', String.raw`name: "\a\b\f\n\r\t\v\\\'\"\?"`, { name: '\x07\b\f\n\r\t\v\\\'"?' }],
    ['octal and hex escapes', String.raw`name: "\101\7\x41\x9"`, { name: 'A\x07A\t' }],
    ['bytes that are UTF-8 together', String.raw`name: "\xc3" "\xa9"`, { name: 'é' }],
    ['unicode escapes', String.raw`name: "\u00e9\U0001F600"`, { name: 'é😀' }],
    ['a surrogate pair in two escapes', String.raw`name: "\ud83d\ude00"`, { name: '😀' }],
    ['UTF-8 in strings and comments', 'name: "é😀" # ü', { name: 'é😀' }],
    [
      'decimal, hex and octal',
      'instance_group { gpus: [10, 0x1F, 017, -0, 0] }',
      { instance_group: [{ gpus: [10, 31, 15, 0, 0] }] },
    ],
    [
      'signs, also apart',
      'input { dims: [-1, - 1, -9223372036854775808] }',
      { input: [{ dims: ['-1', '-1', '-9223372036854775808'] }] },
    ],
    [
      'the largest unsigned',
      'dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }',
      { dynamic_batching: { max_queue_delay_microseconds: '18446744073709551615' } },
    ],
    [
      'floats',
      'model_metrics { metric_control { histogram_options { buckets: [1, 1.5, .5, 1e3, 2.f, 3f, -1.5E-1, ' +
        'inf, -Infinity, NaN] } } }',
      {
        model_metrics: {
          metric_control: [
            { histogram_options: { buckets: [1, 1.5, 0.5, 1000, 2, 3, -0.15, 'Infinity', '-Infinity', 'NaN'] } },
          ],
        },
      },
    ],
    [
      'enums by name and number',
      'input { data_type: TYPE_FP32 format: 2 }',
      { input: [{ data_type: 'TYPE_FP32', format: 'FORMAT_NCHW' }] },
    ],
    ['enum numbers nobody has named', 'instance_group { kind: 77 }', { instance_group: [{ kind: 77 }] }],
    ...['true', 'True', 't', '1'].map((v): [string, string, unknown] => [
      `boolean ${v}`,
      `response_cache { enable: ${v} }`,
      { response_cache: { enable: true } },
    ]),
    ...['false', 'False', 'f', '0'].map((v): [string, string, unknown] => [
      `boolean ${v}`,
      `response_cache { enable: ${v} }`,
      { response_cache: {} },
    ]),
  ]
  test.each(cases)('%s', (_, text, expected) => expect(meaning(text)).toEqual(expected))
})

describe('C-28, C-29 refuses, with place, reason and hint', () => {
  const cases: [string, string][] = [
    ['max_batch_size 8 {', '1:16: Expected ":", found "8".'],
    ['name "m"', '1:6: Expected ":", found ""m"".'],
    [
      'max_batchsize: 3',
      '1:14: Message type "inference.ModelConfig" has no field named "max_batchsize".| Did you mean "max_batch_size"?',
    ],
    [
      'dynamic_batching { max_queue_delay_ms: 5 }',
      '1:38: Message type "inference.ModelDynamicBatching" has no field named "max_queue_delay_ms".| Did you mean ' +
        '"max_queue_delay_microseconds"?',
    ],
    ['\n  not_a_field: 3', '2:14: Message type "inference.ModelConfig" has no field named "not_a_field".'],
    [
      'maxBatchSize: 3',
      '1:13: Message type "inference.ModelConfig" has no field named "maxBatchSize".| Did you mean "max_batch_size"?',
    ],
    [
      'input { nane: "A" }',
      '1:13: Message type "inference.ModelInput" has no field named "nane".| Did you mean "name"?',
    ],
    [
      'kind: KIND_CPU',
      '1:5: Message type "inference.ModelConfig" has no field named "kind".| It is a field of ' +
        'inference.BatchInput, inference.BatchOutput, inference.ModelInstanceGroup.',
    ],
    [
      'instance_group { knd: KIND_CPU }',
      '1:21: Message type "inference.ModelInstanceGroup" has no field named "knd".| Did you mean "kind"?',
    ],
    [
      'metric_tags { key: "a" vaule: "b" }',
      '1:29: Message type "inference.ModelConfig.MetricTagsEntry" has no field named "vaule".| A map entry ' +
        'has the fields "key" and "value".',
    ],
    [
      'input { data_type: TYPE_FLOAT32 }',
      '1:33: Unknown enumeration value of "TYPE_FLOAT32" for field "data_type".| Did you mean "TYPE_FP32"?',
    ],
    [
      'input { data_type: FP32 }',
      '1:25: Unknown enumeration value of "FP32" for field "data_type".| Did you mean "TYPE_FP32"?',
    ],
    [
      'instance_group { kind: kind_cpu }',
      '1:33: Unknown enumeration value of "kind_cpu" for field "kind".| Did you mean "KIND_CPU"?',
    ],
    [
      'instance_group { kind: "KIND_CPU" }',
      '1:24: Expected integer or identifier, got: "KIND_CPU"| Values of an enumeration have no quotes.',
    ],
    ['max_batch_size: 1.5', '1:17: Expected integer, got: 1.5'],
    ['max_batch_size: +1', '1:17: Expected integer, got: +'],
    ['max_batch_size: "1"', '1:17: Expected integer, got: "1"'],
    ['max_batch_size: [1]', '1:17: Expected integer, got: ['],
    ['max_batch_size: 2147483648', '1:17: Integer out of range (2147483648)'],
    ['max_batch_size: 1_000', '1:18: Need space between number and identifier.'],
    ['max_batch_size: 5abc', '1:18: Need space between number and identifier.'],
    ['max_batch_size: abc.5', '1:17: Expected integer, got: abc'],
    ['name.5: 1', '1:5: Need space between identifier and decimal point.'],
    ['max_batch_size: 08', '1:18: Numbers starting with leading zero must be in octal.'],
    ['max_batch_size: 0x', '1:19: "0x" must be followed by hex digits.'],
    ['dynamic_batching { max_queue_delay_microseconds: -1 }', '1:50: Expected integer, got: -'],
    [
      'dynamic_batching { max_queue_delay_microseconds: 18446744073709551616 }',
      '1:50: Integer out of range (18446744073709551616)',
    ],
    [
      'response_cache { enable: yes }',
      '1:30: Invalid value for boolean field "enable". Value: "yes".| A boolean is true or false.',
    ],
    [
      'response_cache { enable: TRUE }',
      '1:31: Invalid value for boolean field "enable". Value: "TRUE".| A boolean is true or false.',
    ],
    ['response_cache { enable: 2 }', '1:26: Integer out of range (2)'],
    [
      'response_cache { enable: "true" }',
      '1:26: Expected identifier, got: "true"| A boolean is true or false, without quotes.',
    ],
    ['name: m', '1:7: Expected string, got: m| Strings need quotes.'],
    ['name: "a\nb"', '1:9: String literals cannot cross line boundaries.'],
    ['name: "a', '1:9: Unexpected end of string.'],
    [String.raw`name: "\q"`, '1:9: Invalid escape sequence in string literal.'],
    [String.raw`name: "\u12"`, '1:12: Expected four hex digits for \\u escape sequence.'],
    [String.raw`name: "\xff"`, '1:7: String field "name" contains invalid UTF-8.'],
    ['input { dims: [1,2,] }', '1:20: Expected integer, got: ]'],
    ['input { dims: [1 2] }', '1:18: Expected ",", found "2".'],
    ['input [ { name: "A" } { name: "B" } ]', '1:23: Expected ",", found "{".'],
    ['input [ { name: "A" }, ]', '1:24: Expected "{", found "]".'],
    ['input { name: "A" >', '1:19: Expected "}", found ">".'],
    ['input { name: "A"', '1:18: Expected identifier, got: | The block opened at 1:7 is not closed.'],
    ['name: "a",, max_batch_size: 1', '1:11: Expected identifier, got: ,'],
    ['}', '1:1: Expected identifier, got: }'],
    ['// comment', '1:1: Expected identifier, got: /'],
    ['/* comment */', '1:1: Expected identifier, got: /'],
    ['name: "a" é', '1:11: Interpreting non ascii codepoint 195.'],
    ['name: "a" \u0001', '1:11: Invalid control characters encountered in text.'],
    ['[foo.bar]: 1', '1:10: Extension "foo.bar" is not defined or is not an extension of "inference.ModelConfig".'],
    [
      'version_policy { latest { num_versions: 1 all { } }',
      '1:47: Message type "inference.ModelVersionPolicy.Latest" has no field named "all".| It is a field of ' +
        'inference.ModelVersionPolicy.',
    ],
    ['metric_tags { key: "__proto__" value: "x" }', '1:44: Map key "__proto__" is not supported.'],
  ]
  test.each(cases)('%j', (text, expected) => expect(refusal(text)).toBe(expected))

  test('the status begins with the text clients know, followed by the place', () => {
    expect(() => parsePbtxt('\n nam: "x"', '/models/m/config.pbtxt')).toThrow(
      expect.objectContaining({
        code: 'INTERNAL',
        message:
          'failed to read text proto from /models/m/config.pbtxt: 2:5: Message type "inference.ModelConfig" ' +
          'has no field named "nam". Did you mean "name"?',
      }),
    )
  })
})

describe('C-28 rejects repeated fields like protobuf', () => {
  const cases: [string, string][] = [
    ['max_batch_size: 8 max_batch_size: 4', '1:33: Non-repeated field "max_batch_size" is specified multiple times.'],
    ['name: "x" name: ""', '1:15: Non-repeated field "name" is specified multiple times.'],
    ['optimization { } optimization { }', '1:31: Non-repeated field "optimization" is specified multiple times.'],
    ['input { name: "a"\n  name: "b" }', '2:7: Non-repeated field "name" is specified multiple times.'],
    ['response_cache { enable: true enable: true }', '1:37: Non-repeated field "enable" is specified multiple times.'],
    ['metric_tags { key: "a" key: "b" value: "x" }', '1:27: Non-repeated field "key" is specified multiple times.'],
    ['parameters { key: "a" value { } value { } }', '1:39: Non-repeated field "value" is specified multiple times.'],
    [
      'sequence_batching { direct { minimum_slot_utilization: -0.0 minimum_slot_utilization: 0.5 } }',
      '1:85: Non-repeated field "minimum_slot_utilization" is specified multiple times.',
    ],
    [
      'dynamic_batching { } dynamic_batching { }',
      '1:39: Non-repeated field "dynamic_batching" is specified multiple times.',
    ],
    [
      'dynamic_batching { } sequence_batching { }',
      '1:40: Field "sequence_batching" is specified along with field "dynamic_batching", another member of ' +
        'oneof "scheduling_choice".',
    ],
    [
      'version_policy { latest { }\n\tall { } }',
      '2:13: Field "all" is specified along with field "latest", another member of oneof "policy_choice".',
    ],
    [
      'sequence_batching { direct { } oldest { } }',
      '1:39: Field "oldest" is specified along with field "direct", another member of oneof "strategy_choice".',
    ],
    [
      'sequence_batching { state { initial_state { zero_data: false data_file: "x" } } }',
      '1:71: Field "data_file" is specified along with field "zero_data", another member of oneof "state_data".',
    ],
    [
      'sequence_batching { state { initial_state { zero_data: false zero_data: true } } }',
      '1:71: Non-repeated field "zero_data" is specified multiple times.',
    ],
  ]
  test.each(cases)('%j', (text, expected) => expect(refusal(text)).toBe(expected))
})

describe('C-28 bytes that are no UTF-8', () => {
  const bytes = (...parts: (string | number)[]): Uint8Array =>
    Buffer.concat(parts.map((p) => (typeof p === 'string' ? Buffer.from(p) : Buffer.from([p]))))
  const cases: [string, Uint8Array, string][] = [
    ['in a string', bytes('name: "m', 0xff, '"'), '1:7: String field "name" contains invalid UTF-8.'],
    [
      'in a map value',
      bytes('metric_tags { key: "a" value: "', 0xc3, '" }'),
      '1:31: String field "value" contains invalid UTF-8.',
    ],
    ['outside of strings', bytes('name', 0xe9), '1:5: Interpreting non ascii codepoint 233.'],
    [
      'half a surrogate pair, escaped',
      bytes('name: "\\ud83d\\u0041"'),
      '1:7: String field "name" contains invalid UTF-8.',
    ],
    ['NUL in a string', bytes('name: "a', 0, 'b"'), '1:9: Unexpected end of string.'],
    ['NUL in a comment', bytes('# a', 0, 'b'), '1:4: Invalid control characters encountered in text.'],
    [
      'before a mistake: columns count bytes',
      bytes('name: "\u00e9" x: 1'),
      '1:13: Message type "inference.ModelConfig" has no field named "x".',
    ],
  ]
  test.each(cases)('%s', (_, text, expected) => expect(refusal(text)).toBe(expected))

  test('in a comment they mean nothing', () => {
    expect(parsePbtxt(bytes('# caf', 0xe9, '\nname: "m"'), 'f').name).toBe('m')
  })
})

test('a configuration of millions of values is refused soon', () => {
  const dims = `input { dims: [${'1,'.repeat(1_000_000)}1] }`
  expect(refusal(dims)).toMatch(/^1:\d+: More than 100000 values\.$/)
  expect(refusal('input{}'.repeat(1_000_000))).toMatch(/More than 100000 values/)
  expect(refusal('input{}'.repeat(100_000))).toBe('accepted')
})

describe('errors repeat a limited part of the text', () => {
  const long = 'x'.repeat(1_000_000)
  const cases: [string, string][] = [
    ['a field name', long],
    ['a value', `max_batch_size: "${long}"`],
    ['a number', `max_batch_size: ${'9'.repeat(1_000_000)}`],
    ['an enumeration', `instance_group { kind: ${long} }`],
    ['an extension', `[${long}]: 1`],
  ]
  test.each(cases)('%s', (_, text) => {
    const started = performance.now()
    const reason = refusal(text)
    expect(reason.length).toBeLessThan(1000)
    expect(reason).toMatch(/more (characters|bytes)/)
    expect(performance.now() - started).toBeLessThan(1000)
  })
})

describe('C-30 wild forms', () => {
  const cases: [string, unknown][] = [
    [
      'input [ { name: "A" data_type: TYPE_FP32 dims: [ 3, -1 ] }, { name: "B" } ]',
      { input: [{ name: 'A', data_type: 'TYPE_FP32', dims: ['3', '-1'] }, { name: 'B' }] },
    ],
    [
      'instance_group [{ count: 1 kind: KIND_GPU gpus: [0] }]',
      { instance_group: [{ count: 1, kind: 'KIND_GPU', gpus: [0] }] },
    ],
    ['dynamic_batching { }', { dynamic_batching: {} }],
    ['dynamic_batching: {}', { dynamic_batching: {} }],
    ['version_policy: { latest { num_versions: 1 }}', { version_policy: { latest: { num_versions: 1 } } }],
    ['parameters: { key: "x" value: { string_value: "y" } }', { parameters: { x: { string_value: 'y' } } }],
    ['parameters { key: "x", value: {string_value:"y"} }', { parameters: { x: { string_value: 'y' } } }],
    ['parameters: [ {key: "x" value {string_value: "y"}} ]', { parameters: { x: { string_value: 'y' } } }],
    [
      'ensemble_scheduling { step { input_map { key: "a" value: "b" } input_map { key: "c" value: "d" } } }',
      { ensemble_scheduling: { step: [{ input_map: { a: 'b', c: 'd' } }] } },
    ],
    [
      'optimization { execution_accelerators {\n gpu_execution_accelerator : [ { name\n : "tensorrt" ' +
        'parameters { key: "precision_mode" value: "FP16" } } ] } }',
      {
        optimization: {
          execution_accelerators: {
            gpu_execution_accelerator: [{ name: 'tensorrt', parameters: { precision_mode: 'FP16' } }],
          },
        },
      },
    ],
    ['input { dims: 16 reshape: { shape: [ ] } }', { input: [{ dims: ['16'], reshape: {} }] }],
    [
      'instance_group { rate_limiter { resources { global: True } } }',
      { instance_group: [{ rate_limiter: { resources: [{ global: true }] } }] },
    ],
    ["output { label_filename: 'labels.txt' }", { output: [{ label_filename: 'labels.txt' }] }],
    [
      'backend: "python"\r\ninput [\r\n  {\r\n    name: "A"\r\n  }\r\n]\r\n',
      { backend: 'python', input: [{ name: 'A' }] },
    ],
  ]
  test.each(cases)('%j', (text, expected) => expect(meaning(text)).toEqual(expected))
})

test('ConfigSyntaxError is a ConfigError', () => expect(() => parsePbtxt('?', 'f')).toThrow(ConfigError))

// JSON in both directions (C-31, C-32, C-33).
import { describe, expect, test } from 'vitest'
import { parseJsonConfig, parsePbtxt, toTritonJson } from '../../src/config/index.js'

const through = (json: string): string => toTritonJson(parseJsonConfig(json))

describe('C-32 accepts', () => {
  const cases: [string, string, string][] = [
    [
      'snake_case and lowerCamelCase',
      '{"max_batch_size":3,"defaultModelFilename":"x"}',
      'max_batch_size: 3 default_model_filename: "x"',
    ],
    [
      'enums in any case and as numbers',
      '{"input":[{"data_type":"type_fp32","format":2}]}',
      'input { data_type: TYPE_FP32 format: FORMAT_NCHW }',
    ],
    [
      '64-bit integers as numbers and strings',
      '{"input":[{"dims":[-1,"9223372036854775807",9223372036854775807]}]}',
      'input { dims: [-1, 9223372036854775807, 9223372036854775807] }',
    ],
    [
      'whole numbers in float spelling',
      '{"max_batch_size":8.0,"instance_group":[{"count":1e1}]}',
      'max_batch_size: 8 instance_group { count: 10 }',
    ],
    ['null as unset', '{"name":null,"optimization":null,"input":null}', ''],
    ['an empty object', ' { } ', ''],
    [
      'maps with integer keys',
      '{"dynamic_batching":{"priority_queue_policy":{"18446744073709551615":{}}}}',
      'dynamic_batching { priority_queue_policy { key: 18446744073709551615 value { } } }',
    ],
    ['a comma before a closing bracket', '{"input":[{"dims":[1,2,],},],}', 'input { dims: [1, 2] }'],
    [
      'single quotes, bare keys, raw control characters, escapes nobody knows',
      "{name:'a\tb\n\\q\"'}",
      String.raw`name: "a\tb\nq\""`,
    ],
    ['one value where a list is wanted', '{"input":{"name":"A","dims":3}}', 'input { name: "A" dims: 3 }'],
    [
      'a repeated field twice, appended',
      '{"input":[{"dims":[1],"dims":[2,3]}],"input":{"dims":4}}',
      'input { dims: [1, 2, 3] } input { dims: 4 }',
    ],
    [
      'a map twice, appended, the later value of a key',
      '{"metric_tags":{"a":"1","b":"2"},"metricTags":{"b":"3"}}',
      'metric_tags { key: "a" value: "1" } metric_tags { key: "b" value: "3" }',
    ],
    ['a scalar twice, the last one', '{"max_batch_size":8,"maxBatchSize":4}', 'max_batch_size: 4'],
    [
      'a message twice, merged',
      '{"optimization":{"eager_batching":true},"optimization":{"graph":{"level":1}}}',
      'optimization { eager_batching: true graph { level: 1 } }',
    ],
    ['booleans in quotes', '{"response_cache":{"enable":"True"}}', 'response_cache { enable: true }'],
    [
      'a number in quotes for a named enum value',
      '{"instance_group":{"kind":"2"}}',
      'instance_group { kind: KIND_CPU }',
    ],
    ['numbers with a bare point', '{"max_batch_size":8.}', 'max_batch_size: 8'],
    ['escapes', String.raw`{"name":"aé\n"}`, String.raw`name: "aé\n"`],
  ]
  test.each(cases)('%s', (_, json, text) => expect(parseJsonConfig(json)).toEqual(parsePbtxt(text, '')))
})

describe('C-32 refuses with INVALID_ARG', () => {
  const cases: [string, string][] = [
    ['', '1:1: unexpected end of text'],
    ['{} x', '1:4: expected the end of the text'],
    ['{"a":1,,}', "1:8: expected a key or '}'"],
    ['[1,,]', "1:4: expected a value, found ','"],
    ['{null:1}', "1:6: expected a key or '}'"],
    ['{"name":"\\u00', '1:11: invalid escape in string'],
    ['{"name":"a', '1:9: string is not closed'],
    ['{"name":"\\u00g0"}', '1:11: invalid escape in string'],
    ['{"max_batch_size":010}', '1:22: octal and hex numbers are not JSON: 010'],
    ['{"max_batch_size":1-2}', '1:22: not a number: 1-2'],
    ['{"max_batch_size":"1.0"}', '(max_batch_size): invalid value "1.0" for type TYPE_INT32'],
    ['{"max_batch_size":" 1"}', '(max_batch_size): invalid value " 1" for type TYPE_INT32'],
    ['{"input":[{"dims":[null]}]}', '(input[0].dims[0]): invalid value null for type TYPE_INT64'],
    ['{"metric_tags":{"a":"1","a":"2"}}', "(metric_tags) a: Repeated map key: 'a' is already set."],
    ['{"name":[]}', '(name): invalid value List for type TYPE_STRING'],
    ['[]', '(root): invalid value List for type inference.ModelConfig'],
    ['{"nope":1}', 'nope: Cannot find field.'],
    ['{"maxBatchSizes":1}', 'maxBatchSizes: Cannot find field. Did you mean "max_batch_size"?'],
    [
      '{"dynamic_batching":{"max_queue_delay_ms":5}}',
      '(dynamic_batching) max_queue_delay_ms: Cannot find field. Did you mean "max_queue_delay_microseconds"?',
    ],
    ['{"input":[{"nope":1}]}', '(input[0]) nope: Cannot find field.'],
    [
      '{"dynamic_batching":{"default_queue_policy":{"x":0}}}',
      '(dynamic_batching.default_queue_policy) x: Cannot find field.',
    ],
    ['{"max_batch_size":"many"}', '(max_batch_size): invalid value "many" for type TYPE_INT32'],
    ['{"max_batch_size":2147483648}', '(max_batch_size): invalid value 2147483648 for type TYPE_INT32'],
    ['{"max_batch_size":1.5}', '(max_batch_size): invalid value 1.5 for type TYPE_INT32'],
    ['{"name":3}', '(name): invalid value 3 for type TYPE_STRING'],
    ['{"name":"\\ud800"}', '(name): invalid value "\\ud800" for type TYPE_STRING'],
    ['{"input":[{"data_type":"FP32"}]}', '(input[0].data_type): invalid value "FP32" for type inference.DataType'],
    ['{"response_cache":{"enable":1}}', '(response_cache.enable): invalid value 1 for type TYPE_BOOL'],
    [
      '{"dynamic_batching":{},"sequence_batching":{}}',
      ": invalid value oneof field 'scheduling_choice' is already set. Cannot set 'sequence_batching' for type oneof",
    ],
    [
      '{"sequence_batching":{"direct":{},"oldest":{}}}',
      "(sequence_batching): invalid value oneof field 'strategy_choice' is already set. Cannot set 'oldest' " +
        'for type oneof',
    ],
    [
      '{"version_policy":{"latest":{},"latest":{}}}',
      "(version_policy): invalid value oneof field 'policy_choice' is already set. Cannot set 'latest' for type oneof",
    ],
    ['{"metric_tags":{"__proto__":"x"}}', '(metric_tags): invalid value "__proto__" for type map key'],
    [`${'['.repeat(200)}`, '1:102: nesting deeper than 100'],
  ]
  test.each(cases)('%j', (json, expected) => {
    expect(() => parseJsonConfig(json)).toThrow(
      expect.objectContaining({ code: 'INVALID_ARG', message: `Invalid config override: ${expected}` }),
    )
  })
})

test('a configuration of millions of values is refused soon', () => {
  for (const items of ['{},', '{"dims":[1,1,1,1,1,1,1,1,1]},']) {
    expect(() => parseJsonConfig(`{"input":[${items.repeat(500_000)}]}`)).toThrow(
      /^Invalid config override: 1:\d+: more than 100000 values$/,
    )
  }
})

describe('C-31 prints', () => {
  const cases: [string, string, string][] = [
    [
      'uint64 with full precision, as a number',
      'dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }',
      '"max_queue_delay_microseconds":18446744073709551615,',
    ],
    [
      'policies by level',
      'dynamic_batching { priority_queue_policy { key: 1 value { default_timeout_microseconds: 7 } } }',
      '"priority_queue_policy":{"1":{"timeout_action":"REJECT","default_timeout_microseconds":7,"allow_timeout_override":false,"max_queue_size":0}}',
    ],
    [
      'device ids as strings (C-33)',
      'instance_group { secondary_devices { device_id: 5 } }',
      '"secondary_devices":[{"kind":"KIND_NVDLA","device_id":"5"}]',
    ],
    [
      'graph dims as strings (C-33)',
      'optimization { cuda { graph_spec { input { key: "a" value { dim: [1, 2] } } } } }',
      '"input":{"a":{"dim":["1","2"]}}',
    ],
    [
      'versions as numbers',
      'version_policy { specific { versions: [1, 3] } }',
      '"version_policy":{"specific":{"versions":[1,3]}}',
    ],
    [
      'step versions as numbers, 0 when left out (C-25)',
      'ensemble_scheduling { step { model_name: "a" } }',
      '"model_name":"a","model_version":0,"input_map":{},"output_map":{},"model_namespace":""',
    ],
    [
      'warmup data last',
      'model_warmup { inputs { key: "x" value { zero_data: false dims: 3 } } }',
      '"inputs":{"x":{"data_type":"TYPE_INVALID","dims":[3],"zero_data":false}},"count":0',
    ],
    [
      'floats in their shortest form',
      'sequence_batching { direct { minimum_slot_utilization: 0.1 } }',
      '"minimum_slot_utilization":0.1',
    ],
    ['enum numbers without a name', 'instance_group { kind: 77 }', '"kind":77'],
    [
      'strings escaped with capital digits',
      String.raw`metric_tags { key: "a\"\\u001f" value: "\x1f/é" }`,
      String.raw`"metric_tags":{"a\"\\u001f":"\u001F/é"}`,
    ],
    [
      'a reshape of an output next to its dims',
      'output { dims: 1 reshape { } label_filename: "l" }',
      '"dims":[1],"reshape":{"shape":[]},"label_filename":"l"',
    ],
  ]
  test.each(cases)('%s', (_, text, expected) => {
    const json = toTritonJson(parsePbtxt(text, ''))
    expect(json).toContain(expected)
    expect(through(json)).toBe(json)
  })
})

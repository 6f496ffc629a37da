// Parameters of text models: roles and aliases, in models of any backend; what a configuration gets by default.
import { describe, expect, test } from 'vitest'
import { completeFromModel, normalise, parsePbtxt, validate } from '../../src/config/index.js'
import { aliasClashes, aliasesOf } from '../../src/config/text.js'
import { reason } from './helpers.js'

const parameter = (key: string, value: string): string =>
  `parameters { key: "${key}" value { string_value: "${value}" } }`
const config = (backend: string, ...parameters: string[]) =>
  normalise(parsePbtxt(`name: "m" backend: "${backend}" ${parameters.join(' ')}`, ''))
const complaint = (backend: string, ...parameters: string[]): string =>
  reason(() => validate(config(backend, ...parameters), { io: false })).replace('Invalid argument: ', '')

const EXAMPLE = '; write for example "text-embedding-3-small tokens=cl100k_base; other-name"'
const OF_ALIAS = "parameter 'nereid.alias' of model 'm': "
const IS_NAME = 'an alias has 1 to 256 letters of ASCII, digits and any of _./:@+-, got '

describe('roles and aliases', () => {
  const cases: [string, string, string][] = [
    ['python', parameter('nereid.text', 'rerank'), 'ok'],
    ['text', parameter('nereid.text', 'classify'), 'ok'],
    [
      'python',
      parameter('nereid.text', 'embedding'),
      "parameter 'nereid.text' of model 'm' is 'embedding', and may be embed, rerank, classify",
    ],
    ['text', parameter('nereid.alias', 'BAAI/bge-small-en-v1.5; nomic:latest tokens=own'), 'ok'],
    ['python', parameter('nereid.text', 'embed') + parameter('nereid.alias', 'a'), 'ok'],
    [
      'python',
      `${parameter('nereid.alias', 'a')} input { name: "IN" data_type: TYPE_STRING dims: [ 1 ] }`,
      "parameter 'nereid.alias' of model 'm' is only for text models: backend \"text\", any backend with the " +
        "parameter 'nereid.text' (embed, rerank, classify), or a model that chats (text_input, text_output)",
    ],
    ['vllm', parameter('nereid.alias', 'a'), 'ok'],
    ['python', parameter('nereid.alias', 'a') + parameter('nereid.chat', 'prompt=IN text=OUT'), 'ok'],
    ['text', parameter('nereid.alias', ''), `${OF_ALIAS}${IS_NAME}''${EXAMPLE}`],
    ['text', parameter('nereid.alias', 'a;'), `${OF_ALIAS}${IS_NAME}''${EXAMPLE}`],
    [
      'text',
      parameter('nereid.alias', 'x'.repeat(257)),
      `${OF_ALIAS}${IS_NAME}'${'x'.repeat(256)}… (1 more characters)'${EXAMPLE}`,
    ],
    [
      'text',
      parameter('nereid.alias', 'a tokens=cl100k'),
      `${OF_ALIAS}tokens of an alias are own, cl100k_base, o200k_base, got 'cl100k'${EXAMPLE}`,
    ],
    ['text', parameter('nereid.alias', 'a tokens='), `${OF_ALIAS}tokens= needs a value${EXAMPLE}`],
    [
      'text',
      parameter('nereid.alias', 'a b'),
      `${OF_ALIAS}after the name 'a' only tokens=own|cl100k_base|o200k_base may follow, got 'a b'${EXAMPLE}`,
    ],
    [
      'text',
      parameter('nereid.alias', Array.from({ length: 65 }, (_, i) => `a${i}`).join(';')),
      `${OF_ALIAS}a model has at most 64 aliases${EXAMPLE}`,
    ],
  ]
  test.each(cases)('%s, %s', (backend, parameters, expected) => {
    expect(complaint(backend, parameters)).toBe(expected)
  })

  test('an alias has a name and the tokenizer of its token ids', () => {
    expect(aliasesOf(config('text', parameter('nereid.alias', 'small tokens=cl100k_base; other')))).toEqual([
      { alias: 'small', tokens: 'cl100k_base' },
      { alias: 'other', tokens: '' },
    ])
    expect(aliasesOf(config('text'))).toEqual([])
  })
})

describe('a text model', () => {
  const tensor = (name: string, datatype: number, shape: number[]) => ({ name, datatype, shape, optional: false })
  const io = { inputs: [tensor('text', 13, [-1, 1])], outputs: [tensor('embedding', 11, [-1, 384])] }

  test('has max_batch_size 1024 unless it sets another one, whatever other backends have', () => {
    const full = completeFromModel(config('text'), io, 4)
    expect(full).toMatchObject({
      maxBatchSize: 1024,
      input: [{ name: 'text', dataType: 13, dims: [1n] }],
      output: [{ name: 'embedding', dataType: 11, dims: [384n] }],
    })
    expect(completeFromModel(config('text', 'max_batch_size: 8'), io).maxBatchSize).toBe(8)
  })
})

test('an alias that leads to another model is named, with that model', () => {
  const named = (name: string, ...parameters: string[]) => ({ ...config('text', ...parameters), name })
  const [a, b] = [named('a', parameter('nereid.alias', 'small')), named('b', parameter('nereid.alias', 'small; a; c'))]
  expect(aliasClashes(a, [a, b])).toEqual([])
  expect(aliasClashes(b, [a, b])).toEqual([
    "alias 'small' of model 'b' is also an alias of model 'a', which takes precedence",
    "alias 'a' of model 'b' is also the name of a model, which takes precedence",
  ])
})

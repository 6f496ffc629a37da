/**
 * Wrong arguments of every public function give a ClientError with the argument, its value and the expected one.
 * Nothing is sent: there is no server here.
 */
import { afterAll, describe, expect, test } from 'vitest'
import * as node from '../../client/src/node.js'
import { bfloat16, ClientError, float16, type ConnectOptions } from '../../client/src/node.js'
import { WAYS } from './transports.js'

/** Ports without a listener. */
const PORTS = { httpPort: 9, grpcPort: 9 }
const UNSET = undefined as never
const ok = { X: new Float32Array(1) }
const region = { shared_memory_region: 'r', shared_memory_byte_size: 4 }

/** The client as a program without types sees it. */
type Untyped = Record<string, (...args: unknown[]) => unknown> & {
  models: Record<string, Untyped>
  systemSharedMemory: Untyped
  cudaSharedMemory: Untyped
}

/** Failure of an iteration or a promise. */
async function failureOf(make: () => unknown): Promise<unknown> {
  try {
    const made = await make()
    if (typeof made === 'object' && made !== null && Symbol.asyncIterator in made)
      for await (const _ of made as AsyncIterable<unknown>) break
    return 'no failure'
  } catch (error) {
    return error
  }
}

/** Elements that a datatype does not hold, with what it holds. */
const ELEMENTS: [datatype: string, wrong: unknown, shown: string, holds: string][] = [
  ['UINT8', 257, '257', 'an integer from 0 to 255'],
  ['UINT8', -1, '-1', 'an integer from 0 to 255'],
  ['INT8', 128, '128', 'an integer from -128 to 127'],
  ['INT16', 1.5, '1.5', 'an integer from -32768 to 32767'],
  ['UINT16', NaN, 'NaN', 'an integer from 0 to 65535'],
  ['INT32', 2 ** 31, '2147483648', 'an integer from -2147483648 to 2147483647'],
  ['INT32', 2n ** 40n, '1099511627776n', 'an integer from -2147483648 to 2147483647'],
  ['UINT32', Infinity, 'Infinity', 'an integer from 0 to 4294967295'],
  [
    'INT64',
    2n ** 63n,
    '9223372036854775808n',
    'an integer from -9223372036854775808 to 9223372036854775807 (beyond 2^53 a bigint)',
  ],
  ['UINT64', 2 ** 53, '9007199254740992', 'an integer from 0 to 18446744073709551615 (beyond 2^53 a bigint)'],
  ['FP16', 65520, '65520', 'a number between -65520 and 65520'],
  ['BF16', -3.4e38, '-3.4e+38', 'a number between -3.39617752923046e+38 and 3.39617752923046e+38'],
  ['FP32', 1e39, '1e+39', 'a number between -3.4028235677973366e+38 and 3.4028235677973366e+38'],
  ['FP64', 1n, '1n', 'a number'],
  ['BOOL', 2, '2', 'a boolean'],
]

const CALLS: [what: string, call: (client: Untyped) => unknown, text: string][] = [
  ...ELEMENTS.map(([datatype, wrong, shown, holds]): (typeof CALLS)[number] => [
    `${shown} as an element of ${datatype}`,
    (c) => c['infer']?.('m', { X: { datatype, shape: [2], data: [datatype === 'BOOL' ? true : 1, wrong] } }),
    `input 'X': element 1 is ${shown}, ${holds} was expected for ${datatype}`,
  ]),
  [
    '2 as a byte of BOOL',
    (c) => c['infer']?.('m', { X: { datatype: 'BOOL', shape: [3], data: Uint8Array.of(1, 0, 2) } }),
    "input 'X': element 2 is 2, 0 or 1 was expected for BOOL",
  ],
  ['no name of a model', (c) => c['infer']?.(), 'model must be a string that is not empty, got undefined'],
  ['an empty name', (c) => c['modelReady']?.(''), 'model must be a string that is not empty, got ""'],
  [
    'half a character as a name',
    (c) => c['modelMetadata']?.('\ud800'),
    'model must be a string that is not empty, got "\\ud800"',
  ],
  ['a number as a name', (c) => c['modelConfig']?.(7), 'model must be a string that is not empty, got 7'],
  ['a name of statistics', (c) => c['statistics']?.(null), 'model must be a string, got null'],
  ['no name to load', (c) => c['load']?.(), 'model must be a string that is not empty, got undefined'],
  ['no name to unload', (c) => c['unload']?.(undefined, {}), 'model must be a string that is not empty, got undefined'],
  [
    'a model of client.models',
    (c) => c.models['']?.['infer']?.(ok),
    'model must be a string that is not empty, got ""',
  ],
  ['no inputs', (c) => c['infer']?.('m'), 'inputs must be an object, got undefined'],
  [
    'an array as inputs',
    (c) => c['infer']?.('m', new Float32Array(1)),
    'inputs must be an object, got an object (Float32Array)',
  ],
  [
    'an input that is a number',
    (c) => c['infer']?.('m', { X: 5 }),
    "input 'X' must be a typed array, an ArrayBuffer, an array, or an object that has one of these as data, got 5",
  ],
  [
    'an input that is undefined',
    (c) => c['infer']?.('m', { X: undefined }),
    "input 'X' must be a typed array, an ArrayBuffer, an array, or an object that has one of these as data, " +
      'got undefined',
  ],
  [
    'an input without data',
    (c) => c['infer']?.('m', { X: {} }),
    "input 'X': data must be a typed array, an ArrayBuffer or an array, got undefined",
  ],
  [
    'a text as data',
    (c) => c['infer']?.('m', { X: { data: 'abc' } }),
    `input 'X': data must be a typed array, an ArrayBuffer or an array, got "abc"`,
  ],
  [
    'a text as a shape',
    (c) => c['infer']?.('m', { X: { data: [1], shape: '1' } }),
    `input 'X': shape must be an array, got "1"`,
  ],
  [
    'a dimension that is no number',
    (c) => c['infer']?.('m', { X: { data: [1], shape: [NaN] } }),
    "input 'X': shape [NaN] has the dimension NaN, and dimensions are integers of at least 0",
  ],
  [
    'a dimension that is undefined',
    (c) => c['infer']?.('m', { X: { data: [1], shape: [undefined] } }),
    "input 'X': shape [] has the dimension undefined, and dimensions are integers of at least 0",
  ],
  [
    'dimensions below 0',
    (c) => c['infer']?.('m', { X: { data: [1], shape: [-1, -1] } }),
    "input 'X': shape [-1,-1] has the dimension -1, and dimensions are integers of at least 0",
  ],
  [
    'a number as a datatype',
    (c) => c['infer']?.('m', { X: { data: [1], datatype: 4 } }),
    "input 'X': datatype must be a string that is not empty, got 4",
  ],
  [
    'a region without a name',
    (c) => c['infer']?.('m', { X: { parameters: { shared_memory_byte_size: 4 }, shape: [1], datatype: 'FP32' } }),
    "input 'X': parameters.shared_memory_region must be a string that is not empty, got undefined",
  ],
  [
    'a region without a shape',
    (c) => c['infer']?.('m', { X: { parameters: region, datatype: 'FP32' } }),
    "input 'X': shape must be an array, got undefined",
  ],
  ['a list of inputs with null', (c) => c['infer']?.('m', [null]), 'inputs[0] must be an object, got null'],
  [
    'a list of inputs without names',
    (c) => c['infer']?.('m', [{ data: [1] }]),
    'inputs[0].name must be a string that is not empty, got undefined',
  ],
  ['null as options', (c) => c['infer']?.('m', ok, null), 'options must be an object, got null'],
  ['options that are a text', (c) => c['live']?.('x'), 'options must be an object, got "x"'],
  [
    'a deadline of NaN',
    (c) => c['ready']?.({ deadlineMs: NaN }),
    'deadlineMs must be a number of milliseconds, 0 or more, got NaN',
  ],
  [
    'a deadline in a text',
    (c) => c['index']?.({ deadlineMs: '5' }),
    'deadlineMs must be a number of milliseconds, 0 or more, got "5"',
  ],
  [
    'a deadline below 0',
    (c) => c['serverMetadata']?.({ deadlineMs: -1 }),
    'deadlineMs must be a number of milliseconds, 0 or more, got -1',
  ],
  [
    'a signal that is none',
    (c) => c['live']?.({ signal: new AbortController() }),
    'signal must be an AbortSignal, got an object (AbortController)',
  ],
  ['headers that are a list', (c) => c['live']?.({ headers: ['a: b'] }), 'headers must be an object, got an array'],
  [
    'a header without a value',
    (c) => c['live']?.({ headers: { 'x-a': undefined } }),
    'header x-a must be a string, got a value of type undefined',
  ],
  [
    'a version of NaN',
    (c) => c['infer']?.('m', ok, { version: NaN }),
    'version must be a string or an integer of at least 0, got NaN',
  ],
  [
    'a version of null',
    (c) => c['modelReady']?.('m', { version: null }),
    'version must be a string or an integer of at least 0, got null',
  ],
  ['an id that is a number', (c) => c['infer']?.('m', ok, { id: 42 }), 'id must be a string, got 42'],
  ['outputs that are a text', (c) => c['infer']?.('m', ok, { outputs: 'Y' }), 'outputs must be an array, got "Y"'],
  [
    'an output that is null',
    (c) => c['infer']?.('m', ok, { outputs: ['Y', null] }),
    'outputs[1] must be an object, got null',
  ],
  [
    'an output without a name',
    (c) => c['infer']?.('m', ok, { outputs: [{}] }),
    'outputs[0].name must be a string that is not empty, got undefined',
  ],
  [
    'half a class',
    (c) => c['infer']?.('m', ok, { outputs: [{ name: 'Y', classification: 1.5 }] }),
    'outputs[0].classification must be an integer of at least 1, got 1.5',
  ],
  [
    'an output in a region without a size',
    (c) => c['infer']?.('m', ok, { outputs: [{ name: 'Y', parameters: { shared_memory_region: 'r' } }] }),
    'outputs[0].parameters.shared_memory_byte_size must be an integer from 0 to 18446744073709551615, got undefined',
  ],
  [
    'a parameter that is an object',
    (c) => c['infer']?.('m', ok, { parameters: { a: {} } }),
    'parameters must be an object of strings, numbers, booleans and bigints of signed 64 bits, got an object (Object)',
  ],
  [
    'a parameter beyond 64 bits',
    (c) => c['infer']?.('m', ok, { parameters: { a: 2n ** 63n } }),
    'parameters must be an object of strings, numbers, booleans and bigints of signed 64 bits, got an object (Object)',
  ],
  [
    'a priority below 0',
    (c) => c['infer']?.('m', ok, { priority: -1 }),
    'priority must be an integer from 0 to 18446744073709551615, got -1',
  ],
  [
    'a time that is no integer',
    (c) => c['infer']?.('m', ok, { timeoutUs: 1.5 }),
    'timeoutUs must be an integer from 0 to 18446744073709551615, got 1.5',
  ],
  [
    'a sequence without an id',
    (c) => c['infer']?.('m', ok, { sequence: {} }),
    'sequence.id must be a string that is not empty, or an integer from 1 to 18446744073709551615, got undefined',
  ],
  [
    'a sequence of id 0',
    (c) => c['sequence']?.('m', { id: 0 }),
    'id must be a string that is not empty, or an integer from 1 to 18446744073709551615, got 0',
  ],
  ['a sequence of no model', (c) => c['sequence']?.(), 'model must be a string that is not empty, got undefined'],
  [
    'options of a sequence',
    (c) => (c['sequence']?.('m') as Untyped | undefined)?.['infer']?.(ok, null),
    'options must be an object, got null',
  ],
  [
    'another compression',
    (c) => c['infer']?.('m', ok, { compress: 'br' }),
    "compress must be 'gzip' or 'deflate', got \"br\"",
  ],
  [
    'a flag that is a number',
    (c) => c['infer']?.('m', ok, { binaryInputs: 0 }),
    'binaryInputs must be true or false, got 0',
  ],
  [
    'a configuration that is a number',
    (c) => c['load']?.('m', { config: 5 }),
    'config must be a string or an object, got 5',
  ],
  [
    'files that are texts',
    (c) => c['load']?.('m', { config: {}, files: { '1/model.onnx': 'x' } }),
    'files must be an object of Uint8Arrays, got an object (Object)',
  ],
  [
    'trace settings that are a list',
    (c) => c['traceSettings']?.({ update: [] }),
    'update must be an object of strings, lists of strings and null, got an array',
  ],
  [
    'a trace setting that is a number',
    (c) => c['traceSettings']?.({ update: { trace_rate: 5 } }),
    'update must be an object of strings, lists of strings and null, got an object (Object)',
  ],
  [
    'a log setting of NaN',
    (c) => c['logSettings']?.({ update: { log_verbose_level: NaN } }),
    'update must be an object of strings, booleans and integers from 0, got an object (Object)',
  ],
  ['a region of no name', (c) => c.systemSharedMemory['status']?.(5), 'name must be a string, got 5'],
  [
    'a region that is not described',
    (c) => c.systemSharedMemory['register']?.('r'),
    'registration must be an object, got undefined',
  ],
  [
    'a region without a key',
    (c) => c.systemSharedMemory['register']?.('r', { byte_size: 4 }),
    'registration.key must be a string that is not empty, got undefined',
  ],
  [
    'a region of NaN bytes',
    (c) => c.systemSharedMemory['register']?.('r', { key: '/k', byte_size: NaN }),
    'registration.byte_size must be an integer from 0 to 18446744073709551615, got NaN',
  ],
  [
    'a handle that is a text',
    (c) => c.cudaSharedMemory['register']?.('r', { raw_handle: 'x', device_id: 0, byte_size: 4 }),
    'registration.raw_handle must be a Uint8Array, got "x"',
  ],
]

describe.each(WAYS)('over $name', (way) => {
  // Retries of a usage error would take an hour.
  const client = way.connect(PORTS, { check: false, retry: { attemptsMax: 100_000, budget: 100_000, delayMs: 1000 } })
  afterAll(() => client.close())

  test.each(CALLS)('%s is refused', async (_, call, text) => {
    const error = await failureOf(() => call(client as unknown as Untyped))
    expect(error).toBeInstanceOf(ClientError)
    expect(error).toMatchObject({ code: 'INVALID_ARG', status: 0, mayHaveRun: false, text })
  })
})

test('events and streams refuse wrong arguments when they are iterated or sent', async () => {
  const [http, , grpc] = WAYS.map((way) => way.connect(PORTS) as unknown as Untyped)
  const check = async (make: () => unknown, text: string) =>
    expect(await failureOf(make)).toMatchObject({ code: 'INVALID_ARG', text })
  await check(() => http?.['generate']?.('m'), 'body must be an object, got undefined')
  await check(() => http?.['generate']?.('', {}), 'model must be a string that is not empty, got ""')
  await check(() => http?.['generateStream']?.('m', 'x'), 'body must be an object, got "x"')
  const circle: Record<string, unknown> = {}
  circle['own'] = circle
  expect(await failureOf(() => http?.['generate']?.('m', circle))).toMatchObject({
    code: 'INVALID_ARG',
    text: expect.stringMatching(/^body cannot be written as JSON: /),
  })
  expect(await failureOf(() => http?.['load']?.('m', { config: circle }))).toMatchObject({
    code: 'INVALID_ARG',
    text: expect.stringMatching(/^config cannot be written as JSON: /),
  })
  await check(() => grpc?.['inferStream']?.(), 'model must be a string that is not empty, got undefined')
  await check(
    () => grpc?.['inferStream']?.('m', ok, { deadlineMs: NaN }),
    'deadlineMs must be a number of milliseconds, 0 or more, got NaN',
  )
  await check(() => grpc?.['stream']?.(null), 'options must be an object, got null')
  await check(
    () => (grpc?.['stream']?.() as Untyped | undefined)?.['send']?.('m', ok, 5),
    'options must be an object, got 5',
  )
})

test.each<[what: string, url: unknown, text: string | RegExp]>([
  ['nothing', undefined, 'an address begins with http://, https://, grpc:// or grpcs://'],
  ['no host', 'http://', /^an address is http:\/\/HOST:PORT/],
  ['no host of gRPC', 'grpc://', /^an address is grpc:\/\/HOST:PORT/],
  ['a space in a host of gRPC', 'grpc://a b:8001', /^an address is grpc:\/\/HOST:PORT/],
  ['a character that no host has', 'grpcs://a%5eb:8001', /^an address is grpcs:\/\/HOST:PORT/],
  ['a port beyond 65535', 'http://localhost:99999', /^an address is http:\/\/HOST:PORT with a port up to 65535/],
  [
    'a password with a % that is no escape',
    'http://me:100%@localhost:8000',
    /^user and password of an address need %XX/,
  ],
])('an address that is %s is refused', (_, url, text) => {
  expect(() => node.connect(url as string)).toThrow(
    expect.objectContaining({
      name: 'ClientError',
      code: 'INVALID_ARG',
      text: typeof text === 'string' ? text : expect.stringMatching(text),
    }),
  )
})

test.each<[what: string, options: ConnectOptions, text: string]>([
  ['null', null as never, 'options must be an object, got null'],
  ['a key that is a number', { key: 5 as never }, 'key must be a string, got a value of type number'],
  [
    'another header for the key',
    { keyHeader: 'cookie' as never },
    `keyHeader must be 'authorization' or 'x-api-key', got "cookie"`,
  ],
  ['TLS that is true', { tls: true as never }, 'tls must be an object, got true'],
  [
    'a certificate that is a number',
    { tls: { ca: 5 as never } },
    'tls.ca must be a string or a Uint8Array, got a value of type number',
  ],
  ['no path of a socket', { socketPath: '' }, 'socketPath must be a string that is not empty, got ""'],
  ['no connections', { connectionsMax: 0 }, 'connectionsMax must be an integer of at least 1, got 0'],
  ['a deadline of NaN', { deadlineMs: NaN }, 'deadlineMs must be a number of milliseconds, 0 or more, got NaN'],
  ['retries that are a number', { retry: 3 as never }, 'retry must be false or an object, got 3'],
  ['no attempt', { retry: { attemptsMax: 0 } }, 'retry.attemptsMax must be an integer of at least 1, got 0'],
  ['a wait of NaN', { retry: { delayMs: NaN } }, 'retry.delayMs must be a number of milliseconds, 0 or more, got NaN'],
  ['another compression', { compress: 'br' as never }, `compress must be 'gzip' or 'deflate', got "br"`],
  ['a length of NaN', { answerBytesMax: NaN }, 'answerBytesMax must be an integer of at least 1, got NaN'],
  [
    'a header that is a number',
    { headers: { 'x-a': 5 as never } },
    'header x-a must be a string, got a value of type number',
  ],
])('options of connect: %s is refused', (_, options, text) => {
  expect(() => node.connect('http://localhost:9', options)).toThrow(
    expect.objectContaining({ name: 'ClientError', code: 'INVALID_ARG', text }),
  )
})

test('certificates that are none fail the first call, and are not in its text', async () => {
  for (const url of ['https://localhost:9', 'grpcs://localhost:9']) {
    using client = node.connect(url, { tls: { key: 'secret', cert: 'secret' } })
    const error = await client.live().catch((error: unknown) => error)
    expect(error).toMatchObject({
      name: 'ClientError',
      code: 'INVALID_ARG',
      text: expect.stringMatching(/^the options of connect prevent a connection: /),
    })
    expect(String(error)).not.toContain('secret')
  }
})

test('halves are made of numbers only', () => {
  const check = (make: () => unknown, text: string) =>
    expect(make).toThrow(expect.objectContaining({ name: 'ClientError', code: 'INVALID_ARG', text }))
  check(() => float16.encode(UNSET), 'values must be an array of numbers, got undefined')
  check(() => bfloat16.encode([1, 2n as never]), 'values[1] must be a number, got 2n')
  check(() => float16.decode([1] as never), 'halves must be a Uint16Array, got an array')
})

import { expect, test } from 'vitest'
import { logSettingsAnswer, updateLogSettings, type Protocol } from '../../src/api/log_settings.js'
import { type Sampling, TraceSettings } from '../../src/api/trace_settings.js'
import { TRACE_DEFAULTS } from '../../src/trace/settings.js'
import type { LogSettings } from '../../src/log/index.js'
import { asServerError } from '../../src/native/errors.js'

const DEFAULTS: LogSettings = { file: '', info: true, warning: true, error: true, verbose: 0, format: 'default' }

/** `CODE text` of a failure, or the changed settings. */
function update(settings: unknown, protocol: Protocol = 'http'): unknown {
  const live = { ...DEFAULTS }
  try {
    updateLogSettings(live, settings, protocol)
  } catch (error) {
    const { code, message } = asServerError(error)
    return `${code} ${message}`
  }
  return logSettingsAnswer(live)
}

const LOG = {
  log_file: '',
  log_info: true,
  log_warning: true,
  log_error: true,
  log_verbose_level: 0,
  log_format: 'default',
}

test('P 1.10: the response has these members in this order', () => {
  expect(JSON.stringify(logSettingsAnswer(DEFAULTS))).toBe(JSON.stringify(LOG))
})

test.each<[unknown, Protocol, unknown]>([
  [{}, 'http', LOG],
  [[], 'http', LOG],
  [{ foo: 1 }, 'http', LOG],
  [{ log_verbose_level: 1 }, 'http', { ...LOG, log_verbose_level: 1 }],
  [{ log_verbose_level: true }, 'http', 'INTERNAL attempt to access JSON non-unsigned-integer as unsigned-integer'],
  [{ log_verbose_level: -1 }, 'http', 'INTERNAL attempt to access JSON non-unsigned-integer as unsigned-integer'],
  [{ log_verbose_level: '1' }, 'http', 'INTERNAL attempt to access JSON non-unsigned-integer as unsigned-integer'],
  [{ log_verbose_level: 2 ** 64 }, 'http', 'INTERNAL attempt to access JSON non-unsigned-integer as unsigned-integer'],
  [{ log_info: false }, 'http', { ...LOG, log_info: false }],
  [{ log_info: null }, 'http', LOG],
  [{ log_error: 'false' }, 'http', 'INTERNAL attempt to access JSON non-boolean as boolean'],
  [{ log_format: 'ISO8601' }, 'http', { ...LOG, log_format: 'ISO8601' }],
  [{ log_format: 'json' }, 'http', { ...LOG, log_format: 'json' }],
  [{ log_format: 'xml' }, 'http', 'UNAVAILABLE invalid argument for --log_format, got: xml'],
  [{ log_file: 'x.log' }, 'http', 'UNSUPPORTED log file location can not be updated through network protocol'],
  [{ log_file: '' }, 'http', 'UNSUPPORTED log file location can not be updated through network protocol'],
  [{ log_file: null }, 'http', LOG],
  [{ log_warning: 1 }, 'grpc', "INVALID_ARG expect boolean for 'log_warning'"],
  [{ log_error: null }, 'grpc', "INVALID_ARG expect boolean for 'log_error'"],
  [{ log_verbose_level: true }, 'grpc', "INVALID_ARG expect int32 for 'log_verbose_level'"],
  [{ log_format: true }, 'grpc', "INVALID_ARG expect string for 'log_format'"],
  [{ log_format: 'x' }, 'grpc', 'INVALID_ARG invalid argument for log_format, got: x'],
])('P 1.10: update %j over %s', (settings, protocol, expected) => {
  expect(update(settings, protocol)).toEqual(expected)
})

test('P 1.10: keys before an invalid one stay changed', () => {
  const live = { ...DEFAULTS }
  expect(() => updateLogSettings(live, { log_info: false, log_format: 'xml' }, 'http')).toThrow()
  expect(live.info).toBe(false)
})

const TRACE = {
  trace_level: ['OFF'],
  trace_rate: '1000',
  trace_count: '-1',
  log_frequency: '0',
  trace_file: '',
  trace_mode: 'triton',
}

/** A sampler that never samples: counts keep their value. */
function unsampled(): Sampling {
  const counts = new Map<string, number>()
  return {
    set: (model, setting) => void (setting === null ? counts.delete(model) : counts.set(model, setting.count)),
    left: (model) => counts.get(model) ?? counts.get('') ?? -1,
  }
}

function trace(file = ''): TraceSettings {
  return new TraceSettings({ ...TRACE_DEFAULTS, file }, (name) => name === 'addsub' || name === 'strings', unsampled())
}

function traced(settings: unknown, protocol: Protocol = 'http', file = ''): unknown {
  const live = trace(file)
  try {
    live.update('', settings, protocol)
  } catch (error) {
    const { code, message } = asServerError(error)
    expect(live.answer('')).toEqual({ ...TRACE, trace_file: file })
    return `${code} ${message}`
  }
  return live.answer('')
}

test('P 1.9: the response has these members in this order', () => {
  expect(JSON.stringify(trace().answer(''))).toBe(JSON.stringify(TRACE))
})

const RANGE = 'value is out of range'
test.each<[unknown, Protocol, unknown]>([
  [{}, 'http', TRACE],
  [{ foo: 1, trace_mode: 'opentelemetry' }, 'http', TRACE],
  [{ trace_level: ['OFF'] }, 'http', TRACE],
  [{ trace_level: ['NOPE'] }, 'http', TRACE],
  [{ trace_level: [] }, 'http', TRACE],
  [{ trace_level: null }, 'http', TRACE],
  [{ trace_level: ['OFF', 'TIMESTAMPS'] }, 'http', "INVALID_ARG Expect only one trace level 'OFF' is specified"],
  [{ trace_level: 'OFF' }, 'http', 'INTERNAL attempt to access JSON non-array as array'],
  [{ trace_level: [1] }, 'http', 'INTERNAL attempt to access JSON non-string as string'],
  [
    { trace_level: ['TIMESTAMPS'] },
    'http',
    'INVALID_ARG Attempting to set invalid trace setting :trace file name is not given',
  ],
  [{ trace_rate: '5' }, 'http', { ...TRACE, trace_rate: '5' }],
  [{ trace_rate: 5 }, 'http', 'INTERNAL attempt to access JSON non-string as string'],
  [{ trace_rate: 'abc' }, 'http', "INVALID_ARG Unable to parse 'trace_rate', got: abc"],
  [{ trace_rate: '2147483647' }, 'http', { ...TRACE, trace_rate: '2147483647' }],
  [
    { trace_rate: '4294967296' },
    'http',
    `INVALID_ARG Unable to parse 'trace_rate', ${RANGE} [ 0, 4294967295 ], got: 4294967296`,
  ],
  [{ trace_count: '-1' }, 'http', TRACE],
  [{ trace_count: '-2' }, 'http', "INVALID_ARG Unable to parse 'trace_count'. Expecting value >= -1, got:-2"],
  [{ trace_count: ['-2'] }, 'grpc', "INVALID_ARG Unable to parse 'trace_count'. Expecting value >= -1, got: -2"],
  [
    { trace_count: '4294967295' },
    'http',
    `INVALID_ARG Unable to parse 'trace_count', ${RANGE} [ -1, 2147483647 ], got: 4294967295`,
  ],
  [{ trace_count: '' }, 'http', "INVALID_ARG Unable to parse 'trace_count', got: "],
  [{ log_frequency: ['5'] }, 'http', 'INTERNAL attempt to access JSON non-string as string'],
  [{ trace_file: 'x' }, 'http', 'UNSUPPORTED trace file location can not be updated through network protocol'],
  [{ trace_rate: ['3'] }, 'grpc', { ...TRACE, trace_rate: '3' }],
  [{ trace_rate: ['3', '4'] }, 'grpc', "INVALID_ARG expect only 1 value for 'trace_rate'"],
  [{ trace_rate: [] }, 'grpc', TRACE],
  [{ trace_level: ['OFF', 'TIMESTAMPS'] }, 'grpc', "INVALID_ARG Expect only one trace level 'OFF' is specified"],
  [{ trace_rate: '7', trace_count: 'x' }, 'http', "INVALID_ARG Unable to parse 'trace_count', got: x"],
])('P 1.9: update %j over %s; a failure changes nothing', (settings, protocol, expected) => {
  expect(traced(settings, protocol)).toEqual(expected)
})

test('O 3.2: with a file, levels can be set in order; a count of 0 is rejected', () => {
  expect(traced({ trace_level: ['TENSORS', 'TIMESTAMPS'] }, 'http', '/t')).toMatchObject({
    trace_level: ['TIMESTAMPS', 'TENSORS'],
  })
  expect(traced({ trace_level: ['TENSORS'], trace_count: '0' }, 'http', '/t')).toBe(
    'INVALID_ARG Attempting to set invalid trace setting :',
  )
})

test('O 3.2: a model keeps its own values and follows the others; null removes one', () => {
  const live = trace()
  live.update('addsub', { trace_rate: '7' }, 'http')
  live.update('', { trace_rate: '9', trace_count: '3' }, 'http')
  expect(live.answer('addsub')).toMatchObject({ trace_rate: '7', trace_count: '3' })
  expect(live.answer('strings')).toMatchObject({ trace_rate: '9', trace_count: '3' })
  live.update('addsub', { trace_rate: null }, 'http')
  expect(live.answer('addsub')).toMatchObject({ trace_rate: '9' })
  live.update('', { trace_rate: null, trace_count: null }, 'http')
  expect(live.answer('')).toEqual(TRACE)
})

test('O 3.2: a model that does not serve has no settings', () => {
  expect(() => trace().answer('nope')).toThrow('Request for unknown model : nope')
})

test('O 3.2: mode opentelemetry returns the exporter settings instead of the file', () => {
  const live = new TraceSettings(
    { ...TRACE_DEFAULTS, mode: 'opentelemetry', exporter: [['url', 'http://h/v1']] },
    () => true,
    unsampled(),
  )
  expect(JSON.stringify(live.answer(''))).toBe(
    '{"trace_level":["OFF"],"trace_rate":"1000","trace_count":"-1","trace_mode":"opentelemetry","url":"http://h/v1"}',
  )
})

test('P 1.10: a level of more than 32 bits keeps its low 32, as in Triton', () => {
  expect(update({ log_verbose_level: 4294967296 }, 'http')).toMatchObject({ log_verbose_level: 0 })
  expect(update({ log_verbose_level: 4294967298 }, 'http')).toMatchObject({ log_verbose_level: 2 })
  for (const level of [2147483648, 4294967295]) {
    expect(update({ log_verbose_level: level }, 'http'), `${level}`).toMatchObject({ log_verbose_level: 0 })
    expect(update({ log_verbose_level: level }, 'grpc'), `${level}`).toMatchObject({ log_verbose_level: 0 })
  }
})

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { MESSAGE_BYTES_MAX, createLogger, escapeMessage, formatLine, formatTable, type LogEvent } from '../../src/log/index.js'

const EVENT: LogEvent = {
  severity: 'info',
  timeUs: Date.UTC(2026, 6, 8, 9, 10, 11, 120) * 1000 + 345,
  pid: 42,
  file: 'http_server.rs',
  line: 7,
  message: 'hello "you"',
}

test.each([
  [EVENT, 'default', 'I0708 09:10:11.120345 42 http_server.rs:7] "hello \\"you\\""'],
  [{ ...EVENT, severity: 'error' }, 'default', 'E0708 09:10:11.120345 42 http_server.rs:7] "hello \\"you\\""'],
  [{ ...EVENT, severity: 'warning' }, 'ISO8601', '2026-07-08T09:10:11Z W 42 http_server.rs:7] "hello \\"you\\""'],
  [{ ...EVENT, severity: 'verbose' }, 'default', 'I0708 09:10:11.120345 42 http_server.rs:7] "hello \\"you\\""'],
  [{ ...EVENT, file: 'http-server.ts' }, 'default', 'I0708 09:10:11.120345 42 http_server.ts:7] "hello \\"you\\""'],
] as const)('O 4.3: %j as %s', (event, format, expected) => {
  expect(formatLine(event as LogEvent, format)).toBe(expected)
})

test('O 5: a json line is one object with stable keys', () => {
  const line = formatLine({ ...EVENT, message: 'a\nb' }, 'json')
  expect(line).not.toContain('\n')
  expect(JSON.parse(line)).toEqual({
    time: '2026-07-08T09:10:11.120345Z', level: 'info', msg: 'a\nb', file: 'http_server.rs', line: 7, pid: 42,
  })
})

test.each([
  ['line\nfeed', '"line\\nfeed"'],
  ['\r\t\b\f', '"\\r\\t\\b\\f"'],
  ['esc \u001b[31m bel \u0007', '"esc \\u001B[31m bel \\u0007"'],
  ['del \u007f c1 \u009b', '"del \\u007F c1 \\u009B"'],
  ['ls \u2028 ps \u2029', '"ls \\u2028 ps \\u2029"'],
  ['back\\slash / "q"', '"back\\\\slash / \\"q\\""'],
  ['grüße 模型 🚀', '"grüße 模型 🚀"'],
  ['lone \ud800 half', '"lone \\uD800 half"'],
])('O 4.4: %j can not forge a line', (message, expected) => {
  expect(escapeMessage(message)).toBe(expected)
  expect(JSON.parse(escapeMessage(message))).toBe(message)
})

test('unescaped messages are raw when the environment asks for it', () => {
  expect(formatLine(EVENT, 'default', false)).toMatch(/\] hello "you"$/)
})

test('O 4.4: a message is cut at 16 KiB, never inside a character', () => {
  const line = formatLine({ ...EVENT, message: '€'.repeat(10_000) }, 'json')
  const { msg } = JSON.parse(line) as { msg: string }
  expect(Buffer.byteLength(msg)).toBeLessThanOrEqual(MESSAGE_BYTES_MAX + 3)
  expect(msg).toMatch(/^€+\.\.\.$/)
})

test('a table has equal columns, and cells can not break out of it', () => {
  expect(formatTable([['Model', 'Status'], ['a', 'READY'], ['b', 'x\u001b\ny']])).toBe(
    [
      '+-------+---------+',
      '| Model | Status  |',
      '+-------+---------+',
      '| a     | READY   |',
      '| b     | x\\u001B |',
      '|       | y       |',
      '+-------+---------+',
    ].join('\n'),
  )
})

function collect(settings: Partial<Parameters<typeof createLogger>[0]> = {}): { lines: [string, boolean][]; logger: ReturnType<typeof createLogger> } {
  const lines: [string, boolean][] = []
  const logger = createLogger(
    { file: '', info: true, warning: true, error: true, verbose: 0, format: 'default', ...settings },
    (line, problem) => lines.push([line, problem]),
  )
  return { lines, logger }
}

test('levels are live: a setting that changes takes effect with the next line', () => {
  const { lines, logger } = collect({ info: false })
  logger.info('a')
  logger.settings.info = true
  logger.info('b')
  logger.verbose(1, 'c')
  logger.settings.verbose = 1
  logger.verbose(1, 'd')
  logger.verbose(2, 'e')
  expect(lines.map(([line]) => /"(.*)"/.exec(line)?.[1])).toEqual(['b', 'd'])
})

test('warnings and errors are problems, the rest is not', () => {
  const { lines, logger } = collect()
  logger.info('a')
  logger.warning('b')
  logger.error('c')
  expect(lines.map(([, problem]) => problem)).toEqual([false, true, true])
})

test('a line names the file and line of its caller', () => {
  const { lines, logger } = collect()
  logger.info('here')
  expect(lines[0]?.[0]).toMatch(/ format\.test\.ts:\d+\] "here"\n$/)
})

test('records of the core go through the same levels and escaping', () => {
  const { lines, logger } = collect({ verbose: 1 })
  logger.record({ level: 0, message: 'bad\nnews', file: 'crates/frontend/src/listen.rs', line: 9 })
  logger.record({ level: 3, message: 'v1', file: 'a.rs', line: 1 })
  logger.record({ level: 4, message: 'v2', file: 'a.rs', line: 1 })
  expect(lines).toHaveLength(2)
  expect(lines[0]?.[0]).toMatch(/^E.* listen\.rs:9\] "bad\\nnews"\n$/)
})

test('in json format a table is one object per row', () => {
  const { lines, logger } = collect({ format: 'json' })
  logger.table([['Model', 'Status'], ['a', 'READY']])
  expect(lines.map(([line]) => (JSON.parse(line) as { msg: string }).msg)).toEqual(['Model=a Status=READY'])
})

test('a sink that fails loses the line, counts it, and nothing else', () => {
  const logger = createLogger({ file: '', info: true, warning: true, error: true, verbose: 0, format: 'default' }, () => {
    throw new Error('disk full')
  })
  logger.error('x')
  expect(logger.dropped).toBe(1)
})

test('a log file takes every level, appended', () => {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-log-'))
  const file = join(directory, 'server.log')
  for (const message of ['first', 'second']) {
    createLogger({ file, info: true, warning: true, error: true, verbose: 0, format: 'default' }).error(message)
  }
  expect(readFileSync(file, 'utf8').split('\n').map((line) => /"(.*)"/.exec(line)?.[1])).toEqual(['first', 'second', undefined])
  rmSync(directory, { recursive: true })
})

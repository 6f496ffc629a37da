import { execFileSync } from 'node:child_process'
import { closeSync, constants, existsSync, mkdtempSync, openSync, readFileSync, readSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import {
  MESSAGE_BYTES_MAX,
  createLogger,
  escapeMessage,
  formatLine,
  formatTable,
  openStream,
  type LogEvent,
} from '../../src/log/index.js'

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
    time: '2026-07-08T09:10:11.120345Z',
    level: 'info',
    msg: 'a\nb',
    file: 'http_server.rs',
    line: 7,
    pid: 42,
  })
})

test.each([
  ['line\nfeed', '"line\\nfeed"'],
  ['\r\t\b\f', '"\\r\\t\\b\\f"'],
  ['esc \u001b[31m bel \u0007', '"esc \\u001B[31m bel \\u0007"'],
  ['del \u007f c1 \u009b', '"del \\u007F c1 \\u009B"'],
  ['rtl \u202egnp.exe \u200f\u061c\u2066\u2069', '"rtl \\u202Egnp.exe \\u200F\\u061C\\u2066\\u2069"'],
  ['ls \u2028 ps \u2029', '"ls \\u2028 ps \\u2029"'],
  ['back\\slash / "q"', '"back\\\\slash / \\"q\\""'],
  ['grüße 模型 🚀', '"grüße 模型 🚀"'],
  ['lone \ud800 half', '"lone \\uD800 half"'],
])('O 4.4: %j can not forge a line', (message, expected) => {
  expect(escapeMessage(message)).toBe(expected)
  expect(JSON.parse(escapeMessage(message))).toBe(message)
})

test('the environment can disable the escaping of messages', () => {
  expect(formatLine(EVENT, 'default', false)).toMatch(/\] hello "you"$/)
})

test('O 4.4: a message is cut at 16 KiB, never inside a character', () => {
  const line = formatLine({ ...EVENT, message: '€'.repeat(10_000) }, 'json')
  const { msg } = JSON.parse(line) as { msg: string }
  expect(Buffer.byteLength(msg)).toBeLessThanOrEqual(MESSAGE_BYTES_MAX + 3)
  expect(msg).toMatch(/^€+\.\.\.$/)
})

test('a table has equal columns that cells cannot break', () => {
  expect(
    formatTable([
      ['Model', 'Status'],
      ['a', 'READY'],
      ['b', 'x\u001b\ny'],
    ]),
  ).toBe(
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

function collect(settings: Partial<Parameters<typeof createLogger>[0]> = {}): {
  lines: [string, boolean][]
  logger: ReturnType<typeof createLogger>
} {
  const lines: [string, boolean][] = []
  const logger = createLogger(
    { file: '', info: true, warning: true, error: true, verbose: 0, format: 'default', ...settings },
    (line, problem) => lines.push([line, problem]),
  )
  return { lines, logger }
}

test('levels are live: a changed setting applies from the next line on', () => {
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

test('only warnings and errors are problems', () => {
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

test('records of the core are filtered and escaped, verbose ones were filtered there', () => {
  const { lines, logger } = collect({ info: false, verbose: 0 })
  logger.record({ level: 0, message: 'bad\nnews', file: 'crates/frontend/src/listen.rs', line: 9 })
  logger.record({ level: 3, message: 'v1', file: 'a.rs', line: 1 })
  logger.record({ level: 2, message: 'i', file: 'a.rs', line: 1 })
  expect(lines).toHaveLength(2)
  expect(lines[0]?.[0]).toMatch(/^E.* listen\.rs:9\] "bad\\nnews"\n$/)
})

test('in json format a table is one object per row', () => {
  const { lines, logger } = collect({ format: 'json' })
  logger.table([
    ['Model', 'Status'],
    ['a', 'READY'],
  ])
  expect(lines.map(([line]) => (JSON.parse(line) as { msg: string }).msg)).toEqual(['Model=a Status=READY'])
})

const QUIET = { info: true, warning: true, error: true, verbose: 0, format: 'default' } as const

test('a failing sink loses lines and counts them; the next line reports the number', () => {
  const lines: string[] = []
  let full = false
  const logger = createLogger({ file: '', ...QUIET }, (line) => {
    if (full) throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' })
    lines.push(line)
  })
  logger.info('before')
  full = true
  for (let i = 0; i < 3; i += 1) logger.error(`lost ${i}`)
  full = false
  logger.info('after')
  logger.info('later')
  expect([...logger.lost]).toEqual([['ENOSPC', 3]])
  const said = lines.map((line) => `${line[0]} ${/"(.*)"/.exec(line)?.[1]}`)
  expect(said).toEqual(['I before', 'W 3 log lines before this one could not be written', 'I after', 'I later'])
})

test.skipIf(!existsSync('/dev/full'))('a full disk loses lines at once, and counts them', () => {
  const logger = createLogger({ file: '/dev/full', ...QUIET })
  const from = performance.now()
  for (let i = 0; i < 1000; i += 1) logger.info('x')
  expect([...logger.lost]).toEqual([['ENOSPC', 1000]])
  expect(performance.now() - from).toBeLessThan(1000)
})

test('a blocked reader delays one line, not every line', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-log-'))
  const fifo = join(directory, 'fifo')
  execFileSync('mkfifo', [fifo])
  // Opened for reading and writing, so that opening does not block; nothing is read.
  const keeper = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK)
  const writer = openSync(fifo, constants.O_WRONLY | constants.O_NONBLOCK)
  const logger = createLogger({ file: '', ...QUIET }, openStream(writer))
  const from = performance.now()
  for (let i = 0; i < 500; i += 1) logger.info('y'.repeat(1000))
  expect(performance.now() - from).toBeLessThan(800)
  expect(logger.lost.get('EAGAIN')).toBeGreaterThan(400)
  const buffer = Buffer.alloc(1 << 20)
  const before = readSync(keeper, buffer)
  await new Promise((done) => setTimeout(done, 1100))
  logger.info('awake')
  const after = buffer.toString('utf8', 0, before) + buffer.toString('utf8', 0, readSync(keeper, buffer))
  expect(after).not.toMatch(/y[IW]\d{4} /)
  logger.info('end')
  const last = buffer.toString('utf8', 0, readSync(keeper, buffer))
  expect(last).toContain('"end"')
  for (const descriptor of [keeper, writer]) closeSync(descriptor)
  rmSync(directory, { recursive: true })
})

test('a log file takes every level, appended', () => {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-log-'))
  const file = join(directory, 'server.log')
  for (const message of ['first', 'second']) {
    createLogger({ file, ...QUIET }).error(message)
  }
  expect(
    readFileSync(file, 'utf8')
      .split('\n')
      .map((line) => /"(.*)"/.exec(line)?.[1]),
  ).toEqual(['first', 'second', undefined])
  rmSync(directory, { recursive: true })
})

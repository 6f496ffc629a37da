import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Progress, SlowLoads } from '../../src/cli/progress.js'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A terminal with a screen: supports line feeds, `up n` and `clear to the end`. */
function screen(
  columns = 80,
  height = 40,
): { terminal: { columns: number; rows: number; write(text: string): void }; lines: () => string[] } {
  let rows: string[] = ['']
  const write = (text: string): void => {
    // oxlint-disable-next-line no-control-regex
    for (const part of text.split(/(\u001B\[\d*[AJ]|\n)/)) {
      // oxlint-disable-next-line no-control-regex
      const up = /^\u001B\[(\d+)A$/.exec(part)
      if (up !== null) rows = [...rows.slice(0, rows.length - 1 - Number(up[1])), '']
      else if (part === '\n') rows.push('')
      else if (!part.startsWith('\u001B')) rows[rows.length - 1] += part
    }
  }
  return { terminal: { columns, rows: height, write }, lines: () => rows.filter((row) => row !== '') }
}

const loading = { version: 1, phase: 'loading', detail: '' } as const

test('O-53: a model that takes its time has a live line until it is ready', () => {
  const { terminal, lines } = screen()
  const progress = new Progress(terminal)
  progress.observe({ model: 'slow', ...loading })
  progress.observe({ model: 'quick', ...loading })
  vi.advanceTimersByTime(100)
  expect(lines()).toEqual([])
  vi.advanceTimersByTime(100)
  expect(lines().map((line) => line.slice(2))).toEqual(['loading slow:1  0.2 s', 'loading quick:1  0.2 s'])
  progress.observe({ model: 'quick', version: 1, phase: 'ready', detail: '' })
  progress.around(() => terminal.write('a log line\n'))
  expect(lines().map((line) => line.replace(/^[-\\|/] /, ''))).toEqual(['a log line', 'loading slow:1  0.2 s'])
  progress.end()
  expect(lines()).toEqual(['a log line'])
})

test('a start that is over at once draws nothing', () => {
  const { terminal, lines } = screen()
  const progress = new Progress(terminal)
  progress.observe({ model: 'm', ...loading })
  progress.observe({ model: 'm', version: 1, phase: 'ready', detail: '' })
  vi.advanceTimersByTime(1000)
  progress.end()
  expect(lines()).toEqual([])
})

test('a load that takes long is a line every 10 s, and has its time at its end', () => {
  const lines: string[] = []
  const slow = new SlowLoads((line) => lines.push(line))
  slow.observe({ model: 'quick', ...loading })
  slow.observe({ model: 'bert', ...loading })
  slow.observe({ model: 'bad', ...loading, version: 2 })
  vi.advanceTimersByTime(9_000)
  slow.observe({ model: 'quick', version: 1, phase: 'ready', detail: '' })
  expect(lines).toEqual([])
  vi.advanceTimersByTime(11_500)
  expect(lines).toEqual([
    'still loading bert, 10 s',
    'still loading bad:2, 10 s',
    'still loading bert, 20 s',
    'still loading bad:2, 20 s',
  ])
  slow.observe({ model: 'bert', version: 1, phase: 'ready', detail: '' })
  slow.observe({ model: 'bad', version: 2, phase: 'failed', detail: 'no' })
  expect(lines.slice(4)).toEqual(['loaded bert in 20.5 s', 'failed to load bad:2 after 20.5 s'])
  vi.advanceTimersByTime(60_000)
  expect(lines).toHaveLength(6)
})

test('many models and a narrow terminal stay within the screen', () => {
  const { terminal, lines } = screen(20)
  const progress = new Progress(terminal)
  for (let i = 0; i < 40; i += 1) progress.observe({ model: `model_with_a_long_name_${i}`, ...loading })
  vi.advanceTimersByTime(300)
  expect(lines()).toHaveLength(13)
  expect(lines().every((line) => line.length < 20)).toBe(true)
  expect(lines()[12]).toBe('  and 28 more, 0 do')
  progress.end()
})

test('a low terminal gets as many lines as can be taken away again', () => {
  const { terminal, lines } = screen(80, 6)
  const progress = new Progress(terminal)
  for (let i = 0; i < 40; i += 1) progress.observe({ model: `m${i}`, ...loading })
  vi.advanceTimersByTime(300)
  expect(lines().map((line) => line.slice(2))).toEqual([
    ...[0, 1, 2, 3].map((i) => `loading m${i}:1  0.3 s`),
    'and 36 more, 0 done',
  ])
  progress.end()
  expect(lines()).toEqual([])
})

test('a name of a model drives no terminal, and wide letters take two columns', () => {
  const { terminal, lines } = screen(20)
  const progress = new Progress(terminal)
  progress.observe({ model: '\u001B[2Jx\ny', ...loading })
  progress.observe({ model: '模型模型模型', ...loading })
  vi.advanceTimersByTime(300)
  expect(lines().map((line) => line.slice(2))).toEqual(['loading \\u001B[2J', 'loading 模型模型'])
  progress.end()
})

/** A renamed or removed log file is reopened, like the access log. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { openSink } from '../../src/log/index.js'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-rotation-'))
afterAll(() => rmSync(ROOT, { recursive: true }))

let next = 0
/** A sink to a new file with a fake clock. */
function opened(): {
  path: string
  write: (line: string) => void
  pass: (ms: number) => void
  read: (path?: string) => string
} {
  const path = join(ROOT, `${(next += 1)}.log`)
  let now = 0
  const sink = openSink(path, () => now)
  return {
    path,
    write: (line) => sink(`${line}\n`, false),
    pass: (ms) => void (now += ms),
    read: (of = path) => readFileSync(of, 'utf8'),
  }
}

test('O-52 a renamed log file is reopened within a second', () => {
  const { path, write, pass, read } = opened()
  write('1')
  renameSync(path, `${path}.1`)
  pass(999)
  write('2')
  expect(existsSync(path), 'looked at once a second at most').toBe(false)
  pass(1)
  write('3')
  expect([read(`${path}.1`), read()]).toEqual(['1\n2\n', '3\n'])
})

test('O-52 a removed log file is created again; an existing one is appended to', () => {
  const { path, write, pass, read } = opened()
  write('1')
  pass(1000)
  write('2')
  expect(read()).toBe('1\n2\n')
  rmSync(path)
  pass(1000)
  write('3')
  expect(read()).toBe('3\n')
})

test('O-52 lines go to the old file while the new one cannot be opened', () => {
  const { path, write, pass, read } = opened()
  write('1')
  renameSync(path, `${path}.1`)
  mkdirSync(path)
  pass(1000)
  write('2')
  expect(read(`${path}.1`)).toBe('1\n2\n')
  rmSync(path, { recursive: true })
  pass(1000)
  write('3')
  expect(read()).toBe('3\n')
})

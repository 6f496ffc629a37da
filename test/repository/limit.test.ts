import { expect, test } from 'vitest'
import { Limit, Waits, eachOf } from '../../src/stores/limit.js'

test('B-PY-21: a deadlock is detected before the wait begins', async () => {
  const waits = new Waits()
  expect(waits.reaches('a', 'a')).toBe(true)
  expect(waits.reaches('a', 'b')).toBe(false)
  await waits.during('a', 'b', () =>
    waits.during('b', 'c', async () => {
      expect(waits.reaches('a', 'c')).toBe(true)
      expect(waits.reaches('c', 'a')).toBe(false)
      // Two instances of one model wait for the same one.
      await waits.during('a', 'b', async () => {})
      expect(waits.reaches('a', 'b')).toBe(true)
    }),
  )
  expect(waits.reaches('a', 'c')).toBe(false)
  await expect(waits.during('a', 'b', () => Promise.reject(new Error('failed')))).rejects.toThrow('failed')
  expect(waits.reaches('a', 'b')).toBe(false)
})

const never = new AbortController().signal

test('tasks of several lists take turns', async () => {
  const limit = new Limit(2)
  const started: string[] = []
  const run = (items: string[]): Promise<void> =>
    eachOf(items, limit, never, async (item) => {
      started.push(item)
      await new Promise(setImmediate)
    })
  await Promise.all([run(['a1', 'a2', 'a3', 'a4', 'a5', 'a6']), run(['b1', 'b2']), run(['c1'])])
  expect(started.slice(0, 4)).toEqual(['a1', 'a2', 'b1', 'c1'])
  expect(started).toHaveLength(9)
})

test('a stopped list, and the rest of a failed one, do not wait for other tasks', async () => {
  const limit = new Limit(2)
  let end = (): void => {}
  const gate = new Promise<void>((done) => (end = done))
  const first = eachOf([1, 2, 3], limit, never, () => gate)
  const stop = new AbortController()
  const stopped = eachOf([1, 2, 3], limit, stop.signal, () => expect.fail('it was stopped'))
  stop.abort(new Error('stopped'))
  await expect(stopped).rejects.toThrow('stopped')
  end()
  await first
  const failed = eachOf([1, 2, 3], limit, never, () => Promise.reject(new Error('failed')))
  await expect(failed).rejects.toThrow('failed')
  // Nothing holds a place of the limit.
  await eachOf([1, 2, 3], limit, never, async () => {})
})

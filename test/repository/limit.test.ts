import { expect, test } from 'vitest'
import { Waits } from '../../src/stores/limit.js'

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

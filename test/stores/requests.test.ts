/** Connections that stand, and those that do as if they did not. */
import { PassThrough } from 'node:stream'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { bytes } from '../../src/stores/cloud/requests.js'
import { thrown } from './client.js'

beforeEach(
  () =>
    void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] }),
)
afterEach(() => void vi.useRealTimers())

/** Reads from a connection that brings so many bytes each second, until it is cut or `seconds` are over. */
async function drip(size: number, seconds: number): Promise<{ came: number; failure: string | null }> {
  const stream = new PassThrough()
  const each = setInterval(() => void stream.write(Buffer.alloc(size)), 1000)
  let came = 0
  const reading = async () => {
    for await (const chunk of bytes(stream, 's3://x cannot be read', 'S3', new AbortController().signal))
      came += chunk.length
    throw new Error('ended')
  }
  const outcome = thrown(reading)
  await vi.advanceTimersByTimeAsync(seconds * 1000)
  clearInterval(each)
  stream.end()
  const { failure, message } = await outcome
  return { came, failure: failure === undefined ? null : `${failure} ${message}` }
}

test.each([0, 1, 500])('a connection that brings %d bytes a second is cut after 30 seconds', async (size) => {
  const { came, failure } = await drip(size, 600)
  expect(failure).toBe('unavailable s3://x cannot be read: the connection to S3 was cut (ETIMEDOUT)')
  expect(came).toBeLessThanOrEqual(30 * size)
})

test('one that is slow is not', async () => {
  expect(await drip(2000, 600)).toEqual({ came: 1_200_000, failure: null })
})

/** Run by vitest. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { double } from './client.ts'
import { startServer } from './server.ts'

let server: Awaited<ReturnType<typeof startServer>>
beforeAll(async () => {
  server = await startServer(0)
})
afterAll(() => server.stop())

test('values are doubled', async () => {
  const { shape, datatype, data } = await double(`http://127.0.0.1:${server.ports.http}`, [1, 2, 3])
  expect({ shape, datatype, data }).toEqual({ shape: [1, 3], datatype: 'FP32', data: Float32Array.of(2, 4, 6) })
})

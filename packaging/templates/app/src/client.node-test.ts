/** The same test, run by Node's own runner. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { double } from './client.ts'
import { startServer } from './server.ts'

let server: Awaited<ReturnType<typeof startServer>>
before(async () => {
  server = await startServer(0)
})
after(() => server.stop())

test('values are doubled', async () => {
  const { shape, datatype, data } = await double(`http://127.0.0.1:${server.ports.http}`, [1, 2, 3])
  assert.deepEqual({ shape, datatype, data }, { shape: [1, 3], datatype: 'FP32', data: Float32Array.of(2, 4, 6) })
})

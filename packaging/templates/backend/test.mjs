// Serves the model in this process and compares responses.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Server } from 'nereid'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))

test('values come back, also from requests that run together', async () => {
  // The library may be where only the user of this test can read, even root.
  const options = { modelRepository: here('models'), backendDirectory: here('backends'), hostUser: 'root' }
  const server = await Server.start(options)
  try {
    const rows = [1, 2, 3, 1]
    const requests = rows.map(async (count, i) => {
      const data = Float32Array.from({ length: count * 4 }, (_, at) => at + i)
      const result = await server.model('{{name}}').infer({ inputs: { INPUT0: { data, shape: [count, 4] } } })
      const output = result.output('OUTPUT0')
      assert.deepEqual([output.shape, output.data], [[count, 4], data])
    })
    await Promise.all(requests)
  } finally {
    await server.stop()
  }
})

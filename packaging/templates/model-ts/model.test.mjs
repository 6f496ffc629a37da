import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Tensor } from 'nereid/backend'
import { testModel } from 'nereid/backend/testing'

test('values are doubled', async () => {
  const model = await testModel(new URL('./1/model.ts', import.meta.url))
  const response = await model.infer({ INPUT0: Tensor.from('INPUT0', new Float32Array([1, 2, 3]), [1, 3]) })
  assert.deepEqual(response.output('OUTPUT0')?.toNested(), [[2, 4, 6]])
  await model.close()
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Tensor } from 'nereid/backend'
import { testModel } from 'nereid/backend/testing'

test('the offset of a series is subtracted', async () => {
  const model = await testModel(new URL('clean/1/model.ts', import.meta.url))
  const response = await model.infer({ samples: Tensor.from('samples', new Float32Array([5, 6, 10])) })
  assert.deepEqual(response.output('series').toNested(), [-2, -1, 3])
  await model.close()
})

test('a sample that is not finite is named', async () => {
  const model = await testModel(new URL('clean/1/model.ts', import.meta.url))
  const samples = Tensor.from('samples', new Float32Array([1, Number.NaN]))
  await assert.rejects(model.infer({ samples }), { code: 'INVALID_ARG', message: /samples\[1\] is NaN/ })
  await model.close()
})

const scores = (count) => Tensor.from('scores', new Float32Array(count).fill(31, 1))
const report = () => testModel(new URL('report/1/model.ts', import.meta.url), { parameters: { limit: '30' } })

test('each score above the limit is a response', async () => {
  const model = await report()
  const found = []
  for await (const response of model.stream({ scores: scores(3) })) found.push(...response.output('alarm').strings())
  assert.deepEqual(
    found.map((one) => JSON.parse(one)),
    [
      { at: 1, score: 31 },
      { at: 2, score: 31 },
    ],
  )
  await model.close()
})

test('a client that leaves ends its generator, and is counted', async () => {
  const model = await report()
  for await (const _ of model.stream({ scores: scores(1000) }, { parameters: { pace_ms: 20 } })) break
  await model.close()
  assert.equal(model.metrics.get('alarms_abandoned_total'), 1)
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Tensor } from 'nereid/backend'
import { testModel } from 'nereid/backend/testing'

test('rows are padded to the longest of their request', async () => {
  const model = await testModel(new URL('tokenizer/1/model.ts', import.meta.url))
  const text = Tensor.fromStrings('text', ['snow', 'the winds, 日本'], [2, 1])
  const response = await model.infer({ text })
  const [snow, winds] = response.output('input_ids').toNested()
  const [short, long] = response.output('attention_mask').toNested()
  // [CLS] snow [SEP], and [CLS] the wind ##s , [UNK] [SEP].
  assert.deepEqual(short, [1n, 1n, 1n, 0n, 0n, 0n, 0n])
  assert.deepEqual(long, [1n, 1n, 1n, 1n, 1n, 1n, 1n])
  assert.deepEqual([snow[0], snow[2], winds[5], winds[6]], [2n, 3n, 1n, 3n])
  await model.close()
})

test('the label with the greatest logit is the answer', async () => {
  const parameters = { labels: 'food,music,sport,weather' }
  const model = await testModel(new URL('postprocess/1/model.ts', import.meta.url), { parameters })
  const logits = Tensor.from('logits', new Float32Array([0, 0, 9, 1, 5, 0, 0, 0]), [2, 4])
  const results = (await model.infer({ logits }))
    .output('result')
    .strings()
    .map((one) => JSON.parse(one))
  assert.deepEqual(
    results.map(({ label }) => label),
    ['sport', 'food'],
  )
  assert.equal(results[0].score, results[0].scores.sport)
  await model.close()
})

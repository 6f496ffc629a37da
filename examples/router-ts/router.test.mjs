import assert from 'node:assert/strict'
import { test } from 'node:test'
import { InferenceResponse, Tensor } from 'nereid/backend'
import { testModel } from 'nereid/backend/testing'

const MODEL = new URL('router/1/model.ts', import.meta.url)
const mood = (value) => () => [Tensor.from('mood', new Float32Array([value]))]

const start = (challenger_percent, models = { champion: mood(1), challenger: mood(-1) }) =>
  testModel(MODEL, { models, parameters: { challenger_percent } })

async function ask(model, text, user) {
  const inputs = { text: Tensor.fromStrings('text', [text]) }
  if (user !== undefined) inputs.user = Tensor.fromStrings('user', [user])
  const response = await model.infer(inputs)
  return [response.output('label').strings()[0], response.output('by').strings()[0]]
}

test('rules answer without a model', async () => {
  const model = await start('50', {})
  assert.deepEqual(await ask(model, ' '), ['neutral', 'rule'])
  assert.deepEqual(await ask(model, 'I want a refund'), ['human', 'rule'])
  await model.close()
})

test('the share of users is that of the parameter, and a user stays with a model', async () => {
  const model = await start('20')
  const users = Array.from({ length: 500 }, (_, i) => `user ${i}`)
  const first = await Promise.all(users.map((user) => ask(model, 'fine', user)))
  assert.deepEqual(await Promise.all(users.map((user) => ask(model, 'fine', user))), first)
  const challenged = first.filter(([label, by]) => label === 'bad' && by === 'challenger').length
  assert.ok(challenged > 70 && challenged < 130, `${challenged} of 500`)
  await model.close()
})

test('an error of the chosen model is that of the request', async () => {
  const model = await start('0', { champion: () => InferenceResponse.error('UNAVAILABLE', 'it rests') })
  await assert.rejects(ask(model, 'fine'), { code: 'UNAVAILABLE', message: /it rests/ })
  await model.close()
})

test('a share that is no percentage fails the load', async () => {
  await assert.rejects(start('most'), /challenger_percent has to be a number from 0 to 100/)
})

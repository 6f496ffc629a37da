import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Tensor } from 'nereid/backend'
import { testModel } from 'nereid/backend/testing'

const MODEL = new URL('decode/1/model.ts', import.meta.url)
/** A PNG of 2 × 1 pixels: red, blue. */
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR4nGP4zwAE/wEHAAH/4iOeWQAAAABJRU5ErkJggg==',
  'base64',
)

test('files become planes of red, green and blue', async () => {
  const model = await testModel(MODEL)
  const response = await model.infer({ image: Tensor.fromStrings('image', [PNG, PNG], [2, 1]) })
  const { shape, data } = response.output('pixels')
  assert.deepEqual(shape, [2, 3, 32, 32])
  const plane = 32 * 32
  const colour = (column) => [3, 4, 5].map((channel) => data[channel * plane + column])
  assert.deepEqual(
    [colour(0), colour(31)],
    [
      [1, 0, 0],
      [0, 0, 1],
    ],
  )
  await model.close()
})

test('a file that is no image is the mistake of the client', async () => {
  const model = await testModel(MODEL)
  const image = Tensor.fromStrings('image', ['text'], [1, 1])
  await assert.rejects(model.infer({ image }), {
    code: 'INVALID_ARG',
    message: /^format of the picture is not known: /,
  })
  await model.close()
})

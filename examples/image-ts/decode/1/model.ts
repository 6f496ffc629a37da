/** Turns files of images (JPEG, PNG, WebP) into pixels as a network takes them: RGB, channels first, from 0 to 1. */

import { defineModel, InferenceResponse, Tensor, TritonError } from 'nereid/backend'
import sharp from 'sharp'

const SIDE = 32
/** A small file may hold a huge image. */
const PIXELS_MAX = 50_000_000

async function decoded(file: Uint8Array): Promise<Float32Array> {
  const image = sharp(file, { limitInputPixels: PIXELS_MAX }).resize(SIDE, SIDE, { fit: 'fill' }).removeAlpha()
  const bytes = await image
    .toColourspace('srgb')
    .raw()
    .toBuffer()
    .catch((error: unknown) => {
      throw new TritonError('INVALID_ARG', `the image cannot be read: ${error instanceof Error ? error.message : ''}`)
    })
  const plane = SIDE * SIDE
  const pixels = new Float32Array(3 * plane)
  for (let i = 0; i < plane; i += 1)
    for (let channel = 0; channel < 3; channel += 1) pixels[channel * plane + i] = (bytes[3 * i + channel] ?? 0) / 255
  return pixels
}

export default defineModel({
  inputs: { image: { datatype: 'BYTES', dims: [1] } },
  outputs: { pixels: { datatype: 'FP32', dims: [3, SIDE, SIDE] } },
  async execute(requests) {
    return await Promise.all(
      requests.map(async (request) => {
        const [file = new Uint8Array()] = request.input('image').data
        return new InferenceResponse([Tensor.from('pixels', await decoded(file), [3, SIDE, SIDE])])
      }),
    )
  },
})

/** Compares shapes with those of the metadata, in which −1 is a dimension of any size. Pure. */

import { describe, wrong } from './check.js'
import { invalid } from './errors.js'
import type { TensorMetadata } from './types.js'

export const shapeText = (shape: readonly (number | bigint)[]): string => `[${shape.join(',')}]`

/** @throws {ClientError} `INVALID_ARG` for an invalid shape */
export function checkDims(place: string, given: readonly (number | bigint)[]): void {
  if (!Array.isArray(given)) throw wrong(`${place}: shape`, 'an array', given)
  // Not by `find`: the found element may be undefined.
  const bad = given.findIndex(
    (dim: unknown) => !(typeof dim === 'bigint' || Number.isSafeInteger(dim)) || (dim as number | bigint) < 0,
  )
  if (bad >= 0)
    throw invalid(
      `${place}: shape ${shapeText(given)} has the dimension ${describe(given[bad])}, and dimensions are ` +
        'integers of at least 0',
    )
}

/** @throws {ClientError} `INVALID_ARG` with both shapes */
export function checkShape(
  model: string,
  name: string,
  { shape }: TensorMetadata,
  given: readonly (number | bigint)[],
): void {
  const fits = given.length === shape.length && shape.every((dim, i) => dim === -1 || dim === Number(given[i]))
  if (!fits)
    throw invalid(`input '${name}': shape ${shapeText(given)} was given, model '${model}' expects ${shapeText(shape)}`)
}

/**
 * The only shape with this many elements.
 *
 * @throws {ClientError} `INVALID_ARG` with both if there is none, or more than one
 */
export function fillShape(model: string, name: string, { datatype, shape }: TensorMetadata, count: number): number[] {
  const known = shape.reduce((product, dim) => (dim === -1 ? product : product * dim), 1)
  const free = shape.filter((dim) => dim === -1).length
  const what = `input '${name}': ${count} elements of ${datatype}`
  const modelShape = `shape ${shapeText(shape)} of model '${model}'`
  // A single element has one shape: every dimension is 1.
  if (free > 1 && count !== known)
    throw invalid(`${what} can have the ${modelShape} in more than one way: give it a shape`)
  const size = free === 0 ? 1 : free > 1 ? 1 : count / known
  if (known * size !== count || !Number.isInteger(size)) throw invalid(`${what} do not fill the ${modelShape}`)
  return shape.map((dim) => (dim === -1 ? size : dim))
}

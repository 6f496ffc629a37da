/**
 * Offsets and capacities of the tensors of a region. Pure: no memory is accessed here.
 *
 * Invariant: spaces do not overlap, begin at multiples of `ALIGNMENT`, and lie inside `byteSize`. The vectors in
 * shm/vectors/layouts.json check that this module and its Python twin produce the same offsets and texts.
 */

import { DATATYPES } from '../native/datatypes.js'
import { ServerError } from '../native/index.js'

/** Alignment of shm/protocol.json: a cache line, which suits vector instructions. */
export const ALIGNMENT = 64
/** Maximum total size of the regions that a server maps; a larger one could never be registered. */
export const REGION_BYTES_MAX = 2 ** 40

/** Description of a tensor. BYTES and shapes with a −1 need a capacity in bytes. */
export interface SpaceOptions {
  datatype: string
  shape: readonly number[]
  capacity?: number
}

/** Location of one tensor in a region. */
export interface Space {
  readonly name: string
  readonly datatype: string
  /** Shape as described: −1 where only a response determines it. */
  readonly shape: readonly number[]
  /** Bytes from the start of the region, a multiple of 64. */
  readonly offset: number
  /** Maximum size of the tensor in bytes. */
  readonly capacity: number
}

/** The spaces of a region, in the given order. */
export class Layout {
  readonly spaces: ReadonlyMap<string, Space>
  /** Bytes of the whole region, a multiple of 64. */
  readonly byteSize: number

  /** @throws {ServerError} `INVALID_ARG` for an unknown datatype, an unknown size, and above `REGION_BYTES_MAX`. */
  constructor(tensors: Readonly<Record<string, SpaceOptions>>) {
    const spaces = new Map<string, Space>()
    let offset = 0
    for (const [name, options] of Object.entries(tensors)) {
      const { datatype, shape } = options
      const capacity = capacityOf(name, options)
      spaces.set(name, { name, datatype, shape: [...shape], offset, capacity })
      // At least one byte, so that an empty tensor has an offset inside the region; servers reject any other.
      offset += Math.ceil(Math.max(capacity, 1) / ALIGNMENT) * ALIGNMENT
      if (offset > REGION_BYTES_MAX) {
        throw invalid(`tensor '${name}': the region would have ${offset} bytes, more than ${REGION_BYTES_MAX}`)
      }
    }
    if (spaces.size === 0) throw invalid('a region needs at least one tensor')
    this.spaces = spaces
    this.byteSize = offset
  }

  /** @throws {ServerError} `INVALID_ARG` when there is no such tensor. */
  space(name: string): Space {
    const space = this.spaces.get(name)
    if (space === undefined)
      throw invalid(`tensor '${name}': not in this region, which has ${[...this.spaces.keys()].join(', ')}`)
    return space
  }
}

export function invalid(message: string): ServerError {
  return new ServerError('INVALID_ARG', message)
}

/** The capacity of a tensor: as requested, and not less than its shape needs. */
function capacityOf(name: string, { datatype, shape, capacity }: SpaceOptions): number {
  if (!DATATYPES.has(datatype)) throw invalid(`tensor '${name}': there is no datatype ${datatype}`)
  if (shape.some((dim) => dim < -1 || !Number.isSafeInteger(dim))) {
    throw invalid(`tensor '${name}': shape ${shapeText(shape)} has a dimension below -1`)
  }
  const needed = byteSize(datatype, shape)
  if (capacity === undefined) {
    if (needed === null)
      throw invalid(`tensor '${name}': ${datatype} ${shapeText(shape)} can have any size; give it a capacity in bytes`)
    return needed
  }
  if (!Number.isSafeInteger(capacity) || capacity < (needed ?? 0)) {
    const wanted = `${datatype} ${shapeText(shape)} takes ${needed ?? 0} bytes`
    throw invalid(`tensor '${name}': ${wanted}, its capacity is ${capacity}`)
  }
  return capacity
}

/** Size of a tensor in bytes; null if its shape does not determine it. Inexact above 2⁵³, far beyond every limit. */
export function byteSize(datatype: string, shape: readonly number[]): number | null {
  const size = DATATYPES.get(datatype)?.array?.BYTES_PER_ELEMENT
  if (size === undefined || shape.includes(-1)) return null
  return shape.reduce((product, dim) => product * dim, size)
}

export function shapeText(shape: readonly number[]): string {
  return `[${shape.join(',')}]`
}

/** @throws {ServerError} `INVALID_ARG` when a tensor exceeds its capacity. */
export function checkFits(space: Space, shape: readonly number[], size: number): void {
  if (size <= space.capacity) return
  const tensor = `${space.datatype} ${shapeText(shape)}`
  throw invalid(`tensor '${space.name}': ${tensor} takes ${size} bytes, its capacity is ${space.capacity}`)
}

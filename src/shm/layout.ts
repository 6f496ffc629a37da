/**
 * Where each tensor of a region begins, and how many bytes are kept for it. Pure: no memory is touched here.
 *
 * Invariant: spaces do not overlap, begin at multiples of `ALIGNMENT`, and lie inside `byteSize`. The vectors in shm/vectors/layouts.json
 * hold this module and its twin in Python to the same offsets and the same texts.
 */

import { DATATYPES } from '../native/datatypes.js'
import { ServerError } from '../native/index.js'

/** As in shm/protocol.json: a cache line, and what vector instructions like. */
export const ALIGNMENT = 64
/** What a server maps of all its regions together, at most; a larger one could never be registered. */
export const REGION_BYTES_MAX = 2 ** 40

/** What is wanted of a tensor. BYTES and shapes with a −1 need a capacity in bytes. */
export interface SpaceOptions {
  datatype: string
  shape: readonly number[]
  capacity?: number
}

/** The place of one tensor in a region. */
export interface Space {
  readonly name: string
  readonly datatype: string
  /** As it was asked for: −1 where only an answer tells. */
  readonly shape: readonly number[]
  /** Bytes from the start of the region, a multiple of 64. */
  readonly offset: number
  /** How many bytes the tensor may have. */
  readonly capacity: number
}

/** The spaces of a region, in the order they were given. */
export class Layout {
  readonly spaces: ReadonlyMap<string, Space>
  /** Bytes of the whole region, a multiple of 64. */
  readonly byteSize: number

  /** @throws {ServerError} `INVALID_ARG` for a datatype that does not exist, a tensor whose size is not known, and more than `REGION_BYTES_MAX` together. */
  constructor(tensors: Readonly<Record<string, SpaceOptions>>) {
    const spaces = new Map<string, Space>()
    let offset = 0
    for (const [name, options] of Object.entries(tensors)) {
      const { datatype, shape } = options
      const capacity = capacityOf(name, options)
      spaces.set(name, { name, datatype, shape: [...shape], offset, capacity })
      // One byte at least, so that a tensor without elements has an offset inside the region: servers refuse any other.
      offset += Math.ceil(Math.max(capacity, 1) / ALIGNMENT) * ALIGNMENT
      if (offset > REGION_BYTES_MAX) {
        throw refused(`tensor '${name}': the region would have ${offset} bytes, more than ${REGION_BYTES_MAX}`)
      }
    }
    if (spaces.size === 0) throw refused('a region needs at least one tensor')
    this.spaces = spaces
    this.byteSize = offset
  }

  /** @throws {ServerError} `INVALID_ARG` when there is no such tensor. */
  space(name: string): Space {
    const space = this.spaces.get(name)
    if (space === undefined) throw refused(`tensor '${name}': not in this region, which has ${[...this.spaces.keys()].join(', ')}`)
    return space
  }
}

export function refused(message: string): ServerError {
  return new ServerError('INVALID_ARG', message)
}

/** Bytes to keep for a tensor: what was asked for, which is not less than what its shape takes. */
function capacityOf(name: string, { datatype, shape, capacity }: SpaceOptions): number {
  if (!DATATYPES.has(datatype)) throw refused(`tensor '${name}': there is no datatype ${datatype}`)
  if (shape.some((dim) => dim < -1 || !Number.isSafeInteger(dim))) {
    throw refused(`tensor '${name}': shape ${shapeText(shape)} has a dimension below -1`)
  }
  const needed = byteSize(datatype, shape)
  if (capacity === undefined) {
    if (needed === null) throw refused(`tensor '${name}': ${datatype} ${shapeText(shape)} can have any size; give it a capacity in bytes`)
    return needed
  }
  if (!Number.isSafeInteger(capacity) || capacity < (needed ?? 0)) {
    throw refused(`tensor '${name}': ${datatype} ${shapeText(shape)} takes ${needed ?? 0} bytes, its capacity is ${capacity}`)
  }
  return capacity
}

/** Bytes of a tensor, or null when its shape does not tell. Beyond 2⁵³ it is not exact, and far beyond every limit. */
export function byteSize(datatype: string, shape: readonly number[]): number | null {
  const size = DATATYPES.get(datatype)?.array?.BYTES_PER_ELEMENT
  if (size === undefined || shape.includes(-1)) return null
  return shape.reduce((product, dim) => product * dim, size)
}

export function shapeText(shape: readonly number[]): string {
  return `[${shape.join(',')}]`
}

/** @throws {ServerError} `INVALID_ARG` when a tensor has more bytes than are kept for it. */
export function checkFits(space: Space, shape: readonly number[], size: number): void {
  if (size <= space.capacity) return
  throw refused(`tensor '${space.name}': ${space.datatype} ${shapeText(shape)} takes ${size} bytes, its capacity is ${space.capacity}`)
}

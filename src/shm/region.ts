/** A region of system shared memory for the tensors of a request and of its response. */

import { closeSync } from 'node:fs'
import { Tensor, toNative, type TensorInput } from '../api/tensor.js'
import { ServerError, type ErrorCode } from '../native/index.js'
import { createFile, freshKey, openFile, pathOf, readAll, unlinkFile, writeAll } from './file.js'
import { byteSize, checkFits, invalid, Layout, shapeText, type SpaceOptions } from './layout.js'
import { stringsLength } from './strings.js'

/** `parameters` of an input or of a requested output. */
export interface RegionParameters {
  shared_memory_region: string
  shared_memory_offset: number
  shared_memory_byte_size: number
}

/** Data to write at once, or the description of a tensor that comes later. */
export type RegionTensors = Readonly<Record<string, TensorInput | SpaceOptions>>

export interface RegionNames {
  /** A file name in /dev/shm, with a leading slash; unique by default. */
  key?: string
  /** Name in requests; by default the key without its slash. */
  name?: string
}

const CODES: Readonly<Record<number, ErrorCode>> = {
  400: 'INVALID_ARG',
  404: 'NOT_FOUND',
  501: 'UNSUPPORTED',
  503: 'UNAVAILABLE',
}

/** Files to remove on a normal exit of this process. */
const owned = new Set<string>()

function removeOwned(): void {
  for (const key of owned) unlinkFile(key)
}

/**
 * All tensors of a request and of its response, in one file of /dev/shm that this process and the server share.
 *
 * Buffers: `write` does not keep its argument, and the caller owns the result of `read`. The server writes an output
 * from the moment a request names it until its response. The file exists until `unlink`, `close` or the exit of this
 * process; a signal that ends the process leaves it, unless `unlink` was called before.
 */
export class Region {
  readonly layout: Layout
  readonly key: string
  readonly name: string
  #descriptor: number | null
  readonly #owns: boolean
  readonly #tensors = new Map<string, { shape: readonly number[]; bytes: number | null }>()

  private constructor(layout: Layout, key: string, name: string | undefined, descriptor: number, owns: boolean) {
    this.layout = layout
    this.key = key
    this.name = name ?? key.slice(1)
    this.#descriptor = descriptor
    this.#owns = owns
    for (const { name, datatype, shape } of layout.spaces.values())
      this.#tensors.set(name, { shape, bytes: byteSize(datatype, shape) })
    if (!owns) return
    if (owned.size === 0) process.once('exit', removeOwned)
    owned.add(key)
  }

  /**
   * Creates a region for `tensors` and writes the data among them.
   *
   * @throws {ServerError} `INVALID_ARG` for tensors that do not fit.
   * @throws {Error} of the file system: `EEXIST` for an existing key, `ENOSPC` when /dev/shm is full.
   */
  static create(tensors: RegionTensors, names: RegionNames = {}): Region {
    const options = Object.entries(tensors).map(([name, value]) => [name, optionsOf(name, value)] as const)
    const layout = new Layout(Object.fromEntries(options))
    const key = keyOf(names.key ?? freshKey())
    const region = new Region(layout, key, names.name, createFile(key, layout.byteSize), true)
    try {
      for (const [name, value] of Object.entries(tensors)) if (isInput(value)) region.write(name, value)
      return region
    } catch (error) {
      region.close()
      throw error
    }
  }

  /** Opens a region that another process created, with the same tensors. Only that process removes the file. */
  static attach(key: string, tensors: Readonly<Record<string, SpaceOptions>>, name?: string): Region {
    const layout = new Layout(tensors)
    return new Region(layout, keyOf(key), name, openFile(key, layout.byteSize), false)
  }

  /** Size of the region in bytes. */
  get byteSize(): number {
    return this.layout.byteSize
  }

  /** Copies data into a tensor. Its shape may differ from the previous one, if it fits. */
  write(name: string, input: TensorInput): void {
    const space = this.layout.space(name)
    const { datatype, shape, data } = toNative(name, withDatatype(input, space.datatype))
    if (datatype !== space.datatype) throw invalid(`tensor '${name}': an array of ${datatype} is not ${space.datatype}`)
    checkElements(name, datatype, shape, data.length)
    checkFits(space, shape, data.length)
    writeAll(this.#open, data, space.offset)
    this.#tensors.set(name, { shape, bytes: data.length })
  }

  /**
   * Returns a copy of a tensor. `shape` is the shape in the response, for tensors with an unknown shape.
   *
   * @throws {ServerError} `INVALID_ARG` when the shape is unknown or does not fit, or strings reach past the end.
   */
  read(name: string, shape: readonly number[] = this.#state(name).shape): Tensor {
    const space = this.layout.space(name)
    if (shape.some((dim) => !(Number.isSafeInteger(dim) && dim >= 0))) {
      throw invalid(`tensor '${name}': its shape ${shapeText(shape)} is not known; give the shape of the response`)
    }
    const size = byteSize(space.datatype, shape)
    if (size !== null) checkFits(space, shape, size)
    let data = readAll(this.#open, size ?? space.capacity, space.offset)
    if (size === null) {
      const count = shape.reduce((product, dim) => product * dim, 1)
      data = data.subarray(0, stringsLength(name, data, count))
    }
    return new Tensor({ name, datatype: space.datatype, shape: [...shape], data })
  }

  /** The body of POST /v2/systemsharedmemory/region/{name}/register. */
  get registration(): { key: string; offset: number; byte_size: number } {
    return { key: this.key, offset: 0, byte_size: this.byteSize }
  }

  /** The `parameters` of a tensor. Their size is the written one for an input, the capacity for an output. */
  parameters(name: string, use: 'input' | 'output'): RegionParameters {
    const { offset, capacity } = this.layout.space(name)
    const size = use === 'output' ? capacity : this.#state(name).bytes
    if (size === null) throw invalid(`tensor '${name}': put an array there first; its shape and size are not known`)
    return { shared_memory_region: this.name, shared_memory_offset: offset, shared_memory_byte_size: size }
  }

  /** `inputs` of a JSON request. */
  inputs(...names: string[]): { name: string; datatype: string; shape: number[]; parameters: RegionParameters }[] {
    return names.map((name) => {
      const parameters = this.parameters(name, 'input')
      return { name, datatype: this.layout.space(name).datatype, shape: [...this.#state(name).shape], parameters }
    })
  }

  /** `outputs` of a JSON request. */
  outputs(...names: string[]): { name: string; parameters: RegionParameters }[] {
    return names.map((name) => ({ name, parameters: this.parameters(name, 'output') }))
  }

  /**
   * Registers the region with the server at `url` (`http://localhost:8000`).
   *
   * @throws {ServerError} with the server's text.
   */
  async register(url: string): Promise<void> {
    await post(url, `region/${encodeURIComponent(this.name)}/register`, JSON.stringify(this.registration))
  }

  /** Unregisters the region, if registered; running requests keep the memory until their response. */
  async unregister(url: string): Promise<void> {
    await post(url, `region/${encodeURIComponent(this.name)}/unregister`, '')
  }

  /**
   * Removes the file now. Processes that opened it, such as the server, can still use it; others cannot open it any
   * more. After `register` and this call, nothing is left behind however this process ends.
   */
  unlink(): void {
    if (!this.#owns || !owned.delete(this.key)) return
    if (owned.size === 0) process.removeListener('exit', removeOwned)
    unlinkFile(this.key)
  }

  /** Removes the file, if this region created it, and closes it. May be called twice. */
  close(): void {
    this.unlink()
    if (this.#descriptor !== null) closeSync(this.#descriptor)
    this.#descriptor = null
  }

  [Symbol.dispose](): void {
    this.close()
  }

  get #open(): number {
    if (this.#descriptor === null) throw invalid(`region ${this.name}: it is closed`)
    return this.#descriptor
  }

  #state(name: string): { shape: readonly number[]; bytes: number | null } {
    const state = this.#tensors.get(name)
    if (state !== undefined) return state
    const { shape } = this.layout.space(name)
    return { shape, bytes: null }
  }
}

/** Normalises a key to one leading slash and validates it. */
function keyOf(key: string): string {
  pathOf(key)
  return `/${key.replace(/^\/+/, '')}`
}

/** True for data, false for the description of a tensor. */
function isInput(value: TensorInput | SpaceOptions): value is TensorInput {
  return Array.isArray(value) || ArrayBuffer.isView(value) || 'data' in value
}

function optionsOf(name: string, value: TensorInput | SpaceOptions): SpaceOptions {
  if (!isInput(value)) return value
  const { datatype, shape, data } = toNative(name, value)
  checkElements(name, datatype, shape, data.length)
  return datatype === 'BYTES' ? { datatype, shape, capacity: data.length } : { datatype, shape }
}

/** Gives an array without a datatype that of the space: `Uint16Array` may stand for FP16. */
function withDatatype(input: TensorInput, datatype: string): TensorInput {
  const whole: { data: unknown; shape?: readonly number[]; datatype?: string } =
    'data' in input && !Array.isArray(input) && !ArrayBuffer.isView(input) ? input : { data: input }
  return { datatype, ...whole } as TensorInput
}

function checkElements(name: string, datatype: string, shape: readonly number[], bytes: number): void {
  const needed = byteSize(datatype, shape)
  if (needed !== null && needed !== bytes) {
    throw invalid(`tensor '${name}': ${datatype} ${shapeText(shape)} takes ${needed} bytes, the data has ${bytes}`)
  }
}

async function post(url: string, path: string, body: string): Promise<void> {
  const answer = await fetch(new URL(`/v2/systemsharedmemory/${path}`, url), { method: 'POST', body })
  const text = await answer.text()
  if (!answer.ok) throw new ServerError(CODES[answer.status] ?? 'INTERNAL', errorText(text))
}

/** The text of an error body, which is JSON unless another server answered. */
function errorText(body: string): string {
  try {
    const { error } = JSON.parse(body) as { error?: unknown }
    if (typeof error === 'string') return error
  } catch {
    // Not JSON: return the body itself.
  }
  return body
}

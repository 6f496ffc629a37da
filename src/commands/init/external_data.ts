/**
 * Finds the files in which an ONNX model keeps its weights, other than its own. Reads the fields that lead to them and skips everything
 * else where it stands, so a file of gigabytes takes as long as its graph.
 *
 * The file is of the user and may be broken all the same: depth, fields, names and files are limited, and what is not protobuf is refused.
 */

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { CommandError } from '../arguments.js'

/** Graphs within graphs. */
const DEPTH_MAX = 64
/** Fields looked at, skipped ones included: some seconds of work. */
const FIELDS_MAX = 1 << 24
const PATH_BYTES_MAX = 4096
const FILES_MAX = 10_000
const WINDOW_BYTES = 64 << 10

type Message = 'model' | 'graph' | 'function' | 'node' | 'attribute' | 'sparse' | 'tensor' | 'entry'

/** Numbers of the fields of `onnx.proto` that lead to tensors. */
const INSIDE: Readonly<Record<Message, Readonly<Record<number, Message>>>> = {
  model: { 7: 'graph', 25: 'function' },
  graph: { 1: 'node', 5: 'tensor', 15: 'sparse' },
  function: { 7: 'node' },
  node: { 5: 'attribute' },
  attribute: { 5: 'tensor', 6: 'graph', 10: 'tensor', 11: 'graph', 22: 'sparse', 23: 'sparse' },
  sparse: { 1: 'tensor', 2: 'tensor' },
  tensor: { 13: 'entry' },
  entry: {},
}

/**
 * Places of data files as the model writes them: paths relative to its directory, each once, not checked.
 *
 * @throws {CommandError} when the file is no ONNX model or beyond a limit.
 */
export function externalData(path: string): string[] {
  const fd = openSync(path, 'r')
  try {
    const reader = new Reader(fd, fstatSync(fd).size)
    reader.message('model', reader.size, 0)
    return [...reader.locations]
  } finally {
    closeSync(fd)
  }
}

class Reader {
  readonly locations = new Set<string>()
  readonly size: number
  readonly #fd: number
  readonly #window = Buffer.alloc(WINDOW_BYTES)
  #windowAt = 0
  #windowBytes = 0
  #at = 0
  #fields = 0

  constructor(fd: number, size: number) {
    this.#fd = fd
    this.size = size
  }

  /** Reads from here up to `end`. */
  message(kind: Message, end: number, depth: number): void {
    if (depth > DEPTH_MAX) throw broken(`its graphs are nested more than ${DEPTH_MAX} deep`)
    let key = ''
    let value = ''
    while (this.#at < end) {
      this.#fields += 1
      if (this.#fields > FIELDS_MAX) throw broken(`it has more than ${FIELDS_MAX} fields`)
      const tag = this.#varint(end)
      const field = Math.floor(tag / 8)
      const wire = tag % 8
      if (wire === 0) this.#varint(end)
      else if (wire === 1) this.#skip(8, end)
      else if (wire === 5) this.#skip(4, end)
      else if (wire === 2) {
        const length = this.#varint(end)
        if (length > end - this.#at) throw broken('it ends in the middle of a field')
        const until = this.#at + length
        const inside = INSIDE[kind][field]
        if (inside !== undefined) this.message(inside, until, depth + 1)
        else if (kind === 'entry' && field === 1) key = this.#text(length)
        else if (kind === 'entry' && field === 2) value = this.#text(length)
        this.#at = until
      } else throw broken('it is not protobuf')
      if (field === 0) throw broken('it is not protobuf')
    }
    if (kind === 'entry' && key === 'location') this.locations.add(value)
    if (this.locations.size > FILES_MAX) throw broken(`its data are in more than ${FILES_MAX} files`)
  }

  #byte(): number {
    const offset = this.#at - this.#windowAt
    if (offset < 0 || offset >= this.#windowBytes) {
      this.#windowAt = this.#at
      this.#windowBytes = readSync(this.#fd, this.#window, 0, WINDOW_BYTES, this.#at)
      if (this.#windowBytes === 0) throw broken('it ends in the middle of a field')
    }
    const byte = this.#window[this.#at - this.#windowAt] ?? 0
    this.#at += 1
    return byte
  }

  /** A number of up to 64 bits; inexact above 2^53, where it is a length that no file has or a value that is not used. */
  #varint(end: number): number {
    let value = 0
    for (let i = 0; i < 10; i += 1) {
      if (this.#at >= end) throw broken('it ends in the middle of a field')
      const byte = this.#byte()
      value += (byte & 0x7f) * 2 ** (7 * i)
      if (byte < 0x80) return value
    }
    throw broken('it is not protobuf')
  }

  #skip(bytes: number, end: number): void {
    if (bytes > end - this.#at) throw broken('it ends in the middle of a field')
    this.#at += bytes
  }

  #text(length: number): string {
    if (length > PATH_BYTES_MAX) throw broken(`a path in it is longer than ${PATH_BYTES_MAX} bytes`)
    const bytes = Buffer.alloc(length)
    for (let i = 0; i < length; i += 1) bytes[i] = this.#byte()
    return bytes.toString('utf8')
  }
}

function broken(why: string): CommandError {
  return new CommandError(`the file is no ONNX model that can be read: ${why}`)
}

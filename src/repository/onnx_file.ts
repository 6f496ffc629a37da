/**
 * Reads the inputs and outputs, versions and weight files of an ONNX model. Reads only the fields that lead there and
 * seeks past the rest, so a file of gigabytes takes no longer than its graph: `nereid check` and `nereid init` inspect
 * files without loading weights or ONNX Runtime.
 *
 * The file is untrusted: depth, fields, names and files are limited, and anything that is not protobuf is rejected.
 */

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { ServerError } from '../native/errors.js'

/** Maximum nesting of graphs within graphs. */
const DEPTH_MAX = 64
/** Maximum number of fields, including skipped ones: some seconds of work. */
const FIELDS_MAX = 1 << 24
const TEXT_BYTES_MAX = 4096
/** Maximum size of a value of the metadata; names of thousands of classes need a part of it. */
const METADATA_BYTES_MAX = 1 << 20
/** Keys of the metadata that exporters of Ultralytics write, and commands read. */
const METADATA_KEYS: readonly string[] = ['names', 'task', 'imgsz', 'stride', 'end2end']
const FILES_MAX = 10_000
/** Maximum number of inputs, outputs and initializers of the main graph, and of their dimensions. */
const NAMES_MAX = 1 << 20
const WINDOW_BYTES = 64 << 10

/** The newest versions that the packaged ONNX Runtime reads. A test compares both with it. */
export const IR_VERSION_MAX = 13
export const OPSET_MAX = 26

export interface GraphValue {
  name: string
  /** Number in `onnx.TensorProto.DataType`; 0 if it is not a tensor. */
  type: number
  /** For each dimension its size, or its symbol (empty if unnamed); null when the file has no shape. */
  shape: (number | string)[] | null
}

export interface OnnxFile {
  /** 0 when the file has none. */
  irVersion: number
  /** Version of ONNX's own operator set; 0 when the file has none. */
  opset: number
  hasGraph: boolean
  inputs: GraphValue[]
  outputs: GraphValue[]
  /** Names of constants; an input of such a name is optional. */
  initializers: Set<string>
  /** Weight files as the model writes them: paths relative to its directory, each once, not checked. */
  dataFiles: string[]
  /** Values of the metadata by `METADATA_KEYS`; null for one that is too long to be read. */
  metadata: Map<string, string | null>
  /** Activation functions of the main graph by the tensor that they write: Softmax or Sigmoid. */
  activations: Map<string, string>
}

type Message =
  | 'model'
  | 'opset'
  | 'property'
  | 'graph'
  | 'function'
  | 'node'
  | 'attribute'
  | 'sparse'
  | 'tensor'
  | 'entry'
  | 'value'
  | 'type'
  | 'tensorType'
  | 'shape'
  | 'dim'

/** Field numbers of `onnx.proto` that contain messages to read. */
const INSIDE: Readonly<Record<Message, Readonly<Record<number, Message>>>> = {
  model: { 7: 'graph', 8: 'opset', 14: 'property', 25: 'function' },
  opset: {},
  property: {},
  graph: { 1: 'node', 5: 'tensor', 11: 'value', 12: 'value', 15: 'sparse' },
  function: { 7: 'node' },
  node: { 5: 'attribute' },
  attribute: { 5: 'tensor', 6: 'graph', 10: 'tensor', 11: 'graph', 22: 'sparse', 23: 'sparse' },
  sparse: { 1: 'tensor', 2: 'tensor' },
  tensor: { 13: 'entry' },
  entry: {},
  value: { 2: 'type' },
  type: { 1: 'tensorType' },
  tensorType: { 2: 'shape' },
  shape: { 1: 'dim' },
  dim: {},
}

/** Field numbers of texts and numbers to keep. */
const KEPT: Readonly<Partial<Record<Message, readonly number[]>>> = {
  model: [1],
  opset: [1, 2],
  property: [1, 2],
  node: [2, 4],
  tensor: [8],
  entry: [1, 2],
  value: [1],
  tensorType: [1],
  dim: [1, 2],
}

/** @throws {ServerError} `INVALID_ARG` if the file is not an ONNX model, `UNSUPPORTED` if it exceeds a limit */
export function readOnnx(path: string): OnnxFile {
  const fd = openSync(path, 'r')
  try {
    const reader = new Reader(fd, fstatSync(fd).size)
    reader.message('model', reader.size, 0)
    return { ...reader.file, dataFiles: [...reader.locations] }
  } finally {
    closeSync(fd)
  }
}

/** First bytes of a file that Git LFS did not fetch, with its description. */
export const POINTER = [
  /^version https:\/\/git-lfs\.github\.com\/spec/,
  'is a pointer of Git LFS and not the file itself: run `git lfs pull` where it was cloned',
] as const

// oxlint-disable no-control-regex -- first bytes of files
/** First bytes of other kinds of files, with a description and the remedy. */
const STRANGERS: readonly (readonly [begins: RegExp, what: string])[] = [
  POINTER,
  [
    /^\s*<(?:!doctype|html|head|\?xml)/i,
    'is a page of HTML or XML and not a model: the download returned a login or an error page; download it again',
  ],
  [
    /^PK\u0003\u0004/,
    'is a zip archive, as PyTorch (.pt) and Keras write them: load it with that framework and export it with ' +
      'torch.onnx.export or tf2onnx',
  ],
  [
    /^\u0080[\u0002-\u0005]/,
    'is a pickle of Python, as PyTorch and scikit-learn write them: load it with that framework and export it ' +
      'with torch.onnx.export or skl2onnx',
  ],
  [/^\u0089HDF\r\n/, 'is an HDF5 file, as Keras writes them: convert it with tf2onnx'],
  [/^.{4}TFL3/s, 'is a TensorFlow Lite model: convert it with tf2onnx'],
  [/^\u001f\u008b/, 'is compressed with gzip: unpack it'],
  [
    /^.{4}\u0000{4}\{"/s,
    'is a file of safetensors, which has weights and no graph: ' +
      'load the model in its library and export it with torch.onnx.export',
  ],
  [/^\s*[{[]/, 'is JSON and not a model'],
]
// oxlint-enable no-control-regex

/** Number of bytes that `STRANGERS` looks at. */
const BEGIN_BYTES = 256

/** Identifies a file that is not a model by its first bytes; returns a predicate, or null if it may be a model. */
export function whyForeign(path: string): string | null {
  const begin = beginning(path)
  if (begin === '') return 'is empty: it was not written or copied completely'
  return STRANGERS.find(([begins]) => begins.test(begin))?.[1] ?? null
}

/** A file as far as it can be read. `why`, a predicate, explains why ONNX Runtime cannot load it. */
export interface LookedAt {
  /** null if it is not an ONNX model, or is one in ONNX Runtime's own format. */
  file: OnnxFile | null
  why: string | null
  /** False if only this reader cannot read it. */
  isSure: boolean
}

/** Reads as much as the graph: up to some seconds for a file that was built to be slow. */
export function lookAt(path: string): LookedAt {
  const foreign = whyForeign(path)
  if (foreign !== null) return { file: null, why: foreign, isSure: true }
  if (beginning(path).slice(4, 8) === 'ORTM') return { file: null, why: null, isSure: true }
  try {
    const file = readOnnx(path)
    return { file, why: whyRefused(file), isSure: true }
  } catch (error) {
    if (!(error instanceof ServerError)) throw error
    const reason = error.message.slice(BROKEN.length)
    const isSure = error.code === 'INVALID_ARG'
    const why = isSure
      ? `is not an ONNX model: ${reason}; it was not written completely, or is something else`
      : `is not a readable ONNX model: ${reason}`
    return { file: null, why, isSure }
  }
}

function whyRefused({ hasGraph, irVersion, opset }: OnnxFile): string | null {
  if (!hasGraph) return 'is not an ONNX model: it has no graph'
  if (irVersion > IR_VERSION_MAX) {
    const older = 'export it with an older release of the package onnx'
    const advice = `${older}, or save it again after model.ir_version = ${IR_VERSION_MAX}`
    return `has IR version ${irVersion}, and ONNX Runtime reads up to ${IR_VERSION_MAX}: ${advice}`
  }
  if (opset <= OPSET_MAX) return null
  const advice =
    `export it with opset_version=${OPSET_MAX} or less (torch.onnx.export), ` +
    `or run onnx.version_converter.convert_version(model, ${OPSET_MAX})`
  return `has operators of opset ${opset}, and ONNX Runtime has them up to ${OPSET_MAX}: ${advice}`
}

/** Identifies a file that does not hold weights; returns a predicate, or null if it may hold weights. */
export function whyNoWeights(path: string): string | null {
  const begin = beginning(path)
  return begin === '' ? 'is empty' : POINTER[0].test(begin) ? POINTER[1] : null
}

/** The first bytes of a file, one character per byte. */
function beginning(path: string): string {
  const fd = openSync(path, 'r')
  try {
    const bytes = Buffer.alloc(BEGIN_BYTES)
    return bytes.toString('latin1', 0, readSync(fd, bytes, 0, BEGIN_BYTES, 0))
  } finally {
    closeSync(fd)
  }
}

class Reader {
  readonly locations = new Set<string>()
  readonly file: Omit<OnnxFile, 'dataFiles'> = {
    irVersion: 0,
    opset: 0,
    hasGraph: false,
    inputs: [],
    outputs: [],
    initializers: new Set(),
    metadata: new Map(),
    activations: new Map(),
  }
  readonly size: number
  readonly #fd: number
  readonly #window = Buffer.alloc(WINDOW_BYTES)
  #windowAt = 0
  #windowBytes = 0
  #at = 0
  #fields = 0
  #names = 0
  /** The input or output that is being read. */
  #value: GraphValue = { name: '', type: 0, shape: null }

  constructor(fd: number, size: number) {
    this.#fd = fd
    this.size = size
  }

  /** Reads a message from the current position up to `end`. */
  message(kind: Message, end: number, depth: number): void {
    if (depth > DEPTH_MAX) throw beyond(`its graphs are nested more than ${DEPTH_MAX} deep`)
    const kept = new Map<number, string | number>()
    while (this.#at < end) {
      this.#fields += 1
      if (this.#fields > FIELDS_MAX) throw beyond(`it has more than ${FIELDS_MAX} fields`)
      const tag = this.#varint(end)
      const field = Math.floor(tag / 8)
      const wire = tag % 8
      const isKept = KEPT[kind]?.includes(field) === true
      if (wire === 0) {
        const number = this.#varint(end)
        if (isKept) kept.set(field, number)
      } else if (wire === 1) this.#skip(8, end)
      else if (wire === 5) this.#skip(4, end)
      else if (wire === 2) {
        const length = this.#varint(end)
        if (length > end - this.#at) throw broken('it ends in the middle of a field')
        const until = this.#at + length
        const inside = INSIDE[kind][field]
        if (inside !== undefined) this.#inside(inside, field, until, depth + 1)
        else if (kind === 'property' && field === 2) {
          // Other tools keep whole documents here, which are no reason to reject a file.
          if (length <= METADATA_BYTES_MAX) kept.set(field, this.#text(length, METADATA_BYTES_MAX))
        } else if (isKept) kept.set(field, this.#text(length, TEXT_BYTES_MAX))
        this.#at = until
      } else throw broken('it is not protobuf')
      if (field === 0) throw broken('it is not protobuf')
    }
    this.#keep(kind, kept, depth)
  }

  #inside(kind: Message, field: number, until: number, depth: number): void {
    if (kind === 'value') {
      // Only of the main graph: values of inner graphs belong to operators.
      if (depth !== 2) return
      this.#value = { name: '', type: 0, shape: null }
      this.#count()
      const list = field === 11 ? this.file.inputs : this.file.outputs
      list.push(this.#value)
    } else if (kind === 'shape') this.#value.shape = []
    else if (kind === 'graph' && depth === 1) this.file.hasGraph = true
    this.message(kind, until, depth)
  }

  /** Evaluates a message at its end, because its fields come in any order. */
  #keep(kind: Message, kept: ReadonlyMap<number, string | number>, depth: number): void {
    const text = (field: number): string => String(kept.get(field) ?? '')
    const number = (field: number): number => Number(kept.get(field) ?? 0)
    if (kind === 'entry' && text(1) === 'location') this.locations.add(text(2))
    if (this.locations.size > FILES_MAX) throw beyond(`its data are in more than ${FILES_MAX} files`)
    if (kind === 'model') this.file.irVersion = number(1)
    if (kind === 'opset' && (text(1) === '' || text(1) === 'ai.onnx')) this.file.opset = number(2)
    if (kind === 'property' && METADATA_KEYS.includes(text(1)))
      this.file.metadata.set(text(1), kept.has(2) ? text(2) : null)
    if (kind === 'node' && depth === 2 && ['Softmax', 'Sigmoid'].includes(text(4))) {
      this.#count()
      this.file.activations.set(text(2), text(4))
    }
    if (kind === 'value') this.#value.name = text(1)
    if (kind === 'tensorType') this.#value.type = number(1)
    if (kind === 'dim') {
      this.#count()
      const size = kept.get(1)
      this.#value.shape?.push(size === undefined ? text(2) : Number(size))
    }
    // Initializers of the main graph, including sparse ones.
    if (kind === 'tensor' && depth <= 3 && kept.has(8)) {
      this.#count()
      this.file.initializers.add(text(8))
    }
  }

  #count(): void {
    this.#names += 1
    if (this.#names > NAMES_MAX) throw beyond(`it has more than ${NAMES_MAX} inputs, outputs and constants`)
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

  /** A number of up to 64 bits; inexact above 2^53, where it is an impossible length or an unused value. */
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

  #text(length: number, bytesMax: number): string {
    if (length > bytesMax) throw beyond(`a name or a path in it is longer than ${bytesMax} bytes`)
    const bytes = Buffer.alloc(length)
    for (let i = 0; i < length; i += 1) bytes[i] = this.#byte()
    return bytes.toString('utf8')
  }
}

const BROKEN = 'the file is not a readable ONNX model: '

function broken(why: string): ServerError {
  return new ServerError('INVALID_ARG', `${BROKEN}${why}`)
}

/** The file may be valid, but exceeds a limit of this reader. */
function beyond(why: string): ServerError {
  return new ServerError('UNSUPPORTED', `${BROKEN}${why}`)
}

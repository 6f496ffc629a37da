/**
 * A first request to a model: its bytes, and the shell command that sends the same bytes. Pure.
 *
 * All elements are one: a valid index of a table with two rows, a visible position in a mask, no division by zero. The
 * shell generates long tensors at run time, since an argument of a command is limited (128 KiB on Linux).
 */

import { shellWord } from '../../internal.js'
import { datatypeOf, elementsOf } from '../generated.js'
import type { ModelIoConfig, TensorConfig } from './model_io.js'

/** Elements of a tensor that are written out. */
const WRITTEN_MAX = 64
/** Elements of all tensors: beyond it the JSON approaches `--http-max-input-size`. */
const ELEMENTS_MAX = 4 << 20

/** FP16 and BF16 have no JSON form: their bytes follow the JSON (docs/spec/protocol.md 1.12.3). */
const BINARY_BYTES: ReadonlyMap<string, number> = new Map([
  ['TYPE_FP16', 2],
  ['TYPE_BF16', 2],
])

/** A part of a body: text, a repeated element, or zero bytes. */
type Piece = { text: string } | { element: string; count: number } | { zeros: number }

export interface Example {
  path: string
  body: Buffer
  /** Bytes of the JSON before binary tensors; null if there are none. */
  headerBytes: number | null
  /** Outputs that are returned as raw bytes. */
  binaryOutputs: string[]
  /** Dimensions that accept any size: `INPUT0 [1,8]`. */
  filledIn: string[]
  /** The command for a server at `origin`, such as `localhost:8000`. */
  curl(origin: string): string
}

/** The request with `size` for dimensions of any size; null if a tensor would be too large for an example. */
export function exampleRequest(config: ModelIoConfig, size: number): Example | null {
  const inputs = config.input.map((tensor) => ({ tensor, shape: shapeOf(config, tensor, size) }))
  if (inputs.reduce((sum, { shape }) => sum + elementsOf(shape), 0) > ELEMENTS_MAX) return null
  const binary: Piece[] = []
  const sequence = '"parameters":{"sequence_id":1,"sequence_start":true,"sequence_end":true},'
  const pieces: Piece[] = [{ text: `{${config.sequence_batching === undefined ? '' : sequence}"inputs":[` }]
  inputs.forEach(({ tensor, shape }, i) => {
    const count = elementsOf(shape)
    const name = `${i > 0 ? ',' : ''}{"name":${JSON.stringify(tensor.name)}`
    const head = `${name},"datatype":"${datatypeOf(tensor)}","shape":[${shape.join(',')}],`
    const width = BINARY_BYTES.get(tensor.data_type)
    if (width !== undefined) {
      pieces.push({ text: `${head}"parameters":{"binary_data_size":${count * width}}}` })
      binary.push({ zeros: count * width })
    } else if (count <= WRITTEN_MAX) {
      pieces.push({ text: `${head}"data":[${Array<string>(count).fill(element(tensor)).join(',')}]}` })
    } else {
      pieces.push({ text: `${head}"data":[` }, { element: element(tensor), count }, { text: ']}' })
    }
  })
  const binaryOutputs = config.output
    .filter((tensor) => BINARY_BYTES.has(tensor.data_type))
    .map((tensor) => tensor.name)
  const outputs = config.output.map(({ name }) => ({ name, parameters: { binary_data: binaryOutputs.includes(name) } }))
  pieces.push({ text: binaryOutputs.length > 0 ? `],"outputs":${JSON.stringify(outputs)}}` : ']}' })
  const head = bytesOf(pieces)
  const path = `/v2/models/${config.name}/infer`
  const headerBytes = binary.length > 0 ? head.length : null
  return {
    path,
    body: Buffer.concat([head, bytesOf(binary)]),
    headerBytes,
    binaryOutputs,
    filledIn: inputs
      .filter(({ tensor }) => tensor.dims.includes(-1))
      .map(({ tensor, shape }) => `${tensor.name} [${shape.join(',')}]`),
    curl(origin) {
      const options = headerBytes === null ? '' : ` -H 'Inference-Header-Content-Length: ${headerBytes}'`
      const to = binaryOutputs.length === 0 ? '' : ' --output response.bin'
      const url = shellWord(`${origin}${path}`)
      const parts = merged([...pieces, ...binary])
      const [only] = parts
      if (parts.length === 1 && only !== undefined && 'text' in only)
        return `curl -sS ${url}${options}${to} -d ${shellWord(only.text)}`
      return `{ ${parts.map(command).join('; ')}; } |\n  curl -sS ${url}${options}${to} --data-binary @-`
    },
  }
}

/** A request to an endpoint that takes JSON. */
export function jsonExample(path: string, body: object): Example {
  const text = JSON.stringify(body)
  return {
    path,
    body: Buffer.from(text),
    headerBytes: null,
    binaryOutputs: [],
    filledIn: [],
    curl: (origin) => `curl -sS ${shellWord(`${origin}${path}`)} -d ${shellWord(text)}`,
  }
}

/** The shape of an input with a batch of 1; in a model that does not batch, a variable first dimension is 1 too. */
export function shapeOf({ max_batch_size }: ModelIoConfig, { dims }: TensorConfig, size: number): number[] {
  if (max_batch_size > 0) return [1, ...dims.map((dim) => (dim === -1 ? size : dim))]
  return dims.map((dim, i) => (dim !== -1 ? dim : i === 0 && dims.length > 1 ? 1 : size))
}

function element({ data_type }: TensorConfig): string {
  if (data_type === 'TYPE_STRING') return '"1"'
  return data_type === 'TYPE_BOOL' ? 'true' : '1'
}

function bytesOf(pieces: readonly Piece[]): Buffer {
  const made = pieces.map((piece) => {
    if ('text' in piece) return Buffer.from(piece.text)
    if ('zeros' in piece) return Buffer.alloc(piece.zeros)
    // With the line feed that `paste` writes at the end.
    return Buffer.from(`${Array<string>(piece.count).fill(piece.element).join(',')}\n`)
  })
  return Buffer.concat(made)
}

/** Joins adjacent text. */
function merged(pieces: readonly Piece[]): Piece[] {
  const out: Piece[] = []
  for (const piece of pieces) {
    const last = out.at(-1)
    if (last !== undefined && 'text' in last && 'text' in piece) out[out.length - 1] = { text: last.text + piece.text }
    else out.push(piece)
  }
  return out
}

function command(piece: Piece): string {
  if ('text' in piece) return `printf %s ${shellWord(piece.text)}`
  if ('zeros' in piece) return `head -c ${piece.zeros} /dev/zero`
  return `yes ${shellWord(piece.element)} | head -n ${piece.count} | paste -sd, -`
}

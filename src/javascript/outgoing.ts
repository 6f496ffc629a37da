/** Writes requests: those that a model makes for another one, and those of tests. */

import { kindOf } from './errors.js'
import { ALL_OUTPUTS, RequestFlag, RequestHead } from './generated/protocol.js'
import type { Parameters } from './response.js'
import { Tensor, contentsOf, tensorOf } from './tensor.js'
import { type Taken, type Writer, parametersText } from './writer.js'

/** Everything of a request besides its inputs. */
export interface RequestOptions {
  /** Names of the wanted outputs; all if it is left out. */
  readonly outputs?: readonly string[]
  readonly id?: string
  /** Id of the sequence. */
  readonly correlationId?: number | bigint | string
  readonly sequenceStart?: boolean
  readonly sequenceEnd?: boolean
  readonly timeoutUs?: number | bigint
  readonly parameters?: Parameters
  /** Cancels the request. */
  readonly signal?: AbortSignal
}

/** Tensors of a list, or of an object, whose keys are their names then. Members that are undefined are left out. */
export function tensorsOf(what: string, inputs: unknown): Tensor[] {
  const entries: [string | null, unknown][] = Array.isArray(inputs)
    ? inputs.map((input: unknown) => [null, input])
    : Object.entries(inputs as object)
  return entries
    .filter(([, input]) => input !== undefined)
    .map(([name, input]) => {
      if (!(input instanceof Tensor)) throw new TypeError(`${what} is ${kindOf(input)}, expected a Tensor`)
      if (name === null || name === input.name) return input
      return tensorOf(name, input.datatype, [...input.shape], contentsOf(input))
    })
}

/** Writes a u64. A BigInt for each would cost more than the rest of a small request. */
function writeNumber(writer: Writer, at: number, value: number | bigint, name: string): void {
  const isHeld = typeof value === 'bigint' ? BigInt.asUintN(64, value) === value : Number.isSafeInteger(value)
  if (!isHeld || value < 0)
    throw new TypeError(`${name} must be an integer from 0 to 2^64 - 1, beyond 2^53 as bigint: found ${value}`)
  if (typeof value === 'bigint') writer.view.setBigUint64(at, value, true)
  else writer.u64(at, value)
}

/** Appends a request to the frame that `writer` holds. @throws what `Writer.tensors` throws. */
export function writeRequest(
  writer: Writer,
  slot: number,
  generation: number,
  inputs: readonly Tensor[],
  options: RequestOptions,
  taken: Taken,
): void {
  const { correlationId = 0, outputs } = options
  const at = writer.take(RequestHead.BYTES)
  const isText = typeof correlationId === 'string'
  const idBytes = writer.text(options.id ?? '')
  const correlationBytes = isText ? writer.text(correlationId) : 0
  const parametersBytes = options.parameters === undefined ? 0 : writer.text(parametersText(options.parameters))
  for (const name of outputs ?? []) {
    const place = writer.take(2)
    const length = writer.text(name)
    writer.view.setUint16(place, length, true)
  }
  const { view } = writer
  const flags =
    (options.sequenceStart === true ? RequestFlag.SEQUENCE_START : 0) |
    (options.sequenceEnd === true ? RequestFlag.SEQUENCE_END : 0)
  view.setUint32(at + RequestHead.slot, slot, true)
  view.setUint32(at + RequestHead.generation, generation, true)
  writeNumber(writer, at + RequestHead.correlation, isText ? 0 : correlationId, 'correlationId')
  writeNumber(writer, at + RequestHead.timeoutUs, options.timeoutUs ?? 0, 'timeoutUs')
  view.setUint32(at + RequestHead.flags, flags, true)
  view.setUint16(at + RequestHead.inputs, inputs.length, true)
  view.setUint16(at + RequestHead.outputs, outputs === undefined ? ALL_OUTPUTS : outputs.length, true)
  view.setUint32(at + RequestHead.idBytes, idBytes, true)
  view.setUint32(at + RequestHead.correlationBytes, correlationBytes, true)
  view.setUint32(at + RequestHead.parametersBytes, parametersBytes, true)
  view.setUint32(at + RequestHead.traceBytes, 0, true)
  writer.tensors(inputs, 'input', 'call', taken)
}

/**
 * Encodes ModelInferRequest and decodes ModelInferResponse by hand: small tensors follow the head of a request, large
 * ones are parts of their own; a response is read without copies.
 */

import { isDatatype } from '../datatypes.js'
import { ClientError } from '../errors.js'
import { InferResult, Tensor } from '../tensor.js'
import type { ParameterValue, RegionParameters } from '../types.js'
import type { InferRequest, StreamAnswer } from '../wire.js'
import { Reader, Writer } from './protobuf.js'

/** Reused by every request: its contents do not outlive the call. */
const head = new Writer()

/** Tensors up to this size are copied into the part before them. */
const COPIED_BYTES_MAX = 4096

/** The parts of a message in order; large tensors among them are the caller's memory. */
export function encodeInfer(request: InferRequest, emptyFinal = false): Uint8Array[] {
  head.clear().string(1, request.model).string(2, request.version).string(3, request.id)
  writeParameters(request, emptyFinal)
  for (const { name, datatype, shape, region } of request.inputs) {
    head.message(5, (input) => {
      input.string(1, name).string(2, datatype).packed(3, shape)
      if (region !== null) writeRegion(4, region)
    })
  }
  for (const { name, classification, parameters } of request.outputs) {
    head.message(6, (output) => {
      output.string(1, name)
      if (classification !== undefined) writeParameter(2, 'classification', classification)
      if (parameters !== undefined) writeRegion(2, parameters)
    })
  }
  return withRaws(request)
}

/** The head, and after it the tensors as raw_input_contents. */
function withRaws(request: InferRequest): Uint8Array[] {
  const parts: Uint8Array[] = []
  for (const { raw } of request.inputs) {
    if (raw === null) continue
    if (raw.length <= COPIED_BYTES_MAX) {
      head.bytes(7, raw)
      continue
    }
    head.head(7, raw.length)
    parts.push(Buffer.from(head.done), raw)
    head.clear()
  }
  if (head.length > 0) parts.push(Buffer.from(head.done))
  return parts
}

function writeParameters({ parameters, sequence, priority, timeoutUs }: InferRequest, emptyFinal: boolean): void {
  for (const [key, value] of parameters) writeParameter(4, key, value)
  if (sequence !== null) {
    writeParameter(4, 'sequence_id', sequence.id)
    writeParameter(4, 'sequence_start', sequence.start === true)
    writeParameter(4, 'sequence_end', sequence.end === true)
  }
  if (priority !== null)
    head.message(4, (entry) => entry.requiredString(1, 'priority').message(2, (value) => value.integer(5, priority)))
  if (timeoutUs !== null) writeParameter(4, 'timeout', timeoutUs)
  if (emptyFinal) writeParameter(4, 'triton_enable_empty_final_response', true)
}

function writeRegion(field: number, region: RegionParameters): void {
  for (const [key, value] of Object.entries(region)) writeParameter(field, key, value as ParameterValue)
}

/** Writes an entry of a map of InferParameter. */
function writeParameter(field: number, key: string, value: ParameterValue): void {
  head.message(field, (entry) => {
    entry.requiredString(1, key).message(2, (choice) => {
      if (typeof value === 'string') choice.requiredString(3, value)
      else if (typeof value === 'boolean') choice.bool(1, value)
      else if (typeof value === 'bigint' || Number.isSafeInteger(value)) choice.integer(2, value)
      else choice.double(4, value)
    })
  })
}

interface Output {
  name: string
  datatype: string
  shape: number[]
}

/** @throws {ClientError} `PROTOCOL` */
export function decodeInfer(bytes: Buffer): InferResult {
  return readInfer(new Reader(bytes))
}

function readInfer(reader: Reader): InferResult {
  const answer = { model: '', version: '', id: '', parameters: {} as Record<string, ParameterValue> }
  const outputs: Output[] = []
  const raws: Uint8Array[] = []
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) answer.model = reader.string()
    else if (field === 2) answer.version = reader.string()
    else if (field === 3) answer.id = reader.string()
    else if (field === 4) readParameter(reader.message(), answer.parameters)
    else if (field === 5) outputs.push(readOutput(reader.message()))
    else if (field === 6) raws.push(reader.bytes())
    else reader.skip()
  }
  return new InferResult(
    answer,
    outputs.map(({ name, datatype, shape }, i) => {
      if (!isDatatype(datatype))
        throw new ClientError('PROTOCOL', `output '${name}' has the datatype ${datatype}, which is unknown`)
      const raw = raws[i]
      // A tensor in a region has an empty entry, and so has one without elements.
      return new Tensor(
        name,
        datatype,
        shape,
        raw === undefined || (raw.length === 0 && !shape.includes(0)) ? null : raw,
      )
    }),
  )
}

function readOutput(reader: Reader): Output {
  const output: Output = { name: '', datatype: '', shape: [] }
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) output.name = reader.string()
    else if (field === 2) output.datatype = reader.string()
    else if (field === 3) reader.each((each) => output.shape.push(each.dimension()))
    else reader.skip()
  }
  return output
}

function readParameter(reader: Reader, parameters: Record<string, ParameterValue>): void {
  let key = ''
  let value: ParameterValue | null = null
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) key = reader.string()
    else if (field === 2) value = readChoice(reader.message())
    else reader.skip()
  }
  if (value !== null)
    Object.defineProperty(parameters, key, { value, enumerable: true, configurable: true, writable: true })
}

function readChoice(reader: Reader): ParameterValue | null {
  let value: ParameterValue | null = null
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) value = reader.bool()
    else if (field === 2) value = reader.signed()
    else if (field === 3) value = reader.string()
    else if (field === 4) value = reader.double()
    else if (field === 5) value = reader.unsigned()
    else reader.skip()
  }
  return value
}

/** Decodes a message of a stream. */
export function decodeStream(bytes: Buffer): StreamAnswer {
  const reader = new Reader(bytes)
  let text = ''
  let result: InferResult | null = null
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) text = reader.string()
    else if (field === 2) result = readInfer(reader.message())
    else reader.skip()
  }
  if (text !== '') return { result: null, error: { id: result?.id ?? '', text } }
  if (result === null) throw new ClientError('PROTOCOL', 'a response of the stream is empty')
  return { result, error: null }
}

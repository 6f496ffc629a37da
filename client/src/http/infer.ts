/** Encodes an inference as JSON followed by the bytes of its tensors, and decodes the response. Pure. */

import { decodeText, encodeText, splitElements } from '../bytes.js'
import type { Call } from '../call.js'
import { isDatatype, viewOf, type Datatype } from '../datatypes.js'
import { textOf } from '../errors.js'
import type { Input } from '../inputs.js'
import { parseJson, printJson } from '../json.js'
import { fromList } from '../lists.js'
import { InferResult, Tensor } from '../tensor.js'
import type { OutputRequest, ParameterValue } from '../types.js'
import type { InferRequest } from '../wire.js'
import type { HttpAnswer } from './transport.js'

/** Parts of a body, and the length of the first if others follow. */
export interface InferBody {
  parts: Uint8Array[]
  headerLength: number | null
}

export function encodeInfer(request: InferRequest): InferBody {
  const raws: Uint8Array[] = []
  const inputs = request.inputs.map((input) => {
    const isBinary =
      input.region === null && (request.binaryInputs || input.datatype === 'FP16' || input.datatype === 'BF16')
    if (isBinary && input.raw !== null) raws.push(input.raw)
    return printInput(input, isBinary)
  })
  const members = [`"inputs":[${inputs.join(',')}]`]
  if (request.id !== '') members.unshift(`"id":${JSON.stringify(request.id)}`)
  if (request.outputs.length > 0) members.push(`"outputs":[${request.outputs.map(printOutput).join(',')}]`)
  const parameters = printParameters(request)
  if (parameters !== '') members.push(`"parameters":{${parameters}}`)
  const header = encodeText(`{${members.join(',')}}`)
  return {
    parts: [header, ...raws.filter((raw) => raw.length > 0)],
    headerLength: raws.length > 0 ? header.length : null,
  }
}

function printInput({ name, datatype, shape, raw, region }: Input, isBinary: boolean): string {
  const head = `{"name":${JSON.stringify(name)},"shape":[${shape.join(',')}],"datatype":"${datatype}"`
  if (region !== null) return `${head},"parameters":${printJson(region)}}`
  if (raw === null || isBinary) return `${head},"parameters":{"binary_data_size":${raw?.length ?? 0}}}`
  return `${head},"data":[${elementsOf(name, datatype, raw).join(',')}]}`
}

function elementsOf(name: string, datatype: string, raw: Uint8Array): string[] {
  if (datatype === 'BYTES') return splitElements(name, raw).map((bytes) => JSON.stringify(decodeText(bytes)))
  if (datatype === 'BOOL') return Array.from(raw, (byte) => String(byte !== 0))
  return Array.from(viewOf(datatype, raw) as ArrayLike<number | bigint>, printJson)
}

function printOutput({ name, binary = true, classification, parameters }: OutputRequest): string {
  if (parameters !== undefined) return `{"name":${JSON.stringify(name)},"parameters":${printJson(parameters)}}`
  const classes = classification === undefined ? '' : `,"classification":${classification}`
  return `{"name":${JSON.stringify(name)},"parameters":{"binary_data":${binary}${classes}}}`
}

function printParameters({ parameters, sequence, priority, timeoutUs, outputs }: InferRequest): string {
  const members = parameters.map(([key, value]) => `${JSON.stringify(key)}:${printJson(value)}`)
  if (outputs.length === 0) members.push('"binary_data_output":true')
  if (sequence !== null) {
    members.push(`"sequence_id":${printJson(sequence.id)}`, `"sequence_start":${sequence.start === true}`)
    members.push(`"sequence_end":${sequence.end === true}`)
  }
  if (priority !== null) members.push(`"priority":${priority}`)
  if (timeoutUs !== null) members.push(`"timeout":${timeoutUs}`)
  return members.join(',')
}

interface JsonAnswer {
  id?: string
  model_name: string
  model_version: string
  parameters?: Record<string, ParameterValue>
  outputs?: {
    name: string
    datatype: string
    shape: number[]
    parameters?: { binary_data_size?: number }
    data?: unknown[]
  }[]
}

/** @throws {ClientError} `PROTOCOL` if the parts do not match */
export function decodeInfer(call: Call, { body, header }: HttpAnswer): InferResult {
  const headerLength = header('inference-header-content-length')
  if (headerLength === undefined && /octet-stream/.test(header('content-type') ?? '')) {
    throw call.error(
      'PROTOCOL',
      'the response has tensors but no header Inference-Header-Content-Length: for requests of other origins, the ' +
        'server has to expose it (Access-Control-Expose-Headers)',
    )
  }
  const end = headerLength === undefined ? body.length : Number(headerLength)
  if (!(end >= 0 && end <= body.length))
    throw call.error('PROTOCOL', `the response has ${body.length} bytes, but the length of its JSON is ${headerLength}`)
  const answer = parseAnswer(call, body.subarray(0, end))
  let at = end
  const outputs = (answer.outputs ?? []).map(({ name, datatype, shape, parameters, data }) => {
    if (!isDatatype(datatype))
      throw call.error('PROTOCOL', `output '${name}' has the datatype ${datatype}, which is unknown`)
    const size = parameters?.binary_data_size
    if (size === undefined)
      return new Tensor(name, datatype, shape, data === undefined ? null : listed(call, name, datatype, data))
    if (at + size > body.length)
      throw call.error(
        'PROTOCOL',
        `output '${name}' reaches past the end of the response, which has ${body.length} bytes`,
      )
    at += size
    return new Tensor(name, datatype, shape, body.subarray(at - size, at))
  })
  const head = {
    model: answer.model_name,
    version: answer.model_version,
    id: answer.id ?? '',
    parameters: answer.parameters ?? {},
  }
  return new InferResult(head, outputs)
}

function parseAnswer(call: Call, bytes: Uint8Array): JsonAnswer {
  try {
    return parseJson(decodeText(bytes)) as JsonAnswer
  } catch (error) {
    throw call.error('PROTOCOL', `the response is not that of an inference: ${textOf(error)}`, { cause: error })
  }
}

function listed(call: Call, name: string, datatype: Datatype, data: unknown[]): Uint8Array {
  try {
    return fromList(name, datatype, data)
  } catch (error) {
    throw call.error('PROTOCOL', textOf(error), { cause: error })
  }
}

/** Schemas of one model: requests and responses with the names, types and shapes of its tensors. */

import type { ModelDescription, TensorDescription } from '../description.js'
import { array, ELEMENTS, object, ref, type Json, type Schema } from './schemas.js'

/** The schemas that replace the general ones, and those that they refer to. */
export function modelSchemas(model: ModelDescription): Schema {
  const all = [...model.inputs, ...model.outputs].map((tensor) => tensor.datatype)
  const datatypes = new Set(all.filter((type) => type in ELEMENTS))
  return {
    ...Object.fromEntries([...datatypes].map((type) => [values(type), valuesSchema(type)])),
    InferRequest: inferRequest(model),
    InferResponse: inferResponse(model),
    GenerateRequest: generateRequest(model),
    GenerateResponse: generateResponse(model),
  }
}

/** Name of the schema of an element, or of arbitrarily nested lists of them. */
const values = (datatype: string) => `Values${datatype}`

function valuesSchema(datatype: string): Schema {
  return { anyOf: [ELEMENTS[datatype] ?? {}, array(ref(values(datatype)))] }
}

function shape({ shape: dims }: TensorDescription, maxBatchSize: number): Schema {
  const dimension = (size: number, at: number): Json => {
    if (size >= 0) return { const: size }
    return at === 0 && maxBatchSize > 0
      ? { type: 'integer', minimum: 1, maximum: maxBatchSize }
      : { type: 'integer', minimum: 0 }
  }
  // prefixItems must not be empty.
  const sizes = dims.length === 0 ? {} : { prefixItems: dims.map(dimension) }
  return { type: 'array', ...sizes, minItems: dims.length, maxItems: dims.length }
}

function tensor(of: TensorDescription, maxBatchSize: number, parameters: Json): Schema {
  // JSON cannot hold FP16 and BF16, only binary data and shared memory can.
  const data: Json = of.datatype in ELEMENTS ? array(ref(values(of.datatype))) : false
  const [name, datatype] = [{ const: of.name }, { const: of.datatype }]
  const properties = { name, shape: shape(of, maxBatchSize), datatype, parameters, data }
  return object(properties, ['name', 'shape', 'datatype'])
}

function inferRequest({ inputs, outputs, maxBatchSize }: ModelDescription): Schema {
  const required = inputs.filter((input) => !input.optional)
  const has = ({ name }: TensorDescription): Json => ({ contains: object({ name: { const: name } }, ['name']) })
  const tensors = inputs.map((input) => tensor(input, maxBatchSize, ref('InputParameters')))
  const one: Json = tensors.length > 1 ? { oneOf: tensors } : (tensors[0] ?? false)
  const list: Schema = {
    ...array(one),
    minItems: required.length,
    maxItems: inputs.length,
    ...(required.length === 0 ? {} : { allOf: required.map(has) }),
  }
  const names = { enum: outputs.map(({ name }) => name) }
  const output = object({ name: names, parameters: ref('OutputParameters') }, ['name'])
  const properties = { id: { type: 'string' }, parameters: ref('Parameters'), inputs: list, outputs: array(output) }
  return object(properties, ['inputs'])
}

function inferResponse({ name, outputs, maxBatchSize }: ModelDescription): Schema {
  const size = object({ binary_data_size: { type: 'integer', minimum: 0 } })
  // An output may also be classified, which gives text of another shape.
  const names = { enum: outputs.map((output) => output.name) }
  const text = { name: names, datatype: { const: 'BYTES' }, data: array({ type: 'string' }) }
  const one = {
    anyOf: [...outputs.map((output) => tensor(output, maxBatchSize, size)), object(text, ['name', 'datatype'])],
  }
  const properties = {
    id: { type: 'string' },
    model_name: { const: name },
    model_version: { type: 'string' },
    parameters: ref('Parameters'),
    outputs: array(one),
  }
  return object(properties, ['model_name', 'model_version', 'outputs'])
}

function value({ datatype }: TensorDescription): Json {
  const element = ELEMENTS[datatype]
  return element === undefined ? false : { anyOf: [element, array(element)] }
}

function generateRequest({ inputs }: ModelDescription): Schema {
  const properties = Object.fromEntries(inputs.map((input) => [input.name, value(input)]))
  const required = inputs.filter((input) => !input.optional).map(({ name }) => name)
  // An input of such a name replaces the property.
  return object({ id: { type: 'string' }, parameters: { type: 'object' }, ...properties }, required)
}

function generateResponse({ outputs }: ModelDescription): Schema {
  const properties = Object.fromEntries(outputs.map((output) => [output.name, value(output)]))
  const string = { type: 'string' }
  return object({ id: string, model_name: string, model_version: string, ...properties })
}

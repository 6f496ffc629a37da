/** Makes the tensors of requests: generated ones, or those of files as perf_analyzer reads them. */

import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { CommandError, membersOf } from '../../internal.js'
import type { Model, TensorFacts } from './model.js'
import type { Settings } from './settings.js'
import { elementBytes, elementsOf, encoded, generated, randomOf, type Tensor } from './tensors.js'

/** One request: its inputs, and outputs that its response must have. */
export interface Entry {
  inputs: Tensor[]
  expected: Tensor[]
}

/** Different requests that are generated, and bytes that they may have together. */
const GENERATED_MAX = 16
const GENERATED_BYTES_MAX = 32 << 20
/** Bytes of a request. */
const REQUEST_BYTES_MAX = 1 << 30

type Tensors = Map<string, Tensor>
const none: [Tensors, Tensors] = [new Map(), new Map()]

/**
 * The requests that are sent in turn.
 *
 * @throws {CommandError} if inputs cannot be made: it names the input and the option
 */
export function entriesOf(model: Model, settings: Settings): Entry[] {
  const { batch } = settings
  if (model.batchMax === 0 && batch > 1)
    throw new CommandError(`--batch=${batch}: the model '${model.name}' does not batch (max_batch_size is 0)`)
  if (model.batchMax > 0 && batch > model.batchMax)
    throw new CommandError(`--batch=${batch}: the model '${model.name}' has max_batch_size ${model.batchMax}`)
  for (const name of settings.shapes.keys())
    if (!model.inputs.some((input) => input.name === name))
      throw new CommandError(`--shape=${name}:…: ${inputsText(model)}`)
  const [first = 'random', ...others] = settings.data
  if (first !== 'zero' && first !== 'random') {
    const rows = [first, ...others].flatMap((path) => rowsIn(path, model, settings))
    const from = (i: number): typeof rows =>
      Array.from({ length: batch }, (_, k) => rows[(i + k) % rows.length] ?? none)
    return rows.map((_, i) => batched(model, batch, from(i)))
  }
  if (others.length > 0) throw new CommandError(`--data=${first} generates all requests; ${others[0]} is too much`)
  const inputs = model.inputs.filter((input) => !input.isOptional || settings.shapes.has(input.name))
  const random = first === 'zero' ? null : randomOf(settings.seed)
  const make = (): Entry => ({
    inputs: inputs.map((input) => {
      const dims = dimsOf(input, settings)
      const shape = model.batchMax > 0 ? [batch, ...dims] : dims
      if (elementsOf(shape) * (elementBytes(input.datatype) ?? 4) > REQUEST_BYTES_MAX)
        throw new CommandError(`the input '${input.name}' of shape [${shape}] has more than ${REQUEST_BYTES_MAX} bytes`)
      const data = generated(input.datatype, elementsOf(shape), { ...settings, random })
      return { name: input.name, datatype: input.datatype, shape, data }
    }),
    expected: [],
  })
  const one = make()
  const bytes = one.inputs.reduce((sum, { data }) => sum + data.length, 1)
  const count = random === null ? 1 : Math.max(1, Math.min(GENERATED_MAX, Math.floor(GENERATED_BYTES_MAX / bytes)))
  return [one, ...Array.from({ length: count - 1 }, make)]
}

const inputsText = ({ name, inputs }: Model): string =>
  `the model '${name}' has the inputs ${inputs.map((input) => `${input.name} [${input.dims}]`).join(', ')}`

/** Dimensions of an input without those of the batch. */
function dimsOf(input: TensorFacts, { shapes, batch }: Settings): number[] {
  const { name, dims } = input
  const given = shapes.get(name)
  if (given === undefined) {
    if (!dims.includes(-1)) return dims
    const example = dims.map((dimension) => (dimension < 0 ? 16 : dimension))
    throw new CommandError(
      `the input '${name}' has the shape [${dims}], of any size where it is -1: give one, such as ` +
        `--shape=${name}:${example}`,
    )
  }
  const fits = (shape: readonly number[]): boolean =>
    shape.length === dims.length && dims.every((dimension, i) => dimension < 0 || dimension === shape[i])
  if (fits(given)) return given
  // With the dimension of the batch, as it is sent.
  if (given[0] === batch && fits(given.slice(1))) return given.slice(1)
  throw new CommandError(`--shape=${name}:${given} does not fit the model, where '${name}' has the shape [${dims}]`)
}

/** Puts rows together; all must have the same shapes. */
function batched(model: Model, batch: number, rows: readonly (readonly [Tensors, Tensors])[]): Entry {
  const join = (part: 0 | 1): Tensor[] =>
    [...(rows[0] ?? none)[part].values()].map((first) => {
      const all = rows.map((row) => row[part].get(first.name) ?? first)
      const other = all.find((one) => String(one.shape) !== String(first.shape))
      if (other !== undefined)
        throw new CommandError(
          `--batch=${batch}: '${first.name}' has the shapes [${first.shape}] and [${other.shape}] in the data`,
        )
      const shape = model.batchMax > 0 ? [batch, ...first.shape] : first.shape
      return { ...first, shape, data: Buffer.concat(all.map((one) => one.data)) }
    })
  return { inputs: join(0), expected: join(1) }
}

/** Rows of a JSON file or of a directory with a file for each input. */
function rowsIn(path: string, model: Model, settings: Settings): [Tensors, Tensors][] {
  let json: unknown
  try {
    if (statSync(path).isDirectory()) return [[rowIn(path, model, settings), new Map()]]
    json = JSON.parse(readFileSync(path, 'utf8'))
  } catch (error) {
    if (error instanceof CommandError) throw error
    throw new CommandError(`--data=${path}: ${error instanceof Error ? error.message : String(error)}`)
  }
  const { data, validation_data: validation } = membersOf(json)
  // A stream of requests is a list; there may be several.
  const rows = Array.isArray(data) ? data.flat() : []
  if (rows.length === 0)
    throw new CommandError(`--data=${path}: '{"data": [{"INPUT": [values]}]}' was expected, with at least one row`)
  const expected = Array.isArray(validation) ? validation.flat() : []
  if (expected.length > 0 && expected.length !== rows.length)
    throw new CommandError(`--data=${path}: ${rows.length} rows of data, but ${expected.length} of validation_data`)
  return rows.map((row: unknown, i) => {
    const where = `--data=${path}, row ${i + 1}`
    for (const input of model.inputs)
      if (!input.isOptional && membersOf(row)[input.name] === undefined)
        throw new CommandError(`${where}: the input '${input.name}' is missing; ${inputsText(model)}`)
    return [
      rowOf(where, membersOf(row), model.inputs, (input) => dimsOf(input, settings)),
      rowOf(`${where} of validation_data`, membersOf(expected[i]), model.outputs, ({ dims }) => dims),
    ]
  })
}

function rowOf(
  where: string,
  row: Record<string, unknown>,
  facts: readonly TensorFacts[],
  dims: (one: TensorFacts) => number[],
): Tensors {
  return new Map(
    Object.entries(row).map(([name, value]) => {
      const one = facts.find((each) => each.name === name)
      if (one === undefined)
        throw new CommandError(
          `${where}: there is no '${name}'; the model has ${facts.map((each) => each.name).join(', ')}`,
        )
      try {
        return [name, { name, datatype: one.datatype, ...contentsOf(one, value, () => dims(one)) }]
      } catch (error) {
        throw error instanceof CommandError ? new CommandError(`${where}, '${name}': ${error.message}`) : error
      }
    }),
  )
}

/** `[values]`, `{"content": [values], "shape": [dims]}` or `{"b64": "…"}`. */
function contentsOf(
  { datatype, dims }: TensorFacts,
  value: unknown,
  dimsGiven: () => number[],
): { shape: number[]; data: Buffer } {
  const { content = value, shape: given, b64 } = membersOf(value)
  const text = b64 ?? membersOf(content)['b64']
  const isBinary = typeof text === 'string'
  const values: unknown[] = isBinary ? [Buffer.from(text, 'base64')] : [content].flat(Infinity)
  const data = isBinary && datatype !== 'BYTES' ? Buffer.from(text, 'base64') : encoded(datatype, values)
  const count = datatype === 'BYTES' ? values.length : data.length / (elementBytes(datatype) ?? 1)
  // One open dimension follows from the number of elements.
  const rest = elementsOf(dims.filter((dimension) => dimension >= 0))
  const isKnown = dims.filter((dimension) => dimension < 0).length === 1 && rest > 0 && Number.isInteger(count / rest)
  const shape = Array.isArray(given)
    ? given.map(Number)
    : isKnown
      ? dims.map((dimension) => (dimension < 0 ? count / rest : dimension))
      : dimsGiven()
  if (elementsOf(shape) !== count)
    throw new CommandError(`the shape [${shape}] has ${elementsOf(shape)} elements, but there are ${count}`)
  return { shape, data }
}

/** A file for each input, of its bytes; of BYTES, of a line for each element. */
function rowIn(directory: string, model: Model, settings: Settings): Tensors {
  const names = readdirSync(directory)
  return new Map(
    model.inputs
      .filter((input) => !input.isOptional || names.includes(input.name))
      .map((input) => {
        const { name, datatype } = input
        if (!names.includes(name))
          throw new CommandError(`--data=${directory}: there is no file '${name}'; ${inputsText(model)}`)
        const bytes = readFileSync(join(directory, name))
        const data =
          datatype === 'BYTES'
            ? encoded(
                'BYTES',
                bytes
                  .toString()
                  .replace(/\r?\n$/, '')
                  .split(/\r?\n/),
              )
            : bytes
        const shape = dimsOf(input, settings)
        const wanted = elementsOf(shape) * (elementBytes(datatype) ?? 0)
        if (datatype !== 'BYTES' && data.length !== wanted)
          throw new CommandError(
            `${join(directory, name)} has ${data.length} bytes; ${datatype} [${shape}] has ${wanted}`,
          )
        return [name, { name, datatype, shape, data }]
      }),
  )
}

/** Texts of generated words, or the lines of files. */
export function textsOf(settings: Settings, count: number): string[] {
  const [first = 'random'] = settings.data
  if (first === 'random' || first === 'zero') {
    const random = randomOf(settings.seed)
    const [mean, deviation] = settings.words
    // Box and Muller's normal distribution.
    const normal = (): number => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())
    return Array.from({ length: count }, () => {
      const words = Math.max(1, Math.round(mean + deviation * normal()))
      return Array.from({ length: words }, () => WORDS[Math.floor(random() * WORDS.length)]).join(' ')
    })
  }
  const lines = settings.data.flatMap((path) => {
    try {
      return readFileSync(path, 'utf8')
        .split(/\r?\n/)
        .filter((line) => line.trim() !== '')
    } catch (error) {
      throw new CommandError(`--data=${path}: ${error instanceof Error ? error.message : String(error)}`)
    }
  })
  if (lines.length === 0) throw new CommandError(`--data=${settings.data.join(', ')}: there is no line with a text`)
  return lines
}

/** Usual words, which tokenizers of English have as one token or two. */
const WORDS = (
  'the of and to in that is was for on with as his they be at one have this from had by hot word but what some we ' +
  'can out other were all there when up use your how said an each she which do their time if will way about many ' +
  'then them write would like so these her long make thing see him two has look more day could go come did number ' +
  'sound no most people my over know water than call first who may down side been now find any new work part take ' +
  'get place made live where after back little only round man year came show every good me give our under name very'
).split(' ')

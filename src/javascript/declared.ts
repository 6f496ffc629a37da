/** Checks what a model declares, so that a misspelt or a wrong member fails the load with a text that names it. */

import { NAMES } from './datatypes.js'
import { RuleError, kindOf } from './errors.js'

const MEMBERS = [
  'autoCompleteConfig',
  'decoupled',
  'execute',
  'finalize',
  'initialize',
  'inputs',
  'isReady',
  'maxBatchSize',
  'outputs',
]
const TENSOR_MEMBERS = ['datatype', 'dims', 'optional']
/** Characters by which a key differs from the known one that is meant. */
const DISTANCE_MAX = 2

/**
 * Checks the keys of a model. Own members are allowed, except those that differ by two characters from a known key
 * that the model does not have. Members of classes are not looked at.
 *
 * @throws {RuleError} for a misspelt key.
 */
export function checkKeys(exported: unknown, model: string): void {
  if (typeof exported === 'object' && exported !== null && Object.getPrototypeOf(exported) === Object.prototype)
    checkNear(exported, MEMBERS, `model '${model}'`)
}

function checkNear(value: object, known: readonly string[], where: string): void {
  for (const key of Object.keys(value)) {
    const meant = known.includes(key) ? undefined : known.find((one) => distance(key, one) <= DISTANCE_MAX)
    if (meant !== undefined && !Object.hasOwn(value, meant))
      throw new RuleError(`${where}: there is no key '${key}': did you mean '${meant}'?`)
  }
}

/** Checks the declarations of a model. @throws {RuleError} for a wrong one. */
export function checkDeclarations({ inputs, outputs, maxBatchSize }: Record<string, unknown>, model: string): void {
  const where = `model '${model}'`
  if (maxBatchSize !== undefined && !(Number.isInteger(maxBatchSize) && (maxBatchSize as number) >= 0))
    throw new RuleError(`${where}: maxBatchSize must be an integer of at least 0, found ${shown(maxBatchSize)}`)
  for (const [kind, tensors] of Object.entries({ inputs, outputs })) {
    if (tensors === undefined) continue
    if (!isRecord(tensors))
      throw new RuleError(`${where}: ${kind} must be an object of declarations by name, found ${shown(tensors)}`)
    for (const [name, tensor] of Object.entries(tensors)) checkTensor(tensor, `${where}: ${kind}.${name}`)
  }
}

function checkTensor(tensor: unknown, where: string): void {
  if (!isRecord(tensor)) throw new RuleError(`${where} must be { datatype, dims }, found ${shown(tensor)}`)
  checkNear(tensor, TENSOR_MEMBERS, where)
  const { datatype, dims } = tensor
  if (!(NAMES as readonly unknown[]).includes(datatype)) {
    const names = NAMES.filter((name) => name !== undefined)
    const meant = typeof datatype === 'string' ? nearest(datatype, names) : undefined
    const advice = meant === undefined ? '' : `: did you mean '${meant}'?`
    throw new RuleError(`${where}.datatype must be one of ${names.join(', ')}, found ${shown(datatype)}${advice}`)
  }
  if (!Array.isArray(dims) || !dims.every((dim) => Number.isInteger(dim)))
    throw new RuleError(`${where}.dims must be an array of integers, found ${shown(dims)}`)
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const shown = (value: unknown) =>
  ['string', 'number'].includes(typeof value) || Array.isArray(value) ? JSON.stringify(value) : kindOf(value)

function nearest(text: string, names: readonly string[]): string | undefined {
  const bare = text
    .toUpperCase()
    .replace(/^TYPE_/, '')
    .replace(/^FLOAT/, 'FP')
  if (bare === 'STRING') return 'BYTES'
  return names.find((name) => name === bare) ?? names.find((name) => distance(name, bare) === 1)
}

/** Characters to insert, remove or replace to make one text of the other. */
export function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, i) => i)
  for (const [i, letter] of [...one].entries()) {
    const next = [i + 1]
    for (let j = 0; j < other.length; j += 1) {
      const replaced = (row[j] as number) + (letter === other[j] ? 0 : 1)
      next.push(Math.min(replaced, (row[j + 1] as number) + 1, (next[j] as number) + 1))
    }
    row = next
  }
  return row[other.length] as number
}

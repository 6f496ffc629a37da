/**
 * Writes a model repository: `config.pbtxt`, label files and `<version>/model.onnx`.
 *
 * A file that already has the right bytes stays untouched, so that a polled repository does not reload.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

function write(path, data) {
  const contents = Buffer.isBuffer(data) ? data : Buffer.from(data)
  if (existsSync(path) && readFileSync(path).equals(contents)) return
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, contents)
}

/**
 * Writes one model.
 *
 * @param versions version number → bytes of `model.onnx`, or null for an empty version directory
 * @param config text of `config.pbtxt`, or null to leave completion to the server
 * @param {{
 *   config?: string | null, versions?: Record<string, Buffer | null>, files?: Record<string, string | Buffer>
 * }} model
 */
export function writeModel(root, name, { config = null, versions = { 1: null }, files = {} }) {
  for (const [version, bytes] of Object.entries(versions)) {
    mkdirSync(join(root, name, version), { recursive: true })
    if (bytes !== null) write(join(root, name, version, 'model.onnx'), bytes)
  }
  if (config !== null) write(join(root, name, 'config.pbtxt'), config)
  for (const [path, data] of Object.entries(files)) write(join(root, name, path), data)
}

/** `input [ … ]` or `output [ … ]` from rows of name, config type, dims and further fields. */
export function tensors(kind, rows) {
  const lines = rows.map(([name, type, dims, more = '']) => {
    const rest = more === '' ? '' : ` ${more}`
    return `  { name: "${name}" data_type: ${type} dims: [ ${dims.join(', ')} ]${rest} }`
  })
  return `${kind} [\n${lines.join(',\n')}\n]\n`
}

/** `config.pbtxt` of a model of one backend. */
export function config(backend, batch, inputs, outputs, more = '') {
  return (
    `backend: "${backend}"\nmax_batch_size: ` +
    `${batch}\n${tensors('input', inputs)}${tensors('output', outputs)}${more}`
  )
}

/** An ensemble's step that calls a model with one input and one output. */
export const step = (model, version, from, to) =>
  `{ model_name: "${model}" model_version: ${version} input_map { key: "INPUT0" value: "${from}" } ` +
  `output_map { key: "OUTPUT0" value: "${to}" } }`

/** Steps that call these models in turn, each with the output of the previous one. */
export function chained(models) {
  const tensor = (i) => (i === 0 ? 'INPUT0' : i === models.length ? 'OUTPUT0' : `between_${i}`)
  return models.map((model, i) => step(model, -1, tensor(i), tensor(i + 1)))
}

/** `config.pbtxt` of an ensemble. */
export function ensemble(batch, inputs, outputs, steps) {
  return (
    'platform: "ensemble"\nmax_batch_size: ' +
    `${batch}\n${tensors('input', inputs)}${tensors('output', outputs)}ensemble_scheduling {\n  step [\n ` +
    `   ${steps.join(',\n    ')}\n  ]\n}\n`
  )
}

/** Any number of responses per request. */
export const DECOUPLED = 'model_transaction_policy { decoupled: true }\n'

/** Inputs and outputs of the backend `repeat`. */
export const REPEAT = [
  [
    ['IN', 'TYPE_INT32', [-1]],
    ['DELAY', 'TYPE_UINT32', [-1]],
    ['WAIT', 'TYPE_UINT32', [1]],
  ],
  [
    ['OUT', 'TYPE_INT32', [1]],
    ['IDX', 'TYPE_UINT32', [1]],
  ],
]

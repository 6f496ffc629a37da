/** Reads the `model.json` of vLLM's backend: the arguments of its engine. */

import { statSync } from 'node:fs'
import { readRegularFile } from '../../internal.js'
import { jsonExample, type Example } from './example.js'

/** Larger files are no arguments. */
const BYTES_MAX = 1 << 20

/** True for a file with the arguments of an engine, of which vLLM requires `model`. */
export function isEngine(path: string): boolean {
  if (!path.endsWith('.json') || statSync(path).size > BYTES_MAX) return false
  try {
    const found: unknown = JSON.parse(readRegularFile(path, BYTES_MAX, path).toString('utf8'))
    return typeof found === 'object' && found !== null && 'model' in found && typeof found.model === 'string'
  } catch {
    return false
  }
}

/** A request that is shown and not tried. */
export function generateExample(name: string): Example {
  return jsonExample(`/v2/models/${name}/generate`, {
    text_input: 'What is a tensor?',
    parameters: { max_tokens: 50, temperature: 0 },
  })
}

/**
 * The same networks under other configurations: fixed delays. A variant is a configuration of
 * its own and a link to the network, so that a grid of them costs no disk.
 */
import { existsSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { GENERATED, MODELS } from './generate.mjs'

export const VARIANTS = join(GENERATED, 'variants')

/** Fixed delays for the transformer, in microseconds: a run of it takes some twenty thousand. */
export const MINILM_DELAYS = [500, 5000, 20_000]

/** Writes a variant of a generated model; `more` is added to its configuration. Returns its name. */
export function writeVariant(base, name, more) {
  const version = join(VARIANTS, name, '1')
  mkdirSync(version, { recursive: true })
  writeFileSync(join(VARIANTS, name, 'config.pbtxt'), readFileSync(join(MODELS, base, 'config.pbtxt'), 'utf8') + more)
  const link = join(version, 'model.onnx')
  if (existsSync(link)) rmSync(link)
  linkSync(join(MODELS, base, '1', 'model.onnx'), link)
  return name
}

export const delayVariant = (base, delay) =>
  writeVariant(
    `${base}_plain`,
    `${base}_delay_${delay}`,
    `dynamic_batching { max_queue_delay_microseconds: ${delay} }\n`,
  )

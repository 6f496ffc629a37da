/** From the text of a configuration to what is served. Runs at load and at every poll that found a change. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as config from '../../dist/config/index.js'
import { MODELS } from '../models/generate.mjs'

export async function add(bench) {
  const directory = join(MODELS, 'mlp')
  const text = readFileSync(join(directory, 'config.pbtxt'), 'utf8')
  const parsed = config.parsePbtxt(text, 'config.pbtxt')
  const json = JSON.stringify(config.toTritonJson(parsed))
  bench('config.pbtxt: parse', () => config.parsePbtxt(text, 'config.pbtxt'))
  bench('config JSON: parse', () => config.parseJsonConfig(json))
  const flags = { autoComplete: true, configName: null }
  bench('config: read, complete, validate, as polling does', () => config.pollConfig(directory, 'mlp', flags))
  bench('config: to binary', () => config.toBinary(parsed))
}

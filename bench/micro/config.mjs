/** From the text of a configuration to what is served. Runs at load and at every poll that found a change. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { ROOT } from '../../scripts/setup.mjs'
import { GENERATED, MODELS } from '../models/generate.mjs'

/**
 * `dist` holds bundles with nothing but the public API at their surface, so the sources are compiled file by file here.
 */
async function modules() {
  const out = join(GENERATED, 'typescript')
  execFileSync(
    join(ROOT, 'node_modules/.bin/tsc'),
    ['-p', join(ROOT, 'tsconfig.json'), '--outDir', out, '--declaration', 'false'],
    { cwd: ROOT, stdio: 'inherit' },
  )
  return import(pathToFileURL(join(out, 'config/index.js')).href)
}

export async function add(bench) {
  const config = await modules()
  const directory = join(MODELS, 'mlp')
  const text = readFileSync(join(directory, 'config.pbtxt'), 'utf8')
  const parsed = config.parsePbtxt(text, 'config.pbtxt')
  const json = config.toTritonJson(parsed)
  bench('config.pbtxt: parse', () => config.parsePbtxt(text, 'config.pbtxt'))
  bench('config JSON: parse', () => config.parseJsonConfig(json))
  const flags = { autoComplete: true, configName: null }
  bench('config: read, complete, validate, as polling does', () => config.pollConfig(directory, 'mlp', flags))
  bench('config: to binary', () => config.toBinary(parsed))
}

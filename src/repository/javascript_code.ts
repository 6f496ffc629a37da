/**
 * Reads a model's JavaScript or TypeScript without running it. Only a load checks types of exports and imports.
 */

import { extname, join } from 'node:path'
import { readRegularFile, statIfAny, type ModelConfig } from '../config/index.js'
import { TYPE_FLAGS, isTypeScript, needsTranspiler, stripsTypes } from '../native/typescript.js'
import type { CodeMistake } from './python_code.js'

/** Larger files are not read. */
const CODE_BYTES_MAX = 16 << 20

interface SyntaxProblem {
  message: string
  labels: { start: number }[]
}

interface Parser {
  parseSync(file: string, source: string, options: object): { errors: SyntaxProblem[] }
}

/** A package of a clone. Named by a variable, so that the bundler leaves it out. */
const PARSER: string = 'rolldown/utils'
/** The parser that also removes the types of models; null if it is not installed, or not for this platform. */
const parser = (): Promise<Parser | null> =>
  import(PARSER).then(
    (all) => all as Parser,
    () => null,
  )

/** @returns the first syntax error; null if there is none, or the file cannot be read here */
export async function javaScriptMistake(
  { defaultModelFilename }: ModelConfig,
  versionDirectory: string,
): Promise<CodeMistake | null> {
  const file = join(versionDirectory, defaultModelFilename)
  const stat = statIfAny(file)
  if (stat?.isFile() !== true || stat.size > BigInt(CODE_BYTES_MAX)) return null
  const source = readRegularFile(file, CODE_BYTES_MAX, file).toString('utf8')
  // A `.js` is a module or not by what its package.json says.
  const options = extname(file) === '.js' ? { sourceType: 'unambiguous' } : {}
  const [error] = (await parser())?.parseSync(file, source, options).errors ?? []
  if (error === undefined) return null
  const before = source.slice(0, error.labels[0]?.start ?? 0).split('\n')
  const column = (before.at(-1)?.length ?? 0) + 1
  return { message: `SyntaxError: ${error.message}`, file, line: before.length, column, endColumn: null }
}

/** @returns a warning that this Node cannot run the model's TypeScript; null if it can */
export async function missingTranspiler(
  { name, defaultModelFilename: file }: ModelConfig,
  strips = stripsTypes() || TYPE_FLAGS.length > 0,
  transpiler = parser(),
): Promise<string | null> {
  return !isTypeScript(file) || strips || (await transpiler) !== null ? null : needsTranspiler(name)
}

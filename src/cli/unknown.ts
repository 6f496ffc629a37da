/** Advice for a first argument that is neither a command nor an option: a misspelled command, or a path to serve. */

import { statIfAny } from '../config/files.js'
import { nearest } from '../config/suggest.js'
import { COMMANDS } from './commands.js'
import { usageLine } from './help.js'

/** Names of the same commands in other programs. */
const SYNONYMS: Readonly<Record<string, string>> = {
  start: 'serve',
  run: 'serve',
  validate: 'check',
  verify: 'check',
  lint: 'check',
  create: 'new',
  generate: 'gen',
  keygen: 'key',
  watch: 'dev',
}

export function unknownText(program: string, word: string): string {
  const meant = meantBy(word)
  return (
    `${usageLine(program)}\nUnexpected argument: ` +
    `${word}${meant === null ? '' : `; did you mean '${program} ${meant}'?`}\n`
  )
}

function meantBy(word: string): string | null {
  if (statIfAny(word)?.isDirectory() === true) return `--model-repository=${word}`
  if (word.endsWith('.onnx')) return `init ${word}`
  const near = nearest(word, ['serve', ...COMMANDS.map(({ name }) => name), ...Object.keys(SYNONYMS)])
  return near === null ? null : (SYNONYMS[near] ?? near)
}

/**
 * `nereid init --example`: writes the files of a tutorial. Each directory of examples/tutorials is one; the first
 * sentence of its README.md says what it is.
 */

import { cpSync, existsSync, readFileSync, readdirSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { CommandError, ROOT } from '../../internal.js'
import { filesBelow } from './place.js'

const DIRECTORY = join(ROOT, 'examples/tutorials')

/** A line for each tutorial. */
function listed(): string {
  return readdirSync(DIRECTORY)
    .sort()
    .map((name) => {
      const [first = ''] = readFileSync(join(DIRECTORY, name, 'README.md'), 'utf8').split('\n')
      return `  ${name.padEnd(14)}${first}\n`
    })
    .join('')
}

/**
 * Copies a tutorial to `out`, by default a directory of its name; returns the text to print. Lists them without a name.
 *
 * @throws {CommandError} for an unknown name, or if a file exists and `force` is false; then nothing is written
 */
export function writeTutorial(program: string, name: string, out: string | undefined, force: boolean): string {
  if (name === '') return `The examples:\n${listed()}${program} init --example=NAME writes one.\n`
  if (!readdirSync(DIRECTORY).includes(name))
    throw new CommandError(`there is no example '${name}'; the examples are:\n${listed().trimEnd()}`)
  const [from, directory] = [join(DIRECTORY, name), resolve(out ?? name)]
  const files = filesBelow(from, name, (file) => join(directory, file)).map(({ to }) => to)
  const there = files.find((file) => existsSync(file))
  if (there !== undefined && !force)
    throw new CommandError(`${relative('.', there)} exists: give --out=DIRECTORY, or --force to replace it`)
  cpSync(from, directory, { recursive: true, filter: (file) => !file.includes('__pycache__') })
  const written = files.map((file) => `  ${relative('.', file)}\n`).join('')
  return `Wrote\n${written}The text to it: docs/tutorials/${name}.md\n`
}

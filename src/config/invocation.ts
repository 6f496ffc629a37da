/** The shell command of this program: its name if it is on the PATH, npx if that finds it, else its file. */

import { existsSync, realpathSync } from 'node:fs'
import { basename, delimiter, dirname, join } from 'node:path'
import { statIfAny } from './files.js'
import { shellWord } from './shell_word.js'

/**
 * @param path the PATH; npx adds directories of packages, which a shell does not have
 * @param script the running file, in `dist/cli` of its package, or the console script of pip
 */
export function invocation(
  program: string,
  path: string = process.env['PATH'] ?? '',
  cwd: string = process.cwd(),
  script: string = process.argv[1] ?? '',
): string {
  const directories = path
    .split(delimiter)
    .filter(
      (directory) => directory !== '' && !/(?:^|\/)node_modules\/\.bin\/?$|\/@npmcli\/run-script\//.test(directory),
    )
  const isThere = directories.some((directory) => statIfAny(join(directory, program))?.isFile() === true)
  if (isThere) return program
  // In a clone, npx makes a link to it in its own cache.
  const file = existsSync(script) ? realpathSync(script) : script
  for (let directory = cwd; ; directory = dirname(directory)) {
    const isInstalled =
      statIfAny(join(directory, 'node_modules/.bin', program)) !== undefined ||
      file === join(directory, 'dist/cli/main.js')
    // If it is not installed, npx would download a package of that name, which is another one.
    if (isInstalled) return `npx ${program}`
    if (dirname(directory) !== directory) continue
    if (basename(file) === 'main.js') return `node ${shellWord(file)}`
    // A console script of pip is itself the program; another program that embeds the server is none of these commands.
    return ['nereid', 'tritonserver'].includes(basename(file)) ? shellWord(file) : program
  }
}

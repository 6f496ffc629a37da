/** How the program is called in a shell of the user: by its name where that is on the PATH, through npx where that finds it, else by its file. */

import { existsSync, realpathSync } from 'node:fs'
import { basename, delimiter, dirname, join } from 'node:path'
import { statIfAny } from './files.js'
import { shellWord } from './shell_word.js'

/**
 * @param path the PATH; npx puts directories of packages into it, which a shell does not have
 * @param script the file that runs, in `dist/cli` of its package, or the console script of pip that stands for it
 */
export function invocation(program: string, path: string = process.env['PATH'] ?? '', cwd: string = process.cwd(), script: string = process.argv[1] ?? ''): string {
  const directories = path.split(delimiter).filter((directory) => directory !== '' && !/(?:^|\/)node_modules\/\.bin\/?$|\/@npmcli\/run-script\//.test(directory))
  const isThere = directories.some((directory) => statIfAny(join(directory, program))?.isFile() === true)
  if (isThere) return program
  // In a clone npx makes a link to it, in a cache of its own.
  const file = existsSync(script) ? realpathSync(script) : script
  for (let directory = cwd; ; directory = dirname(directory)) {
    const isInstalled = statIfAny(join(directory, 'node_modules/.bin', program)) !== undefined || file === join(directory, 'dist/cli/main.js')
    // Where it is not installed, npx would ask the registry for a package of that name, which is another one.
    if (isInstalled) return `npx ${program}`
    if (dirname(directory) !== directory) continue
    if (basename(file) === 'main.js') return `node ${shellWord(file)}`
    // A console script of pip is a program itself; a program of somebody else that has the server inside is none of these commands.
    return ['nereid', 'tritonserver'].includes(basename(file)) ? shellWord(file) : program
  }
}

/** How the program is called in a shell of the user: by its name where that is on the PATH, else through npx. */

import { delimiter, join } from 'node:path'
import { statIfAny } from '../../config/index.js'

/** @param path the PATH; npx puts directories of packages into it, which a shell does not have */
export function invocation(program: string, path: string = process.env['PATH'] ?? ''): string {
  const directories = path.split(delimiter).filter((directory) => directory !== '' && !/(?:^|\/)node_modules\/\.bin\/?$|\/@npmcli\/run-script\//.test(directory))
  const isThere = directories.some((directory) => statIfAny(join(directory, program))?.isFile() === true)
  return isThere ? program : `npx ${program}`
}

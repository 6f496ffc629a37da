/** The command that prints the version of this package. */

import { ownVersion } from '../native/locate.js'

export async function run(program: string): Promise<number> {
  process.stdout.write(`${program} ${ownVersion()}\n`)
  return 0
}

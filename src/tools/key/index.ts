/**
 * `nereid key`: makes a key, prints it once, and adds its hash to a keys file. Starts no server; a running one reads
 * the key within a second.
 *
 * The key itself is stored nowhere: if it is lost, make another.
 */

import { randomBytes } from 'node:crypto'
import { CommandError, checkKeys, commandNamed, readArguments, usageOf } from '../../internal.js'
import { printFailure } from '../failure.js'
import { readStdin } from '../stdin.js'
import { entryOf, givenKey, inOptions, misreadScopes, requireFuture, type Entry } from './entry.js'
import { addEntry } from './file.js'

/** 256 bits cannot be guessed, so a fast hash suffices. */
const KEY_BYTES = 32

/** Limit of a key on standard input. */
const STDIN_BYTES_MAX = 64 * 1024

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('key')
  try {
    const read = readArguments(command, args)
    const [file] = read.rest
    if (read.rest.length > 1) throw new CommandError(usageOf(program, command))
    const isGiven = read.options.has('hash')
    const key = isGiven
      ? givenKey(await readStdin(STDIN_BYTES_MAX))
      : `nk_${randomBytes(KEY_BYTES).toString('base64url')}`
    const now = new Date()
    const entry = entryOf(read, key, now)
    const refusal = refusalOf(entry)
    if (refusal !== '') throw new CommandError(inOptions(refusal, entry, refusalOf))
    requireFuture(entry, now)
    const warnings = misreadScopes(entry)
      .map((text) => `warning: ${text}\n`)
      .join('')
    if (file === undefined) {
      process.stderr.write(warnings)
      if (!isGiven) process.stderr.write(`${key}\n`)
      process.stdout.write(`${JSON.stringify(entry, null, 2)}\n`)
      return 0
    }
    addEntry(file, entry, checkKeys)
    // Alone on stdout, for scripts.
    if (!isGiven) process.stdout.write(`${key}\n`)
    process.stderr.write(
      `${warnings}${file} has the hash of the key ` +
        `'${entry.name}'${isGiven ? '' : '; the key itself is shown only here'}\n`,
    )
    return 0
  } catch (error) {
    return printFailure(error)
  }
}

/** Why a server would reject an entry, without a line number; '' if it would not. */
function refusalOf(entry: Entry): string {
  try {
    checkKeys(JSON.stringify({ keys: [entry] }))
    return ''
  } catch (error) {
    return (error as Error).message.replace(/^line \d+, column \d+: keys\[0\]\./, '')
  }
}

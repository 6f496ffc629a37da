/**
 * `nereid key`: makes a key, prints it once, and puts its hash into a keys file. Starts no server; one that runs takes the key within a second.
 *
 * The key itself is written nowhere: who loses it makes another.
 */

import { randomBytes } from 'node:crypto'
import { checkKeys } from '../../native/index.js'
import { CommandError, commandNamed, readArguments, usageOf } from '../arguments.js'
import { printFailure } from '../failure.js'
import { entryOf, givenKey, type Entry } from './entry.js'
import { addEntry } from './file.js'

/** 256 bits: nothing to guess, so a fast hash is enough. */
const KEY_BYTES = 32

/** What a person pipes in is read to its end, up to this. */
const STDIN_BYTES_MAX = 64 * 1024

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('key')
  try {
    const read = readArguments(command, args)
    const [file] = read.rest
    if (read.rest.length > 1) throw new CommandError(usageOf(program, command))
    const isGiven = read.options.has('hash')
    const key = isGiven ? givenKey(await readStdin()) : `nk_${randomBytes(KEY_BYTES).toString('base64url')}`
    const entry = entryOf(read, key, new Date())
    requireEntry(entry)
    if (file === undefined) {
      if (!isGiven) process.stderr.write(`${key}\n`)
      process.stdout.write(`${JSON.stringify(entry, null, 2)}\n`)
      return 0
    }
    addEntry(file, entry, checkKeys)
    // Alone on stdout, for scripts.
    if (!isGiven) process.stdout.write(`${key}\n`)
    process.stderr.write(`${file} has the hash of the key '${entry.name}'${isGiven ? '' : '; the key itself is shown only here'}\n`)
    return 0
  } catch (error) {
    return printFailure(error)
  }
}

/** @throws {CommandError} for an entry that no server takes. It has no line yet that could be named. */
function requireEntry(entry: Entry): void {
  try {
    checkKeys(JSON.stringify({ keys: [entry] }))
  } catch (error) {
    throw new CommandError((error as Error).message.replace(/^line \d+, column \d+: keys\[0\]\./, ''))
  }
}

async function readStdin(): Promise<string> {
  let text = ''
  for await (const part of process.stdin.setEncoding('utf8')) {
    text += String(part)
    if (text.length > STDIN_BYTES_MAX) break
  }
  return text
}

/** The entry of a key in a keys file, from the options of the command. Pure. */

import { createHash } from 'node:crypto'
import { CommandError, type CommandArguments } from '../arguments.js'

export interface Entry {
  name: string
  sha256: string
  scopes: { verbs: string[]; models?: string[] }[]
  quota?: Record<string, number>
  expires?: string
}

/** Characters that a key has at least: what is shorter can be guessed from its hash. `access::limits::KEY_CHARS_MIN`. */
const KEY_CHARS_MIN = 20
/** The most that a server looks at: `access::limits::KEY_BYTES_MAX`. */
const KEY_BYTES_MAX = 512

const QUOTAS = { concurrency: 'concurrency', 'requests-per-second': 'requests_per_second', burst: 'burst', 'bytes-per-second': 'bytes_per_second' } as const

/**
 * @param key what a client will send; only its hash is in the entry
 * @param now for `--expires=30d`
 * @throws {CommandError} for options that no entry can be made of. What else is wrong the reader of the file says.
 */
export function entryOf({ options, all }: CommandArguments, key: string, now: Date): Entry {
  const name = options.get('name')
  if (name === undefined || name === '') throw new CommandError('a key needs a name, which logs and metrics show: --name=NAME')
  const scopes = all.filter(([option]) => option === 'scope').map(([, text]) => scopeOf(text))
  if (scopes.length === 0) throw new CommandError('a key needs a scope: --scope=inference,metadata:MODEL* for some models, --scope=all for everything')
  const quota: Record<string, number> = {}
  for (const [option, field] of Object.entries(QUOTAS)) {
    const text = options.get(option)
    if (text === undefined) continue
    const number = Number(text)
    if (text.trim() === '' || !Number.isFinite(number)) throw new CommandError(`--${option} takes a number. Got ${text}`)
    quota[field] = number
  }
  const expires = options.get('expires')
  return {
    name,
    sha256: createHash('sha256').update(key).digest('hex'),
    scopes,
    ...(Object.keys(quota).length === 0 ? {} : { quota }),
    ...(expires === undefined ? {} : { expires: timeOf(expires, now) }),
  }
}

/** `VERB,VERB` for all models, `VERB,VERB:MODEL,MODEL*` for some. */
function scopeOf(text: string): Entry['scopes'][number] {
  // A verb may end in `:read`, so the models are behind a colon that no verb continues.
  const match = /^((?:[a-z-]+(?::read)?,)*[a-z-]+(?::read)?)(?::(.+))?$/s.exec(text)
  if (match === null) throw new CommandError(`a scope is written as VERBS or VERBS:MODELS, such as inference,metadata:resnet*. Got ${text}`)
  const [, verbs = '', models] = match
  return { verbs: verbs.split(','), ...(models === undefined ? {} : { models: models.split(',') }) }
}

/** `90d` from now, or a time as it stands in the file. */
function timeOf(text: string, now: Date): string {
  const match = /^(\d{1,5})d$/.exec(text)
  if (match === null) return text
  return new Date(now.getTime() + Number(match[1]) * 86_400_000).toISOString().replace(/\.\d+Z$/, 'Z')
}

/**
 * A key of one's own, without the end of its line.
 *
 * @throws {CommandError} when it is none that a server would take, or one that could be guessed.
 */
export function givenKey(text: string): string {
  const key = text.replace(/\r?\n$/, '')
  if (key.length < KEY_CHARS_MIN || Buffer.byteLength(key) > KEY_BYTES_MAX) {
    throw new CommandError(`a key has ${KEY_CHARS_MIN} to ${KEY_BYTES_MAX} characters, and should be random: without --hash one is made`)
  }
  if (!/^[\x21-\x7e]+$/.test(key)) throw new CommandError('a key has only printable characters of ASCII and no blanks: it stands in a header')
  return key
}

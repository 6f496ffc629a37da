/** The entry of a key in a keys file, made from the options of the command. Pure. */

import { createHash } from 'node:crypto'
import { CommandError, bytesOf, nearest, type CommandArguments } from '../../internal.js'

export interface Entry {
  name: string
  sha256: string
  scopes: { verbs: string[]; models?: string[] }[]
  quota?: Record<string, number>
  expires?: string
}

/** Minimum length of a key: a shorter one can be guessed from its hash. `access::limits::KEY_CHARS_MIN`. */
const KEY_CHARS_MIN = 20
/** Maximum length of a key: `access::limits::KEY_BYTES_MAX`. */
const KEY_BYTES_MAX = 512

const QUOTAS = {
  concurrency: 'concurrency',
  'requests-per-second': 'requests_per_second',
  burst: 'burst',
  'bytes-per-second': 'bytes_per_second',
} as const

/**
 * @param key the key that clients send; the entry has only its hash
 * @param now for `--expires=30d`
 * @throws {CommandError} for options that make no entry. The reader of the file reports other mistakes.
 */
export function entryOf({ options, all }: CommandArguments, key: string, now: Date): Entry {
  const name = options.get('name')
  if (name === undefined || name === '')
    throw new CommandError('a key needs a name, which logs and metrics show: --name=NAME')
  const scopes = all.filter(([option]) => option === 'scope').map(([, text]) => scopeOf(text))
  if (scopes.length === 0)
    throw new CommandError(
      'a key needs a scope: --scope=inference,metadata:MODEL* for some models, --scope=all for everything',
    )
  const quota: Record<string, number> = {}
  for (const [option, field] of Object.entries(QUOTAS)) {
    const text = options.get(option)
    if (text === undefined) continue
    const number = (option === 'bytes-per-second' ? bytesOf(text) : null) ?? Number(text)
    if (text.trim() === '' || !Number.isFinite(number))
      throw new CommandError(`--${option} takes a number. Got ${text}`)
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

/** Parses `VERB,VERB` for all models, `VERB,VERB:MODEL,MODEL*` for some. */
function scopeOf(text: string): Entry['scopes'][number] {
  // A verb may end in `:read`, so the models follow a colon that continues no verb.
  const match = /^((?:[a-z_-]+(?::read)?,)*[a-z_-]+(?::read)?)(?::(.+))?$/s.exec(text)
  if (match === null)
    throw new CommandError(
      `a scope is written as VERBS or VERBS:MODELS, such as inference,metadata:resnet*. Got ${text}`,
    )
  const [, verbs = '', models] = match
  return { verbs: verbs.split(','), ...(models === undefined ? {} : { models: models.split(',') }) }
}

/** Warnings about models whose name is close to an intended `:read`. */
export function misreadScopes({ scopes }: Entry): string[] {
  return scopes.flatMap(({ verbs, models = [] }) => {
    const [model = ''] = models
    const written = verbs.join(',')
    // Up to this length only one character may differ.
    if (written.endsWith(':read') || models.length !== 1 || model.length > 5 || nearest(model, ['read']) === null)
      return []
    return [
      `the scope '${written}:${model}' is for the model '${model}', to read and to change; did you mean ` +
        `'${written}:read'?`,
    ]
  })
}

/** @throws {CommandError} for a key that has expired */
export function requireFuture({ expires }: Entry, now: Date): void {
  const end = expires === undefined ? Infinity : Date.parse(expires)
  if (end <= now.getTime())
    throw new CommandError(`--expires: the key would have ended at ${secondsOf(new Date(end))}; ${TIMES}`)
}

const TIMES = 'a time is written as 2027-01-31 or 2027-01-31T12:00:00Z, in UTC, or as 90d from now'

/** The file reader's error about an entry, in terms of the command's options. */
export function inOptions(text: string, entry: Entry, refusalOf: (entry: Entry) => string): string {
  if (text.startsWith('expires: ')) return `--expires: ${TIMES}`
  // A number outside the field's type; the reader reports the range for one inside it.
  const quota = /^quota\.(\w+): .*expected u\d+$/.exec(text)?.[1]
  if (quota !== undefined) return `${refusalOf({ ...entry, quota: { [quota]: 0 } })}, a whole number`
  const [, scope, at, verbs = ''] =
    /^scopes\[(\d+)\]\.verbs\[(\d+)\]: a verb is one of (.+), or one of these/.exec(text) ?? []
  const verb = entry.scopes[Number(scope)]?.verbs[Number(at)]?.replace(/:read$/, '')
  const meant =
    verb === undefined
      ? null
      : (nearest(verb, verbs.split(', ')) ?? onlyOne(verbs.split(', ').filter((one) => one.startsWith(verb))))
  return meant === null ? text : `${text}; did you mean '${meant}'?`
}

const onlyOne = (words: readonly string[]): string | null => (words.length === 1 ? (words[0] ?? null) : null)

/** `90d` from now, or a time as written in the file. */
function timeOf(text: string, now: Date): string {
  const match = /^(\d{1,5})d$/.exec(text)
  if (match === null) return text
  return secondsOf(new Date(now.getTime() + Number(match[1]) * 86_400_000))
}

const secondsOf = (time: Date): string => time.toISOString().replace(/\.\d+Z$/, 'Z')

/**
 * A given key without its line end.
 *
 * @throws {CommandError} if a server would reject it, or it could be guessed
 */
export function givenKey(text: string): string {
  const key = text.replace(/\r?\n$/, '')
  if (key.length < KEY_CHARS_MIN || Buffer.byteLength(key) > KEY_BYTES_MAX) {
    throw new CommandError(
      `a key has ${KEY_CHARS_MIN} to ${KEY_BYTES_MAX} characters, and should be random: without --hash, this ` +
        `command makes one`,
    )
  }
  if (!/^[\x21-\x7e]+$/.test(key))
    throw new CommandError(
      'a key may have only printable ASCII characters and no blanks, because it is sent in a header',
    )
  return key
}

/**
 * `--cache-config` and its deprecated form: which response cache, and its settings (scheduling.md §9). Pure.
 */

import type { Options } from './flags.js'
import { OptionError, badOption } from './parse.js'

/** The one cache of a server. */
export type CacheSettings =
  /** In the memory of the server; `sizeBytes` is all it may take. */
  | { cache: 'local'; sizeBytes: number }
  /** Any other, with its settings as they were given. */
  | { cache: 'other'; name: string; settings: ReadonlyMap<string, string> }

/**
 * Reads the options; null when no cache is asked for. What is deprecated is told in `warnings`.
 *
 * @throws {OptionError} when the options contradict each other, or a setting is missing or cannot be read.
 */
export function readResponseCache(options: Options, warnings: string[]): CacheSettings | null {
  const bytes = options.responseCacheByteSize
  if (bytes !== null && options.cacheConfig.length > 0) {
    throw new OptionError(
      'Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or the other.',
    )
  }
  if (bytes !== null) {
    warnings.push(`Warning: '--response-cache-byte-size' has been deprecated! Please use '--cache-config=local,size=${bytes}' instead.`)
    return bytes === 0 ? null : { cache: 'local', sizeBytes: bytes }
  }
  const settings = new Map<string, string>()
  let name: string | null = null
  for (const text of options.cacheConfig) {
    const [cache, key, value] = splitSetting(text)
    if (name !== null && name !== cache) {
      throw badOption('cache-config', 'found multiple cache configurations, but only a single cache is currently supported')
    }
    name = cache
    settings.set(key, value)
  }
  if (name === null) return null
  if (name !== 'local') return { cache: 'other', name, settings }
  return { cache: 'local', sizeBytes: readSize(settings.get('size') ?? '') }
}

/** `<cache>,<setting>=<value>`. */
function splitSetting(text: string): [cache: string, key: string, value: string] {
  const comma = text.indexOf(',')
  const equals = text.indexOf('=', comma + 1)
  // A comma behind the first `=` belongs to a value, and no cache is named.
  if (comma <= 0 || text.slice(0, comma).includes('=')) {
    const form = 'option format is <cache name>,<setting>=<value>.'
    throw badOption('cache-config', `No cache specified. --cache-config ${form} Got ${text}`)
  }
  if (equals <= comma + 1 || equals === text.length - 1) {
    const form = "option format is '<cache name>,<setting>=<value>'."
    throw badOption('cache-config', `--cache-config ${form} Got ${text}`)
  }
  return [text.slice(0, comma), text.slice(comma + 1, equals), text.slice(equals + 1)]
}

function readSize(text: string): number {
  const bytes = Number(text)
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(bytes)) {
    throw badOption('cache-config', "Failed to initialize LocalCache: config didn't contain a valid 'size' field.")
  }
  return bytes
}

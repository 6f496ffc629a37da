/**
 * `--cache-config` and its deprecated form: which response cache, and its settings (scheduling.md §9). Pure.
 */

import type { Options } from './flags.js'
import { OptionError, badOption } from './parse.js'

/**
 * Bytes of the local cache; null when there is none. What is deprecated, or not in this release, is told in `warnings`.
 *
 * @throws {OptionError} when the options contradict each other, or a setting is missing or cannot be read.
 */
export function readResponseCache(options: Options, warnings: string[]): number | null {
  const bytes = options.responseCacheByteSize
  if (bytes !== null && options.cacheConfig.length > 0) {
    throw new OptionError(
      'Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or the other.',
    )
  }
  if (bytes !== null) {
    warnings.push(`Warning: '--response-cache-byte-size' has been deprecated! Please use '--cache-config=local,size=${bytes}' instead.`)
    return bytes === 0 ? null : bytes
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
  if (name === 'local') return readSize(settings.get('size') ?? '')
  // As with one that cannot be reached: answers are right without it.
  warnings.push(`Warning: the response cache '${name}' is not in this release, which has 'local': nothing is cached.`)
  return null
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

/** `--cache-config` and its deprecated form: the response cache and its settings (scheduling.md §9). */

import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { LibraryCacheOptions, RedisOptions } from '../native/contract.js'
import type { Options } from './flags.js'
import { warnOfUnknown } from './known_settings.js'
import { OptionError, badOption, bytesOf } from './parse.js'

/** The response cache; at most one of them is set. */
export interface ResponseCache {
  /** Bytes of the local cache. */
  bytes: number | null
  redis: RedisOptions | null
  library: LibraryCacheOptions | null
}

const NONE: ResponseCache = { bytes: null, redis: null, library: null }

/**
 * Reads the options; `warnings` receives a line for each deprecated or ineffective one.
 *
 * @throws {OptionError} if the options contradict each other, or a setting is missing or malformed
 */
export function readResponseCache(options: Options, warnings: string[]): ResponseCache {
  const bytes = options.responseCacheByteSize
  if (bytes !== null && options.cacheConfig.length > 0) {
    throw new OptionError(
      'Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide ' +
        'one or the other.',
    )
  }
  if (bytes !== null) {
    warnings.push(
      "Warning: '--response-cache-byte-size' has been deprecated! Please use " +
        `'--cache-config=local,size=${bytes}' instead.`,
    )
    return { ...NONE, bytes: bytes === 0 ? null : bytes }
  }
  const settings = new Map<string, string>()
  let name: string | null = null
  for (const text of options.cacheConfig) {
    const [cache, ...given] = splitSettings(text)
    if (name !== null && name !== cache) {
      throw badOption(
        'cache-config',
        'found multiple cache configurations, but only a single cache is currently supported',
      )
    }
    name = cache
    for (const [key, value] of given) settings.set(key, value)
  }
  if (name === null) return NONE
  if (name === 'local') {
    for (const key of settings.keys()) warnOfUnknown("the response cache 'local'", key, ['size'], warnings)
    return { ...NONE, bytes: readSize(settings.get('size') ?? '') }
  }
  if (name === 'redis') return { ...NONE, redis: readRedis(settings, warnings) }
  const path = resolve(join(options.cacheDirectory, name, `libtritoncache_${name}.so`))
  if (!name.includes('/') && existsSync(path)) {
    return { ...NONE, library: { name, path, config: JSON.stringify(Object.fromEntries(settings)) } }
  }
  // Triton rejects an unknown cache as well, and does not start.
  throw badOption('cache-config', `unable to find the cache '${name}': there are 'local' and 'redis', and no ${path}`)
}

/** Splits `<cache>,<setting>=<value>`; for Redis, whose address takes two settings, also `redis,host=<h>,port=<p>`. */
function splitSettings(text: string): [cache: string, ...settings: [key: string, value: string][]] {
  const comma = text.indexOf(',')
  const equals = text.indexOf('=', comma + 1)
  // A comma after the first `=` belongs to a value, so no cache is named.
  if (comma <= 0 || text.slice(0, comma).includes('=')) {
    const form = 'option format is <cache name>,<setting>=<value>.'
    throw badOption('cache-config', `No cache specified. --cache-config ${form} Got ${text}`)
  }
  if (equals <= comma + 1 || equals === text.length - 1) {
    const form = "option format is '<cache name>,<setting>=<value>'."
    throw badOption('cache-config', `--cache-config ${form} Got ${text}`)
  }
  const cache = text.slice(0, comma)
  const [first, ...more] = cache === 'redis' ? text.slice(comma + 1).split(NEXT_SETTING) : [text.slice(comma + 1)]
  return [cache, ...[first ?? '', ...more].map(keyAndValue)]
}

/** Settings of Redis, and those of TLS. */
const REDIS_SETTINGS = [
  'host',
  'port',
  'user',
  'password',
  'db',
  'connect_timeout',
  'socket_timeout',
  'pool_size',
  'wait_timeout',
]
const TLS_SETTINGS = ['tls_enabled', 'cert', 'key', 'cacert', 'cacert_dir', 'sni']
/** A comma before the name of a setting; a password may contain others. */
const NEXT_SETTING = new RegExp(`,(?=(?:${[...REDIS_SETTINGS, ...TLS_SETTINGS].join('|')})=)`)

function keyAndValue(text: string): [key: string, value: string] {
  const equals = text.indexOf('=')
  return [text.slice(0, equals), text.slice(equals + 1)]
}

/** Upper limit, as in crates/cache-redis. */
const POOL_SIZE_MAX = 64
const TIMEOUT_MS_MAX = 60_000
/** Replaces 0, which means no limit in Triton: a cache may not hold a request for longer than a model would. */
const TIMEOUT_MS = 1000

function readRedis(settings: ReadonlyMap<string, string>, warnings: string[]): RedisOptions {
  const host = settings.get('host')
  const port = settings.get('port')
  if (host === undefined || port === undefined) {
    throw badOption(
      'cache-config',
      "Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' and 'port' " +
        'in the configuration - e.g. ' +
        'tritonserver --cache-config redis,host=redis --cache-config redis,port=6379 --model-repository=/models ...',
    )
  }
  if (host.includes(',')) {
    throw badOption(
      'cache-config',
      `Failed to initialize RedisCache: 'host' has to be a name or an address, got '${shown(host)}'`,
    )
  }
  const tls = TLS_SETTINGS.filter(
    (key) => settings.has(key) && !(key === 'tls_enabled' && settings.get(key) === 'false'),
  )
  if (tls.length > 0) {
    const found = tls.map((key) => `'${key}'`).join(', ')
    const advice = 'put a TLS proxy such as stunnel beside the server and name its address'
    throw badOption('cache-config', `Failed to initialize RedisCache: TLS (${found}) is not in this release; ${advice}`)
  }
  const number = (key: string, otherwise: number, min: number, max: number): number => {
    const text = settings.get(key)
    if (text === undefined) return otherwise
    if (/^\d{1,9}$/.test(text) && Number(text) >= min && Number(text) <= max) return Number(text)
    // Triton reads a malformed port as 0, which cannot connect: its users and its QA look for this text.
    const refused =
      key === 'port' && (Number.parseInt(text, 10) || 0) === 0
        ? `failed to connect to Redis (${host}:0): Connection refused; `
        : ''
    throw badOption(
      'cache-config',
      `Failed to initialize RedisCache: ${refused}'${key}' has to be a number from ${min} to ${max}, got ` +
        `'${shown(text)}'`,
    )
  }
  const timeout = (key: string, otherwise: number): number => number(key, otherwise, 0, TIMEOUT_MS_MAX) || TIMEOUT_MS
  for (const key of settings.keys())
    warnOfUnknown("the response cache 'redis'", key, [...REDIS_SETTINGS, ...TLS_SETTINGS], warnings)
  return {
    host,
    port: number('port', 0, 1, 65_535),
    user: settings.get('user') ?? null,
    password: settings.get('password') ?? null,
    database: number('db', 0, 0, 999_999),
    connectTimeoutMs: timeout('connect_timeout', 0),
    socketTimeoutMs: timeout('socket_timeout', 0),
    waitTimeoutMs: timeout('wait_timeout', 100),
    poolSize: number('pool_size', 1, 1, POOL_SIZE_MAX),
  }
}

/** A value for an error text, cut at its first comma: a misspelled setting may follow, such as a password. */
function shown(value: string): string {
  return value.replace(/,.*$/s, ',…')
}

function readSize(text: string): number {
  const bytes = bytesOf(text)
  if (bytes === null || bytes < 0 || !Number.isSafeInteger(bytes)) {
    throw badOption('cache-config', "Failed to initialize LocalCache: config didn't contain a valid 'size' field.")
  }
  return bytes
}

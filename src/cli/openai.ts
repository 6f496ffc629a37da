/** `--openai-port` and what is restricted there, as in Triton's OpenAI front end. Pure. */

import { isUnix } from '../api/address.js'
import type { HttpOptions, Restriction } from '../native/contract.js'
import type { Options } from './flags.js'
import { badOption } from './parse.js'

/** Groups of `--openai-restricted-api`, and what they are called at the other ports. */
const OPENAI_APIS: Readonly<Record<string, readonly string[]>> = {
  inference: ['inference'],
  'model-repository': ['model-repository', 'metadata'],
  metrics: ['statistics'],
  health: ['health'],
}

/**
 * The listener of `--openai-port`, which differs from that of HTTP in its port and in what is restricted.
 *
 * @throws {OptionError} for a malformed group, and for one without the port
 */
export function openaiOptions(options: Options, http: HttpOptions): HttpOptions | null {
  const flag = 'openai-restricted-api'
  const restrictions = readOpenaiRestrictions(flag, options.openaiRestrictedApi)
  if (options.openaiPort === null) {
    if (restrictions.length === 0) return null
    throw badOption(
      flag,
      `--${flag} restricts --openai-port, which is off; --http-restricted-api restricts --http-port`,
    )
  }
  const address = isUnix(http.address) ? '0.0.0.0' : http.address
  return { ...http, address, port: options.openaiPort, restrictions }
}

/**
 * A warning if clients without the header can do at the port of HTTP what is restricted at that of OpenAI: both have
 * the same paths. Triton's front end serves them at one port only.
 */
export function openaiWarnings(openai: HttpOptions | null, http: HttpOptions | null): string[] {
  const [closed, alsoClosed] = [openai, http].map((of) => of?.restrictions.flatMap(({ apis }) => apis) ?? [])
  const open = closed?.filter((api) => alsoClosed?.includes(api) === false) ?? []
  if (http === null || open.length === 0) return []
  return [
    `Warning: '--openai-restricted-api' restricts --openai-port only, and the HTTP port has the same paths: restrict ` +
      `them there too, by --http-restricted-api=${open.join(',')}:<header>=<value>, or close the port, by ` +
      '--allow-http=false',
  ]
}

function readOpenaiRestrictions(flag: string, groups: readonly string[]): Restriction[] {
  const seen = new Set<string>()
  return groups.map((text) => {
    const [, list, key, value] = /^(\S+) (\S+) (.+)$/s.exec(text) ?? []
    if (list === undefined || key === undefined || value === undefined)
      throw badOption(flag, `--${flag} takes three arguments: APIs, the name of a header, and its value. Got ${text}`)
    const apis = list.split(',').flatMap((api) => {
      const meant = Object.hasOwn(OPENAI_APIS, api) ? OPENAI_APIS[api] : undefined
      if (meant === undefined) {
        const known = Object.keys(OPENAI_APIS).map((one) => `'${one}'`)
        throw badOption(flag, `Unknown API '${api}'. Available APIs: [${known.join(', ')}]`)
      }
      if (seen.has(api)) throw badOption(flag, `restricted api '${api}' can not be specified in multiple config groups`)
      seen.add(api)
      return meant
    })
    return { apis, key, value }
  })
}

/**
 * What a request has to show: keys, and the headers of restricted APIs. Which operations want a key the core says, as its gate decides it at that moment; which
 * want a header, the flags.
 */

import type { Core, Restriction } from '../../native/index.js'
import type { Schema } from './schemas.js'

export interface Guards {
  core: Pick<Core, 'needsKey'>
  /** Whether there is a keys file. */
  hasKeys: boolean
  restrictions: readonly Restriction[]
}

const KEYS: Readonly<Record<string, Schema>> = {
  Bearer: { type: 'http', scheme: 'bearer', description: 'A key of the server, or a token of the OpenID Connect issuer that it takes tokens of.' },
  ApiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key', description: 'The same key or token. That of `Authorization` goes before it.' },
}

/** A name for a header, which may have characters that names of components may not. */
const nameOf = (place: number): string => `Restricted${place + 1}`

/** For `components`; without members when nothing has to be shown. */
export function securitySchemes({ hasKeys, restrictions }: Guards): Schema {
  const headers = restrictions.map(({ apis, key }, i) => [nameOf(i), { type: 'apiKey', in: 'header', name: key, description: `For ${apis.join(', ')}: the value that the server was started with.` }])
  const all = { ...(hasKeys ? KEYS : {}), ...(Object.fromEntries(headers) as Schema) }
  return Object.keys(all).length === 0 ? {} : { securitySchemes: all }
}

/** The `security` of what has none of its own: keys, or nothing. */
export const securityOfAll = ({ hasKeys }: Guards): Schema[] => (hasKeys ? Object.keys(KEYS).map((name) => ({ [name]: [] })) : [{}])

/** The `security` of an operation, any of whose members will do; `path` is the one that is asked for. */
export function securityOf({ core, hasKeys, restrictions }: Guards, method: string, path: string, category: string): Schema {
  const place = restrictions.findIndex(({ apis }) => apis.includes(category))
  const header = place < 0 ? {} : { [nameOf(place)]: [] }
  if (!hasKeys) return place < 0 ? {} : { security: [header] }
  const keys = Object.keys(KEYS).map((name) => ({ [name]: [], ...header }))
  return { security: core.needsKey(method, path) ? keys : [header, ...keys] }
}

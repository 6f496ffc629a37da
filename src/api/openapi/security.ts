/**
 * Security requirements of operations: keys, and the headers of restricted APIs. The core's gate tells which operations
 * currently need a key; the flags tell which need a header.
 */

import type { Core, Restriction } from '../../native/index.js'
import type { Schema } from './schemas.js'

export interface Guards {
  core: Pick<Core, 'needsKey'>
  /** True if there is a keys file. */
  hasKeys: boolean
  restrictions: readonly Restriction[]
}

const KEYS: Readonly<Record<string, Schema>> = {
  Bearer: {
    type: 'http',
    scheme: 'bearer',
    description: 'A key of the server, or a token of the OpenID Connect issuer that the server trusts.',
  },
  ApiKey: {
    type: 'apiKey',
    in: 'header',
    name: 'X-API-Key',
    description: 'The same key or token. If both headers are sent, `Authorization` takes precedence.',
  },
}

/** Component name for a header, whose own name may have characters that are not allowed there. */
const nameOf = (place: number): string => `Restricted${place + 1}`

/** The security schemes for `components`; empty if none is needed. */
export function securitySchemes({ hasKeys, restrictions }: Guards): Schema {
  const headers = restrictions.map(({ apis, key }, i) => {
    const description = `For ${apis.join(', ')}: the value that the server was started with.`
    return [nameOf(i), { type: 'apiKey', in: 'header', name: key, description }]
  })
  const all = { ...(hasKeys ? KEYS : {}), ...(Object.fromEntries(headers) as Schema) }
  return Object.keys(all).length === 0 ? {} : { securitySchemes: all }
}

/** The default `security`: a key, or nothing. */
export const securityOfAll = ({ hasKeys }: Guards): Schema[] =>
  hasKeys ? Object.keys(KEYS).map((name) => ({ [name]: [] })) : [{}]

/** The `security` of an operation, any member of which suffices; `path` is the actual path. */
export function securityOf(
  { core, hasKeys, restrictions }: Guards,
  method: string,
  path: string,
  category: string | undefined,
): Schema {
  // A page holds nothing of the server.
  if (category === undefined) return hasKeys ? { security: [{}] } : {}
  const place = restrictions.findIndex(({ apis }) => apis.includes(category))
  const header = place < 0 ? {} : { [nameOf(place)]: [] }
  if (!hasKeys) return place < 0 ? {} : { security: [header] }
  const keys = Object.keys(KEYS).map((name) => ({ [name]: [], ...header }))
  return { security: core.needsKey(method, path) ? keys : [header, ...keys] }
}

/** Checks a user's headers: forbidden characters would begin another header, or another request. */

import { invalid } from './errors.js'

const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
/** Headers of the protocol itself. */
const OURS = new Set([
  'host',
  'connection',
  'content-length',
  'content-type',
  'content-encoding',
  'transfer-encoding',
  'te',
  'upgrade',
  'expect',
  'inference-header-content-length',
])

/** Lower-cases the names. @throws {ClientError} `INVALID_ARG`, without the value */
export function checkHeaders(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(headers).map(([given, value]) => {
      const name = given.toLowerCase()
      if (!NAME.test(name)) throw invalid(`a header has an invalid name: ${JSON.stringify(given)}`)
      if (OURS.has(name) || name.startsWith('grpc-')) throw invalid(`header ${name} is set by the client`)
      if (typeof value !== 'string')
        throw invalid(`header ${name} must be a string, got a value of type ${value === null ? 'null' : typeof value}`)
      if (!VALUE.test(value)) throw invalid(`header ${name} has an invalid character`)
      return [name, value]
    }),
  )
}

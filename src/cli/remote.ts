/** Asks a server over HTTP for JSON, with the key of the variable NEREID_KEY; for commands. */

import { CommandError } from './arguments.js'

/** Timeout of a response. */
const ANSWER_MS_MAX = 30_000
/** Limit of a response's size. */
const ANSWER_BYTES_MAX = 16 << 20

export interface Remote {
  /** URL without a slash at the end. */
  url: string
  headers: Readonly<Record<string, string>>
}

/**
 * The server of a command's options `--url` and `--header`.
 *
 * @throws {CommandError} if one of them is malformed
 */
export function remoteOf(url: string, header: string | null): Remote {
  if (!/^https?:\/\//.test(url))
    throw new CommandError(`--url is the URL of the HTTP port, http://… or https://…, not '${url}'`)
  const headers = headersWithKey(header === null ? [] : [headerOf(header)])
  return { url: url.replace(/\/+$/, ''), headers: Object.fromEntries(headers) }
}

/**
 * The header of an option `--header`.
 *
 * @throws {CommandError} if it is malformed
 */
export function headerOf(text: string): [string, string] {
  const colon = text.indexOf(':')
  if (colon < 1) throw new CommandError(`--header is 'name: value', not '${text}'`)
  return [text.slice(0, colon).trim(), text.slice(colon + 1).trim()]
}

/** These headers, behind the key of the variable NEREID_KEY. */
export function headersWithKey(headers: [string, string][]): [string, string][] {
  // No option: every user of the machine can read command lines.
  const key = process.env['NEREID_KEY'] ?? ''
  return key === '' ? headers : [['authorization', `Bearer ${key}`], ...headers]
}

/** Members of an object; none for any other value. */
export const membersOf = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}

export interface Question {
  method?: 'GET' | 'POST'
  body?: string
  /** Advice after the server's `error`, null if it gave none, in a response with another status than 200. */
  advise?: (status: number, error: string | null) => string
}

/**
 * The JSON of a response.
 *
 * @throws {CommandError} if the server is unreachable, rejects the request, or answers no JSON
 */
export async function ask({ url, headers }: Remote, path: string, question: Question = {}): Promise<unknown> {
  const { method = 'GET', body, advise = () => '' } = question
  const where = `${method} ${url}${path}`
  let status: number
  let text: string
  try {
    const answer = await fetch(`${url}${path}`, {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    })
    status = answer.status
    text = await read(answer)
  } catch (error) {
    if (error instanceof CommandError) throw new CommandError(`${where}: ${error.message}`)
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    throw new CommandError(`${where}: no answer: ${cause instanceof Error ? cause.message : String(cause)}`)
  }
  if (status !== 200) {
    const isKeyMissing =
      status === 401 && !Object.keys(headers).some((name) => /^(?:authorization|x-api-key)$/i.test(name))
    const error = errorOf(text)
    const advice = isKeyMissing ? '; set the variable NEREID_KEY to a key' : advise(status, error)
    throw new CommandError(`${where}: ${status} ${error ?? text.slice(0, 200)}${advice}`)
  }
  try {
    return JSON.parse(text)
  } catch {
    throw new CommandError(`${where}: the response is not JSON`)
  }
}

async function read(answer: Response): Promise<string> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of answer.body ?? []) {
    length += part.length
    if (length > ANSWER_BYTES_MAX) throw new CommandError(`the response has more than ${ANSWER_BYTES_MAX} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts).toString()
}

/** The server's text in an error response; null if it has none. */
function errorOf(text: string): string | null {
  try {
    const { error } = membersOf(JSON.parse(text))
    return typeof error === 'string' ? error : null
  } catch {
    return null
  }
}

/** The file of TRITON_CLOUD_CREDENTIAL_PATH: credentials by prefix of a repository's URL. */
import { readFile } from 'node:fs/promises'
import { StoreError, type Scheme } from '../client.js'
import { codeOf } from './requests.js'

export const CREDENTIAL_FILE = 'TRITON_CLOUD_CREDENTIAL_PATH'

/**
 * The file's entry for this URL, by the longest matching prefix. Null without a file: the environment applies then.
 *
 * @throws {StoreError} `invalid`, without any contents of the file
 */
export async function credentialFor(scheme: Scheme, url: string, environment: NodeJS.ProcessEnv): Promise<unknown> {
  const path = environment[CREDENTIAL_FILE]
  if (path === undefined || path === '') return null
  const entries = (await readJson(path, CREDENTIAL_FILE))[scheme] ?? {}
  if (typeof entries !== 'object' || Array.isArray(entries))
    throw new StoreError('invalid', `${path}: "${scheme}" must be an object of URLs`)
  const [key] = Object.keys(entries)
    .filter((prefix) => url.startsWith(prefix))
    .sort((a, b) => b.length - a.length)
  // Triton's text, with its two blanks.
  if (key === undefined) throw new StoreError('invalid', `Cannot match credential for path  ${url}`)
  return (entries as Record<string, unknown>)[key]
}

/** @param name the variable with the path. @throws {StoreError} `invalid`, without any contents of the file */
export async function readJson(path: string, name: string): Promise<Record<string, unknown>> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    throw new StoreError('invalid', `${path}, which ${name} names, cannot be read (${codeOf(error)})`)
  }
  try {
    const found: unknown = JSON.parse(text)
    if (typeof found === 'object' && found !== null) return found as Record<string, unknown>
  } catch {
    // The parser's message would show a part of the text, which may be a key.
  }
  throw new StoreError('invalid', `${path}, which ${name} names, is not a JSON object`)
}

/** Validates an entry whose values are strings; ignores other members. @throws {StoreError} */
export function strings<Name extends string>(
  entry: unknown,
  names: readonly Name[],
  scheme: Scheme,
): Partial<Record<Name, string>> {
  if (typeof entry !== 'object' || entry === null) {
    const text = `the value of "${scheme}" must be an object with ${names.join(', ')}`
    throw new StoreError('invalid', `${CREDENTIAL_FILE}: ${text}`)
  }
  const found: Partial<Record<Name, string>> = {}
  for (const name of names) {
    const value = (entry as Record<string, unknown>)[name]
    if (value === undefined || value === null || value === '') continue
    if (typeof value !== 'string')
      throw new StoreError('invalid', `${CREDENTIAL_FILE}: "${name}" below "${scheme}" must be a string`)
    found[name] = value
  }
  return found
}

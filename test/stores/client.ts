/** The clients of cloud storage as `npm run stores` makes them, and what tests do with each. */
import { pathToFileURL } from 'node:url'
import { join } from 'node:path'
import type { OpenStore, Scheme, StoreClient, StoredObject } from '../../src/stores/client.js'
import { ROOT } from '../server/harness.js'

export async function load(scheme: Scheme): Promise<OpenStore> {
  const { open } = (await import(pathToFileURL(join(ROOT, 'dist/stores', `${scheme}.mjs`)).href)) as { open: OpenStore }
  return open
}

export const never = new AbortController().signal

export async function all(client: StoreClient): Promise<StoredObject[]> {
  const found: StoredObject[] = []
  for await (const page of client.list(never)) found.push(...page)
  return found
}

export async function read(client: StoreClient, object: StoredObject, from = 0, to = object.size): Promise<Buffer> {
  const parts: Uint8Array[] = []
  for await (const part of await client.read(object, from, to, never)) parts.push(part)
  return Buffer.concat(parts)
}

/** The error that `run` throws: a failure of the store contract, with its message. */
export async function thrown(run: () => Promise<unknown>): Promise<{ failure: string; message: string }> {
  try {
    await run()
  } catch (error) {
    return error as { failure: string; message: string }
  }
  throw new Error('nothing was thrown')
}

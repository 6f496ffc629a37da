/** Repositories in a storage in memory, which can fail like a remote one. */

import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import type { Log } from '../../src/config/index.js'
import { asServerError } from '../../src/native/errors.js'
import { RemoteStore, privateRoot } from '../../src/repository/remote.js'
import { DownloadCache } from '../../src/stores/cache.js'
import { StoreError, type StoreClient, type StoredObject } from '../../src/stores/client.js'
import { Mirror } from '../../src/stores/mirror.js'

export const ROOT = mkdtempSync(join(tmpdir(), 'nereid-remote-'))
afterAll(() => rmSync(ROOT, { recursive: true }))
export const MIB = 1024 * 1024

export const md5 = (bytes: Uint8Array): string => createHash('md5').update(bytes).digest('hex')

/** Storage in memory. */
export class Memory implements StoreClient {
  readonly objects = new Map<string, { bytes: Buffer; version: string; md5: string | null }>()
  /** Ranges that were read. */
  readonly reads: { path: string; from: number; to: number }[] = []
  open = 0
  openMax = 0
  /** Result of the next reads: a number of bytes after which the connection breaks, or an error. */
  readonly faults: (number | Error)[] = []
  listFault: Error | null = null
  /** See `StoreClient`. */
  checksum?: NonNullable<StoreClient['checksum']>
  /** Called before each read. */
  before: (path: string) => void = () => {}
  /** Reads wait for this promise. */
  gate: Promise<void> = Promise.resolve()
  #versions = 0

  put(path: string, content: string | Buffer, checksum: string | null = null): void {
    this.#versions += 1
    this.objects.set(path, { bytes: Buffer.from(content), version: String(this.#versions), md5: checksum })
  }

  async *list(): AsyncGenerator<StoredObject[]> {
    if (this.listFault !== null) throw this.listFault
    // Two objects per page.
    const all = [...this.objects].map(([path, { bytes, version, md5: sum }]) => ({
      path,
      size: bytes.length,
      version,
      md5: sum,
    }))
    for (let i = 0; i < all.length; i += 2) yield all.slice(i, i + 2)
  }

  async read(
    { path, version }: StoredObject,
    from: number,
    to: number,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>> {
    this.reads.push({ path, from, to })
    this.before(path)
    const object = this.objects.get(path)
    if (object?.version !== version) throw new StoreError('changed', `${path} differs from the listed object`)
    const fault = this.faults.shift()
    if (fault instanceof Error) throw fault
    this.open += 1
    this.openMax = Math.max(this.openMax, this.open)
    return this.#send(object.bytes.subarray(from, Math.min(to, from + (fault ?? Infinity))), signal)
  }

  async *#send(bytes: Buffer, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    try {
      await Promise.race([
        this.gate,
        new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error))),
      ])
      for (let at = 0; at < bytes.length; at += 64 * 1024) yield bytes.subarray(at, at + 64 * 1024)
    } finally {
      this.open -= 1
    }
  }

  close(): void {}
}

let next = 0
export interface Setup {
  memory: Memory
  store: RemoteStore
  cacheDirectory: string
  lines: string[]
  file: (path: string) => string
  refresh: () => Promise<string>
  load: (model: string) => Promise<string>
}

export async function setup(
  memory: Memory,
  { settles = false, cacheDirectory = join(ROOT, `cache${(next += 1)}`), bytesMax = 0 } = {},
): Promise<Setup> {
  const cache = new DownloadCache(cacheDirectory, bytesMax, 1)
  await cache.open()
  const root = await privateRoot(join(cacheDirectory, 'trees'))
  const lines: string[] = []
  const log: Log = (level, message) => void lines.push(`${level} ${message}`)
  const store = new RemoteStore('s3://bucket/models', root, new Mirror(memory, 's3://bucket/models', cache, root), log)
  await store.open()
  if (settles) store.follow()
  const outcome = (task: Promise<void>): Promise<string> =>
    task.then(
      () => 'done',
      (error: unknown) => `${asServerError(error).code} ${asServerError(error).message}`,
    )
  return {
    memory,
    store,
    cacheDirectory,
    lines,
    file: (path) => readFileSync(join(store.directory, path), 'utf8'),
    refresh: () => outcome(store.refresh()),
    load: (model) => outcome(store.materialise(model)),
  }
}

export const objectsIn = (cacheDirectory: string): string[] => readdirSync(join(cacheDirectory, 'objects'))
export const isClean = (cacheDirectory: string): boolean =>
  ['parts', 'records', 'locks', 'reserved'].every((name) => readdirSync(join(cacheDirectory, name)).length === 0)

export function storage(files: Record<string, string>): Memory {
  const memory = new Memory()
  for (const [path, content] of Object.entries(files)) memory.put(path, content)
  return memory
}

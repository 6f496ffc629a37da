/**
 * Downloads models from a storage that generates them, as a process or a thread of its own. `room.test.ts` bundles it.
 * Each model has one object; it is removed after its download, so that the cache may evict it.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isMainThread, workerData } from 'node:worker_threads'
import { DownloadCache } from '../../src/stores/cache.js'
import type { StoreClient, StoredObject } from '../../src/stores/client.js'
import { Mirror } from '../../src/stores/mirror.js'
import { fillOf } from './fill.js'

export interface Work {
  cacheDirectory: string
  bytesMax: number
  /** Prefix of the names of the models, and their number. */
  name: string
  models: number
  bytes: number
}

const CHUNK_BYTES = 64 * 1024

class Generated implements StoreClient {
  readonly #work: Work

  constructor(work: Work) {
    this.#work = work
  }

  async *list(): AsyncGenerator<StoredObject[]> {
    const { name, models, bytes } = this.#work
    yield Array.from({ length: models }, (_, i) => ({
      path: `${name}${i}/1/model`,
      size: bytes,
      version: '1',
      md5: null,
    }))
  }

  async read({ path }: StoredObject, from: number, to: number): Promise<AsyncIterable<Uint8Array>> {
    return (async function* () {
      for (let at = from; at < to; at += CHUNK_BYTES) {
        await sleep(2)
        yield Buffer.alloc(Math.min(CHUNK_BYTES, to - at), fillOf(path))
      }
    })()
  }

  close(): void {}
}

async function download(work: Work): Promise<void> {
  const { cacheDirectory, bytesMax, name, models } = work
  const directory = join(cacheDirectory, 'trees', `${name}-${process.pid}`)
  mkdirSync(directory, { recursive: true })
  const mirror = new Mirror(new Generated(work), 's3://bucket', new DownloadCache(cacheDirectory, bytesMax), directory)
  const { signal } = new AbortController()
  const listing = await mirror.list(signal)
  // Two at a time.
  for (let i = 0; i < models; i += 2) {
    await Promise.all(
      [i, i + 1].map(async (model) => {
        const stamp = listing.get(`${name}${model}`)?.stamp ?? ''
        await mirror.remove(await mirror.materialise(`${name}${model}`, stamp, signal, () => {}))
      }),
    )
  }
}

await download(isMainThread ? (JSON.parse(process.argv[2] ?? '') as Work) : (workerData as Work))

/**
 * The thread that lists one cloud repository and downloads its models, so that the clouds' libraries, timers and
 * parsing do not delay the thread that serves control requests. Bundled into one file, `dist/lib/store_thread.js`.
 */

import { mkdir, utimes } from 'node:fs/promises'
import { parentPort, workerData } from 'node:worker_threads'
import { DownloadCache, type Step } from './cache.js'
import { storeFailure, type OpenStore } from './client.js'
import { Mirror } from './mirror.js'
import type { Answer, Call, WorkerData } from './messages.js'

/** Other processes consider the directory abandoned if it is not touched for much longer (`repository/remote`). */
const TOUCH_MS = 30_000
/** Minimum interval of progress messages. */
const PROGRESS_MS = 200

const port = parentPort
if (port === null) throw new Error('this is a worker thread')
const { url, client, cacheDirectory, cacheBytesMax, stallSecs, directory } = workerData as WorkerData
const running = new Map<number, AbortController>()
let opening: Promise<Mirror> | null = null

async function open(): Promise<Mirror> {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const cache = new DownloadCache(cacheDirectory, cacheBytesMax, undefined, stallSecs * 1000)
  await cache.open()
  const { open: openStore } = (await import(client)) as { open: OpenStore }
  setInterval(() => void utimes(directory, new Date(), new Date()).catch(() => {}), TOUCH_MS).unref()
  return new Mirror(await openStore(url, process.env), url, cache, directory)
}

async function run(call: Call, signal: AbortSignal): Promise<unknown> {
  const mirror = await (opening ??= open().catch((error: unknown) => {
    opening = null
    throw error
  }))
  switch (call.task) {
    case 'list':
      return mirror.list(signal)
    case 'materialise': {
      // Bytes since the last message.
      let received = 0
      let reportedAt = 0
      const report = (): void => {
        if (received > 0) port?.postMessage({ id: call.id, step: { bytes: received } } satisfies Answer)
        received = 0
      }
      const progress = (step: Step): void => {
        if ('waits' in step) {
          port?.postMessage({ id: call.id, step } satisfies Answer)
          return
        }
        received += step.bytes
        if (performance.now() - reportedAt < PROGRESS_MS) return
        reportedAt = performance.now()
        report()
      }
      // Bytes of a failed download count, too.
      return mirror.materialise(call.model, call.stamp, signal, progress, call.versions).finally(report)
    }
    case 'remove':
      return mirror.remove(call.directory)
  }
}

port.on('message', (message: Call | { cancel: number }) => {
  if ('cancel' in message) {
    running.get(message.cancel)?.abort()
    return
  }
  const { id } = message
  const abort = new AbortController()
  running.set(id, abort)
  run(message, abort.signal)
    .then(
      (result) => port.postMessage({ id, result } satisfies Answer),
      (error: unknown) => {
        const failure = storeFailure(error) ?? 'unavailable'
        const message = error instanceof Error ? error.message : String(error)
        port.postMessage({ id, failure, message } satisfies Answer)
      },
    )
    .finally(() => running.delete(id))
})

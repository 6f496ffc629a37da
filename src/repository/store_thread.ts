/** The thread that accesses one cloud repository (`stores/worker`). The next call restarts it after a crash. */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { setFlagsFromString } from 'node:v8'
import { Worker } from 'node:worker_threads'
import { ServerError } from '../native/index.js'
import { ROOT, clone } from '../native/locate.js'
import type { Progress } from '../stores/cache.js'
import { StoreError, type Scheme } from '../stores/client.js'
import type { Answer, Call, WorkerData } from '../stores/messages.js'
import type { Listing, SomeVersions } from '../stores/mirror.js'
import type { Source } from './remote.js'

/** Limit of the JavaScript heap: a million objects take 300 MB. */
const HEAP_MB_MAX = 1024
/**
 * Size of the old generation before the first full garbage collection. The buffers of a download count: with the usual
 * small one, every 5 MB start a collection, and these took 40 % of the thread's time.
 */
const OLD_GENERATION_MB = 128

type Task = Call extends infer C ? (C extends { id: number } ? Omit<C, 'id'> : never) : never

interface PendingCall {
  resolve(value: unknown): void
  reject(error: unknown): void
  progress: Progress
}

export class StoreThread implements Source {
  readonly #data: WorkerData
  readonly #pending = new Map<number, PendingCall>()
  #worker: Worker | null = null
  #calls = 0

  /** @throws {ServerError} `INTERNAL` when the client of this scheme is missing */
  constructor(scheme: Scheme, data: Omit<WorkerData, 'client'>) {
    const client = join(ROOT, 'dist', 'stores', `${scheme}.mjs`)
    if (!existsSync(client)) {
      const todo =
        clone() === null
          ? `the file ${client} is missing: install the package again`
          : 'make its client with: npm run stores'
      throw new ServerError('INTERNAL', `model repository '${data.url}' can not be read: ${todo}`)
    }
    this.#data = { ...data, client: pathToFileURL(client).href }
  }

  async list(signal: AbortSignal): Promise<Listing> {
    return (await this.#call({ task: 'list' }, signal)) as Listing
  }

  async materialise(
    model: string,
    stamp: string,
    signal: AbortSignal,
    progress: Progress,
    versions: SomeVersions,
  ): Promise<string> {
    return (await this.#call({ task: 'materialise', model, stamp, versions }, signal, progress)) as string
  }

  async remove(directory: string): Promise<void> {
    await this.#call({ task: 'remove', directory })
  }

  async close(): Promise<void> {
    const worker = this.#worker
    this.#worker = null
    await worker?.terminate()
  }

  async #call(task: Task, signal?: AbortSignal, progress: Progress = () => {}): Promise<unknown> {
    signal?.throwIfAborted()
    const worker = this.#started()
    this.#calls += 1
    const id = this.#calls
    const cancel = (): void => worker.postMessage({ cancel: id })
    signal?.addEventListener('abort', cancel, { once: true })
    try {
      return await new Promise((resolve, reject) => {
        this.#pending.set(id, { resolve, reject, progress })
        worker.postMessage({ id, ...task })
      })
    } finally {
      this.#pending.delete(id)
      signal?.removeEventListener('abort', cancel)
    }
  }

  #started(): Worker {
    if (this.#worker !== null) return this.#worker
    // Read when the thread makes its heap. A worker has no option for it.
    setFlagsFromString(`--initial-old-space-size=${OLD_GENERATION_MB}`)
    const worker = new Worker(join(ROOT, 'dist', 'lib', 'store_thread.js'), {
      workerData: this.#data,
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB_MAX },
    })
    worker.once('online', () => setFlagsFromString('--initial-old-space-size=0'))
    worker.on('message', (answer: Answer) => {
      const call = this.#pending.get(answer.id)
      if ('step' in answer) call?.progress(answer.step)
      else if ('failure' in answer) call?.reject(new StoreError(answer.failure, answer.message))
      else call?.resolve(answer.result)
    })
    const ended = (why: string): void => {
      if (this.#worker === worker) this.#worker = null
      for (const { reject } of this.#pending.values()) reject(new StoreError('unavailable', why))
    }
    worker.on('error', (error) => ended(`the thread that reads '${this.#data.url}' failed: ${error.message}`))
    worker.on('exit', () => ended(`the thread that reads '${this.#data.url}' ended`))
    // The listeners keep the process alive, not this thread.
    worker.unref()
    this.#worker = worker
    return worker
  }
}

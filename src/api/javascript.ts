/**
 * Makes the worker threads that run JavaScript models, and reports their ends to the core. The main thread takes no
 * other part: frames pass between the core and the worker directly.
 */

import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { WorkerData } from '../javascript/channel.js'
import type { Logger } from '../log/index.js'
import { asServerError, nativePath, workerEnded, type JavaScriptOptions, type WorkerStart } from '../native/index.js'
import { ROOT } from '../native/locate.js'
import { TYPE_FLAGS } from '../native/typescript.js'
import { stackOf } from './stacks.js'

/** The script of a worker. It is always the built one. */
const WORKER = join(ROOT, 'dist/javascript/worker.js')

/** Flags of Node for workers and processes. */
const FLAGS = ['--enable-source-maps', ...TYPE_FLAGS]

/** Variables of the server's environment that a model sees; others, such as keys, stay with the server. */
const VARIABLES = ['PATH', 'HOME', 'LANG', 'TZ', 'TMPDIR']

const environment = (): Record<string, string> =>
  Object.fromEntries(VARIABLES.flatMap((key) => (process.env[key] === undefined ? [] : [[key, process.env[key]]])))

/** The start of a process for an instance, `isolation: "process"`. */
export const javaScriptProcess = (): JavaScriptOptions => ({
  node: process.execPath,
  flags: FLAGS,
  script: join(ROOT, 'dist/javascript/process.js'),
  environment: environment(),
})

/** Time after the last start of an instance until spare workers are made: their start would slow down that one. */
const SPARE_DELAY_MS = 300

function makeWorker(name: string, runner: number | null, heapMb: number | null, preservesLinks = false): Worker {
  const data: WorkerData = { library: nativePath(), runner }
  const worker = new Worker(WORKER, {
    name,
    workerData: data,
    env: environment(),
    execArgv: preservesLinks ? [...FLAGS, '--preserve-symlinks'] : FLAGS,
    stdout: true,
    stderr: true,
    ...(heapMb === null ? {} : { resourceLimits: { maxOldGenerationSizeMb: heapMb } }),
  })
  // A server keeps running by its own handles; a program that embeds one may end.
  worker.unref()
  return worker
}

/**
 * Makes and ends workers as the core asks. Once there was one, keeps `sparesMax` started ones for instances without a
 * heap limit.
 */
export function workerHost(
  log: Logger['log'],
  sparesMax = 0,
): (id: number, start: WorkerStart | null, ends: boolean, explains: boolean) => void {
  const workers = new Map<number, Worker>()
  const names = new WeakMap<Worker, string>()
  const ends = new Map<number, string>()
  const spares = new Set<Worker>()
  let refill: NodeJS.Timeout | undefined

  function makeSparesSoon(): void {
    clearTimeout(refill)
    refill = setTimeout(() => {
      while (spares.size < sparesMax) {
        try {
          spares.add(makeSpare())
        } catch (error) {
          // The next start of an instance tries again.
          log('warning', `could not start a spare worker: ${asServerError(error).message}`)
          return
        }
      }
    }, SPARE_DELAY_MS).unref()
  }

  function makeSpare(): Worker {
    const worker = makeWorker('spare', null, null)
    worker.once('error', (error) => log('verbose', `a spare worker ended: ${asServerError(error).message}`))
    return worker.once('exit', () => spares.delete(worker))
  }

  function takeSpare(id: number): Worker | null {
    const [worker] = spares
    if (worker === undefined) return null
    spares.delete(worker)
    worker.removeAllListeners('error').removeAllListeners('exit')
    worker.postMessage(id)
    return worker
  }

  function start(id: number, { name, heapBytesMax, preservesLinks }: WorkerStart): void {
    const heapMb = heapBytesMax === null ? null : Math.max(1, Math.ceil(heapBytesMax / 2 ** 20))
    const spare = heapMb === null && !preservesLinks ? takeSpare(id) : null
    const worker = spare ?? makeWorker(name === '' ? 'auto-complete' : name, id, heapMb, preservesLinks)
    if (sparesMax > 0) makeSparesSoon()
    workers.set(id, worker)
    names.set(worker, name)
    worker.on('error', (error: unknown) => {
      const isMemory = (error as { code?: unknown } | null)?.code === 'ERR_WORKER_OUT_OF_MEMORY'
      ends.set(id, isMemory ? `ran out of its heap of ${heapMb ?? 'default'} MB` : 'was ended by an exception')
      if (!isMemory) log('error', `${name}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`)
    })
    worker.on('exit', (code) => {
      workers.delete(id)
      const how = ends.get(id) ?? `exited with code ${code}`
      ends.delete(id)
      workerEnded(id, how)
    })
  }

  /** Logs what a worker runs that does not return. */
  async function explain(worker: Worker): Promise<void> {
    const frames = await stackOf(worker).catch(() => null)
    const what =
      frames === null
        ? ' does not run JavaScript now: it waits for a promise or for native code'
        : ` runs:\n${frames.join('\n')}`
    log('warning', `${names.get(worker) ?? ''}${what}`)
  }

  function end(id: number, worker: Worker): void {
    if (!ends.has(id)) ends.set(id, 'was ended by the server')
    void worker.terminate()
  }

  return (id, wanted, isEnd, explains) => {
    if (wanted !== null) {
      try {
        start(id, wanted)
      } catch (error) {
        workerEnded(id, `could not be started: ${asServerError(error).message}`)
      }
      return
    }
    const worker = workers.get(id)
    if (worker === undefined) return
    if (!explains) end(id, worker)
    else void explain(worker).then(() => isEnd && end(id, worker))
  }
}

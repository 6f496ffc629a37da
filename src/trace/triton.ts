/**
 * Mode triton: files in Triton's format (O 3.5), for its `trace_summary.py` and other readers.
 *
 * Without a log frequency, traces are kept until their setting ends and then written to one file: an array that is
 * closed when the server stops. With a log frequency, every so many traces of a setting become a file `<file>.<index>`.
 * The traces in memory are bounded: beyond the limit they are written earlier.
 */

import { closeSync, constants, fstatSync, ftruncateSync, openSync, writeSync } from 'node:fs'
import type { TraceDefaults, TraceFields } from './settings.js'
import type { Log } from '../config/index.js'
import type { TraceActivity, TraceCall, TraceRecord, TraceTensor } from '../native/contract.js'
import type { TraceExporter } from './exporter.js'

/** Maximum characters of traces in memory, for all settings together. */
export const TRACES_KEPT_MAX = 32 * 1024 * 1024
/**
 * Maximum number of indexed files per process: with a log frequency of 1 each request makes one, so clients could fill
 * a directory. Existing files stay; further traces are lost, counted, and logged once.
 */
export const TRACE_FILES_MAX = 10_000

/** Traces of one setting that are not written yet. */
interface Kept {
  fields: TraceFields
  traces: string[]
  /** Number of traces so far, including written ones. */
  collected: number
}

const NO_FIELDS: TraceFields = { levels: [], rate: 0, count: -1, logFrequency: 0 }

class TritonExporter implements TraceExporter {
  readonly lost = new Map<string, number>()
  readonly #path: string
  readonly #log: Log
  readonly #kept = new Map<number, Kept>()
  #keptLength = 0
  #index = 0
  /** Descriptor of the one file; null before the first write. */
  #descriptor: number | null = null
  #hasFailed = false

  constructor(path: string, log: Log) {
    this.#path = path
    this.#log = log
  }

  settingBegan(setting: number, fields: TraceFields): void {
    this.#kept.set(setting, { fields, traces: [], collected: 0 })
  }

  take(record: TraceRecord): void {
    let kept = this.#kept.get(record.setting)
    if (kept === undefined) {
      kept = { fields: NO_FIELDS, traces: [], collected: 0 }
      this.#kept.set(record.setting, kept)
    }
    const text = traceText(record)
    kept.traces.push(text)
    kept.collected += 1
    this.#keptLength += text.length
    const { rate, count, logFrequency } = kept.fields
    const isFull = logFrequency > 0 && kept.traces.length >= logFrequency
    // The setting is used up. As in Triton, only with rate 1 is it certain that no trace is pending.
    const isLast = rate === 1 && count > 0 && kept.collected === count
    if (isFull || isLast) this.#writeIndexed(kept)
    else if (this.#keptLength > TRACES_KEPT_MAX) for (const one of this.#kept.values()) this.#flush(one)
  }

  settingEnded(setting: number): void {
    const kept = this.#kept.get(setting)
    if (kept !== undefined) this.#flush(kept)
    this.#kept.delete(setting)
  }

  async close(): Promise<void> {
    for (const setting of this.#kept.keys()) this.settingEnded(setting)
    const descriptor = this.#descriptor
    if (descriptor === null) return
    this.#descriptor = null
    this.#guarded(0, this.#path, () => {
      try {
        append(descriptor, ']')
      } finally {
        closeSync(descriptor)
      }
    })
  }

  /** Writes the traces in memory to the file of their setting. */
  #flush(kept: Kept): void {
    if (kept.fields.logFrequency > 0) return this.#writeIndexed(kept)
    const { count, text } = this.#takeOut(kept)
    if (count === 0) return
    this.#guarded(count, this.#path, () => {
      if (this.#descriptor !== null) return append(this.#descriptor, `,${text}`)
      const descriptor = create(this.#path)
      try {
        append(descriptor, `[${text}`)
      } catch (error) {
        // Without its opening bracket the file is useless, so the next traces start it again.
        closeSync(descriptor)
        throw error
      }
      this.#descriptor = descriptor
    })
  }

  #writeIndexed(kept: Kept): void {
    const { count, text } = this.#takeOut(kept)
    if (count === 0) return
    const path = `${this.#path}.${this.#index}`
    if (this.#index >= TRACE_FILES_MAX) {
      const text = `${TRACE_FILES_MAX} trace files were written, which is the maximum: use a higher log-frequency`
      this.#fail(count, 'files', text)
      return
    }
    this.#index += 1
    this.#guarded(count, path, () => {
      const descriptor = create(path)
      try {
        append(descriptor, `[${text}]`)
      } finally {
        closeSync(descriptor)
      }
    })
  }

  #takeOut(kept: Kept): { count: number; text: string } {
    const { traces } = kept
    kept.traces = []
    for (const trace of traces) this.#keptLength -= trace.length
    return { count: traces.length, text: traces.join(',') }
  }

  /** Runs a write. A failure loses only its own traces: a full disk may have room again. */
  #guarded(count: number, path: string, write: () => void): void {
    try {
      write()
      this.#hasFailed = false
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException
      const reason = code !== undefined && /^E[A-Z]{2,15}$/.test(code) ? code : 'other'
      this.#fail(count, reason, `trace file '${path}' can not be written: ${message}`)
    }
  }

  /** Counts lost traces; logs the reason once, until a write succeeds. */
  #fail(count: number, reason: string, why: string): void {
    this.lost.set(reason, (this.lost.get(reason) ?? 0) + count)
    if (!this.#hasFailed)
      this.#log('error', `${why}; traces are lost until that changes (nereid_trace_records_lost_total)`)
    this.#hasFailed = true
  }
}

/** Creates an exporter to the file of the command line. */
export function tritonExporter(settings: TraceDefaults, log: Log): TraceExporter {
  if (settings.levels.includes('TENSORS'))
    log('warning', `trace level TENSORS writes the tensors of requests and responses to '${settings.file}'`)
  return new TritonExporter(settings.file, log)
}

/** Opens without blocking, so a FIFO without a reader is an error. O_APPEND avoids a hole if the file is truncated. */
function create(path: string): number {
  const { O_WRONLY, O_CREAT, O_TRUNC, O_APPEND, O_NONBLOCK } = constants
  return openSync(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NONBLOCK, 0o666)
}

/** Appends a text completely or not at all: a part would spoil the array. */
function append(descriptor: number, text: string): void {
  const bytes = Buffer.from(text, 'utf8')
  let written = 0
  try {
    while (written < bytes.length) written += writeSync(descriptor, bytes, written)
  } catch (error) {
    takeBack(descriptor, written)
    throw error
  }
}

function takeBack(descriptor: number, bytes: number): void {
  if (bytes === 0) return
  try {
    const { size } = fstatSync(descriptor)
    ftruncateSync(descriptor, Math.max(0, size - bytes))
  } catch {
    // Data in a FIFO cannot be taken back.
  }
}

/** The JSON objects of a record, joined by commas: each trace in the order of its events, parents before children. */
function traceText(record: TraceRecord): string {
  const [first, ...others] = record.calls
  const objects = callObjects(record.id, first, record.activities)
  for (const call of others) objects.push(...callObjects(call.id, call, []))
  return objects.join(',')
}

function callObjects(id: number, call: TraceCall | undefined, front: readonly TraceActivity[]): string[] {
  const activities = [...front, ...(call?.activities ?? [])]
  // The sort is stable: at equal times the front end's activity is first, and those of a call stay in order.
  activities.sort((a, b) => (a.ns < b.ns ? -1 : a.ns > b.ns ? 1 : 0))
  const of = (activity: TraceTensor['activity']): string[] =>
    (call?.tensors ?? []).filter((tensor) => tensor.activity === activity).map((tensor) => tensorObject(id, tensor))
  const [inputs, outputs] = [of('TENSOR_QUEUE_INPUT'), of('TENSOR_BACKEND_OUTPUT')]
  const objects: string[] = []
  for (const { name, ns } of activities) {
    if (name === 'REQUEST_START' && call !== undefined) objects.push(headObject(call))
    if (name === 'REQUEST_END') objects.push(...outputs.splice(0))
    objects.push(`{"id":${id},"timestamps":[{"name":${JSON.stringify(name)},"ns":${ns}}]}`)
    if (name === 'QUEUE_START') objects.push(...inputs.splice(0))
  }
  return [...objects, ...inputs, ...outputs]
}

function headObject(call: TraceCall): string {
  const requestId = call.requestId === '' ? '' : `,"request_id":${JSON.stringify(call.requestId)}`
  const parent = call.parentId === 0 ? '' : `,"parent_id":${call.parentId}`
  const model = `"model_name":${JSON.stringify(call.model)},"model_version":${call.version}`
  return `{"id":${call.id},${model}${requestId}${parent}}`
}

function tensorObject(id: number, { activity, name, data, shape, datatype }: TraceTensor): string {
  const tensor = { name, data, shape: shape.join(','), dtype: datatype }
  return `{"id":${id},"activity":"${activity}","tensor":${JSON.stringify(tensor)}}`
}

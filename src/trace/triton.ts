/**
 * Mode triton: files of Triton's form (O 3.5), for its `trace_summary.py` and whatever else reads them.
 *
 * Without a log frequency traces are kept until their setting ends, and then go to the one file: an array that is closed when the
 * server stops. With one, each so many traces of a setting make a file of their own, `<file>.<index>`. What is kept is bounded: beyond
 * that it is written earlier.
 */

import { closeSync, constants, fstatSync, ftruncateSync, openSync, writeSync } from 'node:fs'
import type { TraceDefaults, TraceFields } from './settings.js'
import type { Log } from '../config/index.js'
import type { TraceActivity, TraceCall, TraceRecord, TraceTensor } from '../native/contract.js'
import type { TraceExporter } from './exporter.js'

/** Characters of traces that are kept, all settings together. */
export const TRACES_KEPT_MAX = 32 * 1024 * 1024
/**
 * Indexed files of a process: with a log frequency of 1 each request makes one, and clients could else fill a directory with files.
 * Those that are there are kept; the traces of further ones are lost, counted, and told once.
 */
export const TRACE_FILES_MAX = 10_000

/** Traces of one setting that are not written yet. */
interface Kept {
  fields: TraceFields
  traces: string[]
  /** All that there were. */
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
  /** Of the one file; null before the first traces are in it. */
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
    // Used up: as in Triton, where only rate 1 can tell that none is on its way.
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

  /** Writes what is kept, to where the setting wants it. */
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
        // An array does not begin with a comma: the next traces begin the file anew.
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
      this.#fail(count, 'files', `${TRACE_FILES_MAX} trace files were written, and no more are: use a higher log-frequency`)
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

  /** Runs a write. One that fails loses its traces, and never more: a full disk may have room again. */
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

  /** Counts what is lost; says why once, until a write succeeds. */
  #fail(count: number, reason: string, why: string): void {
    this.lost.set(reason, (this.lost.get(reason) ?? 0) + count)
    if (!this.#hasFailed) this.#log('error', `${why}; traces are lost until that changes (nereid_trace_records_lost_total)`)
    this.#hasFailed = true
  }
}

/** An exporter to the file that the command line names. */
export function tritonExporter(settings: TraceDefaults, log: Log): TraceExporter {
  if (settings.levels.includes('TENSORS')) log('warning', `trace level TENSORS writes what clients send and what they are answered to '${settings.file}'`)
  return new TritonExporter(settings.file, log)
}

/** Not blocking: a FIFO without a reader is an error, and no wait. What others cut off its file is not written as zeros in its place. */
function create(path: string): number {
  const { O_WRONLY, O_CREAT, O_TRUNC, O_APPEND, O_NONBLOCK } = constants
  return openSync(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NONBLOCK, 0o666)
}

/** Appends a text, or nothing: a part of it would spoil the array for those before and behind it. */
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
    // A FIFO does not give back what is in it.
  }
}

/** The objects of a record, joined by commas: each trace in the order of its events, parents before their children. */
function traceText(record: TraceRecord): string {
  const [first, ...others] = record.calls
  const objects = callObjects(record.id, first, record.activities)
  for (const call of others) objects.push(...callObjects(call.id, call, []))
  return objects.join(',')
}

function callObjects(id: number, call: TraceCall | undefined, front: readonly TraceActivity[]): string[] {
  const activities = [...front, ...(call?.activities ?? [])]
  // Stable: of two at one moment the front end's is first, and those of a call stay in their order.
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
  return `{"id":${call.id},"model_name":${JSON.stringify(call.model)},"model_version":${call.version}${requestId}${parent}}`
}

function tensorObject(id: number, { activity, name, data, shape, datatype }: TraceTensor): string {
  const tensor = { name, data, shape: shape.join(','), dtype: datatype }
  return `{"id":${id},"activity":"${activity}","tensor":${JSON.stringify(tensor)}}`
}

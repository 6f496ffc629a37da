/**
 * The settings of the trace extension, by Triton's rules (O 3.2).
 *
 * A model overrides fields that were set on it and follows the global ones otherwise. A failed update changes nothing.
 * The result goes to the core, which samples: an update replaces the settings that it affects, and their counters
 * restart, except that the count continues with what the core has left of it.
 */

import type { TraceSetting } from '../native/contract.js'
import { ServerError } from '../native/index.js'
import { TRACE_LEVELS, type TraceDefaults, type TraceFields, type TraceLevel } from '../trace/settings.js'
import { isArray, isString, members } from './json.js'
import type { Protocol } from './log_settings.js'

type Patch = { [K in keyof TraceFields]?: TraceFields[K] | null }

const UINT32_MAX = 4294967295
const INT32_MAX = 2147483647

/** The sampler of requests. */
export interface Sampling {
  /** Sets the setting of a model, or for an empty name the default; null makes a model use the default. */
  set(model: string, setting: TraceSetting | null, fields: TraceFields): void
  /** The remaining count. */
  left(model: string): number
}

export class TraceSettings {
  readonly #defaults: TraceDefaults
  readonly #isModel: (name: string) => boolean
  readonly #sampling: Sampling
  #global: TraceFields
  readonly #models = new Map<string, Partial<TraceFields>>()
  #setting = 0

  /** `isModel` reports whether a model of this name has a serving version. */
  constructor(defaults: TraceDefaults, isModel: (name: string) => boolean, sampling: Sampling) {
    this.#defaults = defaults
    this.#isModel = isModel
    this.#sampling = sampling
    this.#global = fieldsOf(defaults)
    this.#sample('', this.#global)
  }

  /**
   * Returns the settings of a model, or the global ones for an empty name.
   *
   * @throws {ServerError} `INVALID_ARG` for a model that does not serve.
   */
  answer(model: string): Record<string, string | string[]> {
    this.#check(model)
    const now = { ...this.#global, ...this.#models.get(model), count: this.#sampling.left(model) }
    const common = {
      trace_level: now.levels.length === 0 ? ['OFF'] : [...now.levels],
      trace_rate: String(now.rate),
      trace_count: String(now.count),
    }
    if (this.#defaults.mode === 'opentelemetry') {
      return { ...common, trace_mode: 'opentelemetry', ...Object.fromEntries(this.#defaults.exporter) }
    }
    return { ...common, log_frequency: String(now.logFrequency), trace_file: this.#defaults.file, trace_mode: 'triton' }
  }

  /**
   * Applies an update completely or not at all.
   *
   * @throws {ServerError} with the text and class of O 3.2.
   */
  update(model: string, settings: unknown, protocol: Protocol): void {
    this.#check(model)
    const patch = readPatch(members(settings), protocol)
    if (model === '') {
      const next = applied({ ...this.#global, count: this.#sampling.left('') }, patch, this.#defaults)
      this.#rejectUseless(next)
      this.#global = next
      this.#sample('', next)
      for (const [name, own] of this.#models) {
        if (own.count !== undefined) own.count = this.#sampling.left(name)
        this.#sample(name, { ...next, ...own })
      }
      return
    }
    const own: Partial<TraceFields> = { ...this.#models.get(model) }
    if (own.count !== undefined) own.count = this.#sampling.left(model)
    const inherited = { ...this.#global, count: this.#sampling.left('') }
    for (const key of Object.keys(patch) as (keyof TraceFields)[]) {
      const value = patch[key]
      if (value === null) delete own[key]
      else if (value !== undefined) Object.assign(own, { [key]: value })
    }
    this.#rejectUseless({ ...inherited, ...own })
    if (Object.keys(own).length === 0) {
      if (this.#models.delete(model)) this.#sampling.set(model, null, inherited)
      return
    }
    this.#sample(model, { ...inherited, ...own })
    this.#models.set(model, own)
  }

  #sample(model: string, fields: TraceFields): void {
    const { mode, file } = this.#defaults
    // Only the command line can cause this; such updates are rejected.
    const goesNowhere = mode === 'triton' && file === ''
    this.#setting += 1
    const setting = {
      number: this.#setting,
      mode,
      timestamps: fields.levels.includes('TIMESTAMPS') && !goesNowhere,
      tensors: fields.levels.includes('TENSORS') && mode === 'triton' && !goesNowhere,
      rate: fields.rate,
      count: fields.count,
    }
    this.#sampling.set(model, setting, fields)
  }

  #check(model: string): void {
    if (model !== '' && !this.#isModel(model)) {
      throw new ServerError('INVALID_ARG', `Request for unknown model : ${model}`)
    }
  }

  #rejectUseless(next: TraceFields): void {
    if (next.levels.length === 0) return
    const prefix = 'Attempting to set invalid trace setting :'
    if (next.rate === 0) throw new ServerError('INVALID_ARG', `${prefix}sample rate must be non-zero`)
    if (next.count === 0) throw new ServerError('INVALID_ARG', prefix)
    if (this.#defaults.mode === 'triton' && this.#defaults.file === '') {
      throw new ServerError('INVALID_ARG', `${prefix}trace file name is not given`)
    }
  }
}

function fieldsOf(from: TraceFields): TraceFields {
  return { levels: [...from.levels], rate: from.rate, count: from.count, logFrequency: from.logFrequency }
}

function applied(now: TraceFields, patch: Patch, cleared: TraceFields): TraceFields {
  const next = { ...now }
  for (const key of Object.keys(patch) as (keyof TraceFields)[]) {
    const value = patch[key]
    if (value !== undefined) Object.assign(next, { [key]: value ?? cleared[key] })
  }
  return next
}

/** Fields to set (a value), to reset (null), or to keep (absent). Ignores unknown members. */
function readPatch(settings: Record<string, unknown>, protocol: Protocol): Patch {
  const patch: Patch = {}
  if (Object.hasOwn(settings, 'trace_file')) {
    throw new ServerError('UNSUPPORTED', 'trace file location can not be updated through network protocol')
  }
  if (Object.hasOwn(settings, 'trace_level')) {
    const levels = readLevels(settings['trace_level'], protocol)
    if (levels !== undefined) patch.levels = levels
  }
  for (const [key, field] of [
    ['trace_rate', 'rate'],
    ['trace_count', 'count'],
    ['log_frequency', 'logFrequency'],
  ] as const) {
    if (!Object.hasOwn(settings, key)) continue
    const text = readSingle(key, settings[key], protocol)
    patch[field] = text === null ? null : readCount(key, text, protocol)
  }
  return patch
}

function readLevels(value: unknown, protocol: Protocol): TraceLevel[] | null | undefined {
  if (value === null) return null
  isArray(value)
  if (protocol === 'grpc' && value.length === 0) return null
  const seen = new Set<string>()
  for (const level of value) {
    isString(level)
    seen.add(level)
  }
  if (seen.has('OFF')) {
    if (value.length > 1) throw new ServerError('INVALID_ARG', "Expect only one trace level 'OFF' is specified")
    return []
  }
  const levels = TRACE_LEVELS.filter((level) => seen.has(level))
  // No known level was named: no change, rather than OFF.
  return levels.length === 0 ? undefined : levels
}

function readSingle(key: string, value: unknown, protocol: Protocol): string | null {
  if (protocol === 'http') {
    if (value === null) return null
    isString(value)
    return value
  }
  const values = Array.isArray(value) ? value : []
  if (values.length === 0) return null
  if (values.length > 1) throw new ServerError('INVALID_ARG', `expect only 1 value for '${key}'`)
  isString(values[0])
  return values[0]
}

/** Accepts a rate above 2^31 - 1, as the range in the text promises; a negative rate does not wrap around. */
function readCount(key: 'trace_rate' | 'trace_count' | 'log_frequency', text: string, protocol: Protocol): number {
  const trimmed = text.trim()
  if (!/^[+-]?\d+$/.test(trimmed)) throw new ServerError('INVALID_ARG', `Unable to parse '${key}', got: ${text}`)
  const value = Number(trimmed)
  if (key === 'trace_count' && value < -1 && value >= -INT32_MAX - 1) {
    const gap = protocol === 'grpc' ? ' ' : ''
    throw new ServerError('INVALID_ARG', `Unable to parse 'trace_count'. Expecting value >= -1, got:${gap}${text}`)
  }
  const [min, max] = key === 'trace_count' ? [-1, INT32_MAX] : [0, UINT32_MAX]
  if (value < min || value > max) {
    const range = `value is out of range [ ${min}, ${max} ], got: ${text}`
    throw new ServerError('INVALID_ARG', `Unable to parse '${key}', ${range}`)
  }
  return value
}

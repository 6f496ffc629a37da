/** Everything a model has besides its requests. */

import { basename } from 'node:path'
import type { Configuration } from './config.js'
import { type Arrays, type Datatype, arrayOf } from './datatypes.js'
import { callerOf } from './errors.js'
import { INLINE_BYTES_MAX, type LogLevel } from './generated/protocol.js'
import { type Metrics, metricsOf } from './metrics.js'
import { type Models, modelsOf } from './models.js'
import type { Progress } from './request.js'
import type { Server } from './server.js'

/** Writes lines to the server's log, with the file and the line of the caller. */
export interface Logger {
  verbose(message: string): void
  info(message: string): void
  warn(message: string): void
  error(message: string): void
}

/** The instance of a model. */
export interface Context {
  /** The configuration, in the JSON form of Triton: `max_batch_size`, `input`, … */
  readonly config: Configuration
  /** `parameters` of the configuration: their text by name. */
  readonly parameters: Readonly<Record<string, string>>
  readonly modelName: string
  readonly modelVersion: string
  /** Directory of the model in its repository. */
  readonly modelDirectory: string
  /** Directory of the version, which has the model's file. */
  readonly versionDirectory: string
  readonly instanceName: string
  /** `CPU`, `GPU` or `MODEL`. */
  readonly instanceKind: string
  readonly deviceId: number
  readonly logger: Logger
  readonly metrics: Metrics
  readonly models: Models
  /** Aborts when the instance ends. */
  readonly signal: AbortSignal
  /**
   * An array for an output, in the memory that is sent, so that it need not be copied. It is for a response to a
   * request that is open now, and not to be used after it was sent.
   */
  alloc<D extends Exclude<Datatype, 'BYTES'>>(datatype: D, shape: readonly number[]): Arrays[D]
}

/** The context of an instance. */
export function contextOf(server: Server, config: Configuration, signal: AbortSignal): Context {
  const { load } = server
  const given = load.arguments
  const parameters = Object.entries(config.parameters ?? {})
  const log = (level: keyof typeof LogLevel) => (message: string) => {
    const { file, line } = callerOf(new Error())
    server.log(level, basename(file), line, String(message))
  }
  return {
    config,
    signal,
    parameters: Object.fromEntries(parameters.map(([name, value]) => [name, value?.string_value ?? ''])),
    modelName: load.model,
    modelVersion: load.version,
    modelDirectory: load.model_directory,
    versionDirectory: load.version_directory,
    instanceName: load.instance,
    instanceKind: given['model_instance_kind'] ?? 'CPU',
    deviceId: Number(given['model_instance_device_id'] ?? 0),
    logger: { verbose: log('VERBOSE'), info: log('INFO'), warn: log('WARNING'), error: log('ERROR') },
    metrics: metricsOf(server),
    models: modelsOf(server, null),
    alloc: (datatype, shape) => alloc(server, datatype, shape),
  }
}

/** The same context, whose calls are made for one request. */
export const contextFor = (context: Context, server: Server, request: Progress): Context => ({
  ...context,
  models: modelsOf(server, request),
})

function alloc<D extends Exclude<Datatype, 'BYTES'>>(server: Server, datatype: D, shape: readonly number[]): Arrays[D] {
  const array = arrayOf(datatype)
  const count = shape.reduce((product, dim) => product * dim, 1)
  if (array === null || array === undefined) throw new TypeError(`alloc: there are no arrays of datatype ${datatype}`)
  if (!Number.isSafeInteger(count) || count < 0) throw new TypeError(`alloc: [${shape.join(', ')}] is not a shape`)
  const bytes = count * array.BYTES_PER_ELEMENT
  const filled = bytes > INLINE_BYTES_MAX ? server.blocks?.fill(bytes) : null
  const made = filled ? new array(filled.buffer, filled.offset, count) : new array(new ArrayBuffer(bytes))
  return made as unknown as Arrays[D]
}

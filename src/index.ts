/// <reference lib="esnext.disposable" preserve="true" />
/// <reference types="node" preserve="true" />
/**
 * The in-process API: a whole server inside a Node program, without ports unless configured.
 *
 * ```ts
 * await using server = await Server.start({ modelRepository: ['./models'] })
 * const input = { data: new Int32Array(16), shape: [1, 16] }
 * const result = await server.model('simple').infer({ inputs: { INPUT0: input, INPUT1: input } })
 * result.output('OUTPUT0').data // Int32Array
 * ```
 */

import { asDimension, asObject, asString, wrong } from './api/check.js'
import { Model } from './api/model.js'
import type { Ports } from './api/ports.js'
import { claimLog } from './api/shared_log.js'
import { startServer, type RunningServer } from './api/server.js'
import type { Options } from './cli/flags.js'
import { OptionError, parseObject } from './cli/parse.js'
import { resolveSettings } from './cli/settings.js'
import { createLogger, openSink, type EventSink } from './log/index.js'
import { ServerError, type Core, type ErrorCode, type Fault } from './native/index.js'
import type { IndexRow, LoadFailure } from './repository/rows.js'

export { InferResult, Model, type InferOptions, type InferRequest, type ParameterValue } from './api/model.js'
export { Tensor, type TensorData, type TensorInput } from './api/tensor.js'
export { ServerError, type ErrorCode, type Fault, type IndexRow, type LoadFailure }

/** A front end to open. Port 0, the default, selects a free one: see `Server.ports`. */
export interface Endpoint {
  address?: string
  port?: number
}

/** A log record before formatting. */
export interface LogRecord {
  level: 'error' | 'warning' | 'info' | 'verbose'
  /** Wall clock in microseconds since 1970. */
  timeUs: number
  /** Raw text, with line feeds and text from clients: escape it for lines and terminals. At most 16 KiB. */
  message: string
  /** Place in the server's code: base name and line. */
  file: string
  line: number
}

type FlagOptions = { [K in keyof Options]?: Options[K] | (Options[K] extends (infer E)[] ? E : never) }

/** Every command-line option in camelCase, with the same checks and texts; see docs/flags.md. */
export interface ServerOptions extends Omit<FlagOptions, 'help' | 'version' | 'config' | 'backendConfig'> {
  modelRepository: string | string[]
  /** Settings as on the command line, or by backend: `{ onnxruntime: { 'default-max-batch-size': '4' } }`. */
  backendConfig?: string | string[] | Record<string, Record<string, string>>
  /**
   * Front ends; off by default. Alternatively `httpPort`, `httpAddress` or `allowHttp: true` open HTTP as on the
   * command line, likewise for the others; they cannot be combined with `http`.
   */
  http?: false | Endpoint
  grpc?: false | Endpoint
  metrics?: false | Endpoint
  /** Receives formatted log lines instead of the console or `logFile`. */
  log?: (line: string) => void
  /**
   * Receives each log record instead of the console; `log` and `logFile` still get lines. `logInfo` (here false by
   * default), `logWarning`, `logError` and `logVerbose` select the records. If it throws, the record counts as lost.
   */
  onLog?: (record: LogRecord) => void
}

/** Overrides of a load request. */
export interface LoadOptions {
  /** The configuration as JSON text or as an object of that form. */
  config?: string | object
  /** Files that replace the model directory, by relative path: `1/model.onnx`. Needs `config`. */
  files?: Readonly<Record<string, Uint8Array>>
}

/** Internal: gives `nereid/embed` access to the core of a server. */
export const CORE: unique symbol = Symbol('core')

export class Server {
  readonly #running: RunningServer
  readonly #exitTimeoutMs: number
  /** Releases the claim on the process after the server has stopped. */
  readonly #release: () => void
  /** Ports that are bound; 0 if the front end is off. */
  readonly ports: Readonly<Ports>
  /** Set by the first call of `stop`. */
  #stopping: Promise<number> | null = null
  #stopped = false
  #isEmbedded = false

  private constructor(running: RunningServer, ports: Ports, exitTimeoutMs: number, release: () => void) {
    this.#running = running
    this.#release = release
    this.ports = ports
    this.#exitTimeoutMs = exitTimeoutMs
  }

  /**
   * Starts a server and loads its startup models. Logs only warnings and errors by default (`logInfo`).
   *
   * @throws {ServerError} `INVALID_ARG` for invalid options, or if memory limits or log differ from those of another
   * running server of this process, in any thread: both are process-wide; `INTERNAL` when a startup model fails and
   * `exitOnError` is not false.
   */
  static async start(options: ServerOptions): Promise<Server> {
    asObject('options', options)
    const { log, onLog, ...rest } = options
    for (const [name, take] of Object.entries({ log, onLog })) {
      if (take !== undefined && typeof take !== 'function') throw wrong(name, 'a function', take)
    }
    const resolved = resolveOptions(rest)
    const { settings } = resolved
    const release = claimLog({ log: log ?? settings.log.file, onLog: onLog ?? null })
    try {
      return await Server.#started(resolved, sinkOf(settings.log.file, log, onLog), release)
    } catch (error) {
      release()
      throw error
    }
  }

  static async #started(
    resolved: ReturnType<typeof resolveOptions>,
    sink: EventSink,
    release: () => void,
  ): Promise<Server> {
    const { settings } = resolved
    const logger = createLogger(settings.log, sink)
    for (const warning of resolved.warnings) logger.warning(warning)
    if (resolved.inactive.length > 0) {
      logger.warning(`accepted, without effect in this release: ${resolved.inactive.join(', ')}`)
    }
    const running = await startServer(settings, logger)
    try {
      if (running.failures.length > 0 && settings.exitOnError) {
        const reasons = running.failures.map(({ model, reason }) => `${model}: ${reason.trimEnd()}`).join('; ')
        throw new ServerError('INTERNAL', `failed to load all models: ${reasons}`)
      }
      return new Server(running, await running.listen(), resolved.exitTimeoutSecs * 1000, release)
    } catch (error) {
      await running.stop(0)
      throw error
    }
  }

  /** Startup models that failed; only with `exitOnError: false`. */
  get failures(): readonly LoadFailure[] {
    return this.#running.failures.map(({ model, reason }) => ({ model, reason }))
  }

  /** The running server, or an error after `stop`. */
  get #serving(): RunningServer {
    if (this.#stopping !== null) throw new ServerError('UNAVAILABLE', 'Server exiting')
    return this.#running
  }

  /** Internal: the core for `nereid/embed`, ready to take requests of another server. */
  [CORE](): Core {
    const { core, embedded } = this.#serving
    if (!this.#isEmbedded) core.openEmbedded(embedded)
    this.#isEmbedded = true
    return core
  }

  /** False after `stop`, and if the model repository cannot be read (`exitOnError: false`). */
  live(): boolean {
    return this.#stopping === null && this.#running.unusable === null
  }

  /** False after `stop`. */
  ready(): boolean {
    return this.#stopping === null && this.#running.core.isReady()
  }

  /** Readiness as GET /v2/health/ready reports it; waits up to 5 s for models whose own code decides. */
  async askReady(): Promise<boolean> {
    return this.#stopping === null && (await this.#running.core.askReady('', ''))
  }

  /** The body of GET /v2. */
  metadata(): unknown {
    return JSON.parse(this.#serving.core.serverMetadata())
  }

  /** A model by name, by default in its highest ready version. A missing model is reported by the first request. */
  model(name: string, version: string | number = ''): Model {
    if (typeof version !== 'string') asDimension('version', version)
    return new Model(this.#serving.core, asString('name', name), String(version), () => this.#stopping !== null)
  }

  index(options: { ready?: boolean } = {}): IndexRow[] {
    return this.#serving.repository.index(options.ready === true)
  }

  /**
   * Loads a model, `modelControlMode: 'explicit'` only.
   *
   * @throws {ServerError} with the class and text of the network API.
   */
  async load(name: string, options: LoadOptions = {}): Promise<void> {
    const { repository } = this.#serving
    const { config, files = {} } = options
    if (config !== undefined && typeof config !== 'string') asObject('config', config)
    const entries = Object.entries(asObject('files', files)).map(([path, content]): [string, Uint8Array] => {
      if (!(content instanceof Uint8Array)) throw wrong(`files.${path}`, 'a Uint8Array', content)
      return [path, content]
    })
    await repository.load(asString('name', name), {
      config: config === undefined ? null : typeof config === 'string' ? config : JSON.stringify(config),
      files: new Map(entries),
    })
  }

  /**
   * Unloads a model, `modelControlMode: 'explicit'` only. Running requests finish. Ensembles that need it stop serving
   * until it is loaded again. `unloadDependents` also unloads models that were loaded only for this ensemble.
   */
  async unload(name: string, { unloadDependents = false }: { unloadDependents?: boolean } = {}): Promise<void> {
    await this.#serving.repository.unload(asString('name', name), unloadDependents)
  }

  /**
   * Adds a model repository, `modelControlMode: 'explicit'` only. Nothing is loaded yet. `models` maps model names to
   * directories in it.
   *
   * @throws {ServerError} `ALREADY_EXISTS`, or `INVALID_ARG` when it is not a directory or a name is taken.
   */
  registerRepository(path: string, { models = {} }: { models?: Readonly<Record<string, string>> } = {}): void {
    const names = Object.entries(asObject('models', models)).map(([name, directory]): [string, string] => [
      name,
      asString(`models.${name}`, directory),
    ])
    this.#serving.repository.register(asString('path', path), new Map(names))
  }

  /** Removes a model repository, `modelControlMode: 'explicit'` only. Models loaded from it keep serving. */
  unregisterRepository(path: string): void {
    this.#serving.repository.unregister(asString('path', path))
  }

  /** Polls the repositories now, regardless of the interval. */
  async poll(): Promise<void> {
    await this.#serving.repository.poll()
  }

  /** The Prometheus exposition. Also available while the server stops, so that operators can watch it. */
  async metricsText(): Promise<string> {
    if (this.#stopped) throw new ServerError('UNAVAILABLE', 'Server exiting')
    return await this.#running.metrics()
  }

  /**
   * Stops the server: new requests fail at once, running ones get `timeoutMs`. Resolves with the number of unfinished
   * ones; a second call waits for the first. From then on every method rejects with UNAVAILABLE, also those of models.
   */
  async stop(options: { timeoutMs?: number } = {}): Promise<number> {
    const timeoutMs = options.timeoutMs ?? this.#exitTimeoutMs
    if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0))
      throw wrong('timeoutMs', 'a number of at least 0', timeoutMs)
    this.#stopping ??= this.#running.stop(timeoutMs).finally(() => {
      this.#stopped = true
      this.#release()
    })
    return await this.#stopping
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }
}

function sinkOf(file: string, log: ServerOptions['log'], onLog: ServerOptions['onLog']): EventSink {
  if (onLog === undefined) return log ?? openSink(file)
  const lines = log ?? (file === '' ? null : openSink(file))
  return (text, problem, { severity: level, timeUs, message, file, line }) => {
    try {
      onLog({ level, timeUs, message, file, line })
    } finally {
      lines?.(text, problem)
    }
  }
}

function resolveOptions(options: Omit<ServerOptions, 'log' | 'onLog'>): ReturnType<typeof resolveSettings> {
  const { http, grpc, metrics, backendConfig, ...flags } = options
  const object = {
    // A library logs only problems by default.
    logInfo: false,
    ...flags,
    ...endpointFlags('http', http, flags),
    ...endpointFlags('grpc', grpc, flags),
    ...endpointFlags('metrics', metrics, flags),
    backendConfig: flattenBackendConfig(backendConfig),
  }
  try {
    return resolveSettings(parseObject(object))
  } catch (error) {
    if (error instanceof OptionError) throw new ServerError('INVALID_ARG', error.message, { cause: error })
    throw error
  }
}

function endpointFlags(
  name: 'http' | 'grpc' | 'metrics',
  endpoint: false | Endpoint | undefined,
  flags: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const allow = `allow${name[0]?.toUpperCase()}${name.slice(1)}`
  const isGiven = (flag: string): boolean => flags[flag] !== undefined && flags[flag] !== null
  const given = [`${name}Port`, `${name}Address`, allow].filter(isGiven)
  if (endpoint === undefined) return { [allow]: flags[allow] ?? given.length > 0 }
  if (given.length > 0) {
    const advice = 'both set whether and where a port opens: give only one of them'
    throw new ServerError('INVALID_ARG', `${name} and ${given.join(', ')} were given: ${advice}`)
  }
  if (endpoint === false) return { [allow]: false }
  const { address, port = 0 } = asObject(name, endpoint)
  return { [allow]: true, [`${name}Port`]: port, [`${name}Address`]: address }
}

function flattenBackendConfig(config: ServerOptions['backendConfig']): string[] {
  if (config === undefined) return []
  if (typeof config === 'string') return [config]
  if (Array.isArray(config)) return config
  return Object.entries(config).flatMap(([backend, pairs]) =>
    Object.entries(pairs).map(([key, value]) => `${backend},${key}=${value}`),
  )
}

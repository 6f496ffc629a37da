/// <reference lib="esnext.disposable" preserve="true" />
/// <reference types="node" preserve="true" />
/**
 * The in-process API: a whole server inside a Node program, no ports unless asked for.
 *
 * ```ts
 * await using server = await Server.start({ modelRepository: ['./models'] })
 * const result = await server.model('simple').infer({ inputs: { INPUT0: { data: new Int32Array(16), shape: [1, 16] } } })
 * result.output('OUTPUT0').data // Int32Array
 * ```
 */

import { asDimension, asObject, asString, wrong } from './api/check.js'
import { Model } from './api/model.js'
import type { Ports } from './api/ports.js'
import { claimProcess } from './api/process_wide.js'
import { startServer, type RunningServer } from './api/server.js'
import type { Options } from './cli/flags.js'
import { OptionError, parseObject } from './cli/parse.js'
import { resolveSettings } from './cli/settings.js'
import { createLogger, openSink, type EventSink } from './log/index.js'
import { ServerError, type Core, type ErrorCode } from './native/index.js'
import type { IndexRow, LoadFailure } from './repository/rows.js'

export { InferResult, Model, type InferOptions, type InferRequest, type ParameterValue } from './api/model.js'
export { Tensor, type TensorData, type TensorInput } from './api/tensor.js'
export { ServerError, type ErrorCode, type IndexRow, type LoadFailure }

/** A front end to open. Port 0, the default, picks a free one: see `Server.ports`. */
export interface Endpoint {
  address?: string
  port?: number
}

/** A line of the log, before it was made a line. */
export interface LogRecord {
  level: 'error' | 'warning' | 'info' | 'verbose'
  /** Wall clock in microseconds since 1970. */
  timeUs: number
  /** As it is: with line feeds, and with what clients have sent. Escape it where a line or a terminal could be misled. 16 KiB at most. */
  message: string
  /** The place in the server's code: base name and line. */
  file: string
  line: number
}

type FlagOptions = { [K in keyof Options]?: Options[K] | (Options[K] extends (infer E)[] ? E : never) }

/** Every command-line option in camelCase, with the same checks and texts; see docs/flags.md. */
export interface ServerOptions extends Omit<FlagOptions, 'help' | 'version' | 'config' | 'backendConfig'> {
  modelRepository: string | string[]
  /** As on the command line, or by backend: `{ onnxruntime: { 'default-max-batch-size': '4' } }`. */
  backendConfig?: string | string[] | Record<string, Record<string, string>>
  /**
   * Front ends; off unless given. `httpPort`, `httpAddress` or `allowHttp: true` open HTTP as on the command line, and likewise the others; none of
   * them can be given beside `http`.
   */
  http?: false | Endpoint
  grpc?: false | Endpoint
  metrics?: false | Endpoint
  /** Takes finished log lines instead of the console or `logFile`. */
  log?: (line: string) => void
  /**
   * Takes each record of the log instead of the console; `log` and `logFile` get their lines all the same. Which records there are is up to `logInfo` (false
   * unless given), `logWarning`, `logError` and `logVerbose`. One that it throws for is counted as lost.
   */
  onLog?: (record: LogRecord) => void
}

/** A load request's overrides. */
export interface LoadOptions {
  /** The configuration in JSON form, or as an object of that form. */
  config?: string | object
  /** Files that replace the model directory, by path in it: `1/model.onnx`. Needs `config`. */
  files?: Readonly<Record<string, Uint8Array>>
}

/** Not part of the API: what `nereid/embed` needs of a server. */
export const CORE: unique symbol = Symbol('core')

export class Server {
  readonly #running: RunningServer
  readonly #exitTimeoutMs: number
  /** To be called once it has stopped. */
  readonly #release: () => void
  /** Ports that are bound; 0 where nothing listens. */
  readonly ports: Readonly<Ports>
  /** Set when `stop` was called. */
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
   * Starts a server and loads its start-up models. Logs warnings and errors only, unless `logInfo` says otherwise.
   *
   * @throws {ServerError} `INVALID_ARG` for bad options, and for another memory limit or log than that of a server of this process, in any of its threads, that still
   * runs: both are the process's; `INTERNAL` when a start-up model fails and `exitOnError` is not false.
   */
  static async start(options: ServerOptions): Promise<Server> {
    asObject('options', options)
    const { log, onLog, ...rest } = options
    for (const [name, take] of Object.entries({ log, onLog })) {
      if (take !== undefined && typeof take !== 'function') throw wrong(name, 'a function', take)
    }
    const resolved = resolveOptions(rest)
    const { settings } = resolved
    const { memoryLimitBytes, deviceMemory } = settings.core
    const release = claimProcess({ memoryLimitBytes, deviceMemory, log: log ?? settings.log.file, onLog: onLog ?? null })
    try {
      return await Server.#started(resolved, sinkOf(settings.log.file, log, onLog), release)
    } catch (error) {
      release()
      throw error
    }
  }

  static async #started(resolved: ReturnType<typeof resolveOptions>, sink: EventSink, release: () => void): Promise<Server> {
    const { settings } = resolved
    const logger = createLogger(settings.log, sink)
    for (const warning of resolved.warnings) logger.warning(warning)
    if (resolved.inactive.length > 0) {
      logger.warning(`accepted and not active in this release: ${resolved.inactive.join(', ')}`)
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

  /** Start-up models that failed; only with `exitOnError: false`. */
  get failures(): readonly LoadFailure[] {
    return this.#running.failures
  }

  /** The server, as long as it serves. */
  get #serving(): RunningServer {
    if (this.#stopping !== null) throw new ServerError('UNAVAILABLE', 'Server exiting')
    return this.#running
  }

  /** For `nereid/embed`: the core, ready to take requests of another server. */
  [CORE](): Core {
    const { core, embedded } = this.#serving
    if (!this.#isEmbedded) core.openEmbedded(embedded)
    this.#isEmbedded = true
    return core
  }

  /** False from `stop` on, and for a server whose repository can not be read (`exitOnError: false`). */
  live(): boolean {
    return this.#stopping === null && this.#running.unusable === null
  }

  /** False from `stop` on. */
  ready(): boolean {
    return this.#stopping === null && this.#running.core.isReady()
  }

  /** As GET /v2/health/ready answers: models whose own code says whether they are ready are asked, 5 s at most. */
  async askReady(): Promise<boolean> {
    return this.#stopping === null && (await this.#running.core.askReady('', ''))
  }

  /** The body of GET /v2. */
  metadata(): unknown {
    return JSON.parse(this.#serving.core.serverMetadata())
  }

  /** A model by name; its greatest ready version unless one is given. Whether it exists shows at the first use. */
  model(name: string, version: string | number = ''): Model {
    if (typeof version !== 'string') asDimension('version', version)
    return new Model(this.#serving.core, asString('name', name), String(version), () => this.#stopping !== null)
  }

  /** The repository index. */
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
   * Unloads a model, `modelControlMode: 'explicit'` only. Requests in flight finish. Ensembles that need it stop serving, and come back
   * with it. `unloadDependents` takes along what was loaded only because this ensemble needs it.
   */
  async unload(name: string, { unloadDependents = false }: { unloadDependents?: boolean } = {}): Promise<void> {
    await this.#serving.repository.unload(asString('name', name), unloadDependents)
  }

  /**
   * Adds a model repository, `modelControlMode: 'explicit'` only. Nothing is loaded yet. `models` gives directories in it other names:
   * model name → directory.
   *
   * @throws {ServerError} `ALREADY_EXISTS`, or `INVALID_ARG` when it is no directory or a name is taken.
   */
  registerRepository(path: string, { models = {} }: { models?: Readonly<Record<string, string>> } = {}): void {
    const names = Object.entries(asObject('models', models)).map(([name, directory]): [string, string] => [name, asString(`models.${name}`, directory)])
    this.#serving.repository.register(asString('path', path), new Map(names))
  }

  /** Forgets a model repository, `modelControlMode: 'explicit'` only. What was loaded from it serves on. */
  unregisterRepository(path: string): void {
    this.#serving.repository.unregister(asString('path', path))
  }

  /** Looks at the repositories now, whatever the interval. */
  async poll(): Promise<void> {
    await this.#serving.repository.poll()
  }

  /** The Prometheus exposition. Also while the server stops: operators watch that through it. */
  async metricsText(): Promise<string> {
    if (this.#stopped) throw new ServerError('UNAVAILABLE', 'Server exiting')
    return await this.#running.metrics()
  }

  /**
   * Ends the server: new requests fail at once, those in flight get `timeoutMs`. Resolves with how many did not finish; a second
   * call waits for the first. From now on every method fails as UNAVAILABLE, also those of models.
   */
  async stop(options: { timeoutMs?: number } = {}): Promise<number> {
    const timeoutMs = options.timeoutMs ?? this.#exitTimeoutMs
    if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0)) throw wrong('timeoutMs', 'a number of at least 0', timeoutMs)
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

/** Where log lines and records go. */
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
    // A library is quiet about what goes well.
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

function endpointFlags(name: 'http' | 'grpc' | 'metrics', endpoint: false | Endpoint | undefined, flags: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const allow = `allow${name[0]?.toUpperCase()}${name.slice(1)}`
  const given = [`${name}Port`, `${name}Address`, allow].filter((flag) => flags[flag] !== undefined && flags[flag] !== null)
  if (endpoint === undefined) return { [allow]: flags[allow] ?? given.length > 0 }
  if (given.length > 0) throw new ServerError('INVALID_ARG', `${name} and ${given.join(', ')} were given: both say whether a port is open and where, so give one of them`)
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

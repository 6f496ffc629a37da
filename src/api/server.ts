/**
 * Starts and stops one server: core, repository, control operations, listeners and metrics.
 *
 * The command line and the in-process API both use it; it knows no flags, terminals or exit codes. Ports are bound
 * before models load, so that errors appear at once, and open after the startup models were loaded.
 */

import type { Logger, LogSettings } from '../log/index.js'
import type { ExpositionFormat } from '../metrics/exposition.js'
import { metricsText } from '../metrics/index.js'
import type { MetricsServer } from '../metrics/server.js'
import type { MetricsConfig, MetricsSettings } from '../metrics/settings.js'
import type {
  ControlOptions,
  CoreOptions,
  GrpcOptions,
  HttpOptions,
  ListenOptions,
  RequestLogOptions,
} from '../native/contract.js'
import { asServerError, createCore, type Core, ServerError } from '../native/index.js'
import {
  removeUnpacked,
  Repository,
  Stores,
  unpackPrefix,
  type LoadEvent,
  type RepositorySettings,
  type StartFailure,
} from '../repository/index.js'
import { answerControl, type ControlContext } from './control.js'
import { followIssuerKeys, type IssuerKeys, type KeysSettings } from './issuer_keys.js'
import { findOnnxRuntime } from '../native/onnxruntime.js'
import { BindError } from './bind_error.js'
import type { Ports } from './ports.js'
import { javaScriptProcess, workerHost } from './javascript.js'
import { libraryProcess } from './library_process.js'
import { pythonRuntime } from './python.js'
import { openExporter, TraceDrain } from '../trace/index.js'
import type { TraceDefaults } from '../trace/settings.js'
import { TraceSettings, type Sampling } from './trace_settings.js'

/** Time that code of models gets to finalize after the exit timeout. */
const FINALIZE_MS_MIN = 2000

/** A reload of a JavaScript model takes one worker to complete the configuration, and one for an instance. */
const SPARE_WORKERS = 2

/** Interval of checks whether sequences are still in progress during an exit. */
const SEQUENCES_POLL_MS = 20

export interface ServerSettings {
  /** Set by `nereid dev`: errors about a model have the reason why it does not serve, and the caller logs loads. */
  development: boolean
  /** If false, a server whose repository cannot be read stays up, neither live nor ready. */
  exitOnError: boolean
  /** Open the ports while the startup models load. */
  listenEarly: boolean
  /** Settings that are known before the start. With `exitOnDeviceError`, the caller ends the process. */
  core: Pick<
    CoreOptions,
    'engine' | 'memoryLimitBytes' | 'deviceMemory' | 'responseCacheRedis' | 'responseCacheLibrary'
  >
  listen: Omit<ListenOptions, 'http' | 'openai' | 'grpc' | 'control'>
  requestLog: RequestLogOptions
  /** null = management operations share the other listeners. */
  control: ControlOptions | null
  /** Keys that both ports require; null = no authentication. */
  keys: KeysSettings | null
  http: HttpOptions | null
  /** `--openai-port`; null = off. */
  openai: HttpOptions | null
  /** For embedded HTTP requests: as `http`, except for what concerns sockets. */
  embeddedHttp: HttpOptions
  grpc: GrpcOptions | null
  /** For embedded gRPC calls, likewise. */
  embeddedGrpc: GrpcOptions
  metrics: MetricsSettings | null
  metricsConfig: MetricsConfig
  trace: TraceDefaults
  log: LogSettings
  repository: RepositorySettings
}

/** Callbacks during the start. */
export interface StartHooks {
  observe?: (event: LoadEvent) => void
  /** Ports are bound. `release` frees them, for a process that is ended before it serves. */
  bound?: (release: () => void) => void
  /** Ports opened before the models are loaded. */
  listening?: (ports: Ports) => void
}

export interface StopOptions {
  /** How long connections are still accepted, within the timeout, because load balancers react late. Default 0. */
  graceMs?: number
  /** Called when a grace period begins; there is none if no client could need it. */
  leaving?: (graceMs: number) => void
  /** Called each second while requests are running. */
  progress?: (secondsLeft: number, inFlight: number) => void
}

export interface RunningServer {
  core: Core
  repository: Repository
  /** Startup models that failed. */
  failures: StartFailure[]
  /** The first GPU that failed permanently, and why; pending while all work. */
  deviceFailure: Promise<string>
  /** Why the repository cannot be used; only with `exitOnError: false`. The server is then neither live nor ready. */
  unusable: ServerError | null
  /** Options for requests that another server of this process receives. */
  embedded: ListenOptions
  /** Opens the ports, unless they are open. */
  listen(): Promise<Ports>
  /** Rereads keys (also an issuer's) and certificates, and reopens rotated request logs; returns files and URL. */
  reread(): string[]
  /** Renders the exposition of a scrape. */
  metrics(format?: ExpositionFormat): Promise<string>
  /**
   * Stops the server. It is not ready at once. During a grace period listeners stay open and reject inferences
   * (inherited sockets are closed instead, and existing connections served); requests of sequences in progress are
   * still accepted. Then waits for running requests and closes. Resolves with the number of unfinished ones.
   */
  stop(timeoutMs: number, options?: StopOptions): Promise<number>
}

/** True if the owner of the front ends' sockets keeps them open when this server ends. */
function isHandedOver({ http, grpc }: ServerSettings): boolean {
  const open = [http, grpc].filter((one) => one !== null)
  return open.length > 0 && open.every((one) => one.givenFd !== null)
}

/** Most warnings that are remembered. */
const WARNINGS_MAX = 1000

/** Logs these levels; each warning once: a model that is loaded again and again repeats its warnings. */
function newWarnings(log: Logger['log'], levels: readonly string[]): Logger['log'] {
  const logged = new Set<string>()
  return (level, message) => {
    if (!levels.includes(level) || logged.has(message)) return
    if (level === 'warning' && logged.size < WARNINGS_MAX) logged.add(message)
    log(level, message)
  }
}

/**
 * Binds all ports, so that errors are known before models load.
 *
 * @throws {BindError} naming all services that cannot be started.
 */
function bindPorts(core: Core, settings: ServerSettings, ports: Ports): void {
  const { metrics } = settings
  const isOwn = metrics?.isServed === true && metrics.givenFd === null
  const own = isOwn ? { address: metrics.address, port: metrics.port } : null
  const { failures, ...bound } = core.bind(listenOptions(settings), own)
  if (failures.length > 0) throw new BindError(failures, settings)
  ports.http = bound.httpPort
  ports.openai = bound.openaiPort
  ports.grpc = bound.grpcPort
  ports.control = bound.controlPort
  ports.metrics = bound.metricsPort
}

function listenOptions({ listen, http, openai, grpc, control }: ServerSettings): ListenOptions {
  return { ...listen, http, openai, grpc, control }
}

/**
 * Creates the core, binds the ports, and loads the startup models. Opens the ports only with `listenEarly`.
 *
 * @throws {ServerError} when the core cannot be used, keys, certificates or logs cannot be read, or the repository
 * cannot be read and `exitOnError` is set; a `BindError` with all services that cannot be started.
 */
export async function startServer(
  settings: ServerSettings,
  logger: Logger,
  { observe = () => {}, bound = () => {}, listening = () => {} }: StartHooks = {},
): Promise<RunningServer> {
  let unusable: ServerError | null = null
  let isLoading = true
  let deviceFailed: (failure: string) => void = () => {}
  const deviceFailure = new Promise<string>((resolve) => {
    deviceFailed = resolve
  })
  const pythonUnpackPrefix = unpackPrefix()
  const guards = { hasKeys: settings.keys !== null, restrictions: settings.embeddedHttp.restrictions }
  const stores = new Stores(settings.repository, logger.log)
  const roots = await stores.prepare()
  // The core calls back when models load, at the earliest; everything that is needed exists by then.
  const core = createCore(
    {
      ...settings.core,
      engine: { ...settings.core.engine, reasonsInErrors: settings.development },
      onnxruntimeLibrary: findOnnxRuntime(),
      customMetrics: settings.metrics !== null,
      gpuMetricsIntervalMs: settings.metrics?.gpu === true ? settings.metrics.intervalMs : null,
      python: {
        runtime: pythonRuntime(),
        unpackPrefix: pythonUnpackPrefix,
        // Only in this mode can clients load a configuration that names a path.
        environmentRoots:
          settings.repository.mode === 'explicit' ? [...roots, settings.repository.backendDirectory] : null,
      },
      javascript: javaScriptProcess(),
      // Links are removed with what was unpacked.
      libraries: libraryProcess(pythonUnpackPrefix, settings.repository),
    },
    (call) => void answerControl(controls(), call),
    (record) => logger.record(record),
    () => drain.wake(),
    (failure) => deviceFailed(failure),
    workerHost(logger.log, settings.development ? SPARE_WORKERS : 0),
  )
  const controls = (): ControlContext => ({
    core,
    repository,
    trace,
    logger,
    guards,
    isExplicit: settings.repository.mode === 'explicit',
    metricsPort: () => metricsServer?.port ?? 0,
    grpcPort: () => ports.grpc,
    metrics: () => {
      if (settings.metrics !== null) return metrics()
      throw new ServerError('NOT_FOUND', 'metrics are turned off (--allow-metrics=false)')
    },
    unusable: () => unusable !== null,
    loading: () => isLoading,
  })
  const closeCore = async (graceMs: number): Promise<void> => {
    await core.close(graceMs)
    // The last lines of the core, and of processes that have ended, are queued for this thread.
    await new Promise((done) => setImmediate(done))
  }
  core.setVerboseLevel(logger.settings.verbose)
  core.setServerState('initializing')
  const ports: Ports = { http: 0, openai: 0, grpc: 0, control: 0, metrics: 0 }
  try {
    if (settings.keys !== null) core.openKeys(settings.keys.file, settings.keys.issuer)
    // Even without listeners: embedded requests are logged too.
    core.openLogs(settings.requestLog, settings.listen.reactorThreads)
    bindPorts(core, settings, ports)
  } catch (error) {
    await closeCore(0)
    await stores.close()
    throw error
  }
  bound(() => {
    core.unbind()
    stores.abandon()
  })
  const { log } = logger
  // In development, the caller prints why a model does not load.
  const [logRepository, logLoad] = settings.development
    ? [newWarnings(log, ['warning', 'error']), newWarnings(log, ['warning'])]
    : [log, log]
  const agentHost = libraryProcess('', { ...settings.repository, hostPerModel: false })
  const repository = new Repository(core, settings.repository, logRepository, observe, stores, logLoad, agentHost)
  // Imported while models load, so that all ports open together.
  const metricsModule = settings.metrics?.isServed === true ? import('../metrics/server.js') : null
  const exporter = openExporter(settings.trace, logger.log)
  const drain = new TraceDrain(core, exporter, logger.log)
  const sampling: Sampling = {
    set(model, setting, fields) {
      if (setting !== null) exporter.settingBegan(setting.number, fields)
      core.setTraceSetting(model, setting)
    },
    left: (model) => core.traceCountLeft(model),
  }
  const trace = new TraceSettings(settings.trace, (name) => repository.isServing(name), sampling)
  const metrics = metricsText(settings, core, repository, logger, drain)
  let metricsServer: MetricsServer | null = null
  let issuerKeys: IssuerKeys | null = null
  let isOpen = false
  const listen = async (): Promise<Ports> => {
    if (isOpen) return ports
    isOpen = true
    // First, so that a client that finds the server live also finds its metrics.
    if (settings.metrics?.isServed === true && metricsModule !== null) {
      const { startMetricsServer } = await metricsModule
      const { address, port, givenFd } = settings.metrics
      const socket = givenFd ?? core.takeMetricsSocket()
      metricsServer = await startMetricsServer(address, ports.metrics === 0 ? port : ports.metrics, metrics, socket)
      ports.metrics = metricsServer.port
    }
    const keysUrl = settings.keys?.keysUrl ?? null
    if (keysUrl !== null) issuerKeys = await followIssuerKeys(core, keysUrl, logger)
    await core.listen()
    return ports
  }
  /** Closes everything after a failed start. */
  const abort = async (): Promise<void> => {
    issuerKeys?.stop()
    await metricsServer?.close()
    await closeCore(0)
    await repository.endAgents(FINALIZE_MS_MIN)
    await stores.close()
  }
  if (settings.listenEarly) {
    core.setServerState('loading')
    try {
      listening(await listen())
    } catch (error) {
      await abort()
      throw error
    }
  }
  let failures: StartFailure[] = []
  try {
    failures = await repository.start()
  } catch (error) {
    if (settings.exitOnError) {
      await abort()
      removeUnpacked(pythonUnpackPrefix)
      throw error
    }
    unusable = asServerError(error)
    core.setServerState('failed')
    const text = 'the server stays up and is neither live nor ready (--exit-on-error=false)'
    logger.error(`${text}: ${unusable.message}`)
  }
  isLoading = false
  if (unusable === null) {
    core.setServerState('ready')
    repository.startPolling()
    for (const { alias, model } of settings.core.engine.textAliases) {
      const name = model.replace(/:\d+$/, '')
      if (repository.isServing(name)) continue
      logger.warning(`--text-alias: '${alias}' means model '${name}', which does not serve now`)
    }
  }

  return {
    core,
    repository,
    failures,
    deviceFailure,
    unusable,
    metrics,
    embedded: {
      ...listenOptions(settings),
      http: settings.embeddedHttp,
      openai: null,
      grpc: settings.embeddedGrpc,
      control: null,
    },
    listen,
    reread: () => [...core.reread(), ...(issuerKeys === null ? [] : [issuerKeys.refresh()])],
    async stop(timeoutMs, { graceMs = 0, leaving = () => {}, progress = () => {} } = {}) {
      repository.stop()
      const deadline = performance.now() + timeoutMs
      const grace = Math.min(graceMs, timeoutMs)
      if (grace > 0 && isHandedOver(settings)) {
        // New connections wait in the sockets for the next server; existing ones are served and closed.
        core.handOver()
        for (const end = performance.now() + grace; core.connections() > 0 && performance.now() < end;) {
          await new Promise((done) => setTimeout(done, SEQUENCES_POLL_MS))
        }
      }
      if (grace > 0 && !isHandedOver(settings) && core.leave()) {
        leaving(grace)
        await new Promise((done) => setTimeout(done, grace))
      }
      core.setServerState('exiting')
      // Sequences continue, and their clients may have to reconnect: the ports stay open.
      for (let second = performance.now(); core.sequences() > 0 && performance.now() < deadline;) {
        await new Promise((done) => setTimeout(done, SEQUENCES_POLL_MS))
        if (performance.now() - second < 1000) continue
        second = performance.now()
        progress(Math.ceil((deadline - second) / 1000), core.sequences())
      }
      const idle = core.sequences()
      if (idle > 0) logger.warning(`${idle} sequences in progress are over: --exit-timeout-secs has passed`)
      let inFlight: number
      for (;;) {
        // Loads are among the requests in flight, and imported code may never end.
        core.endStartingWorkers(null)
        const left = Math.max(0, deadline - performance.now())
        inFlight = await core.drain(Math.min(1000, left))
        if (inFlight === 0 || left <= 1000) break
        progress(Math.ceil((deadline - performance.now()) / 1000), inFlight)
      }
      issuerKeys?.stop()
      // Last, because operators watch the drain through it.
      await metricsServer?.close()
      await repository.unloadAgents(Math.max(FINALIZE_MS_MIN, deadline - performance.now()))
      await closeCore(Math.max(FINALIZE_MS_MIN, deadline - performance.now()))
      await repository.endAgents(Math.max(FINALIZE_MS_MIN, deadline - performance.now()))
      await drain.close()
      // The processes that used the unpacked environments have ended.
      removeUnpacked(pythonUnpackPrefix)
      await stores.close()
      return inFlight
    },
  }
}

/**
 * Puts one server together: core, repository, control operations, listeners, metrics; and takes it apart again.
 *
 * The command line and the in-process API both stand on this; neither argv nor terminals nor exit codes are known
 * here. Ports are bound before models load, so that what is wrong with them shows at once, and open after the start-up models had their
 * chance.
 */

import type { Logger, LogSettings } from '../log/index.js'
import type { ExpositionFormat } from '../metrics/exposition.js'
import { metricsText } from '../metrics/index.js'
import type { MetricsServer } from '../metrics/server.js'
import type { MetricsConfig, MetricsSettings } from '../metrics/settings.js'
import type { ControlOptions, CoreOptions, FrontendOptions, ListenOptions, RequestLogOptions } from '../native/contract.js'
import { asServerError, createCore, type Core, type ServerError } from '../native/index.js'
import { removeUnpacked, Repository, Stores, unpackPrefix, type LoadEvent, type LoadFailure, type RepositorySettings } from '../repository/index.js'
import { answerControl } from './control.js'
import { EXTENSIONS, SERVER_VERSION } from './identity.js'
import { followIssuerKeys, type IssuerKeys, type KeysSettings } from './issuer_keys.js'
import { findOnnxRuntime } from '../native/onnxruntime.js'
import { BindError } from './bind_error.js'
import type { Ports } from './ports.js'
import { pythonRuntime } from './python.js'
import { openExporter, TraceDrain } from '../trace/index.js'
import type { TraceDefaults } from '../trace/settings.js'
import { TraceSettings, type Sampling } from './trace_settings.js'

/** What code of models has to finalize when the time to exit is up. */
const FINALIZE_MS_MIN = 2000

/** How often a server that exits looks whether sequences are still in progress. */
const SEQUENCES_POLL_MS = 20

export interface ServerSettings {
  /** When false, a server whose repository can not be read stays up, neither live nor ready. */
  exitOnError: boolean
  /** Ports open while the start-up models load. */
  listenEarly: boolean
  /** What flags and settings say to the core; the rest is known when it starts. `exitOnDeviceError`: ending the process is up to the caller. */
  core: Omit<CoreOptions, 'serverVersion' | 'extensions' | 'onnxruntimeLibrary' | 'customMetrics' | 'gpuMetricsIntervalMs' | `python${string}`>
  listen: Omit<ListenOptions, 'http' | 'grpc' | 'control'>
  requestLog: RequestLogOptions
  /** null = operations that manage the server are answered with the others. */
  control: ControlOptions | null
  /** Whose keys both ports ask for; null = everyone is let in. */
  keys: KeysSettings | null
  http: FrontendOptions | null
  /** Of requests that another server receives: what does not concern sockets is as in `http`. */
  embeddedHttp: FrontendOptions
  grpc: FrontendOptions | null
  /** Likewise, of calls that another server receives. */
  embeddedGrpc: FrontendOptions
  metrics: MetricsSettings | null
  metricsConfig: MetricsConfig
  trace: TraceDefaults
  log: LogSettings
  repository: RepositorySettings
}

/** What happens while a server starts. */
export interface StartHooks {
  observe?: (event: LoadEvent) => void
  /** Ports are bound. `release` gives them up: for a process that is ended before it serves. */
  bound?: (release: () => void) => void
  /** Ports are open before the models are loaded. */
  listening?: (ports: Ports) => void
}

export interface StopOptions {
  /** How long connections are still accepted, within the timeout: load balancers go on sending for a moment. Default 0. */
  graceMs?: number
  /** Called when a grace begins; there is none when no client could need it. */
  leaving?: (graceMs: number) => void
  /** Called each second while requests are in flight. */
  progress?: (secondsLeft: number, inFlight: number) => void
}

export interface RunningServer {
  core: Core
  repository: Repository
  /** Start-up models that failed. */
  failures: LoadFailure[]
  /** Which GPU failed first for good, and why; pending while all can be used. */
  deviceFailure: Promise<string>
  /** Why the repository can not be used at all; only with `exitOnError: false`. Such a server is neither live nor ready. */
  unusable: ServerError | null
  /** What a listener would be told: for requests that another server of this process receives. */
  embedded: ListenOptions
  /** Opens the ports, unless they are open. */
  listen(): Promise<Ports>
  /** Reads keys and certificates again, those of an issuer too, and opens logs of requests again that were moved away; returns the files and the URL. */
  reread(): string[]
  /** The exposition a scrape would get now. */
  metrics(format?: ExpositionFormat): Promise<string>
  /**
   * Not ready at once; keeps the listeners open for a grace, in which inferences are refused (of sockets that were given closes them
   * instead, and answers connections that are there), and as long as sequences are in
   * progress, whose requests are not; waits for requests in flight; ends everything. Resolves with the number that did not finish.
   */
  stop(timeoutMs: number, options?: StopOptions): Promise<number>
}

/** Whether whoever gave the sockets of the front ends keeps them open when this server ends. */
function isHandedOver({ http, grpc }: ServerSettings): boolean {
  const open = [http, grpc].filter((one) => one !== null)
  return open.length > 0 && open.every((one) => one.givenFd !== null)
}

/**
 * Binds everything, so that what is wrong is known before models load.
 *
 * @throws {BindError} naming all that can not be started.
 */
function bindPorts(core: Core, settings: ServerSettings, ports: Ports): void {
  const { metrics } = settings
  const own = metrics === null || metrics.givenFd !== null ? null : { address: metrics.address, port: metrics.port }
  const { failures, ...bound } = core.bind(listenOptions(settings), own)
  if (failures.length > 0) throw new BindError(failures, settings)
  ports.http = bound.httpPort
  ports.grpc = bound.grpcPort
  ports.control = bound.controlPort
  ports.metrics = bound.metricsPort
}

/** What listeners are told. */
function listenOptions({ listen, http, grpc, control }: ServerSettings): ListenOptions {
  return { ...listen, http, grpc, control }
}

/**
 * Creates the core, binds what the settings ask for, and loads the start-up models. Nothing listens yet, unless the settings ask for that.
 *
 * @throws {ServerError} when the core can not be used, keys, certificates and logs can not be read, or the repository can not and `exitOnError`
 * is set; a `BindError` with all services that can not be started.
 */
export async function startServer(settings: ServerSettings, logger: Logger, { observe = () => {}, bound = () => {}, listening = () => {} }: StartHooks = {}): Promise<RunningServer> {
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
  // The core calls back when models load, at the earliest: by then everything exists that an answer needs.
  const core = createCore(
    {
      ...settings.core,
      serverVersion: SERVER_VERSION,
      extensions: EXTENSIONS,
      onnxruntimeLibrary: findOnnxRuntime(),
      customMetrics: settings.metrics !== null,
      gpuMetricsIntervalMs: settings.metrics?.gpu === true ? settings.metrics.intervalMs : null,
      pythonRuntime: pythonRuntime(),
      pythonUnpackPrefix,
      // Only there can clients have a configuration read that names a place.
      pythonEnvironmentRoots: settings.repository.mode === 'explicit' ? [...roots, settings.repository.backendDirectory] : null,
    },
    (call) => void answerControl({ core, repository, trace, logger, guards, metricsPort: () => metricsServer?.port ?? 0, unusable: () => unusable !== null, loading: () => isLoading }, call),
    (record) => logger.record(record),
    () => drain.wake(),
    (failure) => deviceFailed(failure),
  )
  core.setVerboseLevel(logger.settings.verbose)
  core.setServerState('initializing')
  const ports: Ports = { http: 0, grpc: 0, control: 0, metrics: 0 }
  try {
    if (settings.keys !== null) core.openKeys(settings.keys.file, settings.keys.issuer)
    // Also without listeners: requests of other servers of this process have lines.
    core.openLogs(settings.requestLog, settings.listen.reactorThreads)
    bindPorts(core, settings, ports)
  } catch (error) {
    await core.close(0)
    await stores.close()
    throw error
  }
  bound(() => {
    core.unbind()
    stores.abandon()
  })
  const repository = new Repository(core, settings.repository, logger.log, observe, stores)
  // Read while models load, so that the ports open together.
  const metricsModule = settings.metrics === null ? null : import('../metrics/server.js')
  const exporter = openExporter(settings.trace, logger.log)
  const drain = new TraceDrain(core, exporter, logger.log)
  const sampling: Sampling = {
    set(model, setting, fields) {
      if (setting !== null) exporter.settingBegan(setting.setting, fields)
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
    // First, so that who finds the server live finds its metrics too.
    if (settings.metrics !== null && metricsModule !== null) {
      const { startMetricsServer } = await metricsModule
      const { address, port, givenFd } = settings.metrics
      metricsServer = await startMetricsServer(address, ports.metrics === 0 ? port : ports.metrics, metrics, givenFd ?? core.takeMetricsSocket())
      ports.metrics = metricsServer.port
    }
    const keysUrl = settings.keys?.keysUrl ?? null
    if (keysUrl !== null) issuerKeys = await followIssuerKeys(core, keysUrl, logger)
    await core.listen()
    return ports
  }
  /** Ends what does not serve yet. */
  const giveUp = async (): Promise<void> => {
    issuerKeys?.stop()
    await metricsServer?.close()
    await core.close(0)
    await stores.close()
  }
  if (settings.listenEarly) {
    core.setServerState('loading')
    try {
      listening(await listen())
    } catch (error) {
      await giveUp()
      throw error
    }
  }
  let failures: LoadFailure[] = []
  try {
    failures = await repository.start()
  } catch (error) {
    if (settings.exitOnError) {
      await giveUp()
      removeUnpacked(pythonUnpackPrefix)
      throw error
    }
    unusable = asServerError(error)
    core.setServerState('failed')
    logger.error(`the server stays up and is neither live nor ready, as --exit-on-error=false asks: ${unusable.message}`)
  }
  isLoading = false
  if (unusable === null) {
    core.setServerState('ready')
    repository.startPolling()
  }

  return {
    core,
    repository,
    failures,
    deviceFailure,
    unusable,
    metrics,
    embedded: { ...listenOptions(settings), http: settings.embeddedHttp, grpc: settings.embeddedGrpc, control: null },
    listen,
    reread: () => [...core.reread(), ...(issuerKeys === null ? [] : [issuerKeys.refresh()])],
    async stop(timeoutMs, { graceMs = 0, leaving = () => {}, progress = () => {} } = {}) {
      repository.stop()
      const deadline = performance.now() + timeoutMs
      const grace = Math.min(graceMs, timeoutMs)
      if (grace > 0 && isHandedOver(settings)) {
        // New connections wait in the sockets for the next server; those that are here are answered, and end.
        core.handOver()
        for (const end = performance.now() + grace; core.connections() > 0 && performance.now() < end; ) {
          await new Promise((done) => setTimeout(done, SEQUENCES_POLL_MS))
        }
      }
      core.setServerState('exiting')
      if (grace > 0 && !isHandedOver(settings) && core.leave()) {
        leaving(grace)
        await new Promise((done) => setTimeout(done, grace))
      }
      // Sequences that have begun go on, and their clients may have to connect again: connections end with their answers.
      for (let second = performance.now(); core.sequences() > 0 && performance.now() < deadline; ) {
        core.leave()
        await new Promise((done) => setTimeout(done, SEQUENCES_POLL_MS))
        if (performance.now() - second < 1000) continue
        second = performance.now()
        progress(Math.ceil((deadline - second) / 1000), core.sequences())
      }
      const idle = core.sequences()
      if (idle > 0) logger.warning(`${idle} sequences in progress are over: --exit-timeout-secs has passed`)
      let inFlight: number
      for (;;) {
        const left = Math.max(0, deadline - performance.now())
        inFlight = await core.drain(Math.min(1000, left))
        if (inFlight === 0 || left <= 1000) break
        progress(Math.ceil((deadline - performance.now()) / 1000), inFlight)
      }
      issuerKeys?.stop()
      // Last: operators watch the drain through it.
      await metricsServer?.close()
      await core.close(Math.max(FINALIZE_MS_MIN, deadline - performance.now()))
      await drain.close()
      // The processes that ran in them are gone.
      removeUnpacked(pythonUnpackPrefix)
      await stores.close()
      return inFlight
    },
  }
}

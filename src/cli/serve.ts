/**
 * Runs a server from a command line until a signal ends it. Owns the console, the signals and the exit code;
 * `src/api/server.ts` owns the server.
 *
 * Exit codes: 0 after a complete drain; 1 for a bad command line, a failed start, or requests left over; 3
 * if a GPU failed and `--exit-on-device-error` was given.
 */

import { closeSync, openSync } from 'node:fs'
import { isatty } from 'node:tty'
import { findOnnxRuntime } from '../native/onnxruntime.js'
import { isUnix } from '../api/address.js'
import { BindError } from '../api/bind_error.js'
import type { Ports } from '../api/ports.js'
import type { RunningServer } from '../api/server.js'
import { cleanCell, createLogger, openSink, type Logger, type Sink } from '../log/index.js'
import {
  asServerError,
  describeSocket,
  exitNow,
  nativeNote,
  preloadOnnxRuntime,
  ServerError,
  STATUS_NAMES,
} from '../native/index.js'
import { settingsOf, type RepositorySettings } from '../repository/settings.js'
import { helpText, usageLine } from './help.js'
import { assignSockets, takeGivenSockets } from './activation.js'
import { Embedder } from './embedder.js'
import { OptionError, type Parsed } from './parse.js'
import { Progress, SlowLoads, liveTerminal } from './progress.js'
import { reportStart } from './report.js'
import { foldLines, summary } from './reader.js'
import { ServiceManager } from './service.js'
import { resolveSettings, type Resolved } from './settings.js'
import { readOptions } from './sources.js'

/** Runs once a server serves; the result is called when it stops. */
export type Develop = (server: RunningServer) => Promise<() => Promise<void>>

/**
 * Never returns: ends the process explicitly, since native threads may outlive the event loop.
 *
 * @param args the command line, or the options that were read from it
 */
export async function serve(
  program: string,
  args: readonly string[] | Parsed,
  develop: Develop | null = null,
): Promise<void> {
  // The process may be older than the start: `npm start` runs its set-up in it, which may take minutes.
  const beganMs = performance.now()
  let parsed: Parsed
  let resolved: Resolved
  let embedder: Embedder | null = null
  let inline: Embedder | null = null
  const manager = new ServiceManager(process.env, process.pid)
  try {
    embedder = Embedder.take(process.env, 'NEREID_EMBEDDER')
    inline = Embedder.take(process.env, 'NEREID_INLINE')
    const sockets = takeGivenSockets(process.env, process.pid)
    parsed = 'options' in args ? args : await readOptions(args, process.env)
    if (parsed.options.help || parsed.options.version) return await printAndExit(program, parsed)
    resolved = resolveSettings(parsed)
    resolved.settings.development = develop !== null
    if (inline !== null)
      resolved.settings.repository.backendConfig.push({
        backend: 'python',
        key: 'inline-control',
        value: String(inline.fd),
      })
    if (sockets === null)
      resolved.warnings.push(
        'Warning: the service manager passed its sockets to another process (LISTEN_PID); start node itself, ' +
          'without a shell or npx between',
      )
    else assignSockets(sockets, describeSocket, resolved)
    const { http, grpc, control, metrics } = resolved.settings
    if (embedder !== null && metrics !== null) metrics.isServed = false
    if (http === null && grpc === null && control === null && embedder === null) {
      resolved.warnings.push(
        'Warning: no client can reach this server: --allow-http and --allow-grpc are ' +
          `false${metrics === null ? '' : '; only metrics are served'}`,
      )
    }
  } catch (error) {
    if (error instanceof ServerError) return fail('creating server', error, embedder)
    if (!(error instanceof OptionError)) throw error
    if (embedder === null) process.stderr.write(`${usageLine(program)}\n${error.message}\n`)
    embedder?.failed('INVALID_ARG', error.message)
    return exit(1)
  }
  for (const warning of resolved.warnings) process.stderr.write(`${warning}\n`)
  loadAhead(resolved.settings.repository)

  // The terminal belongs to the program that embeds this server.
  const terminal = resolved.settings.log.file === '' && embedder === null ? liveTerminal() : null
  const progress = terminal === null ? null : new Progress(terminal)
  // A person reads a terminal: fit lines to it and print a summary. JSON is for programs.
  const reader = resolved.settings.log.format === 'json' || !resolved.settings.log.info ? null : terminal
  let logger: Logger
  let sink: Sink
  try {
    sink = openSink(resolved.settings.log.file)
    const shared: Sink = (line, problem) =>
      progress?.around(() =>
        sink(reader === null || (problem && !isatty(2)) ? line : foldLines(line, reader.columns), problem),
      )
    logger = createLogger(resolved.settings.log, progress === null ? sink : shared)
  } catch (error) {
    return fail('creating server', error, embedder)
  }
  if (resolved.inactive.length > 0) {
    const names = resolved.inactive.map((name) => `--${name}`).join(', ')
    logger.warning(`accepted, without effect in this release: ${names}`)
  }

  manager.warn = (message) => logger.warning(message)
  const signals = new Signals(logger)
  const { exitTimeoutSecs } = resolved
  let stopTimeoutSecs = exitTimeoutSecs
  embedder?.watch((seconds) => {
    stopTimeoutSecs = seconds ?? exitTimeoutSecs
    signals.end()
  })
  inline?.watch(() => signals.end())
  const slow = new SlowLoads((message) => logger.info(message))
  // The log file may be rotated before there is a server.
  let reread = (): string[] => []
  signals.onHangUp = () => {
    // Several ports may share a certificate. Each file that could not be used has a line of its own.
    const files = [...new Set([...reread(), ...(sink.reopen === undefined ? [] : [sink.reopen()])])]
    const nothing = 'no keys, certificate or log was read or opened again'
    const outcome = files.length === 0 ? nothing : `read or opened again: ${files.join(', ')}`
    logger.info(`Signal (1) received: ${outcome}`)
  }
  let ports: Ports | null = null
  let server: RunningServer
  try {
    const { startServer } = await import('../api/server.js')
    server = await startServer(resolved.settings, logger, {
      observe(event) {
        progress?.observe(event)
        manager.observe(event)
        slow.observe(event)
      },
      bound: (release) => (signals.release = release),
      listening(open) {
        ports = open
        announce(logger, resolved, open)
      },
    })
  } catch (error) {
    progress?.end()
    if (error instanceof BindError) {
      embedder?.failed('INTERNAL', error.lines.join('; '))
      return failToListen(logger, resolved, [...error.lines, ...error.advice])
    }
    return fail('creating server', error, embedder)
  }
  progress?.end()
  reread = () => server.reread()
  const note = nativeNote()
  if (note !== null) logger.info(note)
  const start = reportStart(logger, resolved, server.repository, server.failures, reader)
  if (server.failures.length > 0) {
    const text = 'failed to load all models'
    if (resolved.settings.exitOnError) {
      await server.stop(0)
      if (resolved.settings.log.file !== '' || !resolved.settings.log.error)
        process.stderr.write(start.failures.map((line) => `error: ${cleanCell(line)}\n`).join(''))
      return fail('creating server', new ServerError('INTERNAL', text), embedder)
    }
    if (develop === null) logger.error(`${text}; the loaded models are served (--exit-on-error=false)`)
  }
  // Set before the first port opens: requests arrive while the last one is still being opened.
  signals.serving = true
  if (ports === null) {
    try {
      ports = await server.listen()
    } catch (error) {
      await server.stop(0)
      embedder?.failed('INTERNAL', asServerError(error).message)
      return failToListen(logger, resolved, [asServerError(error).message])
    }
    announce(logger, resolved, ports)
  }
  if (embedder !== null) {
    try {
      await server.core.serveEmbedder(embedder.fd)
    } catch (error) {
      await server.stop(0)
      return fail('creating server', error, embedder)
    }
  }
  if (reader !== null) reader.write(await summary(resolved, ports, start, beganMs))
  const endDevelopment = await develop?.(server)
  // Also while it stops: if the core hangs then, the manager must notice.
  manager.watch(() => server.core.pulse())
  manager.ready(`Serving: ${portsText(ports)}`, ports)
  const { exitOnDeviceError } = resolved.settings.core.engine
  const lost = exitOnDeviceError ? [server.deviceFailure.then((failure) => ({ failure }))] : []
  const signal = await Promise.race([signals.first, ...lost])
  const failure = typeof signal === 'string' ? null : signal.failure
  if (failure !== null) logger.error(`${failure}; the process ends (--exit-on-device-error)`)
  await endDevelopment?.()
  manager.stopping('Waiting for requests in flight')
  // A person who interrupts the server wants it to end; load balancers need a grace period only after SIGTERM.
  const graceMs = signal !== 'SIGINT' ? resolved.exitGraceSecs * 1000 : 0
  const code = await shutDown(server, logger, stopTimeoutSecs, graceMs)
  if (failure !== null) {
    logger.error(`Exit code 3: ${failure}`)
    return exit(3)
  }
  // No thread of the core runs any more, so a regular exit is safe; profilers write their files in it. Node v20 aborts
  // in it if its terminal is closed.
  if (code === 0 && !signals.lostTerminal) process.exit(0)
  return exit(code)
}

/** Loads ONNX Runtime on another thread while this one imports the modules of the server. */
function loadAhead(settings: RepositorySettings): void {
  // No model loads at first, and perhaps none ever uses this backend: the library would waste memory.
  if (settings.mode === 'explicit' && settings.loadModels.length === 0) return
  const library = findOnnxRuntime()
  // Without a library, models report it; without the native module, the core does.
  if (library !== null) preloadOnnxRuntime(library, settingsOf(settings, 'onnxruntime'))
}

function announce(logger: Logger, { settings }: Resolved, ports: Ports): void {
  const { http, openai, grpc, metrics, control } = settings
  const at = ({ address, givenFd }: { address: string; givenFd: number | null }, port: number): string =>
    givenFd === null
      ? isUnix(address)
        ? address
        : `${address}:${port}`
      : `port ${port} of socket ${givenFd}, from the service manager`
  if (grpc !== null) logger.info(`Started GRPCInferenceService at ${at(grpc, ports.grpc)}`)
  if (http !== null) logger.info(`Started HTTPService at ${at(http, ports.http)}`)
  if (openai !== null) logger.info(`Started OpenAI service at ${at(openai, ports.openai)}`)
  if (control !== null) logger.info(`Started control service at ${at({ ...control, givenFd: null }, ports.control)}`)
  if (metrics?.isServed === true) logger.info(`Started Metrics Service at ${at(metrics, ports.metrics)}`)
}

/** Logs the failure in Triton's form: a line that names the service. */
function failToListen(logger: Logger, { settings }: Resolved, lines: readonly string[]): void {
  for (const line of lines) {
    logger.error(line)
    if (settings.log.file !== '') process.stderr.write(`error: ${line}\n`)
  }
  return exit(1)
}

function portsText({ http, openai, grpc, control, metrics }: Ports): string {
  const open = Object.entries({ HTTP: http, OpenAI: openai, gRPC: grpc, control, metrics }).filter(
    ([, port]) => port !== 0,
  )
  return open.map(([name, port]) => `${name} ${port}`).join(', ')
}

async function shutDown(server: RunningServer, logger: Logger, timeoutSecs: number, graceMs: number): Promise<number> {
  logger.info('Waiting for in-flight requests to complete.')
  const left = await server.stop(timeoutSecs * 1000, {
    graceMs,
    leaving: (ms) =>
      logger.info(
        `Not ready; still accepting requests, also on new connections, for ${ms / 1000} s (--exit-grace-secs)`,
      ),
    progress: (seconds, inFlight) => logger.info(`Timeout ${seconds}: Found ${inFlight} in-flight inferences`),
  })
  if (left === 0) {
    logger.info('Found 0 live models and 0 in-flight non-inference requests')
    return 0
  }
  logger.error(`Exit timeout expired with ${left} requests in flight. Exiting immediately.`)
  process.stderr.write('error: failed to stop server: Internal - Exit timeout expired. Exiting immediately.\n')
  return 1
}

/**
 * npm and npx forward a signal that this process also got from a terminal or from a supervisor which signals the group.
 * Within this time a second one counts as the same.
 */
const SAME_SIGNAL_MS = 250

/**
 * The first signal asks for a drain, or ends the process if nothing listens yet; the second ends it at once. SIGHUP
 * rereads files, unless the terminal that started the server was closed.
 */
class Signals {
  readonly first: Promise<'SIGINT' | 'SIGTERM'>
  /** True if requests may be in flight. */
  serving = false
  /** Closes bound sockets if the process ends before the server serves. */
  release = (): void => {}
  onHangUp = (): void => {}
  /** True if the terminal that started the server was closed. */
  lostTerminal = false
  #isEnding = false

  /** Ends the server as SIGTERM does, unless it ends: the program that embeds it asked for it or has ended. */
  end(): void {
    if (!this.#isEnding) process.emit('SIGTERM', 'SIGTERM')
  }

  constructor(logger: Logger) {
    let started: (signal: 'SIGINT' | 'SIGTERM') => void = () => {}
    let before: { signal: string; atMs: number } | null = null
    const hadTerminal = isatty(0) || isatty(1)
    this.first = new Promise((resolve) => {
      started = resolve
    })
    const NUMBERS = { SIGINT: 2, SIGTERM: 15 } as const
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, () => {
        const now = performance.now()
        if (before?.signal === signal && now - before.atMs < SAME_SIGNAL_MS) return
        if (!this.serving) {
          // Explains the end of the log if a start-up probe timed out.
          logger.info(`Signal (${NUMBERS[signal]}) received before the server is ready. Exiting immediately.`)
          this.release()
          exit(0)
        }
        if (before !== null) {
          logger.error(`Signal (${NUMBERS[signal]}) received again. Exiting immediately.`)
          exit(1)
        }
        before = { signal, atMs: now }
        this.#isEnding = true
        logger.info(`Signal (${NUMBERS[signal]}) received.`)
        started(signal)
      })
    }
    process.on('SIGHUP', () => {
      this.lostTerminal ||= hadTerminal && isTerminalGone()
      if (this.lostTerminal) process.emit('SIGTERM', 'SIGTERM')
      else this.onHangUp()
    })
  }
}

/** True if the controlling terminal was closed: no process has it any more. */
function isTerminalGone(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'))
    return false
  } catch {
    return true
  }
}

async function printAndExit(program: string, { options }: Parsed): Promise<void> {
  if (options.version) {
    return exit(await (await import('./version.js')).run(program))
  }
  process.stdout.write(helpText(program))
  // Triton exits with 1 here, and scripts that probe for options rely on it.
  return exit(1)
}

/** The program that embeds the server gets the error; it decides what is printed. */
function fail(what: string, error: unknown, embedder: Embedder | null): void {
  const { code, message } = asServerError(error)
  if (embedder === null) process.stderr.write(`error: ${what}: ${STATUS_NAMES[code]} - ${message}\n`)
  embedder?.failed(code, message)
  return exit(1)
}

function exit(code: number): never {
  // The console and the log file are written synchronously, so no line is lost.
  return exitNow(code)
}

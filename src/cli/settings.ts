/**
 * Converts parsed options to the settings of every part of the server, and checks rules that span several options.
 *
 * Pure except for the warnings it returns; reads no files, and only the OpenTelemetry variables of the environment.
 */

import { isIP } from 'node:net'
import { isUnix } from '../api/address.js'
import { EXTENSIONS, SERVER_VERSION } from '../api/identity.js'
import { TRACE_DEFAULTS, TRACE_LEVELS, type TraceDefaults } from '../trace/settings.js'
import type { ServerSettings } from '../api/server.js'
import type { MetricsConfig, MetricsSettings } from '../metrics/settings.js'
import { isSafeUrl, type KeysSettings } from '../api/issuer_keys.js'
import type { ControlOptions, GrpcOptions, HttpOptions, Restriction, TlsOptions } from '../native/contract.js'
import { type Environment, exporterAnswer, exporterOptions } from '../trace/exporter_options.js'
import { readDeviceMemory } from './device_memory.js'
import { FLAGS, passedTo, type Flag, type Options } from './flags.js'
import { SETTINGS, warnOfBackendSetting, warnOfUnknown } from './known_settings.js'
import { userIds } from './users.js'
import { COMMAND_LINE, OptionError, badOption, suggestion, type Parsed } from './parse.js'
import { readRateLimit } from './rate_limit.js'
import { readResponseCache } from './response_cache.js'
import { openaiOptions, openaiWarnings } from './openai.js'
import { readTextAliases } from './text_aliases.js'

export interface Resolved {
  settings: ServerSettings
  exitTimeoutSecs: number
  exitGraceSecs: number
  /** Lines for stderr before anything is logged. */
  warnings: string[]
  /** Given options that this release accepts but ignores. */
  inactive: string[]
}

/**
 * Checks the options against each other.
 *
 * @throws {OptionError} with the text for the user
 */
export function resolveSettings(parsed: Parsed, environment: Environment = process.env): Resolved {
  try {
    return resolve(parsed, environment)
  } catch (error) {
    const origin = error instanceof OptionError && error.flag !== null ? parsed.given.get(error.flag) : undefined
    if (!(error instanceof OptionError) || origin === undefined || origin === COMMAND_LINE) throw error
    throw new OptionError(`${origin}: ${error.message}`, error.flag)
  }
}

function resolve({ options: all, given, warnings: before }: Parsed, environment: Environment): Resolved {
  const options = withPorts(all)
  const warnings = [...before]
  if (options.modelRepository.length === 0) throw new OptionError('Error: --model-repository must be specified')
  const mode = options.modelControlMode
  if (options.loadModel.length > 0 && mode !== 'explicit') {
    throw new OptionError(
      "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.",
      'load-model',
    )
  }
  const hostPolicies = readHostPolicies(options.hostPolicy, warnings)
  const backendConfig = options.backendConfig.map(readBackendConfig)
  for (const setting of backendConfig) warnOfBackendSetting(setting, warnings)
  if (options.memoryLimit > 0 && options.memoryLimit < MEMORY_LIMIT_MIN) {
    throw badOption(
      'memory-limit',
      `Provided option value is out of bound. Got ${options.memoryLimit}; it is 0 for the default, or from ` +
        `${MEMORY_LIMIT_MIN} bytes (1m): a connection may hold a quarter of it`,
    )
  }
  const http = options.allowHttp ? httpOptions(options) : null
  const openai = openaiOptions(options, httpOptions(options))
  // With keys, clients need one at both ports.
  if (options.keysFile === '') warnings.push(...openaiWarnings(openai, http))
  const grpc = options.allowGrpc ? grpcOptions(options) : null
  const metrics = metricsSettings(options, environment)
  const control = controlOptions(options)
  checkCollisions(http, openai, grpc, metrics, control)
  const trace = traceDefaults(options, warnings, environment)
  const cache = readResponseCache(options, warnings)
  const metricsConfig = readMetricsConfig(options.metricsConfig, warnings)
  const { counterLatencies: _, histograms: __, ...latencies } = metricsConfig
  const settings: ServerSettings = {
    development: false,
    exitOnError: options.exitOnError,
    listenEarly: options.listenEarly,
    core: {
      ...passedTo('core', options),
      engine: {
        ...passedTo('engine', options),
        metadata: { name: options.id, version: SERVER_VERSION, extensions: EXTENSIONS },
        metrics: latencies,
        reasonsInErrors: false,
        responseCacheBytes: cache.bytes,
        rateLimit: readRateLimit(options),
        textAliases: readTextAliases(options),
        chat: { ...passedTo('chat', options), isExplicit: mode === 'explicit', isStrict: false },
      },
      deviceMemory: readDeviceMemory(options),
      responseCacheRedis: cache.redis,
      responseCacheLibrary: cache.library,
    },
    listen: {
      ...passedTo('listen', options),
      unixSocketMode: socketMode(options.unixSocketMode),
      openaiErrorsAsTriton: options.openaiErrors === 'triton',
      gate: { allowRemoteSettings: options.allowRemoteSettings },
    },
    requestLog: passedTo('log', options),
    control,
    keys: keysSettings(options),
    http,
    openai,
    embeddedHttp: httpOptions({ ...options, httpUseSsl: false }),
    grpc,
    embeddedGrpc: grpcOptions({ ...options, grpcUseSsl: false, grpcUseSslMutual: false }),
    metrics,
    metricsConfig,
    trace,
    log: {
      file: options.logFile,
      info: options.logInfo,
      warning: options.logWarning,
      error: options.logError,
      verbose: options.logVerbose,
      format: options.logFormat,
    },
    repository: {
      paths: options.modelRepository,
      hasNamespaces: options.modelNamespacing,
      mode,
      pollSecs: mode === 'poll' ? options.repositoryPollSecs : 0,
      cacheDirectory: options.repositoryCacheDirectory === '' ? null : options.repositoryCacheDirectory,
      cacheBytesMax: options.repositoryCacheBytes,
      stallSecs: options.repositoryStallSecs,
      loadModels: options.loadModel,
      configName: options.modelConfigName === '' ? null : options.modelConfigName,
      autoComplete: autoComplete(options, warnings),
      loadThreads: options.modelLoadThreadCount,
      loadRetries: options.modelLoadRetryCount,
      backendConfig,
      minComputeCapability: options.minSupportedComputeCapability,
      gpuFallback: options.gpuFallback,
      backendDirectory: options.backendDirectory,
      agentDirectory: options.repoagentDirectory,
      hostPolicies,
      hostPerModel: options.hostPerModel,
      hostUser: hostUser(options.hostUser, given),
    },
  }
  warnings.push(
    ...unusedTlsFiles('http', options.httpUseSsl, given),
    ...unusedTlsFiles('grpc', options.grpcUseSsl || options.grpcUseSslMutual, given),
  )
  const table: readonly Flag[] = FLAGS
  const inactive = table.filter((f) => f.state === 'accepted' && given.has(f.name)).map((f) => f.name)
  return {
    settings,
    exitTimeoutSecs: options.exitTimeoutSecs,
    exitGraceSecs: options.exitGraceSecs,
    warnings,
    inactive,
  }
}

/** With a smaller `--memory-limit`, hardly a request is served. */
const MEMORY_LIMIT_MIN = 1 << 20

function autoComplete(options: Options, warnings: string[]): boolean {
  const strict = options.strictModelConfig
  if (strict !== null) {
    warnings.push(
      "Warning: '--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' instead.",
    )
    if (!strict && options.disableAutoCompleteConfig) {
      warnings.push(
        "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of " +
          "'--disable-auto-complete-config'!",
      )
    }
  }
  return !(options.disableAutoCompleteConfig || strict === true)
}

function httpOptions(options: Options): HttpOptions {
  return {
    ...passedTo('http', options),
    givenFd: null,
    tls: httpTls(options),
    restrictions: readRestrictions('http-restricted-api', options.httpRestrictedApi, ''),
    corsOrigins: options.httpCorsOrigin.flatMap((list) => list.split(',')),
  }
}

/** Warnings about certificates of a port without TLS: the user expects TLS there. */
function unusedTlsFiles(service: 'http' | 'grpc', isUsed: boolean, given: ReadonlyMap<string, string>): string[] {
  const named = ['server-cert', 'server-key', 'root-cert']
    .map((file) => `${service}-${file}`)
    .filter((flag) => given.has(flag))
  return isUsed || named.length === 0
    ? []
    : [
        `Warning: ${named.map((flag) => `--${flag}`).join(', ')} has no effect: without ` +
          `--${service}-use-ssl=true the port serves plain text`,
      ]
}

function httpTls(options: Options): TlsOptions | null {
  const { httpServerCert: certificate, httpServerKey: key, httpRootCert: roots } = options
  if (!options.httpUseSsl) return null
  return files('http', { certificate, key, roots, mutual: roots !== '' })
}

function grpcTls(options: Options): TlsOptions | null {
  const { grpcServerCert: certificate, grpcServerKey: key, grpcRootCert: roots, grpcUseSslMutual: mutual } = options
  if (!options.grpcUseSsl && !mutual) return null
  return files('grpc', { certificate, key, roots, mutual })
}

/** The given files, or an error that names the missing one. */
function files(service: 'http' | 'grpc', tls: TlsOptions): TlsOptions {
  const missing =
    tls.certificate === ''
      ? 'server-cert'
      : tls.key === ''
        ? 'server-key'
        : tls.mutual && tls.roots === ''
          ? 'root-cert'
          : null
  if (missing === null) return tls
  const what = {
    'server-cert': 'the file of its certificate',
    'server-key': 'the file of its key',
    'root-cert': 'the file of the roots that clients are checked against',
  }[missing]
  throw badOption(`${service}-${missing}`, `A server with TLS needs ${what}, in PEM.`)
}

function grpcOptions(options: Options): GrpcOptions {
  return {
    ...passedTo('grpc', options),
    givenFd: null,
    tls: grpcTls(options),
    restrictions: readRestrictions('grpc-restricted-protocol', options.grpcRestrictedProtocol, 'triton-grpc-protocol-'),
  }
}

/** Address of the management operations. Over TCP it uses TLS if the HTTP port does, with the same files. */
function controlOptions(options: Options): ControlOptions | null {
  const text = options.controlAddress
  if (text === '') return null
  if (isUnix(text)) return { address: text, port: 0, tls: null }
  const [, six, four, digits = ''] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text) ?? []
  const address = six ?? four
  if (address === undefined || Number(digits) > 65535) {
    throw badOption('control-address', `--control-address is HOST:PORT or unix:PATH. Got ${text}`)
  }
  return { address, port: Number(digits), tls: httpTls(options) }
}

function socketMode(text: string): number {
  if (!/^0?[0-7]{3}$/.test(text))
    throw badOption('unix-socket-mode', `--unix-socket-mode is the mode of a file in octal, as 0660. Got ${text}`)
  return Number.parseInt(text, 8)
}

function keysSettings(options: Options): KeysSettings | null {
  const { keysFile: file, oidcIssuer: issuer, oidcAudience: audience, oidcKeys: keys, oidcScopes: claim } = options
  const oidc = { 'oidc-issuer': issuer, 'oidc-audience': audience, 'oidc-keys': keys }
  const given = Object.values(oidc).some((value) => value !== '')
  if (given) {
    for (const [flag, value] of Object.entries(oidc)) {
      if (value === '')
        throw badOption(flag, 'Tokens of an issuer need --oidc-issuer, --oidc-audience and --oidc-keys.')
    }
    if (file === '')
      throw badOption('keys-file', 'Tokens of an issuer need a keys file with their permissions, under "oidc".')
    if (claim === '') throw badOption('oidc-scopes', 'The name of a claim is needed.')
  }
  if (file === '') return null
  if (!given) return { file, issuer: null, keysUrl: null }
  const keysUrl = /^https?:\/\//i.test(keys) ? keys : null
  if (keysUrl !== null && !isSafeUrl(keysUrl))
    throw badOption(
      'oidc-keys',
      'Keys are fetched by https only, unless from this machine (http://localhost). Got ' + keys,
    )
  return { file, issuer: { issuer, audience, claim, keysFile: keysUrl === null ? keys : null }, keysUrl }
}

function metricsSettings(options: Options, environment: Environment): MetricsSettings | null {
  if (!options.allowMetrics) return null
  return {
    isServed: true,
    address: metricsAddress(options),
    port: options.metricsPort,
    givenFd: null,
    cpu: options.allowCpuMetrics,
    // Present or not, whatever its value, as in Triton.
    gpu: options.allowGpuMetrics && environment['TRITON_SERVER_CPU_ONLY'] === undefined,
    intervalMs: options.metricsIntervalMs,
  }
}

/** The metrics address, by default the HTTP one. Metrics always need a port: scrapers do not support Unix sockets. */
function metricsAddress({ metricsAddress: given, httpAddress, allowHttp }: Options): string {
  if (isUnix(given))
    throw badOption('metrics-address', `Metrics are served at a port, not at a Unix socket. Got ${given}`)
  if (given !== '') return given
  // The address of a service that is off may be anything, as in Triton.
  const isUsable = allowHttp || isIP(httpAddress) > 0 || /^[a-z0-9][a-z0-9.-]*$/i.test(httpAddress)
  return isUnix(httpAddress) || !isUsable ? '127.0.0.1' : httpAddress
}

/** Checks the ports of the services that are on. Those of the others may be any number, as in Triton. */
function withPorts(options: Options): Options {
  const checked = (flag: string, isServed: boolean, port: number): number => {
    if (port >= 0 && port <= 65535) return port
    if (!isServed) return 0
    throw badOption(flag, `Provided option value is out of bound. Got ${port}; it is from 0 to 65535`)
  }
  return {
    ...options,
    httpPort: checked('http-port', options.allowHttp, options.httpPort),
    grpcPort: checked('grpc-port', options.allowGrpc, options.grpcPort),
    metricsPort: checked('metrics-port', options.allowMetrics, options.metricsPort),
  }
}

function checkCollisions(
  http: HttpOptions | null,
  openai: HttpOptions | null,
  grpc: GrpcOptions | null,
  metrics: MetricsSettings | null,
  control: ControlOptions | null,
): void {
  const endpoints = [
    ['HTTP', http],
    ['OpenAI', openai],
    ['GRPC', grpc],
    ['Metrics', metrics],
    ['control', control],
  ] as const
  const taken = new Map<string, string>()
  for (const [name, at] of endpoints) {
    // Port 0 is a different free port each time.
    if (at === null || (at.port === 0 && !isUnix(at.address))) continue
    const where = isUnix(at.address) ? at.address : `${at.address}:${at.port}`
    const other = taken.get(where)
    if (other !== undefined) {
      throw new OptionError(
        `The server cannot listen to ${other} requests and ${name} requests at the same address and port ${where}`,
      )
    }
    taken.set(where, name)
  }
}

const RESTRICTABLE = new Set([
  'health',
  'metadata',
  'inference',
  'shared-memory',
  'model-config',
  'model-repository',
  'statistics',
  'trace',
  'logging',
])

/** Parses `<api>,<api>:<key>=<value>` groups; an API may be in one group only. */
function readRestrictions(flag: string, groups: readonly string[], keyPrefix: string): Restriction[] {
  const seen = new Set<string>()
  // Triton's words: an API over HTTP, a protocol over gRPC.
  const noun = flag === 'http-restricted-api' ? 'api' : 'protocol'
  return groups.map((text) => {
    const match = /^([^:=]+):([^=]+)=(.+)$/s.exec(text)
    if (match === null) {
      throw badOption(flag, `--${flag} option format is '<config name>:<setting>=<value>'. Got ${text}`)
    }
    const [, list = '', key = '', value = ''] = match
    const apis = list.split(',')
    for (const api of apis) {
      if (!RESTRICTABLE.has(api))
        throw badOption(
          flag,
          `unknown restricted ${noun} '${api}' ; valid are ` +
            `${[...RESTRICTABLE].join(', ')}${suggestion(api, RESTRICTABLE)}`,
        )
      if (seen.has(api)) {
        throw badOption(flag, `restricted ${noun} '${api}' can not be specified in multiple config groups`)
      }
      seen.add(api)
    }
    return { apis, key: keyPrefix + key, value }
  })
}

/** Reads `--host-user`, which only root can grant; null keeps the user of the server. */
function hostUser(user: string, given: ReadonlyMap<string, string>): string | null {
  if (user === 'root' || user === '0:0') return null
  if (process.geteuid?.() !== 0) {
    if (given.has('host-user')) throw badOption('host-user', '--host-user has an effect only if root starts the server')
    return null
  }
  const ids = userIds(user)
  if (ids === null) throw badOption('host-user', `--host-user is a user of this machine, or <uid>:<gid>. Got ${user}`)
  return ids
}

/** Settings by policy. Only libraries of backends see them, but a typo in a launch script should be reported now. */
function readHostPolicies(policies: readonly string[], warnings: string[]): Record<string, Record<string, string>> {
  const all: Record<string, Record<string, string>> = Object.create(null)
  for (const text of policies) {
    const [, policy, setting, value] = /^([^,=]+),([^=]+)=(.*)$/s.exec(text) ?? []
    if (policy === undefined || setting === undefined) {
      const form = "option format is '<policy name>,<setting>=<value>'."
      throw badOption('host-policy', `--host-policy ${form} Got ${text}`)
    }
    warnOfUnknown('--host-policy', setting, SETTINGS['host-policy'], warnings)
    const known = (all[policy] ??= Object.create(null) as Record<string, string>)
    known[setting] = value ?? ''
  }
  return all
}

/** Parses `[backend,]setting=value`; without a backend it applies to all. */
export function readBackendConfig(text: string): { backend: string | null; key: string; value: string } {
  const equals = text.indexOf('=')
  const comma = text.indexOf(',')
  const named = comma >= 0 && (equals < 0 || comma < equals)
  if (named && (comma === 0 || equals < 0 || equals === comma + 1 || equals === text.length - 1)) {
    const form = "option format is '<backend name>,<setting>=<value>'."
    throw badOption('backend-config', `--backend-config ${form} Got ${text}`)
  }
  if (!named && (equals <= 0 || equals === text.length - 1)) {
    const form = 'option format is <backend name>,<setting>=<value> or <setting>=<value>.'
    throw badOption('backend-config', `No backend specified. --backend-config ${form} Got ${text}`)
  }
  return {
    backend: named ? text.slice(0, comma) : null,
    key: text.slice(named ? comma + 1 : 0, equals),
    value: text.slice(equals + 1),
  }
}

const QUANTILES = '0.5:0.05,0.9:0.01,0.95:0.001,0.99:0.001,0.999:0.001'

function readMetricsConfig(settings: readonly string[], warnings: string[]): MetricsConfig {
  const config: MetricsConfig = {
    counterLatencies: true,
    histograms: true,
    histogramLatencies: false,
    summaryLatencies: false,
    summaryQuantiles: readQuantiles(QUANTILES, warnings),
  }
  const switches: Record<string, Exclude<keyof MetricsConfig, 'summaryQuantiles'>> = {
    counter_latencies: 'counterLatencies',
    histograms: 'histograms',
    histogram_latencies: 'histogramLatencies',
    summary_latencies: 'summaryLatencies',
  }
  for (const text of settings) {
    const match = /^([^=,]+)=(.+)$/s.exec(text)
    if (match === null) {
      throw badOption('metrics-config', `--metrics-config option format is <setting>=<value>. Got ${text}`)
    }
    const [, key = '', value = ''] = match
    warnOfUnknown('--metrics-config', key, SETTINGS['metrics-config'], warnings)
    const field = switches[key]
    // Only these exact words count; anything else leaves the default (O 1.1).
    if (field !== undefined && (value === 'true' || value === 'false')) config[field] = value === 'true'
    else if (field !== undefined)
      warnings.push(
        `Warning: --metrics-config=${key} is true or false, and stays ${String(config[field])}. Got ${value}`,
      )
    if (key === 'summary_quantiles') {
      const quantiles = readQuantiles(value.replace(/^"(.*)"$/, '$1'), warnings)
      if (quantiles.length > 0) config.summaryQuantiles = quantiles
    }
  }
  return config
}

function readQuantiles(text: string, warnings: string[]): { quantile: number; error: number }[] {
  const pairs: { quantile: number; error: number }[] = []
  for (const pair of text.split(',')) {
    const colon = pair.indexOf(':')
    if (colon < 0) {
      warnings.push(`Invalid option: [${pair}]. No ':' delimiter found. Expected format is <quantile>:<error>`)
      continue
    }
    // Reads the longest numeric prefix, as Triton does: `0.0.1` is 0.
    const quantile = Number.parseFloat(pair.slice(0, colon))
    const error = Number.parseFloat(pair.slice(colon + 1))
    if (Number.isFinite(quantile) && Number.isFinite(error)) pairs.push({ quantile, error })
  }
  return pairs
}

/** Reads `--trace-config` and the deprecated forms; a new-form value wins (O 3.1). */
function traceDefaults(options: Options, warnings: string[], environment: Environment): TraceDefaults {
  const trace: TraceDefaults = { ...TRACE_DEFAULTS, levels: [] }
  const exporter: [string, string][] = []
  const fresh = new Set<string>()
  const bad = (text: string, why: string): OptionError =>
    new OptionError(`Bad option: "--trace-config ${text}".\n${why}`, 'trace-config')
  const levels = new Set<string>()
  for (const text of options.traceConfig) {
    const match = /^(?:([^,=]*),)?([^,=]*)(?:=(.*))?$/s.exec(text)
    const [, mode, key = '', value = ''] = match ?? []
    if (key === '' || value === '') {
      const form = '<trace mode>,<setting>=<value>'
      throw mode === undefined
        ? bad(
            text,
            `No trace mode specified. --trace-config option format is ${form} or <setting>=<value>. Got ${text}`,
          )
        : bad(text, `--trace-config option format is '${form}'. Got ${text}`)
    }
    const integer = (min: number, max: number): number => {
      const number = Number(value)
      if (!/^[+-]?\d+$/.test(value) || number < min || number > max)
        throw bad(text, `Invalid option value. Got ${value}`)
      return number
    }
    fresh.add(mode === undefined ? key : `${mode},${key}`)
    const owner = mode === undefined ? 'trace' : `trace ${mode}`
    if (isTraceOwner(owner))
      warnOfUnknown(mode === undefined ? '--trace-config' : `--trace-config=${mode}`, key, SETTINGS[owner], warnings)
    else
      warnings.push(
        `Warning: --trace-config has no mode '${mode ?? ''}'${suggestion(mode ?? '', ['triton', 'opentelemetry'])}`,
      )
    if (mode === 'opentelemetry') exporter.push([key, value])
    else if (mode === 'triton' && key === 'file') trace.file = value
    else if (mode === 'triton' && key === 'log-frequency') trace.logFrequency = integer(0, 4294967295)
    else if (mode !== undefined) continue
    else if (key === 'mode') {
      if (value !== 'triton' && value !== 'opentelemetry') {
        const modes = 'Available options are "triton" and "opentelemetry"'
        throw bad(text, `invalid value for trace mode option: ${value}. ${modes}`)
      }
      trace.mode = value
    } else if (key === 'level') for (const level of readTraceLevel(value, (why) => bad(text, why))) levels.add(level)
    else if (key === 'rate') trace.rate = integer(0, 4294967295)
    else if (key === 'count') trace.count = integer(-1, 2147483647)
  }
  const old = <T>(name: string, key: string, value: T | null, set: (value: T) => void): void => {
    if (value === null || (Array.isArray(value) && value.length === 0) || value === '') return
    if (fresh.has(key)) {
      const short = key.slice(key.indexOf(',') + 1)
      warnings.push(`Warning: Overriding deprecated '--${name}' in favor of provided ${short} value in --trace-config!`)
    } else {
      warnings.push(
        `Warning: '--${name}' has been deprecated and will be removed in future releases. Please use ` +
          "'--trace-config' instead.",
      )
      set(value)
    }
  }
  old('trace-file', 'triton,file', options.traceFile, (file) => (trace.file = file))
  old('trace-rate', 'rate', options.traceRate, (rate) => (trace.rate = rate))
  old('trace-count', 'count', options.traceCount, (count) => (trace.count = count))
  old('trace-log-frequency', 'triton,log-frequency', options.traceLogFrequency, (n) => (trace.logFrequency = n))
  old('trace-level', 'level', options.traceLevel, (given) => {
    for (const level of given)
      for (const one of readTraceLevel(level, (why) => badOption('trace-level', why))) levels.add(one)
  })
  trace.levels = TRACE_LEVELS.filter((level) => levels.has(level))
  try {
    trace.spans = exporterOptions(exporter, environment)
  } catch (error) {
    if (error instanceof RangeError) throw badOption('trace-config', error.message)
    throw error
  }
  trace.exporter = exporterAnswer(trace.spans, exporter)
  return trace
}

const isTraceOwner = (text: string): text is 'trace' | 'trace triton' | 'trace opentelemetry' =>
  text.startsWith('trace') && Object.hasOwn(SETTINGS, text)

function readTraceLevel(text: string, bad: (why: string) => OptionError): string[] {
  const level = text.toUpperCase()
  if (level === 'OFF' || level === 'FALSE') return []
  if (['TIMESTAMPS', 'TRUE', 'ON', 'MIN', 'MAX'].includes(level)) return ['TIMESTAMPS']
  if (level === 'TENSORS') return ['TENSORS']
  throw bad(`invalid value for trace level option: ${text}${suggestion(text, ['OFF', 'TIMESTAMPS', 'TENSORS'])}`)
}

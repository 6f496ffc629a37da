/** Tables and lines of a start: backends, models, failures with their reasons, and the options in effect (R-52). */

import { EXTENSIONS, SERVER_VERSION } from '../api/identity.js'
import { findOnnxRuntime } from '../native/onnxruntime.js'
import { pythonRuntime } from '../api/python.js'
import type { ServerSettings } from '../api/server.js'
import { BACKENDS, isBuiltIn, settingsOwner } from '../config/index.js'
import type { Logger } from '../log/index.js'
import { detailOf, type Repository, type StartFailure } from '../repository/index.js'
import type { Terminal } from './progress.js'
import { colourStates, fitTable, type Rows, type StartReport } from './reader.js'
import type { Resolved } from './settings.js'

/**
 * Logs the tables that users of Triton know, with its headings. On a terminal they fit its width, and settings common
 * to all backends appear once.
 */
export function reportStart(
  logger: Logger,
  resolved: Resolved,
  repository: Repository,
  failures: StartFailure[],
  reader: Terminal | null,
): StartReport {
  const { development } = resolved.settings
  reportDefaults(logger, resolved.settings)
  const models = repository.table(failures)
  const written = repository.backends()
  if (development) {
    // `nereid dev` prints lines of its own about models.
  } else if (reader === null) {
    logger.table([['Repository Agent', 'Path']])
    logger.table([['Backend', 'Path', 'Config'], ...backends(resolved.settings, written, cmdline)])
    logger.table([['Model', 'Version', 'Status'], ...models])
    logger.table([['Option', 'Value'], ...optionRows(resolved)])
  } else {
    const format = (rows: Rows): string => fitTable(rows, reader.columns)
    const own = backends(resolved.settings, written, ({ own }) => own).map(([name = '', path = '', config = '']) => [
      name,
      config === '' ? path : `${path}\n${config}`,
    ])
    logger.table([['Backend', 'Path'], ...own, ['(all)', pairsText(commonSettings(resolved.settings))]], format)
    logger.table([['Model', 'Version', 'Status'], ...models], (rows) => colourStates(format(rows)))
    logger.table([['Option', 'Value'], ...optionRows(resolved)], format)
  }
  const names = new Set([...models.map(([name]) => name), ...failures.map(({ model }) => model)])
  const ready = [...new Set(models.filter(([, , status]) => status === 'READY').map(([name]) => name))]
  const lines = failureLines(failures, names.size, resolved.settings.exitOnError)
  for (const line of lines) logger.error(line)
  return { models: names.size, ready, failures: lines }
}

function failureLines(failures: readonly StartFailure[], models: number, exitOnError: boolean): string[] {
  const lines = failures.map(({ model, root }) => `model '${model}': ${onOneLine(detailOf(root))}`)
  const others = models - failures.length
  if (lines.length === 0 || !exitOnError || others <= 0) return lines
  const advice =
    `${failures.length} of ${models} models failed to load; --exit-on-error=false serves the ` +
    `other${others === 1 ? '' : ` ${others}`}`
  return lines.length === 1 ? [`${lines[0]}; ${advice}`] : [...lines, advice]
}

const onOneLine = (reason: string): string => reason.replace(/\s*\n\s*/g, ' ').replace(/[.;]+$/, '')

/** Default of every backend. */
const DEFAULT_MAX_BATCH_SIZE = { key: 'default-max-batch-size', value: '4' }

/** Logs the setting on lines of level 1 that say whether the default applies; Triton's QA searches for these. */
function reportDefaults(logger: Logger, { repository }: ServerSettings): void {
  const { key, value } = DEFAULT_MAX_BATCH_SIZE
  const given = repository.backendConfig.filter((one) => one.key === key)
  for (const one of given) logger.verbose(1, `Found overwritten default setting: ${key},${one.value}`)
  if (!given.some((one) => one.backend === null))
    logger.verbose(1, `Adding default backend config setting: ${key},${value}`)
}

/** Settings of a backend: in Triton's form, and those given for it alone. */
interface BackendSettings {
  all: Record<string, string>
  own: string
}

function commonSettings({ repository }: ServerSettings): Record<string, string> {
  const { key, value } = DEFAULT_MAX_BATCH_SIZE
  return {
    'auto-complete-config': String(repository.autoComplete),
    'backend-directory': repository.backendDirectory,
    'min-compute-capability': repository.minComputeCapability.toFixed(6),
    [key]: value,
    ...givenFor(repository, null),
  }
}

function givenFor({ backendConfig }: ServerSettings['repository'], owner: string | null): Record<string, string> {
  return Object.fromEntries(backendConfig.filter((one) => one.backend === owner).map((one) => [one.key, one.value]))
}

const pairsText = (pairs: Record<string, string>): string =>
  Object.entries(pairs)
    .map(([key, value]) => `${key}=${value}`)
    .join(', ')

const cmdline = ({ all }: BackendSettings): string => JSON.stringify({ cmdline: all })

/** Paths of the backends that need more than the core. */
const PATHS: Readonly<Record<string, () => string>> = {
  onnxruntime: () => findOnnxRuntime() ?? 'not found: neither the package of this platform nor onnxruntime-node has it',
  python: pythonRuntime,
}

function backends(
  settings: ServerSettings,
  written: { name: string; file: string }[],
  show: (settings: BackendSettings) => string,
): string[][] {
  const config = (backend: string): string => {
    const own = givenFor(settings.repository, backend)
    // Settings of one backend override those for all.
    return show({ all: { ...commonSettings(settings), ...own }, own: pairsText(own) })
  }
  const builtIn = BACKENDS.filter(({ name, written }) => isBuiltIn(name) && written === undefined).map(({ name }) => [
    name,
    PATHS[name]?.() ?? (settingsOwner(name) === name ? 'built in' : `run by ${settingsOwner(name)}`),
    config(settingsOwner(name)),
  ])
  return [
    ...builtIn.sort(([a = ''], [b = '']) => (a < b ? -1 : 1)),
    ...written.map(({ name, file }) => [name, file, config(name)]),
  ]
}

function optionRows({ settings, exitTimeoutSecs }: Resolved): string[][] {
  const { repository } = settings
  return [
    ['server_id', settings.core.engine.metadata.name],
    ['server_version', SERVER_VERSION],
    ['server_extensions', EXTENSIONS.join(' ')],
    ...repository.paths.map((path, i) => [`model_repository_path[${i}]`, path]),
    ['model_control_mode', `MODE_${repository.mode.toUpperCase()}`],
    ...repository.loadModels.map((name, i) => [`startup_models_${i}`, name]),
    ['strict_model_config', repository.autoComplete ? '0' : '1'],
    ['model_config_name', repository.configName ?? ''],
    ['model_load_thread_count', String(repository.loadThreads)],
    ['strict_readiness', settings.core.engine.strictReadiness ? '1' : '0'],
    ['http_max_input_size', String(settings.core.engine.httpInputBytesMax)],
    ['allow_client_shm', settings.core.engine.allowClientShm ? '1' : '0'],
    ['exit_timeout', String(exitTimeoutSecs)],
    [
      'cache_enabled',
      settings.core.engine.responseCacheBytes === null &&
      settings.core.responseCacheRedis === null &&
      settings.core.responseCacheLibrary === null
        ? '0'
        : '1',
    ],
  ]
}

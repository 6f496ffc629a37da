/** The tables and lines of a start: what is there, what loaded, what failed and why, which options hold. */

import { EXTENSIONS, SERVER_VERSION } from '../api/identity.js'
import { findOnnxRuntime } from '../native/onnxruntime.js'
import { pythonRuntime } from '../api/python.js'
import type { ServerSettings } from '../api/server.js'
import type { Logger } from '../log/index.js'
import type { LoadFailure, Repository } from '../repository/index.js'
import type { Resolved } from './settings.js'

/** Logs the tables users of the reference know, with its headings. */
export function reportStart(logger: Logger, resolved: Resolved, repository: Repository, failures: LoadFailure[]): void {
  reportDefaults(logger, resolved.settings)
  logger.table([['Repository Agent', 'Path']])
  logger.table([['Backend', 'Path', 'Config'], ...backends(resolved.settings, repository.pythonBackends())])
  logger.table([['Model', 'Version', 'Status'], ...repository.table(failures)])
  logger.table([['Option', 'Value'], ...optionRows(resolved)])
  if (failures.length === 0) return
  logger.error(`${failures.length} of the start-up models failed to load:`)
  for (const { model, reason } of failures) logger.error(`model '${model}': ${rootReason(reason)}`)
}

/** `load failed for model 'm': …` repeats what stands before it in a list. */
function rootReason(reason: string): string {
  return reason.replace(/^load failed for model '[^']*': /, '').trimEnd()
}

/** What every backend is told when nothing else is said. */
const DEFAULT_MAX_BATCH_SIZE = { key: 'default-max-batch-size', value: '4' }

/** The setting as a line of level 1 each, which says whether the default holds; QA of the reference looks for these. */
function reportDefaults(logger: Logger, { repository }: ServerSettings): void {
  const { key, value } = DEFAULT_MAX_BATCH_SIZE
  const given = repository.backendConfig.filter((one) => one.key === key)
  for (const one of given) logger.verbose(1, `Found overwritten default setting: ${key},${one.value}`)
  if (!given.some((one) => one.backend === null)) logger.verbose(1, `Adding default backend config setting: ${key},${value}`)
}

function backends({ repository }: ServerSettings, written: { name: string; file: string }[]): string[][] {
  const { key, value } = DEFAULT_MAX_BATCH_SIZE
  const defaults: Record<string, string> = {
    'auto-complete-config': String(repository.autoComplete),
    'backend-directory': repository.backendDirectory,
    'min-compute-capability': repository.minComputeCapability.toFixed(6),
    [key]: value,
  }
  const cmdline = (backend: string): string => {
    const given = (owner: string | null): Record<string, string> =>
      Object.fromEntries(repository.backendConfig.filter((one) => one.backend === owner).map((one) => [one.key, one.value]))
    // What is said of one backend goes before what is said of all.
    return JSON.stringify({ cmdline: { ...defaults, ...given(null), ...given(backend) } })
  }
  const builtIn = (backend: string): string[] => [backend, 'built in', cmdline(backend)]
  return [
    builtIn('device_identity'),
    builtIn('dyna_sequence'),
    builtIn('identity'),
    builtIn('implicit_state'),
    builtIn('iterative_sequence'),
    ['onnxruntime', findOnnxRuntime() ?? 'not found: neither the package of this platform nor onnxruntime-node has it', cmdline('onnxruntime')],
    ['python', pythonRuntime(), cmdline('python')],
    builtIn('repeat'),
    builtIn('sequence'),
    builtIn('square'),
    ['tensorrt', 'plans, run by ONNX Runtime', cmdline('onnxruntime')],
    ...written.map(({ name, file }) => [name, file, cmdline(name)]),
  ]
}

function optionRows({ settings, exitTimeoutSecs }: Resolved): string[][] {
  const { repository } = settings
  return [
    ['server_id', settings.id],
    ['server_version', SERVER_VERSION],
    ['server_extensions', EXTENSIONS.join(' ')],
    ...repository.paths.map((path, i) => [`model_repository_path[${i}]`, path]),
    ['model_control_mode', `MODE_${repository.mode.toUpperCase()}`],
    ...repository.loadModels.map((name, i) => [`startup_models_${i}`, name]),
    ['strict_model_config', repository.autoComplete ? '0' : '1'],
    ['model_config_name', repository.configName ?? ''],
    ['model_load_thread_count', String(repository.loadThreads)],
    ['strict_readiness', settings.strictReadiness ? '1' : '0'],
    ['http_max_input_size', String(settings.httpInputBytesMax)],
    ['allow_client_shm', settings.allowClientShm ? '1' : '0'],
    ['exit_timeout', String(exitTimeoutSecs)],
    ['cache_enabled', settings.responseCache.bytes === null && settings.responseCache.redis === null ? '0' : '1'],
  ]
}

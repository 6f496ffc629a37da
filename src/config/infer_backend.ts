/**
 * Completes `name`, `backend`, `platform` and `default_model_filename` from the directory name, each other, and the
 * files of the first subdirectory. Always runs, even with auto-complete off; reads no model.
 */
import { join } from 'node:path'
import { BACKENDS, type ModelFile } from './backends.js'
import { copy } from './binary.js'
import { invalid, quoted } from './error.js'
import { namesIn, statIfAny } from './files.js'
import { shellWord } from './shell_word.js'
import type { ModelConfig } from './generated/model_config_pb.js'

/** Entries of a directory, links followed. */
export type Listing = ReadonlyMap<string, 'file' | 'directory'>

/** Sets a missing name to that of the directory. */
export function nameOr(config: ModelConfig, directoryName: string): ModelConfig {
  const named = copy(config)
  if (named.name === '') named.name = directoryName
  return named
}

/** @throws {ConfigError} if the configuration has another name than its directory */
export function requireName(config: ModelConfig, directoryName: string): void {
  if (config.name !== directoryName) {
    throw invalid(
      `unexpected directory name '${directoryName}' for model '${quoted(config.name)}', directory name must ` +
        'equal model name',
    )
  }
}

/** Entries of the model directory's first subdirectory in byte order (`10` before `2`; `configs` may be the first). */
export function listFirstDirectory(modelDirectory: string): Listing {
  const first = [...list(modelDirectory)]
    .filter(([, kind]) => kind === 'directory')
    .map(([name]) => name)
    .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))[0]
  return first === undefined ? new Map() : list(join(modelDirectory, first))
}

function list(directory: string): Listing {
  const entries = new Map<string, 'file' | 'directory'>()
  // A directory removed meanwhile counts as empty: the load will fail.
  for (const name of namesIn(directory)) {
    const stat = statIfAny(join(directory, name))
    if (stat !== undefined) entries.set(name, stat.isDirectory() ? 'directory' : 'file')
  }
  return entries
}

/** Files that identify a backend. Several rows may belong to one backend; the first is its default. */
type Rule = ModelFile & { backend: string }

const rulesOf = (isByPlatform: boolean): readonly Rule[] =>
  BACKENDS.filter(({ platformDecides = false }) => platformDecides === isByPlatform).flatMap(({ name, files = [] }) =>
    files.map((file) => ({ backend: name, ...file })),
  )
const [BY_PLATFORM, OTHERS] = [rulesOf(true), rulesOf(false)]
/** Files that are not served, with the name of a file that is. */
const FOREIGN = BACKENDS.flatMap(({ foreign = [], files: [target] = [] }) =>
  foreign.map((one) => ({ ...one, target: target?.name ?? '' })),
)

/**
 * Completes backend, platform and file name, each from the others or from the files.
 *
 * @param files entries of the first subdirectory, `listFirstDirectory`
 * @param hint text about a model without files, which ends the error
 * @throws {ConfigError} INVALID_ARG if nothing identifies the backend
 */
export function inferBackend(
  config: ModelConfig,
  files: Listing,
  modelName: string,
  hint: () => string = () => '',
): ModelConfig {
  const found = copy(config)
  if (inferByPlatform(found, files)) return found

  for (const rule of OTHERS) {
    if (found.backend === '' && matches(rule, found, files)) found.backend = rule.backend
    if (found.backend !== rule.backend) continue
    const own = OTHERS.filter((r) => r.backend === found.backend)
    const fitting = own.find(
      (r) =>
        (found.platform !== '' && r.platform === found.platform) ||
        (found.platform === '' && r.name === found.defaultModelFilename),
    )
    const chosen =
      fitting ??
      own.find((r) => found.platform === '' && found.defaultModelFilename === '' && exists(r, files)) ??
      own[0] ??
      rule
    if (found.platform === '') found.platform = chosen.platform ?? ''
    if (found.defaultModelFilename === '') found.defaultModelFilename = chosen.name
    return found
  }

  if (found.backend === '' && found.platform === '' && found.defaultModelFilename === '') {
    const dot = modelName.indexOf('.')
    if (dot < 0) {
      const known = files.size === 0 ? hint() : ''
      throw invalid(
        `Invalid model name: Could not determine backend for model '${modelName}' with no backend in model ` +
          'configuration. ' +
          'Expected model name of the form ' +
          `'model.<backend_name>'.${filesHint(files)}${known === '' ? '' : ` ${known}`}`,
      )
    }
    found.backend = modelName.slice(dot + 1)
    found.defaultModelFilename = `model.${found.backend}`
  }
  return found
}

/** Names an existing file if none identifies the backend: usually one is just misnamed. */
function filesHint(files: Listing): string {
  for (const name of [...files.keys()].sort()) {
    const row = FOREIGN.find(({ ends }) => ends.test(name))
    if (row !== undefined)
      return (
        ` '${quoted(name)}' is ${row.what}: make a SavedModel of it, which is served: python -c ` +
        `${shellWord(row.code(name, row.target, [], []))}.`
      )
    const part = BY_PLATFORM.find(({ holds }) => holds?.includes(name))
    if (part !== undefined)
      return ` '${name}' and what belongs to it have to be in a directory '${part.name}' of the version.`
  }
  const foreign = [...files.keys()]
    .sort()
    .find((file) => OTHERS.some((rule) => extension(rule.name) === extension(file)))
  const rule = foreign === undefined ? undefined : OTHERS.find((one) => extension(one.name) === extension(foreign))
  if (foreign === undefined || rule === undefined) return ''
  return (
    ` '${quoted(foreign)}' is not a name that the backend looks for: call it '${rule.name}', or name it in the ` +
    `configuration: backend: "${rule.backend}" default_model_filename: "${quoted(foreign)}".`
  )
}

function extension(file: string): string {
  return file.slice(file.lastIndexOf('.'))
}

/** TensorFlow's rules: the platform decides. Without it, a backend alone does not suffice in Triton. */
function inferByPlatform(config: ModelConfig, files: Listing): boolean {
  const own = BY_PLATFORM.filter(({ backend }) => config.backend === '' || config.backend === backend)
  if (config.platform === '') {
    const named = own.find((r) => r.name === config.defaultModelFilename)
    const there = config.defaultModelFilename === '' ? own.find((r) => exists(r, files)) : undefined
    const usual = config.backend === '' ? undefined : own[0]
    config.platform = (named ?? there ?? usual)?.platform ?? ''
  }
  const rule = BY_PLATFORM.find((r) => r.platform === config.platform)
  if (rule === undefined) return false
  if (config.backend === '') config.backend = rule.backend
  if (config.defaultModelFilename === '') config.defaultModelFilename = rule.name
  return true
}

function matches(rule: Rule, config: ModelConfig, files: Listing): boolean {
  if (config.platform !== '' && (config.platform === rule.platform || rule.aliases?.includes(config.platform) === true))
    return true
  if (config.defaultModelFilename === rule.name) return true
  return config.platform === '' && config.defaultModelFilename === '' && exists(rule, files)
}

function exists(rule: Rule, files: Listing): boolean {
  const kind = files.get(rule.name)
  return kind !== undefined && (rule.kind === 'any' || kind === rule.kind)
}

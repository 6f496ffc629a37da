/**
 * Judges the models of a repository: which load, which differ, which must change. Reads configurations, file names, and
 * the beginning of each model.py.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  ConfigSyntaxError,
  ModelInstanceGroup_Kind as Kind,
  absentBackend,
  asServerError,
  backendMeant,
  backendRow,
  configurationIfAny,
  inspectModel,
  inspectRepositories,
  libraryBackends,
  namesIn,
  pythonRuntime,
  readRegularFile,
  statIfAny,
  withPythonBackend,
  type InspectedModel,
  type ModelConfig,
  type RepositorySettings,
} from '../../internal.js'
import { placeOf } from '../check/excerpt.js'
import { locate } from '../check/locate.js'
import type { FactName } from './facts.js'
import type { At, Findings } from './findings.js'
import { runsInPython } from './image.js'

/** Bytes read of a model.py. */
export const CODE_BYTES_MAX = 1024 * 1024

/** Requirements of a repository's models on the start of the server. */
export interface Needs {
  /** True if a model wants a GPU. */
  gpus: boolean
  /** True if a model runs in Python. */
  python: boolean
  /** Number of models, and of those whose backend this release lacks. */
  models: number
  absent: number
}

/** Packages by modules that Python lacks; a load names the package of a missing module (`backend_python::failure`). */
function packagesOfModules(): Map<string, string> {
  const lines = readFileSync(join(pythonRuntime(), 'packages.txt'), 'utf8').split('\n')
  return new Map(lines.map((line) => line.split(' ')).map(([module = '', name = module]) => [module, name]))
}

/** Judges every model of a repository, or the one model in the directory. */
export async function judgeRepository(
  path: string,
  isModel: boolean,
  settings: RepositorySettings,
  findings: Findings,
): Promise<Needs> {
  // Groups that want a GPU get a finding of their own here.
  const lenient: RepositorySettings = { ...settings, gpuFallback: 'cpu' }
  let models: InspectedModel[]
  try {
    models = isModel
      ? [await inspectModel(path.replace(/\/+$/, '').split('/').at(-1) ?? '', [path], lenient, null, 'configuration')]
      : await inspectRepositories({ ...lenient, paths: [path] }, 'configuration')
  } catch (error) {
    findings.change({ path, line: 0 }, 'repository', asServerError(error).message)
    return { gpus: false, python: false, models: 0, absent: 0 }
  }
  if (models.length === 0) findings.differs({ path, line: 0 }, 'repository', 'has no models')
  let gpus = false
  const libraries = new Set(libraryBackends(settings).map(({ name }) => name))
  const absentOf: AbsentOf = (config) =>
    withPythonBackend(config, settings.backendDirectory).codeDirectory === null && !libraries.has(config.backend)
      ? absentBackend(backendMeant(config.backend) ?? '')
      : null
  for (const model of models) gpus = judgeModel(model, absentOf, findings) || gpus
  const absent = models.filter(({ config }) => config === null || absentOf(config) !== null).length
  return {
    gpus,
    python: models.some(({ config }) => runsInPython(config?.backend ?? '')),
    models: models.length,
    absent,
  }
}

/** Text about a model whose backend neither this release nor a directory has; null for any other. */
type AbsentOf = (config: ModelConfig) => string | null

/** Place in a model's configuration: its first line with the word, or none. */
type Where = (word: string) => At

/** Returns true if the model wants a GPU. */
function judgeModel(model: InspectedModel, absentOf: AbsentOf, findings: Findings): boolean {
  const { key, file, directories, config, versions } = model
  const at: At = { path: file ?? directories[0] ?? '', line: 0 }
  const bytes = file === null ? null : configurationIfAny(file)
  const lines = bytes?.toString('utf8').split('\n') ?? []
  const where: Where = (word) => ({ ...at, line: lines.findIndex((line) => line.includes(word)) + 1 })
  const placeOfText = (message: string): At => {
    const span = bytes === null ? null : locate(bytes, message, key)
    return bytes === null || span === null ? at : { ...at, line: placeOf(bytes, span).line }
  }
  const subject = `model ${key}`
  const absent = config === null ? null : absentOf(config)
  if (absent !== null) {
    findings.fact(at, subject, 'absentBackend', absent)
    return false
  }
  let isBroken = false
  for (const { severity, message, error, advice = '' } of model.findings) {
    // The warning about fields without effect has a row of its own.
    if (/without effect in this release: /.test(message))
      findings.fact(at, subject, 'ineffective', message.slice(message.lastIndexOf(': ') + 2))
    else if (severity === 'warning') findings.differs(at, subject, message)
    else {
      isBroken = true
      if (error instanceof ConfigSyntaxError)
        findings.change({ path: error.path, line: error.line }, subject, behind(error.reason, error.hint))
      else if (/^unable to find backend library for backend .*configuration\.$/.test(message))
        findings.fact(placeOfText(message), subject, 'unknownBackend', noLibrary(config?.backend ?? ''))
      else if (message.startsWith("unable to find 'libtritonrepoagent_"))
        findings.fact(where('model_repository_agents'), subject, 'unknownAgent', message)
      else findings.change(placeOfText(message), subject, behind(message, advice))
    }
  }
  if (config === null) return false
  const what = config.platform === 'ensemble' ? 'an ensemble' : config.backend
  if (!isBroken)
    findings.same(at, subject, `${what}, version${versions.length === 1 ? '' : 's'} ${versions.join(', ')}`)
  return judgeFeatures(config, model, where, findings)
}

const noLibrary = (backend: string): string => `no library of backend '${backend}' was found`

/** Joins an error and the advice after it. */
const behind = (text: string, advice: string): string =>
  advice === '' ? text : `${text}${/[.?]$/.test(text) ? '' : '.'} ${advice}`

function judgeFeatures(config: ModelConfig, model: InspectedModel, where: Where, findings: Findings): boolean {
  /** Reports a field by its place; without a fact it runs as it is. */
  const field = (word: string, name: FactName | null, found = '', value = ''): void => {
    const subject = `model ${model.key}: ${word}${value}`
    if (name === null) findings.same(where(word), subject)
    else findings.fact(where(word), subject, name, found)
  }
  const wantsGpu = config.instanceGroup.some((group) => group.kind === Kind.GPU || group.gpus.length > 0)
  const { devices, providers = [], module } = backendRow(config.backend) ?? {}
  if (devices === 'only') findings.fact(where('instance_group'), `model ${model.key}`, 'plan')
  else if (wantsGpu) {
    const ofCode = providers.length > 0 ? 'gpuInstances' : 'gpuOfCode'
    const name = devices === 'cpu' ? 'cpuKinds' : devices === 'never' ? 'cpuAnyway' : ofCode
    field('instance_group', name, 'wants a GPU')
  }
  const choice = config.schedulingChoice
  if (choice.case === 'dynamicBatching' && choice.value.maxQueueDelayMicroseconds > 0n)
    field('max_queue_delay_microseconds', 'delay', '', `: ${choice.value.maxQueueDelayMicroseconds}`)
  if (choice.case === 'sequenceBatching') {
    field('sequence_batching', 'sequences', 'works')
    if (choice.value.state.some((state) => state.initialState.length === 0)) field('state', 'implicitState')
  }
  if (config.modelTransactionPolicy?.decoupled === true) field('decoupled', null)
  if (config.responseCache?.enable === true) field('response_cache', 'cache')
  if (config.modelWarmup.length > 0) field('model_warmup', null)
  if (config.backend === 'python') {
    const environment = config.parameters['EXECUTION_ENV_PATH']?.stringValue ?? ''
    const isOther =
      /\.(?:tar|tgz|tbz2?|txz|zip|bz2|xz|zst)\b/.test(environment) && !/\.(?:tar\.gz|tgz)$/.test(environment)
    if (environment !== '')
      field('EXECUTION_ENV_PATH', isOther ? 'environmentFormat' : 'environment', '', `: ${environment}`)
  }
  const packages =
    config.backend === 'python' ? judgeCode(config, model, findings) : module === undefined ? null : [module]
  if (packages !== null)
    findings.same(
      { ...where(''), line: 0 },
      `model ${model.key}: Python`,
      `its interpreter needs ${['numpy', ...packages].join(', ')}; NEREID_PYTHON names another interpreter`,
    )
  // For the others, the CPU cannot replace the GPU, or the configuration has to change.
  return wantsGpu && devices !== 'only' && devices !== 'cpu'
}

/** Judges the files of a Python model; returns the packages that its code imports. */
function judgeCode(config: ModelConfig, model: InspectedModel, findings: Findings): string[] {
  const subject = `model ${model.key}`
  const [directory = ''] = model.directories
  for (const name of namesIn(directory).slice(0, 1000)) {
    if (name.startsWith('triton_python_backend_stub'))
      findings.fact({ path: join(directory, name), line: 0 }, subject, 'stub')
  }
  const [known, packages] = [packagesOfModules(), new Set<string>()]
  for (const version of model.versions) {
    const file = config.defaultModelFilename === '' ? 'model.py' : config.defaultModelFilename
    const path = join(directory, String(version), file)
    if (statIfAny(path)?.isFile() !== true) continue
    let code: string
    try {
      code = readRegularFile(path, CODE_BYTES_MAX, path).toString('utf8')
    } catch (error) {
      findings.differs({ path, line: 0 }, subject, asServerError(error).message)
      continue
    }
    for (const [, name = ''] of code.matchAll(/^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)/gm))
      if (known.has(name)) packages.add(known.get(name) ?? name)
    const lines = code.split('\n')
    const gpu = lines.findIndex((line) => /["']cuda|\.cuda\(|cupy|KIND_GPU|to_dlpack/.test(line))
    if (gpu >= 0)
      findings.fact({ path, line: gpu + 1 }, `${subject}: ${lines[gpu]?.trim().slice(0, 80) ?? ''}`, 'gpuCode')
  }
  packages.delete('numpy')
  return [...packages].sort()
}

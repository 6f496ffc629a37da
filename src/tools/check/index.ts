/**
 * `nereid check`: prints the errors and warnings that loading would give for repositories, models or configuration
 * files, with the place of each mistake. Starts no server and opens no port; `--load` also loads the models.
 *
 * Exit code 0 without errors, 1 otherwise. Warnings do not count.
 */

import { resolve } from 'node:path'
import {
  ConfigSyntaxError,
  OptionError,
  asServerError,
  backendRow,
  commandNamed,
  configurationIfAny,
  counted,
  download,
  explain,
  isOfOnnxRuntime,
  printable,
  readArguments,
  readOptions,
  resolveSettings,
  shown,
  usageOf,
  type Downloads,
  type Finding,
  type Format,
  type InspectedModel,
  type ServerSettings,
  type TextGuess,
} from '../../internal.js'
import { excerpt, placeInLine, placeOf, type Place } from './excerpt.js'
import { annotation } from './github.js'
import { loadProblems } from './load.js'
import { locate } from './locate.js'
import { hintsOf, inspectTargets, isInModel } from './targets.js'

/** Parts of a model that a load sees and an inspection does not, by backend. */
const SEEN_BY_LOAD: Readonly<Record<string, string>> = {
  javascript: 'imports, and what the code declares and initialises',
  python: 'imports, auto_complete_config and initialize',
  text: 'the graph',
}

/** Lines shown of one message after its first. */
const LINES_MAX = 100

interface Problem {
  severity: 'error' | 'warning'
  /** null if it concerns no model, such as a missing repository. */
  model: string | null
  /** The configuration file, or the model's directory. */
  path: string | null
  place: Place | null
  message: string
  /** Advice that the message lacks. */
  advice: string
}

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('check')
  let format: Format = 'text'
  let downloads: Downloads | null = null
  try {
    const own = readArguments(command, args)
    format = (own.options.get('format') ?? format) as Format
    const named: string[] = []
    const parsed = await readOptions(own.rest, process.env, named)
    if (named.length === 0 && parsed.options.modelRepository.length === 0)
      throw new OptionError('Nothing to check: name a model repository, a model or a config.pbtxt')
    // The other rules of the command line apply without a repository, too.
    const needed =
      parsed.options.modelRepository.length === 0
        ? { ...parsed, options: { ...parsed.options, modelRepository: named } }
        : parsed
    const { settings, warnings } = resolveSettings(needed)
    const { modelRepository } = parsed.options
    downloads = await download([...named, ...modelRepository], settings.repository)
    const targets = named.map(downloads.local)
    const repository = { ...settings.repository, paths: modelRepository.map(downloads.local) }
    const models = await inspectTargets(targets, repository)
    const problems: Problem[] = [
      ...warnings.map((message) => ({ severity: 'warning' as const, model: null, message })),
      ...downloads.problems,
    ].map((problem) => ({ ...problem, path: null, place: null, advice: '' }))
    for (const { path, message } of hintsOf(named, { ...repository, paths: modelRepository }))
      problems.push({ severity: 'warning', model: null, path, place: null, message, advice: '' })
    // Without its files, a model has other mistakes too.
    const isWithoutFiles = new Set(downloads.problems.map(({ model }) => model))
    for (const model of models) if (!isWithoutFiles.has(model.key)) problems.push(...problemsOf(model))
    const isLoaded = own.options.has('load')
    if (isLoaded) problems.push(...(await problemsOfLoad({ ...settings, repository }, targets, models, problems)))
    for (const problem of problems) {
      problem.path = problem.path === null ? null : downloads.named(problem.path)
      problem.message = downloads.named(problem.message)
    }
    const count = models.filter(({ directories }) => directories.length === 1).length
    return report(problems, count, format, isLoaded ? [] : onlyWithLoad(models), guessesOf(models))
  } catch (error) {
    const isUsage = error instanceof OptionError
    if (isUsage) {
      process.stderr.write(`${usageOf(program, command)}\n${error.message}\n`)
      return 1
    }
    return report(
      [{ severity: 'error', model: null, path: null, place: null, message: asServerError(error).message, advice: '' }],
      0,
      format,
    )
  } finally {
    await downloads?.close()
  }
}

/** Problems that only a load finds. Models with known errors fail again; that is not reported twice. */
async function problemsOfLoad(
  settings: ServerSettings,
  targets: readonly string[],
  models: readonly InspectedModel[],
  known: readonly Problem[],
): Promise<Problem[]> {
  const problem = { severity: 'error', path: null, place: null, advice: '' } as const
  const isWrong = new Set(known.filter(({ severity }) => severity === 'error').map(({ model }) => model))
  const outside = models.filter(({ file }) => file !== null && targets.includes(file) && !isInModel(file))
  const problems: Problem[] = outside.map(({ key, file }) => ({
    ...problem,
    severity: 'warning',
    model: key,
    path: file,
    message: 'is not loaded: there are no versions of a model beside it',
  }))
  try {
    for (const { model, reason: message } of await loadProblems(settings, targets)) {
      if (isWrong.has(model)) continue
      // An ensemble repeats the errors of its models.
      const reason = message.replace(/ Model '[^']*' (?:loading )?failed with error: .*$/s, '')
      const inspected = models.find(({ key }) => key === model)
      const about =
        inspected === undefined
          ? {}
          : explain(
              reason,
              inspected.directories.map((directory) => resolve(directory)),
            )
      const finding: Finding = { ...about, severity: 'error', message: reason, error: null }
      problems.push(
        inspected === undefined
          ? { ...problem, model, message: reason }
          : problemOf(inspected, finding, configOf(inspected)),
      )
    }
  } catch (error) {
    problems.push({ ...problem, model: null, message: asServerError(error).message })
  }
  return problems
}

function problemsOf(model: InspectedModel): Problem[] {
  const bytes = configOf(model)
  return model.findings.map((finding) => problemOf(model, finding, bytes))
}

const configOf = ({ file }: InspectedModel): Buffer | null => (file === null ? null : configurationIfAny(file))

function problemOf({ key, file, directories }: InspectedModel, finding: Finding, bytes: Buffer | null): Problem {
  const { severity, message, error, advice = '', near } = finding
  const problem = { severity, model: key, message, advice }
  if (error instanceof ConfigSyntaxError) {
    const place = placeOf(configurationIfAny(error.path) ?? Buffer.alloc(0), error.span)
    return { ...problem, path: error.path, place, message: error.reason, advice: error.hint }
  }
  if (finding.file !== undefined) {
    const place =
      typeof finding.line === 'number'
        ? placeInLine(
            configurationIfAny(finding.file) ?? Buffer.alloc(0),
            finding.line,
            finding.column ?? null,
            finding.endColumn ?? null,
          )
        : null
    return { ...problem, path: finding.file, place }
  }
  const span = file === null || bytes === null || near === null ? null : locate(bytes, message, key, near)
  if (span === null || bytes === null) return { ...problem, path: directories.join(', '), place: null }
  return { ...problem, path: file, place: placeOf(bytes, span) }
}

/** Lines about models of which only a load sees everything, one for each backend. */
function onlyWithLoad(models: readonly InspectedModel[]): string[] {
  const lines = new Map<string, string[]>()
  for (const { key, config, file, findings } of models) {
    const { backend = '' } = config ?? {}
    const isOpaque = backend !== '' && backendRow(backend)?.served !== 'core'
    const { parameters = {}, optimization, modelOperations } = config ?? {}
    const isTuned =
      Object.keys(parameters).length > 0 ||
      optimization?.executionAccelerators !== undefined ||
      modelOperations !== undefined
    const seen =
      SEEN_BY_LOAD[backend] ??
      (isOpaque
        ? `what the backend ${backend} checks`
        : isOfOnnxRuntime(backend) && isTuned
          ? 'values of parameters, accelerators and operator libraries'
          : undefined)
    const isWrong = findings.some(({ severity }) => severity === 'error')
    if (seen === undefined || isWrong || (file !== null && !isInModel(file))) continue
    lines.set(seen, [...(lines.get(seen) ?? []), key])
  }
  return [...lines].map(([seen, keys]) => `${seen} (${keys.join(', ')})`)
}

/** A value that a text model takes from its files. */
type ModelGuess = TextGuess & { model: string }

const guessesOf = (models: readonly InspectedModel[]): ModelGuess[] =>
  models.flatMap(({ key, guesses }) => guesses.map((guess) => ({ model: key, ...guess })))

function report(
  problems: readonly Problem[],
  models: number,
  format: Format,
  unseen: readonly string[] = [],
  guesses: readonly ModelGuess[] = [],
): number {
  const errors = problems.filter((problem) => problem.severity === 'error').length
  const warnings = problems.length - errors
  if (format === 'github') {
    for (const { severity, path, place, message, advice } of problems) {
      const text = sentences(messageOf(message).join('\n'), advice)
      for (const file of path?.split(', ') ?? [null])
        process.stdout.write(annotation(severity, { file: file === null ? null : shown(file), place, text }))
    }
  } else if (format === 'json') {
    const rows = problems.map(({ place, ...rest }) => ({
      ...rest,
      line: place?.line ?? null,
      column: place?.column ?? null,
      endColumn: place?.endColumn ?? null,
    }))
    const more = {
      ...(guesses.length > 0 ? { guesses } : {}),
      ...(unseen.length > 0 ? { onlyWithLoad: unseen } : {}),
    }
    const result = { models, errors, warnings, problems: rows, ...more }
    process.stdout.write(`${JSON.stringify(result, null, 2)}\n`)
  } else {
    for (const problem of problems) process.stdout.write(textOf(problem))
  }
  if (format === 'text') {
    for (const { model, name, value, from } of guesses)
      process.stdout.write(`${printable(`${model}: ${name} is ${value === '' ? 'not set' : value} (${from})`)}\n`)
  }
  if (format === 'text') for (const line of unseen) process.stdout.write(`only with --load: ${printable(line)}\n`)
  if (format !== 'json')
    process.stdout.write(`${counted(models, 'model')}, ${counted(errors, 'error')}, ${counted(warnings, 'warning')}\n`)
  return errors === 0 ? 0 : 1
}

function textOf({ severity, path, model, place, message, advice }: Problem): string {
  const where = [path === null ? model : path.split(', ').map(shown).join(', '), place?.line, place?.column]
    .filter((part) => part !== null && part !== undefined)
    .join(':')
  const head = where === '' ? '' : `${printable(where)}: `
  const lines = messageOf(message).map((line, i) => (i === 0 || line === '' ? line : `    ${line}`))
  return (
    `${head}${severity}: ` +
    `${sentences(lines.join('\n'), printable(advice))}\n${place === null ? '' : excerpt(place)}`
  )
}

/** Joins a message and the advice after it. */
const sentences = (message: string, advice: string): string =>
  advice === '' ? message : `${message}${/[.?]$/.test(message) ? '' : '.'} ${advice}`

/** Splits the lines of an error of Python: type and text, frames, and the line of source. */
function messageOf(message: string): string[] {
  const [first = '', ...rest] = message
    .trimEnd()
    .replace(/\s*\n;$/, '')
    .split(/\r?\n/)
  return [
    first,
    ...rest.slice(0, LINES_MAX),
    ...(rest.length > LINES_MAX ? [`… ${rest.length - LINES_MAX} more lines`] : []),
  ].map((line) => printable(line))
}

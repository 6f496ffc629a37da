/**
 * `nereid check`: prints what a load would say of repositories, models or configuration files, with the place of each mistake. Starts no server
 * and opens no port; with `--load` the models are loaded for real, and that is all.
 *
 * Exit code 0 when nothing is wrong, 1 otherwise. Warnings change nothing.
 */

import { OptionError } from '../../cli/parse.js'
import { resolveSettings } from '../../cli/settings.js'
import { readOptions } from '../../cli/sources.js'
import { ConfigSyntaxError, CONFIG_BYTES_MAX, readRegularFile } from '../../config/index.js'
import { asServerError } from '../../native/errors.js'
import type { ServerSettings } from '../../api/server.js'
import { counted, printable, shown, takeOwn, type Format } from '../output.js'
import type { Finding, InspectedModel } from '../../repository/index.js'
import { excerpt, placeOf, type Place } from './excerpt.js'
import { loadProblems } from './load.js'
import { locate } from './locate.js'
import { inspectTargets, isInModel } from './targets.js'

/** Lines of one message behind its first that are shown. */
const LINES_MAX = 100

interface Problem {
  severity: 'error' | 'warning'
  /** null of what concerns no model, such as a repository that is not there. */
  model: string | null
  /** The configuration file, or the directory of the model. */
  path: string | null
  place: Place | null
  message: string
  /** What to do, where the message does not say it. */
  advice: string
}

export async function run(program: string, args: readonly string[]): Promise<number> {
  let own
  try {
    own = takeOwn(args, ['--load', '--help'])
    if (own.on.has('--help')) {
      process.stdout.write(USAGE(program))
      return 0
    }
    const targets: string[] = []
    const parsed = await readOptions(own.rest, process.env, targets)
    if (targets.length === 0 && parsed.options.modelRepository.length === 0) throw new OptionError('Nothing to check: name a model repository, a model or a config.pbtxt')
    // Every other rule of the command line holds without a repository, too.
    const needed = parsed.options.modelRepository.length === 0 ? { ...parsed, options: { ...parsed.options, modelRepository: targets } } : parsed
    const { settings, warnings } = resolveSettings(needed)
    const repository = { ...settings.repository, paths: parsed.options.modelRepository }
    const models = await inspectTargets(targets, repository)
    const problems: Problem[] = warnings.map((message) => ({ severity: 'warning', model: null, path: null, place: null, message, advice: '' }))
    for (const model of models) problems.push(...problemsOf(model))
    if (own.on.has('--load')) problems.push(...(await problemsOfLoad({ ...settings, repository }, targets, models, problems)))
    return report(problems, models.length, own.format)
  } catch (error) {
    const isUsage = error instanceof OptionError
    if (isUsage) {
      process.stderr.write(`${USAGE(program)}${error.message}\n`)
      return 1
    }
    return report([{ severity: 'error', model: null, path: null, place: null, message: asServerError(error).message, advice: '' }], 0, own?.format ?? 'text')
  }
}

const USAGE = (program: string): string => `Usage: ${program} check [--load] [--format=json] [REPOSITORY | MODEL | config.pbtxt ...] [options of the server]\n`

/** What only a load shows. Models that are wrong already are loaded too, which fails: they are told once. */
async function problemsOfLoad(settings: ServerSettings, targets: readonly string[], models: readonly InspectedModel[], known: readonly Problem[]): Promise<Problem[]> {
  const problem = { severity: 'error', path: null, place: null, advice: '' } as const
  const isWrong = new Set(known.filter(({ severity }) => severity === 'error').map(({ model }) => model))
  const lone = models.filter(({ file }) => file !== null && targets.includes(file) && !isInModel(file))
  const told: Problem[] = lone.map(({ key, file }) => ({ ...problem, severity: 'warning', model: key, path: file, message: 'is not loaded: beside it are no versions of a model' }))
  try {
    for (const { model, reason } of await loadProblems(settings, targets)) {
      if (!isWrong.has(model)) told.push({ ...problem, model, message: reason })
    }
  } catch (error) {
    told.push({ ...problem, model: null, message: asServerError(error).message })
  }
  return told
}

function problemsOf(model: InspectedModel): Problem[] {
  const bytes = model.file === null ? null : read(model.file)
  return model.findings.map((finding) => problemOf(model, finding, bytes))
}

function problemOf({ key, file, directories }: InspectedModel, { severity, message, error, advice = '' }: Finding, bytes: Buffer | null): Problem {
  const problem = { severity, model: key, message, advice }
  if (error instanceof ConfigSyntaxError) {
    const place = placeOf(read(error.path) ?? Buffer.alloc(0), error.span)
    return { ...problem, path: error.path, place, message: error.reason, advice: error.hint }
  }
  const span = file === null || bytes === null ? null : locate(bytes, message, key)
  if (span === null || bytes === null) return { ...problem, path: directories.join(', '), place: null }
  return { ...problem, path: file, place: placeOf(bytes, span) }
}

function read(path: string): Buffer | null {
  try {
    return readRegularFile(path, CONFIG_BYTES_MAX, '')
  } catch {
    return null
  }
}

function report(problems: readonly Problem[], models: number, format: Format): number {
  const errors = problems.filter((problem) => problem.severity === 'error').length
  const warnings = problems.length - errors
  if (format === 'json') {
    const rows = problems.map(({ place, ...rest }) => ({ ...rest, line: place?.line ?? null, column: place?.column ?? null, endColumn: place?.endColumn ?? null }))
    process.stdout.write(`${JSON.stringify({ models, errors, warnings, problems: rows }, null, 2)}\n`)
  } else {
    for (const problem of problems) process.stdout.write(textOf(problem))
    process.stdout.write(`${counted(models, 'model')}, ${counted(errors, 'error')}, ${counted(warnings, 'warning')}\n`)
  }
  return errors === 0 ? 0 : 1
}

function textOf({ severity, path, model, place, message, advice }: Problem): string {
  const where = [path === null ? model : path.split(', ').map(shown).join(', '), place?.line, place?.column].filter((part) => part !== null && part !== undefined).join(':')
  const head = where === '' ? '' : `${printable(where)}: `
  // Errors of Python have several lines: type and text, frames, and the line of source.
  const [first = '', ...rest] = message.trimEnd().replace(/\s*\n;$/, '').split(/\r?\n/)
  const shownLines = [first, ...rest.slice(0, LINES_MAX), ...(rest.length > LINES_MAX ? [`… ${rest.length - LINES_MAX} more lines`] : [])].map((line, i) => (i === 0 || line === '' ? printable(line) : `    ${printable(line)}`))
  return `${head}${severity}: ${shownLines.join('\n')}${advice === '' ? '' : `${/[.?]$/.test(message) ? '' : '.'} ${printable(advice)}`}\n${place === null ? '' : excerpt(place)}`
}

/** Targets of `nereid check`: repositories, single models, or one configuration file. */

import { basename, dirname, extname, join, resolve } from 'node:path'
import {
  ServerError,
  fileHint,
  findVersions,
  inspectModel,
  inspectRepositories,
  isForInit,
  misplacedIn,
  noLog,
  statIfAny,
  type InspectedModel,
  type RepositorySettings,
} from '../../internal.js'

/**
 * Inspects all models of the targets.
 *
 * @throws {ServerError} for a path that is no target
 */
export async function inspectTargets(
  targets: readonly string[],
  settings: RepositorySettings,
): Promise<InspectedModel[]> {
  const repositories = repositoriesOf(targets, settings)
  const models: InspectedModel[] = []
  for (const target of targets) {
    const stat = statIfAny(target)
    if (stat === undefined) throw new ServerError('INTERNAL', `failed to stat file ${target}`)
    if (!stat.isDirectory() && isForInit(target))
      throw new ServerError('INVALID_ARG', `${target} is not a configuration${fileHint(target)}`)
    if (!stat.isDirectory()) models.push(await inspectFile(target, settings))
    else if (isModel(target)) models.push(await inspectModel(basename(resolve(target)), [target], settings))
  }
  if (repositories.length > 0) models.push(...(await inspectRepositories({ ...settings, paths: repositories })))
  return models
}

const repositoriesOf = (targets: readonly string[], settings: RepositorySettings): string[] => [
  ...settings.paths,
  ...targets.filter((target) => statIfAny(target)?.isDirectory() === true && !isModel(target)),
]

/** Warnings of a server's start: repositories without models, and misplaced models. */
export function hintsOf(targets: readonly string[], settings: RepositorySettings): { path: string; message: string }[] {
  return misplacedIn(repositoriesOf(targets, settings), settings.mode !== 'explicit')
}

/** Inspects a configuration file with its model if it belongs to one, else by its content alone. */
async function inspectFile(path: string, settings: RepositorySettings): Promise<InspectedModel> {
  const isCustom = isCustomConfig(path)
  const shown = isCustom ? dirname(dirname(path)) : dirname(path)
  if (!isInModel(path)) return inspectModel(null, [shown], settings, path)
  return inspectModel(basename(resolve(shown)), [shown], {
    ...settings,
    configName: isCustom ? basename(path, '.pbtxt') : settings.configName,
  })
}

/** True if a file is the configuration of a model, which has its versions in the same directory. */
export function isInModel(path: string): boolean {
  const parent = dirname(resolve(path))
  const isCustom = isCustomConfig(path)
  return (isCustom || basename(path) === 'config.pbtxt') && hasVersions(isCustom ? dirname(parent) : parent)
}

const isCustomConfig = (path: string): boolean =>
  basename(dirname(resolve(path))) === 'configs' && extname(path) === '.pbtxt'

/** True for a directory with a configuration or a version, but not for one whose subdirectories have them. */
export function isModel(directory: string): boolean {
  return statIfAny(join(directory, 'config.pbtxt')) !== undefined || hasVersions(directory)
}

function hasVersions(directory: string): boolean {
  try {
    return findVersions(directory, noLog).size > 0
  } catch {
    return false
  }
}

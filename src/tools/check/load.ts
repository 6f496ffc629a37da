/** Loads models as a server does, and reports the failures of each version. Opens no port. */

import { basename, dirname, resolve } from 'node:path'
import { loadQuietly, statIfAny, type LoadEvent, type LoadFailure, type ServerSettings } from '../../internal.js'
import { isInModel, isModel } from './targets.js'

/**
 * Failures of all targets. For a model or a file, loads that model from the repository that contains it. Skips files
 * outside a model.
 *
 * @throws {ServerError} for a repository that cannot be opened
 */
export async function loadProblems(settings: ServerSettings, targets: readonly string[]): Promise<LoadFailure[]> {
  const repositories = new Set(
    settings.repository.paths.map((path) => resolve(path)).filter((path) => statIfAny(path)?.isDirectory() === true),
  )
  // If no whole repository is named, load only the named models.
  let isWhole = repositories.size > 0
  const single: string[] = []
  for (const target of targets) {
    const path = resolve(target)
    const isFile = statIfAny(path)?.isFile() === true
    if (isFile && !isInModel(path)) continue
    if (isFile || isModel(path)) {
      const parent = dirname(path)
      const model = isFile ? (basename(parent) === 'configs' ? dirname(parent) : parent) : path
      single.push(basename(model))
      repositories.add(dirname(model))
    } else {
      isWhole = true
      repositories.add(path)
    }
  }
  if (repositories.size === 0) return []
  const repository = { ...settings.repository, paths: [...repositories] }
  const { core } = settings
  const strict = { ...core, engine: { ...core.engine, chat: { ...core.engine.chat, isStrict: true } } }
  // Errors of each version, or of a model that failed before its versions, without the load's own words.
  const failed = new Map<string, Set<string>>()
  const observe = ({ model, phase, detail }: LoadEvent): void => {
    if (phase === 'failed') failed.set(model, (failed.get(model) ?? new Set()).add(detail.trimEnd()))
  }
  const names = isWhole ? null : [...new Set(single)]
  const server = await loadQuietly({ ...settings, core: strict, repository }, names, { observe })
  await server.stop(0)
  return server.failures.flatMap(({ model, reason }) =>
    [...(failed.get(model) ?? [reason.trimEnd()])].map((one) => ({ model, reason: one })),
  )
}

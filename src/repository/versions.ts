/** Finds the version directories of a model. The version policy (`selectVersions`) decides which are served. */

import { readdirSync } from 'node:fs'
import { join, normalize } from 'node:path'
import { noLog, readConfig, selectVersions, type ConfigFlags, type Log, type ModelConfig } from '../config/index.js'
import { MODEL_DIRECTORY } from './named_files.js'
import { isDirectory } from './scan.js'

/** Directories of a model that are never versions. */
const RESERVED = new Set(['warmup', 'initial_state', 'configs'])

/**
 * Version directories by number, ascending. Plain files are ignored, and so are directories that a parameter of the
 * configuration names, such as that of a tokenizer; a warning names every other directory.
 */
export function findVersions(modelDirectory: string, log: Log, config: ModelConfig | null = null): Map<number, string> {
  const named = directoriesNamed(config)
  const found: [number, string][] = []
  for (const entry of readdirSync(modelDirectory, { withFileTypes: true })) {
    const directory = join(modelDirectory, entry.name)
    if (RESERVED.has(entry.name) || !isDirectory(entry, directory)) continue
    const version = readVersion(entry.name)
    if (typeof version === 'number') found.push([version, directory])
    else if (!named.has(entry.name)) log('warning', `ignore version directory '${entry.name}' which ${version}`)
  }
  return new Map(found.sort(([a], [b]) => a - b))
}

/**
 * The versions that are loaded from a directory; null if the files of all versions are needed.
 *
 * @param config replaces the configuration file; null = none
 */
export function versionsToLoad(
  directory: string,
  flags: ConfigFlags,
  config: string | null,
): ReadonlySet<number> | null {
  try {
    const read = readConfig(directory, flags, config, noLog)
    // Agents may read the files of every version.
    if ((read.config.modelRepositoryAgents?.agents.length ?? 0) > 0) return null
    return new Set(selectVersions(read.config, [...findVersions(directory, noLog).keys()]))
  } catch {
    // The load fails for the same reason.
    return new Set()
  }
}

/** First parts of the paths below the model that parameters may name. Digits alone are a version with a mistake. */
function directoriesNamed(config: ModelConfig | null): ReadonlySet<string> {
  const paths = Object.values(config?.parameters ?? {}).map(({ stringValue }) => normalize(inModel(stringValue)))
  return new Set(paths.map((path) => path.split('/')[0] ?? '').filter((name) => !/^\d+$/.test(name)))
}

const inModel = (text: string): string =>
  text.startsWith(`${MODEL_DIRECTORY}/`) ? text.slice(MODEL_DIRECTORY.length + 1) : text

/** The version number, or why the name has none. Digits only: `1abc` is a mistake, not version 1. */
function readVersion(name: string): number | string {
  if (name.length > 1 && name.startsWith('0')) return 'contains leading zeros in its directory name'
  const version = Number(name)
  if (!/^\d+$/.test(name) || !Number.isSafeInteger(version)) return 'fails to convert to integral number'
  return version
}

/**
 * Decides when a changed model needs no reload: if only instance groups and version policy differ, the serving
 * version gets new instances, continues and keeps its statistics. Whether the backend supports that is the core's
 * decision.
 */

import { basename, relative, sep } from 'node:path'
import { copy, isSame, type ModelConfig } from '../config/index.js'
import { changeOf } from './stamp.js'
import { eachIn } from './walk.js'

/** The directory and configuration that a model was loaded from. */
export interface Source {
  directory: string
  /** Configuration as polled, before completion. */
  config: ModelConfig
  /** Latest change by entry of the model directory, without the configurations. */
  entries: ReadonlyMap<string, bigint>
}

/**
 * Visits at most as many entries as a poll does.
 *
 * @param configName `--model-config-name`; when set, everything in `configs` is configuration too
 */
export async function sourceOf(directory: string, config: ModelConfig, configName: string | null): Promise<Source> {
  const entries = new Map<string, bigint>()
  await eachIn(directory, (path, stat) => {
    const [name = ''] = relative(directory, path).split(sep)
    // The directory's own time only shows that an entry came or went, which the names show as well.
    if (name === '' || name === 'config.pbtxt' || (name === 'configs' && configName !== null)) return
    const change = changeOf(stat)
    if (change > (entries.get(name) ?? 0n)) entries.set(name, change)
  })
  return { directory, config, entries }
}

/**
 * Reports whether a version that serves since `before`, from `versionDirectory`, can continue when the model is loaded
 * from `after`.
 *
 * @param completed the configuration that it serves with; clients send it back with another number of instances
 */
export function servesOn(
  before: Source | undefined,
  after: Source,
  versionDirectory: string,
  completed: ModelConfig,
): boolean {
  if (before === undefined || before.directory !== after.directory) return false
  if (!isSameButForInstances(before.config, after.config) && !isSameButForInstances(completed, after.config))
    return false
  const isOther = (name: string): boolean => /^\d+$/.test(name) && name !== basename(versionDirectory)
  // The contents of other versions do not matter; a file that was added or removed does.
  const names = new Set([...before.entries.keys(), ...after.entries.keys()].filter((name) => !isOther(name)))
  return [...names].every((name) => before.entries.get(name) === after.entries.get(name))
}

function isSameButForInstances(before: ModelConfig, after: ModelConfig): boolean {
  return isSame(before, withInstancesOf(after, before))
}

/** Returns the completed configuration of a version with the instances and the version policy of another. */
export function withInstancesOf(completed: ModelConfig, { instanceGroup, versionPolicy }: ModelConfig): ModelConfig {
  const config = copy(completed)
  config.instanceGroup = instanceGroup
  config.versionPolicy = versionPolicy
  return config
}

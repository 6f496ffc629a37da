/**
 * When a changed model needs no reload: a version that serves, whose files and whose configuration are as they were but for its
 * instance groups and its version policy, is only given other instances. It goes on, and its statistics are kept.
 *
 * Whether the backend can do that is the core's to say; here it is only told what changed.
 */

import { basename, relative, sep } from 'node:path'
import { copy, toBinary, type ModelConfig } from '../config/index.js'
import { changeOf } from './stamp.js'
import { eachIn } from './walk.js'

/** What a model was loaded from. */
export interface Source {
  directory: string
  /** As polling gave it. */
  config: ModelConfig
  /** Entry of the model directory, without the configurations → its latest change. */
  entries: ReadonlyMap<string, bigint>
}

/**
 * Looks at as many entries as a poll does, and no more.
 *
 * @param configName `--model-config-name`: with one everything in `configs` is configuration, too
 */
export async function sourceOf(directory: string, config: ModelConfig, configName: string | null): Promise<Source> {
  const entries = new Map<string, bigint>()
  await eachIn(directory, (path, stat) => {
    const [name = ''] = relative(directory, path).split(sep)
    // The time of the directory itself says that an entry came or went, which the names say as well.
    if (name === '' || name === 'config.pbtxt' || (name === 'configs' && configName !== null)) return
    const change = changeOf(stat)
    if (change > (entries.get(name) ?? 0n)) entries.set(name, change)
  })
  return { directory, config, entries }
}

/**
 * Whether a version that serves since `before`, from `versionDirectory`, can go on when the model is loaded from `after`.
 *
 * @param completed the configuration it serves with: clients send that back with another number of instances
 */
export function servesOn(before: Source | undefined, after: Source, versionDirectory: string, completed: ModelConfig): boolean {
  if (before === undefined || before.directory !== after.directory) return false
  if (!isSameButForInstances(before.config, after.config) && !isSameButForInstances(completed, after.config)) return false
  const isOther = (name: string): boolean => /^\d+$/.test(name) && name !== basename(versionDirectory)
  // What another version consists of does not matter; that a file is gone or new does.
  const names = new Set([...before.entries.keys(), ...after.entries.keys()].filter((name) => !isOther(name)))
  return [...names].every((name) => before.entries.get(name) === after.entries.get(name))
}

function isSameButForInstances(before: ModelConfig, after: ModelConfig): boolean {
  return withoutInstances(before).equals(withoutInstances(after))
}

function withoutInstances(config: ModelConfig): Buffer {
  const rest = copy(config)
  rest.instanceGroup = []
  delete rest.versionPolicy
  return toBinary(rest)
}

/** The completed configuration of a version with the instances and the version policy of another. */
export function withInstancesOf(completed: ModelConfig, { instanceGroup, versionPolicy }: ModelConfig): ModelConfig {
  const config = copy(completed)
  config.instanceGroup = instanceGroup
  config.versionPolicy = versionPolicy
  return config
}

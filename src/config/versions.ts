/** Selects the versions of a model that are served. */
import { invalid, noLog, type Log } from './error.js'
import type { ModelConfig } from './generated/model_config_pb.js'

/** Missing versions that are logged by number, a line each; further ones are counted. */
const MISSING_LOGGED_MAX = 16

/**
 * The versions that the version policy selects, ascending.
 *
 * @param hint text about a model without versions, which ends the error
 * @throws {ConfigError} if it selects none
 */
export function selectVersions(
  config: ModelConfig,
  available: readonly number[],
  log: Log = noLog,
  hint: () => string = () => '',
): number[] {
  const existing = [...new Set(available)].sort((a, b) => a - b)
  const selected = select(config, existing, log)
  if (selected.length === 0) {
    const known = existing.length === 0 ? hint() : ''
    throw invalid(
      'at least one version must be available under the version policy of model ' +
        `'${config.name}'${known === '' ? '' : `; ${known}`}`,
    )
  }
  return selected
}

function select(config: ModelConfig, existing: number[], log: Log): number[] {
  const policy = config.versionPolicy?.policyChoice
  switch (policy?.case) {
    case 'latest':
      return existing.slice(Math.max(0, existing.length - policy.value.numVersions))
    case 'specific': {
      const selected = new Set(policy.value.versions.map(Number))
      const missing = [...selected].filter((version) => !existing.includes(version))
      for (const version of missing.slice(0, MISSING_LOGGED_MAX)) {
        log(
          'error',
          `version ${version} is specified for model '${config.name}', but the version directory is not present`,
        )
      }
      if (missing.length > MISSING_LOGGED_MAX)
        log(
          'error',
          `and ${missing.length - MISSING_LOGGED_MAX} more versions that are not present for model '${config.name}'`,
        )
      return existing.filter((version) => selected.has(version))
    }
    default:
      // `normalise` replaces a missing policy by latest 1. An empty policy message means all.
      return config.versionPolicy === undefined ? existing.slice(-1) : existing
  }
}

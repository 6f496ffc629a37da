/**
 * Repository agents: what a configuration wants done with a model before it is loaded.
 *
 * Agents run in their order, after the configuration was read and before it is completed, so that a model that fails one is not looked at
 * any further. One agent is built in; those that are libraries of Triton's agent API are not loaded.
 */

import type { ModelConfig } from '../config/index.js'
import { ServerError, quoted } from '../native/index.js'
import { checkSums, type Sum } from './checksum.js'

/** Agents of one model. A configuration of 100,000 values could name as many, each of them with work to do. */
const AGENTS_MAX = 64

export interface AgentPlace {
  modelDirectory: string
  /** `--repoagent-directory`, named in the error of an agent that is not there. */
  agentDirectory: string
}

/**
 * Has every agent of the configuration look at the model.
 *
 * @param stopped asked now and then; when it says yes the rest is given up
 * @throws {ServerError} `INVALID_ARG` for an agent that is not there, and whatever an agent finds wrong.
 */
export async function runAgents(config: ModelConfig, place: AgentPlace, stopped: () => boolean): Promise<void> {
  const agents = config.modelRepositoryAgents?.agents ?? []
  if (agents.length > AGENTS_MAX) {
    throw new ServerError('INVALID_ARG', `${agents.length} repository agents, at most ${AGENTS_MAX} are run for one model`)
  }
  // One budget for all of them: naming a file in ten agents is no way around it.
  const sums: Sum[] = []
  for (const { name, parameters } of agents) {
    if (name !== 'checksum') {
      const library = `libtritonrepoagent_${quoted(name)}.so`
      throw new ServerError('INVALID_ARG', `unable to find '${library}' for repo agent '${quoted(name)}', searched: ${place.agentDirectory}`)
    }
    for (const [key, expected] of Object.entries(parameters)) sums.push({ key, expected })
  }
  await checkSums(place.modelDirectory, sums, stopped)
}

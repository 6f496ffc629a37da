/**
 * Repository agents: checks that a configuration requests before its model is loaded.
 *
 * Agents run in order, after the configuration is read and before it is completed. The first failure ends the load.
 * One agent, `checksum`, is built in; libraries of Triton's agent API are not loaded.
 */

import type { ModelConfig } from '../config/index.js'
import { ServerError, quoted } from '../native/index.js'
import { checkSums, type Sum } from './checksum.js'

/** Maximum number of agents of one model: a configuration of 100,000 values could name as many. */
const AGENTS_MAX = 64

export interface AgentPlace {
  modelDirectory: string
  /** `--repoagent-directory`, named in the error for a missing agent. */
  agentDirectory: string
}

/**
 * Runs every agent of the configuration.
 *
 * @param stopped polled between parts of the work; true cancels the rest
 * @throws {ServerError} `INVALID_ARG` for an unknown agent, and the errors of the agents.
 */
export async function runAgents(config: ModelConfig, place: AgentPlace, stopped: () => boolean): Promise<void> {
  const agents = config.modelRepositoryAgents?.agents ?? []
  if (agents.length > AGENTS_MAX) {
    const text = `${agents.length} repository agents, at most ${AGENTS_MAX} are run for one model`
    throw new ServerError('INVALID_ARG', text)
  }
  // All agents share one budget, so naming a file in ten agents does not multiply the limit.
  const sums: Sum[] = []
  for (const { name, parameters } of agents) {
    if (name !== 'checksum') {
      const library = `libtritonrepoagent_${quoted(name)}.so`
      const where = `searched: ${place.agentDirectory}`
      throw new ServerError('INVALID_ARG', `unable to find '${library}' for repo agent '${quoted(name)}', ${where}`)
    }
    for (const [key, expected] of Object.entries(parameters)) sums.push({ key, expected })
  }
  await checkSums(place.modelDirectory, sums, stopped)
}

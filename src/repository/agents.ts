/**
 * Repository agents: code that a configuration requests before its model is loaded, and when it is unloaded.
 *
 * Agents run in order, after the configuration is read and before it is completed. The first failure ends the load.
 * `checksum` is built in. Others are libraries of Triton's agent API, each in a process of its own: they
 * may move the model to another directory, and are told how the load ended and of the unload.
 */

import { existsSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { statIfAny, toTritonJson, type Log, type ModelConfig } from '../config/index.js'
import { ServerError, asServerError, quoted } from '../native/index.js'
import { AgentProcess, type AgentHost } from './agent_process.js'
import { checkSums, type Sum } from './checksum.js'

/** Maximum number of agents of one model: a configuration of 100,000 values could name as many. */
const AGENTS_MAX = 64

const BUILT_IN = 'checksum'

export interface AgentPlace {
  modelDirectory: string
  /** `--repoagent-directory` */
  agentDirectory: string
}

type AgentConfig = NonNullable<ModelConfig['modelRepositoryAgents']>['agents'][number]

/** The agents of a configuration, with their libraries; null for the one that is built in. */
function agentsOf(config: ModelConfig, agentDirectory: string): (AgentConfig & { library: string | null })[] {
  const agents = config.modelRepositoryAgents?.agents ?? []
  if (agents.length > AGENTS_MAX) {
    const text = `${agents.length} repository agents, at most ${AGENTS_MAX} are run for one model`
    throw new ServerError('INVALID_ARG', text)
  }
  return agents.map((agent) => {
    if (agent.name === BUILT_IN) return { ...agent, library: null }
    const file = `libtritonrepoagent_${agent.name}.so`
    const library = join(agentDirectory, agent.name, file)
    // A name must not lead out of the directory: a request may bring the configuration.
    if (/[/\0]/.test(agent.name) || agent.name === '' || !existsSync(library)) {
      const name = quoted(agent.name)
      const where = `searched: ${agentDirectory}`
      const file = `libtritonrepoagent_${name}.so`
      throw new ServerError('INVALID_ARG', `unable to find '${file}' for repo agent '${name}', ${where}`)
    }
    return { ...agent, library }
  })
}

/** All checks of the built-in agent share one budget, so naming a file in ten agents does not multiply the limit. */
function sumsOf(agents: readonly AgentConfig[]): Sum[] {
  const own = agents.filter(({ name }) => name === BUILT_IN)
  return own.flatMap(({ parameters }) => Object.entries(parameters).map(([key, expected]) => ({ key, expected })))
}

/**
 * Runs the built-in agents of a configuration, and looks for the libraries of the others, for `nereid check`.
 *
 * @throws {ServerError} `INVALID_ARG` for an unknown agent, and the errors of the agents.
 */
export async function checkAgents(config: ModelConfig, place: AgentPlace): Promise<void> {
  const agents = agentsOf(config, place.agentDirectory)
  await checkSums(place.modelDirectory, sumsOf(agents), () => false)
}

/** One use of an agent by a model. */
interface AgentUse {
  name: string
  process: AgentProcess
  model: number
}

/** The agents of one loaded model. Their errors are logged: only those of a load matter. */
export class AgentModels {
  readonly #uses: AgentUse[]
  readonly #log: Log
  #isEnded = false

  constructor(uses: AgentUse[], log: Log) {
    this.#uses = uses
    this.#log = log
  }

  /** Says how the load ended, to the last agent first, as Triton does. */
  async loaded(succeeded: boolean): Promise<void> {
    await this.#act(succeeded ? 'LOAD_COMPLETE' : 'LOAD_FAIL', this.#uses.toReversed())
  }

  /** Says that the unload begins. */
  async unloads(): Promise<void> {
    await this.#act('UNLOAD', this.#uses)
  }

  /** Ends the models of the agents, with the actions that are due: after the unload, or instead of one. */
  async end(wasUnloaded = false): Promise<void> {
    if (this.#isEnded) return
    this.#isEnded = true
    if (wasUnloaded) await this.#act('UNLOAD_COMPLETE', this.#uses.toReversed())
    for (const { name, process, model } of this.#uses) {
      await this.#quietly(name, () => process.ask('close', { model }))
      process.remove()
    }
  }

  async #act(action: string, uses: readonly AgentUse[]): Promise<void> {
    for (const { name, process, model } of uses) {
      await this.#quietly(name, () => process.ask('act', { model, action }))
    }
  }

  async #quietly(name: string, ask: () => Promise<unknown>): Promise<void> {
    try {
      await ask()
    } catch (error) {
      this.#log('warning', `repository agent '${name}': ${asServerError(error).message}`)
    }
  }
}

/** Where agents left a model, and its uses of them; null if all are built in. */
export interface AgentRun {
  directory: string
  models: AgentModels | null
}

/** The configuration in a directory as JSON, of which there is none if it cannot be read, as in Triton. */
function found(directory: string, configAt: (directory: string) => ModelConfig): string {
  try {
    return toTritonJson(configAt(directory))
  } catch {
    return '{}'
  }
}

/**
 * The directory where an agent left a model. It may be any one, as in Triton.
 *
 * @throws {ServerError} `INVALID_ARG` if it is neither where the model was nor the absolute path of a directory
 */
function movedTo(agent: string, location: unknown, before: string): string {
  if (location === before) return before
  if (typeof location === 'string' && isAbsolute(location) && statIfAny(location)?.isDirectory() === true)
    return location
  const text = typeof location === 'string' ? `'${quoted(location)}'` : 'no path'
  const why = 'which is not the absolute path of a directory'
  throw new ServerError(
    'INVALID_ARG',
    `repository agent '${quoted(agent)}' set the location of the model to ${text}, ${why}`,
  )
}

/** The agents of a repository, and of its models. */
export class Agents {
  readonly #host: AgentHost | null
  readonly #log: Log
  /** Agents of loaded models. */
  readonly #loaded = new Map<string, AgentModels>()
  /** Agents of models whose last load failed: they end with the next one, as in Triton. */
  readonly #failed = new Map<string, AgentModels>()
  /** By library. */
  readonly #processes = new Map<string, AgentProcess>()
  readonly #all = new Set<AgentProcess>()

  constructor(host: AgentHost | null, log: Log) {
    this.#host = host
    this.#log = log
  }

  /**
   * Runs every agent of the configuration of a model, after those of its last load, if that failed, have ended.
   *
   * @param stopped polled between parts of the work; true cancels the rest
   * @param configAt reads the configuration in a directory; later agents see that of where the first left the model
   * @throws {ServerError} `INVALID_ARG` for an unknown agent, and the errors of the agents.
   */
  async run(
    name: string,
    config: ModelConfig,
    place: AgentPlace,
    stopped: () => boolean,
    configAt: (directory: string) => ModelConfig,
  ): Promise<AgentRun> {
    await this.#failed.get(name)?.end()
    this.#failed.delete(name)
    const agents = agentsOf(config, place.agentDirectory)
    await checkSums(place.modelDirectory, sumsOf(agents), stopped)
    let directory = place.modelDirectory
    const uses: AgentUse[] = []
    const models = new AgentModels(uses, this.#log)
    try {
      for (const { name, parameters, library } of agents) {
        if (library === null) continue
        const process = this.#process(name, library)
        const model = process.add()
        let opened: Record<string, unknown>
        try {
          const json = uses.length === 0 ? toTritonJson(config) : found(directory, configAt)
          const given = { location: directory, remote: false, config: json, parameters: Object.entries(parameters) }
          opened = await process.ask('open', { model, ...given })
        } catch (error) {
          process.remove()
          throw error
        }
        uses.push({ name, process, model })
        directory = movedTo(name, opened['location'], directory)
      }
    } catch (error) {
      await models.end()
      throw error
    }
    return { directory, models: uses.length === 0 ? null : models }
  }

  /** Tells the agents of a model how its load ended. If it succeeded, those of what it replaces end. */
  async ended(name: string, agents: AgentModels | null, succeeded: boolean): Promise<void> {
    if (!succeeded) {
      if (agents === null) return
      this.#failed.set(name, agents)
      await agents.loaded(false)
      return
    }
    const before = this.#loaded.get(name)
    if (agents === null) this.#loaded.delete(name)
    else this.#loaded.set(name, agents)
    await agents?.loaded(true)
    await before?.end()
  }

  /** Tells the agents of a model that it is unloaded; they end when `retired` resolves. */
  async unload(name: string, retired: Promise<unknown>): Promise<void> {
    const agents = this.#loaded.get(name)
    this.#loaded.delete(name)
    await Promise.all([agents?.unloads(), retired])
    await agents?.end(true)
  }

  /** Tells the agents that all models are unloaded, before these end. Waits for at most `ms`. */
  async unloadAll(ms: number): Promise<void> {
    const told = [...this.#loaded.values()].map((agents) => agents.unloads())
    if (told.length > 0) await Promise.race([Promise.all(told), pause(ms, undefined, { ref: false })])
  }

  /** Ends all agents, and the models that they still have. Waits for at most `ms`. */
  async stop(ms: number): Promise<void> {
    await Promise.all([...this.#all].map((process) => process.ended(ms)))
  }

  #process(name: string, library: string): AgentProcess {
    const known = this.#processes.get(library)
    if (known?.isUsable === true) return known
    if (this.#host === null || this.#host.missing !== null) {
      const why = this.#host?.missing ?? 'this program cannot run libraries'
      throw new ServerError('UNSUPPORTED', `the library '${library}' of a repository agent cannot run here: ${why}`)
    }
    const process = new AgentProcess(name, library, this.#host, this.#log)
    this.#processes.set(library, process)
    this.#all.add(process)
    void process.gone().then(() => this.#all.delete(process))
    return process
  }
}

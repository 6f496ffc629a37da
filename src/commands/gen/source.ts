/** Where descriptions of models come from: a server, over HTTP, or a repository, whose models are loaded once. */

import { describeModel, type ModelDescription } from '../../api/description.js'
import { startServer, type ServerSettings } from '../../api/server.js'
import { createLogger } from '../../log/index.js'
import { CommandError } from '../arguments.js'

/** No answer of a server is waited for longer. */
const ANSWER_MS_MAX = 30_000

export interface Remote {
  /** Without a slash at the end. */
  url: string
  headers: Readonly<Record<string, string>>
}

/**
 * Models of a server. `names` null asks for all that are ready.
 *
 * @throws {CommandError} for a server that cannot be reached, that refuses, or that is none.
 */
export async function modelsOfServer(remote: Remote, names: readonly string[] | null): Promise<ModelDescription[]> {
  const wanted = names ?? (await readyModels(remote))
  const models: ModelDescription[] = []
  // One after the other: a server may have thousands, and limits for one client.
  for (const name of wanted) {
    const path = `/v2/models/${name}`
    const metadata = (await ask(remote, 'GET', path)) as Parameters<typeof describeModel>[0]
    const config = (await ask(remote, 'GET', `${path}/config`)) as Parameters<typeof describeModel>[1]
    models.push(describeModel(metadata, config))
  }
  return models
}

async function readyModels(remote: Remote): Promise<string[]> {
  const rows = await ask(remote, 'POST', '/v2/repository/index', '{"ready":true}')
  if (!Array.isArray(rows)) throw new CommandError(`${remote.url} is no inference server: its index is no list`)
  return [...new Set(rows.map((row: { name: string }) => row.name))]
}

async function ask({ url, headers }: Remote, method: string, path: string, body?: string): Promise<unknown> {
  const where = `${method} ${url}${path}`
  let status: number
  let text: string
  try {
    const answer = await fetch(`${url}${path}`, { method, headers, ...(body === undefined ? {} : { body }), signal: AbortSignal.timeout(ANSWER_MS_MAX) })
    status = answer.status
    text = await answer.text()
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    throw new CommandError(`${where}: no answer: ${cause instanceof Error ? cause.message : String(cause)}`)
  }
  if (status !== 200) throw new CommandError(`${where}: ${status} ${errorOf(text)}${path.endsWith('/index') ? '; --models=A,B asks for these without an index' : ''}`)
  try {
    return JSON.parse(text)
  } catch {
    throw new CommandError(`${where}: the answer is no JSON`)
  }
}

function errorOf(text: string): string {
  try {
    return (JSON.parse(text) as { error?: string }).error ?? ''
  } catch {
    return text.slice(0, 200)
  }
}

/**
 * Models of repositories, loaded as a server loads them; no port is opened.
 *
 * @throws {CommandError} naming the models that do not load.
 */
export async function modelsOfRepository(settings: ServerSettings, names: readonly string[] | null): Promise<ModelDescription[]> {
  const quiet = createLogger({ ...settings.log, info: false, warning: false, error: false, verbose: 0 }, () => {})
  const chosen = names === null ? ({ mode: 'none', loadModels: [] } as const) : ({ mode: 'explicit', loadModels: names } as const)
  const repository = { ...settings.repository, ...chosen, loadModels: [...chosen.loadModels] }
  const server = await startServer({ ...settings, exitOnError: true, http: null, grpc: null, metrics: null, repository }, quiet)
  try {
    if (server.failures.length > 0) {
      throw new CommandError(`models that do not load:\n${server.failures.map(({ model, reason }) => `  ${model}: ${reason.trimEnd()}`).join('\n')}`)
    }
    const ready = new Set(server.repository.index(true).map((row) => row.name))
    return [...ready].map((name) => describeModel(JSON.parse(server.core.modelMetadata(name, '')), JSON.parse(server.core.modelConfig(name, ''))))
  } finally {
    await server.stop(0)
  }
}

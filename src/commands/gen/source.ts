/** Reads descriptions of models from a server over HTTP, or from a repository, whose models are loaded once. */

import { describeModel, type ModelDescription } from '../../api/description.js'
import { startServer, type ServerSettings } from '../../api/server.js'
import { createLogger } from '../../log/index.js'
import { CommandError } from '../arguments.js'

/** Timeout of a response. */
const ANSWER_MS_MAX = 30_000
/** Limit of a response's size. */
const ANSWER_BYTES_MAX = 16 << 20

export interface Remote {
  /** URL without a slash at the end. */
  url: string
  headers: Readonly<Record<string, string>>
}

/**
 * Models of a server. `names` null selects all ready ones.
 *
 * @throws {CommandError} if the server is unreachable, rejects the request, or does not speak the protocol
 */
export async function modelsOfServer(remote: Remote, names: readonly string[] | null): Promise<ModelDescription[]> {
  const selected = names ?? (await readyModels(remote))
  const models: ModelDescription[] = []
  // One at a time: a server may have thousands, and limits per client.
  for (const name of selected) {
    const path = `/v2/models/${encodeURIComponent(name)}`
    const metadata = await ask(remote, 'GET', path)
    if (!isMetadata(metadata)) throw new CommandError(`GET ${remote.url}${path}: the answer describes no model`)
    const config = await ask(remote, 'GET', `${path}/config`)
    if (!isConfig(config)) throw new CommandError(`GET ${remote.url}${path}/config: the answer is no configuration`)
    models.push(describeModel(metadata, config))
  }
  return models
}

type Metadata = Parameters<typeof describeModel>[0]
type Config = Parameters<typeof describeModel>[1]

/** Members of an object; none for any other value. */
const membersOf = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}

function isMetadata(answer: unknown): answer is Metadata {
  const { name, inputs = [], outputs = [] } = membersOf(answer)
  const isTensor = (tensor: unknown): boolean => {
    const { name, datatype, shape } = membersOf(tensor)
    return (
      typeof name === 'string' &&
      typeof datatype === 'string' &&
      Array.isArray(shape) &&
      shape.every((size) => Number.isInteger(Number(size)))
    )
  }
  return (
    typeof name === 'string' && [inputs, outputs].every((tensors) => Array.isArray(tensors) && tensors.every(isTensor))
  )
}

function isConfig(answer: unknown): answer is Config {
  const { max_batch_size = 0, input = [] } = membersOf(answer)
  return (
    typeof answer === 'object' &&
    answer !== null &&
    Number.isInteger(max_batch_size) &&
    Array.isArray(input) &&
    input.every((one) => typeof one === 'object' && one !== null)
  )
}

async function readyModels(remote: Remote): Promise<string[]> {
  const rows = await ask(remote, 'POST', '/v2/repository/index', '{"ready":true}')
  const names = Array.isArray(rows) ? rows.map((row) => membersOf(row)['name']) : [null]
  if (!names.every((name) => typeof name === 'string'))
    throw new CommandError(`${remote.url} is no inference server: its index is no list of models`)
  return [...new Set(names)]
}

async function ask({ url, headers }: Remote, method: string, path: string, body?: string): Promise<unknown> {
  const where = `${method} ${url}${path}`
  let status: number
  let text: string
  try {
    const answer = await fetch(`${url}${path}`, {
      method, headers, ...(body === undefined ? {} : { body }), signal: AbortSignal.timeout(ANSWER_MS_MAX),
    })
    status = answer.status
    text = await read(answer)
  } catch (error) {
    if (error instanceof CommandError) throw new CommandError(`${where}: ${error.message}`)
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    throw new CommandError(`${where}: no answer: ${cause instanceof Error ? cause.message : String(cause)}`)
  }
  if (status !== 200) {
    const isKeyMissing =
      status === 401 && !Object.keys(headers).some((name) => /^(?:authorization|x-api-key)$/i.test(name))
    const advice = isKeyMissing ? '; the variable NEREID_KEY gives this command one'
      : path.endsWith('/index') ? '; --models=A,B asks for these without an index' : ''
    throw new CommandError(`${where}: ${status} ${errorOf(text)}${advice}`)
  }
  try {
    return JSON.parse(text)
  } catch {
    throw new CommandError(`${where}: the answer is no JSON`)
  }
}

async function read(answer: Response): Promise<string> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of answer.body ?? []) {
    length += part.length
    if (length > ANSWER_BYTES_MAX) throw new CommandError(`the answer has more than ${ANSWER_BYTES_MAX} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts).toString()
}

function errorOf(text: string): string {
  try {
    const { error } = membersOf(JSON.parse(text))
    if (typeof error === 'string') return error
  } catch {
    // Return the text as it is.
  }
  return text.slice(0, 200)
}

/**
 * Models of repositories, loaded as a server does; opens no port.
 *
 * @throws {CommandError} naming the models that fail to load
 */
export async function modelsOfRepository(
  settings: ServerSettings, names: readonly string[] | null,
): Promise<ModelDescription[]> {
  const quiet = createLogger({ ...settings.log, info: false, warning: false, error: false, verbose: 0 }, () => {})
  const chosen =
    names === null ? ({ mode: 'none', loadModels: [] } as const) : ({ mode: 'explicit', loadModels: names } as const)
  const repository = { ...settings.repository, ...chosen, loadModels: [...chosen.loadModels] }
  const server = await startServer(
    {
      ...settings, exitOnError: true, http: null, grpc: null, metrics: null, control: null,
      requestLog: { ...settings.requestLog, access: '', audit: '' }, listenEarly: false, repository,
    },
    quiet,
  )
  try {
    if (server.failures.length > 0) {
      throw new CommandError(
        'models that do not ' +
          `load:\n${server.failures.map(({ model, reason }) => `  ${model}: ${reason.trimEnd()}`).join('\n')}`,
      )
    }
    const ready = new Set(server.repository.index(true).map((row) => row.name))
    return [...ready].map((name) =>
      describeModel(JSON.parse(server.core.modelMetadata(name, '')), JSON.parse(server.core.modelConfig(name, ''))),
    )
  } finally {
    await server.stop(0)
  }
}

/** Reads descriptions of models from a server over HTTP, or from a repository, whose models are loaded once. */

import {
  CommandError,
  ask,
  describeModel,
  membersOf,
  loadQuietly,
  type ModelDescription,
  type Remote,
  type ServerSettings,
} from '../../internal.js'

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
    const metadata = await ask(remote, path)
    if (!isMetadata(metadata))
      throw new CommandError(`GET ${remote.url}${path}: the response does not describe a model`)
    const config = await ask(remote, `${path}/config`)
    if (!isConfig(config))
      throw new CommandError(`GET ${remote.url}${path}/config: the response is not a configuration`)
    models.push(describeModel(metadata, config))
  }
  return models
}

type Metadata = Parameters<typeof describeModel>[0]
type Config = Parameters<typeof describeModel>[1]

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
  const rows = await ask(remote, '/v2/repository/index', {
    method: 'POST',
    body: '{"ready":true}',
    advise: () => '; --models=A,B works without an index',
  })
  const names = Array.isArray(rows) ? rows.map((row) => membersOf(row)['name']) : [null]
  if (!names.every((name) => typeof name === 'string'))
    throw new CommandError(`${remote.url} is not an inference server: its index is not a list of models`)
  return [...new Set(names)]
}

/**
 * Models of repositories, loaded as a server does; opens no port.
 *
 * @throws {CommandError} naming the models that fail to load
 */
export async function modelsOfRepository(
  settings: ServerSettings,
  names: readonly string[] | null,
): Promise<ModelDescription[]> {
  const server = await loadQuietly(settings, names)
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

/**
 * Answers control operations that arrived at a listener of the core: repository, trace and log settings.
 *
 * The core has authorised the request and checked the JSON syntax. Everything else about the arguments is decided
 * here, so that HTTP, gRPC and the in-process API cannot differ. Each call is answered exactly once, whatever happens.
 */

import type { Logger } from '../log/index.js'
import { ServerError, asServerError, type ControlCall, type ControlFile, type Core, type Restriction } from '../native/index.js'
import type { IndexRow, LoadParameters, Repository } from '../repository/index.js'
import { isString, members, type JsonObject } from './json.js'
import { logSettingsAnswer, updateLogSettings, type Protocol } from './log_settings.js'
import { openApi } from './openapi/index.js'
import { page } from './pages/index.js'
import type { TraceSettings } from './trace_settings.js'

export interface ControlContext {
  core: Core
  repository: Repository
  trace: TraceSettings
  logger: Logger
  /** What requests have to show, for descriptions of the API. */
  guards: { hasKeys: boolean; restrictions: readonly Restriction[] }
  /** Where metrics are; 0 = nowhere. */
  metricsPort: () => number
  /** The repository could not be read at start, and the server stays up all the same. */
  unusable: () => boolean
  /** The models of the start are loading, and the ports are open all the same. */
  loading: () => boolean
}

/** Runs one operation and replies. Never throws. */
export async function answerControl(context: ControlContext, call: ControlCall): Promise<void> {
  let text: string
  try {
    const answer = await runControl(context, call)
    text = call.operation === 'page' ? String(answer) : JSON.stringify(answer)
  } catch (error) {
    const { code, message } = asServerError(error)
    context.core.controlReply(call.id, null, code, message)
    return
  }
  context.core.controlReply(call.id, text, null, '')
}

async function runControl(context: ControlContext, call: ControlCall): Promise<unknown> {
  const { repository, trace, logger, core } = context
  const argument = members(JSON.parse(call.argument))
  const protocol: Protocol = argument['protocol'] === 'grpc' ? 'grpc' : 'http'
  const model = typeof argument['model'] === 'string' ? argument['model'] : ''
  const within = typeof argument['within'] === 'string' ? argument['within'] : ''
  const requireUsable = (): void => {
    if (context.unusable()) throw new ServerError('UNAVAILABLE', 'Server not ready')
  }
  if (call.operation.startsWith('repository_')) requireUsable()
  const isChange = call.operation === 'repository_load' || call.operation === 'repository_unload'
  if (isChange && context.loading()) throw new ServerError('UNAVAILABLE', 'Server not ready')
  switch (call.operation) {
    case 'repository_index':
      return repository.index(argument['ready'] === true)
    case 'repository_load':
      await repository.load(model, readLoadParameters(argument['parameters'], protocol, call.files), within)
      return {}
    case 'repository_unload':
      await repository.unload(model, argument['unload_dependents'] === true, within)
      return {}
    case 'openapi':
      return openApi(core, context.guards, model, typeof argument['version'] === 'string' ? argument['version'] : '')
    case 'page': {
      const index = (): IndexRow[] => {
        requireUsable()
        return repository.index(false)
      }
      const host = typeof argument['host'] === 'string' ? argument['host'] : ''
      return page({ core, index, metricsPort: context.metricsPort() }, String(argument['page']), argument['html'] === true, host)
    }
    case 'trace_get':
      return trace.answer(model)
    case 'trace_update':
      trace.update(model, argument['settings'], protocol)
      return trace.answer(model)
    case 'log_get':
      return logSettingsAnswer(logger.settings)
    case 'log_update':
      try {
        updateLogSettings(logger.settings, argument['settings'], protocol)
      } finally {
        // Keys before a failing one stay changed.
        core.setVerboseLevel(logger.settings.verbose)
      }
      return logSettingsAnswer(logger.settings)
  }
}

/**
 * The `parameters` of a load request, and the files of it that the core has taken out of them already.
 *
 * @throws {ServerError} for an unknown key, a value that is no string, or contents that are not base64.
 */
export function readLoadParameters(value: unknown, protocol: Protocol, decoded: readonly ControlFile[] = []): LoadParameters {
  let config: string | null = null
  const files = new Map<string, Uint8Array>()
  for (const [key, text] of Object.entries(requireObject(value))) {
    if (key === 'config') {
      isString(text)
      config = text
    } else if (key.startsWith('file:')) {
      isString(text)
      files.set(key.slice('file:'.length), decodeBase64(key, text))
    } else if (protocol === 'grpc') {
      throw new ServerError('INVALID_ARG', `unrecognized load parameter '${key}'.`)
    } else {
      isString(text)
      throw new ServerError('INTERNAL', 'unexpected error on creating Triton parameter')
    }
  }
  for (const { parameter, contents } of decoded) files.set(parameter.slice('file:'.length), contents)
  return { config, files }
}

function requireObject(value: unknown): JsonObject {
  if (value === undefined || value === null) return {}
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new ServerError('INTERNAL', 'attempt to get members for non-object')
  }
  return value as JsonObject
}

/** Node skips what is not base64, so a text that decodes to fewer bytes than its length says was not. */
function decodeBase64(key: string, text: string): Uint8Array {
  let end = text.length
  while (end > 0 && text[end - 1] === '=') end -= 1
  const bytes = Buffer.from(text, 'base64')
  if (bytes.length !== Math.floor((end * 3) / 4)) {
    throw new ServerError('INVALID_ARG', `load parameter '${key}' is not valid base64`)
  }
  return bytes
}

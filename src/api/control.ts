/**
 * Runs control operations that arrived at a listener of the core: repository, trace and log settings.
 *
 * The core has authorised the request and checked the JSON syntax. All other checks of arguments are here, so that
 * HTTP, gRPC and the in-process API cannot differ. Each call gets exactly one reply, even after an error.
 */

import type { Logger } from '../log/index.js'
import {
  ServerError,
  asServerError,
  type ControlCall,
  type ControlFile,
  type Core,
  type Restriction,
} from '../native/index.js'
import type { IndexRow, LoadParameters, Repository } from '../repository/index.js'
import { isString, malformed, members, type JsonObject } from './json.js'
import { logSettingsAnswer, updateLogSettings, type Protocol } from './log_settings.js'
import { openApi } from './openapi/index.js'
import { consoleFacts } from './console.js'
import { page } from './pages/index.js'
import type { TraceSettings } from './trace_settings.js'

export interface ControlContext {
  core: Core
  repository: Repository
  trace: TraceSettings
  logger: Logger
  /** Credentials that requests need, for descriptions of the API. */
  guards: { hasKeys: boolean; restrictions: readonly Restriction[] }
  /** True with `--model-control-mode=explicit`. */
  isExplicit: boolean
  /** Port of the metrics endpoint; 0 = off. */
  metricsPort: () => number
  /** Port of gRPC; 0 = off. */
  grpcPort: () => number
  /** Text of a scrape. */
  metrics: () => Promise<string>
  /** True if the repository could not be read at start, although the server stays up. */
  unusable: () => boolean
  /** True while the startup models load with open ports. */
  loading: () => boolean
}

/** Runs one operation and replies. Never throws. */
export async function answerControl(context: ControlContext, call: ControlCall): Promise<void> {
  let text: string
  try {
    const answer = await runControl(context, call)
    text = call.operation === 'page' ? String(answer) : JSON.stringify(answer)
  } catch (error) {
    const { code, message, fault, retryable } = asServerError(error)
    context.core.controlReply(call.id, null, code, message, fault, retryable)
    return
  }
  context.core.controlReply(call.id, text, null, '', 'client', false)
}

async function runControl(context: ControlContext, call: ControlCall): Promise<unknown> {
  const { repository, trace, logger, core, metricsPort } = context
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
    case 'repository_poll':
      await repository.pollNow()
      return {}
    case 'repository_register':
      repository.register(String(argument['path']), readNames(argument['names']))
      return {}
    case 'repository_unregister':
      repository.unregister(String(argument['path']))
      return {}
    case 'metrics':
      return await context.metrics()
    case 'openapi':
      return openApi(core, context.guards, model, typeof argument['version'] === 'string' ? argument['version'] : '')
    case 'page': {
      const index = (): IndexRow[] => {
        requireUsable()
        return repository.index(false)
      }
      const host = typeof argument['host'] === 'string' ? argument['host'] : ''
      const context = { core, index, metricsPort: metricsPort() }
      return page(context, String(argument['page']), argument['html'] === true, host)
    }
    case 'console':
      return consoleFacts(context, argument)
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
        // As in Triton, keys before an invalid one stay changed.
        core.setVerboseLevel(logger.settings.verbose)
      }
      return logSettingsAnswer(logger.settings)
  }
}

/**
 * Reads the `parameters` of a load request; the core has already decoded some of its files.
 *
 * @throws {ServerError} for an unknown key, a value that is not a string, or contents that are not base64.
 */
export function readLoadParameters(
  value: unknown,
  protocol: Protocol,
  decoded: readonly ControlFile[] = [],
): LoadParameters {
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
      throw malformed('unexpected error on creating Triton parameter')
    }
  }
  for (const { parameter, contents } of decoded) files.set(parameter.slice('file:'.length), contents)
  return { config, files }
}

/** Directories by the names of models. */
function readNames(value: unknown): Map<string, string> {
  return new Map(Object.entries(requireObject(value)).map(([name, directory]) => [name, String(directory)]))
}

function requireObject(value: unknown): JsonObject {
  if (value === undefined || value === null) return {}
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw malformed('attempt to get members for non-object')
  }
  return value as JsonObject
}

/** Node skips characters that are not base64, so a result that is too short means invalid input. */
function decodeBase64(key: string, text: string): Uint8Array {
  let end = text.length
  while (end > 0 && text[end - 1] === '=') end -= 1
  const bytes = Buffer.from(text, 'base64')
  if (bytes.length !== Math.floor((end * 3) / 4)) {
    throw new ServerError('INVALID_ARG', `load parameter '${key}' is not valid base64`)
  }
  return bytes
}

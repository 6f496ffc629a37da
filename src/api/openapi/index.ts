/**
 * `GET /v2/openapi.json`: the HTTP API as an OpenAPI 3.1 document, of the whole server or of one model.
 *
 * Paths and methods come from the routing table of the core, words and schemas from the tables beside this file.
 */

import { describeRoutes, ServerError, type Core, type Route } from '../../native/index.js'
import { describeModel, type ModelDescription } from '../description.js'
import { modelSchemas } from './model.js'
import { OPERATIONS, type Operation } from './operations.js'
import { object, ref, SCHEMAS, type Json, type Schema } from './schemas.js'
import { securityOf, securitySchemes, type Guards } from './security.js'

/** Names in a path that are digits only; the others are anything without a slash. */
const PLACES: Readonly<Record<string, Schema>> = {
  model: { type: 'string', minLength: 1 },
  version: { type: 'string', pattern: '^[0-9]+$' },
  region: { type: 'string', minLength: 1 },
}

type Described = Pick<Core, 'serverMetadata' | 'modelMetadata' | 'modelConfig' | 'needsKey'>

/**
 * The document of the server, or with a model's name that of this model.
 *
 * @throws {ServerError} as `GET /v2/models/{model}` answers, for a model that is not there.
 */
export function openApi(core: Described, { restrictions, hasKeys }: Omit<Guards, 'core'>, model: string, version: string): Schema {
  const guards = { core, restrictions, hasKeys }
  const server = JSON.parse(core.serverMetadata()) as { name: string; version: string }
  if (model === '') {
    if (version !== '') throw new ServerError('INVALID_ARG', `a version ('${version}') is that of a model: /v2/openapi.json?model=NAME&version=${version}`)
    return document(`${server.name}: inference over HTTP`, server.version, describeRoutes(), guards, null)
  }
  const metadata = JSON.parse(core.modelMetadata(model, version)) as Parameters<typeof describeModel>[0]
  const config = JSON.parse(core.modelConfig(model, version)) as Parameters<typeof describeModel>[1]
  const of = describeModel(metadata, config)
  const prefix = `/v2/models/{model}${version === '' ? '' : '/versions/{version}'}`
  const isOfModel = ({ template }: Route) =>
    template === prefix || (template.startsWith(`${prefix}/`) && (version !== '' || !template.includes('{version}')))
  const routes = describeRoutes().filter(isOfModel)
  return document(`${model}: inference over HTTP`, of.versions.at(-1) ?? '0', routes, guards, { of, version })
}

interface OneModel {
  of: ModelDescription
  version: string
}

function document(title: string, version: string, routes: readonly Route[], guards: Guards, model: OneModel | null): Schema {
  const paths: Schema = {}
  for (const route of routes) {
    const { template, methods } = route
    const path = filled(template, model)
    const operations: Schema = {}
    for (const method of methods) {
      // A version is a number in paths that are asked for.
      operations[method.toLowerCase()] = { ...operation(method, template, model), ...securityOf(guards, method, path.replace('{version}', '1'), route) }
    }
    paths[path] = { ...parameters(template, model), ...operations }
  }
  const schemas = { ...SCHEMAS, Description: object({ openapi: { type: 'string' } }, ['openapi']), ...(model === null ? {} : modelSchemas(model.of)) }
  const responses = { Error: { description: 'It was not done, and why.', content: json('Error') } }
  return { openapi: '3.1.0', info: { title, version }, servers: [{ url: '/' }], paths, components: { schemas: { ...schemas }, responses, ...securitySchemes(guards) } }
}

/** The path of one model has its name in it. */
function filled(template: string, model: OneModel | null): string {
  if (model === null) return template
  return template.replace('{model}', () => model.of.name).replace('{version}', () => model.version)
}

function parameters(template: string, model: OneModel | null): Schema {
  const names = [...filled(template, model).matchAll(/\{(\w+)\}/g)].map((match) => match[1] ?? '')
  const places = names.filter((name) => name in PLACES).map((name) => ({ name, in: 'path', required: true, schema: PLACES[name] ?? {} }))
  return places.length === 0 ? {} : { parameters: places }
}

const json = (schema: string): Schema => ({ 'application/json': { schema: ref(schema) } })
const BINARY: Schema = { 'application/octet-stream': { schema: { type: 'string', format: 'binary', description: 'JSON, and behind it the tensors.' } } }
const LENGTH: Schema = { description: 'Bytes of JSON in front of binary tensors.', schema: { type: 'integer', minimum: 0 } }

function operation(method: string, template: string, model: OneModel | null): Schema {
  const isOfVersion = template.includes('/versions/{version}')
  const found: Operation = OPERATIONS[`${method} ${template.replace('/versions/{version}', '')}`] ?? { id: `${method}${template}`, summary: '' }
  const { id, summary, request, response, isBodyOptional, isBinary, isStream } = found
  const query = template === '/v2/openapi.json' ? ['model', 'version'].map((name) => ({ name, in: 'query', schema: { type: 'string' } })) : []
  const header = isBinary === true ? [{ name: 'Inference-Header-Content-Length', in: 'header', ...LENGTH }] : []
  const given = [...query, ...header]
  const content: Json = isStream === true ? { 'text/event-stream': { schema: ref(response ?? '') } } : { ...json(response ?? ''), ...(isBinary === true ? BINARY : {}) }
  return {
    // Two operations of a document must not share a name.
    operationId: isOfVersion && model === null ? `${id}OfVersion` : id,
    summary,
    ...(given.length === 0 ? {} : { parameters: given }),
    ...(request === undefined ? {} : { requestBody: { required: isBodyOptional !== true, content: { ...json(request), ...(isBinary === true ? BINARY : {}) } } }),
    responses: {
      200: {
        description: 'Done.',
        ...(isBinary === true ? { headers: { 'Inference-Header-Content-Length': LENGTH } } : {}),
        ...(response === undefined ? {} : { content }),
      },
      default: { $ref: '#/components/responses/Error' },
    },
  }
}

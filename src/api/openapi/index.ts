/**
 * `GET /v2/openapi.json`: the HTTP API as an OpenAPI 3.1 document, of the whole server or of one model.
 *
 * Paths, methods and texts come from the core's routing table, schemas from this directory. test/python/test_openapi.py
 * fails if a route names a missing schema.
 */

import { describeRoutes, ServerError, type Core, type Route, type RouteDocumentation } from '../../native/index.js'
import { describeModel, type ModelDescription } from '../description.js'
import { modelSchemas } from './model.js'
import { object, ref, SCHEMAS, type Json, type Schema } from './schemas.js'
import { securityOf, securityOfAll, securitySchemes, type Guards } from './security.js'
import { TAGS } from './tags.js'
import { CHAT_SCHEMAS } from './generated/chat.js'
import { TEXT_SCHEMAS } from './generated/text.js'

/** Schemas of endpoints whose errors have OpenAI's form. */
const OF_TEXTS: Schema = {
  ...TEXT_SCHEMAS,
  ...CHAT_SCHEMAS,
  Unloaded: object({ status: { type: 'string' }, model: { type: 'string' } }, ['status', 'model']),
}

/** Schemas of path parameters. */
const PLACES: Readonly<Record<string, Schema>> = {
  model: { type: 'string', minLength: 1 },
  version: { type: 'string', pattern: '^[0-9]+$' },
  region: { type: 'string', minLength: 1 },
}

type Described = Pick<Core, 'serverMetadata' | 'modelMetadata' | 'modelConfig' | 'needsKey'>

/**
 * Creates the document of the server, or of one model.
 *
 * @throws {ServerError} for an unknown model, as `GET /v2/models/{model}` does.
 */
export function openApi(
  core: Described,
  { restrictions, hasKeys }: Omit<Guards, 'core'>,
  model: string,
  version: string,
): Schema {
  const guards = { core, restrictions, hasKeys }
  const server = JSON.parse(core.serverMetadata()) as { name: string; version: string }
  if (model === '') {
    if (version !== '') {
      const advice = `/v2/openapi.json?model=NAME&version=${version}`
      throw new ServerError('INVALID_ARG', `version '${version}' needs a model: ${advice}`)
    }
    return document(`${server.name}: inference over HTTP`, server.version, documentedRoutes(), guards, null)
  }
  const metadata = JSON.parse(core.modelMetadata(model, version)) as Parameters<typeof describeModel>[0]
  const config = JSON.parse(core.modelConfig(model, version)) as Parameters<typeof describeModel>[1]
  const of = describeModel(metadata, config)
  const prefix = `/v2/models/{model}${version === '' ? '' : '/versions/{version}'}`
  const isOfModel = ({ path }: Documented) =>
    path === prefix || (path.startsWith(`${prefix}/`) && (version !== '' || !path.includes('{version}')))
  const routes = documentedRoutes().filter(isOfModel)
  return document(`${model}: inference over HTTP`, of.versions.at(-1) ?? '0', routes, guards, { of, version })
}

/** A route with one of its paths. */
interface Documented {
  method: Route['method']
  path: string
  category: string | undefined
  documentation: RouteDocumentation
}

function documentedRoutes(): Documented[] {
  return describeRoutes().flatMap(({ method, paths, category, documentation }) =>
    documentation === undefined ? [] : paths.map((path) => ({ method, path, category, documentation })),
  )
}

/** Pages have no category. */
const tagOf = (category: Documented['category']): string => category ?? 'metadata'

interface OneModel {
  of: ModelDescription
  version: string
}

function document(
  title: string,
  version: string,
  routes: readonly Documented[],
  guards: Guards,
  model: OneModel | null,
): Schema {
  const paths: { [path: string]: Schema } = {}
  for (const route of routes) {
    const path = filled(route.path, model)
    // Stands for any version.
    const security = securityOf(guards, route.method, path.replace('{version}', '1'), route.category)
    const described = operation(route, model, 'security' in security, guards.hasKeys)
    const methods = paths[path] ?? parameters(route.path, model)
    paths[path] = { ...methods, [route.method.toLowerCase()]: { ...described, ...security } }
  }
  const tags = new Set(routes.map(({ category }) => tagOf(category)))
  const own = model === null ? {} : modelSchemas(model.of)
  const description = object({ openapi: { type: 'string' } }, ['openapi'])
  const schemas = { ...SCHEMAS, ...OF_TEXTS, Description: description, ...own }
  const responses = Object.fromEntries(
    Object.entries(RESPONSES).map(([name, description]) => {
      const content = json(name in OF_TEXTS ? name : 'Error')
      return [name, { description, content }]
    }),
  )
  const usedResponses = used(responses, paths)
  return {
    openapi: '3.1.0',
    info: { title, version, license: LICENSE },
    servers: [{ url: '/' }],
    security: securityOfAll(guards),
    tags: Object.entries(TAGS).flatMap(([name, description]) => (tags.has(name) ? [{ name, description }] : [])),
    paths,
    components: { schemas: used(schemas, paths, usedResponses), responses: usedResponses, ...securitySchemes(guards) },
  }
}

/** Licence of the server. */
const LICENSE: Schema = { name: 'Apache-2.0', identifier: 'Apache-2.0' }

/** Error responses, by their names in `components`. */
const RESPONSES: Readonly<Record<string, string>> = {
  Error: 'The request failed; the body has the error.',
  TextError: "The request failed; the body has the error in the form of OpenAI's API.",
  TeiError: 'The request failed; the body has the error in the form of text-embeddings-inference.',
  BadRequest: 'The request is malformed, or does not fit the model or region that it names.',
  Unauthenticated: 'The request has no valid key or token.',
  Forbidden: 'The key or token does not permit this request.',
  NotFound: 'There is no such model, version or region.',
  Exhausted: 'A quota of the key is used up; repeat the request after the seconds in Retry-After.',
}

/** The components that something refers to, directly or indirectly. */
function used(components: Schema, ...by: Json[]): Schema {
  const found = new Set<string>()
  const queue: Json[] = by
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    for (const [, name = ''] of JSON.stringify(next).matchAll(/"\$ref":"#\/components\/\w+\/([^"]+)"/g)) {
      const component = components[name]
      if (component === undefined || found.has(name)) continue
      found.add(name)
      queue.push(component)
    }
  }
  return Object.fromEntries(Object.entries(components).filter(([name]) => found.has(name)))
}

/** Fills the names of one model into a path. */
function filled(template: string, model: OneModel | null): string {
  if (model === null) return template
  return template.replace('{model}', () => model.of.name).replace('{version}', () => model.version)
}

function parameters(template: string, model: OneModel | null): Schema {
  const names = [...filled(template, model).matchAll(/\{(\w+)\}/g)].map((match) => match[1] ?? '')
  const places = names
    .filter((name) => name in PLACES)
    .map((name) => ({ name, in: 'path', required: true, schema: PLACES[name] ?? {} }))
  return places.length === 0 ? {} : { parameters: places }
}

/** Query parameters by path. */
const QUERIES: Readonly<Record<string, string[]>> = {
  '/docs': ['model'],
  '/v2/openapi.json': ['model', 'version'],
  '/embed': ['model'],
  '/predict': ['model'],
  '/tokenize': ['model'],
  '/info': ['model'],
}

const json = (schema: string): Schema => ({ 'application/json': { schema: ref(schema) } })
const FILE: Schema = { type: 'string', format: 'binary', description: 'JSON, followed by the bytes of the tensors.' }
const BINARY: Schema = { 'application/octet-stream': { schema: FILE } }
/** Files instead of JSON, for every model. */
const FILES: Schema = {
  'multipart/form-data': {
    schema: { type: 'object', description: 'Files and values by the names of inputs, and parameters.' },
  },
  'image/*': { schema: { type: 'string', format: 'binary', description: 'The only input of BYTES.' } },
}
const HTML: Schema = { 'text/html': { schema: { type: 'string' } } }
const LENGTH: Schema = {
  description: 'Number of bytes of the JSON before the binary tensors.',
  schema: { type: 'integer', minimum: 0 },
}

function operation(
  { method, path: template, category, documentation }: Documented,
  model: OneModel | null,
  isGuarded: boolean,
  hasKeys: boolean,
): Schema {
  const isOfVersion = template.includes('/versions/{version}')
  const { id, summary, request, response, form } = documentation
  const isBinary = form === 'tensors'
  const query = (QUERIES[template] ?? []).map((name) => ({ name, in: 'query', schema: { type: 'string' } }))
  const header = isBinary ? [{ name: 'Inference-Header-Content-Length', in: 'header', ...LENGTH }] : []
  const given = [...query, ...header]
  const binary = isBinary ? BINARY : {}
  const page = form === 'page' ? HTML : {}
  const content: Schema =
    form === 'events'
      ? { 'text/event-stream': { schema: ref(response ?? '') } }
      : { ...(response === undefined ? {} : json(response)), ...page, ...binary }
  const body = (schema: string): Schema => ({
    required: form !== 'optional-body',
    content: { ...json(schema), ...binary, ...(/^(?:Infer|Generate)Request$/.test(schema) ? FILES : {}) },
  })
  const failed = (name: string): Schema => ({ $ref: `#/components/responses/${name}` })
  const isOfText = response !== undefined && response in OF_TEXTS
  const ofText = id.startsWith('tei') ? 'TeiError' : 'TextError'
  const isOfHealth = response === 'Live' || response === 'Ready'
  // Cross-origin requests that change something are forbidden.
  const mayBeForbidden = isGuarded || (method === 'POST' && category !== 'inference')
  const failures = (): Schema => ({
    // For health, 400 is a regular response and not an error.
    400: isOfHealth ? { description: 'Not ready.', content } : failed('BadRequest'),
    ...(isGuarded && hasKeys ? { 401: failed('Unauthenticated') } : {}),
    ...(mayBeForbidden ? { 403: failed('Forbidden') } : {}),
    ...(/\{|openapi/.test(template) ? { 404: failed('NotFound') } : {}),
    ...(isGuarded && hasKeys ? { 429: failed('Exhausted') } : {}),
    default: failed('Error'),
  })
  return {
    // Operation ids must be unique in a document.
    operationId: isOfVersion && model === null ? `${id}OfVersion` : id,
    summary,
    tags: [tagOf(category)],
    ...(given.length === 0 ? {} : { parameters: given }),
    ...(request === undefined ? {} : { requestBody: body(request) }),
    responses: {
      200: {
        description: 'Done.',
        ...(isBinary ? { headers: { 'Inference-Header-Content-Length': LENGTH } } : {}),
        ...(Object.keys(content).length === 0 ? {} : { content }),
      },
      ...(isOfText ? { 400: failed(ofText), default: failed(ofText) } : failures()),
    },
  }
}

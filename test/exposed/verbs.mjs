/**
 * Every verb of the server: what can be asked of it over HTTP and over gRPC, in the order in which a column of the
 * table asks. Later ones use what earlier ones made: a region is registered before it is told of and unregistered.
 *
 * `category` and `act` (`write` for what changes the server) come from the core's tables, which a test of the core
 * writes to routes.json; rows.test.ts fails for a route or a call that no verb asks for. `allowed` is what the verb
 * answers when nothing is in its way and the server has been told to do such things.
 */

import { readFileSync } from 'node:fs'

/** The tables of the core: `routes` of HTTP and `calls` of gRPC. */
export const { routes, calls } = JSON.parse(
  readFileSync(new URL('../../crates/frontend/routes.json', import.meta.url), 'utf8'),
)

/** Matches a path with any names in its parameters. */
const pattern = (path) =>
  new RegExp(
    `^${path
      .replaceAll('.', '\\.')
      .replaceAll('{version}', '\\d+')
      .replaceAll(/\{\w+\}/g, '[^/]+')}$`,
  )

/** The row of the core's table that a request goes to. */
export function routeOf({ method, path }) {
  const [asked] = path.split('?')
  return routes.find((route) => route.method === method && route.paths.some((one) => pattern(one).test(asked)))
}

/** The row of a call, by the end of its path. */
export const callOf = (name) => calls.find(({ path }) => path.endsWith(`${name.includes('/') ? '.' : '/'}${name}`))

const M = '/v2/models/simple'
const tensor = (name) => ({ name, shape: [1, 16], datatype: 'INT32', data: Array(16).fill(3) })
const infer = { inputs: [tensor('INPUT0'), tensor('INPUT1')] }
const get = (path) => ({ method: 'GET', path })
/** A stream without an end, of which the status is asked for. */
const stream = (path) => ({ ...get(path), seconds: 0.3 })
const post = (path, body = '') => ({
  method: 'POST',
  path,
  body: typeof body === 'string' ? body : JSON.stringify(body),
})

const verb = (id, title, http, grpc, allowed = {}) => {
  // Over gRPC settings are read and changed by one call.
  const { category = null, act = 'read' } =
    // The port of metrics has no table.
    (http === null || http.port === 'metrics' ? undefined : routeOf(http)) ??
    (grpc === null ? undefined : callOf(grpc)) ??
    {}
  return {
    id,
    title,
    category,
    act,
    http,
    grpc,
    allowed: { http: http === null ? null : '200', grpc: grpc === null ? null : 'OK', ...allowed },
  }
}

/** Without a device a handle of one cannot be opened: that the call was let in shows in the answer. */
const NO_DEVICE = { http: '400', grpc: 'INVALID_ARGUMENT' }
/** A model without a role for text endpoints. */
const NO_ROLE = { http: '400' }
/** A server that was asked to write where a client wants: never. */
const NEVER = { http: '501', grpc: 'UNIMPLEMENTED' }

/** `key` is a shared memory object of this run's; `file` one that must not come to be. */
export const verbs = ({ key, file }) => [
  verb('live', 'liveness', get('/v2/health/live'), 'ServerLive'),
  verb('ready', 'readiness', get('/v2/health/ready'), 'ServerReady'),
  verb('health', 'gRPC health check', null, 'Health/Check'),
  verb('watch', 'gRPC health watch', null, 'Health/Watch'),
  verb('load_reports', 'load reports for load balancers', null, 'OpenRcaService/StreamCoreMetrics'),
  verb('reflection', 'reflection', null, 'ServerReflection/ServerReflectionInfo'),
  verb('metadata', 'metadata of the server', get('/v2'), 'ServerMetadata'),
  verb('openapi', 'description of the API', get('/v2/openapi.json'), null),
  verb('openapi_model', 'description of another model', get('/v2/openapi.json?model=identity_fp32'), null),
  verb('docs', 'page that shows the description of the API', get('/docs'), null),
  verb('console', 'the console: what the server does, live', stream('/console/events'), null),
  verb('model', 'metadata of a model', get(M), 'ModelMetadata'),
  verb('other_model', 'metadata of another model', get('/v2/models/identity_fp32'), 'ModelMetadata'),
  verb('model_ready', 'readiness of a model', get(`${M}/ready`), 'ModelReady'),
  verb('config', 'configuration of a model', get(`${M}/config`), 'ModelConfig'),
  verb('statistics', 'statistics of a model', get(`${M}/stats`), 'ModelStatistics'),
  verb('model_why', 'reasons and advice for a model', get(`${M}/why`), null),
  verb('why', 'slow and failed requests', get('/v2/why'), null),
  verb('all_statistics', 'statistics of all models', get('/v2/models/stats'), null),
  verb('infer', 'inference', post(`${M}/infer`, infer), 'ModelInfer'),
  verb('version_infer', 'inference of a version', post(`${M}/versions/1/infer`, infer), null),
  verb(
    'other_infer',
    'inference of another model',
    post('/v2/models/identity_fp32/infer', {
      inputs: [{ name: 'INPUT0', shape: [2], datatype: 'FP32', data: [1, 2] }],
    }),
    'ModelInfer',
  ),
  verb('generate', 'generate', post('/v2/models/identity_fp32/generate', { INPUT0: [1, 2] }), null),
  verb(
    'generate_stream',
    'generate, as a stream',
    post('/v2/models/identity_fp32/generate_stream', { INPUT0: [1, 2] }),
    null,
  ),
  // The models here have no role, which is said to those who may use them; no other model has one either.
  verb(
    'chat',
    'chat',
    post('/v1/chat/completions', { model: 'simple', messages: [{ role: 'user', content: 'a' }] }),
    null,
    NO_ROLE,
  ),
  verb('completions', 'completion', post('/v1/completions', { model: 'simple', prompt: 'a' }), null, NO_ROLE),
  verb('responses', 'response', post('/v1/responses', { model: 'simple', input: 'a' }), null, NO_ROLE),
  verb('embeddings', 'embeddings', post('/v1/embeddings', { model: 'simple', input: 'a' }), null, NO_ROLE),
  verb(
    'other_embeddings',
    'embeddings of another model',
    post('/v1/embeddings', { model: 'identity_fp32', input: 'a' }),
    null,
    NO_ROLE,
  ),
  verb('cohere_embed', 'embeddings, as Cohere', post('/v2/embed', { model: 'simple', texts: ['a'] }), null, NO_ROLE),
  verb('rerank', 'rerank', post('/v1/rerank', { model: 'simple', query: 'a', documents: ['b'] }), null, NO_ROLE),
  verb('score', 'score', post('/v1/score', { model: 'simple', text_1: 'a', text_2: 'b' }), null, NO_ROLE),
  verb('classify', 'classify', post('/v1/classify', { model: 'simple', input: 'a' }), null, NO_ROLE),
  verb('tei_embed', 'embeddings, as TEI', post('/embed', { model: 'simple', inputs: 'a' }), null, NO_ROLE),
  verb('tei_predict', 'classify, as TEI', post('/predict', { model: 'simple', inputs: 'a' }), null, NO_ROLE),
  verb('tei_tokenize', 'tokenize, as TEI', post('/tokenize', { model: 'simple', inputs: 'a' }), null, NO_ROLE),
  verb('invocations', 'as SageMaker asks', post('/invocations', { model: 'simple', input: 'a' }), null, NO_ROLE),
  verb('tei_info', 'model of the routes of TEI', get('/info?model=simple'), null, NO_ROLE),
  verb('text_models', 'models with a role', get('/v1/models'), null),
  verb('text_model', 'a model with a role', get('/v1/models/simple'), null, NO_ROLE),
  verb('stream_infer', 'inference, as a stream', null, 'ModelStreamInfer'),
  verb('other_stream', 'inference of another model, as a stream', null, 'ModelStreamInfer'),
  verb('index', 'index of the repository', post('/v2/repository/index'), 'RepositoryIndex'),
  verb('models', 'names of the models', get('/v2/models'), null),
  verb('home', 'page of the server and its models', get('/'), null),
  verb('load', 'load a model', post('/v2/repository/models/spare/load'), 'RepositoryModelLoad'),
  verb('load_files', 'load a model with files', post('/v2/repository/models/given/load', loadWithFile()), null),
  verb('unload', 'unload a model', post('/v2/repository/models/spare/unload'), 'RepositoryModelUnload'),
  verb('log', 'log settings', get('/v2/logging'), 'LogSettings'),
  verb('set_log', 'change log settings', post('/v2/logging', { log_format: 'ISO8601' }), 'LogSettings'),
  verb('set_log_file', 'name a log file', post('/v2/logging', { log_file: file }), 'LogSettings', NEVER),
  verb('trace', 'trace settings', get('/v2/trace/setting'), 'TraceSetting'),
  verb('set_trace', 'change trace settings', post('/v2/trace/setting', { trace_rate: '77' }), 'TraceSetting'),
  verb('set_trace_file', 'name a trace file', post('/v2/trace/setting', { trace_file: file }), 'TraceSetting', NEVER),
  verb('model_trace', 'trace settings of a model', get(`${M}/trace/setting`), 'TraceSetting'),
  verb(
    'set_model_trace',
    'change trace settings of a model',
    post(`${M}/trace/setting`, { trace_rate: '78' }),
    'TraceSetting',
  ),
  verb(
    'register',
    'register system shared memory',
    post('/v2/systemsharedmemory/region/http/register', { key, offset: 0, byte_size: 64 }),
    'SystemSharedMemoryRegister',
  ),
  verb('regions', 'system shared memory', get('/v2/systemsharedmemory/status'), 'SystemSharedMemoryStatus'),
  verb(
    'unregister',
    'unregister system shared memory',
    post('/v2/systemsharedmemory/region/http/unregister'),
    'SystemSharedMemoryUnregister',
  ),
  verb(
    'cuda_register',
    'register CUDA shared memory',
    post('/v2/cudasharedmemory/region/http/register', {
      raw_handle: { b64: Buffer.alloc(64).toString('base64') },
      device_id: 0,
      byte_size: 64,
    }),
    'CudaSharedMemoryRegister',
    NO_DEVICE,
  ),
  verb('cuda_regions', 'CUDA shared memory', get('/v2/cudasharedmemory/status'), 'CudaSharedMemoryStatus'),
  verb(
    'cuda_unregister',
    'unregister CUDA shared memory',
    post('/v2/cudasharedmemory/region/http/unregister'),
    'CudaSharedMemoryUnregister',
  ),
  verb('openai_metrics', 'metrics, on the port of HTTP', get('/metrics'), null, { http: '404' }),
  verb('metrics', 'metrics, on their port', { ...get('/metrics'), port: 'metrics' }, null),
  verb('metrics_requests', 'counts for routers, there', { ...get('/metrics/requests'), port: 'metrics' }, null),
  verb('nowhere', 'an invalid path', get('/v2/../etc/passwd'), null, { http: '404' }),
]

function loadWithFile() {
  const config = {
    backend: 'identity',
    input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [1] }],
    output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [1] }],
  }
  return {
    parameters: { config: JSON.stringify(config), 'file:1/anything': Buffer.from('anything').toString('base64') },
  }
}

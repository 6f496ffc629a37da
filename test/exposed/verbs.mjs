/**
 * Every verb of the server: what can be asked of it over HTTP and over gRPC, in the order in which a column of the table asks. Later ones use what
 * earlier ones made: a region is registered before it is told of and unregistered.
 *
 * `http` and `grpc` name the route (`Route` and `ModelAction` in frontend/src/http/route.rs) and the call (`Rpc` in frontend/src/grpc/method.rs);
 * rows.test.ts fails for one that no verb names. `allowed` is what the verb answers when nothing is in its way and the
 * server has been told to do such things. `act` is `write` for what changes the server.
 */

const M = '/v2/models/simple'
const tensor = (name) => ({ name, shape: [1, 16], datatype: 'INT32', data: Array(16).fill(3) })
const infer = { inputs: [tensor('INPUT0'), tensor('INPUT1')] }
const get = (route, path) => ({ route, method: 'GET', path })
const post = (route, path, body = '') => ({ route, method: 'POST', path, body: typeof body === 'string' ? body : JSON.stringify(body) })

const verb = (id, title, category, act, http, grpc, allowed = {}) => ({
  id,
  title,
  category,
  act,
  http,
  grpc,
  allowed: { http: http === null ? null : '200', grpc: grpc === null ? null : 'OK', ...allowed },
})

/** Without a device a handle of one cannot be opened: that the call was let in shows in the answer. */
const NO_DEVICE = { http: '400', grpc: 'INVALID_ARGUMENT' }
/** A server that was asked to write where a client wants: never. */
const NEVER = { http: '501', grpc: 'UNIMPLEMENTED' }

/** `key` is a shared memory object of this run's; `file` one that must not come to be. */
export const verbs = ({ key, file }) => [
  verb('live', 'liveness', 'health', 'read', get('Live', '/v2/health/live'), 'ServerLive'),
  verb('ready', 'readiness', 'health', 'read', get('Ready', '/v2/health/ready'), 'ServerReady'),
  verb('health', 'gRPC health check', 'health', 'read', null, 'HealthCheck'),
  verb('watch', 'gRPC health watch', 'health', 'read', null, 'HealthWatch'),
  verb('load_reports', 'load reports for load balancers', 'health', 'read', null, 'LoadReports'),
  verb('reflection', 'reflection', null, 'read', null, 'Reflection'),
  verb('metadata', 'metadata of the server', 'metadata', 'read', get('ServerMetadata', '/v2'), 'ServerMetadata'),
  verb('openapi', 'description of the API', 'metadata', 'read', get('OpenApi', '/v2/openapi.json'), null),
  verb('openapi_model', 'description of another model', 'metadata', 'read', get('OpenApi', '/v2/openapi.json?model=identity_fp32'), null),
  verb('docs', 'page that shows the description of the API', 'metadata', 'read', get('Page', '/docs'), null),
  verb('model', 'metadata of a model', 'metadata', 'read', get('Model::Metadata', M), 'ModelMetadata'),
  verb('other_model', 'metadata of another model', 'metadata', 'read', get('Model::Metadata', '/v2/models/identity_fp32'), 'ModelMetadata'),
  verb('model_ready', 'readiness of a model', 'health', 'read', get('Model::Ready', `${M}/ready`), 'ModelReady'),
  verb('config', 'configuration of a model', 'model-config', 'read', get('Model::Config', `${M}/config`), 'ModelConfig'),
  verb('statistics', 'statistics of a model', 'statistics', 'read', get('Model::Statistics', `${M}/stats`), 'ModelStatistics'),
  verb('all_statistics', 'statistics of all models', 'statistics', 'read', get('AllStatistics', '/v2/models/stats'), null),
  verb('infer', 'inference', 'inference', 'read', post('Model::Infer', `${M}/infer`, infer), 'ModelInfer'),
  verb('version_infer', 'inference of a version', 'inference', 'read', post('Model::Infer', `${M}/versions/1/infer`, infer), null),
  verb('other_infer', 'inference of another model', 'inference', 'read', post('Model::Infer', '/v2/models/identity_fp32/infer', { inputs: [{ name: 'INPUT0', shape: [2], datatype: 'FP32', data: [1, 2] }] }), 'ModelInfer'),
  verb('generate', 'generate', 'inference', 'read', post('Model::Generate', '/v2/models/identity_fp32/generate', { INPUT0: [1, 2] }), null),
  verb('generate_stream', 'generate, as a stream', 'inference', 'read', post('Model::GenerateStream', '/v2/models/identity_fp32/generate_stream', { INPUT0: [1, 2] }), null),
  verb('stream_infer', 'inference, as a stream', 'inference', 'read', null, 'ModelStreamInfer'),
  verb('other_stream', 'inference of another model, as a stream', 'inference', 'read', null, 'ModelStreamInfer'),
  verb('index', 'index of the repository', 'model-repository', 'read', post('RepositoryIndex', '/v2/repository/index'), 'RepositoryIndex'),
  verb('models', 'names of the models', 'model-repository', 'read', get('Models', '/v2/models'), null),
  verb('home', 'page of the server and its models', 'model-repository', 'read', get('Page', '/'), null),
  verb('load', 'load a model', 'model-repository', 'write', post('RepositoryModel', '/v2/repository/models/spare/load'), 'RepositoryModelLoad'),
  verb('load_files', 'load a model with files', 'model-repository', 'write', post('RepositoryModel', '/v2/repository/models/given/load', loadWithFile()), null),
  verb('unload', 'unload a model', 'model-repository', 'write', post('RepositoryModel', '/v2/repository/models/spare/unload'), 'RepositoryModelUnload'),
  verb('log', 'log settings', 'logging', 'read', get('Logging', '/v2/logging'), 'LogSettings'),
  verb('set_log', 'change log settings', 'logging', 'write', post('Logging', '/v2/logging', { log_format: 'ISO8601' }), 'LogSettings'),
  verb('set_log_file', 'name a log file', 'logging', 'write', post('Logging', '/v2/logging', { log_file: file }), 'LogSettings', NEVER),
  verb('trace', 'trace settings', 'trace', 'read', get('Trace', '/v2/trace/setting'), 'TraceSetting'),
  verb('set_trace', 'change trace settings', 'trace', 'write', post('Trace', '/v2/trace/setting', { trace_rate: '77' }), 'TraceSetting'),
  verb('set_trace_file', 'name a trace file', 'trace', 'write', post('Trace', '/v2/trace/setting', { trace_file: file }), 'TraceSetting', NEVER),
  verb('model_trace', 'trace settings of a model', 'trace', 'read', get('Trace', `${M}/trace/setting`), 'TraceSetting'),
  verb('set_model_trace', 'change trace settings of a model', 'trace', 'write', post('Trace', `${M}/trace/setting`, { trace_rate: '78' }), 'TraceSetting'),
  verb('register', 'register system shared memory', 'shared-memory', 'write', post('SharedMemory::Register', '/v2/systemsharedmemory/region/http/register', { key, offset: 0, byte_size: 64 }), 'SystemSharedMemoryRegister'),
  verb('regions', 'system shared memory', 'shared-memory', 'read', get('SharedMemory::Status', '/v2/systemsharedmemory/status'), 'SystemSharedMemoryStatus'),
  verb('unregister', 'unregister system shared memory', 'shared-memory', 'write', post('SharedMemory::Unregister', '/v2/systemsharedmemory/region/http/unregister'), 'SystemSharedMemoryUnregister'),
  verb('cuda_register', 'register CUDA shared memory', 'shared-memory', 'write', post('SharedMemory::Register', '/v2/cudasharedmemory/region/http/register', { raw_handle: { b64: Buffer.alloc(64).toString('base64') }, device_id: 0, byte_size: 64 }), 'CudaSharedMemoryRegister', NO_DEVICE),
  verb('cuda_regions', 'CUDA shared memory', 'shared-memory', 'read', get('SharedMemory::Status', '/v2/cudasharedmemory/status'), 'CudaSharedMemoryStatus'),
  verb('cuda_unregister', 'unregister CUDA shared memory', 'shared-memory', 'write', post('SharedMemory::Unregister', '/v2/cudasharedmemory/region/http/unregister'), 'CudaSharedMemoryUnregister'),
  verb('metrics', 'metrics, on their port', null, 'read', { ...get(null, '/metrics'), port: 'metrics' }, null),
  verb('nowhere', 'an invalid path', null, 'read', get(null, '/v2/../etc/passwd'), null, { http: '404' }),
]

function loadWithFile() {
  const config = { backend: 'identity', input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [1] }], output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [1] }] }
  return { parameters: { config: JSON.stringify(config), 'file:1/anything': Buffer.from('anything').toString('base64') } }
}

/**
 * What each route does, in words and schemas. Which routes there are and which methods they take is not said here: the core's routing table
 * knows. An entry without a route, or a route without an entry, is a defect that test/python/test_openapi.py finds.
 */

/** Names of schemas; null is a body that is not wanted, or an answer without one. */
export interface Operation {
  id: string
  summary: string
  request?: string
  /** The request may come without its body. */
  isBodyOptional?: true
  /** Absent: an answer without a body. */
  response?: string
  /** Tensors may follow the JSON in binary. */
  isBinary?: true
  /** Answers as they come, as server-sent events. */
  isStream?: true
  /** HTML, for those who ask for it where there is JSON as well. */
  isPage?: true
}

/** Groups of operations, by what `--http-restricted-api` calls them; in this order. */
export const TAGS: Readonly<Record<string, string>> = {
  health: 'Whether the server and its models can be used.',
  metadata: 'What the server and its models are, and this description.',
  inference: 'Running models.',
  'model-repository': 'Which models there are; loading and unloading them.',
  'model-config': 'Configurations of models.',
  statistics: 'How often models ran, and for how long.',
  'shared-memory': 'Regions of memory that clients share with the server.',
  trace: 'Which requests are traced.',
  logging: 'What is logged.',
}

/** By method and template; that of a version has the operation of the model. */
export const OPERATIONS: Readonly<Record<string, Operation>> = {
  'GET /': { id: 'home', summary: 'The server and its models: HTML for requests whose Accept names text/html, JSON for others.', response: 'Home', isPage: true },
  'GET /docs': { id: 'docs', summary: 'A page that shows this description.', isPage: true },
  'GET /v2': { id: 'serverMetadata', summary: 'Name, version and extensions of the server.', response: 'ServerMetadata' },
  'GET /v2/health/live': { id: 'serverLive', summary: 'Whether the process is there: the status says it. The body is for requests whose Accept names application/json.', response: 'Live' },
  'GET /v2/health/ready': { id: 'serverReady', summary: 'Whether every model can be used: the status says it. The body is for requests whose Accept names application/json.', response: 'Ready' },
  'GET /v2/openapi.json': { id: 'openApi', summary: 'This description; with ?model= that of a model, with the names, types and shapes of its tensors.', response: 'Description' },
  'GET /v2/models': { id: 'models', summary: 'Names of the models of the repository, whatever their state.', response: 'Models' },
  'GET /v2/models/stats': { id: 'statistics', summary: 'Statistics of all models.', response: 'Statistics' },
  'GET /v2/models/{model}': { id: 'modelMetadata', summary: 'Versions and tensors of a model.', response: 'ModelMetadata' },
  'GET /v2/models/{model}/config': { id: 'modelConfig', summary: 'The configuration of a model as it is in effect.', response: 'ModelConfig' },
  'POST /v2/models/{model}/generate': { id: 'modelGenerate', summary: 'Infer with named values; one response.', request: 'GenerateRequest', response: 'GenerateResponse' },
  'POST /v2/models/{model}/generate_stream': { id: 'modelGenerateStream', summary: 'Infer with named values; responses as they come.', request: 'GenerateRequest', response: 'GenerateResponse', isStream: true },
  'POST /v2/models/{model}/infer': { id: 'modelInfer', summary: 'Infer.', request: 'InferRequest', response: 'InferResponse', isBinary: true },
  'GET /v2/models/{model}/ready': { id: 'modelReady', summary: 'Whether a model can be used.' },
  'GET /v2/models/{model}/stats': { id: 'modelStatistics', summary: 'Statistics of a model.', response: 'Statistics' },
  'GET /v2/models/{model}/trace/setting': { id: 'modelTraceSettings', summary: 'Trace settings of a model.', response: 'TraceSettings' },
  'POST /v2/models/{model}/trace/setting': { id: 'updateModelTraceSettings', summary: 'Change trace settings of a model.', request: 'TraceSettings', response: 'TraceSettings' },
  'POST /v2/repository/index': { id: 'repositoryIndex', summary: 'Models of the repository and their states.', request: 'IndexRequest', isBodyOptional: true, response: 'Index' },
  'POST /v2/repository/models/{model}/load': { id: 'loadModel', summary: 'Load a model, or load it again.', request: 'LoadRequest', isBodyOptional: true },
  'POST /v2/repository/models/{model}/unload': { id: 'unloadModel', summary: 'Unload a model.', request: 'UnloadRequest', isBodyOptional: true },
  'GET /v2/systemsharedmemory/status': { id: 'systemRegions', summary: 'Regions of system shared memory.', response: 'SystemRegions' },
  'POST /v2/systemsharedmemory/unregister': { id: 'unregisterSystemRegions', summary: 'Let go of all regions of system shared memory.' },
  'POST /v2/systemsharedmemory/region/{region}/register': { id: 'registerSystemRegion', summary: 'Make a region of system shared memory known.', request: 'SystemRegion' },
  'GET /v2/systemsharedmemory/region/{region}/status': { id: 'systemRegion', summary: 'One region of system shared memory.', response: 'SystemRegions' },
  'POST /v2/systemsharedmemory/region/{region}/unregister': { id: 'unregisterSystemRegion', summary: 'Let go of a region of system shared memory.' },
  'GET /v2/cudasharedmemory/status': { id: 'cudaRegions', summary: 'Regions of CUDA shared memory.', response: 'CudaRegions' },
  'POST /v2/cudasharedmemory/unregister': { id: 'unregisterCudaRegions', summary: 'Let go of all regions of CUDA shared memory.' },
  'POST /v2/cudasharedmemory/region/{region}/register': { id: 'registerCudaRegion', summary: 'Make a region of CUDA shared memory known.', request: 'CudaRegion' },
  'GET /v2/cudasharedmemory/region/{region}/status': { id: 'cudaRegion', summary: 'One region of CUDA shared memory.', response: 'CudaRegions' },
  'POST /v2/cudasharedmemory/region/{region}/unregister': { id: 'unregisterCudaRegion', summary: 'Let go of a region of CUDA shared memory.' },
  'GET /v2/trace/setting': { id: 'traceSettings', summary: 'Trace settings of models without their own.', response: 'TraceSettings' },
  'POST /v2/trace/setting': { id: 'updateTraceSettings', summary: 'Change trace settings of models without their own.', request: 'TraceSettings', response: 'TraceSettings' },
  'GET /v2/logging': { id: 'logSettings', summary: 'Log settings.', response: 'LogSettings' },
  'POST /v2/logging': { id: 'updateLogSettings', summary: 'Change log settings.', request: 'LogSettings', response: 'LogSettings' },
}

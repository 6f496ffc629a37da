/** Schemas of bodies for all models, in JSON Schema 2020-12, which OpenAPI 3.1 uses. */

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json }
export type Schema = { [key: string]: Json }

export const ref = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` })
export const object = (properties: Schema, required: string[] = []): Schema => ({
  type: 'object',
  properties,
  ...(required.length === 0 ? {} : { required }),
})
export const array = (items: Json): Schema => ({ type: 'array', items })
const string = { type: 'string' }
const boolean = { type: 'boolean' }
const unsigned = { type: 'integer', minimum: 0 }

/** JSON elements by datatype; datatypes that are only sent in binary are absent. */
export const ELEMENTS: Readonly<Record<string, Schema>> = {
  BOOL: { type: 'boolean' },
  UINT8: { type: 'integer', minimum: 0, maximum: 255 },
  UINT16: { type: 'integer', minimum: 0, maximum: 65_535 },
  UINT32: { type: 'integer', minimum: 0, maximum: 4_294_967_295 },
  UINT64: { type: 'integer', minimum: 0, format: 'uint64' },
  INT8: { type: 'integer', minimum: -128, maximum: 127 },
  INT16: { type: 'integer', minimum: -32_768, maximum: 32_767 },
  INT32: { type: 'integer', minimum: -2_147_483_648, maximum: 2_147_483_647, format: 'int32' },
  INT64: { type: 'integer', format: 'int64' },
  FP32: { type: 'number', format: 'float' },
  FP64: { type: 'number', format: 'double' },
  BYTES: { type: 'string' },
}

const DATATYPES = [...Object.keys(ELEMENTS), 'FP16', 'BF16']
const STATES = ['READY', 'UNAVAILABLE', 'LOADING', 'UNLOADING', 'UNKNOWN']

const times = object({ count: unsigned, ns: unsigned }, ['count', 'ns'])
const named = (...names: string[]) => object(Object.fromEntries(names.map((name) => [name, ref('Duration')])))

const inputParameters = object({
  binary_data_size: { ...unsigned, description: 'Number of bytes of this input after the JSON.' },
  shared_memory_region: string,
  shared_memory_offset: unsigned,
  shared_memory_byte_size: unsigned,
})
const outputParameters = object({
  binary_data: {
    ...boolean,
    description: 'Whether this output follows the JSON as bytes instead of being part of it.',
  },
  classification: {
    ...unsigned,
    description: 'Number of greatest values to return, each with its label; 0 returns all values.',
  },
  shared_memory_region: string,
  shared_memory_offset: unsigned,
  shared_memory_byte_size: unsigned,
})

export const SCHEMAS: Schema = {
  Error: object({ error: string }, ['error']),
  Parameters: {
    type: 'object',
    description:
      'sequence_id, sequence_start, sequence_end, priority, timeout (microseconds) and binary_data_output are ' +
      'settings of the request; other parameters are passed to the model.',
    additionalProperties: { type: ['string', 'number', 'boolean'] },
  },
  InputParameters: inputParameters,
  OutputParameters: outputParameters,
  InferRequest: object(
    {
      id: string,
      parameters: ref('Parameters'),
      inputs: array(ref('InputTensor')),
      outputs: array(ref('RequestedOutput')),
    },
    ['inputs'],
  ),
  InputTensor: object(
    {
      name: string,
      shape: array(unsigned),
      datatype: { enum: DATATYPES },
      parameters: ref('InputParameters'),
      data: {
        type: 'array',
        description:
          'Values in row-major order, flat or nested. Leave it out if the values are in binary data or ' +
          'in shared memory.',
      },
    },
    ['name', 'shape', 'datatype'],
  ),
  RequestedOutput: object({ name: string, parameters: ref('OutputParameters') }, ['name']),
  InferResponse: object(
    {
      id: string,
      model_name: string,
      model_version: string,
      parameters: ref('Parameters'),
      outputs: array(ref('Output')),
    },
    ['model_name', 'model_version', 'outputs'],
  ),
  Output: object(
    {
      name: string,
      shape: array(unsigned),
      datatype: { enum: DATATYPES },
      parameters: object({ binary_data_size: unsigned }),
      data: { type: 'array' },
    },
    ['name', 'shape', 'datatype'],
  ),
  GenerateRequest: {
    type: 'object',
    description: 'Inputs by name, as a value or a list. A name that is not an input is passed as a parameter.',
    properties: { id: string, parameters: { type: 'object' } },
  },
  GenerateResponse: object({ id: string, model_name: string, model_version: string }),
  Live: object({ live: boolean }, ['live']),
  Ready: object({ ready: boolean }, ['ready']),
  ServerMetadata: object({ name: string, version: string, extensions: array(string) }, [
    'name',
    'version',
    'extensions',
  ]),
  ModelMetadata: object(
    {
      name: string,
      versions: array(string),
      platform: string,
      inputs: array(ref('TensorMetadata')),
      outputs: array(ref('TensorMetadata')),
    },
    ['name', 'platform', 'inputs', 'outputs'],
  ),
  TensorMetadata: object(
    { name: string, datatype: { enum: DATATYPES }, shape: array({ type: 'integer', minimum: -1 }) },
    ['name', 'datatype', 'shape'],
  ),
  ModelConfig: {
    ...object({ name: string, max_batch_size: unsigned }, ['name']),
    description: 'The effective configuration: the message ModelConfig of model_config.proto.',
  },
  PastRequests: {
    type: 'object',
    description:
      'Records of requests. With id: requests with this id, newest first. Without id: the slowest and the failed ' +
      'requests, by cause. A record has the fields of a line of the access log.',
  },
  Statistics: object({ model_stats: array(ref('ModelStatistics')) }, ['model_stats']),
  ModelStatistics: object(
    {
      name: string,
      version: string,
      last_inference: { ...unsigned, description: 'Milliseconds since 1970.' },
      inference_count: unsigned,
      execution_count: unsigned,
      inference_stats: named(
        'success',
        'fail',
        'queue',
        'compute_input',
        'compute_infer',
        'compute_output',
        'cache_hit',
        'cache_miss',
      ),
      response_stats: {
        type: 'object',
        additionalProperties: named('compute_infer', 'compute_output', 'success', 'fail', 'empty_response', 'cancel'),
      },
      batch_stats: array(
        object(
          {
            batch_size: unsigned,
            compute_input: ref('Duration'),
            compute_infer: ref('Duration'),
            compute_output: ref('Duration'),
          },
          ['batch_size'],
        ),
      ),
      memory_usage: array(object({ type: string, id: { type: 'integer' }, byte_size: unsigned })),
    },
    ['name', 'version', 'inference_count', 'execution_count', 'inference_stats'],
  ),
  ModelWhy: object(
    {
      model: string,
      version: string,
      seconds: { type: 'number', description: 'Seconds of the past that the explanation covers.' },
      requests: unsigned,
      failures: unsigned,
      rate: { type: 'number', description: 'Requests per second.' },
      p50_us: unsigned,
      p99_us: unsigned,
      mean_us: { type: 'object', additionalProperties: { type: 'number' } },
      batch: { type: 'number', description: 'Mean rows of an execution.' },
      arrivals: {
        enum: ['open', 'closed'],
        description:
          'closed: clients wait for a response before they send ' +
          'the next request. open: requests arrive independently of responses.',
      },
      clients: { ...unsigned, description: 'Number of such clients, if arrivals is closed.' },
      causes: { type: 'object', additionalProperties: { type: 'number' } },
      behind: { type: 'object', additionalProperties: { type: 'number' } },
      advice: array(
        object(
          {
            change: string,
            setting: string,
            from: { type: ['integer', 'null'] },
            to: { type: ['integer', 'null'] },
            text: string,
            now: ref('Speed'),
            expected: ref('Speed'),
          },
          ['change', 'setting', 'text', 'now', 'expected'],
        ),
      ),
      simulated: ref('Simulated'),
      text: { ...string, description: 'Reason why the change in simulate was not replayed.' },
    },
    ['model', 'version', 'seconds', 'requests', 'advice'],
  ),
  Speed: object({ rate: { type: 'number' }, p50_us: unsigned, p99_us: unsigned }, ['rate', 'p50_us', 'p99_us']),
  Simulated: object(
    {
      changes: { type: 'object', additionalProperties: unsigned },
      rate: { type: 'number' },
      p50_us: unsigned,
      p99_us: unsigned,
    },
    ['changes', 'rate', 'p50_us', 'p99_us'],
  ),
  Duration: times,
  IndexRequest: object({ ready: { ...boolean, description: 'Whether to list only versions that are ready.' } }),
  Index: array(object({ name: string, version: string, state: { enum: STATES }, reason: string }, ['name'])),
  Models: object({ models: array(string) }, ['models']),
  Home: object(
    {
      name: string,
      version: string,
      implementation: object({ name: string, version: string }, ['name', 'version']),
      ready: boolean,
      models: ref('Index'),
      links: object({ docs: string, console: string, openapi: string, metrics: string }, [
        'docs',
        'console',
        'openapi',
      ]),
    },
    ['name', 'version', 'implementation', 'ready', 'models', 'links'],
  ),
  LoadRequest: object({
    parameters: {
      type: 'object',
      description:
        'config: the configuration as JSON text. file:<version>/<file>: contents in base64; ' +
        'the model then consists of these files.',
      additionalProperties: string,
    },
  }),
  UnloadRequest: object({
    parameters: object({
      unload_dependents: {
        ...boolean,
        description: 'Whether to unload also the models of an ensemble that nothing else uses.',
      },
    }),
  }),
  TraceSettings: {
    type: 'object',
    description:
      'trace_level is a list of OFF, TIMESTAMPS and TENSORS; the other settings are texts. null resets a setting ' +
      'to its default: that of all models, or that of the command line.',
    additionalProperties: { type: ['string', 'array', 'null'], items: string },
  },
  LogSettings: object({
    log_file: { type: ['string', 'null'] },
    log_info: { type: ['boolean', 'null'] },
    log_warning: { type: ['boolean', 'null'] },
    log_error: { type: ['boolean', 'null'] },
    log_verbose_level: { type: ['integer', 'null'], minimum: 0 },
    log_format: { enum: ['default', 'ISO8601', null] },
  }),
  SystemRegions: array(
    object({ name: string, key: string, offset: unsigned, byte_size: unsigned }, [
      'name',
      'key',
      'offset',
      'byte_size',
    ]),
  ),
  SystemRegion: object({ key: string, offset: unsigned, byte_size: unsigned }, ['key', 'byte_size']),
  CudaRegions: array(
    object({ name: string, device_id: unsigned, byte_size: unsigned }, ['name', 'device_id', 'byte_size']),
  ),
  CudaRegion: object({ raw_handle: object({ b64: string }, ['b64']), device_id: unsigned, byte_size: unsigned }, [
    'raw_handle',
    'device_id',
    'byte_size',
  ]),
}

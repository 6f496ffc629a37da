/** Identity of the server in the protocol; clients compare these values. */

/** Version in the server metadata: the Triton release whose behaviour this server implements. */
export const SERVER_VERSION = '2.73.0'

/** Extensions in the server metadata, in this order (P 1.4). */
export const EXTENSIONS = [
  'classification',
  'sequence',
  'model_repository',
  'model_repository(unload_dependents)',
  'schedule_policy',
  'model_configuration',
  'system_shared_memory',
  'cuda_shared_memory',
  'binary_tensor_data',
  'parameters',
  'statistics',
  'trace',
  'logging',
]

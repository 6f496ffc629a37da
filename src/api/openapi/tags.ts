/** Groups of operations in this order, by their names in `--http-restricted-api`. */
export const TAGS: Readonly<Record<string, string>> = {
  health: 'Readiness of the server and its models.',
  metadata: 'Names, versions and tensors of the server and its models, and this description.',
  inference: 'Running models.',
  'model-repository': 'List, load and unload models.',
  'model-config': 'Configurations of models.',
  statistics: 'Counts and durations of requests and executions.',
  'shared-memory': 'Regions of memory that clients share with the server.',
  trace: 'Trace settings.',
  logging: 'Log settings.',
}

/** Groups of operations in this order, by their names in `--http-restricted-api`. */
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

/**
 * Warns, once per load, of settings that this release reads, checks and shows but does not act on. Without them
 * responses are correct, only slower, later or computed elsewhere, so the model is served.
 */

import { ModelOptimizationPolicy_ModelPriority as Priority } from '../config/generated/model_config_pb.js'
import { isOfOnnxRuntime, type Log, type ModelConfig } from '../config/index.js'

type Optimization = NonNullable<ModelConfig['optimization']>

const optimizes = (c: ModelConfig, used: (o: Optimization) => boolean): boolean =>
  c.optimization !== undefined && used(c.optimization)
const groups = (c: ModelConfig, used: (g: ModelConfig['instanceGroup'][number]) => boolean): boolean =>
  c.instanceGroup.some(used)
const parameter = (name: string) =>
  [`parameters.${name}`, (c: ModelConfig) => Object.hasOwn(c.parameters, name)] as const

/** Field name, and a test whether a configuration uses it. */
const INEFFECTIVE: readonly (readonly [string, (config: ModelConfig) => boolean])[] = [
  ['instance_group.host_policy', (c) => groups(c, (g) => g.hostPolicy !== '')],
  ['instance_group.secondary_devices', (c) => groups(c, (g) => g.secondaryDevices.length > 0)],
  ['optimization.priority', (c) => optimizes(c, (o) => o.priority !== Priority.PRIORITY_DEFAULT)],
  ['optimization.cuda', (c) => optimizes(c, (o) => o.cuda !== undefined)],
  ['optimization.gather_kernel_buffer_threshold', (c) => optimizes(c, (o) => o.gatherKernelBufferThreshold !== 0)],
  ['optimization.eager_batching', (c) => optimizes(c, (o) => o.eagerBatching)],
  ['cc_model_filenames', (c) => Object.keys(c.ccModelFilenames).length > 0],
]

/** Settings that only affect a model on a GPU. */
const FOR_GPUS: typeof INEFFECTIVE = [
  [
    'optimization.execution_accelerators.gpu_execution_accelerator',
    (c) => optimizes(c, (o) => (o.executionAccelerators?.gpuExecutionAccelerator.length ?? 0) > 0),
  ],
  // The deprecated settings of the CUDA provider.
  parameter('cudnn_conv_algo_search'),
  parameter('gpu_mem_limit'),
  parameter('arena_extend_strategy'),
  parameter('do_copy_in_default_stream'),
]

/** Logs, in one line, which of these fields a configuration sets. */
export function warnOfIneffective(config: ModelConfig, log: Log, hasGpu = false): void {
  const all = hasGpu && isOfOnnxRuntime(config.backend) ? INEFFECTIVE : [...INEFFECTIVE, ...FOR_GPUS]
  const fields = all.filter(([, used]) => used(config)).map(([field]) => field)
  if (fields.length > 0)
    log('warning', `model '${config.name}' has settings without effect in this release: ${fields.join(', ')}`)
}

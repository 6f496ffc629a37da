/**
 * Resolves `instance_group` to the instances that will run: kinds without AUTO, counts, names, GPU lists. Runs at load,
 * so a mistake here fails the version and not the poll.
 */
import { create } from '@bufbuild/protobuf'
import { backendRow, PLAN_PLATFORM } from './backends.js'
import { copy } from './binary.js'
import { invalid } from './error.js'
import {
  ModelInstanceGroup_Kind as Kind,
  ModelInstanceGroupSchema,
  type ModelConfig,
  type ModelInstanceGroup,
} from './generated/model_config_pb.js'

/** Devices of this machine that instances can use. */
export interface Devices {
  /** Ids of the usable GPUs. */
  gpus: number[]
  /** True if this server can use GPUs. */
  gpuSupport: boolean
  /** Reason why models of this backend cannot use the existing GPUs. */
  missing?: string
  /** True if instances use a GPU only when their group asks for one. */
  onlyWhenAsked?: boolean
  /** Lowest CUDA compute capability that counts as usable. */
  minComputeCapability: number
}

export const NO_GPUS: Devices = { gpus: [], gpuSupport: false, minComputeCapability: 0 }

/** Hint after Triton's text: how to serve the model on the CPU, if possible. */
const fallbackHint = ({ backend }: ModelConfig): string =>
  backendRow(backend)?.devices === 'only' ? '' : '; --gpu-fallback=cpu serves it on the CPU'

/** Completes and checks the instance groups. An ensemble has none and is returned unchanged. */
export function resolveInstanceGroups(config: ModelConfig, devices: Devices): ModelConfig {
  if (config.platform === 'ensemble') return config
  const resolved = copy(config)
  if (resolved.instanceGroup.length === 0) {
    // Only this group has a name without an index.
    resolved.instanceGroup.push(create(ModelInstanceGroupSchema, { name: config.name }))
  }
  resolved.instanceGroup.forEach((group, index) => resolve(group, index, resolved, devices))
  for (const group of resolved.instanceGroup) check(group, resolved, devices)
  return resolved
}

/**
 * Moves groups that want a GPU to the CPU, for a machine without one: `--gpu-fallback=cpu`. Most published
 * configurations have KIND_GPU. A group that lists GPUs without a kind is moved too, since it could not be served
 * either.
 *
 * @returns the configuration and the names of the moved groups; the same object if there are none
 */
export function moveGpuGroupsToCpu(config: ModelConfig): { config: ModelConfig; moved: string[] } {
  const wantsGpu = (group: ModelInstanceGroup): boolean =>
    group.kind === Kind.GPU || (group.kind === Kind.AUTO && group.gpus.length > 0)
  if (!config.instanceGroup.some(wantsGpu)) return { config, moved: [] }
  const changed = copy(config)
  const moved = changed.instanceGroup.flatMap((group, index) => {
    if (!wantsGpu(group)) return []
    group.kind = Kind.CPU
    group.gpus = []
    return [group.name === '' ? `${config.name}_${index}` : group.name]
  })
  return { config: changed, moved }
}

/** True if groups that want a GPU cannot be served as they are. */
export function lacksGpu({ gpus, missing }: Devices): boolean {
  return gpus.length === 0 || missing !== undefined
}

function resolve(group: ModelInstanceGroup, index: number, config: ModelConfig, devices: Devices): void {
  if (group.name === '') group.name = `${config.name}_${index}`
  if (group.kind === Kind.AUTO) {
    const mayUseGpu = devices.missing === undefined && devices.onlyWhenAsked !== true
    const usable = mayUseGpu && devices.gpus.length > 0 && group.gpus.every((id) => devices.gpus.includes(id))
    group.kind = usable ? Kind.GPU : Kind.CPU
  }
  if (group.count < 1)
    group.count = (group.kind === Kind.CPU ? backendRow(config.backend)?.cpuInstances : undefined) ?? 1
  if (group.kind === Kind.GPU && group.gpus.length === 0) group.gpus.push(...devices.gpus)
}

function check(group: ModelInstanceGroup, config: ModelConfig, devices: Devices): void {
  const where = `instance group ${group.name} of model ${config.name}`
  if (group.kind === Kind.MODEL && group.gpus.length > 0)
    throw invalid(`${where} has kind KIND_MODEL but specifies one or more GPUs`)
  if (group.kind === Kind.CPU && group.gpus.length > 0)
    throw invalid(`${where} has kind KIND_CPU but specifies one or more GPUs`)
  if (group.kind === Kind.GPU) {
    if (!devices.gpuSupport)
      throw invalid(`${where} has kind KIND_GPU but server does not support GPUs${fallbackHint(config)}`)
    if (devices.gpus.length === 0)
      throw invalid(`${where} has kind KIND_GPU but no GPUs are available${fallbackHint(config)}`)
    if (devices.missing !== undefined) {
      throw invalid(
        `${where} has kind KIND_GPU but ${devices.missing}; 'nereid gpu' shows what this machine has and how to ` +
          `install the rest${fallbackHint(config)}`,
      )
    }
    const unknown = group.gpus.find((id) => !devices.gpus.includes(id))
    if (unknown !== undefined) {
      throw invalid(
        `${where} specifies invalid or unsupported gpu id ${unknown}. GPUs with at least the minimum ` +
          'required CUDA compute ' +
          `compatibility of ${devices.minComputeCapability.toFixed(6)} are: ${devices.gpus.join(', ')}`,
      )
    }
  }
  if (group.profile.length > 0 && config.platform !== PLAN_PLATFORM) {
    // Triton's text lacks this space, and clients match on it.
    throw invalid(
      `${where} and platform ${config.platform}specifies profile field which is only supported for TensorRT models`,
    )
  }
}

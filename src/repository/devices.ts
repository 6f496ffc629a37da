/**
 * Selects the devices that the instances of a model may use. Models of ONNX Runtime also need its provider for the
 * device; without it they run on the CPU, unless their configuration names a GPU.
 *
 * Without a GPU none of this is visible, and the texts are Triton's.
 */

import { backendRow, providerName, settingsOwner, type Devices, type Log, type ModelConfig } from '../config/index.js'
import { findProviders, listDevices } from '../native/index.js'
import { findOnnxRuntime } from '../native/onnxruntime.js'
import { settingsOf, type RepositorySettings } from './settings.js'

/** Ordinals of the devices with sufficient compute capability. */
export function usable(
  devices: readonly { ordinal: number; computeCapability: string | null }[],
  minComputeCapability: number,
): number[] {
  // A device of unknown capability stays: Triton gets the value from the same driver, which always has one.
  return devices
    .filter((d) => d.computeCapability === null || Number(d.computeCapability) >= minComputeCapability)
    .map((d) => d.ordinal)
}

/**
 * The devices that instances of a model with this configuration may use.
 *
 * @param hasOwnCode true if Python code or a library of the user serves it, which has no row in the table of backends
 */
export function devicesOf(
  settings: RepositorySettings,
  { backend }: Pick<ModelConfig, 'backend'>,
  hasOwnCode = false,
): Devices {
  const { minComputeCapability } = settings
  const found = present()
  if (found === null) return { gpus: [], gpuSupport: false, minComputeCapability }
  const devices: Devices = { gpus: usable(found, minComputeCapability), gpuSupport: true, minComputeCapability }
  if (!hasOwnCode && !['auto', 'only'].includes(backendRow(backend)?.devices ?? ''))
    return { ...devices, onlyWhenAsked: true }
  const missing = !hasOwnCode && devices.gpus.length > 0 ? missingProvider(settings, backend) : null
  return missing === null ? devices : { ...devices, missing }
}

/** Reason, as the start of a warning, for moving GPU instance groups to the CPU; null if they stay. */
export function reasonForCpu(
  { gpuFallback }: RepositorySettings,
  { backend, runtime }: ModelConfig,
  isWithoutGpu: boolean,
): string | null {
  if (isWithoutGpu) return gpuFallback === 'cpu' ? 'because there is no GPU (--gpu-fallback=cpu):' : null
  return backendRow(backend)?.devices === 'never' && runtime === ''
    ? `where the backend '${backend}' computes, regardless of`
    : null
}

/** The devices of this process; null without any, and for commands that run without the core's native module. */
function present(): { ordinal: number; computeCapability: string | null }[] | null {
  try {
    const { unavailable, devices } = listDevices()
    return unavailable === null && devices.length > 0 ? devices : null
  } catch {
    return null
  }
}

function missingProvider(settings: RepositorySettings, backend: string): string | null {
  const { providers: [first, ...others] = [] } = backendRow(backend) ?? {}
  if (first === undefined) return null
  const found = findProviders(findOnnxRuntime(), settingsOf(settings, settingsOwner(backend)))
  if ([first, ...others].some((name) => found[name].usable)) return null
  const why = found[first].problems[0] ?? 'it is not installed'
  return `ONNX Runtime's ${providerName(backend)} provider cannot be used: ${why}`
}

const warned = new WeakSet<RepositorySettings>()

/** Warns once per server that models which could run on a GPU are served on the CPU. */
export function warnOfMissingProvider(
  settings: RepositorySettings,
  { name, instanceGroup }: ModelConfig,
  { missing }: Devices,
  log: Log,
): void {
  if (missing === undefined || warned.has(settings) || instanceGroup.some((group) => group.gpus.length > 0)) return
  warned.add(settings)
  const models = `model '${name}', and others whose instance groups do not choose, are served on the CPU`
  log('warning', `${models}: ${missing}. 'nereid gpu' shows how to install it`)
}

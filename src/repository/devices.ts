/**
 * Which devices a model's instances may be on. The machine has them or not; ONNX Runtime's models also need its provider, and a machine
 * without that serves them on the CPU unless they insist.
 *
 * Without a GPU nothing of this shows: texts are the reference's.
 */

import { PROVIDERS, backendRow, settingsOwner, type Devices, type Log, type ModelConfig } from '../config/index.js'
import { findProviders, listDevices } from '../native/index.js'
import { findOnnxRuntime } from '../native/onnxruntime.js'
import { settingsOf, type RepositorySettings } from './settings.js'

/** Devices that are there and can do enough, by their numbers. */
export function usable(devices: readonly { ordinal: number; computeCapability: string | null }[], minComputeCapability: number): number[] {
  // A device that does not say what it can do is not left out: the reference asks the same driver, which always says.
  return devices.filter((d) => d.computeCapability === null || Number(d.computeCapability) >= minComputeCapability).map((d) => d.ordinal)
}

/** The devices that instances of a model with this configuration may be on. */
export function devicesOf(settings: RepositorySettings, { backend }: Pick<ModelConfig, 'backend'>, writtenInPython = false): Devices {
  const { minComputeCapability } = settings
  const found = present()
  if (found === null) return { gpus: [], gpuSupport: false, minComputeCapability }
  const devices: Devices = { gpus: usable(found, minComputeCapability), gpuSupport: true, minComputeCapability }
  if (!writtenInPython && backendRow(backend)?.devices === undefined) return { ...devices, onlyWhenAsked: true }
  const missing = devices.gpus.length > 0 ? missingProvider(settings, backend) : null
  return missing === null ? devices : { ...devices, missing }
}

/** The devices of this process; null without. The core's module may be missing, for commands that need none: then there are none. */
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
  return `ONNX Runtime's ${PROVIDERS[first]} provider cannot be used: ${found[first].problems[0] ?? 'it is not there'}`
}

const warned = new WeakSet<RepositorySettings>()

/** Says once for a server that models which could be on a GPU are served on the CPU. */
export function warnOfMissingProvider(settings: RepositorySettings, config: ModelConfig, { missing }: Devices, log: Log): void {
  if (missing === undefined || warned.has(settings) || config.instanceGroup.some((group) => group.gpus.length > 0)) return
  warned.add(settings)
  log('warning', `model '${config.name}', and others whose instance groups leave it open, are served on the CPU: ${missing}. 'nereid gpu' says what installs it`)
}

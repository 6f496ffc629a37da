/** Combines the findings: usable devices, versions that do not match, advice. Pure. */

import type { Device, DeviceList, MachineDevices, ProviderReport } from '../../internal.js'

export interface Found {
  /** CUDA_VISIBLE_DEVICES; null if unset. */
  visible: string | null
  computeCapabilityMin: number
  devices: DeviceList
  machine: MachineDevices
  providers: ProviderReport
}

export interface GpuReport {
  /** True if ONNX Runtime models can run on a GPU. */
  isUsable: boolean
  /** Versions of the driver and of the highest CUDA that it supports; null if unknown. */
  driver: { version: string | null; cuda: string | null }
  visible: string | null
  /** Devices of this process; `uuid` as `nvidia-smi` prints it, if NVML knows the device. */
  devices: (Device & { isUsed: boolean })[]
  /** Devices of the machine that are hidden from this process. */
  hidden: { uuid: string; name: string }[]
  providers: ProviderReport
  /** Reasons why models cannot run on a GPU. */
  problems: string[]
  /** Facts that do not prevent it. */
  notes: string[]
  /** Advice for the problems and notes: words, or shell commands. */
  todo: { words: string; command: string | null }[]
}

/** First driver that supports each CUDA. */
const DRIVER_OF_CUDA: ReadonlyMap<number, number> = new Map([
  [11, 450],
  [12, 525],
  [13, 580],
])

export function gpuReport({ visible, computeCapabilityMin, devices: list, machine, providers }: Found): GpuReport {
  const problems: string[] = []
  const notes: string[] = []
  const todo: GpuReport['todo'] = []
  const devices = list.devices.map((device) => ({
    ...device,
    uuid: uuidOf(device, machine),
    isUsed: isEnough(device.computeCapability, computeCapabilityMin),
  }))
  const hidden = machine.devices
    .filter((one) => !list.devices.some((device) => isSame(device, one)))
    .map(({ uuid, name }) => ({ uuid, name }))

  if (list.unavailable !== null) {
    problems.push(`there is no GPU: ${list.unavailable}`)
    todo.push({ words: driverAdvice(list.unavailable, machine), command: null })
  }
  if (machine.ignored !== null) {
    notes.push(
      `CUDA_VISIBLE_DEVICES='${visible ?? ''}': '${machine.ignored.entry}' matches no device, and the rest of the ` +
        `list is ignored: ${machine.ignored.why}`,
    )
  }
  if (machine.unavailable !== null && list.unavailable === null)
    notes.push(`there are no GPU metrics: ${machine.unavailable}`)
  if (devices.length > 0 && !devices.some(({ isUsed }) => isUsed)) {
    problems.push(`no device has compute capability ${computeCapabilityMin} (--min-supported-compute-capability)`)
  }
  const { cuda, tensorrt } = providers
  problems.push(...cuda.problems)
  const needs = cudaOf(providers)
  const misfit = needs === null || list.cudaVersion === null ? null : fits(needs, list.cudaVersion)
  if (misfit !== null) {
    problems.push(misfit)
    const driver = DRIVER_OF_CUDA.get(needs ?? 0)
    todo.push({
      words: `install driver ${driver === undefined ? `of CUDA ${needs}` : `${driver} or later`}`,
      command: null,
    })
    if (needs === 13) {
      todo.push({
        words:
          'or take an ONNX Runtime for CUDA 12, and name its library with --backend-config=onnxruntime,library=PATH',
        command: "pip install 'onnxruntime-gpu[cuda,cudnn]<1.27'",
      })
    }
  }
  if (cuda.command !== undefined) {
    todo.push({ words: 'install what is missing for CUDA', command: cuda.command })
    if (cuda.file === undefined) {
      todo.push({
        words:
          'or, if the providers are elsewhere, name their directory with ' +
          '--backend-config=onnxruntime,provider-directory=PATH',
        command: null,
      })
    }
  }
  for (const { name, file, optional } of cuda.libraries) {
    if (optional && file === undefined) notes.push(`${name} is missing: operators that need it fail`)
  }
  // Few models need it.
  if (cuda.file !== undefined) {
    notes.push(...tensorrt.problems.map((problem) => `TensorRT cannot be used: ${problem}`))
    if (tensorrt.command !== undefined) todo.push({ words: 'for TensorRT', command: tensorrt.command })
  }
  return {
    isUsable: problems.length === 0,
    driver: { version: machine.driverVersion, cuda: list.cudaVersion },
    visible,
    devices,
    hidden,
    providers,
    problems,
    notes,
    todo,
  }
}

/** CUDA version that the provider is built for. */
export function cudaOf({ cuda }: ProviderReport): number | null {
  for (const { name } of cuda.libraries) {
    const major = /^libcudart\.so\.(\d+)/.exec(name)?.[1]
    if (major !== undefined) return Number(major)
  }
  return null
}

function fits(needs: number, driver: string): string | null {
  return Number(driver.split('.')[0]) >= needs
    ? null
    : `the CUDA provider is built for CUDA ${needs}, and the driver is made for CUDA ${driver} at most`
}

function isEnough(capability: string | null, least: number): boolean {
  return capability === null || Number(capability) >= least
}

/** Compares uuids, or addresses with an old driver. */
function isSame({ uuid, pciAddress }: Device, one: MachineDevices['devices'][number]): boolean {
  const uuids = [one.uuid, ...one.instances].map((text) => text.replace(/^(?:GPU|MIG)-/, ''))
  return uuid === null ? pciAddress !== null && pciAddress === one.pciAddress : uuids.includes(uuid)
}

function uuidOf({ uuid }: Device, machine: MachineDevices): string | null {
  if (uuid === null) return null
  return (
    machine.devices.flatMap((one) => [one.uuid, ...one.instances]).find((known) => known.endsWith(`-${uuid}`)) ?? uuid
  )
}

function driverAdvice(why: string, machine: MachineDevices): string {
  if (why.includes('CUDA_VISIBLE_DEVICES')) return 'unset CUDA_VISIBLE_DEVICES, or name a device of this machine in it'
  if (machine.devices.length > 0)
    return (
      'NVML finds devices and CUDA none: the device files /dev/nvidia* may be missing, or this user may not ' +
      'read them'
    )
  return "install NVIDIA's driver; in a container, start it with the devices of the host, as docker run --gpus=all does"
}

/**
 * Limits of memory for GPUs: `--pinned-memory-pool-byte-size`, `--cuda-memory-pool-byte-size`, `--model-load-gpu-limit`
 * and the like (memory.md 3.1). Pure.
 */

import type { DeviceMemoryOptions } from '../native/contract.js'
import { passedTo, type Options } from './flags.js'
import { badOption, bytesOf } from './parse.js'

/** Highest ordinal that is accepted: no machine has so many devices. */
const DEVICE_MAX = 1023

/** @throws {OptionError} if a value has the wrong form */
export function readDeviceMemory(options: Options): DeviceMemoryOptions {
  return {
    ...passedTo('deviceMemory', options),
    devicePools: options.cudaMemoryPoolByteSize.map((text) => {
      const [gpu, bytes = '', ...more] = text.split(':')
      const inBytes = [gpu, bytesOf(bytes) ?? bytes, ...more].join(':')
      const { device, value } = readPair('cuda-memory-pool-byte-size', inBytes, '<GPU device>:<bytes>', /^\d+$/)
      if (!Number.isSafeInteger(value))
        throw badOption(
          'cuda-memory-pool-byte-size',
          `Provided option value is out of bound. Got ${text}; the bytes are from 0 to ${Number.MAX_SAFE_INTEGER}`,
        )
      return { device, bytes: value }
    }),
    loadLimits: options.modelLoadGpuLimit.map((text) => {
      const { device, value } = readPair(
        'model-load-gpu-limit',
        text,
        '<GPU device>:<fraction>',
        /^(?:\d+\.?\d*|\.\d+)$/,
      )
      if (value > 1)
        throw badOption('model-load-gpu-limit', `the fraction must be in the range [0.0, 1.0]. Got ${text}`)
      return { device, fraction: value }
    }),
  }
}

function readPair(flag: string, text: string, form: string, number: RegExp): { device: number; value: number } {
  const [device = '', value = '', ...more] = text.split(':')
  if (!/^\d+$/.test(device) || !number.test(value) || more.length > 0)
    throw badOption(flag, `--${flag} option format is '${form}'. Got ${text}`)
  if (Number(device) > DEVICE_MAX)
    throw badOption(flag, `Provided option value is out of bound. Got ${text}; the device is from 0 to ${DEVICE_MAX}`)
  return { device: Number(device), value: Number(value) }
}

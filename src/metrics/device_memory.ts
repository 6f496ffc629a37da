/** Families about memory of GPUs: pools, use by models, and limits. */

import type { DeviceMemoryUse, OneDeviceMemoryUse } from '../native/contract.js'
import type { Family, FamilyType } from './exposition.js'

/** Returns the families; none without a GPU. */
export function deviceMemoryFamilies(use: DeviceMemoryUse | null): Family[] {
  if (use === null) return []
  const one = (name: string, type: FamilyType, help: string, value: number | bigint): Family =>
    ({ name, type, help, samples: [{ labels: {}, value }] })
  const each = (
    name: string, type: FamilyType, help: string, value: (of: OneDeviceMemoryUse) => number | bigint,
  ): Family => {
    const samples = use.devices.map((of) => ({ labels: { device: String(of.device) }, value: value(of) }))
    return { name, type, help, samples }
  }
  return [
    one('nereid_pinned_pool_exhausted_total', 'counter', 'How often the pinned memory pool had no room.',
      use.pinned.exhausted),
    one('nereid_pinned_body_bytes', 'gauge', 'Bytes of the pinned memory pool that bodies of requests have.',
      use.pinnedBodyBytes),
    one('nereid_pinned_body_bytes_max', 'gauge', 'Most bytes of it that they may have.', use.pinnedBodyBytesMax),
    one('nereid_pinned_region_bytes', 'gauge', 'Bytes of registered system shared memory whose pages are locked.',
      use.lockedRegionBytes),
    one('nereid_pinned_region_bytes_max', 'gauge', 'Most bytes that may be.', use.lockedRegionBytesMax),
    one('nereid_staged_bytes_total', 'counter',
      'Bytes copied to or from page-locked memory, so that a GPU could copy them.', use.stagedBytes),
    each('nereid_device_pool_bytes', 'gauge', 'Bytes of the memory pool of a GPU in use.', (of) => of.pool.usedBytes),
    each('nereid_device_pool_bytes_max', 'gauge', 'Bytes of that pool.', (of) => of.pool.bytesMax),
    each('nereid_device_pool_exhausted_total', 'counter', 'How often that pool had no room.',
      (of) => of.pool.exhausted),
    each('nereid_device_promised_bytes', 'gauge',
      'Bytes of a GPU that loaded models need, as far as their backends say.', (of) => of.promisedBytes),
    each('nereid_device_promised_bytes_max', 'gauge', 'Most bytes that models may need there.',
      (of) => of.promisedBytesMax),
  ]
}

/** Control groups with a quota of CPU time, of cgroup v1 or v2; where they may not be made there is a reason. */
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const PERIOD_US = 100_000
const V1 = '/sys/fs/cgroup/cpu'

/**
 * Makes a group whose processes get so many cores. A process whose id is written to cgroup.procs of its directory is in
 * it; `remove` needs that it ended.
 *
 * @returns `{ directory, remove }`, or `{ reason }`
 */
export function cpuGroup(name, cores) {
  const isV1 = existsSync(join(V1, 'cpu.cfs_quota_us'))
  const directory = join(isV1 ? V1 : '/sys/fs/cgroup', name)
  const quota = cores * PERIOD_US
  try {
    mkdirSync(directory)
    if (isV1) {
      writeFileSync(join(directory, 'cpu.cfs_period_us'), `${PERIOD_US}`)
      writeFileSync(join(directory, 'cpu.cfs_quota_us'), `${quota}`)
    } else writeFileSync(join(directory, 'cpu.max'), `${quota} ${PERIOD_US}`)
    return { directory, remove: () => rmdirSync(directory) }
  } catch (error) {
    if (existsSync(directory)) rmdirSync(directory)
    return { reason: error.message }
  }
}

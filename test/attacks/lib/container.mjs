/** A control group with a memory limit, as a container has one; version 1 or 2 of the kernel's interface. */
import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { until } from './wait.mjs'

const V1 = {
  root: '/sys/fs/cgroup/memory',
  limit: 'memory.limit_in_bytes',
  swap: 'memory.memsw.limit_in_bytes',
  kills: 'memory.oom_control',
  peak: 'memory.max_usage_in_bytes',
}
const V2 = {
  root: '/sys/fs/cgroup',
  limit: 'memory.max',
  swap: 'memory.swap.max',
  kills: 'memory.events',
  peak: 'memory.peak',
}
let made = 0

export class Container {
  /** Makes one of `mib` MiB; a text with the reason if that is not possible here. */
  static make(mib) {
    let reason = ''
    for (const kind of [V1, V2]) {
      const container = new Container(kind, join(kind.root, `nereid-test-${process.pid}-${(made += 1)}`))
      try {
        mkdirSync(container.directory)
        container.write(kind.limit, mib * 2 ** 20)
        // Swap would hide what is too much. A kernel that does not account for it has no such file.
        try {
          container.write(kind.swap, kind === V1 ? mib * 2 ** 20 : 0)
        } catch {}
        return container
      } catch (error) {
        reason ||= error.message
        container.remove()
      }
    }
    return `no control group can be made here: ${reason}`
  }

  constructor(kind, directory) {
    Object.assign(this, { kind, directory })
  }

  write(file, value) {
    writeFileSync(join(this.directory, file), String(value))
  }

  read(file) {
    return readFileSync(join(this.directory, file), 'utf8')
  }

  /** Words of a shell that starts its arguments inside. */
  get enter() {
    return `echo $$ > ${this.directory}/cgroup.procs`
  }

  /** Processes that the kernel killed for memory. */
  get kills() {
    return Number(/^oom_kill (\d+)$/m.exec(this.read(this.kind.kills))[1])
  }

  /** Largest use in MiB. Pages of files that could be dropped count too. */
  get peakMiB() {
    return Number(this.read(this.kind.peak)) / 2 ** 20
  }

  /** Removes it once its processes have ended. */
  async remove() {
    await until(
      () => {
        try {
          rmdirSync(this.directory)
          return true
        } catch (error) {
          return error.code === 'ENOENT'
        }
      },
      { everyMs: 20, seconds: 10 },
    )
  }
}

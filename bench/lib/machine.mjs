/** The conditions a figure was measured under. A figure without them cannot be repeated. */
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { cpus, loadavg, release, totalmem } from 'node:os'
import { ask } from '../../scripts/lib/run.mjs'

/** Jiffies of all CPUs since boot. */
function cpuTimes() {
  try {
    const fields = readFileSync('/proc/stat', 'utf8').split('\n')[0].trim().split(/\s+/).slice(1).map(Number)
    const [user, nice, system, idle, iowait, irq, softirq, steal] = fields
    return { total: user + nice + system + idle + iowait + irq + softirq + steal, idle: idle + iowait, steal }
  } catch {
    return null
  }
}

/** The commit of a bundle, which is no clone. */
const bundled = (root) =>
  existsSync(`${root}/bundle.json`) ? JSON.parse(readFileSync(`${root}/bundle.json`, 'utf8')) : {}

export class Conditions {
  #from = cpuTimes()
  #loadBefore = loadavg()

  constructor(root, library) {
    this.static = {
      cpus: cpus().length,
      cpu: cpus()[0]?.model.trim() ?? 'unknown',
      memoryGiB: Math.round(totalmem() / 2 ** 30),
      kernel: release(),
      node: process.version,
      rust: ask('rustc', ['--version']) ?? 'unknown',
      commit: bundled(root).commit ?? ask('git', ['rev-parse', '--short', 'HEAD'], { cwd: root }) ?? 'unknown',
      // Others' work in progress changes nothing that was built, but the commit alone no longer says what was measured.
      // Results do not.
      modified:
        bundled(root).modified ??
        (ask('git', ['status', '--porcelain', '--untracked-files=no', 'crates', 'src', 'bench', ':!bench/results'], {
          cwd: root,
        }) ?? '') !== '',
      onnxruntime: JSON.parse(readFileSync(`${root}/node_modules/onnxruntime-node/package.json`, 'utf8')).version,
      libonnxruntimeSha256: createHash('sha256').update(readFileSync(library)).digest('hex'),
    }
  }

  /** With what happened since the start: load average on both sides, CPU time stolen by the hypervisor. */
  now() {
    const to = cpuTimes()
    const total = to === null ? 0 : to.total - this.#from.total
    return {
      ...this.static,
      loadBefore: this.#loadBefore,
      loadAfter: loadavg(),
      stealPercent: total > 0 ? (100 * (to.steal - this.#from.steal)) / total : null,
      busyPercent: total > 0 ? 100 - (100 * (to.idle - this.#from.idle)) / total : null,
    }
  }
}

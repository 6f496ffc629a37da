/**
 * What the machine does to a process that has nothing to do with the server: a little work at a time, each measured by the same
 * clock as a reactor's, the CPU time of who does it.
 *
 * A hypervisor that takes a core away in the middle of such a piece, and does not tell, has the clock of the guest run on: pieces of
 * 0.2 ms were charged with up to 260 ms, with not one timer interrupt in that time. A hold of a reactor beside such a piece proves nothing.
 */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** One piece of work, and the pause after it: a sixth of a core, about what a reactor has to do beside an attack. */
const WORK_MS = 0.2
const PAUSE_MS = 1
/** Its clock is the process's: no compiler beside it, whose steps take 2.5 ms. */
const OWN_WORK_ONLY = ['--single-threaded', '--no-opt']

/** Does `work` and tells the longest piece of the control meanwhile, in milliseconds of its CPU. */
export async function besideControl(work) {
  const control = fork(fileURLToPath(import.meta.url), ['control'], { execArgv: OWN_WORK_ONLY })
  const message = () =>
    new Promise((resolve, reject) => {
      control.once('message', resolve)
      control.once('error', reject)
      control.once('exit', () => reject(new Error('the control process ended')))
    })
  try {
    await message()
    const result = await work()
    const longest = message()
    control.send('stop')
    return { result, controlMs: await longest }
  } finally {
    control.removeAllListeners('exit')
    control.kill()
  }
}

function cpuMs() {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

function measure() {
  let longest = 0
  let stopped = false
  process.on('message', () => (stopped = true))
  const step = () => {
    const end = performance.now() + WORK_MS
    let last = cpuMs()
    while (performance.now() < end) {
      const now = cpuMs()
      longest = Math.max(longest, now - last)
      last = now
    }
    if (stopped) process.send(longest)
    else setTimeout(step, PAUSE_MS)
  }
  process.send('ready')
  setTimeout(step, PAUSE_MS)
}

if (process.argv[2] === 'control' && process.send) measure()

/**
 * What the machine does to a process that has nothing to do with the server: a little work at a time, each measured by
 * the same clock as a reactor's, the CPU time of who does it.
 *
 * A hypervisor that takes a core away in the middle of such a piece, and does not tell, has the clock of the guest run
 * on: pieces of 0.2 ms were charged with up to 260 ms, with not one timer interrupt in that time. A hold of a reactor
 * beside such a piece proves nothing.
 *
 * The control also measures what the largest step of a reactor costs on this machine: a read of 256 KiB into memory
 * that is touched for the first time. Each of its 64 pages costs a fault, 0.5 µs on most machines and 7 µs in a virtual
 * machine inside another one.
 */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/**
 * No client has a reactor for longer, where a step costs at most `STEP_MS` (0.06 ms on most machines); elsewhere as
 * much longer as a step is.
 */
export const HOLD_MS_MAX = 1
const STEP_MS = 0.15
/** `STEP_BYTES` of `frontend::limits`. */
const STEP_BYTES = 256 * 1024
const STEPS_MEASURED = 16

/** One piece of work, and the pause after it: a sixth of a core, about what a reactor has to do beside an attack. */
const WORK_MS = 0.2
const PAUSE_MS = 1
/** Flags that keep the compiler, whose steps take 2.5 ms, off the clock of the control process. */
const OWN_WORK_ONLY = ['--single-threaded', '--no-opt']

/**
 * Does `work` and tells the longest piece of the control meanwhile, and what a step costs, in milliseconds of its CPU.
 * A reactor that a request keeps busy meets more of what the machine does than a control that mostly pauses: where
 * `isSuspect` says so of the result, the control works on without a pause for as long as `work` took.
 */
async function besideControl(work, isSuspect) {
  const control = fork(fileURLToPath(import.meta.url), ['control'], { execArgv: OWN_WORK_ONLY })
  const message = () =>
    new Promise((resolve, reject) => {
      control.once('message', resolve)
      control.once('error', reject)
      control.once('exit', () => reject(new Error('the control process ended')))
    })
  try {
    const stepMs = await message()
    const from = performance.now()
    const result = await work()
    const longest = message()
    control.send({ workOnMs: isSuspect(result, stepMs) ? performance.now() - from : 0 })
    return { result, controlMs: await longest, stepMs }
  } finally {
    control.removeAllListeners('exit')
    control.kill()
  }
}

/** A step that is too long is too long every time: so many attempts in which nothing else was wrong fail a row. */
const STRIKES = 5
/** Attempts are made for so long, or so many of them. */
const ATTEMPTS_MS = 12_000
const ATTEMPTS_MAX = 12

/**
 * Does `work`, judges how long reactors were held, beside a control process that does a little work at a time, and
 * returns the best attempt.
 *
 * One attempt without a hold above the limit passes: steps that are too long are too long every time. An attempt in
 * which the control was held as well proves nothing, since the machine did that: a clock of CPU time runs on while a
 * hypervisor that does not tell has the core. Where no attempt is left to judge, `unknown` says so.
 */
export async function judgedHold(t, maxMs, work) {
  const from = performance.now()
  let best = null
  let strikes = 0
  let machineMs = 0
  for (let i = 0; i < ATTEMPTS_MAX && strikes < STRIKES && !(best !== null && best.ms <= best.limitMs); i += 1) {
    if (i >= STRIKES && performance.now() - from > ATTEMPTS_MS) break
    const limit = (bounds, stepMs) => limitOf(maxMs, bounds, stepMs)
    const {
      result: attempt,
      controlMs,
      stepMs,
    } = await besideControl(
      () => t.hold(() => t.health(work)),
      ({ ms, bounds }, stepMs) => ms > limit(bounds, stepMs),
    )
    const limitMs = limit(attempt.bounds, stepMs)
    if (controlMs <= limitMs) strikes += 1
    else machineMs = Math.max(machineMs, controlMs)
    if (best === null || attempt.ms < best.ms) best = { ms: attempt.ms, result: attempt.result, limitMs, stepMs }
  }
  const isHeld = best.ms > best.limitMs
  const here =
    best.limitMs > maxMs
      ? `; ${best.limitMs} ms are allowed here, where a step of 256 KiB costs ${best.stepMs.toFixed(2)} ms`
      : ''
  t.check(
    !isHeld || strikes < STRIKES,
    `a reactor was held for up to ${best.ms} ms of CPU, ${STRIKES} times, and a control process never${here}`,
  )
  const unknown =
    isHeld && strikes < STRIKES
      ? ` (not judged: this machine held a control process for ${machineMs.toFixed(1)} ms)`
      : ''
  return { ...best, unknown: best.ms > maxMs && unknown === '' ? ` (${here.slice(2)})` : unknown }
}

/** Limit on a machine whose steps cost `stepMs`: one of the bounds by which holds are counted. */
function limitOf(maxMs, bounds, stepMs) {
  const wanted = maxMs * Math.max(1, stepMs / STEP_MS)
  return bounds.find((bound) => bound >= wanted) ?? Infinity
}

function cpuMs() {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

/** Cost of filling memory that was not touched before: the median of a few steps. */
function costOfStep() {
  const memory = Buffer.alloc(STEPS_MEASURED * STEP_BYTES)
  const costs = Array.from({ length: STEPS_MEASURED }, (_, i) => {
    const before = cpuMs()
    memory.fill(1, i * STEP_BYTES, (i + 1) * STEP_BYTES)
    return cpuMs() - before
  })
  return costs.sort((a, b) => a - b)[STEPS_MEASURED / 2]
}

function measure() {
  let longest = 0
  let timer
  const workFor = (ms) => {
    const end = performance.now() + ms
    let last = cpuMs()
    while (performance.now() < end) {
      const now = cpuMs()
      longest = Math.max(longest, now - last)
      last = now
    }
  }
  const step = () => {
    workFor(WORK_MS)
    timer = setTimeout(step, PAUSE_MS)
  }
  process.on('message', ({ workOnMs }) => {
    clearTimeout(timer)
    workFor(workOnMs)
    process.send(longest)
  })
  process.send(costOfStep())
  timer = setTimeout(step, PAUSE_MS)
}

if (process.argv[2] === 'control' && process.send) measure()

/** Processes the bench starts: ended by their id and no other way, with what they said when they fail. */
import { spawn } from 'node:child_process'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ROOT } from '../../scripts/setup.mjs'

/** The load generator; see bench/load. */
export const BENCH = join(ROOT, 'target/release/nereid-bench')

const children = new Set()

/**
 * Starts a process and resolves when it is ready: when its output matches a pattern, or when a function says so.
 *
 * @param ready RegExp over its output, or an async function that is asked every 50 ms
 * @param stdin `pipe` for a process that is asked on its standard input
 * @param prompt all of its threads get the short slices of the scheduler that Nereid's reactors ask for
 */
export async function start(
  name,
  command,
  args,
  { ready, timeoutMs = 60_000, env = {}, cwd, prompt = false, stdin = 'ignore' } = {},
) {
  const began = performance.now()
  const [program, words] = prompt ? [BENCH, ['prompt', command, ...args]] : [command, args]
  const child = spawn(program, words, { cwd, env: { ...process.env, ...env }, stdio: [stdin, 'pipe', 'pipe'] })
  children.add(child)
  let text = ''
  let ended = null
  const take = (chunk) => (text = (text + chunk).slice(-20_000))
  child.stdout.on('data', take)
  child.stderr.on('data', take)
  child.on('error', (error) => (ended = error.message))
  child.on('exit', (code, signal) => {
    ended ??= `exit ${code ?? signal}`
    children.delete(child)
  })
  for (;;) {
    if (ended !== null) throw new Error(`${name} ended (${ended}) before it was ready: ${lastLines(text)}`)
    const match = ready instanceof RegExp ? ready.exec(text) : await ready().catch(() => null)
    if (match) return { child, pid: child.pid, match, readyMs: performance.now() - began, output: () => text }
    if (performance.now() - began > timeoutMs) {
      await end(child)
      throw new Error(`${name} was not ready after ${timeoutMs / 1000} s: ${lastLines(text)}`)
    }
    await sleep(ready instanceof RegExp ? 2 : 50)
  }
}

const lastLines = (text) => text.trim().split('\n').slice(-4).join(' | ').slice(-600)

/** True once a URL answers 200. */
export const answers = (url) => async () => (await fetch(url, { signal: AbortSignal.timeout(1000) })).ok

/** Ends a process and its children: asks first, insists after a while. */
export async function end(child, graceMs = 3000) {
  if (child.exitCode !== null || child.signalCode !== null) return
  const tree = processTree(child.pid)
  const gone = new Promise((resolve) => child.once('exit', resolve))
  // Servers wait for load balancers after SIGTERM; an interrupt ends them as soon as nothing is in flight.
  child.kill('SIGINT')
  await Promise.race([gone, sleep(graceMs)])
  signalAll(tree, 'SIGKILL')
}

/** Sends a signal to those of the processes that have not ended by themselves. */
export function signalAll(pids, name) {
  for (const pid of pids) {
    try {
      process.kill(pid, name)
    } catch {
      // Ended.
    }
  }
}

export async function endAll() {
  await Promise.all([...children].map((child) => end(child, 1000)))
}

/** For `exit` handlers, which cannot wait. */
export function killAll() {
  for (const child of children) signalAll(processTree(child.pid), 'SIGKILL')
}

/** A process and everything below it: some servers answer from a child. */
export function processTree(pid) {
  const out = [pid]
  for (const thread of threads(pid)) {
    try {
      const below = readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').trim()
      if (below !== '') for (const child of below.split(' ')) out.push(...processTree(Number(child)))
    } catch {
      // The thread ended meanwhile.
    }
  }
  return out
}

export function threads(pid) {
  try {
    return readdirSync(`/proc/${pid}/task`)
  } catch {
    return []
  }
}

/**
 * CPU time of a set of processes, by thread, in microseconds. The scheduler's own account has nanoseconds; utime and
 * stime count in hundredths of a second, which is too coarse for a run of a second.
 */
export function cpuSnapshot(pids) {
  const byThread = new Map()
  for (const pid of pids) {
    for (const thread of threads(pid)) {
      try {
        byThread.set(
          `${pid}/${thread}`,
          Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]) / 1000,
        )
      } catch {
        // The thread ended between the two reads.
      }
    }
  }
  return byThread
}

/**
 * Microseconds between two snapshots. What a thread used that ended in between is lost: servers keep theirs while under
 * load.
 */
export function cpuBetween(before, after) {
  let sum = 0
  for (const [thread, used] of after) sum += used - (before.get(thread) ?? 0)
  return sum
}

/** CPU time of processes in milliseconds, threads that ended included; in steps of ten. */
export function processCpuMs(pids) {
  let ticks = 0
  for (const pid of pids) {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')
    ticks += Number(fields[11]) + Number(fields[12])
  }
  return ticks * 10
}

/** Has VmHWM begin again with what processes hold now. */
export function resetPeak(pids) {
  for (const pid of pids) writeFileSync(`/proc/${pid}/clear_refs`, '5')
}

/** Sum over a process tree of a field of /proc/<pid>/status, in MiB. */
export function memoryMiB(pids, key) {
  let kib = 0
  for (const pid of pids) {
    try {
      const line = readFileSync(`/proc/${pid}/status`, 'utf8')
        .split('\n')
        .find((l) => l.startsWith(`${key}:`))
      kib += Number(line?.replace(/\D/g, '') ?? 0)
    } catch {
      // Ended.
    }
  }
  return kib / 1024
}

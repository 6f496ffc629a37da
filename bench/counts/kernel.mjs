/**
 * System calls of a process as the kernel and strace count them: what the counting library cannot see (locks of
 * pthread, calls the C library makes for itself) is in these. Either may be missing; then there is one opinion less.
 */
import { spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'

/** Runs `work` beside a command that watches a process until it is interrupted; resolves with what the command said. */
async function beside(command, args, { settled, timeoutMs = 5000 }, work) {
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  const state = { said: '', failure: null, isOver: false }
  child.stderr.on('data', (chunk) => (state.said += chunk))
  const gone = new Promise((resolve) => {
    const over = (failure) => {
      Object.assign(state, { failure, isOver: true })
      resolve()
    }
    child.once('error', (error) => over(error.message))
    child.once('exit', () => over(null))
  })
  const until = performance.now() + timeoutMs
  while (!state.isOver && !settled(state.said) && performance.now() < until) await sleep(20)
  if (state.isOver)
    throw new Error(`${command} cannot watch a process here: ${state.failure ?? state.said.trim().split('\n').at(-1)}`)
  try {
    await work()
  } finally {
    child.kill('SIGINT')
    await gone
  }
  return state.said
}

/** All system calls of a process while `work` runs, at full speed. */
export async function kernelCount(pid, work) {
  const from = performance.now()
  const said = await beside(
    'perf',
    ['stat', '-x,', '-e', 'raw_syscalls:sys_enter', '-p', `${pid}`],
    { settled: () => performance.now() - from > 120 },
    work,
  )
  // A process that did nothing is “not counted”.
  const text = /^(\d+|<not counted>),,raw_syscalls:sys_enter/m.exec(said)?.[1]
  const found = text === '<not counted>' ? 0 : Number(text ?? Number.NaN)
  if (!Number.isFinite(found)) throw new Error(`perf counted nothing: ${said.trim().slice(-200)}`)
  return found
}

/**
 * System calls by name while `work` runs. Slow: several times fewer requests per second, so more of them wait in one
 * turn.
 */
export async function straceCount(pid, work) {
  const said = await beside(
    'strace',
    ['-f', '-c', '-p', `${pid}`],
    { settled: (text) => text.includes('attached') },
    work,
  )
  const calls = parseStrace(said)
  if (Object.keys(calls).length === 0) throw new Error(`strace counted nothing: ${said.trim().slice(-200)}`)
  return calls
}

/** `{ name: calls }` of the table of `strace -c`. */
export function parseStrace(text) {
  const rows = text.split('\n').map((line) => line.trim().split(/\s+/))
  return Object.fromEntries(
    rows
      .filter((r) => r.length >= 5 && /^[\d.]+$/.test(r[0]) && r.at(-1) !== 'total')
      .map((r) => [r.at(-1), Number(r[3])]),
  )
}

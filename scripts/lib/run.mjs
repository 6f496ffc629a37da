/** Runs other programs: quietly if they succeed, with their whole output if they fail. */
import { spawn, spawnSync } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'

/** Output of a short command, or null if it cannot run. */
export function ask(command, args, options = {}) {
  const done = spawnSync(command, args, { encoding: 'utf8', ...options })
  return done.status === 0 ? done.stdout.trim() : null
}

/** Unit of /proc on every Linux that Node supports. */
const TICKS_PER_SECOND = 100

/** CPU seconds of this process and of its ended children, with their descendants; null without /proc. */
export function cpuSeconds() {
  try {
    // The name in brackets may contain blanks. Then come state, 10 fields, user and system time, own and of children.
    const stat = readFileSync('/proc/self/stat', 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_PER_SECOND
  } catch {
    return null
  }
}

/** Processes that were started with this variable, `NAME=value`, in their environment: `{ pid, command }`. */
export function startedWith(variable) {
  const read = (pid, file) => readFileSync(`/proc/${pid}/${file}`, 'latin1').split('\0')
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const command = read(pid, 'cmdline').join(' ')
        return read(pid, 'environ').includes(variable) ? [{ pid: Number(pid), command }] : []
      } catch {
        // It has ended, or is that of another user.
        return []
      }
    })
}

/** Runs a command with its output on the terminal and resolves with its exit code. */
export function show(command, args, options = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit'], ...options })
    child.on('error', (error) => {
      process.stderr.write(`${command}: ${error.message}\n`)
      resolve(127)
    })
    child.on('close', (code, signal) => resolve(code ?? (signal === 'SIGKILL' ? 137 : 1)))
  })
}

/**
 * Resolves with the exit code, all output (`text`) and the output of the error stream (`errors`); prints it too unless
 * `quiet`. `onLine` receives each complete line.
 */
export function capture(command, args, { quiet = false, onLine = () => {}, ...options } = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options })
    let text = ''
    let errors = ''
    const take = (stream) => (chunk) => {
      text += chunk
      if (stream === process.stderr) errors += chunk
      if (!quiet) stream.write(chunk)
    }
    let line = ''
    child.stdout.on('data', (chunk) => {
      const lines = `${line}${chunk}`.split('\n')
      line = lines.pop()
      for (const one of lines) onLine(one)
    })
    child.stdout.on('data', take(process.stdout))
    child.stderr.on('data', take(process.stderr))
    child.on('error', (error) =>
      resolve({
        code: 127,
        text: `${text}${command}: ${error.message}\n`,
        errors: `${errors}${command}: ${error.message}\n`,
      }),
    )
    child.on('close', (code) => resolve({ code: code ?? 1, text, errors }))
  })
}

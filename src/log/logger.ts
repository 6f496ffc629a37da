/**
 * The log of the process: receives TypeScript's lines and the core's records.
 *
 * Writes are synchronous, because the line that matters most is the last one before the end. Inference is not affected:
 * it does not use this thread, and the core's queue of records drops under a flood. A sink that fails (full disk,
 * closed pipe) loses lines and counts them by reason; it never ends the server. Every line is tried, so the log
 * continues once the disk has room, first with a line that reports the number of missing lines.
 */

import { closeSync, fstatSync, openSync, statSync, writeSync, type BigIntStats } from 'node:fs'
import type { Log } from '../config/index.js'
import { ServerError, type LogRecord } from '../native/index.js'
import { cut, formatLine, formatTable, type LogEvent, type LogFormat, type LogSeverity } from './format.js'

export interface LogSettings {
  /** Path, or empty for the console. Fixed at start: never settable over the network. */
  file: string
  info: boolean
  warning: boolean
  error: boolean
  /** 0 = off. */
  verbose: number
  format: LogFormat
}

/** Receives formatted lines with their line feed. `problem` is true for warnings and errors. */
export interface Sink {
  (line: string, problem: boolean): void
  /** Reopens the file if it was moved away; returns its path. Absent for sinks without a file. */
  reopen?: () => string
}

/** A sink that also receives the event behind the line; a table is part of its message. */
export type EventSink = (line: string, problem: boolean, event: LogEvent) => void

export interface Logger {
  readonly settings: LogSettings
  /** The last lines but verbose ones, which would displace all others. */
  readonly recent: RecentLines
  /** Lines that could not be written, by the system's error name (`ENOSPC`); `other` for other errors. */
  readonly lost: ReadonlyMap<string, number>
  error(message: string): void
  warning(message: string): void
  info(message: string): void
  verbose(level: number, message: string): void
  /** Logs by name of the level, for code that has no logger. */
  log: Log
  /** Logs an info line followed by a table, whose first row is the heading. */
  table(rows: readonly (readonly string[])[], format?: (rows: readonly (readonly string[])[]) => string): void
  /** Logs a record of the core, which has compared its verbose level already. */
  record(record: LogRecord): void
}

/** A line, for the console. */
export interface RecentLine {
  time_ms: number
  level: LogSeverity
  message: string
}

const RECENT_LINES_MAX = 200
const RECENT_CHARS_MAX = 1000

/** The last lines of a log. Every line has a number, from 0. */
export class RecentLines {
  readonly #lines: RecentLine[] = []
  /** Number of the next line. */
  next = 0

  add({ timeUs, severity, message }: LogEvent, table: string): void {
    const text = table === '' ? message : table
    const shown = text.length > RECENT_CHARS_MAX ? `${text.slice(0, RECENT_CHARS_MAX)}…` : text
    this.#lines.push({ time_ms: Math.floor(timeUs / 1000), level: severity, message: shown })
    if (this.#lines.length > RECENT_LINES_MAX) this.#lines.shift()
    this.next += 1
  }

  /** The lines that are still here from this number on. */
  from(line: number): readonly RecentLine[] {
    const missed = this.next - Math.max(line, this.next - this.#lines.length)
    return missed <= 0 ? [] : this.#lines.slice(-missed)
  }
}

/** Creates a logger. `settings` is live: changes apply from the next line on. */
export function createLogger(settings: LogSettings, sink: EventSink = openSink(settings.file)): Logger {
  const escape = process.env['TRITON_SERVER_ESCAPE_LOG_MESSAGES'] !== '0'
  const lost = new Map<string, number>()
  const recent = new RecentLines()
  /** Lines lost since the last successful write. */
  let missing = 0

  function write(severity: LogSeverity, message: string, file: string, line: number, table = ''): void {
    const event = { severity, timeUs: nowUs(), pid: process.pid, file, line, message: cut(message) }
    if (severity !== 'verbose') recent.add(event, table)
    // A table follows a line without a message, which is not escaped to avoid empty quotes.
    const head = formatLine(event, settings.format, escape && table === '')
    const text = table === '' ? head : `${head}\n${table}`
    try {
      if (missing > 0) {
        const message = `${missing} log lines before this one could not be written`
        const gap = { ...event, severity: 'warning' as const, message }
        sink(`${formatLine(gap, settings.format, escape)}\n`, true, gap)
        missing = 0
      }
      const full = table === '' ? event : { ...event, message: table }
      sink(`${text}\n`, severity === 'error' || severity === 'warning', full)
    } catch (error) {
      missing += 1
      const reason = reasonOf(error)
      lost.set(reason, (lost.get(reason) ?? 0) + 1)
    }
  }

  function wanted(severity: LogSeverity, level: number): boolean {
    return severity === 'verbose' ? settings.verbose >= level : settings[severity]
  }

  function from(severity: LogSeverity, level: number, message: string): void {
    if (!wanted(severity, level)) return
    const place = callSite()
    write(severity, message, place.file, place.line)
  }

  return {
    settings,
    recent,
    lost,
    error: (message) => from('error', 0, message),
    warning: (message) => from('warning', 0, message),
    info: (message) => from('info', 0, message),
    verbose: (level, message) => from('verbose', level, message),
    log: (level, message) => from(level, 1, message),
    table(rows, format = formatTable) {
      if (!settings.info) return
      const place = callSite()
      if (settings.format === 'json') {
        // Always one object per line: each row becomes its own record.
        const [heading = [], ...body] = rows
        for (const row of body) {
          write('info', row.map((cell, i) => `${heading[i] ?? ''}=${cell}`).join(' '), place.file, place.line)
        }
        return
      }
      write('info', '', place.file, place.line, format(rows))
    },
    record(record) {
      const severity = (['error', 'warning', 'info'] as const)[record.level] ?? 'verbose'
      // The core compared verbose lines with the level when it made them; since then it may have been turned down.
      if (severity !== 'verbose' && !settings[severity]) return
      write(severity, record.message, record.file.slice(record.file.lastIndexOf('/') + 1), record.line)
    },
  }
}

/**
 * Opens stdout for information and stderr for warnings and errors; or one file for everything, which is reopened after
 * a log rotation renamed or removed it. `now` is in milliseconds.
 *
 * @throws {ServerError} `INTERNAL` when the file cannot be opened for appending.
 */
export function openSink(path: string, now: () => number = () => performance.now()): Sink {
  if (path === '') {
    const [out, err] = [openStream(1), openStream(2)]
    return (line, problem) => (problem ? err : out)(line, problem)
  }
  try {
    const file = new LogFile(path, now)
    return Object.assign((line: string) => file.write(line), { reopen: () => (file.look(true), path) })
  } catch (error) {
    throw new ServerError('INTERNAL', `failed to open log file '${path}': ${(error as Error).message}`)
  }
}

/** How long a line waits for the reader of a full pipe. */
const WAIT_MS_MAX = 100
/** How long lines do not wait after one waited in vain: a stalled reader must not delay this thread each time. */
const IMPATIENCE_MS = 1000

/** Creates a sink that writes to an open descriptor. */
export function openStream(descriptor: number): Sink {
  const stream = new Stream(descriptor)
  return (line) => stream.write(line)
}

/** How often the log file is checked for rotation, here and in the access log. */
const LOOK_INTERVAL_MS = 1000

/** A log file, reopened by its name. */
class LogFile {
  readonly #path: string
  readonly #now: () => number
  #open: OpenFile
  #lookedMs: number

  constructor(path: string, now: () => number) {
    this.#path = path
    this.#now = now
    this.#open = openFile(path)
    this.#lookedMs = now()
  }

  write(line: string): void {
    this.look(false)
    this.#open.stream.write(line)
  }

  /** Reopens the file if its name refers to another; checks at intervals or at once. Keeps the old one on failure. */
  look(atOnce: boolean): void {
    const now = this.#now()
    const { identity, descriptor } = this.#open
    if (identity === null || (!atOnce && now - this.#lookedMs < LOOK_INTERVAL_MS)) return
    this.#lookedMs = now
    try {
      const named = statSync(this.#path, { bigint: true, throwIfNoEntry: false })
      // Opening a FIFO would wait for its reader.
      if (identityOf(named) === identity || named?.isFile() === false) return
      this.#open = openFile(this.#path)
      closeSync(descriptor)
    } catch {
      // The next check tries again.
    }
  }
}

interface OpenFile {
  descriptor: number
  stream: Stream
  /** Device and inode; null for FIFOs and devices, which are not rotated. */
  identity: string | null
}

function openFile(path: string): OpenFile {
  const descriptor = openSync(path, 'a')
  return { descriptor, stream: new Stream(descriptor), identity: identityOf(fstatSync(descriptor, { bigint: true })) }
}

function identityOf(stat: BigIntStats | undefined): string | null {
  return stat?.isFile() === true ? `${stat.dev}:${stat.ino}` : null
}

/** Writes lines to a descriptor. */
class Stream {
  readonly #descriptor: number
  /** True after a partial write: the next line must not continue it. */
  #torn = false
  #impatientUntil = 0

  constructor(descriptor: number) {
    this.#descriptor = descriptor
  }

  /** Writes every byte or throws: a pipe may accept only a part, and a non-blocking one temporarily nothing. */
  write(line: string): void {
    const bytes = Buffer.from(this.#torn ? `\n${line}` : line, 'utf8')
    let waits = performance.now() < this.#impatientUntil ? 0 : WAIT_MS_MAX
    for (let offset = 0; offset < bytes.length;) {
      try {
        offset += writeSync(this.#descriptor, bytes, offset)
        this.#torn = offset < bytes.length
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error
        if (waits === 0) {
          this.#impatientUntil = performance.now() + IMPATIENCE_MS
          throw error
        }
        waits -= 1
        Atomics.wait(PAUSE, 0, 0, 1)
      }
    }
  }
}

/** System error name, or `other`: a label of a metric must have few values. */
function reasonOf(error: unknown): string {
  const code = (error as NodeJS.ErrnoException | null)?.code
  return typeof code === 'string' && /^E[A-Z]{2,15}$/.test(code) ? code : 'other'
}

const PAUSE = new Int32Array(new SharedArrayBuffer(4))

function nowUs(): number {
  // Date.now has only ms; the offset of the two clocks is fixed at the start of the process.
  return (performance.timeOrigin + performance.now()) * 1000
}

/** This file, unpacked or packed into dist/lib/log.js. */
const OWN_FRAME = /[/\\]log([/\\]logger)?\.[jt]s:/

/** Location of the logger's caller. Takes some µs per written line, nothing for disabled levels. */
function callSite(): { file: string; line: number } {
  const frames = (new Error('').stack ?? '').split('\n')
  const match = /([^/\\(\s]+?):(\d+):\d+\)?$/.exec(frames.find((f, i) => i > 1 && !OWN_FRAME.test(f)) ?? '')
  return { file: match?.[1] ?? 'unknown', line: Number(match?.[2] ?? 0) }
}

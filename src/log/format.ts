/**
 * Formats one log event as one line. Pure: time, process id and place are arguments.
 *
 * Text from clients (a model name, a request id, a parse error) passes through `escapeMessage`, so that clients cannot
 * forge lines or send escape sequences to a terminal (CVE-2024-0095).
 */

import { textWidth } from './width.js'

export type LogFormat = 'default' | 'ISO8601' | 'json'

export type LogSeverity = 'error' | 'warning' | 'info' | 'verbose'

export interface LogEvent {
  severity: LogSeverity
  /** Wall clock in µs since the epoch. */
  timeUs: number
  pid: number
  /** Base name, no directory. */
  file: string
  /** 0: not known. */
  line: number
  message: string
}

/** Longer messages are cut: a client must not fill a disk with one request. */
export const MESSAGE_BYTES_MAX = 16 * 1024

const LETTERS: Record<LogSeverity, string> = { error: 'E', warning: 'W', info: 'I', verbose: 'I' }

/** The line, without its line feed. `escape` false is `TRITON_SERVER_ESCAPE_LOG_MESSAGES=0`; json always escapes. */
export function formatLine(event: LogEvent, format: LogFormat, escape = true): string {
  const file = event.file.replace(/[^\w.]/g, '_')
  const message = cut(event.message)
  if (format === 'json') {
    const head = `{"time":"${isoMicros(event.timeUs)}","level":"${event.severity}","msg":${escapeMessage(message)}`
    return `${head},"file":"${file}"${event.line === 0 ? '' : `,"line":${event.line}`},"pid":${event.pid}}`
  }
  const letter = LETTERS[event.severity]
  const text = escape ? escapeMessage(message) : message
  const place = `${event.pid} ${file}${event.line === 0 ? '' : `:${event.line}`}] ${text}`
  const iso = isoMicros(event.timeUs)
  if (format === 'ISO8601') return `${iso.slice(0, 19)}Z ${letter} ${place}`
  return `${letter}${iso.slice(5, 7)}${iso.slice(8, 10)} ${iso.slice(11, 26)} ${place}`
}

/** For example `2026-01-31T12:00:00.123456Z`. */
function isoMicros(timeUs: number): string {
  const millis = Math.floor(timeUs / 1000)
  const micros = String(Math.floor(timeUs - millis * 1000)).padStart(3, '0')
  return `${new Date(millis).toISOString().slice(0, 23)}${micros}Z`
}

const SHORT: Record<string, string> = {
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\b': '\\b',
  '\f': '\\f',
  '"': '\\"',
  '\\': '\\\\',
}

// C0, DEL, C1, the two Unicode line separators, characters that reorder text, and lone surrogates: each ends a line
// somewhere, controls a terminal, shows what is not there, or is invalid in UTF-8.
// oxlint-disable-next-line no-control-regex
const UNSAFE = /["\\\u0000-\u001f\u007f-\u009f\u2028\u2029\p{Bidi_Control}]|\p{Surrogate}/gu

/** A JSON string literal, quotes included, without control characters of any kind. */
export function escapeMessage(message: string): string {
  const body = message.replace(UNSAFE, (c) => {
    const hex = c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')
    return SHORT[c] ?? `\\u${hex}`
  })
  return `"${body}"`
}

/** Makes a text safe for a terminal or table, on one line. Keeps quotes and backslashes, which are harmless there. */
export function cleanCell(text: string): string {
  return text.replace(UNSAFE, (c) => (c === '"' || c === '\\' ? c : escapeMessage(c).slice(1, -1)))
}

/** The message, shortened to `MESSAGE_BYTES_MAX`. */
export function cut(message: string): string {
  // Cheap test for the common case: a UTF-16 unit takes at most 3 bytes in UTF-8.
  if (message.length <= MESSAGE_BYTES_MAX / 4) return message
  const bytes = Buffer.from(message, 'utf8')
  if (bytes.length <= MESSAGE_BYTES_MAX) return message
  // A character cut in half would decode to U+FFFD.
  return `${bytes
    .subarray(0, MESSAGE_BYTES_MAX)
    .toString('utf8')
    .replace(/\uFFFD$/, '')}...`
}

/**
 * Formats a table; the first row is the heading. Cells are cleaned but not quoted, and may have several lines. A line
 * that is longer than its column's entry of `most` does not widen the column.
 */
export function formatTable(rows: readonly (readonly string[])[], most: readonly number[] = []): string {
  const columns = Math.max(0, ...rows.map((row) => row.length))
  const cells = rows.map((row) => Array.from({ length: columns }, (_, i) => (row[i] ?? '').split('\n').map(cleanCell)))
  const widths = Array.from({ length: columns }, (_, i) =>
    Math.min(most[i] ?? Infinity, Math.max(0, ...cells.flatMap((row) => (row[i] ?? []).map(textWidth)))),
  )
  const border = `+${widths.map((w) => '-'.repeat(w + 2)).join('+')}+`
  const lines = [border]
  for (const [index, row] of cells.entries()) {
    const height = Math.max(...row.map((parts) => parts.length))
    for (let k = 0; k < height; k += 1) {
      lines.push(`|${row.map((parts, i) => ` ${padded(parts[k] ?? '', widths[i] ?? 0)} `).join('|')}|`)
    }
    if (index === 0) lines.push(border)
  }
  lines.push(border)
  return lines.join('\n')
}

const padded = (text: string, width: number): string => text + ' '.repeat(Math.max(0, width - textWidth(text)))

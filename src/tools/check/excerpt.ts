/** A line of a file with carets under a part of it, for terminals. Pure. */

import type { Span } from '../../internal.js'

/** Characters shown of a line. */
const WIDTH_MAX = 120
/** Tab width of the parsers of configurations. */
const TAB_WIDTH = 8

export interface Place {
  /** Counted from 1. */
  line: number
  /** Counted from 1, in characters, with tabs to every eighth. */
  column: number
  endColumn: number
  /** The printable line, without tabs. */
  text: string
}

/** Place of a span in a file; a span of several lines ends with its first. */
export function placeOf(bytes: Uint8Array, span: Span): Place {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const start = Math.min(span.start, file.length)
  const lineStart = start === 0 ? 0 : file.lastIndexOf(0x0a, start - 1) + 1
  const next = file.indexOf(0x0a, start)
  const lineEnd = next < 0 ? file.length : next
  let line = 1
  for (let at = file.indexOf(0x0a); at >= 0 && at < lineStart; at = file.indexOf(0x0a, at + 1)) line += 1
  const before = expand(file.toString('utf8', lineStart, start), 0)
  const part = expand(file.toString('utf8', start, Math.min(Math.max(span.end, start), lineEnd)), before.length)
  const after = expand(
    file.toString('utf8', Math.min(Math.max(span.end, start), lineEnd), lineEnd),
    before.length + part.length,
  )
  const column = [...before].length + 1
  return {
    line,
    column,
    endColumn: column + Math.max(1, [...part.trimEnd()].length),
    text: (before + part + after).trimEnd(),
  }
}

/** Place of a line and columns, counted from 1 in characters; without columns, of the text of the line. */
export function placeInLine(bytes: Uint8Array, line: number, column: number | null, endColumn: number | null): Place {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let start = 0
  for (let i = 1; i < line; i += 1) {
    const next = file.indexOf(0x0a, start)
    if (next < 0) break
    start = next + 1
  }
  const next = file.indexOf(0x0a, start)
  const text = file.toString('utf8', start, next < 0 ? file.length : next)
  const characters = [...text]
  const from = column === null ? text.length - text.trimStart().length : Math.min(column - 1, characters.length)
  const to = column === null ? text.trimEnd().length : (endColumn ?? from + 2) - 1
  const offset = (at: number): number => start + Buffer.byteLength(characters.slice(0, at).join(''))
  return placeOf(file, { start: offset(from), end: offset(Math.max(from, to)) })
}

/** The line and carets below the place, with line feeds; a long line is cut around it. */
export function excerpt({ line, column, endColumn, text }: Place): string {
  const characters = [...text]
  const from =
    characters.length <= WIDTH_MAX
      ? 0
      : Math.max(0, Math.min(column - 1 - WIDTH_MAX / 2, characters.length - WIDTH_MAX))
  const shown = characters.slice(from, from + WIDTH_MAX).join('')
  const number = String(line).padStart(5)
  const carets = Math.max(1, Math.min(endColumn - column, WIDTH_MAX - (column - 1 - from)))
  return `${number} | ${shown}\n${' '.repeat(number.length)} | ${' '.repeat(column - 1 - from)}${'^'.repeat(carets)}\n`
}

// oxlint-disable-next-line no-control-regex
const MOVING = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\p{Bidi_Control}]|\p{Surrogate}/u

/** Replaces tabs by blanks, and characters that would move a terminal's cursor by dots. */
function expand(text: string, from: number): string {
  let out = ''
  for (const character of text) {
    if (character === '\ufeff') continue
    if (character === '\t') out += ' '.repeat(TAB_WIDTH - ((from + out.length) % TAB_WIDTH))
    else out += MOVING.test(character) ? '·' : character
  }
  return out
}

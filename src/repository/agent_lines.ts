/** Lines of the process of a repository agent: its answers, and what it prints. */

import type { Readable } from 'node:stream'
import { asServerError, type ServerError } from '../native/index.js'

/** Maximum characters of a line that the library prints, and of all that it prints in a second. The rest is dropped. */
const LINE_CHARS_MAX = 16 * 1024
const SECOND_CHARS_MAX = 64 * 1024

/** An answer of the process to one question. */
export interface AgentAnswer {
  id: number
  members: Record<string, unknown>
  error: ServerError | null
}

/** Calls `take` with each line. Of a line beyond the limit only the beginning is kept, and `isCut` is true. */
export function eachLine(stream: Readable, charsMax: number, take: (line: string, isCut: boolean) => void): void {
  let rest = ''
  stream.setEncoding('utf8')
  const cut = (line: string): void => take(line.slice(0, charsMax), line.length > charsMax)
  stream.on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    // One more than the limit, so that the end of the line knows that it was cut.
    rest = (lines.pop() ?? '').slice(0, charsMax + 1)
    for (const line of lines) cut(line)
  })
  stream.on('end', () => {
    if (rest !== '') cut(rest)
  })
}

/** Logs what a process prints, at a limited rate: a server's log is not for what fills disks. */
export function logLines(
  streams: readonly Readable[],
  log: (line: string) => void,
  now = (): number => performance.now(),
): void {
  let beganMs = now()
  let left = SECOND_CHARS_MAX
  let dropped = 0
  for (const stream of streams) {
    eachLine(stream, LINE_CHARS_MAX, (line) => {
      if (now() - beganMs >= 1000) {
        if (dropped > 0) log(`${dropped} lines were dropped: more than ${SECOND_CHARS_MAX} characters in a second`)
        beganMs = now()
        left = SECOND_CHARS_MAX
        dropped = 0
      }
      // A line costs more than its characters.
      left -= line.length + 64
      if (left >= 0) log(line)
      else dropped += 1
    })
    stream.on('error', () => {})
  }
}

/** Reads an answer; null for what is none: the library may write to the socket too. */
export function readAnswer(line: string): AgentAnswer | null {
  let members: unknown
  try {
    members = JSON.parse(line)
  } catch {
    return null
  }
  if (!isObject(members) || typeof members['id'] !== 'number') return null
  const { id, error } = members
  if (error === undefined || error === null) return { id, members, error: null }
  if (!isObject(error) || typeof error['code'] !== 'string' || typeof error['message'] !== 'string') return null
  return { id, members, error: asServerError(Object.assign(new Error(error['message']), { code: error['code'] })) }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

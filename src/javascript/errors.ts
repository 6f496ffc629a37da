/** Errors of models, and exceptions as texts for clients. */

import { fileURLToPath } from 'node:url'
import { readFileSync } from 'node:fs'
import { Code } from './generated/protocol.js'

/** Codes of errors, as clients see them. */
export type ErrorCode =
  | 'UNKNOWN'
  | 'INTERNAL'
  | 'NOT_FOUND'
  | 'INVALID_ARG'
  | 'UNAVAILABLE'
  | 'UNSUPPORTED'
  | 'ALREADY_EXISTS'
  | 'CANCELLED'
  | 'RESOURCE_EXHAUSTED'

/**
 * An error with a code. Thrown by `execute`, it answers the whole batch with its code and its bare message; a call of
 * another model that fails rejects with one.
 */
export class TritonError extends Error {
  readonly code: ErrorCode

  /** @throws {TypeError} for a code that does not exist. */
  constructor(code: ErrorCode, message: string) {
    if (!(code in Code))
      throw new TypeError(`TritonError: there is no code '${code}': codes are ${Object.keys(Code).join(', ')}`)
    super(message)
    this.name = 'TritonError'
    this.code = code
  }
}

/** Errors of calls and controls: the model did not choose them, so that they are logged. */
const FOREIGN = new WeakSet<TritonError>()

/** Marks an error of a call or a control. */
export function foreign(error: TritonError): TritonError {
  FOREIGN.add(error)
  return error
}

/** Whether another model, or the server, made the error. */
export const isForeign = (error: TritonError): boolean => FOREIGN.has(error)

/** Errors of requests whose code raised an exception or was cancelled. They count as failures, others as responses. */
const FAILURES = new WeakSet<TritonError>()

/** Marks the error of an exception or a cancel. */
export function failure(error: TritonError): TritonError {
  FAILURES.add(error)
  return error
}

/** Whether the request failed, and the error is not a response that the model chose. */
export const isFailure = (error: TritonError): boolean => FAILURES.has(error)

/** Whether an operation was cancelled: what `fetch`, timers and calls of models throw. */
export const isCancel = (error: unknown): boolean =>
  error instanceof TritonError ? error.code === 'CANCELLED' : (error as Error | null | undefined)?.name === 'AbortError'

/** Name of the code with this number. */
export const codeNamed = (number: number): ErrorCode => CODES[number] ?? 'UNKNOWN'
const CODES: readonly ErrorCode[] = Object.keys(Code) as (keyof typeof Code)[]

/** A model broke a rule of the API: the message is the whole text. */
export class RuleError extends Error {}

/** Characters of an error or a log line. The server shows fewer; a longer text would fit into no frame. */
const TEXT_CHARS_MAX = 1 << 16

/** Makes a text sendable: limited in length, and cut at a NUL, which ends texts in Triton. */
export function cut(text: string): string {
  const end = text.indexOf('\0')
  return text.slice(0, end < 0 ? TEXT_CHARS_MAX : Math.min(end, TEXT_CHARS_MAX))
}

/** Directories of this runtime, built and as its source maps name it, whose frames are left out of texts. */
const OURS = ['.', '../../src/javascript/']
  .map((path) => new URL(path, import.meta.url))
  .flatMap((url) => [url.href, fileURLToPath(url)])

const isOurs = (line: string) => [...OURS, '(node:', ' node:'].some((part) => line.includes(part))

/** The frames of a stack, from the innermost function outwards, without those of the runtime and of Node. */
export function framesOf(stack: string): string[] {
  return stack
    .split('\n')
    .filter((line) => /^\s+at /.test(line) && !isOurs(line))
    .map((line) => line.replaceAll(/file:\/\/[^\s)]*?(?=:\d+)/g, (url) => pathOf(url)))
}

function pathOf(url: string): string {
  try {
    return fileURLToPath(url)
  } catch {
    return url
  }
}

/** `<name>: <message>` and the frames of the model's code; a broken rule and a `TritonError` by their message. */
export function describe(error: unknown): string {
  if (error instanceof RuleError || error instanceof TritonError) return cut(error.message) || error.name
  if (!(error instanceof Error)) return cut(`Error: the thrown value is not an Error: ${String(error)}`)
  const { stack = '', cause } = error
  const place = syntaxPlace(error)
  const first = `${error.name}: ${error.message || '<EMPTY MESSAGE>'}`
  const frames = [...(place === null ? [] : [`    at ${place.file}:${place.line}${place.column}`]), ...framesOf(stack)]
  const lines = [first, ...frames]
  if (cause !== undefined) lines.push(`Caused by: ${describe(cause)}`)
  return cut(lines.join('\n'))
}

/** Place of a syntax error, which Node writes above the stack; a column follows a colon. */
function syntaxPlace(error: Error): { file: string; line: number; column: string } | null {
  const [, file, line, lines = ''] = /^(file:\/\/\S+|\/[^\n]*):(\d+)\n([^]*?)\n\w*Error\b/.exec(error.stack ?? '') ?? []
  if (file === undefined) return null
  const [, before] = /^([ \t]*)\^+[ \t]*$/m.exec(lines) ?? []
  const column = before === undefined ? '' : `:${before.length + 1}`
  return { file: file.startsWith('file:') ? pathOf(file) : file, line: Number(line), column }
}

/** The line of the model's own code that an exception is about, or null. */
export function sourceOf(error: unknown, directory: string): { file: string; line: number; text: string } | null {
  if (!(error instanceof Error)) return null
  const places = framesOf(error.stack ?? '').map((frame) => /(\/[^\s():]+):(\d+)(?::\d+)?\)?$/.exec(frame))
  const found = places.find((place) => place?.[1]?.startsWith(directory))
  const at = syntaxPlace(error) ?? (found ? { file: found[1] as string, line: Number(found[2]) } : null)
  if (at === null) return null
  let text = ''
  try {
    text = readFileSync(at.file, 'utf8').split('\n')[at.line - 1] ?? ''
  } catch {
    // The place is enough: the file may be generated.
  }
  return { file: at.file, line: at.line, text: cut(text.trimEnd()) }
}

/** The name of a package that was not found, or null. */
export function missingOf(error: unknown): string | null {
  if (!(error instanceof Error) || !['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND'].includes(codeOf(error))) return null
  const name = /Cannot find (?:package|module) '([^'./][^']*)'/.exec(error.message)?.[1]
  return (
    name
      ?.split('/')
      .slice(0, name.startsWith('@') ? 2 : 1)
      .join('/') ?? null
  )
}

const codeOf = (error: Error) => String((error as { code?: unknown }).code)

/** File and line of the model's code that called the runtime. */
export function callerOf(error: Error): { file: string; line: number } {
  const [, file = '', line = '0'] = /([^\s(]+):(\d+):\d+\)?$/.exec(framesOf(error.stack ?? '')[0] ?? '') ?? []
  return { file, line: Number(line) }
}

/** Kind of a value in an error. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  return typeof value === 'object' ? `a value of class ${value.constructor?.name ?? 'Object'}` : `a ${typeof value}`
}

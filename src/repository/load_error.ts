/** The error of a load, whose parts stay apart, so that its readers need not cut Triton's words off. */

import { ERROR_CHARS_MAX, ServerError, asServerError, cut } from '../native/index.js'

export class LoadError extends ServerError {
  /** The message without `load failed for model '…': `. */
  readonly detail: string
  /** Why it failed, also without the version and the name of the code before the reason of the first version. */
  readonly plain: string

  constructor(model: string, detail: string, plain = detail, options?: ErrorOptions) {
    super('INVALID_ARG', `load failed for model '${model}': ${detail}\n`, options)
    this.detail = cut(detail, ERROR_CHARS_MAX)
    this.plain = cut(plain, ERROR_CHARS_MAX)
  }
}

/** An ensemble and its composing models do not match. */
export class MismatchError extends LoadError {}

/** A model could not be read. Clients get Triton's generic text; the reason is logged. */
export class PollError extends ServerError {
  constructor(name: string, cause?: unknown) {
    super('INTERNAL', `failed to load '${name}', failed to poll from model repository`, { cause })
  }
}

/** The error behind a generic API text. */
export function rootOf(error: unknown): Error {
  const known = asServerError(error)
  return known.cause instanceof Error && !(known.cause instanceof AggregateError) ? known.cause : known
}

/** The reason, as errors of other models repeat it. */
export const detailOf = (error: Error): string => (error instanceof LoadError ? error.detail : error.message).trimEnd()

/** The reason of one version, without Triton's words around it. */
export const plainReason = (error: Error): string => (error instanceof LoadError ? error.plain : error.message).trimEnd()

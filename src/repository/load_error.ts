/** The error of a load, whose parts stay apart, so that its readers need not cut Triton's words off. */

import { ERROR_CHARS_MAX, ServerError, asServerError, cut, type ServerErrorOptions } from '../native/index.js'

/** The fault of a load that failed because of `cause`: the model's, unless the environment prevented it. */
function because(cause: unknown): ServerErrorOptions {
  const first: unknown = cause instanceof AggregateError ? cause.errors[0] : cause
  const known = first === undefined ? undefined : asServerError(first)
  const isElsewhere = known?.fault === 'environment'
  return { cause, fault: isElsewhere ? 'environment' : 'model', retryable: isElsewhere && known.retryable }
}

export class LoadError extends ServerError {
  /** The message without `load failed for model '…': `. */
  readonly detail: string
  /** The reason of the first version alone, and what follows it. */
  readonly plain: string

  constructor(model: string, detail: string, plain = detail, options?: ErrorOptions) {
    super('INVALID_ARG', `load failed for model '${model}': ${detail}\n`, because(options?.cause))
    this.detail = cut(detail, ERROR_CHARS_MAX)
    this.plain = cut(plain, ERROR_CHARS_MAX)
  }
}

/** An ensemble and its composing models do not match. */
export class MismatchError extends LoadError {}

/** A model could not be read. Clients get Triton's generic text; the reason is logged. */
export class PollError extends ServerError {
  constructor(name: string, cause?: unknown) {
    super('INTERNAL', `failed to load '${name}', failed to poll from model repository`, because(cause))
  }
}

/** The error behind a generic API text. */
export function rootOf(error: unknown): Error {
  const known = asServerError(error)
  return known.cause instanceof Error && !(known.cause instanceof AggregateError) ? known.cause : known
}

/** The message, without the name of the model if the load failed. */
export const detailOf = (error: Error): string => (error instanceof LoadError ? error.detail : error.message).trimEnd()

/** Maximum length of a failure that dependent ensembles repeat; each adds its own words. */
const FAILURE_CHARS_MAX = 2048

/** Why a model failed to load, for the errors of its ensembles. */
export function repeated(error: unknown): string {
  const why = detailOf(asServerError(error))
  // The end names the model that failed first.
  return why.length <= FAILURE_CHARS_MAX ? why : `…${why.slice(1 - FAILURE_CHARS_MAX)}`
}

/** The reason of one version, without Triton's words around it. */
export const plainReason = (e: Error): string => (e instanceof LoadError ? e.plain : e.message).trimEnd()

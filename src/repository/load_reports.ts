/**
 * What is logged and reported of loads, and the errors that clients get. Decides nothing.
 *
 * Invariant: every failure is logged once, where it happens.
 */

import type { Log } from '../config/index.js'
import { asServerError, statusText, type ServerError } from '../native/index.js'
import { nextLoad } from './failures.js'
import { LoadError, MismatchError, PollError } from './load_error.js'
import type { ControlMode, LoadEvent } from './settings.js'
import { OutdatedError } from './store.js'

export class LoadReports {
  readonly #mode: ControlMode
  /** For the reasons why models do not load. */
  readonly #log: Log
  readonly #observe: (event: LoadEvent) => void

  constructor(mode: ControlMode, log: Log, observe: (event: LoadEvent) => void) {
    this.#mode = mode
    this.#log = log
    this.#observe = observe
  }

  loading(model: string, version: number): void {
    this.#observe({ model, version, phase: 'loading', detail: '' })
  }

  ready(model: string, version: number): void {
    this.#observe({ model, version, phase: 'ready', detail: '' })
  }

  /** A model did not load, before its versions were known. */
  #failed(model: string, text: string, detail: string): void {
    if (text !== '') this.#log('error', text)
    this.#observe({ model, version: null, phase: 'failed', detail })
  }

  /** The error of a model that cannot be read. `isKnown`: this failure was logged before. */
  unread(name: string, error: unknown, isKnown: boolean): ServerError {
    const reason = asServerError(error).message
    if (error instanceof OutdatedError) {
      this.#failed(name, `failed to load '${name}': ${reason}`, reason)
      return new LoadError(name, reason, reason, { cause: error })
    }
    // Each poll of a directory that cannot be read has the same failure.
    const isSilent = isKnown && this.#mode === 'poll'
    const isAbsent = asServerError(error).code === 'NOT_FOUND'
    const failed = isAbsent ? `failed to poll model '${name}'` : `Poll failed for model directory '${name}'`
    this.#failed(name, isSilent ? '' : `${failed}: ${reason}`, reason)
    return new PollError(name, error)
  }

  /** The error of a model whose version policy selects nothing that can be loaded. */
  unselected(name: string, error: unknown): ServerError {
    const reason = asServerError(error).message
    this.#failed(name, reason, reason)
    return new LoadError(name, reason, reason, { cause: error })
  }

  /** The error of an ensemble that its composing models keep from serving. */
  mismatched(name: string, why: string): MismatchError {
    this.#failed(name, why, why)
    return new MismatchError(name, why)
  }

  /** The error of a load whose versions failed. */
  unloaded(name: string, failed: readonly (readonly [number, unknown])[]): ServerError {
    let [text, plain] = ['', '']
    for (const [version, error] of failed) {
      const [status, { message }] = [statusText(error), asServerError(error)]
      const next = this.#mode === 'poll' ? nextLoad(error) : ''
      this.#log('error', `failed to load '${name}' version ${version}: ${status}${next}`)
      this.#observe({ model: name, version, phase: 'failed', detail: message })
      const part = `version ${version} is at UNAVAILABLE state: ${status}`
      text += `${part};`
      plain += plain === '' ? message : `;${part}`
    }
    // Mode poll reports a failure in one line.
    if (this.#mode !== 'poll') this.#log('error', `failed to load '${name}'`)
    return new LoadError(name, text, plain, { cause: new AggregateError(failed.map(([, error]) => error)) })
  }
}

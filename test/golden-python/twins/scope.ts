/** Names that the snippets of `lab`, `raw` and `dec` use. */

import {
  type CallInputs,
  type CallOptions,
  type Context,
  type InferenceRequest,
  InferenceResponse,
  Tensor,
  TritonError,
} from 'nereid/backend'
import { out } from './show.ts'

/** State of an instance. */
export interface State {
  keep: Record<string, unknown>
  /** Calls of `execute`. */
  calls: number
}

export const state = (): State => ({ keep: {}, calls: 0 })

/** Names that a snippet uses. */
export class Scope {
  readonly keep: Record<string, unknown>
  readonly calls: number
  readonly requests: readonly InferenceRequest[]
  readonly request: InferenceRequest
  readonly ctx: Context

  constructor({ keep, calls }: State, requests: readonly InferenceRequest[], request: InferenceRequest, ctx: Context) {
    this.keep = keep
    this.calls = calls
    this.requests = requests
    this.request = request
    this.ctx = ctx
  }

  get sender() {
    return this.request.sender
  }

  /** Sends a value; `final` is the last. */
  send(value: unknown, final = false): Promise<void> {
    return this.sender.send(out(value), { final })
  }

  /** Calls a model. An error is a response, as in Python. */
  readonly exec = async (model: string, inputs: CallInputs<unknown>, options: CallOptions = {}) => {
    try {
      return await this.ctx.models.infer(model, inputs, { request: this.request, ...options })
    } catch (error) {
      if (error instanceof TritonError) return new InferenceResponse({ error })
      throw error
    }
  }

  /** Calls a model that runs snippets. */
  readonly run = (model: string, code: string, options?: CallOptions) =>
    this.exec(model, { CODE: Tensor.fromStrings('CODE', [code]) }, options)

  /** All responses of a decoupled model. An error is the last, as in Python. */
  async responses(model: string, inputs: CallInputs<unknown>, options: CallOptions = {}): Promise<InferenceResponse[]> {
    const all: InferenceResponse[] = []
    try {
      const stream = this.ctx.models.stream(model, inputs, { request: this.request, ...options })
      for await (const one of stream) all.push(one)
    } catch (error) {
      if (!(error instanceof TritonError)) throw error
      all.push(new InferenceResponse({ error }))
    }
    return all
  }
}

/** A snippet's twin: what it returns is what the Python snippet evaluates to. */
export type Snippet = (scope: Scope) => unknown

/** Runs snippets, and reports what they return or throw. */

import { defineModel, type InferenceResponse } from 'nereid/backend'
import { Scope, type State, state } from './scope.ts'
import { failure, out, show } from './show.ts'
import { snippetOf } from './snippets.ts'

export default defineModel({
  state,
  async execute(this: State, requests, ctx) {
    const responses: InferenceResponse[] = []
    for (const request of requests) {
      this.calls += 1
      try {
        const value = await snippetOf(request)(new Scope(this, requests, request, ctx))
        responses.push(out({ ok: show(value) }))
      } catch (error) {
        responses.push(out(failure(error)))
      }
    }
    return responses
  },
})

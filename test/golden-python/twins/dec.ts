/** Runs snippets that send their own responses. */

import { type Outputs, type Responses, defineModel } from 'nereid/backend'
import { Scope, type State, state } from './scope.ts'
import { snippetOf } from './snippets.ts'

export default defineModel({
  state,
  async execute(this: State, requests, ctx) {
    let returned: unknown = null
    for (const request of requests) {
      const scope = new Scope(this, requests, request, ctx)
      // Taken before the end of `execute`: a snippet may send later.
      void scope.sender
      returned = await snippetOf(request)(scope)
    }
    return returned as Responses<Outputs>
  },
})

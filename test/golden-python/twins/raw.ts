/** Runs one snippet, whose value is what `execute` returns; nothing is caught. */

import { type Outputs, type Responses, defineModel } from 'nereid/backend'
import { Scope, type State, state } from './scope.ts'
import { snippetOf } from './snippets.ts'

export default defineModel({
  state,
  execute(this: State, requests, ctx) {
    this.calls += 1
    const [request] = requests
    if (request === undefined) throw new Error('an empty batch')
    return snippetOf(request)(new Scope(this, requests, request, ctx)) as Responses<Outputs>
  },
})

/**
 * The twins of the Python snippets that cases send: by the id of a case that sends one, or by its text where another
 * snippet or an action sends it. The cases of a text without a twin are excluded by `../twins.json`.
 */

import { readFileSync } from 'node:fs'
import type { InferenceRequest } from 'nereid/backend'
import { answers } from './answers.ts'
import { calls } from './calls.ts'
import { control } from './control.ts'
import { decoupled } from './decoupled.ts'
import { metrics } from './metrics.ts'
import type { Snippet } from './scope.ts'
import { senders } from './senders.ts'

const snippets: Readonly<Record<string, Snippet>> = {
  // An empty text is the empty tuple.
  '': () => [],
  ...answers,
  ...calls,
  ...control,
  ...decoupled,
  ...metrics,
  ...senders,
}

/** Ids of the cases that send a text, by the text. */
const IDS = JSON.parse(readFileSync(new URL('snippets.json', import.meta.url), 'utf8')) as Record<string, string[]>

/** The twin of a Python text. @throws {Error} if there is none: its cases are excluded. */
export function snippetOf(request: InferenceRequest): Snippet {
  const [text = ''] = request.input('CODE')?.strings() ?? []
  // A JSON text, which an ensemble passes on, is its own value.
  if (text.startsWith('{')) return () => JSON.parse(text)
  if (text.startsWith('len("')) return () => text.length - 'len("")'.length
  const key = [text, ...(IDS[text] ?? [])].find((one) => snippets[one] !== undefined)
  const found = key === undefined ? undefined : snippets[key]
  if (found === undefined) throw new Error(`no twin of a snippet: ${text.slice(0, 80)}`)
  return found
}

/**
 * Where in a configuration a rule was broken. Rules know fields and values and no places: the place is that of the first word of their text
 * which stands in the file, values in quotes before names. A guess for the caret under it; the text says what is wrong.
 */

import { Lexer, type Token } from '../../config/pbtxt_lexer.js'
import type { Span } from '../../config/index.js'
import type { Near } from '../../repository/index.js'

/** Tokens that are looked through. */
const TOKENS_MAX = 100_000
/** Places of one value whose fields are looked for. */
const VALUES_MAX = 100

/**
 * @param model its name, which most texts repeat and which is no mistake
 * @param near where it is, if that is known better than from the text
 */
export function locate(bytes: Uint8Array, message: string, model: string, near?: Near): Span | null {
  const tokens = tokensOf(bytes)
  const known = near === undefined ? undefined : placeNear(tokens, near)
  if (known !== undefined) return known
  // Behind it stands what is to be done, with names that should be there.
  const text = message.split(/; (?:did you mean|with backend|[A-Z]|there is)/)[0] ?? ''
  const said = new Set(text.split(/[^A-Za-z0-9_]+/))
  for (const [, single, double] of text.matchAll(/'([^']+)'|"([^"]+)"/g)) {
    const word = single ?? double ?? ''
    // The value of a field that the text speaks of, before one of any other: a backend may be called as its model is.
    const values = indicesOf(tokens, word)
    const named = values.find((at) => said.has(fieldOf(tokens, at)))
    if (word === model && named === undefined) continue
    const found = tokens[named ?? values[0] ?? -1] ?? tokens.find((token) => token.kind === 'identifier' && token.text === word)
    if (found !== undefined) return spanOf(found)
  }
  // `instance group` is the field instance_group, `dynamic batching preferred size` begins with one.
  const words = text.split(/[^A-Za-z0-9_]+/)
  for (const [i, word] of words.entries()) {
    const names = [word, `${word}_${words[i + 1] ?? ''}`]
    const found = tokens.find(
      (token) => (token.kind === 'identifier' && names.includes(token.text) && word.length > 3) || (token.kind === 'string' && token.content === word && word !== model),
    )
    if (found !== undefined) return spanOf(found)
  }
  return null
}

/** The value of a field, or the field where any value is meant. */
function placeNear(tokens: readonly Token[], { field, value, nth = 1, beside = [], or }: Near): Span | undefined {
  const found = tokens.flatMap((token, at) => {
    if (value === undefined) return token.kind === 'identifier' && token.text === field ? [spanOf(token)] : []
    // A minus is a token of its own.
    const minus = token.kind !== 'string' && tokens[at - 1]?.text === '-' ? tokens[at - 1] : undefined
    const text = token.kind === 'string' ? token.content : `${minus === undefined ? '' : '-'}${token.text}`
    const isIt = token.kind !== 'symbol' && text === value && fieldOf(tokens, at) === field && standsBeside(tokens, at, beside)
    return isIt ? [{ ...spanOf(token), start: (minus ?? token).offset }] : []
  })
  return found[nth - 1] ?? (or === undefined ? undefined : placeNear(tokens, or))
}

/** Whether each of the fields stands in the message of a token, or in one around it. */
function standsBeside(tokens: readonly Token[], at: number, fields: NonNullable<Near['beside']>): boolean {
  if (fields.length === 0) return true
  const missing = new Set(fields)
  // To the end of its message and of those around it, and then to their beginnings: what is in messages between is skipped.
  for (const step of [1, -1]) {
    let depth = 0
    for (let i = at; missing.size > 0 && i >= 0 && i < tokens.length; i += step) {
      const { kind, text, content } = tokens[i] as Token
      if (kind === 'symbol' && /[{}<>]/.test(text)) depth = Math.max(0, depth + (/[{<]/.test(text) ? step : -step))
      else if (depth === 0) for (const one of missing) if (kind === 'string' && content === one.value && fieldOf(tokens, i) === one.field) missing.delete(one)
    }
  }
  return missing.size === 0
}

/** Where a value stands in quotes. */
function indicesOf(tokens: readonly Token[], value: string): number[] {
  const found: number[] = []
  for (const [at, token] of tokens.entries()) {
    if (token.kind === 'string' && token.content === value && found.push(at) >= VALUES_MAX) break
  }
  return found
}

/** The field that a value in quotes is given to; in a list, that of the list. */
function fieldOf(tokens: readonly Token[], value: number): string {
  for (let at = value - 1; at >= 0; at -= 1) {
    const token = tokens[at]
    if (token?.kind === 'identifier') return token.text
    if (token?.kind === 'symbol' && !/[:[,-]/.test(token.text)) break
  }
  return ''
}

function tokensOf(bytes: Uint8Array): Token[] {
  const lexer = new Lexer(bytes)
  const tokens: Token[] = []
  try {
    for (let token = lexer.next(); token.kind !== 'end' && tokens.length < TOKENS_MAX; token = lexer.next()) tokens.push(token)
  } catch {
    // What came before may be enough.
  }
  return tokens
}

function spanOf(token: Token): Span {
  return { start: token.offset, end: token.offset + token.text.length }
}

/**
 * Finds where a configuration breaks a rule. Rules report fields and values without places, so the place is that of the
 * first word of the message that occurs in the file, quoted values before names. This guess only places the caret; the
 * message has the facts.
 */

import { Lexer, type Near, type Span, type Token } from '../../internal.js'

/** Tokens that are searched. */
const TOKENS_MAX = 100_000
/** Occurrences of a value whose fields are compared. */
const VALUES_MAX = 100

/**
 * @param model the model's name: most messages repeat it without blaming it
 * @param near the place, if known better than from the message
 */
export function locate(bytes: Uint8Array, message: string, model: string, near?: Near): Span | null {
  const tokens = tokensOf(bytes)
  const known = near === undefined ? undefined : placeNear(tokens, near)
  if (known !== undefined) return known
  // The rest is advice, with names that are not in the file.
  const text = message.split(/; (?:did you mean|with backend|[A-Z]|there is)/)[0] ?? ''
  const mentioned = new Set(text.split(/[^A-Za-z0-9_]+/))
  for (const [, single, double] of text.matchAll(/'([^']+)'|"([^"]+)"/g)) {
    const word = single ?? double ?? ''
    // Prefer the value of a field that the text names: a backend may have the name of its model.
    const values = indicesOf(tokens, word)
    const named = values.find((at) => mentioned.has(fieldOf(tokens, at)))
    if (word === model && named === undefined) continue
    const found =
      tokens[named ?? values[0] ?? -1] ?? tokens.find((token) => token.kind === 'identifier' && token.text === word)
    if (found !== undefined) return spanOf(found)
  }
  // `instance group` is the field instance_group, `dynamic batching preferred size` begins with one.
  const words = text.split(/[^A-Za-z0-9_]+/)
  for (const [i, word] of words.entries()) {
    const names = [word, `${word}_${words[i + 1] ?? ''}`]
    const found = tokens.find(
      (token) =>
        (token.kind === 'identifier' && names.includes(token.text) && word.length > 3) ||
        (token.kind === 'string' && token.content === word && word !== model),
    )
    if (found !== undefined) return spanOf(found)
  }
  return null
}

/** The value of a field, or the field itself if no value is given. */
function placeNear(tokens: readonly Token[], { field, value, nth = 1, beside = [], or }: Near): Span | undefined {
  const found = tokens.flatMap((token, at) => {
    if (value === undefined) return token.kind === 'identifier' && token.text === field ? [spanOf(token)] : []
    // A minus is a separate token.
    const minus = token.kind !== 'string' && tokens[at - 1]?.text === '-' ? tokens[at - 1] : undefined
    const text = token.kind === 'string' ? token.content : `${minus === undefined ? '' : '-'}${token.text}`
    const isMatch =
      token.kind !== 'symbol' && text === value && fieldOf(tokens, at) === field && isBeside(tokens, at, beside)
    return isMatch ? [{ ...spanOf(token), start: (minus ?? token).offset }] : []
  })
  return found[nth - 1] ?? (or === undefined ? undefined : placeNear(tokens, or))
}

/** True if each of the fields is in the message of a token, or in one around it. */
function isBeside(tokens: readonly Token[], at: number, fields: NonNullable<Near['beside']>): boolean {
  if (fields.length === 0) return true
  const missing = new Set(fields)
  // Walks to the end of the message and of those around it, then to their beginnings, and skips nested messages.
  for (const step of [1, -1]) {
    let depth = 0
    for (let i = at; missing.size > 0 && i >= 0 && i < tokens.length; i += step) {
      const { kind, text, content } = tokens[i] as Token
      if (kind === 'symbol' && /[{}<>]/.test(text)) depth = Math.max(0, depth + (/[{<]/.test(text) ? step : -step))
      else if (depth === 0)
        for (const one of missing)
          if (kind === 'string' && content === one.value && fieldOf(tokens, i) === one.field) missing.delete(one)
    }
  }
  return missing.size === 0
}

/** Indices of the string tokens with this value. */
function indicesOf(tokens: readonly Token[], value: string): number[] {
  const found: number[] = []
  for (const [at, token] of tokens.entries()) {
    if (token.kind === 'string' && token.content === value && found.push(at) >= VALUES_MAX) break
  }
  return found
}

/** The field that a quoted value, or the list around it, belongs to. */
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
    for (let token = lexer.next(); token.kind !== 'end' && tokens.length < TOKENS_MAX; token = lexer.next())
      tokens.push(token)
  } catch {
    // The tokens before the error may suffice.
  }
  return tokens
}

function spanOf(token: Token): Span {
  return { start: token.offset, end: token.offset + token.text.length }
}

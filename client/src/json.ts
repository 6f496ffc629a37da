/**
 * JSON of the protocol: 64-bit integers, and `NaN`, `Infinity`, `-Infinity`, which JSON cannot express.
 *
 * An integer beyond 2^53 is read as a bigint, all others as numbers; both are written as digits.
 */

/** An integer of sixteen digits or more: it may exceed 2^53. */
const LONG_INTEGER = /(?<![\d.eE+])\d{16,}(?![\d.eE])/

/** @throws {SyntaxError} for what is no JSON. */
export function parseJson(text: string): unknown {
  if (!LONG_INTEGER.test(text)) {
    try {
      return JSON.parse(text)
    } catch {
      // Perhaps NaN; for anything else the slower parser throws.
    }
  }
  return new Parser(text).whole()
}

const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"/y
const SCALAR = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|true\b|false\b|null\b|-?NaN\b|-?Infinity\b|-?Inf\b/y
const SPACE = /\s*/y
/** Limit that servers have, too. */
const NESTING_MAX = 100

class Parser {
  #at = 0
  readonly #text: string

  constructor(text: string) {
    this.#text = text
  }

  whole(): unknown {
    const value = this.#value(0)
    this.#take(SPACE)
    if (this.#at < this.#text.length) throw this.#wrong()
    return value
  }

  #value(depth: number): unknown {
    if (depth > NESTING_MAX) throw new SyntaxError(`JSON is nested more than ${NESTING_MAX} levels deep`)
    this.#take(SPACE)
    const first = this.#text[this.#at]
    if (first === '{') return this.#object(depth)
    if (first === '[') return this.#list(depth)
    if (first === '"') return this.#string()
    return scalar(this.#take(SCALAR) ?? this.#fail())
  }

  #object(depth: number): Record<string, unknown> {
    const entries: [string, unknown][] = []
    this.#items('}', () => {
      this.#take(SPACE)
      const key = this.#string()
      this.#take(SPACE)
      if (this.#text[this.#at] !== ':') throw this.#wrong()
      this.#at += 1
      entries.push([key, this.#value(depth + 1)])
    })
    // Not by assignment: a key may be __proto__.
    return Object.fromEntries(entries)
  }

  #list(depth: number): unknown[] {
    const values: unknown[] = []
    this.#items(']', () => values.push(this.#value(depth + 1)))
    return values
  }

  /** Reads comma-separated items up to the closing bracket. */
  #items(end: string, one: () => void): void {
    this.#at += 1
    this.#take(SPACE)
    if (this.#text[this.#at] === end) {
      this.#at += 1
      return
    }
    for (;;) {
      one()
      this.#take(SPACE)
      const next = this.#text[this.#at]
      if (next !== ',' && next !== end) throw this.#wrong()
      this.#at += 1
      if (next === end) return
    }
  }

  #string(): string {
    return JSON.parse(this.#take(STRING) ?? this.#fail()) as string
  }

  #take(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at
    const found = pattern.exec(this.#text)?.[0] ?? null
    if (found !== null) this.#at += found.length
    return found
  }

  #fail(): never {
    throw this.#wrong()
  }

  #wrong(): SyntaxError {
    return new SyntaxError(`this is not JSON at character ${this.#at}: ${this.#text.slice(this.#at, this.#at + 20)}`)
  }
}

function scalar(token: string): unknown {
  if (token === 'true' || token === 'false') return token === 'true'
  if (token === 'null') return null
  if (/N/.test(token)) return NaN
  if (/I/.test(token)) return token.startsWith('-') ? -Infinity : Infinity
  const number = Number(token)
  return Number.isSafeInteger(number) || !/^-?\d+$/.test(token) ? number : BigInt(token)
}

/** Like `JSON.stringify`, with bigints, NaN and infinities. */
export function printJson(value: unknown): string {
  if (typeof value === 'bigint') return String(value)
  if (typeof value === 'number') return Object.is(value, -0) ? '-0.0' : String(value)
  if (Array.isArray(value)) return `[${value.map(printJson).join(',')}]`
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).filter(([, one]) => one !== undefined)
    return `{${members.map(([key, one]) => `${JSON.stringify(key)}:${printJson(one)}`).join(',')}}`
  }
  return JSON.stringify(value) ?? 'null'
}

/** A number if it is safe, else the bigint. */
export const integer = (value: bigint): number | bigint =>
  value <= BigInt(Number.MAX_SAFE_INTEGER) && value >= BigInt(Number.MIN_SAFE_INTEGER) ? Number(value) : value

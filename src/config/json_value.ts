/**
 * Reads JSON into values that keep numbers as written and repeated members.
 *
 * `JSON.parse` would round 64-bit integers, and a configuration holds `18446744073709551615` as a plain number.
 * Extensions of protobuf's own reader are accepted: trailing commas, single quotes, bare keys, raw control characters
 * in strings.
 */
import { quoted } from './error.js'
import { CONFIG_VALUES_MAX } from './files.js'

export type JsonValue = null | boolean | string | JsonNumber | JsonValue[] | JsonObject

/** A number as the text spells it. */
export class JsonNumber {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

/** Members in the order of the text, repeated ones included. */
export class JsonObject {
  readonly members: [string, JsonValue][] = []
}

/** Nesting limit, because the reader recurses. No valid configuration comes near. */
const JSON_DEPTH_MAX = 100

export class JsonSyntaxError extends Error {}

/** Reads one JSON value that fills the whole text. */
export function readJson(text: string): JsonValue {
  const reader = new Reader(text)
  const value = reader.value(0)
  reader.end()
  return value
}

const ESCAPES: Record<string, string> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' }

class Reader {
  private readonly text: string
  private position = 0
  private values = 0

  constructor(text: string) {
    this.text = text
  }

  value(depth: number): JsonValue {
    if (depth > JSON_DEPTH_MAX) this.fail(`nesting deeper than ${JSON_DEPTH_MAX}`)
    if (++this.values > CONFIG_VALUES_MAX) this.fail(`more than ${CONFIG_VALUES_MAX} values`)
    this.skipSpace()
    const c = this.text[this.position]
    if (c === '{') return this.object(depth)
    if (c === '[') return this.array(depth)
    if (c === '"' || c === "'") return this.string(c)
    const word = this.match(/true|false|null/y)
    if (word !== null) return word === 'null' ? null : word === 'true'
    const number = this.match(/-?[0-9][-+.0-9eEx]*|-[.][0-9eE+-]*/y)
    if (number !== null) return new JsonNumber(this.checkNumber(number))
    return this.fail(c === undefined ? 'unexpected end of text' : `expected a value, found '${c}'`)
  }

  end(): void {
    this.skipSpace()
    if (this.position < this.text.length) this.fail('expected the end of the text')
  }

  private checkNumber(number: string): string {
    if (/^-?0[0-9x]/.test(number) && !/[.eE]/.test(number))
      this.fail(`octal and hex numbers are not JSON: ${quoted(number)}`)
    if (!/^-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/.test(number))
      this.fail(`not a number: ${quoted(number)}`)
    return number
  }

  private object(depth: number): JsonObject {
    const object = new JsonObject()
    this.position++
    for (;;) {
      // Also after a comma.
      if (this.take('}')) return object
      const key = this.key()
      if (!this.take(':')) this.fail(`expected ':' after key "${quoted(key)}"`)
      object.members.push([key, this.value(depth + 1)])
      if (this.take('}')) return object
      if (!this.take(',')) this.fail("expected ',' or '}'")
    }
  }

  private key(): string {
    const c = this.text[this.position]
    if (c === '"' || c === "'") return this.string(c)
    const bare = this.match(/[A-Za-z_$][A-Za-z0-9_$]*/y)
    if (bare === null || bare === 'true' || bare === 'false' || bare === 'null')
      return this.fail("expected a key or '}'")
    return bare
  }

  private array(depth: number): JsonValue[] {
    const items: JsonValue[] = []
    this.position++
    for (;;) {
      // Also after a comma.
      if (this.take(']')) return items
      items.push(this.value(depth + 1))
      if (this.take(']')) return items
      if (!this.take(',')) this.fail("expected ',' or ']'")
    }
  }

  private string(quote: string): string {
    const opening = this.position
    const stop = quote === '"' ? /["\\]/g : /['\\]/g
    let value = ''
    this.position++
    for (;;) {
      stop.lastIndex = this.position
      const end = stop.exec(this.text)?.index
      if (end === undefined) {
        this.position = opening
        return this.fail('string is not closed')
      }
      value += this.text.slice(this.position, end)
      this.position = end + 1
      if (this.text[end] === quote) return value
      value += this.escape()
    }
  }

  /** Reads an escape after its backslash. An unknown escape is the character itself. */
  private escape(): string {
    const c = this.text[this.position] ?? ''
    if (c === '') return this.fail('string is not closed')
    if (c === 'u') {
      const digits = this.match(/u[0-9a-fA-F]{4}/y)
      if (digits === null) return this.fail('invalid escape in string')
      return String.fromCharCode(Number.parseInt(digits.slice(1), 16))
    }
    this.position++
    return Object.hasOwn(ESCAPES, c) ? (ESCAPES[c] ?? c) : c
  }

  private match(pattern: RegExp): string | null {
    pattern.lastIndex = this.position
    const found = pattern.exec(this.text)?.[0] ?? null
    if (found !== null) this.position += found.length
    return found
  }

  /** Skips blanks, and the symbol if it follows. */
  private take(symbol: string): boolean {
    this.skipSpace()
    if (this.text[this.position] !== symbol) return false
    this.position++
    return true
  }

  private skipSpace(): void {
    while (' \t\n\r\v\f'.includes(this.text[this.position] ?? 'end')) this.position++
  }

  private fail(reason: string): never {
    let line = 1
    let lineStart = 0
    for (let at = this.text.indexOf('\n'); at >= 0 && at < this.position; at = this.text.indexOf('\n', lineStart)) {
      line++
      lineStart = at + 1
    }
    throw new JsonSyntaxError(`${line}:${this.position - lineStart + 1}: ${reason}`)
  }
}

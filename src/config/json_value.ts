/**
 * Reads JSON text into values that keep numbers as written.
 *
 * `JSON.parse` would round 64-bit integers, and a configuration holds `18446744073709551615` as a plain number.
 */

export type JsonValue = null | boolean | string | JsonNumber | JsonValue[] | JsonObject

/** A number, as the text spells it. */
export class JsonNumber {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

/** Members in the order of the text; a repeated key keeps its last value. */
export type JsonObject = Map<string, JsonValue>

/** Deeper nesting is refused: the reader recurses. No valid configuration comes near. */
export const JSON_DEPTH_MAX = 100

export class JsonSyntaxError extends Error {}

/** Reads one JSON value that fills the whole text. */
export function readJson(text: string): JsonValue {
  const reader = new Reader(text)
  const value = reader.value(0)
  reader.end()
  return value
}

class Reader {
  private readonly text: string
  private position = 0

  constructor(text: string) {
    this.text = text
  }

  value(depth: number): JsonValue {
    if (depth > JSON_DEPTH_MAX) this.fail(`nesting deeper than ${JSON_DEPTH_MAX}`)
    this.skipSpace()
    const c = this.text[this.position]
    if (c === '{') return this.object(depth)
    if (c === '[') return this.array(depth)
    if (c === '"') return this.string()
    const word = this.match(/true|false|null/y)
    if (word !== null) return word === 'null' ? null : word === 'true'
    const number = this.match(/-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y)
    if (number !== null) return new JsonNumber(number)
    return this.fail(c === undefined ? 'unexpected end of text' : `expected a value, found '${c}'`)
  }

  end(): void {
    this.skipSpace()
    if (this.position < this.text.length) this.fail('expected the end of the text')
  }

  private object(depth: number): JsonObject {
    const members: JsonObject = new Map()
    this.position++
    if (this.take('}')) return members
    for (;;) {
      this.skipSpace()
      if (this.text[this.position] !== '"') this.fail('expected a key in quotes')
      const key = this.string()
      if (!this.take(':')) this.fail(`expected ':' after key "${key}"`)
      members.set(key, this.value(depth + 1))
      if (this.take('}')) return members
      if (!this.take(',')) this.fail("expected ',' or '}'")
    }
  }

  private array(depth: number): JsonValue[] {
    const items: JsonValue[] = []
    this.position++
    if (this.take(']')) return items
    for (;;) {
      items.push(this.value(depth + 1))
      if (this.take(']')) return items
      if (!this.take(',')) this.fail("expected ',' or ']'")
    }
  }

  private string(): string {
    const start = this.position
    // eslint-disable-next-line no-control-regex -- raw control characters are what must not match
    const literal = this.match(/"(?:[^"\\\u0000-\u001f]|\\.)*"/y)
    if (literal === null) return this.fail('string is not closed or holds a raw control character')
    try {
      return JSON.parse(literal) as string
    } catch {
      this.position = start
      return this.fail('invalid escape in string')
    }
  }

  private match(pattern: RegExp): string | null {
    pattern.lastIndex = this.position
    const found = pattern.exec(this.text)?.[0] ?? null
    if (found !== null) this.position += found.length
    return found
  }

  private take(symbol: string): boolean {
    this.skipSpace()
    if (this.text[this.position] !== symbol) return false
    this.position++
    return true
  }

  private skipSpace(): void {
    while (' \t\n\r'.includes(this.text[this.position] ?? 'end')) this.position++
  }

  private fail(reason: string): never {
    const before = this.text.slice(0, this.position).split('\n')
    throw new JsonSyntaxError(`${before.length}:${(before.at(-1)?.length ?? 0) + 1}: ${reason}`)
  }
}

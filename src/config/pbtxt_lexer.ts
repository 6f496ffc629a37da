/**
 * Cuts protobuf text format into tokens, with the place of each. Knows nothing of messages and fields.
 *
 * Strings are decoded to bytes here, because escapes may spell bytes that only together are UTF-8. Numbers stay text:
 * their range depends on the field. A minus is a token of its own.
 */

export type TokenKind = 'identifier' | 'integer' | 'float' | 'string' | 'symbol' | 'end'

export interface Token {
  kind: TokenKind
  /** As written; empty at the end of the text. */
  text: string
  /** Decoded content of a string token; empty otherwise. */
  bytes: Uint8Array<ArrayBuffer>
  line: number
  column: number
}

/** A text that has no tokens at some place. */
export class LexError extends Error {
  readonly line: number
  readonly column: number

  constructor(line: number, column: number, reason: string) {
    super(reason)
    this.line = line
    this.column = column
  }
}

const NO_BYTES = new Uint8Array(0)
const SIMPLE_ESCAPES: Record<string, number> = {
  a: 7, b: 8, f: 12, n: 10, r: 13, t: 9, v: 11, '\\': 92, "'": 39, '"': 34, '?': 63,
}

export class Lexer {
  private readonly text: string
  private position = 0
  private line = 1
  /** Position of the first character of the current line. */
  private lineStart = 0

  constructor(text: string) {
    // Editors on Windows put a byte-order mark in front; it means nothing here.
    this.text = text.startsWith('\uFEFF') ? text.slice(1) : text
  }

  /** The next token. After the end, `end` for ever. */
  next(): Token {
    this.skipSpace()
    const start = this.position
    const line = this.line
    const column = start - this.lineStart + 1
    const token = (kind: TokenKind, bytes = NO_BYTES): Token => ({ kind, text: this.text.slice(start, this.position), bytes, line, column })
    const first = this.text[start]
    if (first === undefined) return token('end')
    if (isLetter(first)) {
      while (isLetter(this.peek()) || isDigit(this.peek())) this.position++
      if (this.peek() === '.' && isDigit(this.peek(1))) this.fail('Need space between number and identifier.')
      return token('identifier')
    }
    if (isDigit(first) || (first === '.' && isDigit(this.peek(1)))) return token(this.number())
    if (first === '"' || first === "'") return token('string', this.string(first))
    const code = this.text.codePointAt(start) ?? 0
    if (code < 32 || code === 127) this.fail('Invalid control characters encountered in text.')
    if (code > 127) this.fail(`Interpreting non ascii codepoint ${code}.`)
    this.position++
    return token('symbol')
  }

  private peek(ahead = 0): string {
    return this.text[this.position + ahead] ?? ''
  }

  private fail(reason: string): never {
    throw new LexError(this.line, this.position - this.lineStart + 1, reason)
  }

  private skipSpace(): void {
    for (;;) {
      const c = this.peek()
      if (c === '\n') {
        this.position++
        this.line++
        this.lineStart = this.position
      } else if (c === ' ' || c === '\t' || c === '\r' || c === '\v' || c === '\f') {
        this.position++
      } else if (c === '#') {
        const end = this.text.indexOf('\n', this.position)
        this.position = end < 0 ? this.text.length : end
      } else {
        return
      }
    }
  }

  private number(): 'integer' | 'float' {
    let kind: 'integer' | 'float' = 'integer'
    const zero = this.peek() === '0'
    if (zero && (this.peek(1) === 'x' || this.peek(1) === 'X')) {
      this.position += 2
      if (!isHex(this.peek())) this.fail('"0x" must be followed by hex digits.')
      while (isHex(this.peek())) this.position++
    } else if (zero && isDigit(this.peek(1))) {
      while (isOctal(this.peek())) this.position++
      if (isDigit(this.peek())) this.fail('Numbers starting with leading zero must be in octal.')
    } else {
      while (isDigit(this.peek())) this.position++
      if (this.peek() === '.') {
        kind = 'float'
        this.position++
        while (isDigit(this.peek())) this.position++
      }
      if (this.peek() === 'e' || this.peek() === 'E') {
        kind = 'float'
        this.position++
        if (this.peek() === '-' || this.peek() === '+') this.position++
        if (!isDigit(this.peek())) this.fail('"e" must be followed by exponent.')
        while (isDigit(this.peek())) this.position++
      }
      if (this.peek() === 'f' || this.peek() === 'F') {
        kind = 'float'
        this.position++
      }
    }
    if (isLetter(this.peek()) || isDigit(this.peek())) this.fail('Need space between number and identifier.')
    if (this.peek() === '.') this.fail(kind === 'float' ? "Already saw decimal point or exponent; can't have another one." : 'Hex and octal numbers must be integers.')
    return kind
  }

  private string(quote: string): Uint8Array<ArrayBuffer> {
    const bytes: number[] = []
    this.position++
    for (;;) {
      const c = this.peek()
      if (c === '') this.fail('Unexpected end of string.')
      if (c === '\n') this.fail('String literals cannot cross line boundaries.')
      if (c === quote) {
        this.position++
        return Uint8Array.from(bytes)
      }
      if (c === '\\') {
        this.escape(bytes)
        continue
      }
      const code = this.text.codePointAt(this.position) ?? 0
      pushCodePoint(bytes, code)
      this.position += code > 0xffff ? 2 : 1
    }
  }

  private escape(bytes: number[]): void {
    const at = this.position
    const invalidEscape = (reason: string): never => {
      this.position = at
      return this.fail(reason)
    }
    this.position++
    const c = this.peek()
    const simple = Object.hasOwn(SIMPLE_ESCAPES, c) ? SIMPLE_ESCAPES[c] : undefined
    if (simple !== undefined) {
      this.position++
      bytes.push(simple)
    } else if (isOctal(c)) {
      const value = Number.parseInt(this.take(isOctal, 3), 8)
      // \400 and up do not fit a byte; the reference cuts them.
      bytes.push(value & 255)
    } else if (c === 'x' || c === 'X') {
      this.position++
      const digits = this.take(isHex, 2)
      if (digits === '') invalidEscape('Expected hex digits for escape sequence.')
      bytes.push(Number.parseInt(digits, 16))
    } else if (c === 'u') {
      this.position++
      let code = this.hex4() ?? invalidEscape('Expected four hex digits for \\u escape sequence.')
      // Two escapes may spell one character as a surrogate pair.
      if (code >= 0xd800 && code < 0xdc00 && this.peek() === '\\' && this.peek(1) === 'u') {
        this.position += 2
        const low = this.hex4() ?? 0
        if (low < 0xdc00 || low > 0xdfff) invalidEscape('Invalid escape sequence in string literal.')
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)
      }
      pushCodePoint(bytes, code)
    } else if (c === 'U') {
      this.position++
      const digits = this.take(isHex, 8)
      const code = Number.parseInt(digits, 16)
      if (digits.length < 8 || code > 0x10ffff) invalidEscape('Expected eight hex digits up to 10ffff for \\U escape sequence')
      pushCodePoint(bytes, code)
    } else {
      invalidEscape('Invalid escape sequence in string literal.')
    }
  }

  private hex4(): number | null {
    const digits = this.take(isHex, 4)
    return digits.length === 4 ? Number.parseInt(digits, 16) : null
  }

  private take(accept: (c: string) => boolean, max: number): string {
    const start = this.position
    while (this.position - start < max && accept(this.peek())) this.position++
    return this.text.slice(start, this.position)
  }
}

function pushCodePoint(bytes: number[], code: number): void {
  if (code < 0x80) bytes.push(code)
  else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63))
  else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63))
  else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63))
}

function isLetter(c: string): boolean {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c === '_'
}

function isDigit(c: string): boolean {
  return c >= '0' && c <= '9'
}

function isOctal(c: string): boolean {
  return c >= '0' && c <= '7'
}

function isHex(c: string): boolean {
  return isDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')
}

/**
 * Splits protobuf text format into tokens with their places. Independent of messages and fields.
 *
 * Works on bytes, one character of a latin1 string each: Triton counts columns in bytes, escapes may spell bytes that
 * only together are UTF-8, and invalid UTF-8 must stay unchanged. Numbers stay text: their range depends on the field.
 * A minus is a separate token.
 */

export type TokenKind = 'identifier' | 'integer' | 'float' | 'string' | 'symbol' | 'end'

export interface Token {
  kind: TokenKind
  /** The token as written, a character per byte; empty at the end of the text. */
  text: string
  /** Content of a string token with its escapes resolved, a character per byte; empty otherwise. */
  content: string
  line: number
  column: number
  /** Offset in the file, in bytes. */
  offset: number
}

/** Distance of tab stops in Triton's columns. */
const TAB_WIDTH = 8

/** A byte-order mark, a character per byte. */
const BYTE_ORDER_MARK = '\u00ef\u00bb\u00bf'

/** A place without a valid token. */
export class LexError extends Error {
  readonly line: number
  readonly column: number
  /** Offset of the place in the file, in bytes. */
  readonly offset: number

  constructor(line: number, column: number, offset: number, reason: string) {
    super(reason)
    this.line = line
    this.column = column
    this.offset = offset
  }
}

const SIMPLE_ESCAPES: Record<string, number> = {
  a: 7,
  b: 8,
  f: 12,
  n: 10,
  r: 13,
  t: 9,
  v: 11,
  '\\': 92,
  "'": 39,
  '"': 34,
  '?': 63,
}

export class Lexer {
  private readonly text: string
  /** Bytes skipped at the beginning of the file. */
  private readonly skipped: number
  private position = 0
  private line = 1
  /** Position of the first character of the current line. */
  private lineStart = 0
  /** End of the last identifier. */
  private identifierEnd = -1
  /** Position up to which columns of this line are counted, and their number. */
  private counted = 0
  private columns = 0

  constructor(bytes: Uint8Array) {
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
    // Editors on Windows write a byte-order mark, which means nothing here.
    this.skipped = text.startsWith(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK.length : 0
    this.text = text.slice(this.skipped)
  }

  /** Skips the rest of the line. */
  skipLine(): void {
    const end = this.text.indexOf('\n', this.position)
    this.position = end < 0 ? this.text.length : end
  }

  /** The next token; `end` forever after the last one. */
  next(): Token {
    this.skipSpace()
    const start = this.position
    const line = this.line
    const column = this.column()
    const offset = this.skipped + start
    const token = (kind: TokenKind, content = ''): Token => ({
      kind,
      text: this.text.slice(start, this.position),
      content,
      line,
      column,
      offset,
    })
    const first = this.text[start]
    if (first === undefined) return token('end')
    if (isLetter(first)) {
      while (isLetter(this.peek()) || isDigit(this.peek())) this.position++
      this.identifierEnd = this.position
      return token('identifier')
    }
    if (first === '.' && isDigit(this.peek(1)) && start === this.identifierEnd)
      this.fail('Need space between identifier and decimal point.')
    if (isDigit(first) || (first === '.' && isDigit(this.peek(1)))) return token(this.number())
    if (first === '"' || first === "'") return token('string', this.string(first))
    const code = first.charCodeAt(0)
    if (code < 32 || code === 127) this.fail('Invalid control characters encountered in text.')
    if (code > 127) this.fail(`Interpreting non ascii codepoint ${code}.`)
    this.position++
    return token('symbol')
  }

  private peek(ahead = 0): string {
    return this.text[this.position + ahead] ?? ''
  }

  private fail(reason: string): never {
    throw new LexError(this.line, this.column(), this.skipped + this.position, reason)
  }

  /** Column of the position, from 1. Continues from the last call, so that a file of one line stays linear. */
  private column(): number {
    if (this.counted < this.lineStart || this.counted > this.position) {
      this.counted = this.lineStart
      this.columns = 0
    }
    for (; this.counted < this.position; this.counted++) {
      this.columns += this.text[this.counted] === '\t' ? TAB_WIDTH - (this.columns % TAB_WIDTH) : 1
    }
    return this.columns + 1
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
        // A NUL also ends a comment, and is itself an error.
        const end = /[\n\0]/g
        end.lastIndex = this.position
        this.position = end.exec(this.text)?.index ?? this.text.length
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
    if (this.peek() === '.')
      this.fail(
        kind === 'float'
          ? "Already saw decimal point or exponent; can't have another one."
          : 'Hex and octal numbers must be integers.',
      )
    return kind
  }

  private string(quote: string): string {
    const stop = quote === '"' ? /[\\\n\0"]/g : /[\\\n\0']/g
    let content = ''
    this.position++
    for (;;) {
      stop.lastIndex = this.position
      const end = stop.exec(this.text)?.index ?? this.text.length
      content += this.text.slice(this.position, end)
      this.position = end
      const c = this.peek()
      if (c === '' || c === '\0') this.fail('Unexpected end of string.')
      if (c === '\n') this.fail('String literals cannot cross line boundaries.')
      if (c === quote) {
        this.position++
        return content
      }
      content += this.escape()
    }
  }

  /** The bytes of an escape. */
  private escape(): string {
    this.position++
    const c = this.peek()
    const simple = Object.hasOwn(SIMPLE_ESCAPES, c) ? SIMPLE_ESCAPES[c] : undefined
    if (simple !== undefined) {
      this.position++
      return String.fromCharCode(simple)
    }
    if (isOctal(c)) {
      const value = Number.parseInt(this.take(isOctal, 3), 8)
      // \400 and above do not fit a byte; Triton truncates them.
      return String.fromCharCode(value & 255)
    }
    if (c === 'x' || c === 'X') {
      this.position++
      const digits = this.take(isHex, 2)
      if (digits === '') this.fail('Expected hex digits for escape sequence.')
      return String.fromCharCode(Number.parseInt(digits, 16))
    }
    if (c === 'u') {
      this.position++
      return utf8(this.surrogatePair() ?? this.hex('Expected four hex digits for \\u escape sequence.', 4))
    }
    if (c === 'U') {
      this.position++
      const code = this.hex('Expected eight hex digits up to 10ffff for \\U escape sequence', 8)
      if (code <= 0x10ffff) return utf8(code)
      return this.fail('Expected eight hex digits up to 10ffff for \\U escape sequence')
    }
    return this.fail('Invalid escape sequence in string literal.')
  }

  /** Two `\u` escapes that spell one character, from after the first `u`; null for anything else. */
  private surrogatePair(): number | null {
    const pair = /(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})/iy
    pair.lastIndex = this.position
    const [all, high = '', low = ''] = pair.exec(this.text) ?? []
    if (all === undefined) return null
    this.position += all.length
    return 0x10000 + ((Number.parseInt(high, 16) - 0xd800) << 10) + (Number.parseInt(low, 16) - 0xdc00)
  }

  /** A number of exactly this many hex digits. */
  private hex(reason: string, digits: number): number {
    const text = this.take(isHex, digits)
    if (text.length < digits) this.fail(reason)
    return Number.parseInt(text, 16)
  }

  private take(accept: (c: string) => boolean, max: number): string {
    const start = this.position
    while (this.position - start < max && accept(this.peek())) this.position++
    return this.text.slice(start, this.position)
  }
}

/** A code point as UTF-8, a character per byte. The field decides whether half a surrogate pair is valid. */
function utf8(code: number): string {
  const tail = (shift: number): number => 0x80 | ((code >> shift) & 63)
  if (code < 0x80) return String.fromCharCode(code)
  if (code < 0x800) return String.fromCharCode(0xc0 | (code >> 6), tail(0))
  if (code < 0x10000) return String.fromCharCode(0xe0 | (code >> 12), tail(6), tail(0))
  return String.fromCharCode(0xf0 | (code >> 18), tail(12), tail(6), tail(0))
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

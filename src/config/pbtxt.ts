/**
 * Reads `config.pbtxt`: protobuf text format, driven by the descriptor of `ModelConfig`.
 *
 * The library's reader accepts another dialect, has no line numbers, and its words are not the ones people search for.
 * Reasons and places are those of protobuf's C++ reader: a place is mostly that of the token after the wrong one.
 *
 * Nesting is bounded by the message types, none of which contains itself.
 */
import { create, ScalarType, type DescEnum, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { ConfigSyntaxError, QUOTE_CHARS_MAX, quoted } from './error.js'
import { CONFIG_VALUES_MAX } from './files.js'
import { ModelConfigSchema, type ModelConfig } from './generated/model_config_pb.js'
import { LexError, Lexer, type Token } from './pbtxt_lexer.js'
import { nearest } from './suggest.js'

/** An empty configuration, the equivalent of a missing file. */
export function emptyConfig(): ModelConfig {
  return create(ModelConfigSchema)
}

/**
 * Reads a configuration in text form.
 *
 * @param text a string, or the bytes of a file. A string field with invalid UTF-8 is rejected: it could not be kept.
 * @param path only names the file in errors
 * @throws {ConfigSyntaxError} INTERNAL `failed to read text proto from <path>: <line>:<column>: <reason>` and a hint
 */
export function parsePbtxt(text: string | Uint8Array, path: string): ModelConfig {
  const config = emptyConfig()
  const [first] = parse(text, path, reflect(ModelConfigSchema, config), 1)
  if (first !== undefined) throw first
  return config
}

/** Mistakes reported for one file. */
export const SYNTAX_PROBLEMS_MAX = 100

/**
 * All mistakes of a text; `parsePbtxt` throws the first. After each the reader continues at the next field. A mistake
 * that hides the end of a block is the last.
 */
export function pbtxtProblems(text: string | Uint8Array, path: string): ConfigSyntaxError[] {
  return parse(text, path, reflect(ModelConfigSchema, emptyConfig()), SYNTAX_PROBLEMS_MAX)
}

function parse(
  text: string | Uint8Array,
  path: string,
  message: ReflectMessage,
  problemsMax: number,
): ConfigSyntaxError[] {
  const parser = new Parser(typeof text === 'string' ? Buffer.from(text) : text, path, problemsMax)
  parser.parseTop(message)
  return parser.problems
}

/** Stops reading: the structure is lost, or enough mistakes were found. The problem is recorded already. */
class StopParsing extends Error {}

const CLOSERS: Readonly<Record<string, string>> = { '{': '}', '<': '>', '[': ']' }
const CLOSING: ReadonlySet<string> = new Set(Object.values(CLOSERS))
/** Token before the first one. */
const START: Token = { kind: 'symbol', text: '', content: '', line: 1, column: 1, offset: 0 }

type Add = (value: unknown) => void
type MessageKind = DescField & { message: DescMessage }

const INT32_MAX = 2147483647n
const INT64_MAX = 9223372036854775807n
const UINT32_MAX = 4294967295n
const UINT64_MAX = 18446744073709551615n

/** No 64-bit integer is longer, even in octal with leading zeros; reading longer ones costs their length squared. */
const INTEGER_CHARS_MAX = 100

class Parser {
  readonly problems: ConfigSyntaxError[] = []
  private readonly lexer: Lexer
  private readonly path: string
  private readonly problemsMax: number
  private current: Token = START
  private counted = 0
  /** Open brackets, outermost first. */
  private readonly open: string[] = []

  constructor(text: Uint8Array, path: string, problemsMax: number) {
    this.lexer = new Lexer(text)
    this.path = path
    this.problemsMax = problemsMax
  }

  /** Reads the message; `problems` has its mistakes afterwards. */
  parseTop(message: ReflectMessage): void {
    try {
      this.guarded(message.desc, () => this.advance())
      while (this.current.kind !== 'end') {
        // An extra closing bracket: the rest may still be valid.
        this.guarded(message.desc, () => this.field(message, null))
        if (this.problems.length > 0)
          while (CLOSING.has(this.current.text) && this.current.kind === 'symbol')
            this.guarded(message.desc, () => this.advance())
      }
    } catch (error) {
      if (!(error instanceof StopParsing)) throw error
    }
  }

  /** Reads a part of a message; records a mistake and continues at the next field. */
  private guarded(desc: DescMessage, read: () => void): void {
    const depth = this.open.length
    const from = this.current
    try {
      read()
    } catch (error) {
      this.note(error)
      this.recover(desc, depth, from)
    }
  }

  private note(error: unknown): void {
    if (error instanceof LexError) {
      const span = { start: error.offset, end: error.offset + 1 }
      this.problems.push(new ConfigSyntaxError(this.path, error.line, error.column, error.message, '', span))
    } else if (error instanceof ConfigSyntaxError) this.problems.push(error)
    else throw error
    if (this.problems.length >= this.problemsMax) throw new StopParsing()
  }

  /**
   * Skips to the likely beginning of the next field of the message: one of its names, or any name on a new line, with
   * all brackets closed that were opened since; or to the end of the message.
   */
  private recover(desc: DescMessage, depth: number, from: Token): void {
    let { line } = this.current
    for (let isFirst = true; ; isFirst = false) {
      const { kind, text } = this.current
      if (kind === 'end') throw new StopParsing()
      // Skip a token that begins nothing, to make progress.
      const isStuck = isFirst && this.current === from
      if (this.open.length <= depth) {
        if (kind === 'symbol' && CLOSING.has(text)) {
          if (depth > 0 && CLOSERS[this.open[depth - 1] ?? ''] !== text) throw new StopParsing()
          return
        }
        if (!isStuck && kind === 'identifier' && (this.current.line > line || desc.fields.some((f) => f.name === text)))
          return
      }
      line = this.current.line
      this.skip()
    }
  }

  /** Advances by one token and counts brackets. Invalid tokens are not reported: they belong to the skipped text. */
  private skip(): void {
    const { kind, text } = this.current
    if (kind === 'symbol' && text in CLOSERS) this.open.push(text)
    else if (kind === 'symbol' && CLOSING.has(text) && CLOSERS[this.open.at(-1) ?? ''] === text) this.open.pop()
    for (;;) {
      try {
        return this.advance()
      } catch (error) {
        if (!(error instanceof LexError)) throw error
        this.lexer.skipLine()
      }
    }
  }

  /** Counts a field or an item of a list. */
  private count(): void {
    // Report only the first one over the limit.
    if (this.counted > CONFIG_VALUES_MAX) throw new StopParsing()
    if (++this.counted > CONFIG_VALUES_MAX) this.fail(`More than ${CONFIG_VALUES_MAX} values.`, '')
  }

  private field(message: ReflectMessage, opened: Token | null): void {
    this.count()
    const desc = message.desc
    if (this.looksAt('[')) this.extension(desc)
    const token = this.current
    if (token.kind !== 'identifier') this.failBlock(token, opened)
    this.advance()
    const field = desc.fields.find((f) => f.name === token.text)
    if (field === undefined) return this.unknown(desc.typeName, fieldHint(desc, token.text), token)
    this.refuseSecond(message, field, token)
    if (field.fieldKind === 'map') {
      this.take(':')
      this.values(() => this.mapEntry(message, field))
    } else if (isMessage(field)) {
      this.take(':')
      if (field.fieldKind === 'list') {
        const list = message.get(field)
        this.values(() => {
          const item = reflect(field.message)
          this.message(item)
          list.add(item)
        })
      } else {
        const part = reflect(field.message)
        this.message(part)
        message.set(field, part)
      }
    } else {
      this.expect(':')
      if (field.fieldKind === 'list') {
        const list = message.get(field)
        this.values(() => this.scalar(field, (value) => list.add(value)))
      } else {
        this.scalar(field, (value) => message.set(field, value))
      }
    }
    if (!this.take(';')) this.take(',')
  }

  /** Notes a field that a message does not have, and skips its value, so that the rest of the message is read. */
  private unknown(message: string, hint: string, name: Token): void {
    try {
      this.fail(`Message type "${message}" has no field named "${show(name)}".`, hint, name)
    } catch (error) {
      this.note(error)
    }
    const depth = this.open.length
    const hasColon = this.take(':')
    if (this.current.kind === 'symbol' && this.current.text in CLOSERS) {
      do this.skip()
      while (this.open.length > depth && !this.isAtEnd())
    } else if (hasColon && !CLOSING.has(this.current.text)) {
      if (this.take('-') || this.current.kind !== 'string') this.skip()
      while (this.current.kind === 'string') this.skip()
    }
    if (!this.take(';')) this.take(',')
  }

  /**
   * Rejects a second value of a singular field, and a second member of a oneof. A plain scalar with its default value
   * does not count as set: `max_batch_size: 0 max_batch_size: 4` is legal, the reverse is not.
   */
  private refuseSecond(message: ReflectMessage, field: DescField, token: Token): void {
    if (field.fieldKind === 'list' || field.fieldKind === 'map') return
    // A negative zero counts as set, in Triton as on the wire.
    if (message.isSet(field) || Object.is(message.get(field), -0)) this.fail(twice(field.name), '', token)
    const other = field.oneof === undefined ? undefined : message.oneofCase(field.oneof)
    if (field.oneof !== undefined && other !== undefined) {
      this.fail(
        `Field "${field.name}" is specified along with field "${other.name}", another member of oneof ` +
          `"${field.oneof.name}".`,
        '',
        token,
      )
    }
  }

  /** Reads one value, or a bracketed list of them. */
  private values(one: () => void): void {
    if (!this.take('[')) return one()
    if (this.take(']')) return
    for (;;) {
      this.count()
      one()
      if (this.take(']')) return
      this.expect(',')
    }
  }

  private message(message: ReflectMessage): void {
    const opened = this.current
    const close = this.take('<') ? '>' : '}'
    if (close === '}') this.expect('{')
    while (!this.looksAt('>') && !this.looksAt('}')) this.guarded(message.desc, () => this.field(message, opened))
    this.expect(close)
  }

  /** Reads `{ key: … value: … }` in any order, either part optional; entries look like messages without a type. */
  private mapEntry(message: ReflectMessage, field: DescField & { fieldKind: 'map' }): void {
    const opened = this.current
    const entryType = `${field.parent.typeName}.${pascal(field.name)}Entry`
    const keyDefault = mapKeyDefault(field.mapKey)
    const valueDefault: unknown =
      field.mapKind === 'message' ? reflect(field.message) : field.mapKind === 'enum' ? 0 : ''
    let key = keyDefault
    let value = valueDefault
    const close = this.take('<') ? '>' : '}'
    if (close === '}') this.expect('{')
    while (!this.looksAt('>') && !this.looksAt('}')) {
      const token = this.current
      if (token.kind !== 'identifier') this.failBlock(token, opened)
      this.advance()
      if ((token.text === 'key' && key !== keyDefault) || (token.text === 'value' && value !== valueDefault))
        this.fail(twice(token.text), '', token)
      if (token.text === 'key') {
        this.expect(':')
        this.scalarOf('key', field.mapKey, null, (v) => (key = v))
      } else if (token.text === 'value') {
        if (field.mapKind === 'message') {
          this.take(':')
          const part = reflect(field.message)
          this.message(part)
          value = part
        } else {
          this.expect(':')
          this.scalarOf(
            'value',
            field.mapKind === 'scalar' ? field.scalar : null,
            field.mapKind === 'enum' ? field.enum : null,
            (v) => (value = v),
          )
        }
      } else {
        this.unknown(entryType, 'A map entry has the fields "key" and "value".', token)
      }
      if (!this.take(';')) this.take(',')
    }
    this.expect(close)
    // Maps are plain objects in memory, in which this one key is no property.
    if (key === '__proto__') this.fail(`Map key "__proto__" is not supported.`, '')
    message.get(field).set(key, value)
  }

  private scalar(field: DescField, add: Add): void {
    const scalar =
      field.fieldKind === 'scalar' || (field.fieldKind === 'list' && field.listKind === 'scalar') ? field.scalar : null
    const desc =
      field.fieldKind === 'enum' || (field.fieldKind === 'list' && field.listKind === 'enum') ? field.enum : null
    this.scalarOf(field.name, scalar, desc, add)
  }

  private scalarOf(name: string, scalar: ScalarType | null, desc: DescEnum | null | undefined, add: Add): void {
    if (desc) return add(this.enumeration(name, desc))
    switch (scalar) {
      case ScalarType.STRING:
        return add(this.string(name))
      case ScalarType.BOOL:
        return add(this.boolean(name))
      case ScalarType.FLOAT:
        return add(Math.fround(clampToFloat(this.float())))
      case ScalarType.DOUBLE:
        return add(this.float())
      case ScalarType.UINT32:
        return add(Number(this.unsigned(UINT32_MAX)))
      case ScalarType.UINT64:
        return add(this.unsigned(UINT64_MAX))
      case ScalarType.INT64:
        return add(this.signed(INT64_MAX))
      case ScalarType.INT32:
        return add(Number(this.signed(INT32_MAX)))
      default:
        throw new Error(
          `inference.ModelConfig has a scalar type that the text reader does not know: ${scalar} in ${name}`,
        )
    }
  }

  private string(name: string): string {
    const first = this.current
    if (first.kind !== 'string') this.fail(`Expected string, got: ${show(first)}`, 'Strings need quotes.')
    const parts: string[] = []
    while (this.current.kind === 'string') {
      parts.push(this.current.content)
      this.advance()
    }
    const text = decodeUtf8(Buffer.from(parts.join(''), 'latin1'))
    // Triton accepts it here and fails later, when the message is written.
    if (text === null) this.failAt(first, `String field "${name}" contains invalid UTF-8.`, '')
    return text
  }

  private boolean(name: string): boolean {
    const token = this.current
    if (token.kind === 'integer') return this.unsigned(1n) === 1n
    if (token.kind !== 'identifier')
      this.fail(`Expected identifier, got: ${show(token)}`, 'A boolean is true or false, without quotes.')
    this.advance()
    if (token.text === 'true' || token.text === 'True' || token.text === 't') return true
    if (token.text === 'false' || token.text === 'False' || token.text === 'f') return false
    return this.fail(
      `Invalid value for boolean field "${name}". Value: "${show(token)}".`,
      'A boolean is true or false.',
      token,
    )
  }

  private enumeration(name: string, desc: DescEnum): number {
    const token = this.current
    if (token.kind === 'integer' || this.looksAt('-')) return Number(this.signed(INT32_MAX))
    if (token.kind !== 'identifier') {
      this.fail(
        `Expected integer or identifier, got: ${show(token)}`,
        token.kind === 'string' ? 'Values of an enumeration have no quotes.' : '',
      )
    }
    this.advance()
    const value = desc.values.find((v) => v.name === token.text)
    if (value !== undefined) return value.number
    return this.fail(
      `Unknown enumeration value of "${show(token)}" for field "${name}".`,
      didYouMean(nearestValue(token.text, desc)),
      token,
    )
  }

  private signed(max: bigint): bigint {
    const negative = this.take('-')
    const value = this.unsigned(negative ? max + 1n : max)
    return negative ? -value : value
  }

  private unsigned(max: bigint): bigint {
    const token = this.current
    if (token.kind !== 'integer') this.fail(`Expected integer, got: ${show(token)}`, '')
    if (token.text.length > INTEGER_CHARS_MAX) this.fail(`Integer out of range (${show(token)})`, '')
    const octal = token.text.length > 1 && token.text.startsWith('0') && !/^0x/i.test(token.text)
    const value = BigInt(octal ? `0o${token.text}` : token.text)
    if (value > max) this.fail(`Integer out of range (${show(token)})`, '')
    this.advance()
    return value
  }

  private float(): number {
    const negative = this.take('-')
    const token = this.current
    const value = this.floatValue(token)
    this.advance()
    return negative ? -value : value
  }

  private floatValue(token: Token): number {
    if (token.kind === 'integer') {
      if (/^0[0-9xX]/.test(token.text)) this.fail(`Expect a decimal number, got: ${show(token)}`, '')
      return Number(token.text)
    }
    if (token.kind === 'float') return Number(token.text.replace(/[fF]$/, ''))
    const word = token.kind === 'identifier' ? token.text.toLowerCase() : ''
    if (word === 'inf' || word === 'infinity') return Number.POSITIVE_INFINITY
    if (word === 'nan') return Number.NaN
    return this.fail(`Expected double, got: ${show(token)}`, '')
  }

  private extension(desc: DescMessage): never {
    this.advance()
    let name = ''
    while (this.current.kind === 'identifier' || this.looksAt('.') || this.looksAt('/')) {
      name += this.current.text
      this.advance()
    }
    this.expect(']')
    if (name.includes('/')) this.fail('Extension name contains "/"', '')
    return this.fail(`Extension "${quoted(name)}" is not defined or is not an extension of "${desc.typeName}".`, '')
  }

  private isAtEnd(): boolean {
    return this.current.kind === 'end'
  }

  private advance(): void {
    this.current = this.lexer.next()
  }

  private looksAt(symbol: string): boolean {
    return this.current.kind === 'symbol' && this.current.text === symbol
  }

  private take(symbol: string): boolean {
    if (!this.looksAt(symbol)) return false
    if (symbol in CLOSERS) this.open.push(symbol)
    else if (CLOSING.has(symbol)) this.open.pop()
    this.advance()
    return true
  }

  private expect(symbol: string): void {
    if (!this.take(symbol)) this.fail(`Expected "${symbol}", found "${show(this.current)}".`, '')
  }

  /** Fails where a field is expected: the end of the text or of another block shows that this one was not closed. */
  private failBlock(token: Token, opened: Token | null): never {
    const ends = token.kind === 'end' || (token.kind === 'symbol' && CLOSING.has(token.text))
    const unclosed = ends ? opened : null
    // The text begins with a bracket instead of a field.
    if (token.text === '{' && opened === null && token.offset === 0)
      return this.fail(
        'Expected identifier, got: {',
        'It looks like JSON: fields have no quotes here, and no brackets around them.',
      )
    const hint = unclosed === null ? '' : `The block opened at ${unclosed.line}:${unclosed.column} is not closed.`
    return this.fail(`Expected identifier, got: ${show(token)}`, hint, unclosed ?? token)
  }

  /** Fails at the next token; `wrong` is the wrong one, if that is an earlier one. */
  private fail(reason: string, hint: string, wrong = this.current): never {
    return this.failAt(this.current, reason, hint, wrong)
  }

  private failAt(token: Token, reason: string, given: string, wrong = token): never {
    const hint =
      token.kind === 'symbol' && token.text === '$'
        ? 'It is a placeholder of a template: fill in the value first.'
        : given
    throw new ConfigSyntaxError(this.path, token.line, token.column, reason, hint, {
      start: wrong.offset,
      end: wrong.offset + Math.max(1, wrong.text.length),
    })
  }
}

function twice(name: string): string {
  return `Non-repeated field "${name}" is specified multiple times.`
}

/** A token for an error: of bounded length, its bytes decoded as UTF-8. */
function show(token: Token): string {
  // Characters are bytes here; one divided by the cut is dropped.
  const shown = new TextDecoder('utf-8', { ignoreBOM: true }).decode(
    Buffer.from(token.text.slice(0, QUOTE_CHARS_MAX), 'latin1'),
    { stream: true },
  )
  const more = token.text.length - QUOTE_CHARS_MAX
  return more > 0 ? `${shown}… (${more} more bytes)` : shown
}

/** null for invalid UTF-8. */
function decodeUtf8(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return null
  }
}

function isMessage(field: DescField): field is MessageKind & { fieldKind: 'list' | 'message' } {
  return field.fieldKind === 'message' || (field.fieldKind === 'list' && field.listKind === 'message')
}

function mapKeyDefault(type: ScalarType): unknown {
  if (type === ScalarType.STRING) return ''
  return type === ScalarType.UINT64 || type === ScalarType.INT64 ? 0n : 0
}

/** Limit of a float field; larger decimals become infinity, as in Triton. */
function clampToFloat(value: number): number {
  return Math.abs(value) > 3.4028235677973366e38 ? Math.sign(value) * Number.POSITIVE_INFINITY : value
}

function pascal(name: string): string {
  return name.replaceAll(/(?:^|_)([a-z0-9])/g, (_, c: string) => c.toUpperCase())
}

function didYouMean(word: string | null): string {
  return word === null ? '' : `Did you mean "${word}"?`
}

/** Datatype names of other frameworks; by spelling alone FLOAT32 is closer to UINT32. */
const FOREIGN_TYPES: Record<string, string> = {
  FLOAT: 'FP32',
  FLOAT16: 'FP16',
  FLOAT32: 'FP32',
  FLOAT64: 'FP64',
  HALF: 'FP16',
  DOUBLE: 'FP64',
  BFLOAT16: 'BF16',
  INT: 'INT32',
  LONG: 'INT64',
  BYTE: 'UINT8',
  BYTES: 'STRING',
  BOOLEAN: 'BOOL',
}

function nearestValue(word: string, desc: DescEnum): string | null {
  const bare = word.toUpperCase().replace(/^TYPE_/, '')
  const foreign = Object.hasOwn(FOREIGN_TYPES, bare) ? FOREIGN_TYPES[bare] : undefined
  // People omit the common prefix: FP32 for TYPE_FP32, GPU for KIND_GPU.
  const ending = desc.values.find((v) => v.name.endsWith(`_${foreign ?? word.toUpperCase()}`))
  const names = desc.values.map((v) => v.name)
  return ending?.name ?? nearest(word, names)
}

/** Suggests a near name in the same message, or else the messages that have this field: often a brace is missing. */
function fieldHint(desc: DescMessage, name: string): string {
  const names = desc.fields.map((f) => f.name)
  const near = nearest(name, names)
  if (near !== null) return didYouMean(near)
  const owners = [...messagesWithin(ModelConfigSchema, new Set())]
    .filter((m) => m.fields.some((f) => f.name === name))
    .map((m) => m.typeName)
  // Shallow messages first: people write those.
  owners.sort((a, b) => a.split('.').length - b.split('.').length)
  return owners.length === 0 ? '' : `It is a field of ${owners.slice(0, 3).join(', ')}.`
}

function* messagesWithin(desc: DescMessage, seen: Set<DescMessage>): Generator<DescMessage> {
  if (seen.has(desc)) return
  seen.add(desc)
  yield desc
  for (const field of desc.fields) if (field.message !== undefined) yield* messagesWithin(field.message, seen)
}

/**
 * Parses the part of shell scripts that starts of servers need: words, quotes, continued lines, comments, variables and
 * arrays that the script itself sets, `${X:-default}`. Runs nothing: values that only a shell can know (`$(…)`,
 * variables from outside) stay as they are written, and so do the `<placeholders>` of documentation.
 *
 * Time is linear in the text; nesting and the number of words are bounded.
 */

import type { At, Located } from './findings.js'
import { printedPath } from './where.js'

export interface Word {
  text: string
  /** Line where the word begins, from 1. */
  line: number
  /** The word with its quotes and variables. */
  written: string
  /** True if a part of it is known only at run time. */
  isOpen: boolean
}

/** Words of one script. */
export const WORDS_MAX = 50_000
/** Characters of a word after substitution: `A=$A$A` doubles. */
export const WORD_CHARS_MAX = 64 * 1024
/** Characters of a `{{ … }}`. */
const TEMPLATE_CHARS_MAX = 500
/** Nesting of `$( )` and `${ }`. */
const NESTING_MAX = 50

/** The script exceeds a limit. */
export class ShellError extends Error {}

/**
 * The simple commands of a script, of all branches, in order.
 *
 * @param variables known from outside; receives what the script assigns
 * @throws {ShellError} above a limit
 */
export function shellCommands(text: string, variables: Map<string, string> = new Map(), firstLine = 1): Word[][] {
  return new Reader(text, variables, firstLine).commands()
}

/** The commands of a script that begins at a place; line 0 stays 0. None of a script above a limit. */
export function commandsAt(text: string, at: At, variables: Map<string, string> = new Map()): Located[][] {
  try {
    return shellCommands(text, variables, at.line).map((words) =>
      words.map(({ line, ...word }) => ({ ...word, at: { path: at.path, line: at.line === 0 ? 0 : line } })),
    )
  } catch (error) {
    if (error instanceof ShellError) return []
    throw error
  }
}

/** The words as one line. */
export const lineOf = (words: readonly { text: string }[]): string => words.map(({ text }) => text).join(' ')

const SEPARATORS = new Set([';', '&', '|', '(', ')', '\n'])
const BLANK = /[ \t\r]/
const VARIABLE = /\$[A-Za-z_][A-Za-z0-9_]*/y
/** Words before a command that are not its name. */
const PREFIXES = new Set('if then else elif do while until ! { } exec nohup sudo time env'.split(' '))
/** Words before assignments that set no environment of a command. */
const DECLARATIONS = new Set(['export', 'local', 'readonly', 'declare', 'typeset'])
const ASSIGNMENT = /^([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)$/s
const ASSIGNED = /[A-Za-z_][A-Za-z0-9_]*\+?=/y
/**
 * Matches `<xx.yy>` or `<path to models>` of documentation, which the reader fills in. A shell would read two
 * redirections, which scripts do not write this way: their files have no `>` at the end, and `<in>out`, `<in>"$OUT"`
 * and `<in>/dev/null` name a second file after it.
 */
const PLACEHOLDER = /<[^\s<>|&;()'"`$\\]{1,200}(?: [A-Za-z][\w./-]{0,50}){0,10}>(?![\w&($"'`~>]|\.{1,2}\/|\/dev\/)/y
/** Parameters that are known only at run time. */
const PARAMETER = /[0-9@*#?!$-]/

class Reader {
  private readonly text: string
  private readonly variables: Map<string, string>
  private position = 0
  private line: number
  private count = 0
  /** End marks of here-documents that begin on the next line. */
  private readonly documents: string[] = []
  /** Arrays set by the script. */
  private readonly arrays = new Map<string, Word[]>()
  /** Variables whose value is known only at run time. */
  private readonly open = new Set<string>()

  constructor(text: string, variables: Map<string, string>, firstLine: number) {
    this.text = text
    this.variables = variables
    this.line = firstLine
  }

  commands(): Word[][] {
    const commands: Word[][] = []
    let words: Word[] = []
    const finish = (): void => {
      const command = this.assign(words)
      if (command.length > 0) commands.push(command)
      words = []
    }
    for (;;) {
      this.blanks()
      const c = this.text[this.position]
      if (c === undefined) break
      if (SEPARATORS.has(c)) {
        finish()
        this.take()
        if (c === '\n') this.hereDocuments()
      } else if (c === '#') this.comment()
      else if (!this.redirection()) words.push(...this.word())
    }
    finish()
    return commands
  }

  /** Stores leading assignments `X=value`; a command after them keeps them as its first words. */
  private assign(words: Word[]): Word[] {
    let start = 0
    let declared = false
    for (; start < words.length; start += 1) {
      const { text = '', isOpen = false } = words[start] ?? {}
      const [, name = '', plus = '', value = ''] = ASSIGNMENT.exec(text) ?? []
      if (name !== '') {
        const before = plus === '' ? '' : (this.variables.get(name) ?? '')
        requireShort(before.length + value.length, this.line)
        this.variables.set(name, before + value)
        if (isOpen) this.open.add(name)
        else if (plus === '') this.open.delete(name)
      } else if (DECLARATIONS.has(text)) declared = true
      else if (!PREFIXES.has(text)) break
    }
    // In `KEY=1 tritonserver` the environment belongs to the command.
    return start === words.length || declared
      ? words.slice(start)
      : [...words.slice(0, start).filter((word) => ASSIGNMENT.test(word.text)), ...words.slice(start)]
  }

  /** The text from here on that matches a sticky pattern. */
  private match(pattern: RegExp): string | null {
    pattern.lastIndex = this.position
    return pattern.exec(this.text)?.[0] ?? null
  }

  private countWords(more: number): void {
    this.count += more
    if (this.count > WORDS_MAX) throw new ShellError(`more than ${WORDS_MAX} words`)
  }

  private take(): string {
    const c = this.text[this.position++] ?? ''
    if (c === '\n') this.line += 1
    return c
  }

  private blanks(): void {
    for (;;) {
      const c = this.text[this.position] ?? ''
      if (BLANK.test(c)) this.position += 1
      else if (c === '\\' && /^\\\r?\n/.test(this.text.slice(this.position, this.position + 3))) {
        this.position += 1
        while (this.take() !== '\n');
      } else return
    }
  }

  private comment(): void {
    const end = this.text.indexOf('\n', this.position)
    this.position = end < 0 ? this.text.length : end
  }

  /** Skips `2>&1`, `> file`, `<<EOF` and their file, which are no words. */
  private redirection(): boolean {
    if (this.match(PLACEHOLDER) !== null) return false
    const found = this.match(/\d*(?:<<-?|>>|<|>)&?/y)
    if (found === null) return false
    this.position += found.length
    this.blanks()
    const next = this.text[this.position]
    if (next === undefined || SEPARATORS.has(next)) return true
    const [target] = this.word()
    if (target !== undefined && found.includes('<<') && this.documents.length < NESTING_MAX)
      this.documents.push(target.text)
    return true
  }

  private hereDocuments(): void {
    for (let end = this.documents.shift(); end !== undefined; end = this.documents.shift()) {
      while (this.position < this.text.length) {
        const newline = this.text.indexOf('\n', this.position)
        const stop = newline < 0 ? this.text.length : newline
        const line = this.text.slice(this.position, stop).trim()
        this.position = Math.min(this.text.length, stop + 1)
        this.line += 1
        if (line === end) break
      }
    }
  }

  /** Reads one word; several or none if a variable or an array is substituted without quotes. */
  private word(): Word[] {
    const from = this.position
    const built = new WordBuilder(this.line)
    // An assignment does not split its value.
    const isAssignment = this.match(ASSIGNED) !== null
    for (;;) {
      const c = this.text[this.position]
      const placeholder = c === '<' ? this.match(PLACEHOLDER) : null
      if (placeholder !== null) {
        this.position += placeholder.length
        built.open(placeholder)
        continue
      }
      if (c === undefined || BLANK.test(c) || SEPARATORS.has(c) || c === '<' || c === '>') break
      if (c === "'") {
        const end = this.text.indexOf("'", this.position + 1)
        built.add(this.pass(this.position + 1, end))
      } else if (c === '"') this.quoted(built)
      else if (c === '\\') this.escaped(built)
      else if (c === '$' || c === '`') this.variable(built, !isAssignment)
      else if (c === '{' && this.template(built)) continue
      else built.add(this.take())
    }
    const written = this.text.slice(from, this.position)
    const name = /^([A-Za-z_][A-Za-z0-9_]*)(\+?)=$/.exec(written)
    if (name !== null && this.text[this.position] === '(')
      return [this.array(name[1] ?? '', name[2] === '+', built.line)]
    const words = built.words(written)
    this.countWords(words.length)
    return words
  }

  /** Reads `NAME=( … )` as an assignment of its first word. */
  private array(name: string, isMore: boolean, line: number): Word {
    this.position += 1
    const items: Word[] = isMore ? [...(this.arrays.get(name) ?? [])] : []
    this.countWords(items.length)
    for (;;) {
      this.blanks()
      const c = this.text[this.position]
      if (c === undefined) break
      if (c === '#') this.comment()
      else if (SEPARATORS.has(c) || ((c === '<' || c === '>') && this.match(PLACEHOLDER) === null)) {
        this.take()
        if (c === ')') break
      } else items.push(...this.word())
    }
    this.arrays.set(name, items)
    const [first] = items
    return { text: `${name}=${first?.text ?? ''}`, line, written: '', isOpen: first?.isOpen ?? false }
  }

  /** Reads the text up to a closing character, and skips that. */
  private pass(from: number, end: number): string {
    const stop = end < 0 ? this.text.length : end
    const part = this.text.slice(from, stop)
    for (const c of part) if (c === '\n') this.line += 1
    this.position = Math.min(this.text.length, stop + 1)
    return part
  }

  private escaped(built: WordBuilder): void {
    this.position += 1
    const c = this.take()
    // A continued line.
    if (c === '\r') this.take()
    else if (c !== '\n') built.add(c)
  }

  private quoted(built: WordBuilder): void {
    this.position += 1
    // Two adjacent quotes are an empty word.
    built.add('')
    for (;;) {
      const c = this.text[this.position]
      if (c === undefined) return
      if (c === '"') {
        this.position += 1
        return
      }
      if (c === '$' || c === '`') this.variable(built, false)
      else if (c === '{' && this.template(built)) continue
      else if (c === '\\' && /["\\$`\n]/.test(this.text[this.position + 1] ?? '')) this.escaped(built)
      else built.add(this.take())
    }
  }

  /** @param isSplit true if blanks in its value end the word */
  private variable(built: WordBuilder, isSplit: boolean): void {
    const opening = this.text.slice(this.position, this.position + 2)
    if (opening.startsWith('`')) {
      const inner = this.pass(this.position + 1, this.text.indexOf('`', this.position + 1))
      return this.substitute(inner, `\`${inner}\``, built)
    }
    if (opening === '$(' || opening === '${') {
      const inner = this.balanced(opening === '$(' ? ')' : '}')
      if (opening === '$(') return this.substitute(inner, `$(${inner})`, built)
      return this.expand(inner, `\${${inner}}`, built, isSplit)
    }
    if (opening.length > 1 && PARAMETER.test(opening[1] ?? '')) {
      this.position += 2
      return built.open(opening)
    }
    const name = this.match(VARIABLE)?.slice(1)
    if (name === undefined) return built.add(this.take())
    this.position += 1 + name.length
    this.expand(name, `$${name}`, built, isSplit)
  }

  /** Reads `{{ … }}` of Helm or Jinja, which is no shell syntax; returns false for any other bracket. */
  private template(built: WordBuilder): boolean {
    if (this.text[this.position + 1] !== '{') return false
    const written = this.text.slice(this.position, this.position + TEMPLATE_CHARS_MAX)
    const end = written.indexOf('}}')
    if (end < 0 || written.lastIndexOf('\n', end) >= 0) return false
    this.position += end + 2
    built.open(written.slice(0, end + 2))
    return true
  }

  /** Evaluates `$(…)` if it prints the directory of the script. */
  private substitute(inner: string, written: string, built: WordBuilder): void {
    const here = this.variables.get('PWD')
    const path = here === undefined ? null : printedPath(inner, here)
    if (path === null) built.open(written)
    else built.add(path)
  }

  /** Evaluates `${ }`: a name, a whole array, or a name with a default; anything else stays as written. */
  private expand(inner: string, written: string, built: WordBuilder, isSplit: boolean): void {
    const items = this.arrays.get(/^([A-Za-z_][A-Za-z0-9_]*)\[[@*]\]$/.exec(inner)?.[1] ?? '')
    if (items !== undefined) {
      this.countWords(items.length)
      return built.insert(items)
    }
    const [, name = '', operator = '', fallback = ''] =
      /^([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?:(:?[-=?+])(.*))?$/s.exec(inner) ?? []
    const value = this.variables.get(name)
    const isSet = value !== undefined && (value !== '' || !operator.startsWith(':'))
    if (isSet && !operator.endsWith('+')) {
      if (this.open.has(name)) built.isOpen = true
      return isSplit ? built.split(value) : built.add(value)
    }
    if (!isSet && /[-=]$/.test(operator)) {
      const text = this.fallback(fallback.replace(/^(["'])(.*)\1$/s, '$2'), built)
      return isSplit && !/^["']/.test(fallback) ? built.split(text) : built.add(text)
    }
    built.open(written)
  }

  /** Substitutes known variables in a default; a nested default stays as written. */
  private fallback(text: string, built: WordBuilder): string {
    return text.replaceAll(/\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|[({])/g, (all, plain?: string, braced?: string) => {
      const value = this.variables.get(plain ?? braced ?? '')
      if (value === undefined) built.isOpen = true
      return value ?? all
    })
  }

  /** Reads from after `$(` or `${` to its end; counts brackets of both kinds and ignores quotes. */
  private balanced(close: string): string {
    const from = this.position + 2
    let depth = 1
    let at = from
    for (; at < this.text.length && depth > 0; at += 1) {
      const c = this.text[at]
      if (c === (close === ')' ? '(' : '{')) depth += 1
      else if (c === close) depth -= 1
      if (depth > NESTING_MAX) throw new ShellError(`line ${this.line}: brackets more than ${NESTING_MAX} deep`)
    }
    return this.pass(from, depth === 0 ? at - 1 : at)
  }
}

function requireShort(length: number, line: number): void {
  if (length > WORD_CHARS_MAX) throw new ShellError(`line ${line}: a word of more than ${WORD_CHARS_MAX} characters`)
}

/** Words being read: mostly one. */
class WordBuilder {
  readonly line: number
  /** Whether the last word is open. */
  isOpen = false
  private readonly finished: Word[] = []
  /** Null for a word without any part, which is none. */
  private text: string | null = null
  private length = 0

  constructor(line: number) {
    this.line = line
  }

  add(part: string): void {
    this.length += part.length
    requireShort(this.length, this.line)
    this.text = (this.text ?? '') + part
  }

  /** Adds an unknown part. */
  open(part: string): void {
    this.isOpen = true
    this.add(part)
  }

  /** Adds a value whose blanks end words. */
  split(value: string): void {
    const [first = '', ...rest] = value.split(/[ \t\r\n]+/)
    if (first !== '') this.add(first)
    for (const part of rest) {
      const { isOpen } = this
      this.finish()
      this.isOpen = isOpen
      if (part !== '') this.add(part)
    }
  }

  /** Adds the words of an array: the first joins the text before it. */
  insert(items: readonly Word[]): void {
    for (const [i, item] of items.entries()) {
      if (i > 0 || this.text === null) {
        this.finish()
        this.finished.push(item)
      } else {
        if (item.isOpen) this.isOpen = true
        this.add(item.text)
      }
    }
  }

  /** Returns the words; a single one is `written` as in the text. */
  words(written: string): Word[] {
    this.finish()
    const [only] = this.finished
    return this.finished.length === 1 && only !== undefined && only.written === ''
      ? [{ ...only, written }]
      : this.finished.map((word) => ({ ...word, written: word.written === '' ? word.text : word.written }))
  }

  private finish(): void {
    const { text, line, isOpen } = this
    if (text !== null) this.finished.push({ text, line, written: '', isOpen })
    this.text = null
    this.isOpen = false
  }
}

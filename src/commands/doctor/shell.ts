/**
 * Reads shell scripts as far as a start of a server needs: words, quotes, continued lines, comments, variables that the script itself sets,
 * `${X:-default}`. Nothing is run: what only a shell could know (`$(…)`, variables from outside) stays as it is written.
 *
 * Time is linear in the text; nesting and the number of words are bounded.
 */

export interface Word {
  text: string
  /** From 1, where the word begins. */
  line: number
  /** As it stands there, with its quotes and variables. */
  written: string
  /** Something in it is not known before the script runs. */
  isOpen: boolean
}

export interface ShellCommand {
  words: Word[]
}

/** Words of one script. */
export const WORDS_MAX = 50_000
/** Characters that a word may become by its variables: `A=$A$A` doubles. */
export const WORD_CHARS_MAX = 64 * 1024
/** `$( )` and `${ }` inside one another. */
const NESTING_MAX = 50

/** A script that is too much to read. */
export class ShellError extends Error {}

/**
 * The simple commands of a script, in order, of all branches.
 *
 * @param variables known from outside; what the script assigns goes in here
 * @throws {ShellError} above a limit
 */
export function shellCommands(text: string, variables: Map<string, string> = new Map(), firstLine = 1): ShellCommand[] {
  return new Reader(text, variables, firstLine).commands()
}

/** The words of one line, as `docker run …` of a guide; operators end it. */
export function shellWords(text: string, variables: Map<string, string> = new Map()): string[] {
  return shellCommands(text, variables).flatMap((command) => command.words.map((word) => word.text))
}

const SEPARATORS = new Set([';', '&', '|', '(', ')', '\n'])
const BLANK = /[ \t\r]/
const NAME = /[A-Za-z_][A-Za-z0-9_]*/y
/** Words in front of a command that are not its name. */
const PREFIXES = new Set(['if', 'then', 'else', 'elif', 'do', 'while', 'until', '!', '{', '}', 'export', 'exec', 'nohup', 'sudo', 'time', 'env', 'command', 'set', 'numactl'])

class Reader {
  private readonly text: string
  private readonly variables: Map<string, string>
  private position = 0
  private line: number
  private count = 0
  /** Ends of here-documents that begin with the next line. */
  private readonly documents: string[] = []

  constructor(text: string, variables: Map<string, string>, firstLine: number) {
    this.text = text
    this.variables = variables
    this.line = firstLine
  }

  commands(): ShellCommand[] {
    const commands: ShellCommand[] = []
    let words: Word[] = []
    const finish = (): void => {
      const command = this.assign(words)
      if (command.length > 0) commands.push({ words: command })
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
      else if (!this.redirection()) {
        words.push(this.word())
        if (++this.count > WORDS_MAX) throw new ShellError(`more than ${WORDS_MAX} words`)
      }
    }
    finish()
    return commands
  }

  /** Leading `X=value` set variables; a command behind them has them in front, as they are. */
  private assign(words: Word[]): Word[] {
    let start = 0
    let exported = false
    while (start < words.length) {
      const { text = '' } = words[start] ?? {}
      const [, name = '', value = ''] = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/s.exec(text) ?? []
      if (name !== '') this.variables.set(name, value)
      else if (!PREFIXES.has(text)) break
      else if (text === 'export') exported = true
      start += 1
    }
    // `KEY=1 tritonserver`: its environment belongs to the command.
    return start === words.length || exported ? words.slice(start) : [...words.slice(0, start).filter((w) => /^[A-Za-z_][A-Za-z0-9_]*=/.test(w.text)), ...words.slice(start)]
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

  /** `2>&1`, `> file`, `<<EOF`; they and their file are no words. */
  private redirection(): boolean {
    const operator = /\d*(?:<<-?|>>|<|>)&?/y
    operator.lastIndex = this.position
    const found = operator.exec(this.text)?.[0]
    if (found === undefined) return false
    this.position += found.length
    this.blanks()
    const next = this.text[this.position]
    if (next === undefined || SEPARATORS.has(next)) return true
    const target = this.word()
    if (found.includes('<<') && this.documents.length < NESTING_MAX) this.documents.push(target.text)
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

  private word(): Word {
    const from = this.position
    const word: Word = { text: '', line: this.line, written: '', isOpen: false }
    const parts: string[] = []
    let length = 0
    const add = (part: string): void => {
      length += part.length
      if (length > WORD_CHARS_MAX) throw new ShellError(`line ${word.line}: a word of more than ${WORD_CHARS_MAX} characters`)
      parts.push(part)
    }
    for (;;) {
      const c = this.text[this.position]
      if (c === undefined || BLANK.test(c) || SEPARATORS.has(c) || c === '<' || c === '>') break
      if (c === "'") {
        const end = this.text.indexOf("'", this.position + 1)
        add(this.pass(this.position + 1, end))
      } else if (c === '"') this.quoted(word, add)
      else if (c === '\\') this.escaped(add)
      else if (c === '$' || c === '`') this.variable(word, add)
      else add(this.take())
    }
    word.text = parts.join('')
    word.written = this.text.slice(from, this.position)
    return word
  }

  /** The text up to a closing character, and past it. */
  private pass(from: number, end: number): string {
    const stop = end < 0 ? this.text.length : end
    const part = this.text.slice(from, stop)
    for (const c of part) if (c === '\n') this.line += 1
    this.position = Math.min(this.text.length, stop + 1)
    return part
  }

  private escaped(add: (part: string) => void): void {
    this.position += 1
    const c = this.take()
    // A continued line.
    if (c === '\r') this.take()
    else if (c !== '\n') add(c)
  }

  private quoted(word: Word, add: (part: string) => void): void {
    this.position += 1
    for (;;) {
      const c = this.text[this.position]
      if (c === undefined) return
      if (c === '"') {
        this.position += 1
        return
      }
      if (c === '$' || c === '`') this.variable(word, add)
      else if (c === '\\' && /["\\$`\n]/.test(this.text[this.position + 1] ?? '')) this.escaped(add)
      else add(this.take())
    }
  }

  private variable(word: Word, add: (part: string) => void): void {
    const opening = this.text.slice(this.position, this.position + 2)
    if (opening.startsWith('`')) {
      word.isOpen = true
      return add(`\`${this.pass(this.position + 1, this.text.indexOf('`', this.position + 1))}\``)
    }
    if (opening === '$(' || opening === '${') {
      const inner = this.balanced(opening === '$(' ? ')' : '}')
      if (opening === '$(') {
        word.isOpen = true
        return add(`$(${inner})`)
      }
      return this.expand(inner, `\${${inner}}`, word, add)
    }
    NAME.lastIndex = this.position + 1
    const name = NAME.exec(this.text)?.[0]
    if (name === undefined) return add(this.take())
    this.position += 1 + name.length
    this.expand(name, `$${name}`, word, add)
  }

  /** What stands in `${ }`: a name, or a name with a default; all else stays as written. */
  private expand(inner: string, written: string, word: Word, add: (part: string) => void): void {
    const [, name = '', operator = '', fallback = ''] = /^([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?:(:?[-=?+])(.*))?$/s.exec(inner) ?? []
    const value = this.variables.get(name)
    const isSet = value !== undefined && (value !== '' || !operator.startsWith(':'))
    if (isSet && !operator.endsWith('+')) return add(value)
    if (!isSet && /[-=]$/.test(operator)) return add(this.fallback(fallback.replace(/^(["'])(.*)\1$/s, '$2'), word))
    word.isOpen = true
    add(written)
  }

  /** A default with the variables that are known; one within another stays as it is written. */
  private fallback(text: string, word: Word): string {
    return text.replaceAll(/\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|[({])/g, (all, plain?: string, braced?: string) => {
      const value = this.variables.get(plain ?? braced ?? '')
      if (value === undefined) word.isOpen = true
      return value ?? all
    })
  }

  /** Behind `$(` or `${`, to its end; brackets of both kinds are counted, quotes are not looked at. */
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

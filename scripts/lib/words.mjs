/** Finds comments, lines and names that a newcomer cannot read: docs/internals/counts.md has the rules. */

export const COLUMNS_MAX = 120
/** A type name that more modules define than this says nothing about its type. */
export const MODULES_MAX = 3

/** Openings of a doc comment that only make sense with the name below it. */
const DOC_OPENINGS =
  /^(?:What|Whatever|Whoever|Whose|Whom|Of|As|That|Those|Them|Not|Nor|None|It|Its|They|Same|Also)\b(?!-)/
/** Openings of any other comment that stand for a noun. */
const OPENINGS = /^(?:What|Whatever|Whoever|Whose|Whom|Of|Those)\b(?!-)/

/** Whether a text begins like a fragment. */
export const isFragment = (text) => DOC_OPENINGS.test(text) && !text.endsWith('?')

const COMMENT = /^\s*(\/\/\/|\/\/!|\/\/|\/\*\*)\s?(.*)/

/** Comments whose first line begins with a banned opening, as `line: text`. Directives and links are no comments. */
export function fragments(text) {
  const found = []
  let inside = false
  for (const [index, line] of text.split('\n').entries()) {
    const [, marker, words] = COMMENT.exec(line) ?? []
    if (marker !== undefined && !inside) {
      const openings = marker === '//' ? OPENINGS : DOC_OPENINGS
      if (openings.test(words) && !words.endsWith('?')) found.push(`${index + 1}: ${words}`)
    }
    inside = marker !== undefined
  }
  return found
}

/** With a longer part of a literal, a line of JavaScript is a recorded text: an answer, a snapshot or a pattern. */
export const LITERAL_MAX = 100

/** A pattern begins after an operator, an opening bracket or `return`; anywhere else a slash divides. */
const PATTERN = /(?<=(?:[(,=:[!&|?{};>]|\breturn)\s*)\/(?![/*])(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//
const TOKEN = new RegExp(String.raw`//.*|/\*[^]*?\*/|${PATTERN.source}|(['"])(?:(?!\1)[^\\\n]|\\.)*\1|[` + '`{}]', 'g')
const TEMPLATE = /(?:[^`\\$]|\\[^]|\$(?!\{))*(?:`|\$\{)/y

/** Strings, patterns and parts of templates in a text of JavaScript or TypeScript. */
export function literals(text) {
  const found = []
  /** For each open brace, whether it interrupts a template. */
  const open = []
  for (let token, at = 0; ; at = TOKEN.lastIndex) {
    TOKEN.lastIndex = at
    if ((token = TOKEN.exec(text)) === null) return found
    const [word] = token
    if (word === '{') open.push(false)
    else if (word === '`' || (word === '}' && open.pop())) {
      TEMPLATE.lastIndex = TOKEN.lastIndex
      const part = TEMPLATE.exec(text)?.[0] ?? ''
      if (part.endsWith('{')) open.push(true)
      found.push({ index: TOKEN.lastIndex, part })
      TOKEN.lastIndex += part.length
    } else if (/^['"]|^\/[^/*]/.test(word)) found.push({ index: token.index, part: word })
  }
}

/** Numbers of the lines with more than `COLUMNS_MAX` characters. */
export const longLines = (text) =>
  text.split('\n').flatMap((line, index) => ([...line].length > COLUMNS_MAX ? [index + 1] : []))

/** Numbers of the lines of JavaScript that are recorded texts, long lines or not. */
export function recordedLines(text) {
  const lines = new Set()
  for (const { index, part } of literals(text)) {
    const first = text.slice(0, index).split('\n').length
    for (const [below, line] of part.split('\n').entries()) if (line.length > LITERAL_MAX) lines.add(first + below)
  }
  return lines
}

/** Names of the types that a file of Rust defines. */
export const typeNames = (text) =>
  [...text.matchAll(/^(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type|union) (\w+)/gm)].map(([, name]) => name)

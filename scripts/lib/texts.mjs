/**
 * Finds the texts that people read: literals of several words in Rust and TypeScript, sections `# Errors`, and names of
 * tests. `wrongTexts` applies the words of CONTRIBUTING.md, "Counts", to them.
 */

/** Characters of the longest name of a test. */
export const NAME_MAX = 80

const RUST =
  /\/\/.*|\/\*[^]*?\*\/|b?r(#*)"([^]*?)"\1|b?c?"((?:\\[^]|[^"\\])*)"|'(?:\\.[^']*|[^'\\\n])'/g
const PATTERN = /(?<=(?:[(,=:[!&|?{};>]|\breturn)\s*)\/(?![/*])(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//
const SCRIPT = new RegExp(String.raw`//.*|/\*[^]*?\*/|${PATTERN.source}|(['"])((?:(?!\1)[^\\\n]|\\.)*)\1|[` + '`{}]', 'g')
const TEMPLATE = /((?:[^`\\$]|\\[^]|\$(?!\{))*)(?:`|\$\{)/y

const lineOf = (text, index) => text.slice(0, index).split('\n').length

/** Literals of a file of Rust, each with its line. */
export function rustLiterals(text) {
  return [...text.matchAll(RUST)].flatMap((found) => {
    const literal = found[2] ?? found[3]
    if (literal === undefined) return []
    return [{ line: lineOf(text, found.index), text: literal.replace(/\\\n\s*/g, '').replace(/\\n|\s+/g, ' ') }]
  })
}

/** Literals of a file of TypeScript or JavaScript; a hole of a template is `{}`. */
export function scriptLiterals(text) {
  const found = []
  const open = []
  for (let token, at = 0; ; at = SCRIPT.lastIndex) {
    SCRIPT.lastIndex = at
    if ((token = SCRIPT.exec(text)) === null) break
    const [word] = token
    if (word === '{') open.push(undefined)
    else if (word === '`' || word === '}') {
      let whole = word === '`' ? { index: token.index, text: '' } : open.pop()
      if (whole === undefined) continue
      TEMPLATE.lastIndex = SCRIPT.lastIndex
      const part = TEMPLATE.exec(text)
      if (part === null) break
      whole.text += (word === '}' ? '{}' : '') + part[1]
      if (part[0].endsWith('{')) open.push(whole)
      else found.push({ line: lineOf(text, whole.index), end: TEMPLATE.lastIndex, index: whole.index, text: whole.text })
      SCRIPT.lastIndex = TEMPLATE.lastIndex
    } else if (token[2] !== undefined)
      found.push({ line: lineOf(text, token.index), index: token.index, end: SCRIPT.lastIndex, text: token[2] })
  }
  // Texts that are joined with `+` are one text.
  found.sort((a, b) => a.index - b.index)
  const joined = []
  for (const one of found) {
    const last = joined.at(-1)
    if (last !== undefined && /^\s*\+\s*$/.test(text.slice(last.end, one.index))) {
      last.text += one.text
      last.end = one.end
    } else joined.push({ ...one })
  }
  return joined.map(({ line, text }) => ({ line, text: text.replace(/\\n|\s+/g, ' ').replace(/\\(.)/g, '$1') }))
}

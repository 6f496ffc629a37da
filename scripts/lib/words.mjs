/** Finds comments, lines and names that a newcomer cannot read: CONTRIBUTING.md, "Counts", has the rules. */

export const COLUMNS_MAX = 120
/** A type name that more modules define than this says nothing about its type. */
export const MODULES_MAX = 3

/** Openings of a doc comment that only make sense with the name below it. */
const DOC_OPENINGS =
  /^(?:What|Whatever|Whoever|Whose|Whom|Of|As|That|Those|Them|Not|Nor|None|It|Its|They|Same|Also)\b(?!-)/
/** Openings of any other comment that stand for a noun. */
const OPENINGS = /^(?:What|Whatever|Whoever|Whose|Whom|Of|Those)\b(?!-)/

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

/** Numbers of the lines with more than `COLUMNS_MAX` characters. */
export const longLines = (text) =>
  text.split('\n').flatMap((line, index) => ([...line].length > COLUMNS_MAX ? [index + 1] : []))

/** Names of the types that a file of Rust defines. */
export const typeNames = (text) =>
  [...text.matchAll(/^(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type|union) (\w+)/gm)].map(([, name]) => name)

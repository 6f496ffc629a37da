/**
 * Finds texts for users that are hard to read: docs/internals/counts.md has the rules. Texts are literals of several
 * words in Rust, TypeScript and the Python runtime, texts between JSX tags, sections `# Errors`, and names of tests.
 */
import { literals } from './words.mjs'

/** Characters of the longest name of a test. */
export const NAME_MAX = 80

/** Words with a better one: docs/internals/words.md, "Verbs". A blank is `_`. */
const WORDS =
  'refus\\w* declin\\w* den(?:y|ies|ied) repl(?:y|ies|ied) answer(?!BytesMax)\\w* says? told gave given?_up behind ' +
  'gone lies whoever nobody(?!\\\\?`) let_go heard_of goes_(?:away|before|on) stands?_(?:in|for|below|beside|twice) ' +
  'asks?_(?:for|of) asked_(?:for|of)'
const DIALECT = new RegExp(`\\b(?:${WORDS.replaceAll(' ', '|').replaceAll('_', ' ')})\\b`, 'i')
/** A thing that is none, or that there is not. */
const NONE =
  /(?<![Tt]here )\b(?:is|are) (?:no|none)\b(?! longer)|\bnone of (?:ours|this)\b|\bthat there (?:is|are) not\b/
/** Triton's texts, and lists of words. */
const EXEMPT = /Connection refused|^\w+(?: \w+){99}/

/** Openings that only make sense with the text before them. */
const OPENINGS = /^(?:What(?! to)|Whatever|Whoever|Whose|Whom|Of|As|That|Those|Them|Nor|None|They|Same|Also)\b(?!-)/

/** Openings of a section `# Errors` that lead elsewhere, and texts that only name the origin of an error. */
const ERRORS = /^(?:See|Its)\b|^\S*(?:The \w+)?'s[.,]|\bwhy not\b/

const isText = (text) => (text.match(/[A-Za-z]{2,}/g)?.length ?? 0) >= 3 && /[a-z]+[,:;]? [a-z{`'"$]/.test(text)
const isUnclear = (text) => [DIALECT, NONE, OPENINGS].some((pattern) => pattern.test(text))
const isWrong = (text) => isText(text) && !text.endsWith('?') && !EXEMPT.test(text) && isUnclear(text)

const RUST =
  /\/\/.*|\breason = "[^"]*"|\/\*[^]*?\*\/|b?r(#*)"([^]*?)"\1|b?c?"((?:\\[^]|[^"\\])*)"|'(?:\\.[^']*|[^'\\\n])'/g
const PYTHON = /#.*|"""[^]*?"""|(["'])((?:(?!\1)[^\\\n]|\\.)*)\1/g
const JSX = />([^<>{}=;()]+)</g

const clean = (text) =>
  text
    .replaceAll(/\\\n\s*/g, '')
    .replaceAll(/\\n|\s+|\{[^{}]*\}/g, ' ')
    .trim()
const all = (text, pattern) => [...text.matchAll(pattern)].map((found) => found[3] ?? found[2] ?? found[1] ?? '')

/** Texts of a file, by its suffix. */
function textsOf(file, text) {
  if (file.endsWith('.rs')) return all(text, RUST)
  if (file.endsWith('.py')) return all(text, PYTHON)
  const parts = literals(text).map(({ part }) => part.replace(/^['"]|['"`]$|\$\{$/g, ''))
  return file.endsWith('.tsx') ? [...parts, ...all(text, JSX)] : parts
}

/** Texts of a file that need other words. */
export const wrongTexts = (file, text) => textsOf(file, text).map(clean).filter(isWrong)

/** Sections `# Errors` of a file of Rust that do not say which errors there are. */
export const wrongErrors = (text) =>
  [...text.replaceAll('`Gone`', '').matchAll(/\/\/[/!] # Errors\n(?:\s*\/\/[/!]\n)?\s*\/\/[/!] (.*)/g)]
    .map(([, line]) => line)
    .filter((line) => ERRORS.test(line) || isUnclear(line))

const NAMES = {
  rs: /#\[(?:\w+::)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)/g,
  py: /^\s*(?:async )?def (test_\w+)/gm,
  ts: /\b(?:test|it|describe)(?:\.\w+)*(?:\([^()]*\)|\(\[[^]*?\]\))?\(\s*(['"`])((?:(?!\1)[^\\]|\\.)*)\1/g,
}

/** Names of tests of a file that are too long. */
export function longNames(file, text) {
  const pattern = NAMES[file.split('.').at(-1)] ?? NAMES.ts
  return [...text.matchAll(pattern)].map((found) => found[2] ?? found[1]).filter((name) => name.length > NAME_MAX)
}

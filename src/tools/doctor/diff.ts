/** Changes of a file as a unified diff without context, for people and for `patch`. Pure. */

import { FILE_HEADERS_ONLY, createTwoFilesPatch } from 'diff'
import type { Edit } from './findings.js'

/** Limit of changed lines: a comparison costs their square. */
const CHANGED_LINES_MAX = 5000
const OPTIONS = { context: 0, headerOptions: FILE_HEADERS_ONLY, maxEditLength: CHANGED_LINES_MAX }

/** The patch of a file, empty if no edit applies, and the edits that apply. */
export function diffOf(path: string, text: string, edits: readonly Edit[]): { patch: string; applied: Edit[] } {
  const lines = text.split('\n')
  const changed = new Map<number, string[]>()
  const now = (line: number): string[] => changed.get(line) ?? [lines[line - 1] ?? '']
  const applied = edits.filter((edit) => {
    const { line } = edit.at
    if (line < 1 || line > lines.length) return false
    if ('throughLine' in edit)
      for (let at = line; at <= Math.min(edit.throughLine, lines.length); at += 1) changed.set(at, [])
    else if ('word' in edit) changed.set(line, withWord(now(line), edit.behind, edit.word))
    else if ('words' in edit) {
      const pattern = patternOf(edit.words)
      if (!now(line).some((one) => pattern.test(one))) return false
      changed.set(
        line,
        now(line)
          .map((one) =>
            tidy(
              one.replace(pattern, () => edit.to),
              edit.to,
            ),
          )
          .filter((one) => one !== null),
      )
    } else {
      if (!now(line).some((one) => one.includes(edit.from))) return false
      changed.set(
        line,
        now(line)
          .map((one) => tidy(replaced(one, edit.from, edit.to), edit.to))
          .filter((one) => one !== null),
      )
    }
    return true
  })
  endCommands(lines, changed)
  const fresh = lines.flatMap((_, at) => now(at + 1)).join('\n')
  if (fresh === text) return { patch: '', applied }
  const patch = createTwoFilesPatch(`a/${path}`, `b/${path}`, text, fresh, undefined, undefined, OPTIONS)
  return { patch: patch ?? `# ${path}: more than ${CHANGED_LINES_MAX} lines change; no patch is written\n`, applied }
}

const isContinued = (line: string): boolean => /\\\s*$/.test(line)

/** Takes the backslash off a line if the lines behind it that ended its command are removed. */
function endCommands(lines: readonly string[], changed: Map<number, string[]>): void {
  let last = 0
  for (const [index, line] of lines.entries()) {
    const now = changed.get(index + 1)
    if (now?.length !== 0) last = index + 1
    else if (!isContinued(line) && last > 0) {
      const [end = '', ...before] = (changed.get(last) ?? [lines[last - 1] ?? '']).toReversed()
      if (isContinued(end)) changed.set(last, [...before.toReversed(), end.replace(/\s*\\\s*$/, '')])
    }
  }
}

/** Matches words that follow each other in a line of a shell or in a list; the quotes around them are not matched. */
function patternOf(words: readonly string[]): RegExp {
  const escaped = words.map((word) => word.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`))
  const rest = /^(?:&&|;)$/.test(words.at(-1) ?? '') ? String.raw`\s*` : String.raw`(?![\w./-])`
  return new RegExp(String.raw`(?<![\w./-])${escaped.join(String.raw`["']?[\s,]*["']?`)}${rest}`)
}

/** A first word that is removed takes its space with it: the rest keeps the line's indent. */
function replaced(line: string, from: string, to: string): string {
  const isFirst = to === '' && line.trimStart().startsWith(`${from} `)
  return line.replace(isFirst ? `${from} ` : from, () => to)
}

/** The line without the syntax around a removed word; null if nothing is left. */
function tidy(line: string, put: string): string | null {
  if (put !== '') return line
  // The word was in a list in brackets, an item of a YAML list, or a line of a continued command.
  const rest = line
    .replace(/^\s*(?:ENTRYPOINT|CMD)\s+\[\s*(?:""|'')\s*\]\s*$/, '')
    .replace(/(?:""|''),\s*/, '')
    .replace(/,\s*(?:""|'')/, '')
    .replace(/(\S) {2,}(?=\S)/g, '$1 ')
    .replace(/ +$/, '')
  return /^\s*(?:-\s*)?(?:""|'')?\s*\\?\s*$/.test(rest) ? null : rest
}

/** Adds a word after another: on a line of its own in a YAML list, else on the same line. */
function withWord(lines: readonly string[], behind: string, word: string): string[] {
  return lines.flatMap((line) => {
    const at = line.lastIndexOf(behind)
    if (at < 0) return [line]
    const item = /^(\s*-\s+)(["']?)/.exec(line)
    if (item !== null) return [line, `${item[1] ?? ''}${item[2] ?? ''}${word}${item[2] ?? ''}`]
    const end = at + behind.length
    const quote = /["']/.exec(line[end] ?? '')?.[0] ?? ''
    const isListed = quote !== '' && line[at - 1] === quote && /\[/.test(line.slice(0, at))
    return [
      isListed
        ? `${line.slice(0, end)}${quote}, ${quote}${word}${line.slice(end)}`
        : `${line.slice(0, end)} ${word}${line.slice(end)}`,
    ]
  })
}

/** Prints the findings of doctor by line, then the new command line and the changes, then the totals. */

import { printable, shellWord, shown, type Format } from '../../internal.js'
import { VERDICTS, type Verdict } from './facts.js'
import type { At, Edit, Finding, Findings } from './findings.js'
import type { Start } from './judge.js'

export interface Outcome {
  findings: Findings
  starts: Start[]
  /** A diff for each file that must change. */
  diffs: string[]
  /** Edits that the diffs contain. */
  edits: Edit[]
}

const ORDER = Object.keys(VERDICTS) as Verdict[]

/** Prints the report and returns the exit code. */
export function report({ findings, starts, diffs, edits }: Outcome, format: Format): number {
  const list = sorted(findings.list)
  const { counts } = findings
  if (format === 'json') {
    const rows = list.map(({ at, ...rest }) => ({ path: at.path, line: at.line === 0 ? null : at.line, ...rest }))
    const commands = starts.map(({ name, words }) => ({ name, command: words }))
    process.stdout.write(
      `${JSON.stringify({ counts, findings: rows, commands, diffs, dropped: findings.dropped }, null, 2)}\n`,
    )
  } else process.stdout.write(text(list, starts, diffs, edits, findings))
  return counts.change + counts.impossible === 0 ? 0 : 1
}

/** Places listed on one line. */
const PLACES_MAX = 20

const touches = (edit: Edit, { path, line }: At): boolean =>
  edit.at.path === path && edit.at.line <= line && line <= ('throughLine' in edit ? edit.throughLine : edit.at.line)

/** Sorts by file in the order of reading, then by line. */
function sorted(list: readonly Finding[]): Finding[] {
  const paths = [...new Set(list.map(({ at }) => at.path))]
  return paths.flatMap((path) => list.filter(({ at }) => at.path === path).sort((a, b) => a.at.line - b.at.line))
}

function text(
  list: readonly Finding[],
  starts: readonly Start[],
  diffs: readonly string[],
  edits: readonly Edit[],
  { counts, dropped }: Findings,
): string {
  const lines: string[] = []
  let path: string | null = null
  const width = Math.max(...Object.values(VERDICTS).map((name) => name.length))
  for (const { at, subject, verdict, text: found, row } of list) {
    if (at.path !== path) lines.push(...(path === null ? [] : ['']), printable(shown(at.path)))
    path = at.path
    const details = [found, row === null ? '' : `(COMPAT.md: ${row})`].filter((part) => part !== '').join(' ')
    lines.push(
      `${(at.line === 0 ? '' : String(at.line)).padStart(5)}  ${VERDICTS[verdict].padEnd(width)} ` +
        ` ${printable(subject)}${details === '' ? '' : `: ${printable(details)}`}`,
    )
  }
  if (starts.length > 0) lines.push('', 'Starts as:')
  for (const { name, words } of starts) {
    const comment = starts.length === 1 ? '' : `   # ${printable(name)}`
    lines.push(`  ${words.map((word) => shellWord(printable(word))).join(' ')}${comment}`)
  }
  if (diffs.length > 0)
    lines.push('', 'Changes:', ...diffs.map((diff) => diff.split('\n').map(printable).join('\n').trimEnd()))
  // The report must list changes that the diff lacks.
  const byHand =
    diffs.length === 0
      ? []
      : list.filter(({ at, verdict }) => verdict === 'change' && !edits.some((edit) => touches(edit, at)))
  if (byHand.length > 0) {
    const places = [
      ...new Set(byHand.map(({ at }) => `${printable(shown(at.path))}${at.line === 0 ? '' : `:${at.line}`}`)),
    ]
    const more = places.length > PLACES_MAX ? ` and ${places.length - PLACES_MAX} more` : ''
    const first = places.slice(0, PLACES_MAX).join(', ')
    lines.push('', `Changes to make by hand: ${first}${more}`)
  }
  if (dropped > 0) lines.push('', `${dropped} more findings are not shown`)
  lines.push(
    '',
    ORDER.map((verdict) => `${counts[verdict]} ${verdict === 'differs' ? 'differ' : VERDICTS[verdict]}`).join(', '),
  )
  return `${lines.join('\n').replace(/^\n/, '')}\n`
}

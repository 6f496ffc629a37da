/** What is found, line by line, and the changes of files that follow from it. Collects; decides nothing. */

import { FACTS, type Fact, type FactName, type Verdict } from './facts.js'

/** A place in a file; line 0 where there are none, such as a directory or a command line. */
export interface At {
  path: string
  line: number
}

/** A text and where it stands. */
export interface Located {
  text: string
  at: At
  /** Not all of it is known before something runs. */
  isOpen: boolean
  /** As it is written, where variables are put in. */
  written?: string
}

export interface Finding {
  at: At
  /** What it is about, as it stands there. */
  subject: string
  verdict: Verdict
  /** What is found and what to do. */
  text: string
  /** First words of the row of COMPAT.md behind it, or null. */
  row: string | null
}

/** A change of lines of a file: text in one of them, lines that go, or one more word of a command behind another. */
export type Edit = { at: At; from: string; to: string } | { at: At; throughLine: number } | { at: At; behind: string; word: string }

/** Findings of one run that are shown, and as many again that ask for something; further ones are counted only. */
export const FINDINGS_MAX = 5000
/** Changes of files. */
export const EDITS_MAX = 500
/** Characters of a text of a file that are shown. */
const SUBJECT_CHARS_MAX = 200

export class Findings {
  readonly list: Finding[] = []
  readonly edits: Edit[] = []
  /** Of all, those that are dropped included. */
  readonly counts: Record<Verdict, number> = { same: 0, differs: 0, change: 0, impossible: 0 }
  readonly #told = new Set<string>()
  /** Left out since there were too many. */
  dropped = 0

  fact(at: At, subject: string, name: FactName, found = ''): void {
    const { verdict, row, advice }: Fact = FACTS[name]
    this.add(at, subject, verdict, [found, advice].filter((part) => part !== '').join('; '), row)
  }

  add(at: At, subject: string, verdict: Verdict, text: string, row: string | null = null): void {
    const shown = subject.length > SUBJECT_CHARS_MAX ? `${subject.slice(0, SUBJECT_CHARS_MAX)}…` : subject
    // Once is enough, also where two services share lines.
    const key = JSON.stringify([at.path, at.line, shown, text])
    if (this.#told.has(key)) return
    this.counts[verdict] += 1
    // What is dropped must not hide what has to be done.
    if (this.list.length >= (verdict === 'same' ? FINDINGS_MAX : 2 * FINDINGS_MAX)) this.dropped += 1
    else {
      this.#told.add(key)
      this.list.push({ at, subject: shown, verdict, text: text.replaceAll(/\s*\n\s*/g, ' '), row })
    }
  }

  /** What another one has collected, behind what is here. */
  take(other: Findings): void {
    for (const { at, subject, verdict, text, row } of other.list) this.add(at, subject, verdict, text, row)
    for (const edit of other.edits) this.#edit(edit)
  }

  replace(at: At, from: string, to: string): void {
    if (from !== '') this.#edit({ at, from, to })
  }

  change(edits: readonly Edit[]): void {
    for (const edit of edits) this.#edit(edit)
  }

  removeLines(at: At, throughLine: number): void {
    this.#edit({ at, throughLine })
  }

  append(at: At, behind: string, word: string): void {
    this.#edit({ at, behind, word })
  }

  #edit(edit: Edit): void {
    if (edit.at.line > 0 && this.edits.length < EDITS_MAX) this.edits.push(edit)
  }
}

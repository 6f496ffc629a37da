/** Collects findings by line, and the edits of files that follow from them. Decides nothing. */

import { FACTS, type Fact, type FactName, type Verdict } from './facts.js'

/** A place in a file; line 0 for something without lines, such as a directory or a command line. */
export interface At {
  path: string
  line: number
}

/** A text with its place. */
export interface Located {
  text: string
  at: At
  /** True if a part of it is known only at run time. */
  isOpen: boolean
  /** The spelling before variables were substituted. */
  written?: string
}

/** True if a shell, Compose, Kubernetes or a template puts a part of the text in. */
export const isOpen = (text: string): boolean => /\$[({A-Za-z]|\{\{/.test(text)

export interface Finding {
  at: At
  /** The subject as it is written in the file. */
  subject: string
  verdict: Verdict
  /** The fact and the advice. */
  text: string
  /** First words of the related row of COMPAT.md, or null. */
  row: string | null
}

/**
 * An edit of a file: replaces text in a line, or words that follow each other there, removes lines, or adds a word of a
 * command after another.
 */
export type Edit =
  | { at: At; from: string; to: string }
  | { at: At; words: readonly string[]; to: string }
  | { at: At; throughLine: number }
  | { at: At; behind: string; word: string }

/** Findings shown in one run, and as many again that require a change; further ones are only counted. */
export const FINDINGS_MAX = 5000
/** Edits of files in one run. */
export const EDITS_MAX = 500
/** Characters shown of a text from a file. */
const SUBJECT_CHARS_MAX = 200

export class Findings {
  readonly list: Finding[] = []
  readonly edits: Edit[] = []
  /** Counts of all findings, dropped ones included. */
  readonly counts: Record<Verdict, number> = { same: 0, differs: 0, change: 0, impossible: 0 }
  readonly #seen = new Set<string>()
  /** Findings over the limit. */
  dropped = 0

  fact(at: At, subject: string, name: FactName, found = ''): void {
    const { verdict, row, advice }: Fact = FACTS[name]
    this.add(at, subject, verdict, [found, advice].filter((part) => part !== '').join('; '), row)
  }

  same(at: At, subject: string, text = ''): void {
    this.add(at, subject, 'same', text)
  }

  differs(at: At, subject: string, text: string): void {
    this.add(at, subject, 'differs', text)
  }

  change(at: At, subject: string, text: string): void {
    this.add(at, subject, 'change', text)
  }

  add(at: At, subject: string, verdict: Verdict, text: string, row: string | null = null): void {
    const shown = subject.length > SUBJECT_CHARS_MAX ? `${subject.slice(0, SUBJECT_CHARS_MAX)}…` : subject
    // Report a finding once, also if two services share lines.
    const key = JSON.stringify([at.path, at.line, shown, text])
    if (this.#seen.has(key)) return
    this.counts[verdict] += 1
    // Dropped findings must not hide required changes.
    if (this.list.length >= (verdict === 'same' ? FINDINGS_MAX : 2 * FINDINGS_MAX)) this.dropped += 1
    else {
      this.#seen.add(key)
      this.list.push({ at, subject: shown, verdict, text: text.replaceAll(/\s*\n\s*/g, ' '), row })
    }
  }

  /** Appends the findings of another collection. */
  take(other: Findings): void {
    for (const { at, subject, verdict, text, row } of other.list) this.add(at, subject, verdict, text, row)
    for (const edit of other.edits) this.#edit(edit)
  }

  replace(at: At, from: string, to: string): void {
    if (from !== '') this.#edit({ at, from, to })
  }

  /** Replaces words of a command, which may be items of a list on lines of their own. */
  replaceWords(words: readonly Located[], to: string): void {
    const [first] = words
    for (const line of new Set(words.map(({ at }) => at.line))) {
      const here = words.filter(({ at }) => at.line === line)
      const written = here.map((word) => word.written ?? word.text)
      this.#edit({ at: { path: '', ...here[0]?.at, line }, words: written, to: first?.at.line === line ? to : '' })
    }
  }

  /** Removes a command, with the operator behind it. */
  removeCommand(words: readonly Located[]): void {
    const [first] = words
    if (first === undefined) return
    const written = words.map((word) => word.written ?? word.text)
    // At most one of them applies.
    for (const end of [['&&'], [';'], []]) this.#edit({ at: first.at, words: [...written, ...end], to: '' })
  }

  apply(edits: readonly Edit[]): void {
    for (const edit of edits) this.#edit(edit)
  }

  #edit(edit: Edit): void {
    if (edit.at.line > 0 && this.edits.length < EDITS_MAX) this.edits.push(edit)
  }
}

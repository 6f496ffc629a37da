/** What the scripts of all shells are made of. */

/** What may stand behind `--name=`. */
export type Values = { kind: 'none' } | { kind: 'words'; words: readonly string[] } | { kind: 'path' } | { kind: 'directory' } | { kind: 'any'; what: string }

export interface CompletedOption {
  name: string
  values: Values
  /** Its value may be left out. */
  isOptional: boolean
  meaning: string
}

export interface CompletedCommand {
  name: string
  meaning: string
  options: CompletedOption[]
  takesFlags: boolean
  words: readonly string[]
  /** Endings of files; with any, directories too. */
  files: readonly string[]
}

export interface Completed {
  flags: CompletedOption[]
  commands: CompletedCommand[]
}

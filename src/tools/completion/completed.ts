/** Input of the completion scripts of all shells. */

/** Values that can follow `--name=`. */
export type Values =
  | { kind: 'none' }
  | { kind: 'words'; words: readonly string[] }
  | { kind: 'path' }
  | { kind: 'directory' }
  | { kind: 'any'; what: string }

export interface CompletedOption {
  name: string
  values: Values
  /** The value is optional. */
  isOptional: boolean
  meaning: string
}

export interface CompletedCommand {
  name: string
  meaning: string
  options: CompletedOption[]
  takesFlags: boolean
  words: readonly string[]
  /** File name endings; with any, directories too. */
  files: readonly string[]
}

export interface Completed {
  flags: CompletedOption[]
  commands: CompletedCommand[]
}

/** Judges starts of Triton's OpenAI front end, `python3 main.py …`: its program, its set-up and its options. */

import { FRONT_END_OPTIONS, FRONT_END_PORT, frontEndAdvice } from '../../internal.js'
import type { Findings, Located } from './findings.js'
import { frontEndAt, isPython } from './programs.js'
import { lineOf } from './shell.js'

/** Judges the words of its program, which become `nereid`. */
export function judgeProgram(words: readonly Located[], findings: Findings): void {
  const end = frontEndAt(words)
  const program = words.slice(
    words.findIndex(({ text }) => isPython(text)),
    end + 1,
  )
  const [first] = program
  if (first === undefined) return
  findings.change(first.at, lineOf(program), 'is the OpenAI front end of Triton: write nereid')
  findings.replaceWords(program, 'nereid')
}

/** Characters of a command that prepares the front end; the patterns are slow for longer ones. */
const SETUP_CHARS_MAX = 1000
const SETUP = [
  /^cd (?:\S*\/)?python\/openai(?:\/\S*)?$/,
  /^(?:\S* -m )?\S*pip[\d.]* install (?:\S+ )*(?:\S*\/python\/openai\/)?requirements\.txt$/,
  /^(?:\S* -m )?\S*pip[\d.]* install (?:\S+ )*\S*\/python\/\S*\.whl$/,
]

/** True for a command that only the front end needs: the way to its directory, and its packages. */
export function isSetup(words: readonly Located[]): boolean {
  const line = lineOf(words)
  return line.length <= SETUP_CHARS_MAX && SETUP.some((pattern) => pattern.test(line))
}

export function judgeSetup(commands: readonly (readonly Located[])[], findings: Findings): void {
  for (const words of commands) {
    const [first] = words
    if (first === undefined || !isSetup(words)) continue
    findings.change(first.at, lineOf(words), 'is only for the OpenAI front end of Triton: leave it out')
    findings.removeCommand(words)
  }
}

/**
 * Judges an option that has another name here, or that is not needed.
 *
 * @param next the argument behind it
 * @returns what to write, and whether `next` is the value of the option; null for any other option
 */
export function judgeMoved(
  arg: Located,
  next: Located | undefined,
  findings: Findings,
): { kept: string[]; hasNext: boolean } | null {
  const { text, at } = arg
  const equals = text.indexOf('=')
  const name = equals < 0 ? text : text.slice(0, equals)
  const option = FRONT_END_OPTIONS.get(name.slice(2))
  if (option === undefined) return null
  const hasNext = equals < 0 && option.isSwitch !== true && next !== undefined
  const words = hasNext ? [arg, next] : [arg]
  const value = hasNext ? next.text : text.slice(equals + 1)
  findings.change(at, lineOf(words), frontEndAdvice(option))
  const [first, ...more] = option.flags
  if (first === undefined) findings.replaceWords(words, '')
  else {
    const last = words.at(-1) ?? arg
    const given = last === arg ? (arg.written ?? text).slice(equals + 1) : (last.written ?? last.text)
    for (const flag of more)
      findings.apply([{ at: last.at, behind: last.written ?? last.text, word: `--${flag}=${given}` }])
    findings.replace(at, name, `--${first}`)
  }
  return { kept: option.flags.map((flag) => `--${flag}=${value}`), hasNext }
}

/**
 * Options to add, so that the port and the errors of the front end stay.
 *
 * @param args its options as they are written
 * @param kept the options of this server that they became
 * @param program the word of the front end, for findings
 * @param last the word behind which options are added in a file; null if there is none
 */
export function frontEndDefaults(
  args: readonly Located[],
  kept: readonly string[],
  program: Located,
  last: Located | null,
  findings: Findings,
): string[] {
  const { at } = program
  const defaults = [
    ['--openai-errors=triton', 'keeps the statuses and the bodies of its errors'],
    [`--openai-port=${FRONT_END_PORT}`, 'is the port of the front end without --openai-port'],
  ] as const
  const added = defaults.filter(([word]) => !kept.some((one) => one.startsWith(word.slice(0, word.indexOf('=')))))
  for (const [word, why] of added) {
    findings.change(at, word, `add it: it ${why}`)
    if (last !== null) findings.apply([{ at: last.at, behind: last.written ?? last.text, word }])
  }
  if (!args.some(({ text }) => text === '--enable-kserve-frontends'))
    findings.differs(
      at,
      program.text,
      'opens one port only; here HTTP, gRPC and metrics have 8000, 8001 and 8002, too: --allow-http=false ' +
        '--allow-grpc=false closes the first two',
    )
  return added.map(([word]) => word).reverse()
}

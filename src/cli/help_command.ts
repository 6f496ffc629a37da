/** `nereid help`: an overview that fits a screen, and a page for each topic and command, made from the tables. */

import { COMMANDS, type Command } from './commands.js'
import { FLAGS, TOPICS, type Flag } from './flags.js'
import { usageOf } from './arguments.js'
import { describe, groupLines, helpText, placeholder, wrap } from './help.js'

/** Flags of most command lines; topics have the others. */
const USUAL = ['model-repository', 'http-port', 'grpc-port', 'metrics-port', 'log-verbose', 'config', 'version']
/** Width of the name column. */
const NAMES = 12
const WIDTH = 92

const TABLE: readonly Flag[] = FLAGS

export async function run(program: string, args: readonly string[]): Promise<number> {
  const [topicName] = args
  const text = topicName === undefined ? overviewText(program) : pageText(program, topicName)
  if (text !== null) {
    process.stdout.write(text)
    return 0
  }
  const names = ['all', 'serve', ...TOPICS.map((topic) => topic.name), ...COMMANDS.map((command) => command.name)]
  process.stderr.write(`error: there is no help on '${topicName}'; there is on ${names.join(', ')}\n`)
  return 1
}

/** Output of `nereid --help`. */
function overviewText(program: string): string {
  const usual = USUAL.flatMap((name) => TABLE.filter((flag) => flag.name === name))
  return lines([
    `Usage: ${program} [serve] --model-repository=<path> [options]`,
    `       ${program} COMMAND ...`,
    '',
    'Serves models over the network API of Triton Inference Server: HTTP on port 8000, gRPC on 8001,',
    'metrics on 8002.',
    '',
    'Commands:',
    ...COMMANDS.flatMap(({ name, meaning }) => entry(name, firstSentence(meaning))),
    '',
    'Usual options:',
    ...usual.flatMap((flag) => [
      `  --${flag.name}${placeholder(flag)}`,
      ...indented(describe({ ...flag, meaning: firstSentence(flag.meaning) })),
    ]),
    '',
    `More options by topic, printed by "${program} help TOPIC":`,
    ...TOPICS.flatMap(({ name, about }) => entry(name, about)),
    ...entry('all', 'every option'),
  ])
}

/** The page of a topic or a command; null if there is none. */
function pageText(program: string, topicName: string): string | null {
  if (topicName === 'all' || topicName === 'serve') return helpText(program)
  const topic = TOPICS.find(({ name }) => name === topicName.toLowerCase())
  if (topic !== undefined) return lines(groupLines(topic.group))
  const command = COMMANDS.find(({ name }) => name === topicName)
  return command === undefined ? null : commandText(program, command)
}

function commandText(program: string, command: Command): string {
  const { meaning, options = [], takesFlags } = command
  return lines([
    usageOf(program, command),
    '',
    ...wrap(meaning, WIDTH),
    ...(options.length === 0 ? [] : ['', 'Options:']),
    ...options.flatMap((option) => {
      const value =
        option.value === undefined
          ? ''
          : option.isValueOptional === true
            ? `[=<${option.value}>]`
            : `=<${option.value}>`
      return [`  --${option.name}${value}`, ...indented(option.meaning)]
    }),
    ...(takesFlags === true ? ['', `It also takes the options of the server: ${program} help`] : []),
  ])
}

function entry(name: string, text: string): string[] {
  const [first = '', ...more] = wrap(text, WIDTH - NAMES)
  return [`  ${name.padEnd(NAMES)} ${first}`, ...more.map((line) => `  ${' '.repeat(NAMES)} ${line}`)]
}

function indented(text: string): string[] {
  return wrap(text, WIDTH).map((line) => `        ${line}`)
}

function firstSentence(text: string): string {
  return /^.*?\.(?= |$)/.exec(text)?.[0] ?? text
}

function lines(all: readonly string[]): string {
  return `${all.join('\n')}\n`
}

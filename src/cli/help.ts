/** `--help` and `docs/flags.md`, both made from the flags table. */

import { COMMANDS } from './commands.js'
import { FLAGS, GROUPS, type Flag, type Group } from './flags.js'

const TABLE: readonly Flag[] = FLAGS

/** One line that precedes an error. */
export function usageLine(program: string): string {
  return `Usage: ${program} [serve] --model-repository=<path> [options]   (${program} --help lists the options)`
}

/** The whole usage text in lines of at most 100 columns. */
export function helpText(program: string): string {
  const lines = [`Usage: ${program} [serve] --model-repository=<path> [options]`]
  for (const { name, usage, meaning } of COMMANDS)
    lines.push(`       ${program} ${name} ${usage}`.trimEnd(), ...wrap(meaning, 92).map((line) => `        ${line}`))
  for (const group of GROUPS) lines.push('', ...groupLines(group))
  return `${lines.join('\n')}\n`
}

/** A group of options with its heading. */
export function groupLines(group: Group): string[] {
  const lines = [`${group}:`]
  for (const flag of TABLE.filter((f) => f.group === group)) {
    for (const name of [flag.name, ...(flag.aliases ?? [])]) lines.push(`  --${name}${placeholder(flag)}`)
    lines.push(...wrap(describe(flag), 92).map((line) => `        ${line}`))
  }
  return lines
}

/** The page docs/flags.md. */
export function flagsMarkdown(): string {
  const lines = [
    '# Command-line options',
    '',
    '<!-- Made from src/cli/flags.ts; run the tests of test/cli with `-u` after a change there. -->',
    '',
    'This page lists every option of the server. Write options as `--name=value` or `--name value`; booleans ' +
      'take true, false, on, off, 1 or 0, and bytes a unit of k, m, g or t, each',
    '1024 of the one before: `2g`, `512MiB`. An unknown option ends the process. The in-process API takes the ' +
      'same options in camelCase. Options marked *accepted* are ' +
      'checked and',
    'have no effect in this release; the server names them once at start.',
    ...SOURCES,
  ]
  for (const group of GROUPS) {
    lines.push('', `## ${group}`, '', '| option | default | meaning |', '|---|---|---|')
    for (const flag of TABLE.filter((f) => f.group === group)) {
      const names = [flag.name, ...(flag.aliases ?? [])].map((name) => `\`--${name}${placeholder(flag)}\``).join(', ')
      const state = flag.state === 'accepted' ? ' *accepted*' : ''
      const repeatable = flag.list === true ? ' Repeatable.' : ''
      const cells = [names, defaultText(flag), `${flag.meaning}${repeatable}${state}`]
      lines.push(`| ${cells.map((cell) => cell.replace(/\|/g, '\\|')).join(' | ')} |`)
    }
  }
  return `${lines.join('\n')}\n`
}

const SOURCES = [
  '',
  '## Variables and a file',
  '',
  'An option can also come from an environment variable or from a file. The command line takes precedence ' +
    'over a variable, a variable over the file, and the file',
  'over the default. A repeatable option takes its whole list from the first of these sources that sets it. ' +
    '`nereid config` prints the effective options and the source',
  'of each; its output is such a file, with defaults in comments. `nereid`, `tritonserver`, `nereid check`, ' +
    '`nereid gpu` and `nereid config` read both; the in-process API',
  'reads neither.',
  '',
  '- **Variables** have the prefix `NEREID_` and the name of the option in capitals, with `_` for `-`: ' +
    '`NEREID_HTTP_PORT=9000`. A repeatable option has a value on',
  "  each line: `NEREID_MODEL_REPOSITORY=$'/models\\n/more'` in bash, `value: |` in YAML. An empty variable " +
    'counts as unset. A switch takes true or false.',
  '  `--help` and `--version` have no variable. The server ignores unknown variables, and warns about a name ' +
    'that is similar to an option. Processes of Python',
  '  models inherit the variables of the server, so keep secrets (`--http-restricted-api`) in the file.',
  '- In **Kubernetes**, a Service named `nereid-http` sets `NEREID_HTTP_PORT=tcp://10.0.0.1:8000` in the ' +
    'pods of its namespace. The server ignores values with `tcp://`,',
  '  `udp://` or `sctp://`, with a warning; `enableServiceLinks: false` in the pod prevents them.',
  '- **The file** is set by `--config` or `NEREID_CONFIG`. It is YAML in UTF-8, up to 64 KiB. Its keys are ' +
    'the names of options, and a repeatable option has a list (or one value).',
  '  Values are read as on the command line, and relative paths start at the working directory. Unknown or ' +
    'repeated keys, keys without a value, maps, and aliases are',
  '  errors with the line.',
  '',
  '```yaml',
  'model-repository:',
  '  - /models',
  '  - /more',
  'model-control-mode: explicit',
  'http-port: 9000',
  'log-format: json',
  '```',
]

/** Placeholder after the name of an option: `=<integer>`, or empty. */
export function placeholder(flag: Flag): string {
  switch (flag.kind) {
    case 'switch':
      return ''
    case 'boolean':
      return '=<boolean>'
    case 'integer':
    case 'bytes':
    case 'number':
      return `=<${flag.kind}>`
    case 'verbosity':
      return '=<integer or boolean>'
    case 'string':
      return `=<${flag.value}>`
    case 'choice':
      return `=<${flag.choices.join('|')}>`
  }
}

function defaultText(flag: Flag): string {
  if (flag.kind === 'switch' || flag.list === true || flag.default === null || flag.default === '') return ''
  return String(flag.default)
}

/** The meaning with the default. */
export function describe(flag: Flag): string {
  const shown = defaultText(flag)
  return [
    flag.meaning,
    flag.list === true ? 'Repeatable.' : '',
    shown === '' ? '' : `Default: ${shown}.`,
    flag.state === 'accepted' ? '[accepted, not active]' : '',
  ]
    .filter((part) => part !== '')
    .join(' ')
}

/** Breaks words into lines of at most `width` columns. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else {
      line = line === '' ? word : `${line} ${word}`
    }
  }
  return line === '' ? lines : [...lines, line]
}

/**
 * `nereid config`: prints every option with the value that a server started here and now would use, and with its
 * origin. Starts no server. The output is a file for `--config`, in which defaults and masked secrets are comments.
 *
 * Exit code 0 if a server would accept the options; 1 otherwise.
 */

import {
  FLAGS,
  OptionError,
  commandNamed,
  optionName,
  readArguments,
  readOptions,
  resolveSettings,
  type Flag,
  type Parsed,
} from '../../internal.js'

interface Row {
  name: string
  /** Secrets are masked; null if the option has no value and no default. */
  value: unknown
  from: string
  isMasked: boolean
  /** True if it differs from the default and may be in a file. */
  isForFile: boolean
}

const TABLE: readonly Flag[] = FLAGS
const MASK = '********'

export async function run(_program: string, args: readonly string[]): Promise<number> {
  try {
    const own = readArguments(commandNamed('config'), args)
    const parsed = await readOptions(own.rest, process.env)
    const rows = rowsOf(parsed)
    process.stdout.write(
      own.options.get('format') === 'json'
        ? `${JSON.stringify(rows, ['name', 'value', 'from', 'isMasked'], 2)}\n`
        : textOf(rows),
    )
    // The other rules apply without a repository, too; then only given options are shown.
    const isComplete = parsed.options.modelRepository.length > 0
    const { warnings } = resolveSettings(
      isComplete ? parsed : { ...parsed, options: { ...parsed.options, modelRepository: ['.'] } },
    )
    for (const warning of warnings) process.stderr.write(`${warning}\n`)
    return 0
  } catch (error) {
    if (!(error instanceof OptionError)) throw error
    process.stderr.write(`${error.message}\n`)
    return 1
  }
}

function rowsOf({ options, given }: Parsed): Row[] {
  return TABLE.filter((flag) => flag.outside !== 'nowhere').map((flag) => {
    const value = options[optionName(flag.name)]
    const shown = Array.isArray(value)
      ? value.map((one) => masked(flag, String(one)))
      : typeof value === 'string'
        ? masked(flag, value)
        : value
    return {
      name: flag.name,
      value: shown,
      from: given.get(flag.name) ?? 'default',
      isMasked: JSON.stringify(shown) !== JSON.stringify(value),
      isForFile: flag.outside === undefined && given.has(flag.name),
    }
  })
}

/** Masks secrets: client keys, passwords, and keys in settings of any backend. */
function masked(flag: Flag, text: string): string {
  const words = flag.kind === 'string' && flag.words !== undefined
  const all = words ? /^(\S+ \S+ ).*$/s : /^([^=]*=).*$/s
  const secret = flag.isSecret === true ? all : /((?:password|passwd|secret|token|key)=).*$/is
  return text.replace(secret, `$1${MASK}`).replaceAll(/(\w:\/\/)[^/@\s]*@/g, `$1${MASK}@`)
}

function textOf(rows: readonly Row[]): string {
  return rows
    .map(
      (row) =>
        `${linesOf(row)
          .map((line) => (row.isMasked || !row.isForFile ? `# ${line}` : line))
          .join('\n')}\n`,
    )
    .join('')
}

function linesOf({ name, value, from }: Row): string[] {
  if (value === null || (Array.isArray(value) && value.length === 0)) return [`${name}:  # ${from}`]
  if (Array.isArray(value)) return [`${name}:  # ${from}`, ...value.map((one) => `  - ${scalar(one)}`)]
  return [`${name}: ${scalar(value)}  # ${from}`]
}

/** A value in YAML. JSON is YAML; a word that both read as a string needs no quotes. */
function scalar(value: unknown): string {
  const text = String(value)
  if (typeof value !== 'string') return text
  return /^[A-Za-z/][\w./@-]*$/.test(text) && !/^(?:true|false|null|yes|no|on|off|y|n)$/i.test(text)
    ? text
    : JSON.stringify(text)
}

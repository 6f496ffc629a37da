/** `docs/nereid.1`, the manual page, made from the tables of flags and commands. A test of test/cli writes it. */

import { COMMANDS } from './commands.js'
import { FLAGS, GROUPS, type Flag } from './flags.js'
import { describe } from './help.js'

/** Date of the last change to the hand-written parts. */
const DATE = '2026-11-26'
const TABLE: readonly Flag[] = FLAGS

const ENVIRONMENT: readonly [name: string, meaning: string][] = [
  [
    'NEREID_HTTP_PORT and the like',
    'Values of options: NEREID_ and the name in capitals with _ for -, such as NEREID_CONFIG for --config; a ' +
      'repeatable option has a value on each line. The command line takes precedence over them, and they take ' +
      'precedence over the file of --config.',
  ],
  ['NEREID_PYTHON, VIRTUAL_ENV, CONDA_PREFIX', 'The interpreter of Python models, instead of python3 on PATH.'],
  ['OTEL_*', 'Settings of the exporter of spans; --trace-config takes precedence.'],
  ['TRITONCACHE_REDIS_USERNAME, TRITONCACHE_REDIS_PASSWORD', 'User name and password for the Redis of --cache-config.'],
  ['TRITON_SERVER_ESCAPE_LOG_MESSAGES', '0 writes control characters in log messages unescaped.'],
  ['NOTIFY_SOCKET, WATCHDOG_USEC', 'Socket for messages to systemd: that the server is ready, stopping and alive.'],
  [
    'LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES',
    'Sockets that systemd opened. Their names are http, grpc or metrics; a socket without such a name is ' +
      'recognised by its port.',
  ],
]

const EXAMPLES: readonly [command: string, meaning: string][] = [
  ['nereid init resnet.onnx', 'Make a model repository from a model, and print a request to it.'],
  ['nereid --model-repository=models', 'Serve it: HTTP on port 8000, gRPC on 8001, metrics on 8002.'],
  ['nereid config', 'Print every option and its source.'],
  ['nereid check models', 'Print the mistakes of its configurations.'],
]

/** The page in man macros. */
export function manPage(): string {
  const lines = [
    '.\\" Made from src/cli/flags.ts and src/cli/commands.ts;',
    '.\\" run the tests of test/cli with `-u` after a change there.',
    `.TH NEREID 1 ${DATE} Nereid`,
    '.SH NAME',
    'nereid, tritonserver \\- inference server with the network API of Triton',
    '.SH SYNOPSIS',
    ...['[\\fBserve\\fR] \\fB\\-\\-model\\-repository=\\fIpath\\fR [\\fIoption\\fR ...]', '\\fIcommand\\fR ...']
      .flatMap((usage) => [`.B nereid`, usage, '.br'])
      .slice(0, -1),
    '.SH DESCRIPTION',
    ...text(
      'Serves the models of a model repository over HTTP, gRPC and shared memory, as NVIDIA Triton Inference ' +
        'Server does: same API, same repository, same options.',
    ),
    '.PP',
    ...text(
      'Options are written --name=value or --name value; booleans take true, false, on, off, 1 or 0. A name may ' +
        'be shortened as long as it fits only one option.',
    ),
    '.SH COMMANDS',
  ]
  for (const { name, usage, meaning, options = [], takesFlags } of COMMANDS) {
    lines.push('.TP', `.B nereid ${escaped(name)}${usage === '' ? '' : ` \\fR${escaped(usage)}`}`, ...text(meaning))
    if (options.length > 0) {
      lines.push('.RS')
      for (const option of options) {
        const value =
          option.value === undefined ? '' : option.isValueOptional === true ? `[=${option.value}]` : `=${option.value}`
        lines.push('.TP', `.B ${escaped(`--${option.name}`)}\\fI${escaped(value)}\\fR`, ...text(option.meaning))
      }
      lines.push('.RE')
    }
    if (takesFlags === true) lines.push('.RS', '.PP', 'It also takes the options below.', '.RE')
  }
  lines.push('.SH OPTIONS')
  for (const group of GROUPS) {
    lines.push(`.SS ${escaped(group)}`)
    for (const flag of TABLE.filter((f) => f.group === group)) {
      const names = [flag.name, ...(flag.aliases ?? [])].map(
        (name) => `${escaped(`--${name}`)}\\fI${escaped(valueOf(flag))}\\fB`,
      )
      lines.push('.TP', `.B ${names.join(', ')}`, ...text(describe(flag)))
    }
  }
  lines.push('.SH ENVIRONMENT')
  for (const [name, meaning] of ENVIRONMENT) lines.push('.TP', `.B ${escaped(name)}`, ...text(meaning))
  lines.push(
    '.SH SIGNALS',
    ...text(
      'SIGTERM and SIGINT end the server: it reports not ready at once; after SIGTERM it accepts new requests for ' +
        '--exit-grace-secs; it completes requests in flight for up to --exit-timeout-secs, and ends. A second ' +
        'signal ends it at once.',
    ),
    '.SH EXIT STATUS',
    '.TP',
    '.B 0',
    ...text('The server completed all requests; a command succeeded and found no mistakes.'),
    '.TP',
    '.B 1',
    ...text(
      'The command line or a model is wrong, a port is taken, or requests were left after --exit-timeout-secs. ' +
        'tritonserver --help returns it too, as scripts expect; nereid --help returns 0.',
    ),
    '.SH EXAMPLES',
  )
  for (const [command, meaning] of EXAMPLES) lines.push('.TP', `.B ${escaped(command)}`, ...text(meaning))
  return `${lines.join('\n')}\n`
}

function valueOf(flag: Flag): string {
  if (flag.kind === 'switch') return ''
  if (flag.kind === 'string') return `=${flag.value}`
  return flag.kind === 'choice' ? `=${flag.choices.join('|')}` : `=${flag.kind}`
}

/** A line of text; one that would start a roff request is escaped. */
function text(words: string): string[] {
  // Roff fills lines itself; short ones help readers of the file, and its checkers.
  const lines: string[] = []
  for (const word of words.split(' ')) {
    const last = lines.at(-1)
    if (last === undefined || escaped(`${last} ${word}`).length > 79 || /[.!?:]$/.test(last)) lines.push(word)
    else lines[lines.length - 1] = `${last} ${word}`
  }
  return lines.map((line) => escaped(line).replace(/^[.']/, '\\&$&'))
}

function escaped(words: string): string {
  return words
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('"', '\\(dq')
    .replaceAll('~', '\\(ti')
    .replaceAll('^', '\\(ha')
}

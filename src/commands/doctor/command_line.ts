/** Judges the flags of a server's command line against the flags table. */

import type { Flag } from '../../cli/flags.js'
import { OptionError, findFlag, parseArguments } from '../../cli/parse.js'
import { resolveSettings } from '../../cli/settings.js'
import { schemeOf, writtenScheme } from '../../stores/client.js'
import { backendMeant, absentBackend } from '../../config/index.js'
import type { FactName } from './facts.js'
import type { Findings, Located } from './findings.js'
import { serverAt } from './programs.js'
import { ShellError, shellCommands } from './shell.js'

/** Words of one command line that are read. */
export const ARGUMENTS_MAX = 1000
/** Nesting of `sh -c`. */
const SHELLS_MAX = 10

/** The corrected command line. */
export interface JudgedArguments {
  /** Arguments that Nereid accepts, corrected. */
  kept: string[]
  /** Values of --model-repository, places in clouds included. */
  repositories: Located[]
  /** The last word that stays, as it is written; null if none does. */
  last: Located | null
}

/** Flags that have a fact of their own; the table describes the others. The value is null if it is unknown. */
const SPECIAL: Readonly<Record<string, (value: string | null) => FactName | null>> = {
  'allow-sagemaker': (value) => (isOff(value) ? null : 'frontEnds'),
  'allow-vertex-ai': (value) => (isOff(value) ? null : 'frontEnds'),
  'model-repository': (value) =>
    value === null || writtenScheme(value) === null ? null : schemeOf(value) === null ? 'storage' : 'cloud',
  'cuda-virtual-address-size': () => 'noEffect',
  'http-thread-count': () => 'threads',
  'grpc-infer-thread-count': () => 'threads',
  'backend-directory': () => 'backends',
  'repoagent-directory': () => 'agents',
  'backend-config': backendConfig,
  'cache-config': (value) =>
    value === null
      ? null
      : /^redis,(?:tls_enabled|cert|key|cacert|cacert_dir|sni)=/.test(value)
        ? 'cacheTls'
        : value.startsWith('redis,')
          ? 'redis'
          : null,
  'trace-config': (value) => (value === 'mode=opentelemetry' ? 'otel' : null),
  'metrics-config': (value) => (value === 'counter_latencies=false' ? 'latencyCounters' : null),
}

const isOff = (value: string | null): boolean => value !== null && /^(?:false|off|0)$/i.test(value)

function backendConfig(value: string | null): FactName | null {
  const [, backend = '', key = ''] = /^([^,=]*),([^=]*)=/.exec(value ?? '') ?? []
  if (backend === 'python' && /^(?:shm-region-prefix-name|shm_message_queue_size|thread-pool-size)$/.test(key))
    return 'shmKeys'
  const meant = backendMeant(backend)
  return meant !== null && absentBackend(meant) !== null ? 'backends' : null
}

/** The command in `sh -c '…'` that starts a server; null if the words are no such call or its script starts none. */
export function inShell(argv: readonly Located[], depth = 0): Located[] | null {
  const shell = argv.findIndex(({ text }) => /(?:^|\/)(?:ba|da|z|k)?sh$/.test(text))
  const option = shell < 0 ? -1 : argv.findIndex(({ text }, i) => i > shell && /^-[a-z]*c$/.test(text))
  const script = option < 0 ? undefined : argv[option + 1]
  if (script === undefined || depth > SHELLS_MAX) return null
  for (const { words } of scriptOf(script)) {
    if (serverAt(words) >= 0) return words
    const inner = inShell(words, depth + 1)
    if (inner !== null) return inner
  }
  return null
}

/** Arguments of the server in a command such as `tritonserver …` or `sh -c '…'`; null if it starts none. */
export function serverArguments(argv: readonly Located[]): Located[] | null {
  const words = inShell(argv) ?? argv
  const at = serverAt(words)
  if (at < 0) return null
  const args = words.slice(at + 1)
  // A colon of mpirun separates the processes that it starts.
  const colon = args.findIndex(({ text }) => text === ':')
  return colon < 0 ? args : args.slice(0, colon)
}

/** Judges the packages that commands install before the server starts. */
export function judgeInstalls(commands: readonly (readonly Located[])[], findings: Findings): void {
  for (const words of commands) {
    const [first] = words
    const subject = words.map(({ text }) => text).join(' ')
    if (first === undefined) continue
    if (INSTALLS_PACKAGES.test(subject)) {
      findings.add(
        first.at,
        subject,
        'same',
        'packages for Python models, at each start: it needs the network, and a writable file system; RUN pip ' +
          'install in an image of your own does it once',
      )
    } else if (/^(?:sudo )?(?:apt|apt-get|apk|yum|dnf) /.test(subject)) {
      findings.add(
        first.at,
        subject,
        'change',
        'the image runs as a user without rights: install it in an image of your own, with USER root before ' +
          'and USER 1000 after it',
      )
    }
  }
}

/** Commands that install Python packages. */
export const INSTALLS_PACKAGES =
  /^(?:sudo )?(?:\S+ -m )?(?:\S*\/)?(?:pip[\d.]*|uv pip|uv|conda|mamba|poetry) (?:\S+ )*?(?:install|sync|add)\b/

/** The commands of `sh -c`, or the words as one command. */
export function commandsOf(argv: readonly Located[], depth = 0): Located[][] {
  const shell = argv.findIndex(({ text }) => /(?:^|\/)(?:ba|da|z|k)?sh$/.test(text))
  const option = shell < 0 ? -1 : argv.findIndex(({ text }, i) => i > shell && /^-[a-z]*c$/.test(text))
  const script = option < 0 ? undefined : argv[option + 1]
  if (script === undefined || depth > SHELLS_MAX) return [[...argv]]
  return scriptOf(script).flatMap(({ words }) => commandsOf(words, depth + 1))
}

/** Judges programs of Triton's image that Nereid's image lacks or has elsewhere. */
export function judgePrograms(argv: readonly Located[], findings: Findings, hasBusybox: boolean): void {
  for (const { text, at, written } of argv) {
    if (hasBusybox && /^(?:\/(?:usr\/)?bin\/)?bash$/.test(text)) {
      findings.add(at, text, 'change', 'is not in the image: write sh')
      findings.replace(at, written ?? text, text.replace('bash', 'sh'))
      continue
    }
    if (/^\/opt\/nvidia\/\S*entrypoint\S*$/.test(text)) {
      findings.add(at, text, 'change', 'is a program of that image: leave it out')
      findings.replace(at, written ?? text, '')
    } else if (/^\/\S*\/tritonserver$/.test(text) && text !== '/opt/tritonserver/bin/tritonserver') {
      findings.add(at, text, 'change', 'is on PATH: write tritonserver')
      findings.replace(at, written ?? text, 'tritonserver')
    }
  }
}

function scriptOf(script: Located): { words: Located[] }[] {
  try {
    return shellCommands(script.text, new Map(), script.at.line).map(({ words }) => ({
      words: words.map(({ text, line, isOpen }) => ({
        text,
        isOpen,
        at: { path: script.at.path, line: script.at.line === 0 ? 0 : line },
      })),
    }))
  } catch (error) {
    if (error instanceof ShellError) return []
    throw error
  }
}

/** Judges every flag; `args` follow the name of the program. */
export function judgeArguments(args: readonly Located[], findings: Findings): JudgedArguments {
  const kept: string[] = []
  const repositories: Located[] = []
  let last: Located | null = null
  for (let i = 0; i < args.length; i += 1) {
    const arg = args[i]
    if (arg === undefined) break
    const { text, at } = arg
    if (i >= ARGUMENTS_MAX) {
      findings.add(at, text, 'change', `the command line has ${args.length} words: at most ${ARGUMENTS_MAX} are read`)
      break
    }
    const equals = text.indexOf('=')
    const name = text.slice(2, equals < 0 ? undefined : equals)
    if (!text.startsWith('--') || text === '--') {
      // The value comes from a shell and is unknown.
      if (arg.isOpen) {
        findings.add(at, text, 'same', 'is known only at run time; check its value then')
        kept.push(text)
      } else findings.add(at, text, 'change', 'is not an option of the server: leave it out')
      continue
    }
    let flag: Flag
    try {
      flag = findFlag(name)
    } catch (error) {
      if (!(error instanceof OptionError)) throw error
      const near = /did you mean '--([^']+)'/.exec(error.message)?.[1]
      findings.add(at, text, 'change', `${error.message}${near === undefined ? '; leave it out' : ''}`)
      const fixed = near === undefined ? '' : `--${near}${equals < 0 ? '' : text.slice(equals)}`
      findings.replace(at, text, fixed)
      const next = args[i + 1]
      const hasValue = equals < 0 && next !== undefined && !next.text.startsWith('--')
      if (fixed !== '') kept.push(fixed)
      if (hasValue) {
        if (fixed !== '') kept.push(next.text)
        i += 1
      }
      continue
    }
    let value = equals < 0 ? null : { ...arg, text: text.slice(equals + 1) }
    const words = [text]
    if (value === null && flag.kind !== 'switch') {
      value = args[i + 1] ?? null
      if (value !== null) words.push(value.text)
      i += 1
    }
    if (!judgeFlag(flag, words, value, arg, findings)) continue
    kept.push(...words)
    last = words.length > 1 ? value : arg
    if (flag.name === 'model-repository' && value !== null) repositories.push(value)
  }
  if (args.every((arg) => !arg.isOpen) && repositories.length > 0)
    judgeTogether(kept, args[0]?.at ?? { path: '', line: 0 }, findings)
  return { kept, repositories, last }
}

/** True if the flag stays. */
function judgeFlag(
  flag: Flag,
  words: readonly string[],
  value: Located | null,
  arg: Located,
  findings: Findings,
): boolean {
  const { at } = arg
  const subject = words.join(' ')
  const isOpen = arg.isOpen || value?.isOpen === true
  if (!isOpen) {
    try {
      parseArguments(words)
    } catch (error) {
      if (!(error instanceof OptionError)) throw error
      findings.add(at, subject, 'change', error.message.replace(/^Bad option: [^\n]*\n/, ''))
      return false
    }
  }
  const name = Object.hasOwn(SPECIAL, flag.name)
    ? (SPECIAL[flag.name]?.(isOpen ? null : (value?.text ?? null)) ?? null)
    : null
  if (name !== null) {
    const found = flag.state === 'active' && name !== 'storage' ? 'works' : ''
    findings.fact(at, subject, name, name === 'backends' || name === 'shmKeys' ? '' : found)
    const isRemoved = name === 'cacheTls'
    if (isRemoved) for (const word of words) findings.replace(at, word, '')
    return !isRemoved && name !== 'storage'
  }
  if (flag.state === 'accepted') findings.fact(at, subject, 'noEffect')
  else if (flag.group === 'Deprecated') findings.add(at, subject, 'same', `works. ${flag.meaning}`)
  else findings.add(at, subject, 'same', isOpen ? 'its value is known only at run time' : '')
  return true
}

/** Applies the rules between flags, as a start does. */
function judgeTogether(kept: readonly string[], at: Located['at'], findings: Findings): void {
  try {
    resolveSettings(parseArguments(kept), {})
  } catch (error) {
    if (!(error instanceof OptionError)) throw error
    findings.add(at, 'the options together', 'change', error.message.replace(/^Bad option: [^\n]*\n/, ''))
  }
}

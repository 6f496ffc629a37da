/** Judges the flags of a server's command line against the flags table. */

import {
  OptionError,
  absentBackend,
  backendMeant,
  findFlag,
  parseArguments,
  resolveSettings,
  schemeOf,
  statIfAny,
  writtenScheme,
  type Flag,
} from '../../internal.js'
import type { FactName } from './facts.js'
import type { Findings, Located } from './findings.js'
import { frontEndDefaults, judgeMoved } from './front_end.js'
import { serverAt } from './programs.js'
import { commandsAt, lineOf } from './shell.js'

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
  tokenizer: (value) => (value !== null && isHubName(value) ? 'hubTokenizer' : null),
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

/** True for `name` or `owner/name` of Hugging Face, and false for paths. */
const isHubName = (text: string): boolean =>
  /^[\w-][\w.-]*(?:\/[\w-][\w.-]*)?$/.test(text) && statIfAny(text)?.isDirectory() !== true

const isOff = (value: string | null): boolean => value !== null && /^(?:false|off|0)$/i.test(value)

function backendConfig(value: string | null): FactName | null {
  const [, backend = '', key = ''] = /^([^,=]*),([^=]*)=/.exec(value ?? '') ?? []
  if (backend === 'python' && /^(?:shm-region-prefix-name|shm_message_queue_size|thread-pool-size)$/.test(key))
    return 'shmKeys'
  const meant = backendMeant(backend)
  return meant !== null && absentBackend(meant) !== null ? 'backends' : null
}

/** The command in `sh -c '…'` that starts a server, or the words themselves. */
export function inShell(argv: readonly Located[]): readonly Located[] {
  return commandsOf(argv).find((words) => serverAt(words) >= 0) ?? argv
}

/** Arguments of the server in a command such as `tritonserver …` or `sh -c '…'`; null if it starts none. */
export function serverArguments(argv: readonly Located[]): Located[] | null {
  const words = inShell(argv)
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
    const subject = lineOf(words)
    if (first === undefined) continue
    if (installsPackages(words)) {
      findings.same(
        first.at,
        subject,
        'packages for Python models, at each start: it needs the network, and a writable file system; RUN pip ' +
          'install in an image of your own does it once',
      )
    } else if (/^(?:sudo )?(?:apt|apt-get|apk|yum|dnf) /.test(subject)) {
      findings.change(
        first.at,
        subject,
        'the image runs as a user without rights: install it in an image of your own, with USER root before ' +
          'and USER 1000 after it',
      )
    }
  }
}

/** True for a command that installs Python packages. */
export const installsPackages = (words: readonly Located[]): boolean => INSTALLS_PACKAGES.test(lineOf(words))

const INSTALLS_PACKAGES =
  /^(?:sudo )?(?:\S+ -m )?(?:\S*\/)?(?:pip[\d.]*|uv pip|uv|conda|mamba|poetry) (?:\S+ )*?(?:install|sync|add)\b/

/** The commands of `sh -c`, or the words as one command. */
export function commandsOf(argv: readonly Located[], depth = 0): Located[][] {
  const shell = argv.findIndex(({ text }) => /(?:^|\/)(?:ba|da|z|k)?sh$/.test(text))
  const option = shell < 0 ? -1 : argv.findIndex(({ text }, i) => i > shell && /^-[a-z]*c$/.test(text))
  const script = option < 0 ? undefined : argv[option + 1]
  if (script === undefined || depth > SHELLS_MAX) return [[...argv]]
  return commandsAt(script.text, script.at).flatMap((words) => commandsOf(words, depth + 1))
}

/** Judges programs of Triton's image that Nereid's image lacks or has elsewhere. */
export function judgePrograms(argv: readonly Located[], findings: Findings, hasBusybox: boolean): void {
  for (const { text, at, written = text } of argv) {
    const change = (advice: string, to: string): void => {
      findings.change(at, text, advice)
      findings.replace(at, written, to)
    }
    if (hasBusybox && /^(?:\/(?:usr\/)?bin\/)?bash$/.test(text))
      change('is not in the image: write sh', text.replace('bash', 'sh'))
    else if (/^\/opt\/nvidia\/\S*entrypoint\S*$/.test(text)) change('is a program of that image: leave it out', '')
    else if (/^\/\S*\/tritonserver$/.test(text) && text !== '/opt/tritonserver/bin/tritonserver')
      change('is on PATH: write tritonserver', 'tritonserver')
  }
}

/**
 * Judges every flag; `args` follow the name of the program.
 *
 * @param frontEnd the program, if it is Triton's OpenAI front end
 */
export function judgeArguments(
  args: readonly Located[],
  findings: Findings,
  frontEnd: Located | null = null,
): JudgedArguments {
  const kept: string[] = []
  const repositories: Located[] = []
  let last: Located | null = null
  for (let i = 0; i < args.length; i += 1) {
    const arg = args[i]
    if (arg === undefined) break
    const { text, at } = arg
    if (i >= ARGUMENTS_MAX) {
      findings.change(at, text, `the command line has ${args.length} words: at most ${ARGUMENTS_MAX} are read`)
      break
    }
    const equals = text.indexOf('=')
    const name = text.slice(2, equals < 0 ? undefined : equals)
    if (!text.startsWith('--') || text === '--') {
      // The value comes from a shell and is unknown.
      if (arg.isOpen) {
        findings.same(at, text, 'is known only at run time; check its value then')
        kept.push(text)
      } else findings.change(at, text, 'is not an option of the server: leave it out')
      continue
    }
    const flag = tried(() => findFlag(name))
    const moved = flag instanceof OptionError ? judgeMoved(arg, args[i + 1], findings) : null
    if (moved !== null) {
      kept.push(...moved.kept)
      i += Number(moved.hasNext)
      continue
    }
    if (flag instanceof OptionError) {
      const near = /did you mean '--([^']+)'/.exec(flag.message)?.[1]
      findings.change(at, text, `${flag.message}${near === undefined ? '; leave it out' : ''}`)
      const fixed = near === undefined ? '' : `--${near}${equals < 0 ? '' : text.slice(equals)}`
      findings.replace(at, text, fixed)
      const next = equals < 0 ? args[i + 1]?.text : undefined
      const value = next === undefined || next.startsWith('--') ? [] : [next]
      if (fixed !== '') kept.push(fixed, ...value)
      i += value.length
      continue
    }
    let value = equals < 0 ? null : { ...arg, text: text.slice(equals + 1) }
    const words = [text]
    if (value === null && flag.kind !== 'switch') {
      const values = args.slice(i + 1, i + 1 + (flag.kind === 'string' ? (flag.words ?? 1) : 1))
      value = values.at(-1) ?? null
      words.push(...values.map((one) => one.text))
      i += Math.max(1, values.length)
    }
    if (!judgeFlag(flag, words, value, arg, findings)) continue
    kept.push(...words)
    last = words.length > 1 ? value : arg
    if (flag.name === 'model-repository' && value !== null) repositories.push(value)
  }
  if (frontEnd !== null) kept.push(...frontEndDefaults(args, kept, frontEnd, last, findings))
  const [first] = args
  if (first !== undefined && args.every((arg) => !arg.isOpen) && repositories.length > 0) {
    // The rules between flags, as at a start.
    const together = tried(() => resolveSettings(parseArguments(kept), {}))
    if (together instanceof OptionError) findings.change(first.at, 'the options together', reasonOf(together))
  }
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
  const parsed = isOpen ? null : tried(() => parseArguments(words))
  if (parsed instanceof OptionError) {
    findings.change(at, subject, reasonOf(parsed))
    return false
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
  else if (flag.group === 'Deprecated') findings.same(at, subject, `works. ${flag.meaning}`)
  else findings.same(at, subject, isOpen ? 'its value is known only at run time' : '')
  return true
}

/** The result of a call, or the mistake in its options. */
export function tried<T>(read: () => T): T | OptionError {
  try {
    return read()
  } catch (error) {
    if (error instanceof OptionError) return error
    throw error
  }
}

/** The text of a mistake without the usage of the server. */
const reasonOf = ({ message }: OptionError): string => message.replace(/^Bad option: [^\n]*\n/, '')

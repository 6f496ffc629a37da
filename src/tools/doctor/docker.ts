/** Reads `docker run …` (podman, nerdctl): its options, the image, and the arguments after it. */

import { isAbsolute, resolve } from 'node:path'
import type { At, Findings, Located } from './findings.js'
import { assigned, launchAt, type Launch, type Mount } from './launch.js'

/** Options of `docker run` without a value; all others have one. */
const SWITCHES = new Set(
  `-d --detach -i --interactive -t --tty --rm --init --privileged --read-only -P --publish-all --no-healthcheck
  --oom-kill-disable --sig-proxy --disable-content-trust -q --quiet`.split(/\s+/),
)
const RUNNERS = new Set(['docker', 'nvidia-docker', 'podman', 'nerdctl'])

/** Index of the image, which the container's arguments follow; -1 if the words run no container. */
function dockerRunStart(words: readonly Located[]): number {
  const at = words.findIndex(({ text }) => RUNNERS.has(text.slice(text.lastIndexOf('/') + 1)))
  if (at < 0) return -1
  const rest = words.slice(at + 1).map(({ text }) => text)
  if (rest[0] === 'run' || rest[0] === 'create') return at + 2
  return rest[0] === 'container' && (rest[1] === 'run' || rest[1] === 'create') ? at + 3 : -1
}

interface Option {
  name: string
  value: Located | null
  at: At
  /** The option with its value, as in the file. */
  written: string
}

function optionAt(words: readonly Located[], i: number, word: Located): Option {
  const { text, at, written = text } = word
  const equals = text.startsWith('--') ? text.indexOf('=') : -1
  if (equals >= 0) return { name: text.slice(0, equals), value: { ...word, text: text.slice(equals + 1) }, at, written }
  if (SWITCHES.has(text) || /^-[ditqP]{2,}$/.test(text)) return { name: text, value: null, at, written: text }
  // Short options such as `-p8000:8000`.
  const [, letter, joined = ''] = /^-([a-zA-Z])(.+)$/.exec(text) ?? []
  if (letter !== undefined) return { name: `-${letter}`, value: { ...word, text: joined }, at, written: text }
  const value = words[i + 1] ?? null
  return { name: text, value, at, written: value === null ? text : `${text} ${value.written ?? value.text}` }
}

/** Reads the command. Null if the words run no container. */
export function readDockerRun(words: readonly Located[], directory: string, findings: Findings): Launch | null {
  const start = dockerRunStart(words)
  const first = words[0]
  if (start < 0 || first === undefined) return null
  const options: Option[] = []
  let i = start
  for (let word = words[i]; word !== undefined; word = words[++i]) {
    const isHidden = isOptions(words, i)
    if (!isHidden && !word.text.startsWith('-')) break
    if (isHidden)
      findings.same(
        word.at,
        word.written ?? word.text,
        'options of docker run that are known only at run time; check them then',
      )
    else {
      const option = optionAt(words, i, word)
      options.push(option)
      if (option.value === words[i + 1]) i += 1
    }
  }
  const entrypoint = options.find(({ name }) => name === '--entrypoint')?.value ?? null
  const launch: Launch = {
    ...launchAt(first.at, 'docker run', directory),
    image: words[i] ?? null,
    argv: [...(entrypoint === null ? [] : [entrypoint]), ...words.slice(i + 1)],
    checksHealth: true,
    judge: () => {
      for (const option of options) judgeOption(option, findings)
    },
  }
  const gpus =
    words.slice(0, start).some(({ text }) => text.endsWith('nvidia-docker')) || options.some((one) => givesGpus(one))
  // Unknown options may give some.
  if (gpus || !words.slice(start, i).some((word) => isUnknown(word))) launch.gpus = gpus
  for (const { name, value, at, written } of options) {
    if (value === null) continue
    if (name === '-v' || name === '--volume') launch.mounts.push(shortMount(value.text, at, directory))
    if (name === '--mount') launch.mounts.push(longMount(value.text, at, directory))
    if (name === '-e' || name === '--env')
      launch.env.push({ ...assigned(value.text), at, without: [{ at, from: written, to: '' }] })
  }
  return launch
}

/** True for a word of unknown content: `$ARGS`, `${ARGS[@]}`, `$(…)`, `<options>`. */
const isUnknown = ({ text, isOpen }: Located): boolean =>
  isOpen && /^(?:<[^<>]*>|\$[\w@*]+|\$\{.*\}|\$\(.*\)|`.*`|\{\{.*\}\})$/s.test(text)

/** True if an unknown word before the image stands for options: the image or another unknown word follows. */
function isOptions(words: readonly Located[], at: number): boolean {
  const word = words[at]
  if (word === undefined || !isUnknown(word)) return false
  for (const next of words.slice(at + 1)) {
    if (isUnknown(next)) return true
    // `/opt/tritonserver/bin/tritonserver` is a program.
    if (/^[\w.$-][^=]*triton/i.test(next.text) && /[/:]/.test(next.text)) return true
    if (/(?:^|\/)(?:tritonserver|(?:ba|da|z)?sh|python3?)$/.test(next.text)) return false
  }
  return false
}

/** True if an option of `docker run` gives the container GPUs. */
const givesGpus = ({ name, value }: Option): boolean =>
  name === '--gpus' ||
  (name === '--runtime' && value?.text === 'nvidia') ||
  (name === '--device' && /nvidia/.test(value?.text ?? ''))

/** Options that are judged with what they concern. */
const JUDGED_ELSEWHERE = new Set(['-v', '--volume', '--mount', '-e', '--env', '--entrypoint'])

function judgeOption(option: Option, findings: Findings): void {
  const { name, value, at, written } = option
  if (givesGpus(option)) findings.fact(at, written, 'gpu')
  else if (name === '--shm-size' || name === '--ipc') findings.fact(at, written, 'shmSize')
  else if (name === '--ulimit') findings.fact(at, written, 'ulimits')
  else if (name === '-p' || name === '--publish') judgePort(value?.text ?? '', written, at, findings)
  else if (name === '--env-file') findings.same(at, written, 'its variables are not read here')
  else if (!JUDGED_ELSEWHERE.has(name) && !/^-[dit]+$|^--(?:rm|detach|interactive|tty|name|init)$/.test(name))
    findings.same(at, written)
}

export function judgePort(text: string, subject: string, at: At, findings: Findings): void {
  const port = /(\d+)(?:\/\w+)?$/.exec(text)?.[1] ?? text
  const what: Readonly<Record<string, string>> = { '8000': 'HTTP', '8001': 'gRPC', '8002': 'metrics' }
  findings.same(at, subject, what[port] ?? '')
}

/** Parses `HOST:CONTAINER[:ro]`, or `VOLUME:CONTAINER`. */
export function shortMount(text: string, at: At, directory: string): Mount {
  const colon = colonOf(text, 0)
  if (colon < 0) return { source: null, target: text, at }
  const end = colonOf(text, colon + 1)
  return { ...placed(text.slice(0, colon), directory), target: text.slice(colon + 1, end < 0 ? undefined : end), at }
}

/** Index of the next colon outside `$(…)`, `${…}`, `{{…}}` and backquotes. */
function colonOf(text: string, from: number): number {
  let depth = 0
  let isQuoted = false
  for (let at = from; at < text.length; at += 1) {
    const c = text[at]
    if (c === '(' || c === '{') depth += 1
    else if (c === ')' || c === '}') depth -= 1
    else if (c === '`') isQuoted = !isQuoted
    else if (c === ':' && depth <= 0 && !isQuoted) return at
  }
  return -1
}

/** Source of a mount, as far as the text tells. */
export function placed(source: string, directory: string): Pick<Mount, 'source' | 'isOpen'> {
  const path = hostPath(source, directory)
  const isOpen = /\$[({A-Za-z0-9]|`|\{\{|<[^<>]+>/.test(path ?? source)
  return { source: isOpen ? null : path, isOpen }
}

function longMount(text: string, at: At, directory: string): Mount {
  const fields = new Map(text.split(',').map((field) => [assigned(field).name, assigned(field).value ?? field]))
  const source = fields.get('source') ?? fields.get('src') ?? ''
  const target = fields.get('target') ?? fields.get('dst') ?? fields.get('destination') ?? ''
  return { ...(fields.get('type') === 'bind' ? placed(source, directory) : { source: null }), target, at }
}

/** A directory of the host; null for a named volume. `$(pwd)` is the directory of the file. */
function hostPath(source: string, directory: string): string | null {
  const path = source
    .replace(/^(?:\$\(pwd\)|`pwd`|\$\{?PWD\}?)/, directory)
    .replace(/^(?:~|\$\{?HOME\}?)(?=\/|$)/, process.env['HOME'] ?? '~')
  if (isAbsolute(path)) return resolve(path)
  return /^\.{1,2}(?:\/|$)/.test(path) || path.includes('/') ? resolve(directory, path) : null
}

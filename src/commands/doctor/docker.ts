/** Reads `docker run …` (podman, nerdctl): its options, the image, and the arguments after it. */

import { isAbsolute, resolve } from 'node:path'
import type { At, Findings, Located } from './findings.js'
import type { Launch, Mount } from './launch.js'

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

/** Reads the command and judges its options. Null if the words run no container. */
export function readDockerRun(
  words: readonly Located[],
  directory: string,
  findings: Findings,
): { launch: Launch; judge: () => void } | null {
  const start = dockerRunStart(words)
  const first = words[0]
  if (start < 0 || first === undefined) return null
  const launch: Launch = {
    at: first.at,
    name: 'docker run',
    image: null,
    argv: [],
    env: [],
    mounts: [],
    directory,
    checksHealth: true,
  }
  const options: { name: string; value: Located | null; at: At; written: string[] }[] = []
  let i = start
  for (; i < words.length; i += 1) {
    const word = words[i]
    if (word === undefined) break
    if (isOptions(words, i)) {
      findings.add(
        word.at,
        word.written ?? word.text,
        'same',
        'options of docker run that are known only at run time; check them then',
      )
      continue
    }
    if (!word.text.startsWith('-')) break
    const equals = word.text.startsWith('--') ? word.text.indexOf('=') : -1
    const name = equals < 0 ? word.text : word.text.slice(0, equals)
    // Short options such as `-it`, `-p8000:8000`.
    const short = /^-([a-zA-Z])(.+)$/.exec(word.text)
    if (equals >= 0)
      options.push({
        name,
        value: { ...word, text: word.text.slice(equals + 1) },
        at: word.at,
        written: [word.written ?? word.text],
      })
    else if (SWITCHES.has(name) || (short !== null && /^-[ditqP]+$/.test(name)))
      options.push({ name, value: null, at: word.at, written: [word.text] })
    else if (short !== null && !word.text.startsWith('--'))
      options.push({
        name: `-${short[1]}`,
        value: { ...word, text: short[2] ?? '' },
        at: word.at,
        written: [word.text],
      })
    else {
      const value = words[i + 1] ?? null
      options.push({
        name,
        value,
        at: word.at,
        written: value === null ? [word.text] : [word.text, value.written ?? value.text],
      })
      i += 1
    }
  }
  launch.image = words[i] ?? null
  const entrypoint = options.find(({ name }) => name === '--entrypoint')?.value
  launch.argv = [...(entrypoint === undefined || entrypoint === null ? [] : [entrypoint]), ...words.slice(i + 1)]
  launch.gpus =
    words.some(({ text }, at) => at < start && text.endsWith('nvidia-docker')) ||
    options.some(({ name, value }) => givesGpus(name, value?.text ?? ''))
  // Unknown options may give some.
  if (!launch.gpus && words.slice(start, i).some((word) => isUnknown(word))) delete launch.gpus
  for (const { name, value, at, written } of options) {
    if (value === null) continue
    if (name === '-v' || name === '--volume') launch.mounts.push(shortMount(value.text, at, directory))
    if (name === '--mount') launch.mounts.push(longMount(value.text, at, directory))
    if (name === '-e' || name === '--env') {
      const equals = value.text.indexOf('=')
      launch.env.push({
        name: equals < 0 ? value.text : value.text.slice(0, equals),
        value: equals < 0 ? null : value.text.slice(equals + 1),
        at,
        without: [{ at, from: written.join(' '), to: '' }],
      })
    }
  }
  const judge = (): void => {
    for (const { name, value, at, written } of options) judgeOption(name, value?.text ?? '', written, at, findings)
  }
  return { launch, judge }
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
const givesGpus = (name: string, value: string): boolean =>
  name === '--gpus' || (name === '--runtime' && value === 'nvidia') || (name === '--device' && /nvidia/.test(value))

function judgeOption(name: string, value: string, written: readonly string[], at: At, findings: Findings): void {
  const subject = written.join(' ')
  if (givesGpus(name, value)) {
    findings.fact(at, subject, 'gpu')
  } else if (name === '--shm-size' || name === '--ipc') findings.fact(at, subject, 'shmSize')
  else if (name === '--ulimit') findings.fact(at, subject, 'ulimits')
  else if (name === '-p' || name === '--publish') judgePort(value, subject, at, findings)
  else if (name === '--env-file') findings.add(at, subject, 'same', 'its variables are not read here')
  // Mounts and variables are judged where they matter.
  else if (['-v', '--volume', '--mount', '-e', '--env', '--entrypoint'].includes(name)) return
  else if (!/^-[dit]+$|^--(?:rm|detach|interactive|tty|name|init)$/.test(name)) findings.add(at, subject, 'same', '')
}

export function judgePort(text: string, subject: string, at: At, findings: Findings): void {
  const port = /(\d+)(?:\/\w+)?$/.exec(text)?.[1] ?? text
  const what: Readonly<Record<string, string>> = { '8000': 'HTTP', '8001': 'gRPC', '8002': 'metrics' }
  findings.add(at, subject, 'same', what[port] ?? '')
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
  const fields = new Map(
    text.split(',').map((field) => [field.split('=')[0] ?? '', field.slice(field.indexOf('=') + 1)]),
  )
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

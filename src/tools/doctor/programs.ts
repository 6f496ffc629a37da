/** Finds the word of a command that starts a server; other words only mention one. Pure. */

import type { Findings, Located } from './findings.js'

const SERVER = /(?:^|\/)(?:tritonserver|nereid)$/

/** Triton's OpenAI front end, by the folder that it has in Triton's images. */
const FRONT_END = /(?:^|\/)openai_frontend\/main\.py$/

/** Programs that start the program after their own options. */
const WRAPPERS = new Set(
  `sudo env nohup exec nice ionice taskset numactl chrt stdbuf setsid timeout time gosu su-exec setpriv tini dumb-init
  catchsegv mpirun mpiexec orterun srun`.split(/\s+/),
)
/** Wrappers that start one server in several processes, for a model that spans GPUs. */
const SPREADERS = /(?:^|\/)(?:mpirun|mpiexec|orterun|srun)$/
/** Wrappers that the images lack: they come with packages of a distribution. */
const NOT_IN_IMAGES = /(?:^|\/)(?:numactl|chrt|gosu|su-exec|tini|dumb-init|catchsegv|stdbuf|sudo)$/

/** Programs that take a server's name as a text, a file or a process. */
const MENTIONS = new Set(
  `echo printf test [ [[ (( : true false for case select read grep egrep fgrep rg pgrep pkill killall kill ps pidof
  which type whereis cat tee tail head less more ls cp mv rm mkdir rmdir chmod chown ln find touch cd pushd popd stat
  file du ldd sed awk cut sort apt apt-get yum dnf apk pip pip3 git make cmake ninja systemctl service journalctl
  logger log info warn error die return exit wait sleep trap alias unset source . tar wget curl rsync scp`.split(/\s+/),
)
/** Programs that run commands of a container only after certain words. */
const CONTAINERS = new Set(['docker', 'nvidia-docker', 'podman', 'nerdctl', 'kubectl', 'oc', 'helm'])

const nameOf = (word: string): string => word.slice(word.lastIndexOf('/') + 1)

/** True for `NAME=VALUE` before a command. */
export const isAssignment = ({ text }: { text: string }): boolean => /^[A-Za-z_]\w*=/.test(text)

/** True if the command only prints, searches or moves the named things. */
export function onlyMentions(words: readonly Located[]): boolean {
  const [program, ...rest] = words.filter((word) => !isAssignment(word)).map(({ text }) => text)
  if (program === undefined) return false
  const name = nameOf(program)
  return MENTIONS.has(name) || (name === 'command' && /^-[vV]+$/.test(rest[0] ?? ''))
}

export const isPython = (word: string): boolean => /(?:^|\/)python[\d.]*$/.test(word)

/** Index of the `main.py` of Triton's OpenAI front end behind a Python; -1 if the command does not start it. */
export function frontEndAt(words: readonly Located[]): number {
  const python = words.findIndex(({ text }) => isPython(text))
  if (python < 0 || onlyMentions(words)) return -1
  const at = words.findIndex(({ text }, i) => i > python && !text.startsWith('-'))
  const { text = '' } = words[at] ?? {}
  // Its copy may be in another folder. It needs the option, which programs that only send requests do not have.
  const isCopy =
    /(?:^|\/)main\.py$/.test(text) && words.slice(at).some((word) => word.text.startsWith('--model-repository'))
  return FRONT_END.test(text) || isCopy ? at : -1
}

/** Index of the word that is the server's program; -1 if the command starts none. */
export function serverAt(words: readonly Located[]): number {
  const program = words.findIndex((word) => !isAssignment(word))
  const name = nameOf(words[program]?.text ?? '')
  if (onlyMentions(words)) return -1
  if (CONTAINERS.has(name) && !/^(?:exec|run|debug)$/.test(words[program + 1]?.text ?? '')) return -1
  const frontEnd = frontEndAt(words)
  if (frontEnd >= 0) return frontEnd
  return words.findIndex(({ text }, at) => {
    if (!SERVER.test(text)) return false
    // After an unknown program, the server's options decide.
    return at === program || WRAPPERS.has(name) || /^--./.test(words[at + 1]?.text ?? '')
  })
}

/** Judges programs before the server's. */
export function judgeWrappers(words: readonly Located[], inImage: boolean, findings: Findings): void {
  const end = serverAt(words)
  for (const { text, at } of words.slice(0, Math.max(0, end))) {
    if (!WRAPPERS.has(nameOf(text))) continue
    if (SPREADERS.test(text))
      findings.change(
        at,
        text,
        'starts processes that share one model, for TensorRT-LLM, which is not in this release: start the server ' +
          'without it',
      )
    else if (inImage && NOT_IN_IMAGES.test(text))
      findings.change(
        at,
        text,
        'is not in the image: leave it ' +
          `out${/numactl/.test(text) ? '; --cpuset-cpus and --cpuset-mems of docker run do the same' : ''}`,
      )
    else findings.same(at, text, 'may stay in front of the server')
  }
}

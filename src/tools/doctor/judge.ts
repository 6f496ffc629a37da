/** Judges one start of a server, from its image to its models, and makes the Nereid command line that replaces it. */

import { normalize, relative, resolve } from 'node:path'
import {
  OptionError,
  ownVersion,
  parseArguments,
  resolveSettings,
  schemeOf,
  shown,
  statIfAny,
  type RepositorySettings,
} from '../../internal.js'
import { isModel } from '../check/targets.js'
import {
  commandsOf,
  inShell,
  installsPackages,
  judgeArguments,
  judgeInstalls,
  judgePrograms,
  serverArguments,
  tried,
} from './command_line.js'
import { judgeEnvironment } from './environment.js'
import type { Findings, Located } from './findings.js'
import { isSetup, judgeProgram, judgeSetup } from './front_end.js'
import { backendOf, isClientImage, judgeImage, runsInPython } from './image.js'
import type { Launch } from './launch.js'
import { judgeRepository, type Needs } from './models.js'
import { frontEndAt, judgeWrappers } from './programs.js'
import { lineOf } from './shell.js'

/** Images of docs/containers.md, with the tag that it gives them. */
const VERSION = ownVersion()
const IMAGE = `nereid:${VERSION}`
const PYTHON_IMAGE = `nereid-python:${VERSION}`
const GPU_IMAGE = `nereid-gpu:${VERSION}`

/** The Nereid start that replaces it. */
export interface Start {
  name: string
  words: string[]
}

export async function judgeLaunch(
  launch: Launch,
  findings: Findings,
  image: string | null,
  seen: Map<string, Needs>,
): Promise<Start | null> {
  if (launch.image !== null && isClientImage(launch.image.text)) {
    judgeImage(launch.image, findings, '', { models: 0, absent: 0 })
    return null
  }
  // The instructions of a Dockerfile are read, and edited, before.
  const first = findings.edits.findIndex(({ at }) => launch.name === 'Dockerfile' && at.path === launch.at.path)
  const edits = first < 0 ? findings.edits.length : first
  const words = inShell(launch.argv)
  const frontEnd = frontEndAt(words)
  const every = commandsOf(launch.argv)
  const commands = every.filter((one) => frontEnd < 0 || !isSetup(one))
  const python = launch.wantsPython === true || commands.some((one) => installsPackages(one))
  if (frontEnd >= 0) {
    judgeSetup(every, findings)
    judgeProgram(words, findings)
  }
  const { start, needs } = await judgeServer(launch, findings, seen, words[frontEnd] ?? null)
  if (launch.image === null) return start
  // If the models are not here, the image tells whether they run in Python; those of the front end do.
  const needsPython =
    needs.models > 0 ? needs.python : frontEnd >= 0 || runsInPython(backendOf(launch.image.text) ?? '')
  const chosen = image ?? (launch.gpus === true ? GPU_IMAGE : python || needsPython ? PYTHON_IMAGE : IMAGE)
  // If the image stays, so do its words.
  if (!judgeImage(launch.image, findings, chosen, needs)) {
    findings.edits.length = edits
    return null
  }
  judgePrograms(launch.argv, findings, chosen === IMAGE)
  judgeInstalls(commands, findings)
  return start
}

async function judgeServer(
  launch: Launch,
  findings: Findings,
  seen: Map<string, Needs>,
  frontEnd: Located | null,
): Promise<{ start: Start | null; needs: Needs }> {
  const needs: Needs = { gpus: false, python: false, models: 0, absent: 0 }
  launch.judge?.()
  judgeEnvironment(launch.env, findings)
  judgeWrappers(inShell(launch.argv), launch.image !== null, findings)
  const args = serverArguments(launch.argv) ?? (launch.argv[0]?.text.startsWith('--') === true ? launch.argv : null)
  if (args === null) {
    const [first] = launch.argv
    // Something else starts a base image without a command.
    if (first === undefined) findings.same(launch.at, launch.name, 'has no command here')
    else
      findings.differs(
        first.at,
        lineOf(launch.argv),
        'starts another program: run doctor on the command line of the server that it makes',
      )
    return { start: null, needs }
  }
  const { kept, repositories, last } = judgeArguments(args, findings, frontEnd)
  const settings = settingsOf(kept)
  addHealthPort(launch, kept, last, findings)
  const paths = new Map<string, string>()
  for (const repository of repositories) {
    const host = onHost(repository, launch, findings)
    if (host === null) continue
    paths.set(repository.text, host)
    if (statIfAny(host)?.isDirectory() !== true) continue
    const of = seen.get(host) ?? (await judgeRepository(shown(host), isModel(host), settings, findings))
    seen.set(host, of)
    needs.gpus ||= of.gpus
    needs.python ||= of.python
    needs.models += of.models
    needs.absent += of.absent
  }
  const corrected = kept.map((word) => renamed(word, paths))
  if (needs.gpus && isWithoutGpus(launch) && !kept.some((word) => word.startsWith('--gpu-fallback'))) {
    corrected.push('--gpu-fallback=cpu')
    findings.fact(launch.at, launch.name, 'gpuMissing')
    if (last !== null) findings.apply([{ at: last.at, behind: last.text, word: '--gpu-fallback=cpu' }])
  }
  if (repositories.length === 0) {
    // KServe's runtime names the repository of its services.
    if (launch.name.startsWith('InferenceService')) return { start: null, needs }
    corrected.unshift('--model-repository=DIRECTORY')
  }
  return { start: { name: launch.name, words: ['nereid', ...corrected] }, needs }
}

/** True if the container surely has no GPU. If NVIDIA's runtime is Docker's default, a variable requests GPUs. */
const isWithoutGpus = ({ gpus, env }: Launch): boolean =>
  gpus === false &&
  !env.some(
    ({ name, value }) => name === 'NVIDIA_VISIBLE_DEVICES' && value !== '' && value !== 'void' && value !== 'none',
  )

/** Reports a changed HTTP port: the image's health check asks port 8000, unless its variable names another. */
function addHealthPort(launch: Launch, kept: readonly string[], last: Located | null, findings: Findings): void {
  if (launch.checksHealth !== true || launch.image === null || last === null) return
  if (launch.env.some(({ name }) => name === 'NEREID_HTTP_PORT')) return
  const at = kept.findLastIndex((word) => /^--http-port(?:=|$)/.test(word))
  const port = at < 0 ? '8000' : (kept[at]?.split('=')[1] ?? kept[at + 1] ?? '')
  if (port !== '8000')
    findings.change(
      last.at,
      `--http-port ${port}`,
      'set the variable NEREID_HTTP_PORT to it too: the health check of the image uses it',
    )
}

/** Settings of the remaining flags, or the defaults if the flags contradict each other. */
export function settingsOf(args: readonly string[]): RepositorySettings {
  const resolved = tried(() => resolveSettings(parseArguments(args), {}))
  const { settings } =
    resolved instanceof OptionError ? resolveSettings(parseArguments(['--model-repository=.']), {}) : resolved
  return settings.repository
}

/** The directory on this machine behind a repository, through the mounts of its container; null if there is none. */
function onHost(repository: Located, launch: Launch, findings: Findings): string | null {
  const { text, at } = repository
  if (repository.isOpen || schemeOf(text) !== null) return null
  if (launch.image === null) return resolve(launch.directory, text)
  const path = normalize(text).replace(/\/+$/, '')
  const mount = launch.mounts
    .map((one) => ({ ...one, target: normalize(one.target).replace(/\/+$/, '') }))
    // Files are also copied to /, which makes no directory of models there.
    .filter(({ target, source }) =>
      target === ''
        ? source !== null && statIfAny(resolve(source, relative('/', path)))?.isDirectory() === true
        : path === target || path.startsWith(`${target}/`),
    )
    .sort((a, b) => b.target.length - a.target.length)[0]
  if (mount === undefined) {
    findings.same(at, `repository ${text}`, 'is in the image or a volume: run doctor on it there')
    return null
  }
  const { source, target } = mount
  const host = source === null ? null : resolve(source, relative(target === '' ? '/' : target, path))
  const where =
    mount.isOpen === true
      ? 'its directory is known only at run time: run doctor on it there'
      : source === null || host === null
        ? 'is a volume: run doctor on the models in it'
        : statIfAny(host)?.isDirectory() === true
          ? `${shown(source)}, examined below`
          : `${shown(source)} is not here: run doctor on it where it is`
  findings.same(mount.at, `mount ${target}`, where)
  return mount.isOpen === true ? null : host
}

function renamed(word: string, paths: ReadonlyMap<string, string>): string {
  const equals = word.indexOf('=')
  const value = word.startsWith('--') && equals > 0 ? word.slice(equals + 1) : word
  const host = paths.get(value)
  return host === undefined ? word : `${word.slice(0, word.length - value.length)}${shown(host)}`
}

/** Reads a Dockerfile whose last stage is a Triton, or that uses one as its base. */

import { DockerfileParser } from 'dockerfile-ast'
import { statIfAny } from '../../internal.js'
import { installsPackages, judgeInstalls } from './command_line.js'
import { Findings, type Edit, type Located } from './findings.js'
import { isSetup, judgeSetup } from './front_end.js'
import { backendOf, isClientImage } from './image.js'
import { isTriton, launchAt, type Launch } from './launch.js'
import { serverAt } from './programs.js'
import { commandsAt } from './shell.js'

interface Instruction {
  name: string
  rest: string
  line: number
}

/** Instructions in one file. */
const INSTRUCTIONS_MAX = 5000
/** Stages in one file: a stage that begins with another repeats its findings. */
const STAGES_MAX = 50

export function looksLikeDockerfile(name: string, text: string): boolean {
  return (
    /^(?:Docker|Container)file|\.(?:docker|container)file$/i.test(name) ||
    /^(?:\s*(?:#[^\n]*)?\n)*\s*(?:ARG\s+\S+\s*\n\s*)*FROM\s+\S/i.test(text)
  )
}

/** The instructions. Their text keeps line feeds, so that each word keeps its line, but no comments. */
function instructions(text: string): Instruction[] {
  const read = DockerfileParser.parse(text).getInstructions().slice(0, INSTRUCTIONS_MAX)
  return read.map((node) => ({
    name: node.getKeyword(),
    rest: node
      .getTextContent()
      .replace(/^\w+[ \t]*/, '')
      .replaceAll(/(?<![^\n])[^\S\r\n]*#[^\r\n]*/g, ''),
    line: node.getRange().start.line + 1,
  }))
}

export function readDockerfile(text: string, path: string, directory: string, findings: Findings): Launch | null {
  const found = stages(instructions(text), { path, directory, variables: new Map() })
  const last = found.at(-1)
  if (last === undefined) return null
  // A stage before the last one can be built by its name.
  const chosen = isTriton(last.launch) ? last : found.findLast(({ launch }) => serverAt(launch.argv) >= 0)
  if (chosen === undefined) {
    findings.same(last.launch.at, `image ${last.launch.image?.text ?? ''}`, 'is not Triton: not changed')
    return null
  }
  // Instructions of other stages do not build this image.
  if (!isClientImage(chosen.launch.image?.text ?? '')) findings.take(chosen.findings)
  return chosen.launch
}

interface File {
  path: string
  directory: string
  variables: Map<string, string>
}

/** Words of an instruction, without their places. */
const wordsOf = (rest: string, { path, variables }: File): string[] =>
  commandsAt(rest, { path, line: 1 }, variables).flatMap((words) => words.map(({ text }) => text))

interface Stage {
  launch: Launch
  findings: Findings
  entrypoint: Located[]
  command: Located[]
  isRoot: boolean
  /** The last WORKDIR. */
  directory: string
}

/** The stages; one that begins with another inherits its contents. */
function stages(list: readonly Instruction[], file: File): Stage[] {
  const found: Stage[] = []
  const named = new Map<string, Stage>()
  for (const { name, rest, line } of list) {
    const at = { path: file.path, line }
    if (name === 'ARG') {
      const [, key = '', value = ''] =
        /^([A-Za-z_]\w*)=(.*)$/s.exec(wordsOf(rest, file)[0] ?? rest.trim()) ??
        /^([A-Za-z_]\w*)=(.*)$/s.exec(rest.trim()) ??
        []
      if (key !== '') file.variables.set(key, value)
      continue
    }
    if (name === 'FROM') {
      if (found.length >= STAGES_MAX) break
      const [image = '', as = '', stage = ''] = wordsOf(rest, file).filter((word) => !word.startsWith('--'))
      const base = named.get(image)
      const written = rest.match(/(?:<[^<>]*>|\S)+/g)?.find((word) => !word.startsWith('--')) ?? image
      const next = stageOf(base, { text: image, at, isOpen: /[$<]/.test(image), written }, file.directory)
      if (as.toLowerCase() === 'as') named.set(stage, next)
      found.push(next)
      continue
    }
    const stage = found.at(-1)
    if (stage !== undefined) readInstruction({ name, rest, line }, stage, file)
  }
  for (const { launch, entrypoint, command } of found) launch.argv = [...entrypoint, ...command]
  return found
}

function stageOf(base: Stage | undefined, image: Located, directory: string): Stage {
  const findings = new Findings()
  if (base !== undefined) findings.take(base.findings)
  const { image: first, env = [], mounts = [], wantsPython = false } = base?.launch ?? {}
  const of = first ?? image
  const launch: Launch = {
    ...launchAt(of.at, 'Dockerfile', directory),
    image: of,
    env: [...env],
    mounts: [...mounts],
    checksHealth: true,
    wantsPython,
  }
  const { entrypoint = [], command = [], isRoot = false, directory: workdir = '' } = base ?? {}
  return { launch, findings, entrypoint, command, isRoot, directory: workdir }
}

/** Instructions that run as they are. */
const PLAIN = new Set(['EXPOSE', 'WORKDIR', 'VOLUME', 'SHELL', 'HEALTHCHECK', 'USER'])

function readInstruction(instruction: Instruction, stage: Stage, file: File): void {
  const { launch, findings } = stage
  const { name, rest } = instruction
  const { path } = file
  const at = { path, line: instruction.line }
  const subject = `${name} ${shorten(rest)}`
  if (name === 'ENV') {
    for (const { key, value, without } of variablesOf(instruction, file)) {
      file.variables.set(key, value)
      launch.env.push({ name: key, value, at, without })
    }
  } else if (name === 'ENTRYPOINT') stage.entrypoint = argv(instruction, path, stage)
  else if (name === 'CMD') stage.command = argv(instruction, path, stage)
  else if (name === 'COPY' || name === 'ADD') {
    const parts = wordsOf(rest, file).filter((word) => !word.startsWith('--from') && !word.startsWith('--ch'))
    const target = parts.at(-1) ?? ''
    for (const part of /--from=/.test(rest) ? [] : parts.slice(0, -1)) {
      const source = `${file.directory}/${part.replace(/^\/+/, '')}`
      if (statIfAny(source)?.isFile() !== true) launch.mounts.push({ source, target, at })
    }
    if (/\/opt\/tritonserver\/backends\//.test(target)) findings.fact(at, subject, 'backends')
    else if (/^\/opt\/tritonserver\/?$/.test(target)) findings.change(at, subject, 'is Triton itself: leave it out')
    else findings.same(at, subject)
  } else if (name === 'RUN' && judgeFrontEnd(instruction, stage, path)) {
    return
  } else if (name === 'RUN') {
    launch.wantsPython ||= /\bpip|\bconda\b|\buv\b|\bapt/.test(rest)
    judgeRun(rest, at, stage.isRoot || backendOf(launch.image?.text ?? '') !== null, findings)
  } else if (name === 'HEALTHCHECK' && /curl/.test(rest)) {
    findings.fact(at, subject, 'healthCheck')
    findings.apply([{ at, throughLine: at.line + rest.split('\n').length - 1 }])
  } else if (PLAIN.has(name)) findings.same(at, subject)
  if (name === 'WORKDIR') stage.directory = rest.trim()
  if (name === 'USER') stage.isRoot = /^(?:root|0)\b/.test(rest.trim())
}

/** True if the commands only prepare Triton's OpenAI front end in its directory; they are left out. */
function judgeFrontEnd({ rest, line }: Instruction, { findings, directory }: Stage, path: string): boolean {
  const at = { path, line }
  const commands = commandsAt(rest, at)
  if (!/\/python\/openai\b/.test(`${directory} ${rest}`) || !commands.every((words) => isSetup(words))) return false
  judgeSetup(commands, findings)
  findings.apply([{ at, throughLine: line + rest.split('\n').length - 1 }])
  return true
}

/** Variables of an `ENV`, each with the edit that removes it and leaves a valid instruction. */
function variablesOf({ rest, line }: Instruction, file: File): { key: string; value: string; without: Edit[] }[] {
  const lines = rest.split('\n')
  const { path } = file
  const instruction: Edit[] = [{ at: { path, line }, throughLine: line + lines.length - 1 }]
  const old = /^([A-Za-z_]\w*)\s+([^=\s].*)$/s.exec(rest)
  if (old !== null && !(wordsOf(rest, file)[0] ?? '').includes('='))
    return [{ key: old[1] ?? '', value: old[2] ?? '', without: instruction }]
  const pairs = [...rest.matchAll(/([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|'[^']*'|(?:[^\s\\]|\\\S)*)/g)]
  return pairs.map((pair) => {
    const [written, key = '', value = ''] = pair
    const row = rest.slice(0, pair.index).split('\n').length - 1
    const at = { path, line: line + row }
    const without: Edit[] = [{ at, from: written, to: '' }]
    // The line before must not continue; comments between them are empty here.
    const before = lines.slice(0, row).findLastIndex((one) => one.trim() !== '')
    const isLast = row === lines.length - 1 && (lines[row] ?? '').trim() === written
    const end = /\s*\\\s*$/.exec(lines[before] ?? '')?.[0]
    if (isLast && end !== undefined)
      without.push({
        at: { path, line: line + before },
        from: lines[before] ?? '',
        to: (lines[before] ?? '').slice(0, -end.length),
      })
    return { key, value: value.replace(/^(["'])(.*)\1$/s, '$2'), without: pairs.length === 1 ? instruction : without }
  })
}

/** Parses the exec form (JSON) or the shell form. */
function argv({ rest, line }: Instruction, path: string, { launch, findings }: Stage): Located[] {
  try {
    const list: unknown = JSON.parse(rest.replaceAll(/\\\n/g, ' '))
    if (Array.isArray(list))
      return list.map(String).map((text) => ({ text, at: { path, line: lineOf(rest, text, line) }, isOpen: false }))
  } catch {
    // Shell form.
  }
  const variables = new Map(launch.env.map(({ name, value }) => [name, value ?? '']))
  const commands = commandsAt(rest, { path, line }, variables)
  const server = commands.find((words) => serverAt(words) >= 0)
  if (server === undefined) return commands.flat()
  // The other commands run before it.
  judgeInstalls(commands, findings)
  launch.wantsPython ||= commands.some((words) => installsPackages(words))
  return server
}

function lineOf(rest: string, word: string, line: number): number {
  const at = rest.indexOf(JSON.stringify(word))
  return at < 0 ? line : line + rest.slice(0, at).split('\n').length - 1
}

/** @param isRoot true if it runs as root, in an image that stays */
function judgeRun(rest: string, at: { path: string; line: number }, isRoot: boolean, findings: Findings): void {
  const subject = `RUN ${shorten(rest)}`
  if (/\bpip3?\b[^&|;]*\binstall\b|\bconda\b|\buv\b/.test(rest))
    findings.same(at, subject, 'packages for Python models; the interpreter needs numpy')
  else if (/tritonserver\/backends|triton_backend|tensorrt_llm|trtllm-build/.test(rest))
    findings.fact(at, subject, 'backends')
  else if (/\bapt(?:-get)?\b/.test(rest) && !isRoot)
    findings.change(at, subject, 'write USER root before it and USER 1000 after it; packages come from Debian')
  else findings.same(at, subject)
}

const shorten = (text: string): string =>
  text
    .replaceAll(/\\?\s*\n\s*/g, ' ')
    .trim()
    .slice(0, 80)

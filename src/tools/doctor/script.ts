/** Reads shell scripts and command-line arguments: every `tritonserver …` and `docker run …` in them. */

import { inShell } from './command_line.js'
import { readDockerRun } from './docker.js'
import type { At, Findings, Located } from './findings.js'
import { isClientImage } from './image.js'
import { judgeSetup } from './front_end.js'
import { assigned, isTriton, launchAt, type Launch } from './launch.js'
import { frontEndAt, isAssignment, onlyMentions, serverAt } from './programs.js'
import { commandsAt, lineOf, shellCommands } from './shell.js'

/** Programs that query or benchmark a server. */
const CLIENTS =
  /(?:^|\/)(?:perf_analyzer|genai-perf|perf_client|model-analyzer|image_client|curl|wget|grpcurl|python3?|pytest)$/

/** Programs that take a command as one word. */
const CARRIERS = /(?:^|\/)(?:ssh|eval|su|tmux|screen|wsl)$/
/** Nesting of commands in words of commands. */
const CARRIED_MAX = 5

/**
 * @param replacement the Nereid image that replaces Triton's; null if unknown
 * @throws {ShellError} above a limit
 */
export function readScript(
  text: string,
  path: string,
  directory: string,
  findings: Findings,
  replacement: string | null = null,
): Launch[] {
  judgePulls(text, path, findings, replacement)
  const variables = new Map([
    ['PWD', directory],
    ['HOME', process.env['HOME'] ?? '~'],
  ])
  const found = readCommands(text, variables, { path, line: 1 }, directory, findings, 0)
  if (found.some(({ image, argv }) => image === null && frontEndAt(argv) >= 0))
    judgeSetup(commandsAt(text, { path, line: 1 }), findings)
  return found
}

/** Judges pulls: Triton's image is no longer needed; Nereid images are built locally unless they have another name. */
function judgePulls(text: string, path: string, findings: Findings, replacement: string | null): void {
  const lines = text.split('\n')
  for (const words of shellCommands(text)) {
    const [program, second, third] = words
    const image = words.at(-1)
    if (program === undefined || image === undefined) continue
    const isPull =
      /(?:^|\/)(?:docker|podman|nerdctl|crictl)$/.test(program.text) &&
      (second?.text === 'pull' || (second?.text === 'image' && third?.text === 'pull'))
    if (!isPull || !/triton[-_]?server/i.test(image.text) || isClientImage(image.text)) continue
    const at = { path, line: program.line }
    const subject = words.map(({ written }) => written).join(' ')
    if (replacement !== null) {
      findings.change(at, subject, `pull ${replacement} in its place`)
      findings.replace({ path, line: image.line }, image.written, replacement)
    } else {
      findings.change(at, subject, 'leave it out: docs/containers.md makes the image of Nereid')
      if ((lines[program.line - 1] ?? '').trim().replace(/^sudo\s+/, '') === subject)
        findings.apply([{ at, throughLine: program.line }])
    }
  }
}

function readCommands(
  text: string,
  variables: Map<string, string>,
  { path, line: from }: At,
  directory: string,
  findings: Findings,
  depth: number,
): Launch[] {
  return shellCommands(text, variables, from).flatMap((words) => {
    const [program] = words
    const carried =
      program !== undefined && CARRIERS.test(program.text) && depth < CARRIED_MAX
        ? words.find((word) => /\s/.test(word.text) && /triton/i.test(word.text))
        : undefined
    if (carried !== undefined)
      return readCommands(carried.text, variables, { path, line: carried.line }, directory, findings, depth + 1)
    const located = words.map(({ line, ...word }) => ({ ...word, at: { path, line } }))
    return readWords(located, directory, findings)
  })
}

/** Judges one command. */
export function readWords(words: readonly Located[], directory: string, findings: Findings): Launch[] {
  const asks = words.some(({ text }) => CLIENTS.test(text))
  if (onlyMentions(words) && !asks) return []
  const run = readDockerRun(words, directory, findings)
  if (run !== null) {
    if (isTriton(run)) return [run]
    const isUnknown = run.image?.isOpen === true
    findings.same(
      run.at,
      `docker run ${run.image?.text ?? ''}`.trim(),
      isUnknown ? 'its image is known only at run time: not changed' : 'is not Triton: not changed',
    )
    return []
  }
  const program = words.find((word) => !isAssignment(word))
  if (program === undefined) return []
  const launcher = words.find(({ text }) => /launch_triton_server/.test(text))
  if (launcher !== undefined) {
    const text = 'starts servers by a program of its own: run doctor on the command line that it makes'
    findings.differs(launcher.at, lineOf(words), text)
    return []
  }
  const argv = inShell(words)
  const isFrontEnd = frontEndAt(argv) >= 0
  if (CLIENTS.test(program.text) && !isFrontEnd) {
    if (words.some(({ text }) => /perf_analyzer|genai-perf|\/v2\/|tritonclient/.test(text)))
      findings.same(program.at, program.text, 'a client: not changed')
    return []
  }
  const server = serverAt(argv)
  if (server < 0) return []
  const set = argv.slice(0, server).filter(isAssignment)
  const env = set.map(({ text, at }) => ({ ...assigned(text), at }))
  return [{ ...launchAt(program.at, isFrontEnd ? 'main.py' : 'tritonserver', directory), argv: [...argv], env }]
}

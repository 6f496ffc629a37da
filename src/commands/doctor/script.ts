/** Reads shell scripts and command-line arguments: every `tritonserver …` and `docker run …` in them. */

import { inShell } from './command_line.js'
import { readDockerRun } from './docker.js'
import type { At, Findings, Located } from './findings.js'
import { isClientImage } from './image.js'
import { isTriton, type Launch } from './launch.js'
import { onlyMentions, serverAt } from './programs.js'
import { shellCommands } from './shell.js'

type Found = { launch: Launch; judge: () => void }

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
): Found[] {
  judgePulls(text, path, findings, replacement)
  return readCommands(
    text,
    new Map([
      ['PWD', directory],
      ['HOME', process.env['HOME'] ?? '~'],
    ]),
    { path, line: 1 },
    directory,
    findings,
    0,
  )
}

/** Judges pulls: Triton's image is no longer needed; Nereid images are built locally unless they have another name. */
function judgePulls(text: string, path: string, findings: Findings, replacement: string | null): void {
  const lines = text.split('\n')
  for (const { words } of shellCommands(text)) {
    const [program, second, third] = words
    const isPull =
      program !== undefined &&
      /(?:^|\/)(?:docker|podman|nerdctl|crictl)$/.test(program.text) &&
      (second?.text === 'pull' || (second?.text === 'image' && third?.text === 'pull'))
    const image = isPull ? words.at(-1) : undefined
    if (
      image === undefined ||
      program === undefined ||
      !/triton[-_]?server/i.test(image.text) ||
      isClientImage(image.text)
    )
      continue
    const at = { path, line: program.line }
    const subject = words.map(({ written }) => written).join(' ')
    if (replacement !== null) {
      findings.add(at, subject, 'change', `pull ${replacement} in its place`)
      findings.replace({ path, line: image.line }, image.written, replacement)
    } else {
      findings.add(at, subject, 'change', 'leave it out: docs/containers.md makes the image of Nereid')
      if ((lines[program.line - 1] ?? '').trim().replace(/^sudo\s+/, '') === subject)
        findings.removeLines(at, program.line)
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
): Found[] {
  const found: Found[] = []
  for (const { words } of shellCommands(text, variables, from)) {
    const [program] = words
    const carried =
      program !== undefined && CARRIERS.test(program.text) && depth < CARRIED_MAX
        ? words.find((word) => /\s/.test(word.text) && /triton/i.test(word.text))
        : undefined
    if (carried !== undefined)
      found.push(...readCommands(carried.text, variables, { path, line: carried.line }, directory, findings, depth + 1))
    else
      found.push(
        ...readWords(
          words.map(({ text: word, line, written, isOpen }) => ({ text: word, written, isOpen, at: { path, line } })),
          directory,
          findings,
        ),
      )
  }
  return found
}

/** Judges one command. */
export function readWords(words: readonly Located[], directory: string, findings: Findings): Found[] {
  if (onlyMentions(words) && !words.some(({ text }) => CLIENTS.test(text))) return []
  const run = readDockerRun(words, directory, findings)
  if (run !== null) {
    if (isTriton(run.launch)) return [run]
    const { image, at } = run.launch
    findings.add(
      at,
      `docker run ${image?.text ?? ''}`.trim(),
      'same',
      image?.isOpen === true ? 'its image is known only at run time: not changed' : 'is not Triton: not changed',
    )
    return []
  }
  const program = words.find(({ text }) => !/^[A-Za-z_]\w*=/.test(text))
  if (program === undefined) return []
  const launcher = words.find(({ text }) => /launch_triton_server/.test(text))
  if (launcher !== undefined) {
    findings.add(
      launcher.at,
      words.map(({ text }) => text).join(' '),
      'differs',
      'starts servers by a program of its own: run doctor on the command line that it makes',
    )
    return []
  }
  const argv = inShell(words) ?? words
  const server = serverAt(argv)
  if (server < 0 || CLIENTS.test(program.text)) {
    if (
      CLIENTS.test(program.text) &&
      words.some(({ text }) => /perf_analyzer|genai-perf|\/v2\/|tritonclient/.test(text))
    ) {
      findings.add(program.at, program.text, 'same', 'a client: not changed')
    }
    return []
  }
  const env = argv
    .slice(0, server)
    .filter(({ text }) => /^[A-Za-z_]\w*=/.test(text))
    .map(({ text, at }) => ({ name: text.slice(0, text.indexOf('=')), value: text.slice(text.indexOf('=') + 1), at }))
  return [
    {
      launch: { at: program.at, name: 'tritonserver', image: null, argv: [...argv], env, mounts: [], directory },
      judge: () => {},
    },
  ]
}

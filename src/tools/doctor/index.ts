/**
 * `nereid doctor`: reports line by line what of an existing Triton deployment runs unchanged, what differs and what
 * must change. Reads model repositories, command lines, shell scripts, Dockerfiles, compose files and Kubernetes
 * manifests; runs nothing and changes nothing.
 *
 * Exit code 0 if nothing must change, 1 otherwise, 2 for unreadable input.
 */

import { dirname, resolve } from 'node:path'
import { OptionError, commandNamed, isFlag, readArguments, shown, usageOf, type Command } from '../../internal.js'
import { readCompose } from './compose.js'
import { diffOf } from './diff.js'
import { readDockerfile } from './dockerfile.js'
import { Findings, type Located } from './findings.js'
import { InputError, readTarget, type Input } from './inputs.js'
import { judgeLaunch, settingsOf, type Start } from './judge.js'
import { readKubernetes } from './kubernetes.js'
import type { Launch } from './launch.js'
import { judgeRepository, type Needs } from './models.js'
import { report, type Outcome } from './report.js'
import { readScript, readWords } from './script.js'
import { ShellError } from './shell.js'
import { withoutTemplates } from './template.js'
import { readYaml, YamlError } from './yaml.js'

export async function run(program: string, args: readonly string[]): Promise<number> {
  try {
    const doctor = commandNamed('doctor')
    const { format, image, targets, command } = operands(doctor, args)
    if (targets.length === 0 && command.length === 0)
      throw new InputError(
        `${usageOf(program, doctor)}\nName a model repository, a file that starts a Triton, or its command line ` +
          `after --`,
      )
    return report(await examine(targets, command, image), format)
  } catch (error) {
    // A reader may reach its limit late in a file.
    if (!(error instanceof InputError || error instanceof OptionError || error instanceof YamlError)) throw error
    process.stderr.write(`${error.message}\n`)
    return 2
  }
}

function operands(doctor: Command, args: readonly string[]) {
  const end = args.indexOf('--')
  const own = end < 0 ? args : args.slice(0, end)
  // A server flag that the command does not have is misplaced, not misspelled.
  const flag = own.find((arg) => {
    const name = /^--?([^=]+)/.exec(arg)?.[1]
    return name !== undefined && doctor.options?.some((option) => option.name === name) !== true && isFlag(name)
  })
  if (flag !== undefined)
    throw new InputError(
      `'${flag}' is an option of the server: write the command line of the server after --: doctor -- ` +
        `tritonserver ${flag}`,
    )
  const { options, rest } = readArguments(doctor, own)
  const dashed = rest.find((arg) => arg.startsWith('-') && arg !== '-')
  if (dashed !== undefined)
    throw new InputError(`unrecognized option '${dashed}'; write the command line of a server after --`)
  return {
    format: options.get('format') === 'json' ? ('json' as const) : ('text' as const),
    image: options.get('image') ?? null,
    targets: rest,
    command: end < 0 ? [] : args.slice(end + 1),
  }
}

async function examine(targets: readonly string[], command: readonly string[], image: string | null): Promise<Outcome> {
  const findings = new Findings()
  const starts: Start[] = []
  const texts = new Map<string, string>()
  const seen = new Map<string, Needs>()
  const judge = async (found: readonly Launch[]): Promise<void> => {
    for (const launch of found) {
      const start = await judgeLaunch(launch, findings, image, seen)
      if (start !== null) starts.push(start)
    }
  }
  for (const path of targets) {
    const target = await readTarget(path)
    if ('repository' in target) {
      if (seen.has(resolve(path))) continue
      const flags = [`--model-repository=${path}`]
      seen.set(resolve(path), await judgeRepository(path, target.isModel, settingsOf(flags), findings))
      if (!target.isModel) starts.push({ name: path, words: ['nereid', ...flags] })
      continue
    }
    for (const input of target.files) {
      texts.set(input.path, input.source)
      await judge(await launches(input, findings, image))
    }
  }
  if (command.length > 0) {
    const words: Located[] = command.map((text) => ({ text, isOpen: false, at: { path: 'command line', line: 0 } }))
    const before = findings.list.length
    const found = readWords(words, process.cwd(), findings)
    if (found.length === 0 && findings.list.length === before)
      throw new InputError(
        'the command line after -- starts neither tritonserver nor Triton’s OpenAI front end (python3 main.py) nor ' +
          `docker run: ${command.join(' ')}`,
      )
    await judge(found)
  }
  const changes = [...texts].map(([path, text]) => {
    const edits = findings.edits.filter((edit) => edit.at.path === path)
    return diffOf(path === '-' ? path : shown(resolve(path)), text, edits)
  })
  const diffs = changes.map(({ patch }) => patch).filter((patch) => patch !== '')
  return { findings, starts, diffs, edits: changes.flatMap(({ applied }) => applied) }
}

/** Every start of a Triton in a file. */
async function launches({ path, kind, text }: Input, findings: Findings, image: string | null): Promise<Launch[]> {
  const directory = path === '-' ? process.cwd() : dirname(resolve(path))
  try {
    if (kind === 'script') {
      const found = readScript(text, path, directory, findings, image)
      // Findings about clients and other containers suffice.
      if (found.length === 0 && !findings.list.some(({ at }) => at.path === path))
        findings.same({ path, line: 0 }, 'script', 'does not start Triton, as far as doctor can see')
      return found
    }
    if (kind === 'dockerfile') {
      const launch = readDockerfile(text, path, directory, findings)
      return launch === null ? [] : [launch]
    }
    const documents = await readYaml(text, path)
    const { line } = withoutTemplates(text)
    if (line > 0)
      findings.same(
        { path, line },
        'template',
        'values of {{ … }} are known only after rendering, and doctor reads all branches; for exact results, run ' +
          'doctor on the output of `helm template`',
      )
    const compose = documents.find(
      (document) => document.get('services') !== null && document.get('apiVersion') === null,
    )
    if (compose !== undefined) return readCompose(compose, directory, findings)
    if (documents.some((document) => document.get('apiVersion') !== null || document.get('kind') !== null))
      return readKubernetes(documents, directory, findings)
  } catch (error) {
    if (error instanceof ShellError || error instanceof YamlError) {
      const advice = text.includes('{{')
        ? ': it is a template of Helm; run doctor on the output of `helm template`'
        : ''
      throw new InputError(`${path}: ${error.message}${advice}`)
    }
    throw error
  }
  const isChart = /^image:\s*$/m.test(text)
  const advice = isChart ? '; for values of a Helm chart, run doctor on the output of `helm template`' : ''
  throw new InputError(`${path}: is YAML, but neither a compose file nor a Kubernetes manifest${advice}`)
}

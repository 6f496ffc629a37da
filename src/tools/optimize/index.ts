/**
 * `nereid optimize`: makes an int8 model of an ONNX model, compares both, and writes it unless it differs too much.
 *
 * Both models run in servers inside this process, as they will be served: a text model with its tokenizer and pooling.
 */

import { existsSync, mkdirSync, readFileSync, readdirSync, realpathSync, statSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import {
  CommandError,
  ServerError,
  backendRow,
  commandNamed,
  completeConfig,
  counted,
  findVersions,
  invocation,
  lookAt,
  onnxPath,
  plainReason,
  printable,
  readArguments,
  readConfig,
  selectVersions,
  shellWord,
  shown,
  textFolderOf,
  usageOf,
  type CommandArguments,
  type Model,
  type Server as RunningServer,
} from '../../internal.js'
import { unreadableCloud, unwritableCloud } from '../check/cloud.js'
import { printFailure } from '../failure.js'
import type { ModelIoConfig } from '../init/model_io.js'
import { filesBelow, isFile, Staging } from '../init/place.js'
import { cleaningUp, withServer } from '../trial.js'
import { Comparison, type Similarity } from './compare.js'
import { generatedRequests, named, readRequests, type Request, type Requests } from './inputs.js'
import { writeInt8, type Int8 } from './int8.js'
import { measured, type Rate } from './measure.js'
import { summary, tableText } from './report.js'

/** Less is refused without `--accept`. */
const MEAN_MIN = 0.99
const MINIMUM_MIN = 0.97
/** Requests that a calibration gets. */
const CALIBRATION_MAX = 64
/** Sizes tried for variable dimensions of generated requests: tokens and images, then what strict models take. */
const SIZES = [64, 224, 8, 1, 2, 4, 16, 32]
/** A graph with y = x, of one FP32. */
const SMALLEST =
  'CAkSBm5lcmVpZDo7ChAKAXgSAXkiCElkZW50aXR5EgVncmFwaFoPCgF4EgoKCAgBEgQKAggBYg8KAXkSCgoICAESBAoCCAFCBAoAEBM='

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('optimize')
  try {
    const read = readArguments(command, args)
    const [source] = read.rest
    if (source === undefined || read.rest.length > 1) throw new CommandError(usageOf(program, command))
    return await optimize(sourceOf(program, source), read)
  } catch (error) {
    return printFailure(error)
  }
}

/** A model whose graph becomes int8. */
interface Source {
  /** The path that the user gave. */
  given: string
  directory: string
  name: string
  /** Directory of the version, such as `1`. */
  version: string
  graph: string
  /** Role of a text model; null for another model. */
  role: string | null
}

/** @throws {CommandError} for what is no model of a repository, or has no ONNX graph */
function sourceOf(program: string, given: string): Source {
  const hint = unreadableCloud(given, 'optimize')
  if (hint !== null) throw new CommandError(hint)
  const directory = resolve(given)
  const isModel = statSync(directory, { throwIfNoEntry: false })?.isDirectory() === true
  const versions = isModel ? findVersions(directory, () => {}) : new Map<number, string>()
  if (versions.size === 0)
    throw new CommandError(
      `${given} is not a model of a repository, which is a directory with versions: ${invocation(program)} init ` +
        `${shellWord(given)} makes one of a file or a folder, in models`,
    )
  const name = basename(directory)
  const flags = { autoComplete: true, configName: null }
  const { config } = completeConfig(readConfig(directory, flags, null), directory, name, flags)
  const path = versions.get(selectVersions(config, [...versions.keys()]).at(-1) ?? 0) ?? ''
  const isText = backendRow(config.backend)?.isText === true
  if (config.backend !== 'onnxruntime' && !isText)
    throw new CommandError(
      `${given} has the backend '${printable(config.backend)}': only ONNX graphs become int8, of the backends ` +
        'onnxruntime and text',
    )
  const text = isText ? textFolderOf(config, path) : null
  const graph = isText ? text?.file : onnxPath(config, path)
  if (graph === undefined || !isFile(graph)) throw new CommandError(`there is no file ${shown(graph ?? path)}`)
  const { why } = lookAt(graph)
  if (why !== null) throw new CommandError(`${shown(graph)} ${why}`)
  const version = basename(path)
  return { given, directory, name, version, graph, role: text?.role ?? null }
}

async function optimize(source: Source, { options, all }: CommandArguments): Promise<number> {
  const out = options.get('out') ?? 'optimized'
  const hint = unwritableCloud(out, 'optimize')
  if (out === '') throw new CommandError('--out needs a value: --out=<path>')
  if (hint !== null) throw new CommandError(hint)
  if (existsSync(out) && realpathSync(out) === realpathSync(dirname(source.directory)))
    throw new CommandError(`--out=${out} is the repository of ${source.given} itself: name another one`)
  // Before anything is made, since a mistake in the file is found at once.
  const file = options.get('inputs')
  const given = file === undefined ? null : readRequests(resolve(file), source.name, source.role)
  const staging = new Staging(out, source.name, false)
  const ending = new AbortController()
  let python: Promise<unknown> = Promise.resolve()
  const clean = async (): Promise<void> => {
    ending.abort()
    await python.catch(() => {})
    staging.remove()
  }
  const exclude = all.flatMap(([name, value]) => (name === 'exclude' ? value.split(',') : []))
  const choice = { method: options.get('method') ?? '', perTensor: options.has('per-tensor'), exclude }
  return await cleaningUp(async () => {
    const target = stage(source, staging, options.has('force'))
    return await withServer(dirname(source.directory), false, async (server) => {
      const original = await loaded(server, source, given)
      const work = join(staging.repository, '.work')
      mkdirSync(work)
      const half = original.requests.slice(0, Math.min(CALIBRATION_MAX, Math.ceil(original.requests.length / 2)))
      process.stderr.write(`making int8 of ${shown(source.graph)}\n`)
      const making = writeInt8(source.graph, target, work, source.role === null ? half : [], choice, ending.signal)
      python = making
      const made = await making
      // Inputs that calibrated a model make it look better than it is.
      if (made.method === 'static' && original.requests.length > 1) original.requests.splice(0, half.length)
      return await judged(source, original, made, target, staging, options.has('accept'))
    })
  }, clean)
}

/** Loads the int8 model, prints how it compares, and moves it to its repository, or says why not. */
async function judged(
  source: Source,
  { original, memory, requests, from }: Original,
  made: Int8,
  target: string,
  staging: Staging,
  isAccepted: boolean,
): Promise<number> {
  return await withServer(staging.repository, false, async (server) => {
    const before = memoryBytes()
    await load(server.load(source.name), 'the int8 model')
    const optimized = server.model(source.name)
    await optimized.infer({ inputs: requests[0] as Request })
    const memories: [number, number] = [memory, memoryBytes() - before]
    const similarity = await compare(original, optimized, requests)
    const rates: Rate[] = []
    for (const concurrency of [1, 8]) rates.push(await measured([original, optimized], requests, concurrency))
    const bytes: [number, number] = [statSync(source.graph).size, statSync(target).size]
    const count = `${counted(requests.length, 'request')} of ${from}`
    process.stdout.write(tableText(source.given, made, count, bytes, memories, rates, similarity, source.role))
    const why = whyRefused(similarity, isAccepted)
    if (why !== null) {
      process.stderr.write(`error: ${why}\n`)
      return 1
    }
    staging.add({ to: 'config.pbtxt', text: configText(source, summary(made, similarity, count)) })
    // Weights beyond 2 GiB are in a file beside the graph.
    for (const { name } of readdirSync(dirname(target), { withFileTypes: true }).filter((entry) => entry.isFile()))
      staging.register(relative(source.directory, join(dirname(source.graph), name)))
    process.stdout.write(
      `\n${staging
        .finish()
        .map((path) => `${path}\n`)
        .join('')}`,
    )
    return 0
  })
}

/** Puts all files of the version but its graph into the staging; returns the path for the new graph. */
function stage({ directory, name, version, graph, given }: Source, staging: Staging, isForced: boolean): string {
  const data = (lookAt(graph).file?.dataFiles ?? []).map((file) => join(dirname(graph), file))
  const left = new Set([join(directory, 'config.pbtxt'), graph, ...data].map((file) => relative(directory, file)))
  const isKept = (path: string): boolean => !left.has(path) && (!/^\d+\//.test(path) || path.startsWith(`${version}/`))
  const files = filesBelow(directory, given, (path) => path).filter(({ to }) => isKept(to))
  staging.requireRoom(files)
  for (const file of files) staging.add(file)
  staging.add({ to: 'config.pbtxt', text: configText({ directory }, '') })
  const to = relative(directory, graph)
  staging.add({ to, text: '' })
  const [taken] = staging.inTheWay()
  if (taken !== undefined && !isForced) throw new CommandError(`${taken} already exists; --force replaces it`)
  return join(staging.repository, name, to)
}

/** The configuration of the original, below comments about what was made. */
function configText({ directory }: Pick<Source, 'directory'>, about: string): string {
  const path = join(directory, 'config.pbtxt')
  return about + (isFile(path) ? readFileSync(path, 'utf8') : '')
}

/** Resident memory without that of JavaScript, which varies with its collections. */
function memoryBytes(): number {
  const { rss, heapTotal, external } = process.memoryUsage()
  return rss - heapTotal - external
}

/** Runs the smallest graph: what ONNX Runtime takes once for the process is not of the first model. */
async function warmUp(server: RunningServer): Promise<void> {
  const name = 'nereid_warm_up'
  const config = { backend: 'onnxruntime' }
  await server.load(name, { config, files: { '1/model.onnx': Buffer.from(SMALLEST, 'base64') } })
  await server.model(name).infer({ inputs: { x: { data: Float32Array.of(1), shape: [1] } } })
  await server.unload(name)
}

const load = async (loading: Promise<unknown>, what: string): Promise<void> => {
  try {
    await loading
  } catch (error) {
    throw error instanceof ServerError ? new CommandError(`${what} does not load: ${plainReason(error)}`) : error
  }
}

/** The loaded model, the bytes that it takes, and requests that it answers. */
interface Original extends Requests {
  original: Model
  memory: number
}

/** Loads the original, and finds requests that it answers. */
async function loaded(
  server: RunningServer,
  { name, given: source, role }: Source,
  given: Requests | null,
): Promise<Original> {
  await warmUp(server)
  const before = memoryBytes()
  await load(server.load(name), source)
  const original = server.model(name)
  const config = original.config() as ModelIoConfig
  let refusal = ''
  for (const size of given === null && role === null ? SIZES : [1]) {
    const requests = given === null ? generatedRequests(config, role !== null, size) : named(given, config)
    const [first] = requests?.requests ?? []
    if (requests === null || first === undefined) continue
    try {
      await original.infer({ inputs: first })
      return { original, memory: memoryBytes() - before, ...requests }
    } catch (error) {
      if (!(error instanceof ServerError)) throw error
      if (refusal === '') refusal = plainReason(error)
    }
  }
  const refused = given === null ? 'generated requests, so give some with --inputs=FILE' : 'the first request'
  throw new CommandError(`${source} refuses ${refused}: ${refusal}`)
}

async function compare(original: Model, optimized: Model, requests: readonly Request[]): Promise<Similarity> {
  const comparison = new Comparison()
  for (const [i, inputs] of requests.entries()) {
    try {
      const [one, other] = [await original.infer({ inputs }), await optimized.infer({ inputs })]
      comparison.add(one.outputs, other.outputs)
    } catch (error) {
      throw error instanceof ServerError ? new CommandError(`request ${i + 1} fails: ${plainReason(error)}`) : error
    }
  }
  return comparison.result()
}

/** Why the int8 model is not written; null if it is. */
function whyRefused({ minimum, mean, isBroken }: Similarity, isAccepted: boolean): string | null {
  if (isBroken)
    return 'the int8 model returns values that are not numbers where the original returns numbers: nothing was written'
  if (isAccepted || (mean >= MEAN_MIN && minimum >= MINIMUM_MIN)) return null
  return (
    `the int8 model differs too much (at least ${MEAN_MIN} in the mean and ${MINIMUM_MIN} for each output ` +
    `are needed): nothing was written. --exclude=NODE leaves nodes as they are, --accept writes it nevertheless`
  )
}

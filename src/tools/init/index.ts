/**
 * `nereid init`: makes a model repository from a model, and prints the first request to it.
 *
 * Everything printed was tried, except for engines of vLLM: a server in this process loads the model from the written
 * files, and gets the bytes of the request before the command that sends them is shown.
 */

import { readdirSync, statSync } from 'node:fs'
import { basename, dirname, extname, join, relative, resolve } from 'node:path'
import {
  BACKENDS,
  CommandError,
  DEFAULT_MAX_BATCH_SIZE,
  ServerError,
  backendRow,
  commandNamed,
  invocation,
  lookAt,
  plainReason,
  printable,
  readArguments,
  requireSafeName,
  shellWord,
  usageOf,
  whyNoWeights,
  type CommandArguments,
  type Server,
} from '../../internal.js'
import { unreadableCloud, unwritableCloud } from '../check/cloud.js'
import { printFailure } from '../failure.js'
import { cleaningUp, withServer } from '../trial.js'
import { batchedConfig, tryBatches, whyNotByGraph, type Batching } from './batching.js'
import {
  onnxConfigText,
  planConfigText,
  pythonConfigText,
  pytorchConfigText,
  treesConfigText,
  unreadConfigText,
  vllmConfigText,
} from './config_text.js'
import { exampleRequest, type Example } from './example.js'
import { exportHint } from './foreign.js'
import type { ModelIoConfig } from './model_io.js'
import {
  exportFolder,
  isTextFolder,
  textConfigText,
  textExample,
  textFiles,
  textFolder,
  type TextPlan,
} from './text.js'
import { Staging, dataFile, filesBelow, isFile, requireRegular, type ModelFile } from './place.js'
import { PYTHON_IO, pythonModel } from './python_model.js'
import { statesOf } from './state.js'
import { torchScriptIn, type TorchScript } from './torchscript.js'
import { TREES, treesIn, type TreesFile } from './trees.js'
import { writeTutorial } from './tutorials.js'
import { makeVision, taskOf } from './vision.js'
import { generateExample, isEngine } from './vllm.js'

/** Sizes tried for variable dimensions: a model may want even numbers, a window, or an image. */
const SIZES = [8, 1, 2, 4, 16, 32, 64, 224]
const REQUEST_MS_MAX = 60_000
const BATCH_MAX = 2 ** 31 - 1
/** `max_batch_size` of trees, which always batch: rows are cheap. */
const TREES_BATCH = 4096
/** `max_batch_size` of vision networks with --batch and without a value. */
const VISION_BATCH = 8
const TEXTS_BATCH = backendRow('text')?.maxBatchSize ?? 0
/** Models of a directory that an error lists. */
const NAMED_MAX = 20

export interface Plan {
  name: string
  kind: 'fil' | 'javascript' | 'onnx' | 'openvino' | 'python' | 'pytorch' | 'tensorflow' | 'tensorrt' | 'text' | 'vllm'
  files: ModelFile[]
  /** The path that the user gave. */
  source: string
  /** The files come from a template, whose inputs and outputs are known. */
  isTemplate?: boolean
  /** Command that runs the model's test, and more lines about it. */
  tested?: readonly string[]
  trees?: TreesFile
  text?: TextPlan
  /** Files next to the model that are not part of it. */
  beside?: string[]
}

/** A request that succeeded, or the first one with the reason why none did. */
interface Trial {
  example: Example | null
  refusal: string | null
  /** Whether the model batches, and why. */
  batching?: Batching
}

/** A model that was written and does not load here yet. */
interface Unloaded {
  failure: string
}

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('init')
  try {
    const read = readArguments(command, args)
    const [source] = read.rest
    if (read.options.has('example')) {
      const name = read.options.get('example') || (source ?? '')
      const isForced = read.options.has('force')
      process.stdout.write(writeTutorial(invocation(program), name, read.options.get('out'), isForced))
      return 0
    }
    if (read.options.has('export') && source !== undefined) await exportFolder(resolve(source), source)
    const task = taskOf(read.options)
    const plan = planOf(program, read, usageOf(program, command))
    if (task === null) process.stdout.write(await make(program, plan, read.options))
    else {
      const batch = read.options.has('batch') ? batchOf(read.options, VISION_BATCH) : null
      process.stdout.write(await makeVision(program, plan, task, { options: read.options, batch }))
    }
    return 0
  } catch (error) {
    return printFailure(error)
  }
}

/** @throws {CommandError} for a name that the server or a URL does not take */
export function requireUrlName(name: string): void {
  requireSafeName(name)
  // The server takes the name from a path unchanged, as Triton does: nothing is decoded.
  if (!/^[\w.-]+$/.test(name))
    throw new CommandError(`the name '${name}' cannot be part of a URL: use letters, digits, '_', '-' and '.'`)
}

function planOf(program: string, { rest, options }: CommandArguments, usage: string): Plan {
  const [source] = rest
  if (source === undefined || rest.length > 1) throw new CommandError(usage)
  const named = (fallback: string): string => {
    const name = options.get('name') ?? fallback
    requireUrlName(name)
    return name
  }
  if (options.has('python')) {
    const files = [pythonModel()]
    return { name: named(source), kind: 'python', files, source, isTemplate: true }
  }
  const hint = unreadableCloud(source, 'init')
  if (hint !== null) throw new CommandError(hint)
  const path = resolve(source)
  const stat = statSync(path, { throwIfNoEntry: false })
  if (stat === undefined) throw new CommandError(`there is no file ${source}`)
  const code = stat.isDirectory() ? CODE.find(({ name }) => isFile(join(path, name))) : undefined
  if (code !== undefined)
    return {
      name: named(nameOf(path)),
      kind: code.kind,
      files: filesBelow(path, source, (file) => (file === 'config.pbtxt' ? file : join('1', file))),
      source,
    }
  const saved = SAVED_MODEL.includes(basename(path)) ? dirname(path) : path
  if (isDirectory(saved) && readdirSync(saved).some((name) => SAVED_MODEL.includes(name)))
    return {
      name: named(nameOf(saved)),
      kind: 'tensorflow',
      files: filesBelow(saved, source, (file) => join('1', SAVED_NAME, file)),
      source,
    }
  if (isTextFolder(path)) {
    const { text, graph } = textFolder(path, source, options.get('file'), invocation(program))
    const graphs = [graph, ...dataOf(graph, join(source, relative(path, graph)))]
    const files = textFiles(
      path,
      graphs.map((file) => relative(path, file)),
    )
    return { name: named(nameOf(path)), kind: 'text', files, source, text }
  }
  const file = stat.isDirectory() ? modelIn(path, source) : path
  const foreign = exportHint(file)
  if (foreign !== null) throw new CommandError(`${source} ${foreign}`)
  if (TREES.test(file)) {
    requireRegular(file)
    const why = whyNoWeights(file)
    if (why !== null) throw new CommandError(`${source} ${why}`)
    const trees = treesIn(file)
    if (trees !== null)
      return { name: named(nameOf(file)), kind: 'fil', files: [{ from: file, to: `1/${trees.file}` }], source, trees }
  }
  if (isEngine(file)) {
    const lora = join(dirname(file), LORA)
    const files = [{ from: file, to: '1/model.json' }, ...(isFile(lora) ? [{ from: lora, to: join('1', LORA) }] : [])]
    return { name: named(nameOf(file)), kind: 'vllm', files, source }
  }
  if (!file.endsWith('.onnx') && !SERVED.test(file))
    throw new CommandError(
      `${source} is not a .onnx, .pt, .pt2, .xml or .plan file, not trees of XGBoost, LightGBM or treelite, not ` +
        `JSON with the arguments of a vLLM engine (which need "model"), and not a directory with a model.py, a ` +
        `model.ts or a saved_model.pb`,
    )
  requireRegular(file)
  if (SERVED.test(file)) {
    const parts = [
      file,
      ...(OPENVINO.test(file) ? ['.bin', '.BIN'] : [])
        .map((end) => file.replace(OPENVINO, end))
        .filter(isFile)
        .slice(0, 1),
    ]
    for (const part of parts) {
      // Weights without bytes belong to a graph without constants.
      const why = part === file || statSync(part).size > 0 ? whyNoWeights(part) : null
      if (why !== null) throw new CommandError(`${part === file ? source : part} ${why}`)
    }
    if (OPENVINO.test(file))
      return {
        name: named(nameOf(file)),
        kind: 'openvino',
        files: parts.map((from) => ({ from, to: `1/model${endingOf(from)}` })),
        source,
      }
    const kind = PLAN.test(file) ? 'tensorrt' : 'pytorch'
    const [usual, ...others] = (backendRow(kind)?.files ?? []).map(({ name }) => name)
    const to = others.find((name) => extname(name) === endingOf(file)) ?? usual ?? ''
    return { name: named(nameOf(file)), kind, files: [{ from: file, to: join('1', to) }], source }
  }
  const shown = stat.isDirectory() ? join(source, relative(path, file)) : source
  const data = dataOf(file, shown).map((from) => ({ from, to: join('1', relative(dirname(file), from)) }))
  const beside = stat.isDirectory() ? TOKENIZERS.filter((name) => isFile(join(path, name))) : []
  return {
    name: named(nameOf(file)),
    kind: 'onnx',
    files: [{ from: file, to: '1/model.onnx' }, ...data],
    source,
    beside,
  }
}

/** Files with data of an ONNX model, as the model names them. */
function dataOf(file: string, shown: string): string[] {
  const { file: onnx, why } = lookAt(file)
  if (why !== null) throw new CommandError(`${shown} ${why}`)
  return (onnx?.dataFiles ?? []).map((location) => {
    const from = dataFile(dirname(file), location)
    const noWeights = whyNoWeights(from)
    if (noWeights !== null) throw new CommandError(`the model keeps data in '${location}', and that ${noWeights}`)
    return from
  })
}

/** The ending of a file name in lower case, as backends name their files. */
const endingOf = (file: string): string => extname(file).toLowerCase()

/** Files of models that are code: the directory that has one is the model. */
const CODE = (['python', 'javascript'] as const).flatMap((kind) =>
  (backendRow(kind)?.files ?? []).map(({ name }) => ({ name, kind })),
)

/** A name with one of the endings that `init` accepts for these backends. */
const endOf = (...backends: string[]): RegExp => {
  const ends = backends.flatMap((name) => backendRow(name)?.init ?? [])
  return new RegExp(`(?:${ends.map((end) => end.replaceAll('.', '\\.')).join('|')})$`, 'i')
}

/** Plans of TensorRT; only a GPU shows their contents. */
const PLAN = endOf('tensorrt')
/** The graph of an OpenVINO IR; its weights are a `.bin` in the same directory. */
const OPENVINO = endOf('openvino')
/** Directory of a SavedModel in a version. */
const SAVED_NAME = backendRow('tensorflow')?.files?.[0]?.name ?? ''
/** Files that identify a TensorFlow SavedModel, which is a directory. */
const SAVED_MODEL = BACKENDS.flatMap(({ files = [] }) => files.flatMap(({ holds = [] }) => holds))
/** Files that this program does not read: they go into a repository, and a load shows their contents. */
const SERVED = endOf('pytorch', 'openvino', 'tensorrt')
/** Weights that requests to an engine of vLLM select, beside its model.json. */
const LORA = 'multi_lora.json'

/** Names of a version's model in any backend: file or directory. */
const MODEL_FILES = BACKENDS.flatMap(({ files = [], chosen = {} }) => [
  ...files.map(({ name }) => name),
  ...Object.values(chosen),
])

/** Files of a Hugging Face export that prepare the model's inputs. */
const TOKENIZERS = ['tokenizer.json', 'tokenizer.model', 'preprocessor_config.json']

/**
 * The model in a directory such as `optimum-cli export onnx` writes: `model.onnx` in it or in `onnx`, or its only
 * model. Trees have the name of a version's file.
 */
function modelIn(directory: string, source: string): string {
  for (const name of ['model.onnx', 'onnx/model.onnx']) if (isFile(join(directory, name))) return join(directory, name)
  const names = ['', 'onnx'].flatMap((below) =>
    isDirectory(join(directory, below))
      ? readdirSync(join(directory, below))
          .filter((name) => name.endsWith('.onnx'))
          .map((name) => join(below, name))
      : [],
  )
  const [only] = names
  if (only !== undefined && names.length === 1) return join(directory, only)
  if (only !== undefined)
    throw new CommandError(
      `${source} has several models: ${names.sort().slice(0, NAMED_MAX).join(', ')}; name one of them`,
    )
  const [served, ...more] = readdirSync(directory).filter((name) => SERVED.test(name))
  if (served !== undefined && more.length === 0) return join(directory, served)
  const [trees, ...others] = Object.values(backendRow('fil')?.chosen ?? {}).filter((name) =>
    isFile(join(directory, name)),
  )
  if (served === undefined && trees !== undefined && others.length === 0) return join(directory, trees)
  const engine = join(directory, 'model.json')
  if (isFile(engine) && isEngine(engine)) return engine
  const other = readdirSync(directory)
    .sort()
    .find((name) => exportHint(name) !== null)
  if (other !== undefined) throw new CommandError(`${join(source, other)} ${exportHint(join(source, other)) ?? ''}`)
  throw new CommandError(
    `${source} has no model.py; name a .onnx file, a directory with a model.onnx, a model.py, a model.ts or a ` +
      'saved_model.pb, or --python NAME for a template',
  )
}

const isDirectory = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true

/**
 * Name of a model by its path: `resnet/1/model.onnx`, `resnet/onnx/model.onnx`, `resnet.onnx`, `resnet.xml`,
 * `resnet.pt`, `resnet/xgboost.json` and `resnet/1/model.savedmodel` are all named resnet.
 */
function nameOf(path: string): string {
  let stem = basename(path)
    .replace(/\.(?:onnx|savedmodel)$/, '')
    .replace(SERVED, '')
    .replace(TREES, '')
  for (let at = path; /^(?:model|saved_?model|onnx|xgboost|checkpoint|\d+)$/.test(stem); stem = basename(at)) {
    at = dirname(at)
    if (at === dirname(at)) return 'model'
  }
  // Keep characters that a URL and a shell accept unchanged.
  return stem.replace(/[^\w.-]+/g, '_').replace(/^\.+/, '') || 'model'
}

/** Writes the files of a plan, tries the model, and returns what to print. */
export async function make(program: string, plan: Plan, options: CommandArguments['options']): Promise<string> {
  const out = options.get('out') ?? 'models'
  if (out === '') throw new CommandError('--out needs a value: --out=<path>')
  const hint = unwritableCloud(out, 'init')
  if (hint !== null) throw new CommandError(hint)
  const staging = new Staging(out, plan.name, options.has('link'))
  return await cleaningUp(
    async () => {
      if (!options.has('link')) staging.requireRoom(plan.files)
      for (const file of plan.files) staging.add(file)
      // A JavaScript model declares everything in its code.
      const isConfigured = plan.kind === 'javascript' || plan.files.some((file) => file.to === 'config.pbtxt')
      // Reserves the name until the model has declared its tensors.
      if (!isConfigured) staging.add({ to: 'config.pbtxt', text: configText(plan, options) })
      const taken = staging.inTheWay()
      if (taken.length > 0 && !options.has('force'))
        throw new CommandError(
          `${taken[0] ?? ''} already exists; --force replaces it, --name=<name> makes another model`,
        )
      const [other] = staging.otherModelFiles(MODEL_FILES)
      if (other !== undefined)
        throw new CommandError(
          `${other} belongs to another model and would stay beside this one: remove it (rm -r ` +
            `${shellWord(other)}), or --name=<name> makes another model`,
        )
      const script = await scriptOf(plan)
      if (script !== null) staging.add({ to: 'config.pbtxt', text: configText(plan, options, script) })
      const tried =
        plan.kind === 'vllm'
          ? untried(program, plan, out)
          : ['onnx', 'openvino', 'tensorflow'].includes(plan.kind)
            ? await tryFile(staging, plan, options.has('batch') ? batchOf(options, 0) : null)
            : await tryConfigured(staging, plan, script)
      return report(program, out, staging.finish(), tried, plan)
    },
    () => staging.remove(),
  )
}

/** Names and counts that a TorchScript file declares; null for another file, or if they cannot be read. */
async function scriptOf({ kind, files: [file], source }: Plan): Promise<TorchScript | null> {
  if (kind !== 'pytorch' || file === undefined || !('from' in file)) return null
  process.stderr.write(`reading ${source}: torch may take up to a minute\n`)
  return await torchScriptIn(file.from)
}

/** The configuration before the model was loaded; empty for ONNX, whose tensors come from the model. */
function configText(
  { kind, name, trees, text, isTemplate }: Plan,
  options: CommandArguments['options'],
  script: TorchScript | null = null,
): string {
  if (text !== undefined) return textConfigText(name, text, batchOf(options, TEXTS_BATCH))
  if (trees !== undefined) return treesConfigText(name, trees, batchOf(options, TREES_BATCH))
  if (kind === 'pytorch') return pytorchConfigText(name, script)
  if (kind === 'tensorrt') return planConfigText(name)
  if (kind === 'vllm') return vllmConfigText(name)
  if (kind === 'openvino' || kind === 'tensorflow') return unreadConfigText(name, kind)
  return kind === 'python' ? pythonConfigText(name, isTemplate === true ? PYTHON_IO : null) : ''
}

/** Rows of a batch, `usual` by default; 0 if the model must not batch. */
function batchOf(options: CommandArguments['options'], usual: number): number {
  const text = options.get('batch')
  if (text === undefined) return usual
  if (text === '') return usual === 0 ? DEFAULT_MAX_BATCH_SIZE : usual
  const batch = /^\d+$/.test(text) ? Number(text) : 0
  if (batch < 1 || batch > BATCH_MAX)
    throw new CommandError(`--batch=${text}: the value must be a number from 1 to ${BATCH_MAX}`)
  return batch
}

/** A first request to an engine of vLLM, which is not loaded here. */
function untried(program: string, { name }: Plan, out: string): Trial {
  const load = `${invocation(program)} check --load ${shellWord(out)}`
  return {
    example: generateExample(name),
    refusal: `the engine was not loaded, because it may need many gigabytes: ${load} loads it`,
  }
}

/**
 * Loads the model to read its tensors, writes them down, and loads it again from the written configuration.
 *
 * @param batch rows of a batch; null to try whether the model batches
 */
async function tryFile(
  staging: Staging,
  { name, kind, source, files: [first] }: Plan,
  batch: number | null,
): Promise<Trial | Unloaded> {
  return await withServer(staging.repository, true, async (server) => {
    const backend = kind === 'onnx' ? 'onnxruntime' : kind
    try {
      await server.load(name, { config: { name, backend, max_batch_size: batch ?? 0 } })
    } catch (error) {
      if (batch !== null && String(error).includes('does not support batching')) throw cannotBatch()
      // Its framework may not be installed here.
      if (kind !== 'onnx' && error instanceof ServerError) return { failure: reasonOf(error, staging) }
      throw described(error, source, staging)
    }
    let config = server.model(name).config() as ModelIoConfig
    let batching: Batching | undefined
    if (batch === null && statesOf(config.input, config.output).length === 0) {
      const graph = kind === 'onnx' && first !== undefined && 'from' in first ? lookAt(first.from).file : null
      const why = whyNotByGraph(config, graph)
      const found = why === null ? await tryBatches(server, config) : { rows: 0, why }
      if (found.rows > 0) config = batchedConfig(config, found.rows)
      batching = { ...found, why: printable(staging.named(found.why)) }
    }
    staging.add({ to: 'config.pbtxt', text: onnxConfigText(config, batching?.why ?? null) })
    await server.load(name)
    const written = server.model(name).config() as ModelIoConfig
    return { ...(await tryRequests(server, written)), ...(batching === undefined ? {} : { batching }) }
  })
}

/** Why a model does not load, without the words that every failed load has. */
const reasonOf = (error: ServerError, staging: Staging): string => staging.named(plainReason(error))

/** The error of a file that will not load anywhere. */
const described = (error: unknown, source: string, staging: Staging): unknown =>
  error instanceof ServerError ? new CommandError(`${source} does not load: ${reasonOf(error, staging)}`) : error

function cannotBatch(): CommandError {
  return new CommandError(
    'the model cannot batch: only one whose inputs and outputs all have a variable first dimension can; ' +
      'leave --batch out',
  )
}

/** Loads a model from the written configuration. If its code lacks something here, returns the reason. */
async function tryConfigured(
  staging: Staging,
  { name, kind, source, text }: Plan,
  script: TorchScript | null,
): Promise<Trial | Unloaded> {
  return await withServer(staging.repository, true, async (server) => {
    try {
      await server.load(name)
    } catch (error) {
      // Trees and text models fail only because of their files.
      if (kind === 'fil' || kind === 'text' || !(error instanceof ServerError)) throw described(error, source, staging)
      return { failure: reasonOf(error, staging) }
    }
    if (text !== undefined) return await tryExample(server, textExample(name, text.role))
    // A request with placeholders would fail.
    if (kind === 'pytorch' || kind === 'tensorrt') {
      const isKnown = script !== null && script.inputs !== null && script.outputs !== null
      const what = `the ${isKnown ? 'datatypes and dims' : 'inputs and outputs'} in config.pbtxt are placeholders`
      return { example: null, refusal: `${what}: fill in the values of the model before you serve it` }
    }
    return await tryRequests(server, server.model(name).config() as ModelIoConfig)
  })
}

async function tryRequests(server: Server, config: ModelIoConfig): Promise<Trial> {
  let first: Trial | null = null
  const isVariable = config.input.some(({ dims }) => dims.includes(-1))
  for (const size of isVariable ? SIZES : SIZES.slice(0, 1)) {
    const example = exampleRequest(config, size)
    if (example === null) continue
    const trial = await tryExample(server, example)
    if (trial.refusal === null) return trial
    first ??= trial
  }
  return first ?? { example: null, refusal: 'its inputs are too large for a command line: use a client library' }
}

async function tryExample(server: Server, example: Example): Promise<Trial> {
  const refusal = await refusalOf(server, example)
  if (refusal === null) return { example, refusal }
  return { example, refusal: `the model rejects this request, so put data of your own into it: ${refusal}` }
}

async function refusalOf(server: Server, { path, body, headerBytes }: Example): Promise<string | null> {
  const headers: Record<string, string> =
    headerBytes === null ? {} : { 'Inference-Header-Content-Length': String(headerBytes) }
  try {
    const url = `http://127.0.0.1:${server.ports.http}${path}`
    const answer = await fetch(url, {
      method: 'POST',
      body: new Uint8Array(body),
      headers,
      signal: AbortSignal.timeout(REQUEST_MS_MAX),
    })
    if (answer.ok) return null
    const text = await answer.text()
    const { error = text } = JSON.parse(text) as { error?: string | { message: string } }
    return typeof error === 'string' ? error : error.message
  } catch (error) {
    return `no answer (${String(error)})`
  }
}

function report(
  program: string,
  out: string,
  files: readonly string[],
  tried: Trial | Unloaded,
  { name, beside = [], tested = [] }: Plan,
): string {
  const command = invocation(program)
  const test = tested.length === 0 ? [] : ['', 'Test it:', ...tested.map((line) => `  ${line}`)]
  if ('failure' in tried) {
    const again = ['', 'Load it again:', `  ${command} check --load ${shellWord(join(out, name))}`]
    const lines = [`The model does not load yet: ${tried.failure}`, '', 'Written:', ...files, ...test, ...again]
    return `${lines.join('\n')}\n`
  }
  const { example, refusal, batching } = tried
  const lines = [...files, ...test, '', 'Serve it:', `  ${command} --model-repository=${shellWord(out)}`]
  if (example !== null) {
    lines.push(
      '',
      'Send a request, in another terminal:',
      ...example
        .curl('localhost:8000')
        .split('\n')
        .map((line) => `  ${line}`),
      '',
    )
    if (example.filledIn.length > 0)
      lines.push(`Dimensions of any size were filled in: ${example.filledIn.join(', ')}.`)
    if (example.headerBytes !== null)
      lines.push('FP16 and BF16 have no form in JSON: their bytes, zeros here, follow it.')
    if (example.binaryOutputs.length > 0)
      lines.push(`response.bin will have JSON and then the bytes of ${example.binaryOutputs.join(', ')}.`)
  }
  if (batching !== undefined)
    lines.push(
      '',
      batching.rows > 0
        ? `Requests run together in batches of up to ${batching.rows} rows: ${batching.why}.`
        : `Requests do not run together in batches: ${batching.why}.`,
    )
  if (beside.length > 0)
    lines.push(
      '',
      `${beside.join(' and ')} ${beside.length === 1 ? 'stays' : 'stay'} beside the model: the client or a ` +
        `model.py has to convert texts or images to numbers.`,
    )
  if (refusal !== null) lines.push('', `Note: ${refusal}`)
  return `${lines.join('\n').trimEnd()}\n`
}

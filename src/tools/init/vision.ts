/**
 * `nereid init --task`: an ensemble that takes files of pictures, of an ONNX network. Its steps prepare pictures, run
 * the network, and read classes or boxes. A server in this process loads all of it and gets a picture.
 */

import { CommandError, ServerError, invocation, lookAt, plainReason, printable, shellWord } from '../../internal.js'
import type { CommandArguments, GraphValue, OnnxFile, Server } from '../../internal.js'
import { unwritableCloud } from '../check/cloud.js'
import { cleaningUp, withServer } from '../trial.js'
import { Staging, type ModelFile } from './place.js'
import type { ModelIoConfig } from './model_io.js'
import { emptyConfigs, visionConfigs, type VisionPlan } from './vision_config.js'
import { hubFiles, ultralyticsOf, type Fields, type Ultralytics } from './vision_files.js'
import { networkOf, type Network, type Task } from './vision_network.js'
import { stepsOf } from './vision_steps.js'

/** `max_batch_size` of a network that takes any number of rows. */
const BATCH = 8
const REQUEST_MS_MAX = 60_000
/** Tasks of Ultralytics whose first output is that of detection, with more values after the classes. */
const DETECTING = ['detect', 'segment', 'pose']

/** The value of --task; null without it. */
export function taskOf(options: CommandArguments['options']): Task | null {
  const task = options.get('task')
  return task === 'classify' || task === 'detect' ? task : null
}

/** Writes the models, tries them with a picture, and returns what to print. */
export async function makeVision(
  program: string,
  { name, kind, files, source }: { name: string; kind: string; files: readonly ModelFile[]; source: string },
  task: Task,
  { options, batch }: { options: CommandArguments['options']; batch: number | null },
): Promise<string> {
  const [graph] = files
  if (kind !== 'onnx' || graph === undefined || !('from' in graph))
    throw new CommandError(`--task=${task} takes an ONNX file or a directory with one, and ${source} is of ${kind}`)
  const facts = factsOf(task, graph.from, source)
  const out = options.get('out') ?? 'models'
  if (out === '') throw new CommandError('--out needs a value: --out=<path>')
  const hint = unwritableCloud(out, 'init')
  if (hint !== null) throw new CommandError(hint)
  const staging = new Staging(out, name, options.has('link'))
  return await cleaningUp(
    async () => {
      if (!options.has('link')) staging.requireRoom(files)
      const network = `${name}_network`
      // Reserves the names.
      for (const { model, file } of emptyConfigs(name, task)) staging.add(file, model)
      for (const file of files) staging.add(file, network)
      const [taken] = staging.inTheWay()
      if (taken !== undefined && !options.has('force'))
        throw new CommandError(`${taken} already exists; --force replaces it, --name=<name> makes another model`)
      const file = await withShapes(staging, network, facts.file, source)
      const plan = visionPlan(task, name, { ...facts, file }, source)
      if (batch !== null && !plan.network.hasRows)
        throw new CommandError(
          'the network cannot batch: only one whose input and outputs all have a variable first dimension can; ' +
            'leave --batch out',
        )
      let rows = batch ?? (plan.network.hasRows ? BATCH : 0)
      write(staging, plan, rows)
      let refusal = await tried(staging, name, source, rows > 0 ? 2 : 1)
      if (refusal !== null && rows > 0 && batch === null) {
        // Some graphs have a variable first dimension by name only.
        write(staging, plan, 0)
        const alone = await tried(staging, name, source, 1)
        if (alone === null) {
          plan.guesses.network.push(`The network fails with two pictures (${refusal}), so max_batch_size is 0.`)
          ;[rows, refusal] = [0, null]
        }
        write(staging, plan, rows)
      }
      return report(program, out, staging.finish(), plan, refusal)
    },
    () => staging.remove(),
  )
}

/** Facts from the files of the model. */
interface Facts {
  file: OnnxFile
  preprocessor: Fields | null
  config: Fields | null
  ultralytics: Ultralytics | null
}

function factsOf(task: Task, graph: string, source: string): Facts {
  const { file } = lookAt(graph)
  if (file === null) throw new CommandError(`${source} has no graph that can be read: --task needs an ONNX file`)
  const ultralytics = ultralyticsOf(file.metadata)
  if (ultralytics !== null) requireTask(task, ultralytics, source)
  return { file, ...hubFiles(graph), ultralytics }
}

/** The file with the shapes that ONNX Runtime found: it knows sizes that the file leaves open. */
async function withShapes(staging: Staging, name: string, file: OnnxFile, source: string): Promise<OnnxFile> {
  return await withServer(staging.repository, false, async (server) => {
    await loaded(staging, source, () =>
      server.load(name, { config: { name, backend: 'onnxruntime', max_batch_size: 0 } }),
    )
    const { input, output } = server.model(name).config() as ModelIoConfig
    const complete = (value: GraphValue): GraphValue => {
      const found = [...input, ...output].find((one) => one.name === value.name)
      const dims = found?.reshape?.shape ?? found?.dims
      if (dims === undefined || (value.shape !== null && value.shape.length !== dims.length)) return value
      return { ...value, shape: dims.map((dim, i) => (dim >= 0 ? dim : symbolOf(value.shape?.[i]))) }
    }
    return { ...file, inputs: file.inputs.map(complete), outputs: file.outputs.map(complete) }
  })
}

const symbolOf = (dim: number | string | undefined): string => (typeof dim === 'string' ? dim : '')

async function loaded<T>(staging: Staging, source: string, load: () => Promise<T>): Promise<void> {
  try {
    await load()
  } catch (error) {
    if (!(error instanceof ServerError)) throw error
    throw new CommandError(`${source} does not load: ${staging.named(plainReason(error))}`)
  }
}

function visionPlan(
  task: Task,
  name: string,
  { file, preprocessor, config, ultralytics }: Facts,
  source: string,
): VisionPlan {
  const names = ultralytics?.names ?? config?.names('id2label') ?? null
  const modelType = config?.text('model_type') ?? null
  const network = networkOf(file, task, source, { names: names?.length ?? null, modelType })
  const { settings, guesses, missing } = stepsOf(task, network, { preprocessor, ultralytics })
  const plan: VisionPlan = {
    task,
    name,
    network,
    settings,
    names,
    activation: task === 'classify' ? activationOf(network, config, ultralytics) : null,
    guesses: { image: [...network.guesses.input, ...guesses], network: [], reader: [...network.guesses.outputs] },
    missing,
  }
  if (file.metadata.get('names') === null) plan.missing.push("the metadata 'names' are too long: LABELS has numbers")
  const { classes } = network
  if (names === null)
    plan.guesses.reader.push(
      'The files do not name the classes: LABELS has their numbers. For names, write labels.txt, one name per line, ' +
        'and add label_filename: "labels.txt" to LABELS.',
    )
  else if (classes !== null && classes !== names.length)
    plan.guesses.reader.push(
      `The files name ${names.length} classes, and the network has ${classes}: compare labels.txt.`,
    )
  if (plan.activation?.isGuess === true)
    plan.guesses.reader.push(
      'Scores are a softmax of the output. If the network returns probabilities, set "activation" to none; if ' +
        'several classes may apply, to sigmoid.',
    )
  return plan
}

function requireTask(task: Task, { task: found }: Ultralytics, source: string): void {
  if (task === 'classify' ? found === 'classify' : DETECTING.includes(found)) return
  const other = found === 'classify' ? 'classify' : DETECTING.includes(found) ? 'detect' : null
  const advice = other === null ? 'which --task does not read' : `so give --task=${other}`
  throw new CommandError(`${source} has the task ${found} in its metadata, ${advice}`)
}

/** The function from the output of the network to scores. */
function activationOf(
  { activation }: Network,
  config: Fields | null,
  ultralytics: Ultralytics | null,
): NonNullable<VisionPlan['activation']> {
  if (activation !== null) return { value: 'none', why: `The graph ends with ${activation}.`, isGuess: false }
  if (ultralytics !== null) return { value: 'none', why: 'Ultralytics exports probabilities.', isGuess: false }
  const problem = config?.text('problem_type')
  if (problem === 'multi_label_classification')
    return { value: 'sigmoid', why: 'config.json: problem_type.', isGuess: false }
  return { value: 'softmax', why: 'One class applies: softmax of the logits.', isGuess: config === null }
}

function write(staging: Staging, plan: VisionPlan, rows: number): void {
  for (const { model, file } of visionConfigs(plan, rows)) staging.add(file, model)
}

/** Loads the ensemble and sends it a picture, or two; returns why that fails, or null. */
async function tried(staging: Staging, name: string, source: string, pictures: number): Promise<string | null> {
  return await withServer(staging.repository, true, async (server) => {
    await loaded(staging, source, () => server.load(name))
    return await refusalOf(server, name, pictures)
  })
}

async function refusalOf(server: Server, name: string, pictures: number): Promise<string | null> {
  const form = new FormData()
  for (let i = 0; i < pictures; i += 1) form.append('image', new Blob([picture()]), 'picture.bmp')
  try {
    const answer = await fetch(`http://127.0.0.1:${server.ports.http}/v2/models/${name}/infer`, {
      method: 'POST',
      body: form,
      signal: AbortSignal.timeout(REQUEST_MS_MAX),
    })
    const text = await answer.text()
    if (answer.ok) return null
    const { error = text } = JSON.parse(text) as { error?: string }
    return error.replace(/\s+/g, ' ').trim()
  } catch (error) {
    return `no answer (${String(error)})`
  }
}

const [WIDTH, HEIGHT] = [320, 240]

/** A picture with a rectangle: BMP, which needs no compression. */
function picture(): Uint8Array<ArrayBuffer> {
  const head = 54
  const view = new DataView(new ArrayBuffer(head + WIDTH * HEIGHT * 3))
  const bytes = new Uint8Array(view.buffer).fill(200, head)
  view.setUint16(0, 0x42_4d)
  view.setUint32(2, bytes.length, true)
  view.setUint32(10, head, true)
  view.setUint32(14, head - 14, true)
  view.setInt32(18, WIDTH, true)
  view.setInt32(22, HEIGHT, true)
  view.setUint16(26, 1, true)
  view.setUint16(28, 24, true)
  for (let row = HEIGHT / 4; row < HEIGHT / 2; row += 1) {
    const at = head + (row * WIDTH + WIDTH / 4) * 3
    bytes.fill(40, at, at + (WIDTH / 2) * 3)
  }
  return bytes
}

function report(
  program: string,
  out: string,
  files: readonly string[],
  { name, guesses, missing }: VisionPlan,
  refusal: string | null,
): string {
  const list = (title: string, items: readonly string[]): string[] =>
    items.length === 0 ? [] : ['', title, ...items.map((item) => `  - ${printable(item)}`)]
  const lines = [
    ...files,
    ...list('Guesses, which are comments in the configurations:', Object.values(guesses).flat()),
    ...list('Without an equivalent here:', missing),
    '',
    'Serve it:',
    `  ${invocation(program)} --model-repository=${shellWord(out)}`,
    '',
    'Send a picture, in another terminal:',
    `  curl -F image=@cat.jpg localhost:8000/v2/models/${name}/infer`,
  ]
  if (refusal !== null)
    lines.push('', `Note: the network rejected a picture of ${WIDTH}x${HEIGHT}: ${printable(refusal)}`)
  return `${lines.join('\n')}\n`
}

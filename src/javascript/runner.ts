/** Life of a runner: LOAD, the model, batches, the end (shm/README.md). */

import { type Channel, WORK } from './channel.js'
import { applyDeclarations, complete } from './complete.js'
import { type Context, contextOf } from './context.js'
import { checkKeys } from './declared.js'
import { RuleError, describe, kindOf, missingOf, sourceOf } from './errors.js'
import { Executor } from './execution.js'
import { IdleCollector } from './garbage.js'
import { Frame, VERSION } from './generated/protocol.js'
import { intactness } from './intact.js'
import { type Load, loadOf } from './load.js'
import { type AnyModel, instanceOf, isStream } from './model.js'
import { type Received, eachFrame, readU64 } from './reader.js'
import { Server, configOf } from './server.js'
import { Writer } from './writer.js'

/** Brings the export of a model's file. */
export type ImportModel = (load: Load) => Promise<unknown>

/** Runs the model that LOAD names, until UNLOAD. The promise is the status with which the runner ends. */
export function run(channel: Channel, importModel: ImportModel): Promise<number> {
  return new Promise((end) => {
    let runner: Runner | null = null
    // Frames that come before LOAD; it is on another way than PING.
    const early: Received[] = []
    channel.start((frames, from, to) =>
      eachFrame(
        frames,
        (frame) => {
          if (runner !== null) runner.receive(frame)
          else if (frame.frame === Frame.LOAD && frame.flags !== VERSION) end(refuse(channel, frame))
          else if (frame.frame === Frame.LOAD) {
            runner = new Runner(channel, frame, end)
            void runner.start(importModel)
            for (const other of early.splice(0)) runner.receive(other)
          } else early.push(frame)
        },
        from,
        to,
      ),
    )
  })
}

/** Answers a LOAD of another version, of which only the header is known; returns the status. */
function refuse(channel: Channel, { flags, model, instance }: Received): number {
  const writer = new Writer(null, null)
  writer.model = model
  writer.instance = instance
  writer.begin(Frame.FAILED, VERSION)
  // The first version had 0 there.
  const text = `the server speaks version ${flags || 1} of the runner protocol, this runtime ${VERSION}`
  writer.text(JSON.stringify({ text, source: null, missing: null }))
  channel.send(WORK, writer.end())
  return 1
}

class Runner {
  readonly #server: Server
  readonly #load: Load
  readonly #end: (status: number) => void
  readonly #over = new AbortController()
  readonly #isIntact = intactness()
  readonly #garbage = new IdleCollector()
  #model: AnyModel | null = null
  #context: Context | null = null
  #executor: Executor | null = null

  constructor(channel: Channel, frame: Received, end: (status: number) => void) {
    this.#load = loadOf(frame)
    this.#server = new Server(channel, this.#load, frame.model, frame.instance)
    this.#end = end
  }

  async start(importModel: ImportModel): Promise<void> {
    const ready = { runner: `Node ${process.version}`, pid: process.pid }
    try {
      const exported = await importModel(this.#load)
      const model = instanceOf(exportOf(this.#load, exported))
      if (this.#load.mode === 'complete') {
        const config = await complete(model, isStream(model), this.#load.model, this.#load.config)
        this.#server.greet(Frame.READY, { ...ready, asks_ready: false, config })
        this.#end(0)
        return
      }
      await this.#initialize(model)
      this.#server.greet(Frame.READY, { ...ready, asks_ready: typeof model.isReady === 'function' })
    } catch (error) {
      const source = sourceOf(error, this.#load.model_directory)
      this.#server.greet(Frame.FAILED, { text: describe(error), source, missing: missingOf(error) })
      this.#end(1)
    }
  }

  async #initialize(model: AnyModel): Promise<void> {
    const config = configOf(this.#load)
    applyDeclarations(model, isStream(model), config)
    if (isStream(model) && !this.#load.decoupled)
      throw new RuleError(
        `\`execute\` of model '${this.#load.model}' is a generator, and its configuration is not decoupled: ` +
          '`model_transaction_policy { decoupled: true }`',
      )
    this.#server.declare(config)
    const context = contextOf(this.#server, config.json, this.#over.signal)
    await model.initialize?.(context)
    this.#model = model
    this.#context = context
    this.#server.mayCall = true
    this.#executor = new Executor(this.#server, model, context, isStream(model), () => this.#endIfBroken())
  }

  receive(frame: Received): void {
    if (frame.frame === Frame.EXECUTE) {
      this.#garbage.used()
      this.#executor?.receive(frame)
    } else if (frame.frame === Frame.UNLOAD) void this.#finalize()
    else if (frame.frame === Frame.IS_READY) void this.#answerReady(readU64(frame.view, frame.at))
    else this.#server.receive(frame)
  }

  /** Ends an instance whose model broke the runtime: another one is started. */
  #endIfBroken(): void {
    if (this.#isIntact()) return
    process.stderr.write(
      `Model '${this.#load.instance}' is started again, because its code changed a built-in object of JavaScript ` +
        'that the runtime needs, such as Array.prototype\n',
    )
    process.exit(1)
  }

  async #answerReady(question: number): Promise<void> {
    const [model, context, name] = [this.#model, this.#context, this.#load.instance]
    let isReady = false
    try {
      let answer: unknown = model !== null && context !== null
      // The server asks only models that have one, the tests of a model ask any.
      if (answer === true && model?.isReady !== undefined) answer = await model.isReady(context as Context)
      if (typeof answer === 'boolean') isReady = answer
      else this.#server.logFailure(`Model '${name}': isReady() must return a boolean, found ${kindOf(answer)}`)
    } catch (error) {
      this.#server.logFailure(`Model '${name}' is not ready: ${describe(error)}`)
    }
    this.#server.answerReady(question, isReady)
  }

  async #finalize(): Promise<void> {
    // A batch that runs may stop by this signal.
    this.#over.abort()
    await this.#executor?.idle()
    this.#server.mayCall = false
    try {
      if (this.#context !== null) await this.#model?.finalize?.(this.#context)
    } catch (error) {
      this.#server.logFailure(`Model '${this.#load.instance}', finalize: ${describe(error)}`)
    }
    this.#end(0)
  }
}

/** The model of an export: an object or a class with `execute`. */
function exportOf({ file, model }: Load, exported: unknown): unknown {
  checkKeys(exported, model)
  const holder = typeof exported === 'function' ? (exported.prototype as unknown) : exported
  if (typeof (holder as { execute?: unknown } | null | undefined)?.execute === 'function') return exported
  const advice = 'a default export, or `module.exports`, that is made by `defineModel` or extends `Model`'
  throw new RuleError(
    `Model file ${file} does not implement \`execute\`: expected ${advice}, found ${kindOf(exported)}`,
  )
}

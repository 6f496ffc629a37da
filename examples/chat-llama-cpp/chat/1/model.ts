/**
 * A language model that streams its text by llama.cpp, through node-llama-cpp. Requests that run at once are sequences
 * of one context: each step of the engine makes a token for all of them. `execute` ends when a sequence is free; until
 * then requests wait in the server's queue, by its limits.
 */

import { readdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { defineModel, InferenceResponse, Tensor, TritonError, type ResponseSender } from 'nereid/backend'
import { getLlama, type LlamaContext, type LlamaModel, type Token } from 'node-llama-cpp'
import { settingsOf, type Settings } from './settings.ts'
import { Pieces, Stops } from './text.ts'

const RUNNING_MAX = 4
const CONTEXT_TOKENS = 2048

interface Engine {
  readonly model: LlamaModel
  readonly context: LlamaContext
}

interface Job {
  readonly prompt: Token[]
  readonly settings: Settings
  readonly stream: boolean
  readonly sender: ResponseSender
}

const textOf = (content: string) => Tensor.fromStrings('text_output', [content])

/** The last response, with the rest of the text. */
const lastOf = (rest: string, reason: 'stop' | 'length', before: number, made: number) =>
  new InferenceResponse([
    textOf(rest),
    Tensor.fromStrings('finish_reason', [reason]),
    Tensor.from('num_input_tokens', new Uint32Array([before])),
    Tensor.from('num_output_tokens', new Uint32Array([made])),
  ])

/**
 * Writes the answer to one request. Ends after the token that runs when the request is cancelled. `LlamaCompletion` of
 * the package is not used: it shortens a prompt that leaves less than a tenth of the context, and tells nobody.
 */
async function answer({ model, context }: Engine, { prompt, settings, stream, sender }: Job): Promise<void> {
  const { maxTokens, stop, options, penalties } = settings
  const pieces = new Pieces({ decode: (ids) => model.detokenize(ids as Token[]) })
  const stops = new Stops(stop)
  const sequence = context.getSequence()
  try {
    const most = Math.min(maxTokens, context.contextSize - prompt.length)
    const made: Token[] = []
    let [rest, hasEnded] = ['', false]
    const tokens = sequence.evaluate(prompt, {
      ...options,
      repeatPenalty: { ...penalties, punishTokens: () => made, maxPunishTokens: context.contextSize },
      yieldEogToken: true,
    })
    // The engine evaluates the prompt when it is asked for the first token.
    for await (const token of most > 0 ? tokens : []) {
      if (sender.cancelled) return void (await sender.end())
      made.push(token)
      hasEnded = model.isEogToken(token)
      if (!hasEnded) rest += stops.push(pieces.push(token))
      hasEnded ||= stops.hasStopped
      if (hasEnded || made.length >= most) break
      if (stream && rest !== '') {
        await sender.send(new InferenceResponse([textOf(rest)]))
        rest = ''
      }
    }
    if (!stops.hasStopped) rest += stops.push(pieces.end())
    if (!stops.hasStopped) rest += stops.end()
    const reason = hasEnded || stops.hasStopped ? 'stop' : 'length'
    await sender.send(lastOf(rest, reason, prompt.length, made.length), { final: true })
  } finally {
    await sequence.dispose()
  }
}

/** A parameter that is a positive integer. */
function countOf(parameters: Readonly<Record<string, string>>, name: string, otherwise: number): number {
  const count = Number(parameters[name] ?? otherwise)
  if (Number.isInteger(count) && count >= 1) return count
  throw new TritonError('INVALID_ARG', `parameter ${name} has to be an integer of at least 1, got ${parameters[name]}`)
}

export default defineModel({
  autoCompleteConfig: (config) => config.setDecoupled(true),
  inputs: {
    text_input: { datatype: 'BYTES', dims: [1] },
    stream: { datatype: 'BOOL', dims: [1], optional: true },
    sampling_parameters: { datatype: 'BYTES', dims: [1], optional: true },
  },
  outputs: {
    text_output: { datatype: 'BYTES', dims: [1] },
    finish_reason: { datatype: 'BYTES', dims: [1] },
    num_input_tokens: { datatype: 'UINT32', dims: [1] },
    num_output_tokens: { datatype: 'UINT32', dims: [1] },
  },
  state: () => ({
    engine: null as Engine | null,
    running: 0,
    runningMax: RUNNING_MAX,
    /** Called when a request has ended. */
    onEnd: () => {},
  }),

  async initialize({ parameters, versionDirectory }) {
    const files = readdirSync(versionDirectory).filter((name) => name.endsWith('.gguf'))
    if (files.length !== 1)
      throw new TritonError('NOT_FOUND', `${versionDirectory} has to have one file *.gguf, and has ${files.length}`)
    this.runningMax = countOf(parameters, 'running_max', RUNNING_MAX)
    // All threads of a step wait for the slowest. One core is left to the server, so that none shares its core.
    const threads = countOf(parameters, 'threads', Math.max(1, availableParallelism() - 1))
    // Otherwise the package would look for a GPU, and compile or download a library for it.
    const llama = await getLlama({ gpu: false, build: 'never', skipDownload: true, progressLogs: false })
    const model = await llama.loadModel({ modelPath: join(versionDirectory, files[0] as string) })
    const contextSize = Math.min(countOf(parameters, 'context_tokens', CONTEXT_TOKENS), model.trainContextSize)
    const context = await model.createContext({ contextSize, sequences: this.runningMax, threads })
    this.engine = { model, context }
  },

  async execute(requests, ctx) {
    const { engine } = this
    if (engine === null) throw new TritonError('INTERNAL', 'the model is not initialized')
    const { model, context } = engine
    for (const request of requests) {
      const [text = ''] = request.input('text_input').strings()
      const settings = settingsOf(request.input('sampling_parameters')?.strings()[0] ?? '{}')
      const stream = request.input('stream')?.data[0] === 1
      const prompt = model.tokenize(text, true)
      const { bos, shouldPrependBosToken } = model.tokens
      // The template of a chat may have written it.
      if (shouldPrependBosToken && bos !== null && prompt[0] !== bos) prompt.unshift(bos)
      if (prompt.length === 0 || prompt.length >= context.contextSize) {
        const range = `from 1 to ${context.contextSize - 1} tokens`
        throw new TritonError('INVALID_ARG', `text_input has to have ${range}, got ${prompt.length}`)
      }
      const { sender } = request
      this.running += 1
      void answer(engine, { prompt, settings, stream, sender })
        .catch(async (error: unknown) => {
          ctx.logger.error(String(error))
          await sender.send(InferenceResponse.error('INTERNAL', String(error)), { final: true })
        })
        .finally(() => {
          this.running -= 1
          this.onEnd()
        })
    }
    while (this.running >= this.runningMax) await new Promise<void>((resolve) => (this.onEnd = resolve))
  },

  async finalize() {
    await this.engine?.model.llama.dispose()
  },
})

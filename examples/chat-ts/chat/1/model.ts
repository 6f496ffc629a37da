/**
 * A language model that streams its text. One instance runs several requests at once: each takes a token in turn, so a
 * long answer does not keep a short one waiting. `execute` ends when there is room for another request; until then
 * requests wait in the server's queue, by its limits.
 */

import { existsSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { Tokenizer } from '@huggingface/tokenizers'
import { defineModel, InferenceResponse, Tensor, TritonError, type ResponseSender } from 'nereid/backend'
import { Decoder } from './decoder.ts'
import { Sampler } from './sampler.ts'
import { INPUTS, settingsOf, type Settings } from './settings.ts'
import { Pieces, Stops } from './text.ts'

const RUNNING_MAX = 8

/** Facts of the model's files. */
interface Files {
  readonly tokenizer: Tokenizer
  readonly decoder: Decoder
  /** Text before every prompt, which templates of chats write themselves; '' if there is none. */
  readonly beginning: string
  /** Tokens that end a text. */
  readonly ends: ReadonlySet<number>
  /** Most tokens of a prompt and its answer. */
  readonly contextMax: number
}

/** Tokens of a prompt. @throws {TritonError} `INVALID_ARG` for a prompt that is empty or fills the context. */
function promptOf({ tokenizer, beginning, contextMax }: Files, text: string): number[] {
  // The template of a chat writes the first token itself, and a second one would change the answer.
  const isWhole = beginning !== '' && text.startsWith(beginning)
  const { ids } = tokenizer.encode(text, { add_special_tokens: !isWhole })
  if (ids.length > 0 && ids.length < contextMax) return ids
  const range = `from 1 to ${contextMax - 1} tokens`
  throw new TritonError('INVALID_ARG', `text_input has to have ${range}, got ${ids.length}`)
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

/** Writes the answer to one request. Ends after the token that runs when the request is cancelled. */
async function answer(files: Files, prompt: number[], settings: Settings, sender: ResponseSender): Promise<void> {
  const { decoder, tokenizer, ends } = files
  const [sampler, pieces, stops] = [new Sampler(settings), new Pieces(tokenizer), new Stops(settings.stop)]
  const cache = decoder.start()
  const most = Math.min(settings.maxTokens, files.contextMax - prompt.length)
  let [made, rest, hasEnded] = [0, '', false]
  let next = prompt
  while (!hasEnded && made < most) {
    const token = sampler.next(await decoder.step(next, cache))
    if (sender.cancelled) return void (await sender.end())
    made += 1
    hasEnded = ends.has(token)
    if (!hasEnded) rest += stops.push(pieces.push(token))
    hasEnded ||= stops.hasStopped
    if (settings.stream && rest !== '' && !hasEnded && made < most) {
      await sender.send(new InferenceResponse([textOf(rest)]))
      rest = ''
    }
    next = [token]
  }
  if (!stops.hasStopped) rest += stops.push(pieces.end())
  if (!stops.hasStopped) rest += stops.end()
  const reason = hasEnded || stops.hasStopped ? 'stop' : 'length'
  await sender.send(lastOf(rest, reason, prompt.length, made), { final: true })
}

/** A parameter that is a positive integer. */
function countOf(parameters: Readonly<Record<string, string>>, name: string, otherwise: number): number {
  const count = Number(parameters[name] ?? otherwise)
  if (Number.isInteger(count) && count >= 1) return count
  throw new TritonError('INVALID_ARG', `parameter ${name} has to be an integer of at least 1, got ${parameters[name]}`)
}

export default defineModel({
  autoCompleteConfig: (config) => config.setDecoupled(true),
  inputs: INPUTS,
  outputs: {
    text_output: { datatype: 'BYTES', dims: [1] },
    finish_reason: { datatype: 'BYTES', dims: [1] },
    num_input_tokens: { datatype: 'UINT32', dims: [1] },
    num_output_tokens: { datatype: 'UINT32', dims: [1] },
  },
  state: () => ({
    files: null as Files | null,
    running: 0,
    runningMax: RUNNING_MAX,
    /** Called when a request has ended. */
    onEnd: () => {},
  }),

  async initialize(ctx) {
    const json = (name: string) => JSON.parse(readFileSync(join(ctx.versionDirectory, name), 'utf8'))
    const config = json('config.json')
    const generation = existsSync(join(ctx.versionDirectory, 'generation_config.json'))
      ? json('generation_config.json')
      : config
    const settings = json('tokenizer_config.json')
    const { bos_token: beginning, add_bos_token: isAdded } = settings
    this.runningMax = countOf(ctx.parameters, 'running_max', RUNNING_MAX)
    // All threads of a step wait for the slowest. One core is left to the server, so that none shares its core.
    const threads = countOf(ctx.parameters, 'threads', Math.max(1, availableParallelism() - 1))
    this.files = {
      tokenizer: new Tokenizer(json('tokenizer.json'), settings),
      decoder: await Decoder.open(join(ctx.versionDirectory, 'model.onnx'), threads),
      beginning: isAdded === false ? '' : ((beginning?.content ?? beginning ?? '') as string),
      ends: new Set([generation.eos_token_id ?? config.eos_token_id ?? []].flat() as number[]),
      contextMax: config.max_position_embeddings as number,
    }
  },

  async execute(requests, ctx) {
    const { files } = this
    if (files === null) throw new TritonError('INTERNAL', 'the model is not initialized')
    for (const request of requests) {
      const settings = settingsOf(request)
      const prompt = promptOf(files, request.input('text_input').strings()[0] ?? '')
      const { sender } = request
      this.running += 1
      void answer(files, prompt, settings, sender)
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
})

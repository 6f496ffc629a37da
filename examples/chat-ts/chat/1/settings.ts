/** Settings of one request, with the names and defaults of OpenAI's API. */

import { TritonError, type InferenceRequest } from 'nereid/backend'

/** Inputs of the model: a prompt and optional settings. */
export const INPUTS = {
  text_input: { datatype: 'BYTES', dims: [1] },
  stream: { datatype: 'BOOL', dims: [1], optional: true },
  max_tokens: { datatype: 'INT32', dims: [1], optional: true },
  temperature: { datatype: 'FP32', dims: [1], optional: true },
  top_p: { datatype: 'FP32', dims: [1], optional: true },
  top_k: { datatype: 'INT32', dims: [1], optional: true },
  seed: { datatype: 'UINT64', dims: [1], optional: true },
  stop: { datatype: 'BYTES', dims: [-1], optional: true },
  frequency_penalty: { datatype: 'FP32', dims: [1], optional: true },
  presence_penalty: { datatype: 'FP32', dims: [1], optional: true },
} as const

export interface Settings {
  /** One response per piece of text, or one response with the whole text. */
  readonly stream: boolean
  /** Infinity: up to the end of the model's context. */
  readonly maxTokens: number
  /** 0 takes the most probable token each time. */
  readonly temperature: number
  readonly topP: number
  /** 0 is no limit. */
  readonly topK: number
  /** null: another one each time. */
  readonly seed: bigint | null
  readonly stop: readonly string[]
  readonly frequencyPenalty: number
  readonly presencePenalty: number
}

const STOPS_MAX = 16
const PENALTY_MAX = 2

type Name = 'max_tokens' | 'temperature' | 'top_p' | 'top_k' | 'frequency_penalty' | 'presence_penalty'

/** @throws {TritonError} `INVALID_ARG`, with the name, the range and the value. */
export function settingsOf(request: InferenceRequest<typeof INPUTS>): Settings {
  const number = (name: Name, otherwise: number, range: string, fits: (value: number) => boolean) => {
    const value = request.input(name)?.data[0]
    if (value === undefined) return otherwise
    if (!fits(value)) throw new TritonError('INVALID_ARG', `${name} has to be ${range}, got ${value}`)
    return value
  }
  const penalty = (name: Name) =>
    number(name, 0, `from -${PENALTY_MAX} to ${PENALTY_MAX}`, (value) => Math.abs(value) <= PENALTY_MAX)
  const stop = request.input('stop')?.strings() ?? []
  if (stop.length > STOPS_MAX)
    throw new TritonError('INVALID_ARG', `stop has at most ${STOPS_MAX} texts, got ${stop.length}`)
  if (stop.includes('')) throw new TritonError('INVALID_ARG', 'stop has an empty text: every answer would be empty')
  return {
    stream: request.input('stream')?.data[0] === 1,
    maxTokens: number('max_tokens', Infinity, 'at least 0', (value) => value >= 0),
    temperature: number('temperature', 1, 'from 0 to 100', (value) => value >= 0 && value <= 100),
    topP: number('top_p', 1, 'above 0 and at most 1', (value) => value > 0 && value <= 1),
    topK: Math.max(
      0,
      number('top_k', 0, 'at least -1; 0 and -1 are no limit', (value) => value >= -1),
    ),
    seed: request.input('seed')?.data[0] ?? null,
    stop,
    frequencyPenalty: penalty('frequency_penalty'),
    presencePenalty: penalty('presence_penalty'),
  }
}

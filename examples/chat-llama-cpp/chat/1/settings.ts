/** Reads `sampling_parameters`: JSON with names and defaults of vLLM, which are those of OpenAI's API. */

import { TritonError } from 'nereid/backend'
import type { SequenceEvaluateOptions } from 'node-llama-cpp'

const STOPS_MAX = 16

/** Name → the values that it takes, in words and as a test. */
const NUMBERS = {
  max_tokens: ['an integer of at least 0', (value) => Number.isInteger(value) && value >= 0],
  temperature: ['from 0 to 100', (value) => value >= 0 && value <= 100],
  top_p: ['above 0 and at most 1', (value) => value > 0 && value <= 1],
  top_k: ['an integer; 0 and -1 are no limit', (value) => Number.isInteger(value) && value >= -1],
  min_p: ['from 0 to 1', (value) => value >= 0 && value <= 1],
  seed: ['an integer from 0 to 2^32 - 1', (value) => Number.isInteger(value) && value >= 0 && value < 2 ** 32],
  frequency_penalty: ['from -2 to 2', (value) => Math.abs(value) <= 2],
  presence_penalty: ['from -2 to 2', (value) => Math.abs(value) <= 2],
  repetition_penalty: ['above 0 and at most 2', (value) => value > 0 && value <= 2],
} satisfies Record<string, [string, (value: number) => boolean]>

/** The server sends them with each chat; the engine has nothing else. */
const FIXED: Readonly<Record<string, unknown>> = { n: 1, ignore_eos: false }

/** The setting that the server makes of other fields, which the client knows. */
const STRUCTURED = 'structured_outputs'
const MADE_OF = ', which is made of response_format (text.format of responses) or of a tool_choice that forces a call'

export interface Settings {
  /** Infinity: up to the end of the context. */
  readonly maxTokens: number
  readonly stop: readonly string[]
  /** Options of the engine. */
  readonly options: SequenceEvaluateOptions
  /** The engine's form of the penalties, for tokens of the answer. */
  readonly penalties: { penalty: number; frequencyPenalty: number; presencePenalty: number }
}

const wrong = (message: string) => new TritonError('INVALID_ARG', `sampling_parameters: ${message}`)

/** @throws {TritonError} `INVALID_ARG`, with the name, the values that it takes and the one that was found. */
export function settingsOf(text: string): Settings {
  const given = parse(text)
  const known = [...Object.keys(NUMBERS), 'stop', ...Object.keys(FIXED)]
  const unknown = Object.keys(given).find((name) => !known.includes(name))
  if (unknown !== undefined) {
    const from = unknown === STRUCTURED ? MADE_OF : ''
    throw wrong(`no '${unknown}'${from}: there are ${known.join(', ')}`)
  }
  for (const [name, only] of Object.entries(FIXED)) {
    const value = given[name] ?? only
    if (value !== only) throw wrong(`${name} has to be ${only}, got ${JSON.stringify(value)}`)
  }
  const number = (name: keyof typeof NUMBERS) => {
    const value = given[name] ?? undefined
    if (value === undefined) return undefined
    const [range, fits] = NUMBERS[name]
    if (typeof value !== 'number' || !fits(value))
      throw wrong(`${name} has to be ${range}, got ${JSON.stringify(value)}`)
    return value
  }
  return {
    maxTokens: number('max_tokens') ?? Infinity,
    stop: stopsOf(given['stop'] ?? []),
    options: {
      temperature: number('temperature') ?? 1,
      topP: number('top_p') ?? 1,
      minP: number('min_p') ?? 0,
      topK: Math.max(0, number('top_k') ?? 0),
      // Without a seed the engine takes the time: two requests that come at once would have the same answer.
      seed: number('seed') ?? Math.floor(Math.random() * 2 ** 32),
    },
    penalties: {
      penalty: number('repetition_penalty') ?? 1,
      frequencyPenalty: number('frequency_penalty') ?? 0,
      presencePenalty: number('presence_penalty') ?? 0,
    },
  }
}

function parse(text: string): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw wrong(`no JSON: ${(error as Error).message}`)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong('has to be a JSON object')
  return value as Record<string, unknown>
}

function stopsOf(value: unknown): string[] {
  const stops: unknown[] = Array.isArray(value) ? value : [value]
  if (stops.length > STOPS_MAX) throw wrong(`stop has at most ${STOPS_MAX} texts, got ${stops.length}`)
  return stops.map((stop) => {
    if (typeof stop === 'string' && stop !== '') return stop
    throw wrong(`stop has to be texts that are not empty, got ${JSON.stringify(stop)}`)
  })
}

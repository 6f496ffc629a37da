/** examples/chat-ts with a tiny random Llama, against the tokens of transformers (chat/tiny.py). */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Sampler } from '../../examples/chat-ts/chat/1/sampler.ts'
import type { Settings } from '../../examples/chat-ts/chat/1/settings.ts'
import { Pieces, Stops } from '../../examples/chat-ts/chat/1/text.ts'
import { ROOT, TestServer } from '../server/harness.js'

const TINY = join(ROOT, 'test/javascript/chat/tiny')

interface Answer {
  prompt: string
  ids: number[]
  made: number[]
  text: string
  reason: string
}

interface Event {
  text_output?: string
  finish_reason?: string
  num_input_tokens?: number
  num_output_tokens?: number
  error?: string
}

const ANSWERS = JSON.parse(readFileSync(join(TINY, 'answers.json'), 'utf8')) as Answer[]
const [FIRST] = ANSWERS as [Answer]
const LONG = ANSWERS.find(({ reason }) => reason === 'length') as Answer

/** Why the model cannot load here; null if it can. */
function missing(): string | null {
  try {
    createRequire(import.meta.url).resolve('@huggingface/tokenizers')
    return null
  } catch {
    return 'npm ci installs @huggingface/tokenizers'
  }
}

const settings = (changed: Partial<Settings>): Settings => ({
  stream: false,
  maxTokens: Infinity,
  temperature: 1,
  topP: 1,
  topK: 0,
  seed: 1n,
  stop: [],
  frequencyPenalty: 0,
  presencePenalty: 0,
  ...changed,
})

/** How often each of four tokens, whose probabilities are 0.4, 0.3, 0.2 and 0.1, is drawn. */
function draws(changed: Partial<Settings>): number[] {
  const sampler = new Sampler(settings(changed))
  const drawn = Array.from({ length: 10_000 }, () =>
    sampler.next(Float32Array.of(Math.log(4), Math.log(3), Math.log(2), 0)),
  )
  return [0, 1, 2, 3].map((token) => drawn.filter((one) => one === token).length / drawn.length)
}

/** All shares are within 0.02, four standard deviations, of the expected ones. */
function expectShares(found: number[], expected: number[]): void {
  for (const [i, share] of expected.entries())
    expect(Math.abs((found[i] ?? NaN) - share), `${found}`).toBeLessThan(0.02)
}

describe('the sampler', () => {
  test('draws tokens with their probabilities, by temperature, top_k and top_p', () => {
    expectShares(draws({}), [0.4, 0.3, 0.2, 0.1])
    expectShares(draws({ temperature: 0.5 }), [16 / 30, 9 / 30, 4 / 30, 1 / 30])
    expectShares(draws({ topK: 2 }), [4 / 7, 3 / 7, 0, 0])
    expectShares(draws({ topP: 0.65 }), [4 / 7, 3 / 7, 0, 0])
    // The first two of the three tokens that top_k keeps have 7/9.
    expectShares(draws({ topK: 3, topP: 0.75 }), [4 / 7, 3 / 7, 0, 0])
    expect(draws({ temperature: 0 })).toEqual([1, 0, 0, 0])
    expect(draws({ topK: 1 })).toEqual([1, 0, 0, 0])
  })

  test('draws the same tokens for the same seed', () => {
    expect(draws({ seed: 5n })).toEqual(draws({ seed: 5n }))
    expect(draws({ seed: 5n })).not.toEqual(draws({ seed: 6n }))
  })

  test('subtracts penalties of tokens that were chosen', () => {
    const chosen = (changed: Partial<Settings>) => {
      const sampler = new Sampler(settings({ temperature: 0, ...changed }))
      return Array.from({ length: 5 }, () => sampler.next(Float32Array.of(2, 1)))
    }
    expect(chosen({})).toEqual([0, 0, 0, 0, 0])
    expect(chosen({ presencePenalty: 1.5 })).toEqual([0, 1, 0, 0, 0])
    expect(chosen({ frequencyPenalty: 0.75 })).toEqual([0, 0, 1, 0, 1])
  })
})

test('chat-llama-cpp names the fields of a client that become structured_outputs', async () => {
  // Not a literal: its types need node-llama-cpp.
  const file = join(ROOT, 'examples/chat-llama-cpp/chat/1/settings.ts')
  const { settingsOf } = (await import(file)) as { settingsOf: (text: string) => unknown }
  expect(() => settingsOf('{"n": 1, "structured_outputs": "{}"}')).toThrow(
    "no 'structured_outputs', which is made of response_format (text.format of responses) or of a tool_choice that " +
      'forces a call: there are max_tokens, ',
  )
  expect(() => settingsOf('{"logit_bias": {}}')).toThrow("no 'logit_bias': there are max_tokens, ")
})

describe('pieces of text', () => {
  test('both examples make them alike', () => {
    const [ours, theirs] = ['chat-ts', 'chat-llama-cpp'].map((example) =>
      readFileSync(join(ROOT, 'examples', example, 'chat/1/text.ts'), 'utf8'),
    )
    expect(theirs).toBe(ours)
  })

  test('a character in several tokens is one piece', () => {
    // Each token is a byte.
    const pieces = new Pieces({ decode: (ids) => Buffer.from(ids).toString() })
    expect([...Buffer.from('a日b')].map((byte) => pieces.push(byte))).toEqual(['a', '', '', '日', 'b'])
    expect([pieces.push(0xe6), pieces.end()]).toEqual(['', '\ufffd'])
  })

  test('text that may begin a stop text waits for the next piece', () => {
    const stops = new Stops(['</s>', 'END'])
    expect(['a<', '/', 'b EN', 'x'].map((piece) => stops.push(piece))).toEqual(['a', '', '</b ', 'ENx'])
    expect([stops.push('y</'), stops.push('s>z'), stops.hasStopped, stops.end()]).toEqual(['y', '', true, ''])
    const unfinished = new Stops(['END'])
    expect([unfinished.push('EN'), unfinished.end(), unfinished.hasStopped]).toEqual(['', 'EN', false])
  })
})

describe.skipIf(missing() !== null)(`the model in a server${missing() ? `: not run, ${missing()}` : ''}`, () => {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-chat-'))
  let server: TestServer

  beforeAll(async () => {
    // Packages are found from the directories above a model.
    symlinkSync(join(ROOT, 'node_modules'), join(directory, 'node_modules'))
    for (const name of ['chat', 'single']) {
      cpSync(join(ROOT, 'examples/chat-ts/chat'), join(directory, 'models', name), {
        recursive: true,
        filter: (from) => !/node_modules|\.(?:onnx|json|jinja)$/.test(from),
      })
      cpSync(TINY, join(directory, 'models', name, '1'), { recursive: true })
    }
    const one = 'backend: "javascript"\nparameters { key: "running_max" value { string_value: "1" } }\n'
    writeFileSync(join(directory, 'models/single/config.pbtxt'), one)
    server = await TestServer.start(join(directory, 'models'))
  })
  afterAll(async () => {
    await server.stop()
    rmSync(directory, { recursive: true })
  })

  const post = (path: string, body: object, signal?: AbortSignal) =>
    fetch(`${server.url}/v2/models/${path}`, { method: 'POST', body: JSON.stringify(body), signal: signal ?? null })

  const generate = async (body: object, model = 'chat') =>
    (await (await post(`${model}/generate`, body)).json()) as Event

  async function stream(body: object): Promise<Event[]> {
    const text = await (await post('chat/generate_stream', { stream: true, ...body })).text()
    return [...text.matchAll(/^data: (.*)$/gm)].map(([, event]) => JSON.parse(event as string) as Event)
  }

  const greedy = (prompt: string, more: object = {}) => ({
    text_input: prompt,
    temperature: 0,
    max_tokens: 60,
    ...more,
  })

  test('greedy answers are those of transformers, whole and streamed, all at once', async () => {
    const both = await Promise.all(
      ANSWERS.map(({ prompt }) => Promise.all([generate(greedy(prompt)), stream(greedy(prompt))])),
    )
    for (const [i, [whole, events]] of both.entries()) {
      const { text, reason, ids, made } = ANSWERS[i] as Answer
      const last = {
        finish_reason: reason,
        num_input_tokens: ids.length,
        num_output_tokens: made.length,
      }
      expect(whole).toMatchObject({ text_output: text, ...last })
      expect(events.map((event) => event.text_output).join('')).toBe(text)
      expect(events.at(-1)).toMatchObject(last)
      expect(events.length).toBeGreaterThan(5)
      expect(events.slice(0, -1).every((event) => !('finish_reason' in event))).toBe(true)
    }
  })

  test('max_tokens, stop and seed do what they say', async () => {
    const short = await generate(greedy(LONG.prompt, { max_tokens: 3 }))
    expect(short).toMatchObject({ finish_reason: 'length', num_output_tokens: 3 })
    expect(LONG.text.startsWith((short.text_output ?? 'none').replace(/\ufffd+$/, ''))).toBe(true)
    const none = await generate(greedy(LONG.prompt, { max_tokens: 0 }))
    expect(none).toMatchObject({ text_output: '', finish_reason: 'length', num_output_tokens: 0 })
    const stop = LONG.text.slice(20, 23)
    const stopped = await generate(greedy(LONG.prompt, { stop: ['never', stop] }))
    expect(stopped).toMatchObject({ finish_reason: 'stop', text_output: LONG.text.slice(0, LONG.text.indexOf(stop)) })
    const drawn = (seed: number) => generate({ text_input: 'snow', max_tokens: 30, top_p: 0.9, seed })
    const [a, again, b] = [await drawn(1), await drawn(1), await drawn(2)]
    expect(again).toEqual(a)
    expect(b.text_output).not.toBe(a.text_output)
  })

  test('a short answer does not wait for a long one', async () => {
    let longEnded = false
    const long = generate(greedy(LONG.prompt, { max_tokens: 1500 })).then((event) => {
      longEnded = true
      return event
    })
    const first = await generate(greedy(FIRST.prompt))
    expect([first.text_output, longEnded]).toEqual([FIRST.text, false])
    await long
  })

  test('a cancelled request ends, and the next one runs in its place', async () => {
    const whole = performance.now()
    await generate(greedy(LONG.prompt, { max_tokens: 1500 }), 'single')
    const wholeMs = performance.now() - whole
    const abort = new AbortController()
    const body = greedy(LONG.prompt, { max_tokens: 1500, stream: true })
    const response = await post('single/generate_stream', body, abort.signal)
    await response.body?.getReader().read()
    const from = performance.now()
    abort.abort()
    const next = await generate(greedy(FIRST.prompt, { max_tokens: 1 }), 'single')
    expect(next.num_output_tokens).toBe(1)
    expect(performance.now() - from).toBeLessThan(wholeMs / 2)
  })

  test.each([
    [{ max_tokens: -1 }, 'max_tokens has to be at least 0, got -1'],
    [{ top_p: 1.5 }, 'top_p has to be above 0 and at most 1, got 1.5'],
    [{ presence_penalty: -3 }, 'presence_penalty has to be from -2 to 2, got -3'],
    [{ stop: [''] }, 'stop has an empty text: every answer would be empty'],
    [{ text_input: '' }, 'text_input has to have from 1 to 8191 tokens, got 0'],
  ])('%j is rejected', async (wrong, error) => {
    const response = await post('chat/generate', greedy('snow', wrong))
    expect([response.status, await response.json()]).toEqual([400, { error }])
  })
})

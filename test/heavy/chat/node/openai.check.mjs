/** openai-node as published, against language models of three kinds. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import OpenAI from 'openai'
import { describe, expect, test, vi } from 'vitest'

const { NEREID_TEST_CHAT_URL: url, NEREID_TEST_CHAT_REPOSITORY: repository } = process.env
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 })
const hello = [{ role: 'user', content: 'Say hello' }]
const exact = { temperature: 0, seed: 1, max_tokens: 12 }
const wanted = { city: 'Dallas', state: 'TX', unit: 'fahrenheit' }
const tools = [
  {
    type: 'function',
    function: {
      name: 'get_current_weather',
      description: 'The weather of a city',
      parameters: { type: 'object', properties: { city: { type: 'string' } } },
    },
  },
]

async function all(stream) {
  const items = []
  for await (const item of stream) items.push(item)
  return items
}

describe.each(['python_words', 'typescript_words', 'vllm_words'])('%s', (model) => {
  test('a chat is answered whole and in pieces with the same text and usage', async () => {
    const whole = await client.chat.completions.create({ model, messages: hello, ...exact })
    const [{ message, finish_reason }] = whole.choices
    expect(message.content.trim().split(' ')).toHaveLength(12)
    expect(whole.usage?.completion_tokens).toBe(12)
    const options = { stream: true, stream_options: { include_usage: true } }
    const stream = await client.chat.completions.create({ model, messages: hello, ...exact, ...options })
    const chunks = await all(stream)
    const last = chunks.pop()
    expect(chunks.map(({ choices: [{ delta }] }) => delta.content ?? '').join('')).toBe(message.content)
    expect(chunks.at(-1).choices[0].finish_reason).toBe(finish_reason)
    expect(last).toMatchObject({ choices: [], usage: whole.usage })
  })

  test('a prompt is completed', async () => {
    const { choices } = await client.completions.create({ model, prompt: 'Once', ...exact })
    expect(choices[0].text.trim().split(' ')).toHaveLength(12)
  })

  test('two choices', async () => {
    const { choices } = await client.chat.completions.create({ model, messages: hello, max_tokens: 4, n: 2 })
    expect(choices.map(({ index }) => index)).toEqual([0, 1])
  })

  test('a tool is called, and the runner of tools sends its result', async () => {
    const messages = [{ role: 'user', content: 'What is the weather in Dallas?' }]
    const asked = []
    const runnable = { ...tools[0], function: { ...tools[0].function, parse: JSON.parse, function: weather } }
    function weather(args) {
      asked.push(args)
      return '98'
    }
    for (const stream of [false, true]) {
      const ask = { model, messages, tools: [runnable], max_tokens: 128, stream }
      const text = await client.chat.completions.runTools(ask).finalContent()
      expect(text.length).toBeGreaterThan(0)
    }
    expect(asked).toEqual([wanted, wanted])
  })
})

test('errors have their kinds', async () => {
  const ask = (more) => client.chat.completions.create({ model: 'python_words', messages: hello, ...more })
  await expect(ask({ model: 'unknown' })).rejects.toBeInstanceOf(OpenAI.NotFoundError)
  await expect(ask({ temperature: 3 })).rejects.toBeInstanceOf(OpenAI.BadRequestError)
  await expect(ask({ messages: [] })).rejects.toMatchObject({ status: 400, type: 'invalid_request_error' })
})

test.each(['python_words', 'typescript_words'])('an aborted stream cancels the request of %s', async (model) => {
  const lines = () => {
    try {
      return readFileSync(join(repository, model, '1', 'journal'), 'utf8').split('\n').length
    } catch {
      return 0
    }
  }
  const before = lines()
  const stream = await client.chat.completions.create({
    model,
    messages: [{ role: 'user', content: 'slowly' }],
    max_tokens: 500,
    stream: true,
  })
  let count = 0
  for await (const _ of stream) {
    count += 1
    if (count === 4) stream.controller.abort()
  }
  await vi.waitFor(() => expect(lines()).toBeGreaterThan(before), 10_000)
})

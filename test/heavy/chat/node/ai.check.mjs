/** The AI SDK with its provider for compatible servers, against language models of three kinds. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, generateText, stepCountIs, streamText, tool } from 'ai'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'

const baseURL = `${process.env.NEREID_TEST_CHAT_URL}/v1`
const provider = createOpenAICompatible({ name: 'nereid', baseURL, includeUsage: true })
const exact = { temperature: 0, seed: 1, maxOutputTokens: 12, maxRetries: 0 }

async function all(stream) {
  const items = []
  for await (const item of stream) items.push(item)
  return items
}

describe.each(['python_words', 'typescript_words', 'vllm_words'])('%s', (name) => {
  const model = provider(name)

  test('generates and streams the same text, with usage', async () => {
    const whole = await generateText({ model, prompt: 'Say hello', ...exact })
    expect(whole.text.trim().split(' ')).toHaveLength(12)
    expect(whole.usage.outputTokens).toBe(12)
    const stream = streamText({ model, prompt: 'Say hello', ...exact })
    const pieces = await all(stream.textStream)
    expect(pieces.join('')).toBe(whole.text)
    expect(pieces).toHaveLength(12)
    expect((await stream.usage).outputTokens).toBe(12)
    expect(await stream.finishReason).toBe(whole.finishReason)
  })

  test('completes prompts', async () => {
    const whole = await generateText({ model: provider.completionModel(name), prompt: 'Once', ...exact })
    expect(whole.text.trim().split(' ')).toHaveLength(12)
  })

  test.each([generateText, streamText])('%o calls a tool and sends its result', async (generate) => {
    const asked = []
    const weather = tool({
      description: 'The weather of a city',
      inputSchema: z.object({ city: z.string(), state: z.string(), unit: z.string() }),
      execute: (input) => {
        asked.push(input)
        return '98'
      },
    })
    const result = await generate({
      model,
      prompt: 'What is the weather in Dallas?',
      tools: { get_current_weather: weather },
      stopWhen: stepCountIs(2),
      ...exact,
      maxOutputTokens: 128,
    })
    expect((await result.text).length).toBeGreaterThan(0)
    expect(asked).toEqual([{ city: 'Dallas', state: 'TX', unit: 'fahrenheit' }])
    const steps = await result.steps
    expect(steps.map(({ finishReason }) => finishReason)[0]).toBe('tool-calls')
  })
})

test('an unknown model is an error with the text of the server', async () => {
  const wrong = generateText({ model: provider('unknown'), prompt: 'a', maxRetries: 0 })
  await expect(wrong).rejects.toSatisfy((error) => APICallError.isInstance(error) && error.statusCode === 404)
  await expect(wrong).rejects.toThrow(/unknown/)
})

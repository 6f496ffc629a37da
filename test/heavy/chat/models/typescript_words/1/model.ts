/** A model that streams words, `word0 word1 …`. A prompt with `slowly` has 20 ms between them. */
import { appendFileSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'

const JOURNAL = new URL('journal', import.meta.url)
const WEATHER = { city: 'Dallas', state: 'TX', unit: 'fahrenheit' }

/** Pieces of a response: a call in the form of Llama 3 if the prompt names the function, its result if it is there. */
function pieces(prompt: string, most: number, stop: string[]): string[] {
  if (prompt.includes('get_current_weather') && prompt.includes('98')) return ['It', ' is', ' 98', ' degrees', '.']
  if (prompt.includes('get_current_weather'))
    return JSON.stringify({ name: 'get_current_weather', parameters: WEATHER }).match(/.{1,5}/g) ?? []
  const words = Array.from({ length: most }, (_, i) => `${i > 0 ? ' ' : ''}word${i}`)
  const end = words.findIndex((word) => stop.some((one) => word.includes(one)))
  return end < 0 ? words : words.slice(0, end)
}

export default defineModel({
  decoupled: true,
  inputs: {
    text_input: { datatype: 'BYTES', dims: [1] },
    stream: { datatype: 'BOOL', dims: [1], optional: true },
    max_tokens: { datatype: 'INT32', dims: [1], optional: true },
    temperature: { datatype: 'FP32', dims: [1], optional: true },
    stop: { datatype: 'BYTES', dims: [-1], optional: true },
  },
  outputs: {
    text_output: { datatype: 'BYTES', dims: [1] },
    finish_reason: { datatype: 'BYTES', dims: [1] },
    num_input_tokens: { datatype: 'UINT32', dims: [1] },
    num_output_tokens: { datatype: 'UINT32', dims: [1] },
  },
  async *execute(request) {
    const [prompt = ''] = request.input('text_input').strings()
    const [most = 16] = request.input('max_tokens')?.data ?? []
    const all = pieces(prompt, most, request.input('stop')?.strings() ?? [])
    let sent = 0
    try {
      for (const piece of all) {
        if (prompt.includes('slowly')) await setTimeout(20, undefined, { signal: request.signal })
        const isLast = sent === all.length - 1
        yield new InferenceResponse([
          Tensor.fromStrings('text_output', [piece]),
          Tensor.fromStrings('finish_reason', [isLast ? (all.length === most ? 'length' : 'stop') : '']),
          Tensor.from('num_input_tokens', new Uint32Array([prompt.split(/\s+/).length])),
          Tensor.from('num_output_tokens', new Uint32Array([1])),
        ])
        sent += 1
      }
    } finally {
      if (sent < all.length) appendFileSync(JOURNAL, `cancelled after ${sent}\n`)
    }
  },
})

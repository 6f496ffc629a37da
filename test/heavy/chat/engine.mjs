/** Prints what node-llama-cpp generates in its own program: `node engine.mjs FILE.gguf TOKENS < prompts.json`. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [file, tokens] = process.argv.slice(2)
// The package is installed in the directory where the program runs.
const entry = createRequire(join(process.cwd(), 'x.js')).resolve('node-llama-cpp')
const { getLlama } = await import(pathToFileURL(entry).href)
const llama = await getLlama({ gpu: false, build: 'never', skipDownload: true, progressLogs: false })
const model = await llama.loadModel({ modelPath: file })
const context = await model.createContext({ contextSize: 2048, threads: 1 })
const sequence = context.getSequence()
const answers = []
for (const prompt of JSON.parse(readFileSync(0, 'utf8'))) {
  await sequence.clearHistory()
  const ids = model.tokenize(prompt, true)
  // It has the token that ends a text, too.
  const made = []
  for await (const token of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
    made.push(token)
    if (model.isEogToken(token) || made.length === Number(tokens)) break
  }
  answers.push({ text: model.detokenize(made), input: ids.length, output: made.length })
}
process.stdout.write(`${JSON.stringify(answers)}\n`)
await llama.dispose()

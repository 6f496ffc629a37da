/**
 * Writes tokenizer_config.json beside the model: its chat template and the special tokens that a template may name,
 * from the metadata of the file `.gguf` in this directory. The server renders `messages` with it.
 */
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { readGgufFileInfo } from 'node-llama-cpp'

const directory = import.meta.dirname
const files = readdirSync(directory).filter((name) => name.endsWith('.gguf'))
if (files.length !== 1) throw new Error(`${directory} has to have one file *.gguf, and has ${files.length}`)
const { tokenizer } = (await readGgufFileInfo(join(directory, files[0]))).metadata
const { chat_template } = tokenizer
if (typeof chat_template !== 'string')
  throw new Error(`${files[0]} has no tokenizer.chat_template: write chat_template.jinja yourself`)
const { tokens, bos_token_id, eos_token_id } = tokenizer.ggml
// Members without a value are left out.
const settings = { chat_template, bos_token: tokens[bos_token_id], eos_token: tokens[eos_token_id] }
writeFileSync(join(directory, 'tokenizer_config.json'), `${JSON.stringify(settings, null, 2)}\n`)

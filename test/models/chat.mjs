/**
 * Models that chat, without a language model: `echo` says its prompt, `say` the last message alone, `settings` what it
 * is asked for, `messages` all messages, `speak` a word
 * after each millisecond, and `slow` one after each minute.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DECOUPLED, config, writeModel } from '../../scripts/models/repository.mjs'

const parameter = (key, text) => `parameters { key: "${key}" value { string_value: "${text}" } }\n`

/** ChatML, with the functions before the messages. */
const TEMPLATE =
  '{{ bos_token }}{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}' +
  '{% for message in messages %}{% if message.role == "robot" %}{{ raise_exception("no robots") }}{% endif %}' +
  '<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}' +
  '{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{{ suffix }}'

function writeEcho(root, name, files, parameters = '') {
  const text = (tensor) => [[tensor, 'TYPE_STRING', [1]]]
  const chats = parameter('nereid.chat', 'prompt=INPUT0 text=OUTPUT0') + parameters
  writeModel(root, name, { config: config('identity', 0, text('INPUT0'), text('OUTPUT0')) + chats })
  const folder = join(root, name, '1/tokenizer')
  mkdirSync(folder, { recursive: true })
  for (const [file, content] of Object.entries(files)) writeFileSync(join(folder, file), content)
}

function writeSpeak(root, name, intervalMs, more = '') {
  const inputs = [
    ['text_input', 'TYPE_STRING', [1]],
    ['stream', 'TYPE_BOOL', [1]],
    ['max_tokens', 'TYPE_INT32', [1]],
  ]
  const speaks = config('speak', 0, inputs, [['text_output', 'TYPE_STRING', [1]]])
  writeModel(root, name, {
    config: `${speaks}${DECOUPLED}${parameter('interval_ms', intervalMs)}${more}`,
  })
}

export function writeChat(root) {
  const tokens = JSON.stringify({ bos_token: { content: '<s>' }, chat_template: TEMPLATE })
  const own = parameter('nereid.chat.tokenizer', '1/tokenizer')
  writeEcho(root, 'echo', { 'tokenizer_config.json': tokens }, own)
  writeEcho(
    root,
    'say',
    { 'chat_template.jinja': '{{ messages[-1].content }}' },
    own + parameter('nereid.chat.tool_parser', 'hermes') + parameter('nereid.alias', 'gpt-4o-mini'),
  )
  writeEcho(root, 'bare', {})
  const texts = (...names) => names.map((name) => [name, 'TYPE_STRING', [1]])
  const holds = parameter('nereid.chat', 'sampling_parameters=INPUT0 prompt=INPUT1 text=OUTPUT0')
  const settings = config('identity', 0, texts('INPUT0', 'INPUT1'), texts('OUTPUT0', 'OUTPUT1'))
  writeModel(root, 'settings', { config: settings + holds + parameter('nereid.chat.template', 'any.jinja') })
  writeFileSync(join(root, 'settings/any.jinja'), '{{ messages[-1].content }}')
  const messages = parameter('nereid.chat', 'messages=INPUT0 text=OUTPUT0')
  writeModel(root, 'messages', { config: config('identity', 0, texts('INPUT0'), texts('OUTPUT0')) + messages })
  writeSpeak(root, 'speak', '1', parameter('nereid.chat.template', 'speak.jinja'))
  writeSpeak(root, 'slow', '60000', parameter('nereid.chat.template', 'speak.jinja'))
  for (const name of ['speak', 'slow'])
    writeFileSync(join(root, name, 'speak.jinja'), 'Say: {{ messages[-1].content }}')
}

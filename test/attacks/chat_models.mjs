/** Models that chat and say too much at once, fail in the middle, or leave the memory of their process full. */
import { config, DECOUPLED, writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const PATH = '/v1/chat/completions'

/** Runs its prompt, with `say` for a response; requests run at once. */
const CODE = `import { setTimeout as pause } from 'node:timers/promises'
import { InferenceResponse, Tensor, TritonError } from 'nereid/backend'
const AsyncFunction = (async () => {}).constructor
const tensor = ([name, text]) => Tensor.fromStrings(name, [text], [1])
const respond = (of) => new InferenceResponse(Object.entries(of).map(tensor))
const run = async (request, sender) => {
  const scope = { request, sender, pause, Tensor, InferenceResponse, TritonError }
  scope.say = (text, more = {}) => sender.send(respond({ text_output: text, ...more }))
  await new AsyncFunction(...Object.keys(scope), request.input('text_input').strings()[0])(...Object.values(scope))
}
export default {
  execute: (requests) =>
    requests.map((request) => {
      const { sender } = request
      const failed = (error) => sender.send(InferenceResponse.error('INTERNAL', error.message), { final: true })
      void run(request, sender).then(() => sender.end(), failed)
      return null
    }),
}
`

function writeModels(root) {
  const inputs = [
    ['text_input', 'TYPE_STRING', [1]],
    ['stream', 'TYPE_BOOL', [1], 'optional: true'],
  ]
  const outputs = ['text_output', 'logprobs'].map((name) => [name, 'TYPE_STRING', [1]])
  const template = 'parameters { key: "nereid.chat.template" value { string_value: "code.jinja" } }\n'
  writeModel(root, 'code', {
    config: config('javascript', 0, inputs, outputs, DECOUPLED + template),
    files: { '1/model.mjs': CODE, 'code.jinja': '{{ messages[-1].content }}' },
  })
}

const chats = server('a model that chats and runs code', { models: writeModels })
const small = server('a model that chats and runs code, in 512 MiB', { models: writeModels, containerMiB: 512 })

const ask = (t, content, more = {}) =>
  t.post(PATH, JSON.stringify({ model: 'code', messages: [{ role: 'user', content }], ...more }))

/** Data of the events of a stream. */
const events = (text) =>
  text
    .split('\n\n')
    .filter((event) => event !== '')
    .map((event) => event.replace(/^data: /, ''))

/** Says 200 pieces of 20 kB. */
const PIECES = `for (let i = 0; i < 200 && !request.cancelled; i += 1) { say('x'.repeat(20000)); await pause(1) }`
/** A token with twenty others in its place, as backend vllm writes them. */
const STEP = JSON.stringify(
  Object.fromEntries(
    Array.from({ length: 21 }, (_, i) => [1000 + i, { logprob: -i - 0.5, rank: i + 1, decoded_token: ` token${i}` }]),
  ),
)

const FAILURES = [
  ['an exception', `say('a'); await pause(20); throw new Error('in the middle')`, 'in the middle'],
  [
    'another datatype',
    `say('a'); sender.send(new InferenceResponse([Tensor.from('text_output', Float32Array.of(1))]))`,
    'TYPE_FP32',
  ],
  ['two texts', `say('a'); sender.send(new InferenceResponse([Tensor.fromStrings('text_output', ['b', 'c'])]))`, '[2]'],
  ['malformed log probabilities', `say('a'); say('b', { logprobs: '{' })`, 'log probabilities are malformed'],
  ['the end of its worker', `say('a'); await pause(20); process.exit(3)`, 'not healthy'],
]

export const rows = [
  {
    attack: 'a model that fails, sends tensors of another form, or ends in the middle of a chat, streamed and whole',
    limit:
      'A stream that fails ends with an event of the error and `[DONE]`; nothing of the model follows (`chat_stream`).',
    server: chats,
    async run(t) {
      for (const [name, code, why] of FAILURES) {
        const whole = await ask(t, code, { logprobs: true })
        t.check(
          whole.status === 500 && whole.text.includes(why),
          `${name}: ${whole.status} ${whole.text.slice(0, 200)}`,
        )
        const ready = async () => (await ask(t, `say('good')`)).status === 200
        t.check(await until(ready), `${name}: no chat after it`)
        // An error that comes right behind the first words is in the queue when the reply begins, or it is not.
        for (let i = 0; i < (name === 'the end of its worker' ? 1 : 10); i += 1) {
          const { status, text } = await ask(t, code, { stream: true, logprobs: true })
          const all = events(text)
          const [failed, done] = all.slice(-2)
          t.check(status === 200 && done === '[DONE]', `${name}: ${status} ${text.slice(-200)}`)
          t.check(failed.includes('"error"') && failed.includes(why), `${name}: ${failed}`)
          t.check(status !== 200 || all.slice(0, -2).every((event) => JSON.parse(event).choices), `${name}: ${text}`)
        }
        t.check(await until(ready), `${name}: no chat after its stream`)
      }
      return `${FAILURES.length} failures, each told once`
    },
  },
  {
    attack: 'a response of 6 MB, for a client with 64 texts of `stop`',
    limit: 'A response of more than `PRINT_BYTES_ON_REACTOR_MAX` bytes is searched and printed by another thread.',
    server: chats,
    measures: true,
    async run(t) {
      const stop = Array.from({ length: 64 }, (_, i) => `ababababab${i}`)
      const { result, ms } = await t.hold(() => ask(t, `say('ab'.repeat(3e6))`, { stop }))
      t.check(result.status === 200, `${result.status} ${result.text.slice(0, 200)}`)
      t.check(ms <= 25, `a reactor was held for ${ms} ms`)
      return `held for ${ms} ms at most`
    },
  },
  {
    attack: 'a response with log probabilities of 20,000 tokens and twenty others for each',
    limit: 'Log probabilities count like text: `PRINT_BYTES_ON_REACTOR_MAX`; what is kept of them is charged.',
    server: chats,
    measures: true,
    async run(t) {
      const code = `say('word', { logprobs: '[' + Array(20000).fill(${JSON.stringify(STEP)}).join(',') + ']' })`
      let worst = 0
      for (const stream of [false, true]) {
        const asked = { stream, logprobs: true, top_logprobs: 20 }
        const { result, ms } = await t.hold(() => ask(t, code, asked))
        t.check(result.status === 200, `${result.status} ${result.text.slice(0, 200)}`)
        t.check(ms <= 25, `a reactor was held for ${ms} ms`)
        worst = Math.max(worst, ms)
      }
      return `held for ${worst} ms at most`
    },
  },
  {
    attack: '200 streams whose pieces fill a container of 512 MiB with freed memory, and then a small chat',
    limit:
      'Small chats have the reserve of small buffers (`memory::budget`), free memory of malloc is returned while ' +
      'requests are rejected (`memory::reclaim`), and an idle instance collects its garbage (`IdleCollector`).',
    server: small,
    msMax: 60_000,
    async run(t) {
      if (typeof t.container === 'string') return `not tried: ${t.container}`
      await Promise.all(Array.from({ length: 200 }, () => ask(t, PIECES, { stream: true })))
      const before = t.rssMiB()
      const good = await ask(t, `say('good')`)
      t.check(good.status === 200, `a small chat after them: ${good.status} ${good.text.slice(0, 200)}`)
      const answers = async () => (await ask(t, `say('x'.repeat(100000))`)).status === 200
      t.check(await until(answers, { seconds: 10 }), 'a chat with a long answer is rejected for 10 s')
      return `${Math.round(before)} MiB, then ${Math.round(t.rssMiB())} MiB`
    },
  },
]

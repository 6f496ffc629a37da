/** Bodies of chats that are too large, too deep, or no conversation; templates that do not end; clients that leave. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeChat } from '../models/chat.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const PATH = '/v1/chat/completions'

/** A template that renders without an end, and one whose text grows without one. */
function writeModels(root) {
  writeChat(root)
  const loops = '{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}'
  writeFileSync(join(root, 'bare', '1', 'chat_template.jinja'), loops)
}

const chats = server('models that chat', { models: writeModels })

const body = (messages, more = '') => `{"model":"echo","messages":${messages}${more}}`
const input = (items, more = '') => `{"model":"echo","input":${items}${more}}`
const user = (content) => `[{"role":"user","content":${content}}]`
const list = (count, item) => `[${Array.from({ length: count }, () => item).join(',')}]`

/** Sends bodies one after the other beside health; each has its status, and another client's chat is answered. */
async function refused(t, bodies, path = PATH) {
  const before = t.rssMiB()
  const { worstMs } = await t.health(async () => {
    for (const [name, text, status] of bodies) {
      const answer = await t.post(path, text)
      t.check(answer.status === status, `${name}: ${answer.status} ${answer.text.slice(0, 200)}`)
      const has = status === 200 || JSON.parse(answer.text).error.message.length > 0
      t.check(has, `${name}: ${answer.text.slice(0, 200)}`)
    }
  })
  const good = await t.post(PATH, body(user('"a"')))
  t.check(good.status === 200, `a chat after them: ${good.status} ${good.text.slice(0, 200)}`)
  t.check(worstMs < 2000, `health took ${Math.round(worstMs)} ms`)
  return `${bodies.length} bodies, health within ${Math.round(worstMs)} ms, ${Math.round(t.rssMiB() - before)} MiB`
}

/** 128 choices of a model that speaks once a minute, and another client's chat beside them. */
async function many(t, bodies) {
  const before = t.rssMiB()
  const { worstMs } = await t.health(async () => {
    const signal = AbortSignal.timeout(3000)
    const leave = (text) => fetch(`${t.url}/v1/completions`, { method: 'POST', body: text, signal }).catch(() => {})
    await Promise.all(bodies.map(leave))
  })
  const good = await t.post(PATH, body(user('"a"')))
  t.check(good.status === 200, `a chat after them: ${good.status} ${good.text.slice(0, 200)}`)
  t.check(worstMs < 2000, `health took ${Math.round(worstMs)} ms`)
  const grown = t.rssMiB() - before
  t.check(grown < 128, `${Math.round(grown)} MiB more`)
  return `${Math.round(grown)} MiB more, health within ${Math.round(worstMs)} ms`
}

export const rows = [
  {
    attack: '100,000 messages, parts, functions and texts of `stop`, and 10,000 nested lists, in a chat',
    limit:
      'A conversation has at most `MESSAGES_MAX` messages, `TOOLS_MAX` functions and `STOPS_MAX` texts of `stop` ' +
      '(`chat::messages`, `chat::request`), and JSON nests 128 deep.',
    server: chats,
    run: (t) =>
      refused(t, [
        ['messages', body(list(1e5, '{"role":"user","content":"a"}')), 400],
        ['parts', body(user(list(1e5, '{"type":"image_url"}'))), 400],
        ['functions', body(user('"a"'), `,"tools":${list(1e5, '{}')}`), 400],
        ['stops', body(user('"a"'), `,"stop":${list(1e5, '"a"')}`), 400],
        ['lists', body(user('['.repeat(10_000) + ']'.repeat(10_000))), 400],
        ['members', body(user('"a"'), `,"logit_bias":{${'"a":1,'.repeat(3e4)}"a":1}`), 200],
      ]),
  },
  {
    attack: '100,000 items, parts and functions, and 10,000 nested lists, in a request of `/v1/responses`',
    limit: 'Items become messages of a chat, of which there are at most `MESSAGES_MAX` (`chat::request`).',
    server: chats,
    run: (t) =>
      refused(
        t,
        [
          ['items', input(list(1e5, '{"role":"user","content":"a"}')), 400],
          ['parts', input(`[{"role":"user","content":${list(1e5, '{"type":"input_image"}')}}]`), 400],
          ['functions', input('"a"', `,"tools":${list(1e5, '{"type":"function","name":"f"}')}`), 400],
          ['lists', input('['.repeat(10_000) + ']'.repeat(10_000)), 400],
          ['members', input('"a"', `,"metadata":{${'"a":"b",'.repeat(3e4)}"a":"b"}`), 200],
        ],
        '/v1/responses',
      ),
  },
  {
    attack: 'a conversation of 8 MB, whose prompt is longer than a template may make, and 10,000 choices',
    limit:
      'A prompt has at most `PROMPT_BYTES_MAX` bytes (`chat::template`), and a request `CHOICES_MAX` choices ' +
      '(`chat::fields`), over all prompts.',
    server: chats,
    run: (t) =>
      refused(t, [
        ['a long text', body(user(JSON.stringify('a'.repeat(8e6)))), 400],
        ['choices', body(user('"a"'), ',"n":10000'), 400],
      ]),
  },
  {
    attack: 'a template that makes 10^10 steps',
    limit: 'A template makes at most `STEPS_MAX` steps (`chat::template`), on a thread of its own.',
    server: chats,
    run: (t) => refused(t, [['loops', body(user('"a"')).replace('echo', 'bare'), 400]]),
  },
  {
    attack: '200 clients that leave while a model makes their chat, half of them streams',
    limit: 'A reply that nobody reads cancels the requests of all its choices.',
    server: chats,
    async run(t) {
      const leave = async (streams) => {
        const text = body(user('"a"'), `,"n":3,"stream":${streams}`).replace('echo', 'slow')
        const signal = AbortSignal.timeout(500)
        await fetch(`${t.url}${PATH}`, { method: 'POST', body: text, signal }).catch(() => {})
      }
      await Promise.all(Array.from({ length: 200 }, (_, at) => leave(at % 2 === 0)))
      const cancelled = () => t.metric('nv_inference_request_failure', 'model="slow",reason="CANCELED"')
      const all = await until(async () => (await cancelled()) >= 600, { seconds: 10 })
      t.check(all, `${await cancelled()} of 600 requests were cancelled`)
      return `600 requests cancelled`
    },
  },
  {
    attack: 'a prompt of 4 MB for 128 choices, and 40 clients with 60 kB for 128 choices each, with 256 MiB of memory',
    limit: 'Choices of a prompt share its tensors, which are charged to `--memory-limit`.',
    server: server('models that chat, in 256 MiB', { models: writeModels, flags: ['--memory-limit=256m'] }),
    run: (t) => {
      const asked = (bytes) => JSON.stringify({ model: 'slow', prompt: 'a'.repeat(bytes), n: 128 })
      return many(t, [asked(4e6), ...Array.from({ length: 40 }, () => asked(60_000))])
    },
  },
  {
    attack: '64 texts of `stop` with 20,000 bytes each, and 1,024 bytes of them for 20,000 words of a model',
    limit: 'Texts of `stop` have at most `STOP_BYTES_MAX` bytes together (`chat::request`).',
    server: chats,
    async run(t) {
      const stops = (count, bytes) => Array.from({ length: count }, (_, n) => `${' word'.repeat(bytes / 5)}${n}`)
      const asked = (stop, more) => body(user('"a"'), `,"stop":${JSON.stringify(stop)}${more}`).replace('echo', 'speak')
      const long = await t.post(PATH, asked(stops(64, 20_000), ''))
      t.check(long.status === 400 && /at most 1024/.test(long.text), `${long.status} ${long.text.slice(0, 200)}`)
      const most = asked(stops(4, 250), ',"max_tokens":1000,"n":20,"stream":true')
      const { result, ms } = await t.hold(() => t.post(PATH, most))
      t.check(result.status === 200, `${result.status} ${result.text.slice(0, 200)}`)
      t.check(ms <= 100, `a reactor was held for ${ms} ms`)
      return `held for ${ms} ms at most`
    },
  },
  {
    attack: '3,000,000 empty objects in variables of the template, in a message, and in a form of the text',
    limit: 'A body has at most `VALUES_MAX` values (`chat::body`), which are charged before they are read.',
    server: chats,
    run: (t) => {
      const empty = list(3e6, '{}')
      return refused(t, [
        ['variables', body(user('"a"'), `,"chat_template_kwargs":{"x":${empty}}`), 400],
        ['a message', body(`[{"role":"user","content":"a","x":${empty}}]`), 400],
        ['a form', body(user('"a"'), `,"response_format":{"type":"json_object","x":${empty}}`), 400],
      ])
    },
  },
]

/** Chat and completions, over models that echo or speak without a language model. */
import { request as httpRequest } from 'node:http'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { TOOL_PARSERS } from '../../src/config/index.js'
import * as check from '../../src/tools/check/index.js'
import { files, runs } from '../commands/harness.js'
import { TestServer, repositories } from './harness.js'

const models = repositories()
let server: TestServer
let triton: TestServer
let openaiPort = 0

beforeAll(async () => {
  openaiPort = (await freePorts(1))[0] ?? 0
  const triton9000 = ['--openai-errors=triton', `--openai-port=${openaiPort}`, '--tool-call-parser=llama3']
  const restricted = ['--openai-restricted-api', 'metrics,model-repository', 'X-Key', 'secret word']
  server = await TestServer.start(models.path('chat'), ['--default-max-tokens=5'])
  triton = await TestServer.start(models.path('chat'), [...triton9000, ...restricted])
})
afterAll(async () => {
  await Promise.all([server?.stop(), triton?.stop()])
  models.remove()
})

// oxlint-disable-next-line typescript/no-explicit-any
type Json = any
type Answer = { status: number; headers: Headers; body: Json }

async function post(path: string, body: object, to = server): Promise<Answer> {
  const response = await fetch(`http://127.0.0.1:${to.httpPort}${path}`, { method: 'POST', body: JSON.stringify(body) })
  return { status: response.status, headers: response.headers, body: await response.json() }
}

const user = (content: Json): Json[] => [{ role: 'user', content }]
const chat = (model: string, content: Json, more: object = {}, to = server): Promise<Answer> =>
  post('/v1/chat/completions', { model, messages: user(content), ...more }, to)

/** The chunks of a stream, whose last event is `[DONE]`. */
async function stream(path: string, body: object): Promise<Json[]> {
  const response = await fetch(`http://127.0.0.1:${server.httpPort}${path}`, {
    method: 'POST',
    body: JSON.stringify({ ...body, stream: true }),
  })
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8'])
  const events = (await response.text()).split('\n\n')
  expect(events.splice(-2)).toEqual(['data: [DONE]', ''])
  return events.map((event) => JSON.parse(event.replace(/^data: /, '')))
}

test('a model is named by the body or by the query, else it is the only one that chats', async () => {
  const named = await post('/v1/chat/completions?model=say', { messages: user('a') })
  expect([named.status, named.body.model]).toEqual([200, 'say'])
  const none = await post('/v1/chat/completions', { messages: user('a') })
  expect(none.status).toBe(400)
  expect(none.body.error.message).toMatch(
    /names no model; name one by \?model= or in the body: bare, echo, messages, say, settings/,
  )
  const unknown = await post('/v1/chat/completions?model=nobody', { messages: user('a') })
  expect(unknown.status).toBe(404)
  expect(unknown.body.error.message).toMatch(
    /'nobody' is not found; models that chat: bare, echo, messages, say, settings/,
  )
})

test.each([
  ['--chat-template=/nowhere/x.jinja', /--chat-template is '\/nowhere\/x.jinja', where a file is expected/],
  ['--chat-template=HERE/broken.jinja', /--chat-template is '.*broken.jinja': chat template, line 1: /],
  ['--tokenizer=no/such', /--tokenizer is 'no\/such', where a folder or a model .*`hf download no\/such`/],
])('a server with %s does not start, and names why', async (flag, why) => {
  const here = files({ 'broken.jinja': '{% if %}', 'models/.keep': '' })
  const started = TestServer.start(join(here, 'models'), [flag.replace('HERE', here)])
  await expect(started).rejects.toThrow(why)
})

test('a check names a template with an error, and one that fails for a message', async () => {
  const model = (name: string, template: string): Record<string, string> => ({
    [`${name}/config.pbtxt`]:
      'backend: "identity"\ninput [ { name: "INPUT0" data_type: TYPE_STRING dims: [ 1 ] } ]\n' +
      'output [ { name: "OUTPUT0" data_type: TYPE_STRING dims: [ 1 ] } ]\n' +
      'parameters { key: "nereid.chat" value { string_value: "prompt=INPUT0 text=OUTPUT0" } }\n',
    [`${name}/1/chat_template.jinja`]: template,
  })
  const broken = model('broken', '{% if %}')
  const fails = model('fails', '{{ messages | no_such_filter }}')
  const { code, out } = await runs(check, [
    '--load',
    files({ ...broken, ...fails, ...model('fine', '{{ messages[0].content }}') }),
  ])
  expect(code).toBe(1)
  expect(out).toMatch(/model 'broken' cannot chat: .*chat template, line 1: /)
  expect(out).toMatch(/model 'fails' cannot chat: .*no_such_filter/)
  expect(out).not.toContain("'fine'")
})

test('a check without a load reports a wrong parser, and a missing folder and file', async () => {
  const wrong = { '.tool_parser': 'lama3', '.tokenizer': 'tokenizer', '.template': '../chat.jinja' }
  const config = (parameters: Record<string, string>): string =>
    'backend: "identity"\ninput [ { name: "INPUT0" data_type: TYPE_STRING dims: [ 1 ] } ]\n' +
    'output [ { name: "OUTPUT0" data_type: TYPE_STRING dims: [ 1 ] } ]\n' +
    Object.entries({ '': 'prompt=INPUT0 text=OUTPUT0', ...parameters })
      .map(([key, text]) => `parameters { key: "nereid.chat${key}" value { string_value: "${text}" } }\n`)
      .join('')
  const right = { '.tool_parser': 'pythonic', '.tokenizer': 'tokens', '.template': 'tokens/chat.jinja' }
  const here = files({
    'chat.jinja': '',
    'models/wrong/config.pbtxt': config(wrong),
    'models/wrong/1/.keep': '',
    'models/right/config.pbtxt': config(right),
    'models/right/1/.keep': '',
    'models/right/tokens/chat.jinja': '{{ messages[0].content }}',
  })
  const { code, out } = await runs(check, [join(here, 'models')])
  expect(code).toBe(1)
  const parsers = `use one of ${TOOL_PARSERS.join(', ')}. Did you mean 'llama3'?`
  expect(out).toContain(`error: nereid.chat.tool_parser is 'lama3', which is not a parser of tool calls: ${parsers}`)
  expect(out).toMatch(/'nereid.chat.tokenizer' of model 'wrong' is 'tokenizer', where a folder below .* is expected/)
  expect(out).toMatch(
    /'nereid.chat.template' of model 'wrong' is '\.\.\/chat.jinja', where a file below .* is expected/,
  )
  expect(out).toContain('2 models, 3 errors, 0 warnings')
  // A load has the same rules.
  const loaded = await runs(check, ['--load', join(here, 'models/right')])
  expect([loaded.code, loaded.out]).toEqual([0, expect.stringContaining('0 errors, 0 warnings')])
})

describe('templates', () => {
  test('P-222: a conversation is rendered as the template of the model says', async () => {
    const messages = [
      { role: 'developer', content: 'Be short' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'é' },
          { type: 'text', text: '"2"' },
        ],
      },
      { role: 'assistant', content: null },
    ]
    const { status, body } = await post('/v1/chat/completions', {
      model: 'echo',
      messages,
      tools: [{ type: 'function', function: { name: 'f' } }],
      tool_choice: 'none',
      chat_template_kwargs: { suffix: '!' },
    })
    expect(status, JSON.stringify(body)).toBe(200)
    const turns = ['system\nBe short', 'user\né\n"2"', 'assistant\n'].map((turn) => `<|im_start|>${turn}<|im_end|>\n`)
    const [choice] = body.choices
    expect(choice.message).toEqual({ role: 'assistant', content: `<s>[f]${turns.join('')}<|im_start|>assistant\n!` })
    expect([body.object, body.model, choice.index, choice.finish_reason, choice.logprobs, body.usage]).toEqual([
      'chat.completion',
      'echo',
      0,
      'stop',
      null,
      null,
    ])
  })

  test('P-220: a completion needs no template, a chat does, and no client gives one', async () => {
    const none = await chat('bare', 'a')
    expect([none.status, none.body.error.message]).toEqual([500, expect.stringContaining('Cannot use chat template')])
    expect(none.body.error.message).toContain('--chat-template')
    const completion = await post('/v1/completions', { model: 'bare', prompt: ['a', 'b'], echo: true })
    expect(completion.body.choices.map((choice: Json) => [choice.index, choice.text])).toEqual([
      [0, 'aa'],
      [1, 'bb'],
    ])
    const own = await chat('echo', 'a', { chat_template: '{{ 1 }}' })
    expect([own.status, own.body.error.param]).toEqual([400, 'chat_template'])
  })
})

describe('streams', () => {
  test('P-221, P-223: words come in chunks, with the role before and the reason after', async () => {
    const options = { stream_options: { include_usage: true } }
    const chunks = await stream('/v1/chat/completions', { model: 'speak', messages: user('a'), ...options })
    const deltas = chunks.map(({ choices: [choice] }) => [choice.delta, choice.finish_reason])
    const words = Array.from({ length: 5 }, () => [{ content: ' word' }, null])
    expect(deltas).toEqual([[{ role: 'assistant', content: '' }, null], ...words, [{}, 'stop']])
    expect(new Set(chunks.map(({ id, object, usage }) => [id, object, usage].join())).size).toBe(1)
    const texts = await stream('/v1/completions', { model: 'speak', prompt: 'a', max_tokens: 2, n: 2 })
    for (const index of [0, 1]) {
      const own = texts.map(({ choices: [choice] }) => choice).filter((choice) => choice.index === index)
      expect(own.map((choice) => choice.text).join('')).toBe(' word word')
      expect(own.map((choice) => choice.finish_reason)).toEqual([null, null, 'stop'])
    }
  })

  test('a text of stop ends a choice whose model goes on, as a success', async () => {
    const { body } = await chat('speak', 'a', { max_tokens: 100_000, stop: ['rd wo'] })
    expect(body.choices[0]).toMatchObject({ message: { content: ' wo' }, finish_reason: 'stop' })
    const { body: late } = await chat('speak', 'a', { max_tokens: 2, stop: 'rd x' })
    expect(late.choices[0].message.content).toBe(' word word')
    const metrics = async (): Promise<string> => (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
    await expect.poll(metrics).toMatch(/^nv_inference_request_success\{model="speak",version="1"\} [1-9]/m)
    await expect
      .poll(metrics)
      .toMatch(/^nv_inference_request_failure\{model="speak",reason="CANCELED",version="1"\} 0$/m)
  })

  test('a client that leaves ends the request of the model', async () => {
    const cancelled = async (): Promise<number> => {
      const text = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
      const line = /^nv_inference_request_failure\{model="slow",reason="CANCELED",version="1"\} (\d+)/m.exec(text)
      return Number(line?.[1] ?? 0)
    }
    for (const streams of [true, false]) {
      const before = await cancelled()
      const body = JSON.stringify({ model: 'slow', messages: user('a'), stream: streams })
      const leaving = httpRequest({ port: server.httpPort, path: '/v1/chat/completions', method: 'POST' })
      leaving.on('error', () => {})
      leaving.end(body)
      await pause(200)
      leaving.destroy()
      await expect.poll(cancelled, { timeout: 5000, interval: 20 }).toBe(before + 1)
    }
  })
})

test('P-224: calls of tools have names, ids and arguments', async () => {
  const call = '<tool_call>{"name": "f", "arguments": {"n": 12345678901234567890}}</tool_call>'
  const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }]
  const { body } = await chat('gpt-4o-mini', `Well.${call}`, { tools })
  const [{ message, finish_reason: reason }] = body.choices
  expect([message.content, reason, body.model]).toEqual(['Well.', 'tool_calls', 'gpt-4o-mini'])
  expect(message.tool_calls).toEqual([
    {
      id: expect.stringMatching(/^call_\w{16}$/),
      type: 'function',
      function: { name: 'f', arguments: '{"n": 12345678901234567890}' },
    },
  ])
  const forced = await chat('say', call, { tools, tool_choice: 'required' })
  expect([forced.status, forced.body.error.param]).toEqual([400, 'tool_choice'])
  const none = await chat('echo', 'a', { tools })
  // The names are those that the command line takes.
  expect(none.body.error.message).toContain(`requires --tool-call-parser to be set (${TOOL_PARSERS.join(', ')}), or`)
})

describe('responses', () => {
  const say = (model: string, input: Json, more: object = {}): Promise<Answer> =>
    post('/v1/responses', { model, input, ...more })

  test('a response has messages and calls, and repeats its settings', async () => {
    const input = [{ role: 'user', content: [{ type: 'input_text', text: 'é' }] }]
    const { status, body } = await say('echo', input, { instructions: 'Be short', store: true, metadata: { a: 'b' } })
    expect(status, JSON.stringify(body)).toBe(200)
    const text = '<s><|im_start|>system\nBe short<|im_end|>\n<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n'
    const part = { type: 'output_text', text, annotations: [], logprobs: [] }
    const message = { id: expect.stringMatching(/^msg_\w{16}$/), type: 'message', status: 'completed' }
    expect(body).toMatchObject({ object: 'response', status: 'completed', model: 'echo', usage: null, error: null })
    expect(body).toMatchObject({ instructions: 'Be short', store: false, metadata: { a: 'b' }, temperature: 1 })
    expect([body.id, body.output]).toEqual([
      expect.stringMatching(/^resp_\w{16}$/),
      [{ ...message, role: 'assistant', content: [part] }],
    ])
    const call = '<tool_call>{"name": "f", "arguments": {"n": 12345678901234567890}}</tool_call>'
    const tools = [{ type: 'function', name: 'f', parameters: { type: 'object' } }]
    const { body: called } = await say('say', `Well.${call}`, { tools })
    expect(called.output.map(({ type }: Json) => type)).toEqual(['message', 'function_call'])
    const args = '{"n": 12345678901234567890}'
    expect(called.output[1]).toMatchObject({ name: 'f', arguments: args, call_id: expect.stringMatching(/^call_\w+$/) })
  })

  test('a stream has typed events with numbers, and no end of its own', async () => {
    const response = await fetch(`http://127.0.0.1:${server.httpPort}/v1/responses`, {
      method: 'POST',
      body: JSON.stringify({ model: 'speak', input: 'a', max_output_tokens: 2, seed: 1, stream: true }),
    })
    const { status, headers } = response
    expect([status, headers.get('content-type'), headers.get('nereid-ignored')]).toEqual([
      200,
      'text/event-stream; charset=utf-8',
      'seed',
    ])
    const lines = (await response.text()).split('\n\n')
    expect(lines.pop()).toBe('')
    const events = lines.map((line) => {
      const [, name, data = ''] = /^event: (.*)\ndata: (.*)$/.exec(line) ?? []
      return { name, data: JSON.parse(data) as Json }
    })
    const text = ['output_text.delta', 'output_text.delta', 'output_text.done', 'content_part.done']
    const item = ['output_item.added', 'content_part.added', text, 'output_item.done'].flat()
    const names = ['created', 'in_progress', item, 'completed'].flat().map((name) => `response.${name}`)
    expect(events.map(({ name }) => name)).toEqual(names)
    expect(events.map(({ data }) => data.sequence_number)).toEqual(events.map((_, at) => at))
    expect(events.every(({ name, data }) => data.type === name)).toBe(true)
    expect(events.at(-1)?.data.response.output[0].content[0].text).toBe(' word word')
  })

  test('what is not supported is rejected, with the field that is wrong', async () => {
    for (const [more, param, text] of [
      [{ previous_response_id: 'resp_1' }, 'previous_response_id', 'send the earlier items in `input`'],
      [{ background: true }, 'background', 'stream it'],
      [{ tools: [{ type: 'web_search' }] }, 'tools', 'only "function" is supported'],
      [{ input: [{ role: 'user', content: [{ type: 'input_image' }] }] }, 'input', 'only texts are supported'],
      [{ text: { format: { type: 'json_object' } } }, 'text.format', "only the type 'text' works"],
      [{ max_output_tokens: -1 }, 'max_output_tokens', 'greater than or equal to 0'],
    ] as const) {
      const { status, body } = await say('speak', 'a', more)
      expect([status, body.error.param]).toEqual([400, param])
      expect(body.error.message).toContain(text)
    }
  })
})

test('a model gets schemas as clients write them, a template its variables in order', async () => {
  const schema = '{"type":"object","properties":{"why":{"maximum":12345678901234567890123},"is":{"enum":[1]}}}'
  // As text: JSON of JavaScript has no such numbers.
  const settings = async (fields: string): Promise<Json> => {
    const body = `{"model":"settings","messages":[{"role":"user","content":"a"}],${fields}}`
    const response = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body })
    const { choices } = (await response.json()) as Json
    return JSON.parse(choices[0].message.content || choices[0].message.tool_calls[0].function.arguments)
  }
  const format = await settings(`"response_format":{"type":"json_schema","json_schema":{"schema":${schema}}}`)
  expect(JSON.parse(format.structured_outputs)).toEqual({ json: schema })
  const tool = (name: string): string => `{"type":"function","function":{"name":"${name}","parameters":${schema}}}`
  const choice = '"tool_choice":{"type":"function","function":{"name":"g"}}'
  const forced = await settings(`"tools":[${tool('f')},${tool('g')}],${choice}`)
  expect(JSON.parse(forced.structured_outputs)).toEqual({ json: schema })
  const { body } = await chat('echo', 'a', { chat_template_kwargs: { suffix: { z: 1, a: { y: 2, b: 3 } } } })
  expect(body.choices[0].message.content).toContain("{'z': 1, 'a': {'y': 2, 'b': 3}}")
})

test('a completion is rejected by a model that takes messages', async () => {
  const { status, body } = await post('/v1/completions', { model: 'messages', prompt: 'a' })
  expect([status, body.error.param]).toEqual([400, 'model'])
  expect(body.error.message).toBe("model: model 'messages' takes messages and no prompt: use /v1/chat/completions")
})

test('fields without a place are named, those with another type rejected', async () => {
  const answer = await chat('speak', 'a', { seed: 1, top_k: 2, max_tokens: 1, user: 'u', unknown: 1 })
  expect([answer.status, answer.headers.get('nereid-ignored')]).toEqual([200, 'seed, top_k'])
  for (const [more, param] of [
    [{ temperature: 3 }, 'temperature'],
    [{ n: 129 }, 'n'],
    [{ response_format: { type: 'json_object' } }, 'response_format'],
    [{ messages: [] }, 'messages'],
  ] as const) {
    const { status, body } = await chat('speak', 'a', more)
    expect([status, body.error.param, body.error.type]).toEqual([400, param, 'invalid_request_error'])
  }
  const unknown = await chat('nobody', 'a')
  expect([unknown.status, unknown.body.error.code]).toEqual([404, 'model_not_found'])
  const unfit = await post('/v1/chat/completions', { messages: user('a') })
  expect(unfit.body.error.message).toMatch(/in the body: bare, echo, messages, say, settings, slow, speak/)
})

test('--allow-metrics=false turns off the metrics of --openai-port, too', async () => {
  const [port = 0] = await freePorts(1)
  const flags = [`--openai-port=${port}`, '--allow-metrics=false']
  const silent = await TestServer.start(models.path('chat'), flags)
  try {
    const response = await fetch(`http://127.0.0.1:${port}/metrics`)
    expect(response.status).toBe(404)
    expect(await response.text()).toContain('metrics are turned off (--allow-metrics=false)')
  } finally {
    await silent.stop()
  }
})

test("P-218, P-219, P-228, P-229: --openai-errors=triton has Triton's bodies", async () => {
  const at = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(`http://127.0.0.1:${openaiPort}${path}`, init)
  const say = async (body: object): Promise<[number, Json]> => {
    const response = await at('/v1/chat/completions', { method: 'POST', body: JSON.stringify(body) })
    return [response.status, ((await response.json()) as Json).detail]
  }
  expect(await say({ model: 'nobody', messages: user('a') })).toEqual([400, 'Unknown model: nobody'])
  expect(await say({ model: 'echo', messages: user('a'), n: 2 })).toEqual([
    400,
    'Received n=2, but only single choice (n=1) is currently supported',
  ])
  expect((await say({ model: 'echo', messages: user('a'), store: true }))[0]).toBe(422)
  expect((await say({ model: 'echo', messages: [{}] }))[1][0].msg).toBe('Field required')
  const response = await at('/v1/responses', { method: 'POST', body: JSON.stringify({ model: 'say', input: 'a' }) })
  expect(((await response.json()) as Json).output[0].content[0].text).toBe('a')
  expect([(await at('/health/ready')).status, (await at('/v1/chat/completions')).status]).toEqual([200, 405])
  const closed = await at('/metrics')
  const message = "This API is restricted, expecting header 'X-Key' with valid value"
  const error = { message, type: 'authentication_error', code: 'invalid_auth' }
  expect([closed.status, await closed.json()]).toEqual([401, { error }])
  const headers = { 'x-key': 'secret word' }
  expect(await (await at('/metrics', { headers })).text()).toContain('nv_cpu_utilization')
  const list = (await (await at('/v1/models', { headers })).json()) as Json
  expect(list.data.map(({ id }: Json) => id)).toEqual([
    'bare',
    'echo',
    'gpt-4o-mini',
    'messages',
    'say',
    'settings',
    'slow',
    'speak',
  ])
  const mode = { detail: 'Model load/unload requires --model-control-mode=explicit' }
  for (const act of ['load', 'unload']) {
    const answer = await at(`/v1/models/echo/${act}`, { method: 'POST', headers })
    expect([answer.status, await answer.json()]).toEqual([400, mode])
  }
  const other = await fetch(`http://127.0.0.1:${triton.httpPort}/metrics`)
  expect(other.status).toBe(404)
})

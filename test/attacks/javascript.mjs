/** Models in JavaScript that print, allocate, loop and call without end: what their code can do to its server. */
import { readdirSync } from 'node:fs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { bodyOf, bounded, boundedLog, run } from './lib/code.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const MIB = 1 << 20
const HEAP_MIB = 64

/** Runs its input as `execute`. */
const CODE = `import { createRequire } from 'node:module'
import { InferenceResponse, Tensor, TritonError } from 'nereid/backend'
const load = createRequire(import.meta.url)
const AsyncFunction = (async () => {}).constructor
const text = (value) => new InferenceResponse([Tensor.fromStrings('OUT', [String(value)], [1])])
const keep = []
export default {
  execute(requests, ctx) {
    const code = requests[0].input('CODE').strings()[0]
    const scope = { ctx, keep, load, text, InferenceResponse, Tensor, TritonError }
    return new AsyncFunction(...Object.keys(scope), code + '\\nreturn [text("done")]')(...Object.values(scope))
  },
}
`

const javascript = server('JavaScript models that run code', {
  flags: ['--model-control-mode=explicit', '--load-model=*', '--backend-config=javascript,exit-grace-seconds=1'],
  models: (root) => {
    const io = [[['CODE', 'TYPE_STRING', [1]]], [['OUT', 'TYPE_STRING', [1]]]]
    const parameter = (key, value) =>
      `parameters { key: "nereid.javascript.${key}" value { string_value: "${value}" } }\n`
    for (const [name, count, more] of [
      ['one', 1, ''],
      ['some', 8, ''],
      ['small', 1, parameter('memory-limit-bytes', HEAP_MIB * MIB)],
      ['timed', 1, parameter('execute-timeout-ms', 500)],
    ]) {
      const text = config('javascript', 0, ...io, `${more}instance_group [ { count: ${count} kind: KIND_CPU } ]\n`)
      writeModel(root, name, { config: text, files: { '1/model.mjs': CODE } })
    }
  },
})

const threads = (t) => readdirSync(`/proc/${t.pid}/task`).length

export const rows = [
  {
    attack: 'a JavaScript model that logs and prints a gigabyte each',
    limit:
      'The log accepts a limited number of output bytes each second (`output-bytes-per-second`), without ' +
      "the main thread. A line of the model's logger has at most `MESSAGE_BYTES_MAX`, with any number of lines.",
    server: javascript,
    async run(t) {
      const lines = t.volume(1 << 11, 1 << 14)
      const code = (what) => `const line = 'x'.repeat(65535)\nfor (let i = 0; i < ${lines}; i += 1) ${what}`
      return boundedLog(t, lines, code('console.log(line)'), code('ctx.logger.info(line)'))
    },
  },
  {
    attack: 'a JavaScript model that fills its heap with a gigabyte',
    limit:
      '`memory-limit-bytes` is the limit of the heap of a worker, which ends alone, and is started again (B-JS-05). ' +
      'Array buffers are outside of the heap.',
    server: javascript,
    run: (t) =>
      bounded(
        t,
        'small',
        'for (;;) keep.push(Array.from({ length: 10_000 }, (_, i) => ({ i })))',
        /^(500|503) .*not healthy/,
      ),
  },
  {
    attack: 'a JavaScript model that loops, and one that answers never, with and without `execute-timeout-ms`',
    limit:
      'With `execute-timeout-ms` the worker is ended and started again. Without it, an instance loops alone: others ' +
      'answer, and after `exit-grace-seconds` an unload ends it (B-JS-05).',
    server: javascript,
    async run(t) {
      const before = threads(t)
      for (const code of ['for (;;) ;', 'await new Promise(() => {})'])
        await bounded(t, 'timed', code, /^(500|503) .*not healthy/)
      for (const code of ['for (;;) ;', 'await new Promise(() => {})']) {
        const socket = await t.socket()
        const body = bodyOf(`console.log('begins: ${code}')\n${code}`)
        const head = `POST /v2/models/one/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`
        await socket.send(head + body)
        await until(() => t.output().includes(`begins: ${code}`))
        socket.destroy()
        t.check((await run(t, 'some', '')).status === 200, 'another model does not answer')
        for (const what of ['unload', 'load']) {
          const answer = await t.post(`/v2/repository/models/one/${what}`, '{}')
          t.check(answer.status === 200, `${what}: ${answer.status} ${answer.text}`)
        }
        t.check((await run(t, 'one', '')).status === 200, 'it does not answer after a load')
      }
      await until(() => threads(t) <= before + 1)
      t.check(threads(t) <= before + 1, `${before} threads before, and ${threads(t)} after`)
      return `${before} threads before, ${threads(t)} after`
    },
  },
  {
    attack: 'a JavaScript model that answers with 3 GB',
    limit: 'The segments of an instance in one direction are limited (`shm-max-byte-size`).',
    server: javascript,
    run: (t) =>
      bounded(
        t,
        'one',
        // The contents are not looked at before they are sent.
        "const tensor = Tensor.from('OUT', new Uint8Array(3 * 2 ** 30))\n" +
          "return [new InferenceResponse([Object.assign(tensor, { datatype: 'BYTES' })])]",
        /^(500|503) /,
      ),
  },
  {
    attack: 'a JavaScript model that answers with 100,000 tensors',
    limit: 'The number of tensors of a response is limited (`TENSORS_MAX` of the runner protocol).',
    server: javascript,
    run: (t) =>
      bounded(
        t,
        'one',
        "const tensor = Tensor.fromStrings('OUT', ['x'])\n" +
          'return [new InferenceResponse(new Array(100_000).fill(tensor))]',
        /^500 /,
      ),
  },
  {
    attack: 'a JavaScript model whose error is 32 MB',
    limit: 'The text of an error is cut before it is sent (`TEXT_CHARS_MAX`).',
    server: javascript,
    run: (t) => bounded(t, 'one', "throw new Error('x'.repeat(32 << 20))", /^500 /),
  },
  {
    attack:
      'a JavaScript model that answers with tensors whose shape, datatype and lengths of strings are others ' +
      'than their contents',
    limit:
      'The server compares the shape with the bytes, and reads each length of a string within them. The request ' +
      'fails, or the worker is ended for a frame that lies (B-SEC-07).',
    server: javascript,
    async run(t) {
      const lie = (tensor, members) => `Object.assign(${tensor}, ${members})`
      const strings = "Tensor.fromStrings('OUT', ['x'])"
      const lies = [
        lie(strings, '{ shape: [2] }'),
        lie(strings, '{ shape: [2 ** 62, 4] }'),
        lie(strings, '{ shape: [-1] }'),
        lie(strings, '{ shape: new Array(300).fill(1) }'),
        lie(strings, "{ name: 'OUT'.repeat(100_000) }"),
        lie(strings, "{ datatype: 'FP32' }"),
        lie("Tensor.from('OUT', new Float32Array([1]))", "{ datatype: 'BYTES' }"),
        // A length of 4 GB before one byte.
        lie("Tensor.from('OUT', new Uint8Array([255, 255, 255, 255, 1]), [5])", "{ datatype: 'BYTES', shape: [1] }"),
        lie("Tensor.from('OUT', new Uint8Array(3), [3])", "{ datatype: 'BYTES', shape: [1] }"),
      ]
      for (const tensor of lies) await bounded(t, 'some', `return [new InferenceResponse([${tensor}])]`, /^(500|503) /)
      return `${lies.length} tensors`
    },
  },
  {
    attack: 'a JavaScript model that starts 100,000 calls and takes no answer',
    limit: 'An instance has at most 1024 calls in progress; further calls fail (B-SEC-07).',
    server: javascript,
    run: (t) =>
      bounded(
        t,
        'one',
        // The model calls itself: its only instance is busy, so that no call ends before this one does.
        "const input = [Tensor.fromStrings('CODE', [''])]\n" +
          'let failed = 0\n' +
          `for (let i = 0; i < ${t.volume(20_000, 100_000)}; i += 1)\n` +
          "  ctx.models.infer('one', input).catch(() => { failed += 1 })\n" +
          'await new Promise((done) => setTimeout(done, 1000))\n' +
          'return [text(`${failed} failed`)]',
        /^200 [1-9]\d* failed/,
      ),
  },
  {
    attack: 'a JavaScript model that makes a million series of a metric',
    limit: 'The number of series of all models together is limited (B-SEC-07, O-21).',
    server: javascript,
    run: (t) =>
      bounded(
        t,
        'small',
        "const family = ctx.metrics.gauge('many', '')\n" +
          `for (let i = 0; i < ${t.volume(50_000, 1_000_000)}; i += 1) keep.push(family.labels({ i: String(i) }))\n` +
          'await keep.at(-1).value()',
        // A million of them may fill the heap of the worker before the first one is refused.
        t.volume(/^(500|503) .*limited to 16384 labelled/, /^(500|503) .*(limited to 16384 labelled|not healthy)/),
      ),
  },
  {
    attack: 'a JavaScript model that connects its worker a second time and sends 10,000 damaged frames',
    limit:
      'A frame that breaks the protocol ends the worker: the server believes no length, number or place in it ' +
      '(`crates/frames`).',
    server: javascript,
    run: (t) =>
      bounded(
        t,
        'one',
        `const { workerData } = load('worker_threads')
const { attachRunner } = load('module').createRequire(workerData.library)(workerData.library)
const runner = attachRunner(workerData.runner, () => {})
let seed = 1
const random = () => (seed = (seed * 48271) % 2147483647)
for (let i = 0; i < 10_000; i += 1) {
  const frame = Buffer.alloc(12 + (random() % 200))
  for (let at = 0; at < frame.length; at += 1) frame[at] = random() % 5 === 0 ? random() : 0
  frame.writeUInt32LE(frame.length - 12, 0)
  frame[4] = random() % 64
  runner.send(random() % 2, frame, false)
}`,
        /^(500|503) /,
      ),
  },
]

/** Bodies of text endpoints that are too large, too deep, or no text, and clients that do not read vectors. */
import { writeText } from '../models/text.mjs'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const PATH = '/v1/embeddings'
const MIB = 1 << 20

const texts = server('text models', { models: writeText })

const asked = (input) => `{"model":"embed","input":${input}}`
const list = (count, item) => `[${Array.from({ length: count }, () => item).join(',')}]`

/** Sends bodies one after the other beside health; each has its status, and another client's text is served. */
async function refused(t, bodies, path = PATH) {
  const before = t.rssMiB()
  const { worstMs } = await t.health(async () => {
    for (const [name, body, status] of bodies) {
      const answer = await t.post(path, body)
      t.check(answer.status === status, `${name}: ${answer.status} ${answer.text.slice(0, 200)}`)
      const has = status === 200 || JSON.parse(answer.text).error.message.length > 0
      t.check(has, `${name}: ${answer.text.slice(0, 200)}`)
    }
  })
  const good = await t.post(PATH, asked('"the cat"'))
  t.check(good.status === 200, `a text after them: ${good.status} ${good.text.slice(0, 200)}`)
  t.check(worstMs < 2000, `health took ${Math.round(worstMs)} ms`)
  return `${bodies.length} bodies, health within ${Math.round(worstMs)} ms, ${Math.round(t.rssMiB() - before)} MiB`
}

/** Texts in the binary form of BYTES. */
const binary = (texts) =>
  Buffer.concat(
    texts.map((text) => {
      const element = Buffer.alloc(4 + text.length)
      element.writeUInt32LE(text.length)
      text.copy(element, 4)
      return element
    }),
  )

/** Infers with texts in the binary form, which no reader of JSON has seen. */
function infer(t, model, name, shape, raw, parameters = {}) {
  const inputs = [{ name, datatype: 'BYTES', shape, parameters: { binary_data_size: raw.length } }]
  const head = Buffer.from(JSON.stringify({ inputs, parameters }))
  const headers = { 'inference-header-content-length': `${head.length}` }
  return t.post(`/v2/models/${model}/infer`, Buffer.concat([head, raw]), headers)
}

export const rows = [
  {
    attack: 'a text of 8 MB to `/tokenize`, whose answer would have a hundred bytes for each token',
    limit: 'The texts of a request to `/tokenize` have at most `TOKENIZE_BYTES_MAX` (`frontend::limits`).',
    server: texts,
    async run(t) {
      const before = t.rssMiB()
      const of = (bytes) => t.post('/tokenize?model=embed', JSON.stringify({ inputs: 'a '.repeat(bytes / 2) }))
      const large = await of(8e6)
      t.check(large.status === 413 && /takes 262144/.test(large.text), `${large.status} ${large.text.slice(0, 200)}`)
      const grown = t.rssMiB() - before
      t.check(grown < 64, `${Math.round(grown)} MiB for a request that was refused`)
      const fits = await of(200_000)
      t.check(fits.status === 200, `${fits.status} ${fits.text.slice(0, 200)}`)
      return `${large.status}, ${Math.round(grown)} MiB`
    },
  },
  {
    attack:
      '1,000,000 texts, a text of 10 MB, broken UTF-8, half of a token id and ids beyond the vocabulary, as tensors ' +
      'of a text model',
    limit:
      'A request has at most `TEXTS_MAX` texts (`protocol::text`). Each text is checked when it is tokenised, and ' +
      'fails its own request only.',
    server: texts,
    async run(t) {
      const ids = { token_ids: 'own' }
      const attempts = [
        ['texts', ['flat', 'input_text', [1e6], Buffer.alloc(4e6)], /1000000 texts.* the limit is 65536/],
        ['a text of 10 MB', ['embed', 'text', [1, 1], binary([Buffer.alloc(10 * MIB, 'a ')])], /bytes/],
        ['broken UTF-8', ['embed', 'text', [1, 1], binary([Buffer.from([0x61, 0xff])])], /not UTF-8/],
        ['half of an id', ['embed', 'text', [1, 1], binary([Buffer.alloc(6)]), ids], /integers of 4 bytes/],
        ['an id', ['embed', 'text', [1, 1], binary([Buffer.alloc(4, 0xff)]), ids], /4294967295/],
      ]
      for (const [name, of, text] of attempts) {
        const { status, text: said } = await infer(t, ...of)
        t.check(status === 400 && text.test(said), `${name}: ${status} ${said.slice(0, 200)}`)
      }
      const good = await infer(t, 'flat', 'input_text', [2], binary([Buffer.from('a'), Buffer.from('b')]))
      t.check(good.status === 200, `texts after them: ${good.status} ${good.text.slice(0, 200)}`)
      return `${attempts.length} requests`
    },
  },
  {
    attack: '65,000 texts of 64 tokens each in a request to a text model',
    limit: 'The texts of a request have at most `REQUEST_TOKENS_MAX` tokens (`backend_onnx::text`).',
    server: texts,
    nightly: true,
    msMax: 900_000,
    async run(t) {
      const long = Buffer.from('a '.repeat(100))
      const answer = await infer(t, 'flat', 'input_text', [65_000], binary(Array(65_000).fill(long)))
      t.check(answer.status === 400 && /more than 4000000 tokens/.test(answer.text), answer.text.slice(0, 200))
      return `status ${answer.status}`
    },
  },
  {
    attack: '1,000,000 texts, and as many documents, token ids and lists of them, in a request of a text endpoint',
    limit:
      'A request has at most `TEXTS_MAX` texts (`protocol::text`), which are read straight into one tensor; a longer ' +
      'list is read no further. Token ids count as bytes.',
    server: texts,
    run: (t) =>
      refused(t, [
        ['texts', asked(list(1e6, '""')), 400],
        ['lists of ids', asked(list(1e6, '[1]')), 400],
        ['ids of no declared tokenizer', asked(list(1e6, '1')), 400],
        ['objects', asked(list(1e6, '{"text":""}')), 400],
      ]),
  },
  {
    attack: 'a query of 1 MB with 1,000 documents, whose pairs are 1 GB',
    limit: 'Pairs are counted before they are made, against `--http-max-input-size`.',
    server: texts,
    run: (t) => {
      const documents = Array(1000).fill('a')
      return refused(
        t,
        [['score', JSON.stringify({ model: 'rerank', text_1: 'x'.repeat(MIB), text_2: documents }), 400]],
        '/v1/score',
      )
    },
  },
  {
    attack:
      'texts of 10 MB, JSON 1,000,000 brackets deep, broken UTF-8, lone surrogates, token ids beyond 2^53 and below ' +
      '0, at a text endpoint',
    limit:
      'A body is UTF-8, and nothing of it is read recursively but by a form (`protocol::text`). A token id is a ' +
      '`u32`. A text has a limit of its tokenizer.',
    server: texts,
    run: (t) =>
      refused(t, [
        ['a text of 10 MB', asked(`"${'the cat '.repeat((10 * MIB) / 8)}"`), 400],
        ['brackets', asked('['.repeat(1e6)), 400],
        ['brackets in a field that is ignored', `{"model":"embed","x":${'['.repeat(1e6)}`, 400],
        ['broken UTF-8', Buffer.from(asked('"\xff\xfe"'), 'latin1'), 400],
        ['a lone surrogate', asked('"\\udc00"'), 400],
        ['half a pair', asked('"\\ud800x"'), 400],
        ['an id beyond 2^53', asked('[9007199254740993]'), 400],
        ['an id below 0', asked('[-1]'), 400],
        ['a fraction', asked('[1.5]'), 400],
      ]),
  },
  {
    attack: 'clients that read nothing of 10,000 vectors each, and bodies of text endpoints that end in the middle',
    limit:
      'A response is charged to the connection until it is read (`memory::Budget`), and a body that stalls ends ' +
      'after `BODY_STALL_TIME_MAX`. Others are served meanwhile.',
    server: texts,
    async run(t) {
      const body = asked(list(10_000, '"a dog"'))
      const request = (length) => `POST ${PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`
      const sockets = await Promise.all(Array.from({ length: 8 }, () => t.socket()))
      const { worstMs } = await t.health(async () => {
        for (const [at, socket] of sockets.entries()) {
          socket.socket.pause()
          const half = at % 2 === 1 ? body.slice(0, body.length / 2) : body
          socket.socket.write(request(body.length) + half)
        }
        const served = await until(async () => (await t.post(PATH, asked('"the cat"'))).status === 200)
        t.check(served, 'no other client is served')
      })
      for (const socket of sockets) socket.destroy()
      t.check(worstMs < 2000, `health took ${Math.round(worstMs)} ms`)
      t.check(await until(async () => (await t.metric('nereid_memory_used_bytes')) === 0), 'charges are left')
      return `health within ${Math.round(worstMs)} ms`
    },
  },
]

/**
 * `simple` behind an HTTP server of Node, with onnxruntime-node: raw bytes in, raw bytes out. `node_simple.mjs
 * uws|fastify PORT`.
 */
import createFastify from 'fastify'
import { InferenceSession, Tensor } from 'onnxruntime-node'
import { uwsModule } from '../../test/embed/uws_module.mjs'

const session = await InferenceSession.create(process.env.BENCH_MODEL, { intraOpNumThreads: 1 })

/** Both inputs, one behind the other → both outputs. */
async function simple(body) {
  const both = new Int32Array(body.buffer, body.byteOffset, body.byteLength / 4)
  const half = both.length / 2
  const tensor = (from) => new Tensor('int32', both.subarray(from, from + half), [half / 16, 16])
  const { OUTPUT0, OUTPUT1 } = await session.run({ INPUT0: tensor(0), INPUT1: tensor(half) })
  return Buffer.concat([OUTPUT0, OUTPUT1].map(({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength)))
}

const SERVERS = {
  async uws(port) {
    const { App } = await uwsModule()
    const app = App()
    app.get('/ready', (response) => response.end('{}'))
    app.post('/simple', (response) => {
      let isGone = false
      response.onAborted(() => (isGone = true))
      const chunks = []
      response.onData(async (chunk, isLast) => {
        // Its memory is valid during this call.
        chunks.push(Buffer.from(new Uint8Array(chunk)))
        if (!isLast) return
        const answer = await simple(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks))
        if (!isGone)
          response.cork(() => response.writeHeader('Content-Type', 'application/octet-stream').end(answer))
      })
    })
    app.listen('127.0.0.1', port, () => {})
  },
  async fastify(port) {
    const app = createFastify()
    const kept = (_request, body, done) => done(null, body)
    app.addContentTypeParser('application/octet-stream', { parseAs: 'buffer' }, kept)
    app.get('/ready', async () => ({}))
    app.post('/simple', async (request, reply) => {
      // A pooled buffer may begin at any byte, and numbers at every fourth.
      const answer = await simple(new Uint8Array(request.body))
      return reply.type('application/octet-stream').send(answer)
    })
    await app.listen({ host: '127.0.0.1', port })
  },
}

const [name, port] = process.argv.slice(2)
await SERVERS[name](Number(port))

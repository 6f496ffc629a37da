/**
 * `simple` behind an HTTP server of Node: raw bytes in, raw bytes out, with onnxruntime-node, or computed by the code
 * of the model in TypeScript; that one takes JSON, too. `node_simple.mjs uws|fastify|fastify-code PORT`.
 */
import createFastify from 'fastify'
import { uwsModule } from '../../test/embed/uws_module.mjs'

const [name, port] = process.argv.slice(2)

/** Sum and difference, as the model of the suite `python` in TypeScript. */
const code = (a, b) => [a.map((value, i) => value + b[i]), a.map((value, i) => value - b[i])]

async function network() {
  const { InferenceSession, Tensor } = await import('onnxruntime-node')
  const session = await InferenceSession.create(process.env.BENCH_MODEL, { intraOpNumThreads: 1 })
  const tensor = (half) => new Tensor('int32', half, [half.length / 16, 16])
  return async (a, b) => {
    const { OUTPUT0, OUTPUT1 } = await session.run({ INPUT0: tensor(a), INPUT1: tensor(b) })
    return [OUTPUT0.data, OUTPUT1.data]
  }
}

const run = name === 'fastify-code' ? code : await network()

/** Both inputs, one behind the other → both outputs. */
async function simple(body) {
  const both = new Int32Array(body.buffer, body.byteOffset, body.byteLength / 4)
  const half = both.length / 2
  const outputs = await run(both.subarray(0, half), both.subarray(half))
  return Buffer.concat(outputs.map((data) => Buffer.from(data.buffer, data.byteOffset, data.byteLength)))
}

const SERVERS = {
  async uws(port) {
    const { App } = await uwsModule()
    const app = App()
    app.get('/ready', (response) => response.end('{}'))
    app.post('/infer', (response) => {
      let isGone = false
      response.onAborted(() => (isGone = true))
      const chunks = []
      response.onData(async (chunk, isLast) => {
        // Its memory is valid during this call.
        chunks.push(Buffer.from(new Uint8Array(chunk)))
        if (!isLast) return
        const answer = await simple(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks))
        if (!isGone) response.cork(() => response.writeHeader('Content-Type', 'application/octet-stream').end(answer))
      })
    })
    app.listen('127.0.0.1', port, () => {})
  },
  async fastify(port) {
    const app = createFastify()
    const kept = (_request, body, done) => done(null, body)
    app.addContentTypeParser('application/octet-stream', { parseAs: 'buffer' }, kept)
    app.get('/ready', async () => ({}))
    app.post('/infer', async (request, reply) => {
      // A pooled buffer may begin at any byte, and numbers at every fourth.
      const answer = await simple(new Uint8Array(request.body))
      return reply.type('application/octet-stream').send(answer)
    })
    app.post('/json', async ({ body }) => {
      const [sum, difference] = await run(Int32Array.from(body.a), Int32Array.from(body.b))
      return { sum: Array.from(sum), difference: Array.from(difference) }
    })
    await app.listen({ host: '127.0.0.1', port })
  },
}

await SERVERS[name.split('-')[0]](Number(port))

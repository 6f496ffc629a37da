/**
 * A rolling restart behind a forwarder like kube-proxy: each connection goes to a replica that the last look called
 * ready, and nothing is sent again. Five restarts, with --nightly twenty.
 */
import { request } from 'node:http'
import { connect, createServer, type AddressInfo, type Server } from 'node:net'
import { expect, test } from 'vitest'
import { BytesClient, INFERENCE, int32, simple } from '../server/embed-grpc.js'
import { TestServer, repositories, simpleBody } from '../server/harness.js'

const RESTARTS = process.env['NEREID_NIGHTLY'] === undefined ? 5 : 20
/** A readiness probe with its way into the tables of kube-proxy takes about as long. */
const LOOK_MS = 1000
const READY_MS_MAX = 60_000
const CLIENTS = 3

/** Replicas, those of them that are sent to, and a port for each protocol. */
class Forwarder {
  readonly replicas: TestServer[]
  #ready: TestServer[] = []
  readonly #fronts: Server[] = []
  readonly #timer = setInterval(() => void this.#look(), LOOK_MS)

  constructor(replicas: TestServer[]) {
    this.replicas = replicas
  }

  async #look(): Promise<void> {
    const isReady = (one: TestServer): Promise<boolean> =>
      fetch(`${one.url}/v2/health/ready`, { headers: { connection: 'close' } }).then(
        ({ ok }) => ok,
        () => false,
      )
    const found = await Promise.all(this.replicas.map(async (one) => [one, await isReady(one)] as const))
    this.#ready = found.filter(([, ready]) => ready).map(([one]) => one)
  }

  /** Resolves when each replica is sent to. */
  async all(): Promise<void> {
    for (const end = performance.now() + READY_MS_MAX; !this.replicas.every((one) => this.#ready.includes(one));) {
      if (performance.now() > end) throw new Error(`not each replica is ready within ${READY_MS_MAX} ms`)
      await new Promise((done) => setTimeout(done, 20))
    }
  }

  /** Opens a port; `portOf` is that of a replica. */
  async open(portOf: (replica: TestServer) => number): Promise<number> {
    const front = createServer({ allowHalfOpen: true }, (client) => {
      const replica = this.#ready[Math.floor(Math.random() * this.#ready.length)]
      if (replica === undefined) return void client.destroy()
      const behind = connect({ port: portOf(replica), host: '127.0.0.1', allowHalfOpen: true })
      client.pipe(behind).pipe(client)
      client.on('error', () => behind.destroy())
      behind.on('error', () => client.destroy())
    })
    this.#fronts.push(front)
    await new Promise<void>((done) => front.listen(0, '127.0.0.1', done))
    return (front.address() as AddressInfo).port
  }

  close(): void {
    clearInterval(this.#timer)
    for (const front of this.#fronts) front.close()
  }
}

/** An inference over a connection of its own; what failed, or null. */
const byHttp = (port: number): Promise<string | null> =>
  new Promise((resolve) => {
    const to = { host: '127.0.0.1', port, path: '/v2/models/simple/infer', method: 'POST', agent: false }
    const asked = request(to, (answer) => {
      let text = ''
      answer.on('data', (part) => (text += String(part)))
      answer.on('error', (error) => resolve(String(error)))
      answer.on('end', () => resolve(/"data":\[6,6,/.test(text) ? null : `${answer.statusCode} ${text}`))
    })
    asked.on('error', (error) => resolve(String(error)))
    asked.end(simpleBody(3))
  })

async function byGrpc(port: number): Promise<string | null> {
  const client = new BytesClient(`127.0.0.1:${port}`, { 'grpc.enable_retries': 0 })
  try {
    const { code, details, messages } = await client.unary(`${INFERENCE}ModelInfer`, simple(3))
    const isRight = messages[0]?.includes(int32(...Array<number>(16).fill(6))) === true
    return code === 'OK' && isRight ? null : `${code} ${details}`
  } finally {
    client.close()
  }
}

const TITLE = `${RESTARTS} restarts of two replicas cost no request on a new connection`
test(TITLE, { timeout: RESTARTS * 30_000 }, async () => {
  const models = repositories()
  const started = (): Promise<TestServer> => TestServer.start(models.path('small'))
  const forwarder = new Forwarder([await started(), await started()])
  const failed: string[] = []
  let answered = 0
  const over = new AbortController()
  try {
    const ports = [await forwarder.open((one) => one.httpPort), await forwarder.open((one) => one.grpcPort)] as const
    await forwarder.all()
    const clients = [byHttp, byGrpc].flatMap((ask, at) =>
      Array.from({ length: CLIENTS }, async () => {
        while (!over.signal.aborted) {
          const failure = await ask(ports[at] ?? 0)
          if (failure === null) answered++
          else failed.push(`${ask.name}: ${failure}`)
          // Paced: connections that are over occupy a port for a minute.
          await new Promise((done) => setTimeout(done, 5))
        }
      }),
    )
    for (let restart = 0; restart < RESTARTS; restart++) {
      await forwarder.all()
      const before = forwarder.replicas[restart % 2]
      // The forwarder sends to it until its next look.
      before?.process.kill('SIGTERM')
      expect(await before?.ended()).toBe(0)
      forwarder.replicas[restart % 2] = await started()
    }
    await forwarder.all()
    over.abort()
    await Promise.all(clients)
    expect(failed).toEqual([])
    expect(answered).toBeGreaterThan(RESTARTS * 100)
  } finally {
    over.abort()
    forwarder.close()
    await Promise.all(forwarder.replicas.map((one) => one.stop()))
    models.remove()
  }
})

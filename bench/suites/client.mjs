/**
 * One process of `nereid-client` beside one of Python's tritonclient, each with the same requests for the same server,
 * in turn: what a user of either pays on his own side. And a million answers of one request, for the client's memory.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { spread } from '../lib/stats.mjs'
import { peerEnvironment } from '../lib/venv.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import { end } from '../lib/process.mjs'

const PACKAGES = ['tritonclient[http,grpc]==2.73.0']
const WORKLOADS = [
  { name: '`simple`', model: 'simple', bytes: 64 },
  { name: '1 MiB', model: 'identity', bytes: 1 << 20 },
]
const CONCURRENCY = [1, 8]
/** Both compile what is hot; a cell begins when they have. */
const WARM_SECONDS = 2
/** Length of a turn: disturbances of a second or two fall on both sides of a pair. */
const TURN_SECONDS = 0.5
const ANSWERS = 1_000_000

/** A process that runs commands and answers each with a line of JSON. */
function worker(command, args) {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] })
  let said = ''
  child.stderr.on('data', (chunk) => (said = (said + chunk).slice(-2000)))
  const ended = new Promise((_, reject) =>
    child.once('exit', (code) => reject(new Error(`${args[0]} ended with ${code}: ${said}`))),
  )
  ended.catch(() => {})
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return {
    async ask(line) {
      child.stdin.write(`${line}\n`)
      const { value } = await Promise.race([lines.next(), ended])
      // Its output ends before its exit is told.
      return JSON.parse(value ?? (await ended))
    },
    end: () => child.kill('SIGKILL'),
  }
}

async function compare(ctx, python, url, transport, workload, c) {
  const args = [url, workload.model, `${workload.bytes}`, `${c}`]
  const ours = worker(process.execPath, [join(ctx.root, 'bench/clients/node.mjs'), ...args])
  const theirs = worker(python, [join(ctx.root, 'bench/clients/tritonclient_loop.py'), ...args])
  try {
    for (const one of [ours, theirs]) await one.ask(`run ${WARM_SECONDS}`)
    const runs = []
    const pairs = ctx.repetitions * Math.max(1, Math.round(ctx.seconds / TURN_SECONDS))
    for (let i = 0; i < pairs; i += 1) {
      const run = {}
      // The order alternates, because the state of the machine changes within a pair.
      const turns = Object.entries({ ours, theirs })
      for (const [name, one] of i % 2 === 0 ? turns : turns.toReversed())
        run[name] = await one.ask(`run ${TURN_SECONDS}`)
      runs.push(run)
    }
    const of = (pick) => spread(runs.map(pick))
    return {
      what: `${workload.name} over ${transport}, c=${c}`,
      rate: {
        ours: of((run) => run.ours.rate),
        theirs: of((run) => run.theirs.rate),
        ratio: of((run) => run.ours.rate / run.theirs.rate),
      },
      cpuUs: {
        ours: of((run) => run.ours.cpuUs),
        theirs: of((run) => run.theirs.cpuUs),
        ratio: of((run) => run.ours.cpuUs / run.theirs.cpuUs),
      },
    }
  } finally {
    ours.end()
    theirs.end()
  }
}

export async function client(ctx) {
  const { python } = await peerEnvironment(ctx.root, 'tritonclient', PACKAGES, ctx.say)
  const server = await startNereid(ctx.root, { models: ['simple', 'identity', 'repeat'] })
  try {
    const rows = []
    const transports = [
      ['HTTP', `http://127.0.0.1:${server.http}`],
      ['gRPC', `grpc://127.0.0.1:${server.grpc}`],
    ]
    for (const [transport, url] of transports) {
      for (const workload of WORKLOADS) {
        for (const c of CONCURRENCY) {
          ctx.say(`client: ${workload.name} over ${transport}, c=${c} …`)
          rows.push(await compare(ctx, python, url, transport, workload, c))
        }
      }
    }
    const answers = ctx.quick ? ANSWERS / 10 : ANSWERS
    const streams = []
    for (const [transport, url] of transports) {
      ctx.say(`client: ${answers} answers of one request over ${transport} …`)
      const reader = worker(process.execPath, [join(ctx.root, 'bench/clients/node.mjs'), url, 'simple', '64', '1'])
      try {
        streams.push({ transport, ...(await reader.ask(`stream ${answers}`)) })
      } finally {
        reader.end()
      }
    }
    return { rows, streams }
  } finally {
    await end(server.child)
  }
}

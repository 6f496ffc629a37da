/**
 * The client under test, in a process that lives as long as a cell: `node.mjs URL MODEL BYTES C`. Reads commands line
 * by line: `run SECONDS` asks as fast as it can and prints `{ rate, cpuUs }`; `stream COUNT` reads so many answers of
 * one request to `repeat` and prints how its memory grew.
 */
import { createInterface } from 'node:readline'
import { connect } from '../../client/dist/node.js'

const [url, model, bytes, concurrency] = process.argv.slice(2)
const client = connect(url)
const isSimple = model === 'simple'
const inputs = isSimple
  ? {
      INPUT0: { data: new Int32Array(16).fill(3), shape: [1, 16] },
      INPUT1: { data: new Int32Array(16).fill(1), shape: [1, 16] },
    }
  : { INPUT0: new Float32Array(Number(bytes) / 4).fill(4) }
const options = { outputs: isSimple ? ['OUTPUT0', 'OUTPUT1'] : ['OUTPUT0'] }

async function asks(until) {
  let done = 0
  for (; performance.now() < until; done += 1) {
    const result = await client.infer(model, inputs, options)
    if (result.output('OUTPUT0').data[0] !== 4) throw new Error('a wrong answer')
  }
  return done
}

async function run(seconds) {
  const cpu = process.cpuUsage()
  const from = performance.now()
  const counts = await Promise.all(Array.from({ length: Number(concurrency) }, () => asks(from + seconds * 1000)))
  const done = counts.reduce((sum, n) => sum + n)
  const { user, system } = process.cpuUsage(cpu)
  return { rate: (done * 1000) / (performance.now() - from), cpuUs: (user + system) / done }
}

/**
 * The model rests after so many answers, or a reader that it shares two cores with falls behind, and the server ends
 * the request.
 */
const BURST = 1000
const REST_MS = 30
const SAMPLES = 100

/** The values that one request is answered with, one at a time. */
async function* answersOf(count) {
  const wanted = {
    IN: Int32Array.from({ length: count }, (_, i) => i),
    DELAY: Uint32Array.from({ length: count }, (_, i) => (i % BURST === 0 ? REST_MS : 0)),
    WAIT: Uint32Array.of(0),
  }
  if (url.startsWith('grpc'))
    for await (const answer of client.inferStream('repeat', wanted)) yield answer.output('OUT').as('INT32')[0]
  else
    for await (const answer of client.generateStream('repeat', {
      IN: [...wanted.IN],
      DELAY: [...wanted.DELAY],
      WAIT: 0,
    }))
      yield answer.OUT
}

/** One request of so many answers; memory after each hundredth of them. */
async function stream(count) {
  const rss = []
  const from = performance.now()
  let next = 0
  for await (const value of answersOf(count)) {
    if (value !== next) throw new Error(`answer ${next} is ${value}`)
    next += 1
    if (next % (count / SAMPLES) === 0) rss.push(process.memoryUsage().rss)
  }
  if (next !== count) throw new Error(`${next} answers of ${count}`)
  // The first fifth is code that is compiled and pools that fill.
  const settled = rss.slice(SAMPLES / 5)
  return {
    answers: count,
    rate: (count * 1000) / (performance.now() - from),
    grewMiB: (settled.at(-1) - settled[0]) / 2 ** 20,
    peakMiB: Math.max(...rss) / 2 ** 20,
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [command, value] = line.split(' ')
  console.log(JSON.stringify(await (command === 'run' ? run : stream)(Number(value))))
}
client.close()

/**
 * The client under test, in a process that lives as long as a cell: `node.mjs URL MODEL BYTES C`. Reads commands line by line: `run SECONDS` asks as fast as it
 * can and prints `{ rate, cpuUs }`; `stream COUNT` reads so many answers of `repeat` and prints how its memory grew.
 */
import { createInterface } from 'node:readline'
import { connect } from '../../client/dist/node.js'

const [url, model, bytes, concurrency] = process.argv.slice(2)
const client = connect(url)
const isSimple = model === 'simple'
const inputs = isSimple
  ? { INPUT0: { data: new Int32Array(16).fill(3), shape: [1, 16] }, INPUT1: { data: new Int32Array(16).fill(1), shape: [1, 16] } }
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

/** Requests of so many answers each as a server keeps for a reader that is behind; memory after each of them. */
async function stream(count) {
  const each = 10_000
  const rss = []
  const from = performance.now()
  for (let at = 0; at < count; at += each) {
    const wanted = { IN: Int32Array.from({ length: each }, (_, i) => i), DELAY: new Uint32Array(each), WAIT: new Uint32Array(1) }
    let next = 0
    for await (const answer of client.inferStream('repeat', wanted)) {
      if (answer.output('OUT').as('INT32')[0] !== next) throw new Error(`answer ${next} is another one`)
      next += 1
    }
    if (next !== each) throw new Error(`${next} answers of ${each}`)
    rss.push(process.memoryUsage().rss)
  }
  // The first fifth is code that is compiled and pools that fill.
  const settled = rss.slice(Math.ceil(rss.length / 5))
  return { answers: count, rate: (count * 1000) / (performance.now() - from), grewMiB: (settled.at(-1) - settled[0]) / 2 ** 20, peakMiB: Math.max(...rss) / 2 ** 20 }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [command, value] = line.split(' ')
  console.log(JSON.stringify(await (command === 'run' ? run : stream)(Number(value))))
}
client.close()

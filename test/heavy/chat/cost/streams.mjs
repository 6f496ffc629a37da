/**
 * Many streams of chat completions at once, and the CPU that their server uses for a token. Run as a process of its
 * own, so that the work of reading is not the server's.
 */
import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuBetween, cpuSnapshot, processTree } from '../../../../bench/lib/process.mjs'

const [, , url, model, pid, streamsText, secondsText] = process.argv
const [streams, seconds] = [Number(streamsText), Number(secondsText)]
const agent = new Agent({ keepAlive: true, maxSockets: streams })
const body = JSON.stringify({
  model,
  messages: [{ role: 'user', content: 'Say hello' }],
  stream: true,
  max_tokens: 100_000,
})

let tokens = 0
const failures = []

/** Counts events of one stream; its connection ends with this process. */
function stream() {
  return new Promise((resolve) => {
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
    const sent = request(`${url}/v1/chat/completions`, { agent, method: 'POST', headers }, (response) => {
      if (response.statusCode !== 200) failures.push(response.statusCode)
      response.once('data', resolve)
      response.on('data', (data) => {
        for (let at = data.indexOf('data: '); at >= 0; at = data.indexOf('data: ', at + 6)) tokens += 1
      })
    })
    sent.on('error', (error) => failures.push(error.message) && resolve())
    sent.end(body)
  })
}

await Promise.all(Array.from({ length: streams }, stream))
await sleep(1000)
const pids = processTree(Number(pid))
const each = () => ({ at: performance.now(), tokens, all: cpuSnapshot(pids), server: cpuSnapshot(pids.slice(0, 1)) })
const before = each()
await sleep(seconds * 1000)
const after = each()
const count = after.tokens - before.tokens
const took = (after.at - before.at) / 1000
const micros = (what) => cpuBetween(before[what], after[what]) / count
const result = { failures, perSecond: count / took, all: micros('all'), server: micros('server') }
process.stdout.write(`${JSON.stringify(result)}\n`)
process.exit(0)

/**
 * Asks for health over one connection, again and again, from a thread of its own: the attacker's work must not count as
 * the server's.
 */
import { connect } from 'node:net'
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads'
import { fileURLToPath } from 'node:url'

const PAUSE_MS = 2
const ASK = 'GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n'

/**
 * Runs `work` while health is asked.
 *
 * @returns what `work` returned, the slowest answer and the 99th percentile in milliseconds, and how many answers there
 * were
 */
export async function besideHealth(port, work) {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: { port } })
  const message = () =>
    new Promise((resolve, reject) => {
      worker.once('message', resolve)
      worker.once('error', reject)
    })
  await message()
  let result
  try {
    result = await work()
  } finally {
    worker.postMessage('stop')
  }
  const times = await message()
  await worker.terminate()
  times.sort((a, b) => a - b)
  const at = (share) => times[Math.min(times.length - 1, Math.floor(share * times.length))] ?? Infinity
  return { result, worstMs: at(1), p99Ms: at(0.99), p50Ms: at(0.5), count: times.length }
}

function askUntilStopped() {
  const times = []
  let from = 0
  let stopped = false
  const socket = connect({ host: '127.0.0.1', port: workerData.port, noDelay: true })
  const ask = () => {
    from = performance.now()
    socket.write(ASK)
  }
  const finish = () => {
    // An answer that never came counts for as long as it was waited for.
    if (from > 0) times.push(performance.now() - from)
    parentPort.postMessage(times)
    socket.destroy()
  }
  socket.on('connect', () => {
    parentPort.postMessage('ready')
    ask()
  })
  socket.on('data', () => {
    times.push(performance.now() - from)
    from = 0
    if (stopped) return finish()
    setTimeout(ask, PAUSE_MS)
  })
  socket.on('error', () => {})
  socket.on('close', () => {
    if (stopped) return
    times.push(Infinity)
    stopped = true
  })
  parentPort.on('message', () => {
    if (stopped) return finish()
    stopped = true
    // Between two questions, or waiting for an answer: at most this much longer.
    if (from === 0) finish()
    else setTimeout(finish, 10_000).unref()
  })
}

if (!isMainThread && workerData?.port !== undefined) askUntilStopped()

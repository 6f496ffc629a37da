#!/usr/bin/env node
/**
 * `npm run bench [-- --quick] [--filter=TEXT] [--out=DIR] [--repetitions=N] [--seconds=S]`
 *
 * Serves the example model `simple` and measures it beside floors built from the same libraries, in one run, interleaved:
 * every repetition visits every cell once, so that whatever else the machine does falls on all of them. Prints rates, latencies
 * and the server's CPU per request, as medians over the repetitions, and each of them divided by its floor.
 */

import { execFileSync, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createHash } from 'node:crypto'
import { createServer } from 'node:net'
import { cpus, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { grpcRequest, grpcSum, httpRequest, httpSum } from './messages.mjs'
import { markdown } from './report.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const options = Object.fromEntries(
  process.argv.slice(2).map((word) => {
    const [name, value] = word.replace(/^--/, '').split('=')
    return [name, value ?? 'true']
  }),
)
const known = ['quick', 'filter', 'out', 'repetitions', 'seconds']
const unknown = Object.keys(options).filter((name) => !known.includes(name))
if (unknown.length > 0) {
  console.error(`unknown option --${unknown[0]}; there are ${known.map((k) => `--${k}`).join(', ')}`)
  process.exit(2)
}
const quick = options.quick === 'true'
const repetitions = Number(options.repetitions ?? (quick ? 3 : 5))
const seconds = Number(options.seconds ?? (quick ? 1.2 : 3))
const binary = join(root, 'target/release/nereid-bench')
const work = mkdtempSync(join(tmpdir(), 'nereid-bench-'))
const children = []

function stop() {
  for (const child of children) if (child.exitCode === null) child.kill('SIGTERM')
  rmSync(work, { recursive: true, force: true })
}
process.on('exit', stop)
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130))

async function freePort() {
  const server = createServer()
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Starts a process and resolves when its output matches. */
function start(command, args, ready, name) {
  const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  children.push(child)
  let text = ''
  return new Promise((resolve, reject) => {
    const seen = (chunk) => {
      text += chunk
      const match = ready.exec(text)
      if (match) resolve({ child, match })
    }
    child.stdout.on('data', seen)
    child.stderr.on('data', seen)
    child.on('exit', (code) => reject(new Error(`${name} ended with ${code} before it was ready:\n${text}`)))
  })
}

/** CPU seconds a process and its threads used so far. The kernel counts in hundredths of a second. */
function cpuSeconds(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}

function residentMiB(pid, key) {
  const line = readFileSync(`/proc/${pid}/status`, 'utf8').split('\n').find((l) => l.startsWith(key))
  return Math.round(Number(line?.replace(/\D/g, '')) / 1024)
}

/** Runs the load generator without blocking us, so that children's output is read. */
function load(args) {
  return new Promise((resolve, reject) => {
    const child = spawn(binary, ['load', ...Object.entries(args).map(([k, v]) => `--${k}=${v}`)], { stdio: ['ignore', 'pipe', 'inherit'] })
    let text = ''
    child.stdout.on('data', (c) => (text += c))
    child.on('exit', (code) => (code === 0 ? resolve(text.trim()) : reject(new Error(`the load generator ended with ${code}`))))
  })
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]

async function main() {
  console.log('building the load generator …')
  execFileSync('cargo', ['build', '--release', '-q', '-p', 'nereid-bench'], { cwd: root, stdio: 'inherit' })
  const [http, grpc, metrics] = [await freePort(), await freePort(), await freePort()]
  const began = performance.now()
  const nereid = await start(
    process.execPath,
    ['dist/cli/main.js', '--model-repository=examples/models', '--http-address=127.0.0.1', '--grpc-address=127.0.0.1',
      `--http-port=${http}`, `--grpc-port=${grpc}`, `--metrics-port=${metrics}`],
    /Started HTTPService at/,
    'nereid',
  )
  const startMs = Math.round(performance.now() - began)

  const files = {}
  const write = (name, bytes) => {
    files[name] = join(work, name)
    writeFileSync(files[name], bytes)
  }
  const request = httpRequest()
  write('http', request.body)
  write('grpc', grpcRequest())
  const httpArgs = { protocol: 'http', path: '/v2/models/simple/infer', headers: `Inference-Header-Content-Length:${request.headerLength}`, body: files.http }
  const grpcArgs = { protocol: 'grpc', path: '/inference.GRPCInferenceService/ModelInfer', body: files.grpc }

  // A separate pass checks what is answered; the floors then send the same bytes.
  const httpAnswer = Buffer.from(await load({ ...httpArgs, address: `127.0.0.1:${http}`, once: 1 }), 'hex')
  const grpcAnswer = Buffer.from(await load({ ...grpcArgs, address: `127.0.0.1:${grpc}`, once: 1 }), 'hex')
  httpSum(httpAnswer)
  grpcSum(grpcAnswer)
  write('http-answer', httpAnswer)
  write('grpc-answer', grpcAnswer)
  const floor = async (kind, answer) => {
    const { child, match } = await start(binary, [kind, `--answer=${files[answer]}`], /ready (\d+)/, kind)
    return { pid: child.pid, port: Number(match[1]) }
  }
  const subjects = [
    { name: 'nereid', transport: 'HTTP', pid: nereid.child.pid, port: http, args: { ...httpArgs, expect: files['http-answer'] } },
    { name: 'hyper echo', transport: 'HTTP', ...(await floor('floor-http', 'http-answer')), args: httpArgs },
    { name: 'epoll echo', transport: 'HTTP', ...(await floor('floor-epoll', 'http-answer')), args: httpArgs },
    { name: 'nereid', transport: 'gRPC', pid: nereid.child.pid, port: grpc, args: { ...grpcArgs, expect: files['grpc-answer'] } },
    { name: 'h2 echo', transport: 'gRPC', ...(await floor('floor-h2', 'grpc-answer')), args: grpcArgs },
  ]
  const shapes = [
    { c: 1, connections: 1, streams: { HTTP: 1, gRPC: 1 } },
    { c: 8, connections: 8, streams: { HTTP: 1, gRPC: 1 } },
    { c: 32, connections: { HTTP: 32, gRPC: 4 }, streams: { HTTP: 1, gRPC: 8 } },
  ]
  const cells = subjects.flatMap((s) =>
    shapes.map((shape) => ({ ...s, c: shape.c, connections: shape.connections[s.transport] ?? shape.connections, streams: shape.streams[s.transport], runs: [] })),
  ).filter((cell) => `${cell.transport} ${cell.name} c=${cell.c}`.includes(options.filter ?? ''))

  const run = async (cell, duration) => {
    const before = cpuSeconds(cell.pid)
    const result = JSON.parse(await load({ ...cell.args, address: `127.0.0.1:${cell.port}`, connections: cell.connections, streams: cell.streams, warmup: 0, duration }))
    const cpuUs = ((cpuSeconds(cell.pid) - before) * 1e6) / Math.max(1, result.requests)
    if (result.errors > 0) console.error(`${cell.transport} ${cell.name} c=${cell.c}: ${result.errors} errors, first: ${result.first_error}`)
    return { ...result, cpuUs }
  }
  const idleMiB = residentMiB(nereid.child.pid, 'VmRSS')
  console.log(`measuring ${cells.length} cells × ${repetitions} repetitions × ${seconds} s …`)
  for (const cell of cells) await run(cell, 0.3)
  const ort = []
  const library = join(root, `node_modules/onnxruntime-node/bin/napi-v6/${process.platform}/${process.arch}/libonnxruntime.so.1`)
  for (let r = 0; r < repetitions; r++) {
    for (const cell of cells) cell.runs.push(await run(cell, seconds))
    ort.push(JSON.parse(execFileSync(binary, ['ort-loop', '--model=examples/models/simple', `--library=${library}`, `--duration=${seconds / 2}`], { cwd: root, encoding: 'utf8' })))
  }

  const rows = cells.map((cell) => {
    const pick = (key) => median(cell.runs.map((x) => x[key]))
    const cpu = cell.runs.map((x) => x.cpuUs)
    return {
      transport: cell.transport, name: cell.name, c: cell.c,
      rate: pick('rate'), p50: pick('p50_us'), p90: pick('p90_us'), p99: pick('p99_us'), p999: pick('p999_us'),
      cpuUs: median(cpu), cpuUsMin: Math.min(...cpu), cpuUsMax: Math.max(...cpu),
      errors: cell.runs.reduce((n, x) => n + x.errors, 0),
    }
  })
  const result = {
    date: new Date().toISOString(), quick, repetitions, seconds,
    node: process.version, cpus: cpus().length, cpu: cpus()[0]?.model ?? 'unknown', loadAverage: loadavg(),
    libonnxruntime: createHash('sha256').update(readFileSync(library)).digest('hex').slice(0, 16),
    startMs, idleMiB, peakMiB: residentMiB(nereid.child.pid, 'VmHWM'),
    ortLoop: { p50Us: median(ort.map((o) => o.p50_us)), rate: median(ort.map((o) => o.rate)) },
    rows,
  }
  const text = markdown(result)
  console.log(text)
  const out = options.out ?? join(root, 'bench/results')
  mkdirSync(out, { recursive: true })
  const name = quick ? 'quick' : 'full'
  writeFileSync(join(out, `${name}.json`), JSON.stringify(result, null, 1) + '\n')
  writeFileSync(join(out, `${name}.md`), text)
  console.log(`written to ${out}/${name}.json and ${name}.md`)
  if (rows.some((row) => row.errors > 0)) process.exitCode = 1
}

main()
  .catch((error) => {
    console.error(error.message)
    process.exitCode = 1
  })
  .finally(stop)

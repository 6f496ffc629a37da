/** A real Chromium, a static page, the built client: the setting of bundlers and browsers. */
import { spawn, type ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, normalize } from 'node:path'
import { describe, expect, test } from 'vitest'
import { ask } from '../../scripts/lib/run.mjs'
import { ROOT, TestServer } from '../server/harness.js'
import { absent } from './absent.js'
import { serving } from './transports.js'

const isAsked = process.env['NEREID_NIGHTLY'] !== undefined
const CHROMIUM = isAsked
  ? ['chromium', 'chromium-browser', 'google-chrome'].find((name) => ask(name, ['--version']) !== null)
  : undefined
if (CHROMIUM === undefined)
  absent('Chromium', isAsked ? 'it is not installed: apt-get install chromium' : 'asked with --nightly')

const RESULT_MS_MAX = 40_000

const { server } = serving()

/** A server of the page and the client, with the API of this server behind it, so that all have one origin. */
function site(page: () => string, done: (result: Record<string, unknown>) => void): Server {
  const types: Record<string, string> = { '.js': 'text/javascript', '.html': 'text/html' }
  return createServer((incoming, answer) => {
    const path = new URL(incoming.url ?? '/', 'http://x').pathname
    if (path.startsWith('/v2')) {
      const behind = request(
        {
          host: '127.0.0.1',
          port: server().httpPort,
          method: incoming.method,
          path: incoming.url,
          headers: incoming.headers,
        },
        (output) => {
          answer.writeHead(output.statusCode ?? 500, output.headers)
          output.pipe(answer)
        },
      )
      behind.on('error', () => answer.destroy())
      answer.on('close', () => behind.destroy())
      incoming.pipe(behind)
    } else if (path === '/result') {
      const parts: Buffer[] = []
      incoming
        .on('data', (part: Buffer) => parts.push(part))
        .on('end', () => {
          answer.end()
          done(JSON.parse(Buffer.concat(parts).toString()) as Record<string, unknown>)
        })
    } else if (path === '/') {
      answer.writeHead(200, { 'content-type': 'text/html' }).end(page())
    } else {
      const file = join(ROOT, 'client', normalize(path))
      const isThere = existsSync(file)
      answer
        .writeHead(isThere ? 200 : 404, { 'content-type': types[/\.\w+$/.exec(path)?.[0] ?? ''] ?? 'text/plain' })
        .end(isThere ? readFileSync(file) : '')
    }
  })
}

/** Opens the page that `pageAt` returns for its origin; returns what it posts to `/result`. */
async function shown(pageAt: (origin: string) => Promise<string>): Promise<Record<string, unknown>> {
  const profile = mkdtempSync(join(tmpdir(), 'nereid-chromium-'))
  let browser: ChildProcess | null = null
  let page = ''
  let heard: (result: Record<string, unknown>) => void = () => {}
  const front = site(
    () => page,
    (result) => heard(result),
  )
  try {
    await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve))
    const origin = `http://127.0.0.1:${(front.address() as AddressInfo).port}`
    page = await pageAt(origin)
    return await new Promise<Record<string, unknown>>((resolve, reject) => {
      heard = resolve
      const flags = [
        '--headless=new',
        '--no-sandbox',
        '--disable-gpu',
        '--disable-dev-shm-usage',
        '--no-first-run',
        `--user-data-dir=${profile}`,
        '--enable-logging=stderr',
        '--remote-debugging-pipe',
      ]
      browser = spawn(CHROMIUM ?? '', [...flags, `${origin}/`], {
        detached: true,
        stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
      })
      let output = ''
      browser.stderr?.on('data', (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4000)))
      setTimeout(
        () => reject(new Error(`there is no result after ${RESULT_MS_MAX} ms: ${output}`)),
        RESULT_MS_MAX,
      ).unref()
      browser.once('exit', (code) => reject(new Error(`Chromium ended with ${code}: ${output}`)))
    })
  } finally {
    const running = browser as ChildProcess | null
    if (running !== null && running.exitCode === null) {
      const ended = new Promise((resolve) => running.once('exit', resolve))
      // The whole group: other processes would continue to write to the profile.
      process.kill(-(running.pid as number), 'SIGKILL')
      await ended
    }
    front.closeAllConnections()
    front.close()
    rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
  }
}

/** A page of another origin than the servers: an inference with the client, one with credentials, and their results. */
const crossOrigin = (servers: Record<string, string>): string => `<!doctype html><script type="module">
  import { connect } from '/dist/index.js'
  const data = Int32Array.from({ length: 16 }, (_, i) => i)
  const tensor = (name) => ({ name, shape: [1, 16], datatype: 'INT32', parameters: { binary_data_size: 64 } })
  const head = new TextEncoder().encode(
    JSON.stringify({ inputs: [tensor('INPUT0'), tensor('INPUT1')], parameters: { binary_data_output: true } }))
  const headers = { 'Inference-Header-Content-Length': String(head.length) }
  const body = new Blob([head, data, data])
  const ways = {
    async client(at) {
      const result = await connect(at).infer('simple', { INPUT0: data, INPUT1: data })
      return [...result.output('OUTPUT0').as('INT32')]
    },
    async credentials(at) {
      const sent = { method: 'POST', credentials: 'include', headers, body }
      const answer = await fetch(at + '/v2/models/simple/infer', sent)
      const length = Number(answer.headers.get('inference-header-content-length'))
      return [...new Int32Array((await answer.arrayBuffer()).slice(length, length + 64))]
    },
  }
  const results = {}
  for (const [name, at] of Object.entries(${JSON.stringify(servers)}))
    for (const [way, ask] of Object.entries(ways))
      results[name + ' ' + way] = await ask(at).catch((error) => error.code ?? error.name)
  await fetch('/result', { method: 'POST', body: JSON.stringify(results) })
</script>`

describe.skipIf(CHROMIUM === undefined)('Chromium', () => {
  test('a page asks for inferences, strings, events, and cancels', { timeout: 60_000 }, async () => {
    const page = async (): Promise<string> => readFileSync(join(ROOT, 'test/client/page.html'), 'utf8')
    expect(await shown(page)).toEqual({
      inference: ['x', ...Array.from({ length: 16 }, (_, i) => 2 * i)],
      megabyte: true,
      strings: ['ä', '\u{1f600}'],
      longs: '9223372036854775807',
      compressed: [1000],
      events: [7, 8, 9],
      cancelled: [true, 'CANCELLED'],
      refused: "input 'INPUT0': 3 elements of INT32 do not fill the shape [-1,16] of model 'simple'",
      grpc: 'UNSUPPORTED',
    })
  })

  const NAME = 'a page of an allowed origin asks another server, with credentials if it is named'
  test(NAME, { timeout: 60_000 }, async () => {
    const servers: TestServer[] = []
    const started = async (allowed: string): Promise<string> => {
      const one = await TestServer.start(server().repository, [`--http-cors-origin=${allowed}`])
      servers.push(one)
      return one.url
    }
    const page = async (origin: string): Promise<string> =>
      crossOrigin({
        any: await started('*'),
        named: await started(`https://a.example,${origin}`),
        other: await started('https://a.example'),
      })
    const sums = Array.from({ length: 16 }, (_, i) => 2 * i)
    try {
      expect(await shown(page)).toEqual({
        'any client': sums,
        'any credentials': 'TypeError',
        'named client': sums,
        'named credentials': sums,
        'other client': 'DISCONNECTED',
        'other credentials': 'TypeError',
      })
    } finally {
      await Promise.all(servers.map((one) => one.stop()))
    }
  })
})

/** A real Chromium, a static page, the built client: the setting of bundlers and browsers. */
import { spawn, type ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, normalize } from 'node:path'
import { describe, expect, test } from 'vitest'
import { ask } from '../../scripts/lib/run.mjs'
import { ROOT } from '../server/harness.js'
import { absent } from './absent.js'
import { serving } from './transports.js'

const isAsked = process.env['NEREID_NIGHTLY'] !== undefined
const CHROMIUM = isAsked
  ? ['chromium', 'chromium-browser', 'google-chrome'].find((name) => ask(name, ['--version']) !== null) : undefined
if (CHROMIUM === undefined)
  absent('Chromium', isAsked ? 'it is not installed: apt-get install chromium' : 'asked with --nightly')

const RESULT_MS_MAX = 40_000

const { server } = serving()

/** One origin for the page, the client, and the server behind them. */
async function site(done: (result: Record<string, unknown>) => void): Promise<Server> {
  const types: Record<string, string> = { '.js': 'text/javascript', '.html': 'text/html' }
  const front = createServer((incoming, answer) => {
    const path = new URL(incoming.url ?? '/', 'http://x').pathname
    if (path.startsWith('/v2')) {
      const behind = request(
        {
          host: '127.0.0.1', port: server().httpPort, method: incoming.method, path: incoming.url,
          headers: incoming.headers,
        },
        (output) => {
        answer.writeHead(output.statusCode ?? 500, output.headers)
        output.pipe(answer)
      })
      behind.on('error', () => answer.destroy())
      answer.on('close', () => behind.destroy())
      incoming.pipe(behind)
    } else if (path === '/result') {
      const parts: Buffer[] = []
      incoming.on('data', (part: Buffer) => parts.push(part)).on('end', () => {
        answer.end()
        done(JSON.parse(Buffer.concat(parts).toString()) as Record<string, unknown>)
      })
    } else {
      const file = path === '/' ? 'test/client/page.html' : join('client', normalize(path))
      const isThere = existsSync(join(ROOT, file))
      answer
        .writeHead(isThere ? 200 : 404, { 'content-type': types[/\.\w+$/.exec(file)?.[0] ?? ''] ?? 'text/plain' })
        .end(isThere ? readFileSync(join(ROOT, file)) : '')
    }
  })
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve))
  return front
}

describe.skipIf(CHROMIUM === undefined)('Chromium', () => {
  test('a page asks for inferences, strings, events, and cancels', { timeout: 60_000 }, async () => {
    const profile = mkdtempSync(join(tmpdir(), 'nereid-chromium-'))
    let front: Server | null = null
    let browser: ChildProcess | null = null
    try {
      const result = new Promise<Record<string, unknown>>((resolve, reject) => {
        void site(resolve).then((one) => {
          front = one
          const address = `http://127.0.0.1:${(one.address() as AddressInfo).port}/`
          const flags = [
            '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
            `--user-data-dir=${profile}`, '--enable-logging=stderr', '--remote-debugging-pipe'
          ]
          browser = spawn(CHROMIUM ?? '', [...flags, address], {
            detached: true, stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
          })
          let output = ''
          browser.stderr?.on('data', (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4000)))
          setTimeout(
            () => reject(new Error(`there is no result after ${RESULT_MS_MAX} ms: ${output}`)), RESULT_MS_MAX,
          ).unref()
          browser.once('exit', (code) => reject(new Error(`Chromium ended with ${code}: ${output}`)))
        })
      })
      expect(await result).toEqual({
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
    } finally {
      const running = browser as ChildProcess | null
      if (running !== null && running.exitCode === null) {
        const ended = new Promise((resolve) => running.once('exit', resolve))
        // The whole group: other processes would continue to write to the profile.
        process.kill(-(running.pid as number), 'SIGKILL')
        await ended
      }
      ;(front as Server | null)?.closeAllConnections()
      ;(front as Server | null)?.close()
      rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
    }
  })
})

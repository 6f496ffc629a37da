/** Runs `nereid bench`, and small servers to measure. */
import { spawn, type ChildProcess } from 'node:child_process'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { ROOT } from '../server/harness.js'

export interface Ran {
  code: number | null
  out: string
  err: string
}

export function start(...args: string[]): { child: ChildProcess; over: Promise<Ran> } {
  const words = [join(ROOT, 'dist/cli/main.js'), 'bench', ...args]
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'pipe'] })
  const ran: Ran = { code: null, out: '', err: '' }
  child.stdout.on('data', (text: Buffer) => (ran.out += text.toString()))
  child.stderr.on('data', (text: Buffer) => (ran.err += text.toString()))
  const over = new Promise<Ran>((resolve) => child.once('close', (code) => resolve({ ...ran, code })))
  return { child, over }
}

export const bench = (...args: string[]): Promise<Ran> => start(...args).over

/** The status for a request; null for no answer at all. */
type Answer = (request: IncomingMessage, inferences: number) => number | null

export interface SmallServer {
  url: string
  server: Server
  /** Ends its connections as well. */
  kill(): void
}

/** A server of the v2 protocol without statistics and configurations, which answers inferences after a pause. */
export async function smallServer(
  pauseMs: number,
  seen: IncomingMessage[] = [],
  answerOf: Answer = () => 200,
): Promise<SmallServer> {
  const tensor = (name: string): object => ({ name, datatype: 'FP32', shape: [-1, 2] })
  const model = { name: 'm', versions: ['1'], platform: '', inputs: [tensor('X')], outputs: [tensor('Y')] }
  let inferences = 0
  const server = createServer((request, response) => {
    seen.push(request)
    request.resume().once('end', () => {
      const isInference = request.method === 'POST'
      if (isInference) inferences += 1
      const status = answerOf(request, inferences)
      if (status === null) return
      const answer = (code: number, body: object): void => void response.writeHead(code).end(JSON.stringify(body))
      if (isInference) setTimeout(() => answer(status, status === 200 ? { outputs: [] } : { error: 'broken' }), pauseMs)
      else if (request.url === '/base/v2/models/m') answer(200, model)
      else answer(404, { error: 'Not Found' })
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const kill = (): void => {
    server.close()
    server.closeAllConnections()
  }
  return { url: `http://127.0.0.1:${port}/base`, server, kill }
}

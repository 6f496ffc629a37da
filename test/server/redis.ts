/** A real Redis on loopback for one test, with one connection to it. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { connect } from 'node:net'
import { vi } from 'vitest'

/** True if a Redis server is installed. CI installs one (.ci/run). */
export const HAS_REDIS = spawnSync('redis-server', ['--version']).status === 0

export class Redis {
  readonly port: number
  readonly process: ChildProcess

  private constructor(port: number, process: ChildProcess) {
    this.port = port
    this.process = process
  }

  static async start(port: number, flags: string[] = []): Promise<Redis> {
    const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', ...flags]
    const child = spawn('redis-server', args, { stdio: 'ignore' })
    const redis = new Redis(port, child)
    await vi.waitFor(() => redis.say('PING'), { timeout: 20_000, interval: 20 })
    return redis
  }

  /** Sends one command and resolves with the raw response, which is complete after a pause. */
  say(...words: (string | Buffer)[]): Promise<Buffer> {
    const parts = words.map((word) => Buffer.from(word))
    const head = Buffer.from(`*${parts.length}\r\n`)
    const body = parts.flatMap((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from('\r\n')])
    return new Promise((resolve, reject) => {
      const socket = connect(this.port, '127.0.0.1', () => socket.write(Buffer.concat([head, ...body])))
      const chunks: Buffer[] = []
      socket.on('error', reject)
      socket.on('data', (chunk) => {
        chunks.push(chunk)
        socket.setTimeout(50)
      })
      socket.on('timeout', () => {
        socket.destroy()
        resolve(Buffer.concat(chunks))
      })
    })
  }

  /** Names of all entries. */
  async keys(): Promise<string[]> {
    return [...(await this.say('KEYS', 'nereid:*')).toString('latin1').matchAll(/nereid:[0-9a-f]{64}/g)].map(
      (m) => m[0],
    )
  }

  async stop(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return
    const ended = new Promise((resolve) => this.process.once('close', resolve))
    this.process.kill('SIGCONT')
    this.process.kill('SIGKILL')
    await ended
  }
}

/** A real server on free loopback ports, and common requests. */
import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { writeTestRepositories } from '../models/generate.mjs'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const MAIN = join(ROOT, 'dist/cli/main.js')
const START_MS_MAX = 30_000
const STOP_MS_MAX = 20_000

/** The generated repositories `main`, `small` and `broken` in a private directory. */
export function repositories(): { path: (name: string) => string; remove: () => void } {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-test-'))
  writeTestRepositories(directory)
  return {
    path: (name) => join(directory, name),
    remove: () => rmSync(directory, { recursive: true, force: true }),
  }
}

export class TestServer {
  readonly httpPort: number
  readonly grpcPort: number
  readonly metricsPort: number
  readonly process: ChildProcess
  readonly repository: string
  /** Milliseconds from spawn to the first response of `/v2/health/ready`; null until it is ready. */
  readyMs: number | null = null
  stdout = ''
  stderr = ''

  private constructor(ports: number[], child: ChildProcess, repository: string) {
    this.repository = repository
    const [httpPort = 0, grpcPort = 0, metricsPort = 0] = ports
    this.httpPort = httpPort
    this.grpcPort = grpcPort
    this.metricsPort = metricsPort
    this.process = child
    child.stdout?.on('data', (chunk: Buffer) => (this.stdout += chunk.toString()))
    child.stderr?.on('data', (chunk: Buffer) => (this.stderr += chunk.toString()))
  }

  /** Spawns without waiting, for servers that should fail to start. */
  static async spawn(
    repository: string,
    flags: string[] = [],
    main = MAIN,
    env: NodeJS.ProcessEnv = process.env,
    command = '',
  ): Promise<TestServer> {
    const ports = await freePorts(3)
    const named = command === '' ? [`--model-repository=${repository}`] : [command, repository]
    const args = [main, ...named, ...listenFlags(ports), ...flags]
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'], env })
    // A test that failed before it stopped its server must not leave it running.
    const end = (): boolean => child.kill('SIGKILL')
    process.once('exit', end)
    child.once('exit', () => process.off('exit', end))
    return new TestServer(ports, child, repository)
  }

  /** Spawns and waits until the server responds to `path`. */
  static async start(
    repository: string,
    flags: string[] = [],
    {
      main = MAIN,
      path = '/v2/health/ready',
      env = process.env,
      command = '',
    }: { main?: string; path?: string; env?: NodeJS.ProcessEnv; command?: string } = {},
  ): Promise<TestServer> {
    const from = performance.now()
    const server = await TestServer.spawn(repository, flags, main, env, command)
    while (performance.now() - from < START_MS_MAX) {
      if (server.process.exitCode !== null) throw new Error(`the server ended at once:\n${server.output()}`)
      try {
        await fetch(`${server.url}${path}`, { signal: AbortSignal.timeout(5000) })
        server.readyMs = performance.now() - from
        return server
      } catch {
        // Each attempt costs the server a millisecond of CPU.
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    }
    await server.stop()
    throw new Error(`the server did not answer within ${START_MS_MAX} ms:\n${server.output()}`)
  }

  get url(): string {
    return `http://127.0.0.1:${this.httpPort}`
  }

  output(): string {
    return this.stdout + this.stderr
  }

  get alive(): boolean {
    return this.process.exitCode === null && this.process.signalCode === null
  }

  /** Resolves with the exit code, or with null when a signal ended the process. */
  ended(): Promise<number | null> {
    if (!this.alive) return Promise.resolve(this.process.exitCode)
    return new Promise((resolve) => this.process.once('close', (code) => resolve(code)))
  }

  async stop(): Promise<number | null> {
    if (this.alive) {
      // A second signal, because after SIGTERM the server waits for load balancers.
      this.process.kill('SIGINT')
      const timer = setTimeout(() => this.process.kill('SIGKILL'), STOP_MS_MAX)
      await this.ended()
      clearTimeout(timer)
    }
    return this.process.exitCode
  }
}

/** Body of a JSON inference of `simple`, filled with one value. */
export function simpleBody(value = 1): string {
  const tensor = (name: string) => ({ name, shape: [1, 16], datatype: 'INT32', data: Array(16).fill(value) })
  return JSON.stringify({ inputs: [tensor('INPUT0'), tensor('INPUT1')] })
}

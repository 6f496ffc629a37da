/** The runner as the server starts it with isolation `process`: real sockets, files of a model on the disk. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { Frame, Header, ResultFlag, ResultHead } from '../../src/javascript/generated/protocol.js'
import { writeRequest } from '../../src/javascript/outgoing.js'
import { Reader, eachFrame } from '../../src/javascript/reader.js'
import type { InferenceResponse } from '../../src/javascript/response.js'
import type { Tensor } from '../../src/javascript/tensor.js'
import { Writer, nothingTaken } from '../../src/javascript/writer.js'
import { ROOT } from '../docs/pages.js'

type Json = Record<string, unknown>

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
/** These versions strip types with a flag. */
const TYPES = major === 22 && minor >= 6 && minor < 18 ? ['--experimental-strip-types', '--no-warnings'] : []

/** A runner that answers one question at a time. */
export class RunnerProcess {
  readonly child: ChildProcess
  readonly #writer = new Writer(null, null)
  readonly #sockets: Socket[]
  #bytes = Buffer.alloc(0)
  #wake: () => void = () => {}
  out = ''
  err = ''

  constructor() {
    const main = join(ROOT, 'dist/javascript/process.js')
    this.child = spawn(process.execPath, [...TYPES, main], { stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'pipe'] })
    this.#sockets = [this.child.stdio[3] as Socket, this.child.stdio[4] as Socket]
    this.#writer.model = 1
    this.child.stdout?.on('data', (bytes) => (this.out += String(bytes)))
    this.child.stderr?.on('data', (bytes) => (this.err += String(bytes)))
    this.#sockets[0]?.on('data', (bytes: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, bytes])
      this.#wake()
    })
    for (const socket of this.#sockets) socket.on('error', () => {})
    this.child.on('exit', () => this.#wake())
  }

  async #frame(): Promise<{ frame: number; flags: number; bytes: Buffer }> {
    for (;;) {
      const end = this.#bytes.length < Header.BYTES ? Infinity : Header.BYTES + this.#bytes.readUInt32LE(0)
      if (this.#bytes.length >= end) {
        const bytes = this.#bytes.subarray(0, end)
        this.#bytes = this.#bytes.subarray(end)
        return { frame: bytes.readUInt8(Header.frame), flags: bytes.readUInt8(Header.flags), bytes }
      }
      if (this.child.exitCode !== null) throw new Error(`the runner ended with ${this.child.exitCode}: ${this.err}`)
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
  }

  /** Loads the model of a file; READY or FAILED, as JSON. */
  async load(file: string, more: Json = {}): Promise<Json & { frame: number }> {
    const directory = join(file, '..')
    const load = {
      mode: 'run',
      instance: 'm_0',
      model: 'm',
      version: '1',
      model_directory: join(directory, '..'),
      version_directory: directory,
      file,
      arguments: {},
      inputs: [],
      outputs: ['OUT'],
      decoupled: false,
      iterative: false,
      segments: null,
      config: JSON.stringify({ name: 'm', input: [], output: [] }),
      ...more,
    }
    this.#writer.begin(Frame.LOAD, 2)
    this.#writer.text(JSON.stringify(load))
    this.#sockets[0]?.write(Buffer.from(this.#writer.end()))
    const { frame, bytes } = await this.#frame()
    return { ...(JSON.parse(bytes.toString('utf8', Header.BYTES)) as Json), frame }
  }

  /** Runs one request: its response, or the text of the batch's failure. */
  async infer(...inputs: Tensor[]): Promise<InferenceResponse | string> {
    this.#writer.begin(Frame.EXECUTE, 0, 1)
    this.#writer.append(Buffer.alloc(16, 1).fill(0, 8))
    writeRequest(this.#writer, 0, 1, inputs, {}, nothingTaken())
    this.#sockets[0]?.write(Buffer.from(this.#writer.end()))
    const { bytes, flags } = await this.#frame()
    if ((flags & ResultFlag.FAILED) !== 0) return bytes.toString('utf8', Header.BYTES + ResultHead.BYTES)
    let response: InferenceResponse | null = null
    eachFrame(bytes, ({ view, at }) => {
      response = new Reader(null).answer(bytes, view, at + ResultHead.BYTES, []).response
    })
    if (response === null) throw new Error('the request has no answer')
    return response
  }

  async unload(): Promise<number | null> {
    this.#writer.begin(Frame.UNLOAD)
    this.#sockets[0]?.write(Buffer.from(this.#writer.end()))
    return await this.ended()
  }

  async ended(): Promise<number | null> {
    if (this.child.exitCode === null) await once(this.child, 'exit')
    return this.child.exitCode
  }

  /** Closes the sockets, as a server that ends does. */
  close(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  kill(): void {
    this.child.kill('SIGKILL')
  }
}

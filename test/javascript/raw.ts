/** A server of one runner in this process: frames as they are, and shared memory that the test looks into. */
import type { Channel, Receive, Way } from '../../src/javascript/channel.js'
import {
  AnswerHead,
  ExecuteHead,
  Frame,
  Header,
  ResultHead,
  TensorHead,
  VERSION,
} from '../../src/javascript/generated/protocol.js'
import { type RequestOptions, writeRequest } from '../../src/javascript/outgoing.js'
import { type Received, Reader, eachFrame, readIds, readU64 } from '../../src/javascript/reader.js'
import { run } from '../../src/javascript/runner.js'
import type { Tensor } from '../../src/javascript/tensor.js'
import { Writer, nothingTaken } from '../../src/javascript/writer.js'

export const SEGMENT_BYTES = 1 << 16

type Json = Record<string, unknown>

/** A sent tensor: where it is. */
export interface Sent {
  place: number
  segment: number
  offset: number
  bytes: number
}

export class RawHost implements Channel {
  readonly writer = new Writer(null, null)
  readonly sent: { way: Way; frame: Received }[] = []
  readonly detached: ArrayBuffer[] = []
  readonly flags = new Uint8Array(64)
  readonly segments = [new ArrayBuffer(SEGMENT_BYTES)]
  /** Contents of blocks of requests by offset. */
  readonly inputs = new Map<number, Uint8Array>()
  readonly memory
  /** The status that the runner ended with. */
  ended: Promise<number> = Promise.resolve(-1)
  #deliver: Receive = () => {}
  #wake: () => void = () => {}

  readonly flagsBelow = () => this.flags

  constructor({ hasMemory = true } = {}) {
    this.writer.model = 1
    const memory = {
      responses: (segment: number) => this.segments[segment] as ArrayBuffer,
      request: (_segment: number, offset: number, bytes: number) => {
        const block = new ArrayBuffer(bytes)
        new Uint8Array(block).set(this.inputs.get(offset) ?? [])
        return block
      },
      detach: (buffer: ArrayBuffer) => {
        this.detached.push(buffer)
        structuredClone(buffer, { transfer: [buffer] })
      },
      flags: () => this.flags,
    }
    this.memory = hasMemory ? memory : (undefined as unknown as typeof memory)
    if (!hasMemory) delete (this as { memory?: unknown }).memory
  }

  start(receive: Receive): void {
    this.#deliver = receive
  }

  send(way: Way, frames: Uint8Array): void {
    eachFrame(Uint8Array.from(frames), (frame) => this.sent.push({ way, frame }))
    this.#wake()
  }

  /** Delivers what the writer holds, or bytes. */
  deliver(frames: Uint8Array = this.writer.end()): void {
    this.#deliver(Uint8Array.from(frames))
  }

  json(frame: number, content: Json): void {
    this.writer.begin(frame, frame === Frame.LOAD ? VERSION : 0)
    this.writer.text(JSON.stringify(content))
    this.deliver()
  }

  /** Waits for the next frame of a kind, and removes it. */
  async next(kind: number): Promise<Received & { way: Way }> {
    for (;;) {
      const at = this.sent.findIndex(({ frame }) => frame.frame === kind)
      const [found] = at < 0 ? [] : this.sent.splice(at, 1)
      if (found !== undefined) return { ...found.frame, way: found.way }
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
  }

  async nextJson(kind: number): Promise<Json> {
    const { bytes, at, end } = await this.next(kind)
    return JSON.parse(bytes.toString('utf8', at, end)) as Json
  }

  /** Loads a model; the members of READY or FAILED. */
  async load(model: unknown, more: Json = {}): Promise<Json> {
    this.ended = run(this, async () => {
      if (model instanceof Error) throw model
      return model
    })
    const config = { name: 'm', max_batch_size: 0, input: [], output: [], ...(more['config'] as Json) }
    this.json(Frame.LOAD, {
      mode: 'run',
      instance: 'm_0',
      model: 'm',
      version: '1',
      model_directory: '/models/m',
      version_directory: '/models/m/1',
      file: '/models/m/1/model.ts',
      arguments: { model_instance_kind: 'CPU' },
      inputs: [],
      outputs: ['OUT'],
      decoupled: false,
      iterative: false,
      ...more,
      config: JSON.stringify(config),
      ...(this.memory === undefined
        ? { segments: null, flags: this.flags.length }
        : { segments: { request: SEGMENT_BYTES, response: SEGMENT_BYTES, slots: this.flags.length } }),
    })
    for (;;) {
      const greeting = this.sent.find(({ frame }) => frame.frame === Frame.READY || frame.frame === Frame.FAILED)
      if (greeting !== undefined) return await this.nextJson(greeting.frame.frame)
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
  }

  /** Sends a batch; each request is its inputs, and blocks of shared memory instead of large ones. */
  execute(requests: readonly (readonly Tensor[])[], options: RequestOptions = {}, releases: readonly number[] = []) {
    this.writer.begin(Frame.EXECUTE, 0, requests.length)
    const at = this.writer.take(ExecuteHead.BYTES)
    this.writer.u64(at, 7)
    this.writer.u64(at + ExecuteHead.releases, releases.length)
    this.writer.ids(releases)
    for (const [slot, inputs] of requests.entries()) writeRequest(this.writer, slot, 1, inputs, options, nothingTaken())
    this.deliver()
  }

  /** Sends one request with one FP32 input in a block of segment 0. */
  executeBlock(offset: number, values: Float32Array, name = 'IN'): void {
    this.inputs.set(offset, new Uint8Array(values.buffer))
    const { writer } = this
    writer.begin(Frame.EXECUTE, 0, 1)
    writer.append(new Uint8Array(ExecuteHead.BYTES))
    writeRequest(writer, 0, 1, [], {}, nothingTaken())
    // One input, written by hand: its bytes are elsewhere.
    writer.view.setUint16(Header.BYTES + ExecuteHead.BYTES + 28, 1, true)
    const at = writer.take(TensorHead.BYTES)
    writer.view.setBigUint64(at, 0n)
    writer.view.setUint16(at + TensorHead.nameBytes, name.length, true)
    writer.view.setUint8(at + TensorHead.datatype, 11)
    writer.view.setUint8(at + TensorHead.rank, 1)
    writer.view.setUint8(at + TensorHead.place, 1)
    writer.u64(at + TensorHead.offset, offset)
    writer.u64(at + TensorHead.bytes, values.byteLength)
    writer.text(name)
    writer.u64(writer.take(8), values.length)
    this.deliver()
  }

  /** The next RESULT: what it gives back, and the places of the tensors of its first answer. */
  async result(): Promise<{ releases: number[]; tensors: Sent[]; frame: Received }> {
    const frame = await this.next(Frame.RESULT)
    const { bytes, view, at } = frame
    const count = view.getUint32(at + ResultHead.releases, true)
    const answer = at + ResultHead.BYTES + 8 * count
    const tensors: Sent[] = []
    if (frame.count > 0) {
      const take = (segment: number, offset: number, size: number) => {
        tensors.push({ place: 0, segment, offset, bytes: size })
        return new ArrayBuffer(size)
      }
      new Reader({ take }, { take }).answer(bytes, view, answer, [])
      let from = answer + AnswerHead.BYTES
      for (const tensor of tensors) {
        tensor.place = view.getUint8(from + TensorHead.place)
        from += TensorHead.BYTES + view.getUint16(from, true) + 8 * view.getUint8(from + TensorHead.rank)
      }
    }
    return { releases: readIds(view, at + ResultHead.BYTES, count), tensors, frame }
  }

  /** Ids of a RELEASE. */
  async released(): Promise<number[]> {
    const { view, at, count } = await this.next(Frame.RELEASE)
    return readIds(view, at, count)
  }

  release(...ids: number[]): void {
    this.writer.begin(Frame.RELEASE, 0, ids.length)
    this.writer.ids(ids)
    this.deliver()
  }

  /** A number at the beginning of a frame. */
  static numberOf({ view, at }: Received): number {
    return readU64(view, at)
  }
}

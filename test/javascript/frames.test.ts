/** B-JS-03, B-JS-06: frames of a runner, byte by byte (shm/README.md). */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { ResponseBlocks } from '../../src/javascript/arena.js'
import type { SharedMemory } from '../../src/javascript/channel.js'
import { InferenceResponse, Tensor, type InferenceRequest, defineModel } from '../../src/javascript/index.js'
import {
  AnswerHead,
  CallHead,
  CallId,
  Frame,
  Header,
  Place,
  RespondHead,
  Segment,
  TensorHead,
  VERSION,
} from '../../src/javascript/generated/protocol.js'
import { run } from '../../src/javascript/runner.js'
import { tensorOf } from '../../src/javascript/tensor.js'
import { Writer } from '../../src/javascript/writer.js'
import { ROOT } from '../docs/pages.js'
import { RawHost, SEGMENT_BYTES } from './raw.js'

interface Vector {
  name: string
  hex: string
  value: Record<string, unknown>
}
const vectors = JSON.parse(readFileSync(join(ROOT, 'shm/vectors/frames.json'), 'utf8')) as {
  good: Vector[]
  lies: Vector[]
}
const bytesOf = (name: string) => {
  const vector = vectors.good.find((one) => one.name === name)
  if (vector === undefined) throw new Error(`there is no vector ${name}`)
  return Buffer.from(vector.hex, 'hex')
}
const OUT = [{ name: 'OUT', data_type: 'TYPE_FP32', dims: [-1] }]
const echo = defineModel({
  execute: (requests) =>
    requests.map((request) => {
      const tensor = request.input('IN') as Tensor<'FP32'>
      return new InferenceResponse([Tensor.from('OUT', tensor.data, tensor.shape)])
    }),
})
const large = (values: number) => new Float32Array(values).fill(1.5)
const input = (data: Float32Array) => Tensor.from('IN', data)

test('a batch of the vectors is read', async () => {
  const seen: InferenceRequest[][] = []
  const host = new RawHost()
  await host.load({
    execute(requests: InferenceRequest[]) {
      seen.push(requests)
      // Looked at now: memory of requests ends with them.
      expect([...(requests[0]?.inputs.values() ?? [])].map((one) => [one.name, one.shape])).toEqual([
        ['X', [1, 2]],
        ['B', [10000]],
      ])
      expect([...(requests[0]?.input('X')?.data ?? [])]).toEqual([1.5, -2])
      return requests.map(() => new InferenceResponse([]))
    },
  })
  host.deliver(bytesOf('execute'))
  await host.result()
  const [first, second] = seen[0] as [InferenceRequest, InferenceRequest]
  expect([first.id, first.correlationId, first.timeoutUs, first.flags]).toEqual(['a1', 42n, 1000n, 1])
  expect([first.isSequenceStart, first.isSequenceEnd, first.trace]).toEqual([true, false, null])
  expect(first.parameters).toEqual({ k: 'v', n: 1, d: 2, t: true })
  expect([...first.requestedOutputs]).toEqual(['OUT', 'É'])
  expect([second.id, second.correlationId, [...second.requestedOutputs]]).toEqual(['', 's1', ['OUT']])
  expect(() => first.input('B')?.data).toThrow("tensor 'B' belongs to a request that has ended")
})

test('frames that the vectors name are sent as they are there', async () => {
  const host = new RawHost()
  await host.load({ execute: () => null, isReady: () => true })
  for (const name of ['is_ready']) host.deliver(bytesOf(name))
  const isReady = await host.next(Frame.IS_READY_RESULT)
  expect(isReady.bytes.toString('hex')).toBe(bytesOf('is_ready_result').toString('hex'))
  host.writer.begin(Frame.PING, 0, 0, true)
  host.writer.u64(host.writer.take(8), 12)
  host.deliver()
  expect((await host.next(Frame.PONG)).bytes.toString('hex')).toBe(bytesOf('pong').toString('hex'))
})

test('invalid frames of a runner end in an error, never in a hang', async () => {
  for (const { hex } of vectors.lies) {
    const host = new RawHost()
    await host.load(echo)
    try {
      host.deliver(Buffer.from(hex, 'hex'))
    } catch (error) {
      expect(error).toBeInstanceOf(Error)
    }
  }
})

test('READY has the version of the protocol', async () => {
  const host = new RawHost()
  const loading = host.load({ execute: () => null, isReady: async () => false })
  const ready = await loading
  expect(ready).toEqual({ runner: `Node ${process.version}`, pid: process.pid, asks_ready: true })
  host.writer.begin(Frame.IS_READY)
  host.writer.u64(host.writer.take(8), 5)
  host.deliver()
  expect((await host.next(Frame.IS_READY_RESULT)).bytes.at(-1)).toBe(0)
  const other = new RawHost()
  const sent = vi.spyOn(other, 'send')
  await other.load(echo)
  expect(sent.mock.calls[0]?.[1][Header.flags]).toBe(VERSION)
})

test('a large input is a view that ends with its request', async () => {
  const kept: Tensor<'FP32'>[] = []
  const host = new RawHost()
  await host.load({
    execute: (requests: InferenceRequest[]) =>
      requests.map((request) => {
        kept.push(request.input('IN') as Tensor<'FP32'>)
        expect(kept[0]?.data[5]).toBe(1.5)
        return new InferenceResponse([])
      }),
  })
  host.executeBlock(128, large(2000))
  expect((await host.result()).releases).toEqual([])
  expect([kept[0]?.data.length, host.detached.length]).toEqual([0, 1])
  host.execute([[input(large(1))]])
  expect((await host.result()).releases).toEqual([128])
})

test('many free bytes of requests are given back at once', async () => {
  const host = new RawHost()
  await host.load({ execute: () => [new InferenceResponse([])] })
  host.executeBlock(0, large(SEGMENT_BYTES / 8))
  await host.result()
  expect(await host.released()).toEqual([0])
})

test('an output that is the memory of an input is sent where it lies', async () => {
  const host = new RawHost()
  await host.load(echo, { config: { output: OUT } })
  host.executeBlock(256, large(2000))
  const { tensors, releases } = await host.result()
  expect(tensors).toEqual([{ place: Place.REQUEST, segment: 0, offset: 256, bytes: 8000 }])
  expect(releases).toEqual([])
  // The RESULT that names it and this one may be read in any order, so it is not given back here.
  host.executeBlock(512, large(2000))
  expect((await host.result()).releases).toEqual([256])
})

test('large outputs lie in blocks that are free again when the server gives them back', async () => {
  const host = new RawHost()
  const model = {
    execute: () => [new InferenceResponse([Tensor.from('OUT', large(SEGMENT_BYTES / 8))])],
  }
  await host.load(model, { config: { output: OUT } })
  const blocks: number[] = []
  for (const releases of [[], [], [0], [SEGMENT_BYTES / 2]]) {
    host.execute([[]], {}, releases)
    const [tensor] = (await host.result()).tensors
    expect(tensor?.place).toBe(Place.RESPONSE)
    blocks.push(tensor?.offset ?? -1)
  }
  expect(blocks).toEqual([0, SEGMENT_BYTES / 2, 0, SEGMENT_BYTES / 2])
  expect(new Float32Array(host.segments[0] as ArrayBuffer)[100]).toBe(1.5)
})

test('a full segment is followed by another one, which the runner asks for', async () => {
  const host = new RawHost()
  await host.load(
    { execute: () => [new InferenceResponse([Tensor.from('OUT', large(SEGMENT_BYTES))])] },
    {
      config: { output: OUT },
    },
  )
  host.execute([[]])
  const need = await host.next(Frame.NEED_SEGMENT)
  expect([need.way, RawHost.numberOf(need)]).toEqual([1, 4 * SEGMENT_BYTES])
  const answer = (refused: number) => {
    host.writer.begin(Frame.SEGMENT)
    const at = host.writer.take(Segment.BYTES)
    host.writer.u64(at, 4 * SEGMENT_BYTES)
    host.writer.view.setUint16(at + Segment.segment, 1, true)
    host.writer.view.setUint8(at + Segment.place, Place.RESPONSE)
    host.writer.view.setUint8(at + Segment.refused, refused)
    host.deliver()
  }
  host.segments.push(new ArrayBuffer(4 * SEGMENT_BYTES))
  answer(0)
  expect((await host.result()).tensors).toEqual([
    { place: Place.RESPONSE, segment: 1, offset: 0, bytes: 4 * SEGMENT_BYTES },
  ])
  host.execute([[]])
  await host.next(Frame.NEED_SEGMENT)
  answer(1)
  const { frame } = await host.result()
  expect(frame.bytes.toString()).toMatch(
    /Failed to allocate memory for the response of model 'm': \d+ bytes are more than shm-max-byte-size/,
  )
})

test('a stream that never waits asks for no segment while blocks come back', async () => {
  const host = new RawHost()
  const total = 40
  async function* execute() {
    for (let i = 0; i < total; i += 1) yield new InferenceResponse([Tensor.from('OUT', large(6000))])
  }
  await host.load({ execute }, { config: { output: OUT }, decoupled: true })
  // Each answer is read, and its block given back, in a turn of its own, as in a server.
  const send = host.send.bind(host)
  host.send = (way, frames) => {
    const before = host.sent.length
    send(way, frames)
    const came = host.sent.slice(before).filter(({ frame }) => frame.frame === Frame.RESPOND)
    for (const { frame } of came) {
      const at = frame.at + RespondHead.BYTES + AnswerHead.BYTES
      if (frame.view.byteLength - at < TensorHead.BYTES) continue
      const offset = Number(frame.view.getBigUint64(at + TensorHead.offset, true))
      setImmediate(() => host.release(offset))
    }
  }
  host.execute([[]])
  await host.result()
  const kinds = host.sent.map(({ frame }) => frame.frame)
  expect(kinds).not.toContain(Frame.NEED_SEGMENT)
})

test('a rejected large segment leaves room for a smaller one in the same turn', async () => {
  const needs: number[] = []
  const segments = [new ArrayBuffer(128), new ArrayBuffer(1024)]
  const memory = { responses: (segment: number) => segments[segment] as ArrayBuffer }
  const blocks = new ResponseBlocks(memory as unknown as SharedMemory, (bytes) => needs.push(bytes))
  const [large, small, larger] = [blocks.grow(1 << 30), blocks.grow(1024), blocks.grow(2 ** 31)]
  blocks.came(null)
  expect([await large, await larger]).toEqual([false, false])
  await vi.waitFor(() => expect(needs).toEqual([1 << 30, 1024]))
  blocks.came(1)
  expect(await small).toBe(true)
})

test('an array of ctx.alloc is sent where it is', async () => {
  const offsets: number[] = []
  const host = new RawHost()
  await host.load(
    defineModel({
      execute(requests, ctx) {
        ctx.alloc('FP32', [5000]).fill(9)
        const data = ctx.alloc('FP32', [2, 1000]).fill(2)
        offsets.push(data.byteOffset)
        return requests.map(() => new InferenceResponse([Tensor.from('OUT', data, [2000])]))
      },
    }),
    { config: { output: OUT } },
  )
  for (let i = 0; i < 2; i += 1) {
    host.execute([[]])
    const { tensors } = await host.result()
    expect(tensors).toEqual([{ place: Place.RESPONSE, segment: 0, offset: offsets[i], bytes: 8000 }])
    host.release(offsets[i] ?? 0)
  }
  expect(offsets).toEqual([20032, 20032])
})

test('without shared memory everything is inline', async () => {
  const host = new RawHost({ hasMemory: false })
  await host.load(
    defineModel({
      execute: (requests, ctx) =>
        requests.map(() => new InferenceResponse([Tensor.from('OUT', ctx.alloc('FP32', [20000]).fill(3))])),
    }),
    { config: { output: OUT } },
  )
  host.execute([[]])
  const { frame, tensors } = await host.result()
  expect([tensors, frame.end > 80_000]).toEqual([[], true])
})

test.each([
  ['', true],
  [' without segments', false],
])('a signal aborts when the flag of its slot%s says so', async (_, hasMemory) => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  try {
    const signals: AbortSignal[] = []
    let answer: () => void = () => {}
    const host = new RawHost({ hasMemory })
    await host.load({
      execute: async (requests: InferenceRequest[]) => {
        expect(vi.getTimerCount()).toBe(0)
        signals.push((requests[0] as InferenceRequest).signal)
        await new Promise<void>((resolve) => (answer = resolve))
        expect(requests[0]?.cancelled).toBe(true)
        return [new InferenceResponse([])]
      },
    })
    host.execute([[]])
    expect(vi.getTimerCount()).toBe(1)
    // A flag of another generation is about another request.
    host.flags[0] = (2 << 1) | 1
    vi.advanceTimersByTime(10)
    expect(signals[0]?.aborted).toBe(false)
    host.flags[0] = (1 << 1) | 1
    vi.advanceTimersByTime(10)
    expect([signals[0]?.aborted, vi.getTimerCount()]).toEqual([true, 0])
    answer()
    await host.result()
  } finally {
    vi.useRealTimers()
  }
})

test('a signal that is read after the cancel aborts, too', async () => {
  const host = new RawHost()
  await host.load({
    execute: async ([request]: InferenceRequest[]) => {
      host.flags[0] = (1 << 1) | 1
      await new Promise((resolve) => request?.signal.addEventListener('abort', resolve))
      return [new InferenceResponse([])]
    },
  })
  host.execute([[]])
  expect(await host.result()).toMatchObject({ tensors: [], releases: [] })
})

test('a call names its request, uses the memory of an input and can be cancelled', async () => {
  const host = new RawHost()
  const abort = new AbortController()
  await host.load(
    defineModel({
      async execute([request], ctx) {
        const { data } = (request as InferenceRequest).input('IN') as Tensor<'FP32'>
        const call = ctx.models.infer('other', { X: Tensor.from('X', data) }, { signal: abort.signal, version: 3 })
        await expect(call).rejects.toMatchObject({ code: 'CANCELLED', message: 'gone' })
        return [new InferenceResponse([])]
      },
    }),
  )
  host.executeBlock(64, large(2000))
  const call = await host.next(Frame.CALL)
  const number = RawHost.numberOf(call)
  const { view, at, bytes } = call
  expect([call.way, view.getBigInt64(at + CallHead.version, true)]).toEqual([1, 3n])
  expect([view.getUint32(at + CallHead.parentSlot, true), view.getUint8(at + CallHead.flags)]).toEqual([0, 2])
  const name = at + CallHead.BYTES
  expect([bytes.toString('utf8', name, name + 5), call.end < 200]).toEqual(['other', true])
  abort.abort()
  expect(RawHost.numberOf(await host.next(Frame.CALL_CANCEL))).toBe(number)
  host.writer.begin(Frame.CALL_RESPONSE)
  host.writer.u64(host.writer.take(CallId.BYTES), number)
  host.writer.error('CANCELLED', 'gone', 1)
  host.deliver()
  await host.result()
  expect(host.detached.length).toBe(1)
})

test('an input with an unaligned place in its frame is copied to an aligned one', async () => {
  const host = new RawHost()
  const seen: number[] = []
  await host.load({
    execute: (requests: InferenceRequest[]) =>
      requests.map((request) => {
        for (const { data } of request.inputs.values()) seen.push(...(data as Float64Array))
        return new InferenceResponse([])
      }),
  })
  const data = new Float64Array([0.5, -7])
  const named = (name: string) =>
    tensorOf(name, 'FP64', [2], { buffer: data.buffer as ArrayBuffer, offset: 0, bytes: 16 })
  host.execute([[named('a'), named('ab'), named('abc'), named('abcd')]])
  await host.result()
  expect(seen).toEqual([0.5, -7, 0.5, -7, 0.5, -7, 0.5, -7])
})

test('a server of another version is told both versions', async () => {
  const host = new RawHost()
  const ended = run(host, async () => echo)
  host.writer.begin(Frame.LOAD, 1)
  host.deliver()
  expect(await host.nextJson(Frame.FAILED)).toMatchObject({
    text: `the server speaks version 1 of the runner protocol, this runtime ${VERSION}`,
  })
  expect(await ended).toBe(1)
})

test('UNLOAD waits for the batch that runs, whose context says that it should end', async () => {
  const seen: string[] = []
  const host = new RawHost()
  await host.load(
    defineModel({
      async execute(_requests, ctx) {
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        seen.push('executed')
        return [new InferenceResponse([])]
      },
      finalize: () => void seen.push('finalized'),
    }),
  )
  host.execute([[]])
  host.writer.begin(Frame.UNLOAD)
  host.deliver()
  await host.result()
  expect([await host.ended, seen]).toEqual([0, ['executed', 'finalized']])
})

test('a buffer for a long frame is not kept', async () => {
  const writer = new Writer(null, null)
  writer.begin(Frame.LOG)
  writer.append(new Uint8Array(1 << 23).fill(7))
  const frame = Buffer.from(writer.end())
  expect([frame.readUInt32LE(0), frame.at(-1)]).toEqual([1 << 23, 7])
  writer.begin(Frame.PONG)
  expect([writer.bytes.length, writer.end().length]).toEqual([1 << 16, Header.BYTES])
})

/** a change of instances or version policy does not reload a model. */

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parsePbtxt } from '../../src/config/index.js'
import { Server, type ServerOptions } from '../../src/index.js'
import { servesOn, sourceOf, type Source } from '../../src/repository/in_place.js'
import { writeTestRepositories } from '../models/generate.mjs'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-in-place-'))
beforeAll(() => writeTestRepositories(ROOT))
afterAll(() => rmSync(ROOT, { recursive: true, force: true }))

const MODEL = join(ROOT, 'm')
const source = (text = '', configName: string | null = null): Promise<Source> =>
  sourceOf(MODEL, parsePbtxt(`name: "m" ${text}`, ''), configName)

let seconds = 4_000_000_000
/** Waits until a change is visible even with a coarse file system clock. */
function change(path: string): void {
  seconds += 1
  utimesSync(join(MODEL, path), seconds, seconds)
}

test('the kind of change decides whether a version continues', async () => {
  for (const version of ['1', '2', 'configs']) mkdirSync(join(MODEL, version), { recursive: true })
  for (const file of ['1/model.onnx', '2/model.onnx', 'labels.txt', 'config.pbtxt', 'configs/a.pbtxt'])
    writeFileSync(join(MODEL, file), '')
  const before = await source('instance_group { count: 2 }')
  const { config: completed } = await source('max_batch_size: 9 instance_group { name: "m_0" count: 1 }')
  const goesOn = async (text = '', version = '1'): Promise<boolean> =>
    servesOn(before, await source(text), join(MODEL, version), completed)

  expect(servesOn(undefined, before, join(MODEL, '1'), completed)).toBe(false)
  expect(servesOn({ ...before, directory: ROOT }, before, join(MODEL, '1'), completed)).toBe(false)
  expect(await goesOn()).toBe(true)
  expect(await goesOn('instance_group [ { count: 3 }, { kind: KIND_CPU } ] version_policy { all { } }')).toBe(true)
  expect(await goesOn('max_batch_size: 9 instance_group { count: 5 }')).toBe(true)
  expect(await goesOn('max_batch_size: 2')).toBe(false)
  expect(await goesOn('instance_group { rate_limiter { priority: 1 } }')).toBe(true)

  change('config.pbtxt')
  expect(await goesOn()).toBe(true)
  change('configs/a.pbtxt')
  expect(await goesOn()).toBe(false)
  const custom = await source('', 'a')
  change('configs/a.pbtxt')
  expect(servesOn(custom, await source('', 'a'), join(MODEL, '1'), completed)).toBe(true)

  const whole = await source()
  change('2/model.onnx')
  expect(servesOn(whole, await source(), join(MODEL, '1'), completed)).toBe(true)
  expect(servesOn(whole, await source(), join(MODEL, '2'), completed)).toBe(false)
  rmSync(join(MODEL, '2/model.onnx'))
  expect(servesOn(whole, await source(), join(MODEL, '2'), completed)).toBe(false)
  rmSync(join(MODEL, 'labels.txt'))
  expect(servesOn(whole, await source(), join(MODEL, '1'), completed)).toBe(false)
  const without = await source()
  writeFileSync(join(MODEL, 'labels.txt'), '')
  expect(servesOn(without, await source(), join(MODEL, '1'), completed)).toBe(false)
})

const ones = { data: new Int32Array(16).fill(1), shape: [1, 16] }

/** A server with a copy of the model `simple`, and its log. */
async function withSimple(
  name: string,
  options: Partial<ServerOptions>,
  run: (at: {
    server: Server
    model: string
    log: string[]
    configure(more: string): void
    infer(): Promise<void>
    successes(): Promise<number[]>
  }) => Promise<void>,
): Promise<void> {
  const modelRepository = join(ROOT, name)
  cpSync(join(ROOT, 'small/simple'), join(modelRepository, 'simple'), { recursive: true })
  const log: string[] = []
  const server = await Server.start({ modelRepository, logInfo: true, log: (line) => log.push(line), ...options })
  const model = join(modelRepository, 'simple')
  const config = readFileSync(join(model, 'config.pbtxt'), 'utf8').replace(/instance_group[^\]]*\]/, '')
  try {
    await run({
      server,
      model,
      log,
      configure: (more) => writeFileSync(join(model, 'config.pbtxt'), `${config}\n${more}`),
      infer: async () => void (await server.model('simple').infer({ inputs: { INPUT0: ones, INPUT1: ones } })),
      async successes() {
        const text = await server.metricsText()
        return [...text.matchAll(/^nv_inference_request_success\{model="simple",version="\d+"\} (\d+)$/gm)].map(
          (match) => Number(match[1]),
        )
      },
    })
  } finally {
    await server.stop({ timeoutMs: 2000 })
  }
}

const EXPLICIT = { modelControlMode: 'explicit', loadModel: ['simple'] } satisfies Partial<ServerOptions>
const loads = (log: string[]): number => log.filter((line) => /\bloading: simple:/.test(line)).length
const counts = (server: Server): unknown =>
  (server.model('simple').config() as { instance_group: { count: number }[] }).instance_group.map((g) => g.count)

test('R-28: another number of instances is no reload, from a file or in a request', () =>
  withSimple('counts', EXPLICIT, async ({ server, log, configure, infer, successes }) => {
    await infer()
    configure('instance_group [ { count: 3 }, { count: 2 } ]')
    await server.load('simple')
    expect(counts(server)).toEqual([3, 2])
    await infer()
    const config = server.model('simple').config() as object
    await server.load('simple', { config: { ...config, instance_group: [{ count: 1, kind: 'KIND_CPU' }] } })
    await infer()
    expect(await successes()).toEqual([3])
    expect(loads(log)).toBe(1)
    expect(log.filter((line) => line.includes('updated instances without a reload: simple:1'))).toHaveLength(2)
  }))

test('R-28: another version policy loads new versions, unloads deselected ones', () =>
  withSimple('policies', EXPLICIT, async ({ server, model, log, configure, infer, successes }) => {
    await infer()
    cpSync(join(model, '1'), join(model, '2'), { recursive: true })
    configure('version_policy { all { } } instance_group { count: 2 }')
    await server.load('simple')
    expect(await successes()).toEqual([1, 0])
    expect(loads(log)).toBe(2)
    configure('version_policy { specific { versions: [ 1 ] } } instance_group { count: 2 }')
    await server.load('simple')
    expect(await successes()).toEqual([1])
    expect(loads(log)).toBe(2)
    expect(server.model('simple').config()).toMatchObject({ version_policy: { specific: { versions: [1] } } })
  }))

test('R-28: a change of files or of anything else in the configuration is a reload', () =>
  withSimple('reloads', EXPLICIT, async ({ server, model, log, configure, infer, successes }) => {
    await infer()
    configure('instance_group { count: 3 }')
    const file = readFileSync(join(model, '1/model.onnx'))
    writeFileSync(join(model, '1/model.onnx'), file)
    await server.load('simple')
    expect(await successes()).toEqual([0])
    configure('instance_group { count: 3 } dynamic_batching { max_queue_delay_microseconds: 7 }')
    await server.load('simple')
    expect(loads(log)).toBe(3)
    expect(counts(server)).toEqual([3])
    await server.load('simple', { config: { backend: 'onnxruntime' }, files: { '1/model.onnx': file } })
    await server.load('simple')
    expect(loads(log)).toBe(5)
    await server.unload('simple')
    await server.load('simple')
    expect(loads(log)).toBe(6)
  }))

test('R-28: invalid instances keep the existing ones', () =>
  withSimple('refused', EXPLICIT, async ({ server, model, log, configure, infer, successes }) => {
    await infer()
    const before = counts(server)
    configure('instance_group { count: 5000 }')
    await expect(server.load('simple')).rejects.toThrow(
      /^load failed for model 'simple': version 1 is at UNAVAILABLE state: Invalid argument: instance group 'simple_0' of model 'simple' has count 5000: at most 4096/,
    )
    configure('instance_group { kind: KIND_GPU }')
    await expect(server.load('simple')).rejects.toThrow(/has kind KIND_GPU but server does not support GPUs/)
    expect(counts(server)).toEqual(before)
    expect(await successes()).toEqual([1])
    expect(server.index()).toEqual([{ name: 'simple', version: '1', state: 'READY' }])
    // A load that fails while publishing may have replaced some versions: the next one loads all of them.
    cpSync(join(model, '1'), join(model, '2'), { recursive: true })
    const warmup = (file: string): string =>
      'version_policy { all { } } model_warmup [ { name: "w" batch_size: 1 inputs { key: "INPUT0" value { ' +
      `data_type: TYPE_INT32 dims: [ 16 ] ${file} } } inputs { key: "INPUT1" value { data_type: TYPE_INT32 ` +
      'dims: [ 16 ] zero_data: true } } } ]'
    configure(warmup('input_data_file: "nope"'))
    await expect(server.load('simple')).rejects.toThrow()
    configure('version_policy { all { } }')
    const loaded = loads(log)
    await server.load('simple')
    expect(loads(log)).toBe(loaded + 2)
    expect(server.index().map((row) => row.state)).toEqual(['READY', 'READY'])
  }))

test('R-28: mode poll updates instances too; with --strict-batching-delay it reloads', async () => {
  const change = async (options: Partial<ServerOptions>, name: string, expected: number): Promise<void> =>
    withSimple(
      name,
      { modelControlMode: 'poll', repositoryPollSecs: 0, ...options },
      async ({ server, log, configure }) => {
        // Files that change within one tick of the kernel's clock, up to 10 ms, cannot be told apart.
        await new Promise((resolve) => setTimeout(resolve, 30))
        configure('instance_group { count: 4 }')
        await server.poll()
        expect(counts(server)).toEqual([4])
        expect(loads(log)).toBe(expected)
      },
    )
  await change({}, 'polled', 1)
  await change({ strictBatchingDelay: true }, 'strict', 2)
})

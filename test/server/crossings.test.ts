/**
 * Tensors of an ensemble of TypeScript, ONNX and Python (examples/ensemble-ts) cross each boundary once: a library in
 * front of the C library counts the bytes that our native module copies. (B-JS-06, S-27)
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Shim, buildShim } from '../../bench/counts/shim.mjs'
import { connect, type Client } from '../../client/src/node.js'
import { writeSeries } from '../../scripts/models/series.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { TestServer } from './harness.js'

const SAMPLES = 1 << 20
const BYTES = 4 * SAMPLES
/** Copies of heads and small frames, all together. */
const REST_BYTES_MAX = BYTES / 64

describe.skipIf(process.platform !== 'linux')('copies of the tensors of an ensemble', () => {
  const root = mkdtempSync(join(tmpdir(), 'nereid-crossings-'))
  let shim: Shim
  let server: TestServer
  let client: Client
  let http: Client

  beforeAll(async () => {
    await pythonEnvironment()
    writeSeries(root)
    shim = new Shim(buildShim(root), root, 'nereid.')
    const flags = [`--backend-config=python,python-executable=${PYTHON}`]
    server = await TestServer.start(join(root, 'ensemble-ts'), flags, { env: { ...process.env, ...shim.env } })
    client = connect(`grpc://127.0.0.1:${server.grpcPort}`, { check: false, retry: false })
    http = connect(server.url, { check: false, retry: false })
    await shim.begin(async () => void (await fetch(`${server.url}/v2`)))
  }, 90_000)
  afterAll(async () => {
    client?.close()
    http?.close()
    expect(await server?.stop()).toBe(0)
    shim?.close()
    rmSync(root, { recursive: true, force: true })
  })

  /** Bytes that our module copies in pieces of 4 KiB and more for a request, after some have made room. */
  async function copied(ask: () => Promise<void>): Promise<number> {
    for (let i = 0; i < 3; i += 1) await ask()
    const before = shim.read().counters['ours']?.['copy_4k']?.bytes ?? 0
    await ask()
    return (shim.read().counters['ours']?.['copy_4k']?.bytes ?? 0) - before
  }

  const ones = Float32Array.from({ length: SAMPLES }, (_, i) => (i === 5000 ? 900 : i % 7))
  const tensor = (name: string) => ({ [name]: { data: ones, shape: [SAMPLES], datatype: 'FP32' as const } })

  /** Expects so many copies of a tensor, and hardly more. */
  const expectCopies = (bytes: number, count: number) => {
    expect(bytes).toBeGreaterThanOrEqual(count * BYTES)
    expect(bytes).toBeLessThan(count * BYTES + REST_BYTES_MAX)
  }

  test.each([
    ['into a worker and out of it', 'clean', 'samples', 2],
    ['neither way for ONNX, which runs in the server', 'smooth', 'series', 0],
    ['into a process and out of it', 'score', 'residual', 2],
  ])('once %s', async (_, model, input, count) => {
    expectCopies(await copied(async () => void (await client.infer(model, tensor(input)))), count)
  })

  test.each([
    ['a worker', 'clean', 'samples'],
    ['a process', 'score', 'residual'],
  ])('never into %s and out of it over HTTP: the kernel reads and writes its memory', async (_, model, input) => {
    expectCopies(await copied(async () => void (await http.infer(model, tensor(input)))), 0)
  })

  test('once into each worker and process of the ensemble, and once out', async () => {
    const alarms: string[] = []
    const ask = async () => {
      for await (const result of client.inferStream('alarms', tensor('samples')))
        if (result.has('alarm')) alarms.push(...result.output('alarm').strings())
    }
    // Into `clean`, out of it, into `score`, out of it, into `report`, whose alarms are small.
    expectCopies(await copied(ask), 5)
    expect(alarms.map((alarm) => (JSON.parse(alarm) as { at: number }).at)).toEqual([5000, 5000, 5000, 5000])
  })
})

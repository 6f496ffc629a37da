/**
 * The chart of docs/deploy/helm, rendered by Helm with each file of test/heavy/helm/values, and the manifests beside
 * it: kubeconform knows every field, what they refer to is there, and the command lines that come out start the real
 * server. What test/heavy/helm/refused has is refused. No cluster and no registry of images is asked. Programs are
 * built by Go, from its modules; schemas come from the module of Kubernetes.
 */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { get } from 'node:https'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { parse, parseAllDocuments } from 'yaml'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { writeTestRepositories } from '../models/generate.mjs'
import { writeSchemas } from './helm/schemas.mjs'
import { must } from './lib/checks.mjs'
import { commandsOf, typed } from './lib/page.mjs'
import { goMissing, goModule, goProgram } from './lib/tools.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'helm')
const DEPLOY = join(ROOT, 'docs', 'deploy')
const CHART = join(DEPLOY, 'helm', 'nereid')
const CASES = join(ROOT, 'test', 'heavy', 'helm')
const MAIN = join(ROOT, 'dist', 'cli', 'main.js')
export const HELM = 'v3.22.0'
const KUBECONFORM = 'v0.8.0'
export const KUBERNETES = 'v1.34.1'
/** A server of S3. */
const VERSITYGW = 'v1.8.0'
/** Linker settings of the released Helm: templates are rendered for this version of Kubernetes. */
export const SET = ['Major', 'Minor'].map(
  (part, i) => `helm.sh/helm/v3/pkg/chartutil.k8sVersion${part}=${KUBERNETES.slice(1).split('.')[i]}`,
)
/** Definitions of kinds that are not Kubernetes' own. */
export const CRDS = [
  {
    kinds: ['ScaledObject'],
    name: 'github.com/kedacore/keda/v2',
    version: 'v2.18.1',
    files: ['config/crd/bases/keda.sh_scaledobjects.yaml'],
  },
  {
    kinds: ['InferencePool'],
    name: 'sigs.k8s.io/gateway-api-inference-extension',
    version: 'v1.5.0',
    files: ['config/crd/bases/inference.networking.k8s.io_inferencepools.yaml'],
  },
  {
    kinds: ['HTTPRoute'],
    name: 'sigs.k8s.io/gateway-api',
    version: 'v1.4.0',
    files: ['config/crd/standard/gateway.networking.k8s.io_httproutes.yaml'],
  },
  {
    kinds: ['ServiceMonitor', 'PrometheusRule'],
    name: 'github.com/prometheus-operator/prometheus-operator',
    version: 'v0.79.2',
    files: ['servicemonitors', 'prometheusrules'].map(
      (name) => `example/prometheus-operator-crd/monitoring.coreos.com_${name}.yaml`,
    ),
  },
]
const READY_MS_MAX = 60_000
const WORKLOADS = ['Deployment', 'StatefulSet']

const told = (line) => process.stdout.write(`${line}\n`)
const last = (text) => text.trim().split('\n').slice(-5).join(' | ')
export const casesOf = (directory) =>
  readdirSync(join(CASES, directory)).map((name) => ({
    name: basename(name, '.yaml'),
    path: join(CASES, directory, name),
  }))

async function missing() {
  return [goMissing()].filter((line) => line !== null)
}

/** Schemas of all kinds of which there are any; those of which there are none are left out, and told. */
async function schemas() {
  const kubernetes = await goModule('k8s.io/kubernetes', KUBERNETES)
  const files = []
  const absent = []
  for (const { kinds, name, version, files: paths } of CRDS) {
    try {
      const directory = await goModule(name, version)
      files.push(...paths.map((path) => join(directory, path)))
      told(`ran    ${kinds.join(' and ')} of ${name} ${version}`)
    } catch (error) {
      absent.push(...kinds)
      told(`absent ${kinds.join(' and ')}: ${error.message}`)
    }
  }
  told(`ran    Kubernetes ${KUBERNETES}; KServe by the fields written down in test/heavy/helm/schemas.mjs`)
  const location = writeSchemas(join(HERE, 'schemas'), join(kubernetes, 'api/openapi-spec/swagger.json'), files)
  return { location, absent }
}

/** Renders the chart; `{ code, text, objects }`. */
export async function rendered(helm, path) {
  const { code, text, errors } = await capture(
    helm,
    ['template', 'release', CHART, '--namespace', 'models', '--values', path],
    { quiet: true },
  )
  must(code !== 0 || errors === '', `helm warns: ${last(errors)}`)
  const objects =
    code === 0
      ? parseAllDocuments(text)
          .map((document) => document.toJS())
          .filter((object) => object !== null)
      : []
  return { code, text, objects }
}

const isPart = (part, whole) => Object.entries(part).every(([key, value]) => whole?.[key] === value)
const workloadOf = (objects) => objects.find(({ kind }) => WORKLOADS.includes(kind))

/** Checks that everything that objects of a release refer to exists. */
function consistent(objects) {
  const workload = workloadOf(objects)
  const { metadata, spec } = workload.spec.template
  const [container, ...sidecars] = spec.containers
  const has = (kind, name) => objects.some((object) => object.kind === kind && object.metadata.name === name)
  const ports = new Map(container.ports.map(({ name, containerPort }) => [name, containerPort]))
  const volumes = [...spec.volumes, ...(workload.spec.volumeClaimTemplates ?? []).map((claim) => claim.metadata)].map(
    ({ name }) => name,
  )
  for (const { name } of [container, ...sidecars].flatMap((one) => one.volumeMounts ?? []))
    must(volumes.includes(name), `no volume ${name}`)
  must(new Set(volumes).size === volumes.length, `volumes ${volumes.join(', ')}`)
  const paths = container.volumeMounts.map(({ mountPath }) => mountPath)
  must(new Set(paths).size === paths.length, `mounted twice: ${paths.join(', ')}`)
  for (const flag of container.args) {
    // A directory or file of an option is in a volume, but for models that are in the image.
    const path = /=(\/[^,]*)$/.exec(flag)?.[1]
    if (path !== undefined && path !== '/models')
      must(
        paths.some((one) => path === one || path.startsWith(`${one}/`)),
        `${flag} is in no volume`,
      )
  }
  for (const name of ['startupProbe', 'readinessProbe', 'livenessProbe'])
    must(ports.has(container[name].httpGet.port), `${name} asks a port without a name`)
  for (const object of objects) {
    const selector =
      object.kind === 'Service'
        ? object.spec.selector
        : (object.spec?.podSelector?.matchLabels ?? object.spec?.selector?.matchLabels)
    if (object.kind === 'ServiceMonitor') {
      const services = objects.filter(
        ({ kind, metadata: { labels } }) => kind === 'Service' && isPart(selector, labels),
      )
      must(services.length === 1, `${services.length} services are scraped`)
      for (const { port } of object.spec.endpoints)
        must(
          services[0].spec.ports.some(({ name }) => name === port),
          `no port ${port} of a service`,
        )
    } else if (selector !== undefined)
      must(isPart(selector, metadata.labels), `${object.kind} ${object.metadata.name} selects no pod`)
    if (object.kind === 'Service')
      for (const { targetPort } of object.spec.ports)
        must(ports.has(targetPort), `${object.metadata.name}: no port ${targetPort}`)
    if (object.kind === 'NetworkPolicy')
      for (const { port } of object.spec.ingress.flatMap((rule) => rule.ports))
        must(ports.has(port), `policy: no port ${port}`)
    for (const { number } of object.spec?.targetPorts ?? [])
      must([...ports.values()].includes(number), `${object.kind}: no port ${number}`)
    const target = object.spec?.scaleTargetRef
    if (target !== undefined) {
      must(has(target.kind, target.name), `${object.kind}: no ${target.kind} ${target.name}`)
      must(workload.spec.replicas === undefined, 'a number of replicas beside an autoscaler')
    }
  }
  if (workload.kind === 'StatefulSet')
    must(has('Service', workload.spec.serviceName), `no service ${workload.spec.serviceName}`)
  if (spec.serviceAccountName !== 'inference')
    must(has('ServiceAccount', spec.serviceAccountName), `no service account ${spec.serviceAccountName}`)
  const timeout = Number(container.args.find((flag) => flag.startsWith('--exit-timeout-secs=')).split('=')[1])
  const preStop = Number(container.lifecycle?.preStop.exec.command[1] ?? 0)
  must(
    spec.terminationGracePeriodSeconds > preStop + timeout,
    `${spec.terminationGracePeriodSeconds} s to end, and the server takes up to ${timeout} after ${preStop}`,
  )
}

/** Checks that downloads go to the volume of the values: a claim of each replica, a volume, or an emptyDir. */
function cacheAsGiven({ spec }, { enabled = false, claim, volume, sizeLimit = '20Gi' } = {}) {
  const { containers, volumes } = spec.template.spec
  const [{ args, volumeMounts }] = containers
  const mount = volumeMounts.find(({ mountPath }) => args.includes(`--repository-cache-directory=${mountPath}`))
  must((mount !== undefined) === enabled && !mount?.readOnly, `the cache is mounted as ${JSON.stringify(mount)}`)
  if (!enabled) return
  const claims = (spec.volumeClaimTemplates ?? []).filter(({ metadata }) => metadata.name === mount.name)
  const found = [...volumes.filter(({ name }) => name === mount.name), ...claims.map((one) => one.spec)]
  const expected = claim ?? { name: mount.name, ...(volume ?? { emptyDir: { sizeLimit } }) }
  must(isDeepStrictEqual(found, [expected]), `the volume of the cache is ${JSON.stringify(found)}`)
  // Otherwise Kubernetes lets the group write to a kept cache at the next start, and the server refuses it.
  const policy = spec.template.spec.securityContext?.fsGroupChangePolicy
  const wanted = (claim ?? volume) ? 'OnRootMismatch' : undefined
  must(policy === wanted, `fsGroupChangePolicy is ${policy}, not ${wanted}`)
}

/** Files that a pod has of its secrets, and models, in a directory. */
async function files() {
  const at = join(HERE, 'files')
  rmSync(at, { recursive: true, force: true })
  for (const name of ['keys', 'tls', 'store', 'cache']) mkdirSync(join(at, name), { recursive: true })
  writeTestRepositories(join(at, 'repositories'))
  for (const name of ['simple', 'id_string'])
    cpSync(join(at, 'repositories', 'main', name), join(at, 'models', name), { recursive: true })
  const openssl = ask(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-days',
      '2',
      '-subj',
      '/CN=localhost',
      '-addext',
      'subjectAltName=DNS:localhost,IP:127.0.0.1',
      '-keyout',
      join(at, 'tls/tls.key'),
      '-out',
      join(at, 'tls/tls.crt'),
    ],
    { stdio: ['ignore', 'pipe', 'ignore'] },
  )
  must(openssl !== null, 'openssl made no certificate: apt-get install openssl')
  cpSync(join(at, 'tls/tls.crt'), join(at, 'tls/ca.crt'))
  must(
    ask(process.execPath, [MAIN, 'key', join(at, 'keys/keys.json'), '--name=ann', '--scope=inference']) !== null,
    'nereid key made no key',
  )
  writeFileSync(join(at, 'store/clouds.json'), '{}')
  return at
}

/** Status of a probe over HTTP, or null. Like Kubernetes, it does not check certificates. */
async function status(scheme, port, path) {
  if (scheme !== 'HTTPS')
    return fetch(`http://127.0.0.1:${port}${path}`, { headers: { connection: 'close' } }).then(
      (answer) => answer.status,
      () => null,
    )
  return new Promise((resolve) => {
    const asked = get({ host: '127.0.0.1', port, path, rejectUnauthorized: false, agent: false }, (answer) =>
      resolve(answer.resume().statusCode),
    )
    asked.on('error', () => resolve(null))
  })
}

/** A model that is added to the bucket later, and found by polling. */
const LATER = 'id_string'

/**
 * A server of S3 over a directory whose directories are buckets, while `use` runs; it gets the variables of a client.
 */
async function bucket(program, directory, use) {
  const [port] = await freePorts(1)
  const keys = ['helm', randomBytes(16).toString('hex')]
  const env = { ...process.env, ROOT_ACCESS_KEY: keys[0], ROOT_SECRET_KEY: keys[1] }
  const child = spawn(program, ['--port', `127.0.0.1:${port}`, 'posix', directory], { stdio: 'ignore', env })
  const ended = new Promise((resolve) => child.on('close', resolve))
  try {
    for (
      const from = Date.now();
      !(await fetch(`http://127.0.0.1:${port}/`).then(
        () => true,
        () => false,
      ));
      await sleep(20)
    )
      must(Date.now() - from < READY_MS_MAX, 'versitygw does not answer')
    return await use({
      AWS_ENDPOINT_URL: `http://127.0.0.1:${port}`,
      AWS_ACCESS_KEY_ID: keys[0],
      AWS_SECRET_ACCESS_KEY: keys[1],
      AWS_DEFAULT_REGION: 'us-east-1',
    })
  } finally {
    child.kill('SIGTERM')
    await ended
  }
}

/**
 * Starts the server as a pod would, with its directories here; asks its probes, and ends it. With `cloud`, the
 * variables of a client, its repositories stay where they are: then `add` puts another model there, which the server
 * finds.
 */
async function served(spec, at, { cloud = null, add = null } = {}) {
  const [{ command = [], args: given = [], env = [], startupProbe, readinessProbe, livenessProbe }] = spec.containers
  const args = [...command, ...given]
  const [control, ...ports] = await freePorts(4)
  const here = (flag) =>
    flag
      .replace(/^(--model-repository)=.*/, (all, name) => (cloud === null ? `${name}=${join(at, 'models')}` : all))
      .replace(/^(--repository-poll-secs)=.*/, '$1=1')
      .replace('=/etc/nereid/', `=${at}/`)
      .replace(/^(--repository-cache-directory)=.*/, `$1=${join(at, 'cache')}`)
      .replace(/^(--control-address)=.*/, `$1=127.0.0.1:${control}`)
      // Nothing listens at that address of a cluster.
      .replace(/^(--cache-config)=redis,.*/, '$1=local,size=1048576')
  // One repository stands for all of them: the same model twice would be refused.
  const flags = [...new Set(args.slice(1).map(here)), ...listenFlags(ports)]
  must(args[0] === 'tritonserver', `the pod starts ${args[0]}`)
  const variables = Object.fromEntries(
    env.filter(({ name }) => name.startsWith('NEREID_')).map(({ name, value }) => [name, value]),
  )
  const child = spawn(process.execPath, [MAIN, ...flags], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...variables, ...cloud },
  })
  let log = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (log = (log + chunk).slice(-4000)))
  const ended = new Promise((resolve) => child.on('close', (code, signal) => resolve(code ?? signal)))
  try {
    const asked = ({ httpGet: { path, scheme } }) => status(scheme, ports[0], path)
    for (const from = Date.now(); (await asked(startupProbe)) !== 200; await sleep(50)) {
      must(child.exitCode === null, `the server ended: ${last(log)}`)
      must(Date.now() - from < READY_MS_MAX, `not ready: ${last(log)}`)
    }
    for (const probe of [readinessProbe, livenessProbe])
      must((await asked(probe)) === 200, `${probe.httpGet.path} fails`)
    must((await status('HTTP', ports[2], '/metrics')) === 200, 'no metrics')
    if (add !== null) {
      add()
      for (
        const from = Date.now();
        (await status('HTTP', ports[0], `/v2/models/${LATER}/ready`)) !== 200;
        await sleep(100)
      )
        must(Date.now() - from < READY_MS_MAX, `the added model is not there: ${last(log)}`)
    }
    const from = Date.now()
    child.kill('SIGTERM')
    const code = await ended
    must(code === 0, `SIGTERM ended it with ${code}: ${last(log)}`)
    must(Date.now() - from < spec.terminationGracePeriodSeconds * 1000, 'it took longer than it is given')
  } finally {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
  }
}

async function run(checks) {
  mkdirSync(HERE, { recursive: true })
  const helm = await checks.step(`helm ${HELM} is built`, () =>
    goProgram('helm', 'helm.sh/helm/v3/cmd/helm', HELM, SET),
  )
  const kubeconform = await checks.step(`kubeconform ${KUBECONFORM} is built`, () =>
    goProgram('kubeconform', 'github.com/yannh/kubeconform/cmd/kubeconform', KUBECONFORM),
  )
  if (helm === undefined || kubeconform === undefined) return 'absent: helm or kubeconform could not be built'
  const known = await checks.step('schemas of Kubernetes and of others', schemas)
  if (known === undefined) return 'absent: schemas'
  const conform = (...paths) =>
    capture(
      kubeconform,
      [
        '-strict',
        '-summary',
        '-schema-location',
        known.location,
        ...(known.absent.length > 0 ? ['-skip', known.absent.join(',')] : []),
        ...paths,
      ],
      { quiet: true },
    )

  await checks.step('helm lint', async () => {
    const { code, text } = await capture(helm, ['lint', '--strict', CHART], { quiet: true })
    must(code === 0 && text.includes('0 chart(s) failed'), last(text))
  })
  await checks.step('helm package: it has the alerts, the dashboard and the configuration of the picker', async () => {
    const { code, text } = await capture(helm, ['package', CHART, '--destination', HERE], { quiet: true })
    must(code === 0, last(text))
    const file = readdirSync(HERE).find((name) => name.endsWith('.tgz'))
    const listed = ask('tar', ['-tzf', join(HERE, file)]) ?? ''
    for (const name of ['rules.yaml', 'dashboard.json', 'picker.yaml'])
      must(listed.includes(`nereid/files/${name}`), `${file} has no ${name}`)
  })

  await checks.step('the commands of docs/deploy/README.md', () =>
    typed(commandsOf('docs/deploy/README.md', 'helm'), helm, join(HERE, 'typed')),
  )

  const at = await files()
  const dir = join(HERE, 'rendered')
  rmSync(dir, { recursive: true, force: true })
  mkdirSync(dir)
  const cases = casesOf('values')
  for (const { name, path } of cases) {
    await checks.step(
      `${name}: rendered, every field known, all it refers to there, its command line serves and ends`,
      async () => {
        const { code, text, objects } = await rendered(helm, path)
        must(code === 0, last(text))
        const file = join(dir, `${name}.yaml`)
        writeFileSync(file, objects.map((object) => JSON.stringify(object)).join('\n---\n'))
        const { code: found, text: said } = await conform(file)
        must(found === 0, said.trim())
        consistent(objects)
        cacheAsGiven(workloadOf(objects), parse(readFileSync(path, 'utf8')).models?.cache)
        await served(workloadOf(objects).spec.template.spec, at)
      },
    )
  }
  for (const { name, path } of casesOf('refused')) {
    await checks.step(`${name}: refused, with the reason`, async () => {
      const [, reason] = /^# says: (.*)$/m.exec(readFileSync(path, 'utf8'))
      const { code, text } = await rendered(helm, path)
      must(code !== 0 && text.includes(reason), `ended with ${code}: ${last(text)}`)
    })
  }

  const manifests = ['kubernetes', 'kserve', 'gateway'].flatMap((directory) =>
    readdirSync(join(DEPLOY, directory))
      // A file of the picker, which reads it itself: test/deploy/picker.test.ts.
      .filter((name) => name !== 'picker.yaml')
      .map((name) => join(DEPLOY, directory, name)),
  )
  await checks.step(`${manifests.length} manifests: every field known`, async () => {
    const { code, text } = await conform(...manifests)
    must(code === 0, text.trim())
  })
  const versitygw = await goProgram('versitygw', 'github.com/versity/versitygw/cmd/versitygw', VERSITYGW).catch(
    (error) => error,
  )
  const clients = await capture(process.execPath, ['scripts/stores.mjs'], { cwd: ROOT, quiet: true })
  const noBucket = versitygw instanceof Error ? versitygw.message : clients.code === 0 ? null : last(clients.text)
  if (noBucket === null) {
    told(`ran    versitygw ${VERSITYGW}`)
    await checks.step(
      'triton-s3.yaml: its command line serves the bucket that it names, and finds what is added',
      async () => {
        const [, deployment] = parseAllDocuments(readFileSync(join(DEPLOY, 'kubernetes/triton-s3.yaml'), 'utf8')).map(
          (document) => document.toJS(),
        )
        const buckets = join(HERE, 'buckets')
        rmSync(buckets, { recursive: true, force: true })
        const put = (name) =>
          cpSync(join(at, 'models', name), join(buckets, 'models', 'triton-repo', name), { recursive: true })
        put('simple')
        await bucket(versitygw, buckets, (cloud) =>
          served(deployment.spec.template.spec, at, { cloud, add: () => put(LATER) }),
        )
      },
    )
  } else told(`absent a bucket: ${noBucket}`)
  const wrong = [
    ['kubernetes/triton-deployment.yaml', 'containerPort: 8000', 'contanerPort: 8000'],
    ['kubernetes/triton-deployment.yaml', 'periodSeconds: 10', 'periodSeconds: soon'],
    ['gateway/pool.yaml', 'failureMode: FailOpen', 'failureMode: FailOften'],
    ['gateway/routes.yaml', 'weight: 90', 'wait: 90'],
    ['kserve/runtime-http.yaml', 'supportedModelFormats:', 'supportedModelFormat:'],
    ['kserve/inferenceservice.yaml', 'terminationGracePeriodSeconds', 'terminationGracePeriod'],
  ]
  await checks.step('a field that is misspelt, or has another type, is refused', async () => {
    for (const [path, from, to] of wrong) {
      const text = readFileSync(join(DEPLOY, path), 'utf8')
      must(text.includes(from), `${path} has no ${from}`)
      const file = join(HERE, 'wrong.yaml')
      writeFileSync(file, text.replace(from, to))
      const { code, text: said } = await conform(file)
      must(code !== 0 && said.includes('is invalid'), `${to} was taken: ${said.trim()}`)
    }
    const chart = join(dir, 'monitoring.yaml')
    if (existsSync(chart) && known.absent.length === 0) {
      writeFileSync(join(HERE, 'wrong.yaml'), readFileSync(chart, 'utf8').replace('"endpoints"', '"endpoint"'))
      must((await conform(join(HERE, 'wrong.yaml'))).code !== 0, 'a ServiceMonitor without endpoints was taken')
    }
  })
  return (
    `helm ${HELM}, kubeconform ${KUBECONFORM}, Kubernetes ${KUBERNETES}: ${cases.length} files of values, ` +
    `${manifests.length} manifests; absent: ` +
    `${[...known.absent, ...(noBucket === null ? [] : ['a bucket'])].join(', ') || 'nothing'}`
  )
}

export const helm = {
  about: 'the chart and the manifests of docs/deploy: rendered, validated, their command lines started (Go)',
  missing,
  steps: ['npm packages', 'native module', 'TypeScript'],
  run,
}

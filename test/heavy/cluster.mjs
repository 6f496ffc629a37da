/**
 * The chart and the manifests of docs/deploy before a real API server of Kubernetes, which Go builds from its module,
 * with Debian's etcd: it takes every object, with the rules of its own kinds and those of gateways, KEDA and
 * Prometheus, and tells the picker of test/deploy/picker.test.ts of its pods. No node is there: nothing is scheduled.
 */
import { spawn } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { existsSync, mkdirSync, openSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { CRDS, HELM, KUBERNETES, SET, casesOf, rendered } from './helm.mjs'
import { aptMissing, unpacked } from './lib/apt.mjs'
import { must } from './lib/checks.mjs'
import { goMissing, goModule, goProgram } from './lib/tools.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'cluster')
const DEPLOY = join(ROOT, 'docs', 'deploy')
const SERVER = join(ROOT, 'target', 'heavy', 'tools', `kube-apiserver-${KUBERNETES}`)
const READY_MS_MAX = 120_000

const missing = () => {
  const kubectl = ask('kubectl', ['version', '--client']) === null ? 'kubectl: apt-get install kubernetes-client' : null
  return [goMissing(), aptMissing(), kubectl].filter((line) => line !== null)
}

/** Go cannot install the module, whose parts are replaced: cluster/go.mod says by which. */
async function buildServer() {
  if (existsSync(SERVER)) return
  const args = ['build', '-ldflags=-s -w', '-o', SERVER, 'k8s.io/kubernetes/cmd/kube-apiserver']
  const env = { ...process.env, CGO_ENABLED: '0', GOFLAGS: '-mod=readonly' }
  const { code, text } = await capture('go', args, { cwd: join(ROOT, 'test/heavy/cluster'), env, quiet: true })
  must(code === 0, text.trim().split('\n').slice(-4).join(' | '))
}

function start(name, command, args) {
  const log = openSync(join(HERE, `${name}.log`), 'a')
  const child = spawn(command, args, { stdio: ['ignore', log, log], cwd: HERE })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  return { child, end: () => (child.kill('SIGKILL'), ended) }
}

/** Starts etcd and the API server on loopback; resolves with `kubectl(...args)`. */
async function startCluster(programs) {
  const etcd = await unpacked(join(ROOT, 'target/heavy/tools/etcd'), {
    release: 'bookworm',
    architecture: { x64: 'amd64', arm64: 'arm64' }[process.arch],
    packages: ['etcd-server'],
  })
  const [client, peer, secure] = await freePorts(3)
  const store = `http://127.0.0.1:${client}`
  programs.push(
    start('etcd', join(etcd, 'usr/bin/etcd'), [
      '--data-dir=data',
      `--listen-client-urls=${store}`,
      `--advertise-client-urls=${store}`,
      `--listen-peer-urls=http://127.0.0.1:${peer}`,
    ]),
  )
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  writeFileSync(join(HERE, 'key.pem'), privateKey.export({ type: 'pkcs1', format: 'pem' }))
  writeFileSync(join(HERE, 'tokens.csv'), 'token,admin,admin,"system:masters"\n')
  programs.push(
    start('kube-apiserver', SERVER, [
      `--etcd-servers=${store}`,
      '--bind-address=127.0.0.1',
      '--advertise-address=127.0.0.1',
      '--cert-dir=certificates',
      `--secure-port=${secure}`,
      '--endpoint-reconciler-type=none',
      '--service-cluster-ip-range=10.0.0.0/24',
      '--service-account-issuer=https://kubernetes.default.svc',
      '--service-account-key-file=key.pem',
      '--service-account-signing-key-file=key.pem',
      '--token-auth-file=tokens.csv',
      '--authorization-mode=RBAC',
      // No controller makes service accounts and their tokens here.
      '--disable-admission-plugins=ServiceAccount',
    ]),
  )
  const kubeconfig = join(HERE, 'kubeconfig')
  const cluster = { server: `https://127.0.0.1:${secure}`, 'insecure-skip-tls-verify': true }
  writeFileSync(
    kubeconfig,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'here',
      clusters: [{ name: 'here', cluster }],
      contexts: [{ name: 'here', context: { cluster: 'here', user: 'here', namespace: 'models' } }],
      users: [{ name: 'here', user: { token: 'token' } }],
    }),
  )
  const kubectl = (...args) => capture('kubectl', [`--kubeconfig=${kubeconfig}`, ...args], { quiet: true })
  for (const from = Date.now(); (await kubectl('get', '--raw', '/readyz')).code !== 0; await sleep(200))
    must(Date.now() - from < READY_MS_MAX, `the API server is not ready: ${join(HERE, 'kube-apiserver.log')}`)
  return { kubectl, kubeconfig }
}

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const programs = []
  try {
    await checks.step(`kube-apiserver ${KUBERNETES} is built`, buildServer)
    const started = await checks.step('it starts, with etcd', () => startCluster(programs))
    if (started === undefined) return 'absent: an API server'
    const { kubectl, kubeconfig } = started
    const taken = async (file, ...more) => {
      const { code, text } = await kubectl('apply', '--server-side', '--validate=strict', ...more, '-f', file)
      must(code === 0, text.trim())
    }
    await checks.step('definitions of gateways, KEDA and Prometheus', async () => {
      for (const { name, version, files } of CRDS) {
        const directory = await goModule(name, version)
        for (const file of files) await taken(join(directory, file))
      }
      must((await kubectl('create', 'namespace', 'models')).code === 0, 'no namespace')
      const { code } = await kubectl('wait', 'crd', '--all', '--for=condition=Established', '--timeout=60s')
      must(code === 0, 'the kinds are not established')
    })
    const helm = await goProgram('helm', 'helm.sh/helm/v3/cmd/helm', HELM, SET)
    const cases = casesOf('values')
    for (const { name, path } of cases)
      await checks.step(`the chart with ${name}: every object is taken`, async () => {
        const { objects } = await rendered(helm, path)
        const file = join(HERE, 'objects.json')
        writeFileSync(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects }))
        await taken(file, '--dry-run=server')
      })
    const manifests = ['kubernetes', 'gateway']
      .flatMap((directory) => readdirSync(join(DEPLOY, directory)).map((name) => join(directory, name)))
      .filter((path) => !path.endsWith('picker.yaml'))
    for (const path of manifests)
      await checks.step(`${path}: every object is taken`, () => taken(join(DEPLOY, path), '--dry-run=server'))
    await checks.step('a pool without the port of its picker is refused', async () => {
      const pool = { apiVersion: 'inference.networking.k8s.io/v1', kind: 'InferencePool', metadata: { name: 'wrong' } }
      const spec = { selector: { matchLabels: { a: 'b' } }, targetPorts: [{ number: 8000 }] }
      const file = join(HERE, 'wrong.json')
      writeFileSync(file, JSON.stringify({ ...pool, spec: { ...spec, endpointPickerRef: { name: 'picker' } } }))
      const { code, text } = await kubectl('apply', '--dry-run=server', '-f', file)
      must(code !== 0 && text.includes('port is required'), text)
    })
    await checks.step('the picker learns of its pool and pods from it', async () => {
      const args = ['run', 'test/deploy/picker.test.ts', '-t', 'counts of each']
      const env = { ...process.env, NEREID_NIGHTLY: '1', NEREID_TEST_KUBECONFIG: kubeconfig }
      const vitest = join(ROOT, 'node_modules/.bin/vitest')
      const { code, text } = await capture(vitest, args, { cwd: ROOT, env, quiet: true })
      must(code === 0 && /1 passed/.test(text), text.trim().split('\n').slice(-30).join('\n'))
    })
    return `Kubernetes ${KUBERNETES}, etcd of Debian 12: ${cases.length} files of values, ${manifests.length} manifests`
  } finally {
    for (const { end } of programs.reverse()) await end()
  }
}

export const cluster = {
  about: 'the chart and the manifests of docs/deploy before a real API server, which tells a picker of pods (Go, apt)',
  missing,
  steps: ['npm packages', 'native module', 'TypeScript'],
  run,
}

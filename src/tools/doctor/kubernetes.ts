/** Reads Kubernetes objects that start a Triton: anything with a pod, and KServe's services and runtimes. */

import { backendMeant, backendRow } from '../../internal.js'
import { isOpen, type Findings } from './findings.js'
import { judgePort, placed } from './docker.js'
import { isTriton, launchAt, type Launch } from './launch.js'
import type { Yaml } from './yaml.js'

/** Path of the pod in kinds that do not have it in a template. */
const PODS: ReadonlyMap<string, readonly string[]> = new Map([
  ['Pod', ['spec']],
  ['CronJob', ['spec', 'jobTemplate', 'spec', 'template', 'spec']],
  ['ServingRuntime', ['spec']],
  ['ClusterServingRuntime', ['spec']],
])

const nameOf = (node: Yaml): string => node.text('name') ?? ''

/** Objects of a file, including the items of lists. */
export function readKubernetes(documents: readonly Yaml[], directory: string, findings: Findings): Launch[] {
  return documents
    .flatMap((document) => (document.text('kind') === 'List' ? document.items('items') : [document]))
    .flatMap((object) => readObject(object, directory, findings))
}

function readObject(object: Yaml, directory: string, findings: Findings): Launch[] {
  const kind = object.text('kind') ?? ''
  const name = `${kind} ${object.text('metadata', 'name') ?? ''}`.trim()
  const predictor = kind === 'InferenceService' ? object.get('spec', 'predictor') : null
  if (predictor !== null) return readPredictor(predictor, name, directory, findings)
  const pod = object.get(...(PODS.get(kind) ?? ['spec', 'template', 'spec']))
  if (pod !== null && pod.get('containers') !== null) {
    const found = readContainers(pod, name, directory, findings)
    if (kind.endsWith('ServingRuntime') && found.length > 0)
      for (const format of pod.items('supportedModelFormats'))
        judgeFormat(format.get('name') ?? format, `supportedModelFormats: ${nameOf(format)}`, findings)
    return found
  }
  if (kind === 'ConfigMap' && startsServer(object))
    findings.differs(object.at, name, 'has a script that starts Triton: run doctor on the script as a file')
  else if (kind === 'SeldonDeployment' && isSeldonTriton(object))
    findings.change(
      object.at,
      name,
      'Seldon starts the image of Triton for it: name an image of Nereid in its componentSpecs',
    )
  else findings.same(object.at, name === '' ? 'object' : name, 'is not changed')
  return []
}

const startsServer = (object: Yaml): boolean =>
  object.entries('data').some(([, value]) => /(?:^|[\s/])tritonserver\s+(?:\\\s*)?--/.test(value.text() ?? ''))

const isSeldonTriton = (object: Yaml): boolean =>
  object.items('spec', 'predictors').some((predictor) => predictor.text('graph', 'implementation') === 'TRITON_SERVER')

function readContainers(pod: Yaml, name: string, directory: string, findings: Findings): Launch[] {
  return pod.items('containers').flatMap((container) => {
    const launch = launchOf(container, pod, `${name}, container ${nameOf(container)}`, directory)
    if (!isTriton(launch)) {
      findings.same(container.at, `container ${nameOf(container)}`, 'is not Triton: not changed')
      return []
    }
    readMounts(container, pod, launch)
    launch.judge = () => judgeContainer(container, pod, findings)
    return launch
  })
}

function launchOf(container: Yaml, pod: Yaml, name: string, directory: string): Launch {
  const env = container.items('env').map((variable) => ({
    name: nameOf(variable),
    value: variable.text('value'),
    at: variable.at,
    without: variable.removal(null),
  }))
  // Substitutes `$(NAME)` of Kubernetes if its value is known here.
  const known = new Map(env.map(({ name: key, value }) => [key, value]))
  const argv = ['command', 'args'].flatMap((key) =>
    container.items(key).map((item) => {
      const word = item.located()
      const text = word.text.replaceAll(/\$\(([A-Za-z_]\w*)\)/g, (all, key: string) => known.get(key) ?? all)
      return { ...word, text, isOpen: isOpen(text) }
    }),
  )
  const image = container.get('image')?.located() ?? null
  return { ...launchAt(container.at, name, directory), image, argv, env, gpus: givesGpus(container, pod) }
}

function readMounts(container: Yaml, pod: Yaml, launch: Launch): void {
  const volumes = new Map(pod.items('volumes').map((volume) => [nameOf(volume), volume]))
  for (const mount of container.items('volumeMounts')) {
    const path = volumes.get(nameOf(mount))?.text('hostPath', 'path') ?? null
    const source = path === null ? { source: null } : placed(path, launch.directory)
    launch.mounts.push({ ...source, target: mount.text('mountPath') ?? '', at: mount.at })
  }
}

/** Amounts of GPUs that a container asks for, by where it does. */
const gpusOf = (container: Yaml): [string, Yaml][] =>
  ['limits', 'requests'].flatMap((of) =>
    container
      .entries('resources', of)
      .filter(([resource]) => /gpu|nvidia\.com/i.test(resource))
      .map(([resource, amount]): [string, Yaml] => [`${of}: ${resource}`, amount]),
  )

/** True if a container is given GPUs. Claims of dynamic resources describe their devices in another object. */
const givesGpus = (container: Yaml, pod: Yaml): boolean =>
  gpusOf(container).length > 0 ||
  container.get('resources', 'claims') !== null ||
  pod.text('runtimeClassName') === 'nvidia'

function judgeContainer(container: Yaml, pod: Yaml, findings: Findings): void {
  for (const port of container.items('ports')) {
    const number = port.text('containerPort') ?? ''
    judgePort(number, `port ${number}`, port.at, findings)
  }
  for (const key of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
    const probe = container.get(key)
    if (probe !== null) judgeProbe(key, probe, findings)
  }
  const preStop = container.get('lifecycle', 'preStop')
  if (preStop !== null) findings.fact(preStop.at, 'lifecycle: preStop', 'sigterm')
  for (const [name, amount] of gpusOf(container))
    findings.fact(amount.at, `resources: ${name}: ${amount.text() ?? ''}`, 'gpu')
  judgePod(pod, container, findings)
}

function judgeProbe(key: string, probe: Yaml, findings: Findings): void {
  const path = probe.text('httpGet', 'path')
  if (path !== null) return findings.same(probe.at, `${key}: ${path}`)
  const command = probe.line('exec', 'command')
  const asks = /\b(?:curl|wget|grpc_health_probe)\b/.exec(command)?.[0]
  if (asks === undefined) return findings.same(probe.at, key)
  const route = `/v2/health/${key === 'livenessProbe' ? 'live' : 'ready'}`
  findings.change(probe.at, `${key}: ${command}`, `${asks} may not be in the image: write httpGet with ${route}`)
}

function judgePod(pod: Yaml, container: Yaml, findings: Findings): void {
  const mounted = new Set(container.items('volumeMounts').map(nameOf))
  for (const volume of pod.items('volumes')) {
    if (mounted.has(nameOf(volume)) && volume.text('emptyDir', 'medium') === 'Memory')
      findings.fact(volume.at, `volume ${nameOf(volume)}: emptyDir, medium Memory`, 'shmSize')
  }
  const hostIpc = pod.get('hostIPC')
  if (hostIpc !== null) findings.fact(hostIpc.at, 'hostIPC', 'shmSize')
  const grace = pod.get('terminationGracePeriodSeconds')
  if (grace !== null) findings.fact(grace.at, `terminationGracePeriodSeconds: ${grace.text() ?? ''}`, 'gracePeriod')
  const runtime = pod.get('runtimeClassName')
  if (runtime?.text() === 'nvidia') findings.fact(runtime.at, 'runtimeClassName: nvidia', 'gpuSetting')
  for (const [key, value] of pod.entries('nodeSelector')) {
    if (/gpu|nvidia|accelerator/i.test(key)) findings.fact(value.at, `nodeSelector: ${key}`, 'gpuSetting')
  }
  for (const toleration of pod.items('tolerations')) {
    const key = toleration.text('key') ?? ''
    if (/gpu|nvidia/i.test(key)) findings.fact(toleration.at, `tolerations: ${key}`, 'gpuSetting')
  }
  for (const init of pod.items('initContainers'))
    findings.same(init.at, `init container ${nameOf(init)}`, 'is not changed')
}

/** Reads `predictor: { triton: … }`, `predictor: { model: { modelFormat, runtime } }`, or its own containers. */
function readPredictor(predictor: Yaml, name: string, directory: string, findings: Findings): Launch[] {
  if (predictor.get('containers') !== null) return readContainers(predictor, name, directory, findings)
  const triton = predictor.get('triton')
  const spec = triton ?? predictor.get('model')
  const runtime = predictor.get('model', 'runtime')
  const format = predictor.get('model', 'modelFormat', 'name')
  // Without a runtime, KServe uses its own for the format.
  if (spec === null || (triton === null && !/triton/i.test((runtime ?? format)?.text() ?? ''))) {
    findings.same(predictor.at, name, 'is not Triton: not changed')
    return []
  }
  const launch = launchOf(spec, predictor, name, directory)
  // The runtime object has the runtime's own arguments.
  launch.argv = [
    { text: 'tritonserver', at: spec.at, isOpen: false },
    ...launch.argv.filter(({ text }) => text.startsWith('-') || !text.endsWith('tritonserver')),
  ]
  launch.judge = () => {
    const version = spec.get('runtimeVersion')
    if (version !== null)
      findings.change(
        version.at,
        `runtimeVersion: ${version.text() ?? ''}`,
        'names a version of Triton: leave it out, the runtime has its image',
      )
    const storage = spec.get('storageUri') ?? spec.get('storage')
    if (storage !== null)
      findings.same(
        storage.at,
        `storageUri: ${storage.text() ?? ''}`.trim(),
        'KServe copies it to /mnt/models before the server starts',
      )
    if (runtime !== null)
      findings.change(runtime.at, `runtime: ${runtime.text() ?? ''}`, 'name a ServingRuntime with an image of Nereid')
    else
      findings.change(
        spec.at,
        triton === null ? 'model' : 'triton',
        'KServe’s runtime for Triton starts its image: make a ServingRuntime with an image of Nereid, ' +
          'and name it as predictor.model.runtime',
      )
    if (format !== null) judgeFormat(format, `modelFormat: ${format.text() ?? ''}`, findings)
    judgeContainer(spec, predictor, findings)
  }
  return [launch]
}

function judgeFormat(format: Yaml, subject: string, findings: Findings): void {
  const name = format.text() ?? ''
  const isServed = (backendRow(backendMeant(name) ?? '')?.served ?? 'absent') !== 'absent'
  if (name === 'triton' || name.includes('{{') || isServed) findings.same(format.at, subject)
  else findings.fact(format.at, subject, 'absentBackend', 'models of this format do not load')
}

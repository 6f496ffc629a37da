/** Reads Kubernetes objects that start a Triton: anything with a pod, and KServe's services and runtimes. */

import { backendMeant, backendRow } from '../../config/index.js'
import type { Findings } from './findings.js'
import { placed } from './docker.js'
import { isTriton, type Launch } from './launch.js'
import type { Yaml } from './yaml.js'

type Found = { launch: Launch; judge: () => void }

/** Path of the pod in each kind. */
const PODS: Readonly<Record<string, (object: Yaml) => Yaml | null>> = {
  Pod: (object) => object.get('spec'),
  CronJob: (object) => object.find('spec', 'jobTemplate', 'spec', 'template', 'spec'),
  ServingRuntime: (object) => object.get('spec'),
  ClusterServingRuntime: (object) => object.get('spec'),
}

/** Objects of a file, including the items of lists. */
export function readKubernetes(documents: readonly Yaml[], directory: string, findings: Findings): Found[] {
  const found: Found[] = []
  for (const document of documents) {
    const objects = document.get('kind')?.text() === 'List' ? (document.get('items')?.items() ?? []) : [document]
    for (const object of objects) found.push(...readObject(object, directory, findings))
  }
  return found
}

function readObject(object: Yaml, directory: string, findings: Findings): Found[] {
  const kind = object.get('kind')?.text() ?? ''
  const name = `${kind} ${object.find('metadata', 'name')?.text() ?? ''}`.trim()
  const predictor = kind === 'InferenceService' ? object.find('spec', 'predictor') : null
  if (predictor !== null) return readPredictor(predictor, name, directory, findings)
  const pod = PODS[kind]?.(object) ?? object.find('spec', 'template', 'spec')
  const containers = pod?.get('containers') ?? null
  if (pod === null || containers === null) {
    if (kind === 'ConfigMap' && startsServer(object))
      return addFinding(
        object,
        name,
        'differs',
        'has a script that starts Triton: run doctor on the script as a file',
        findings,
      )
    if (kind === 'SeldonDeployment' && isSeldonTriton(object))
      return addFinding(
        object,
        name,
        'change',
        'Seldon starts the image of Triton for it: name an image of Nereid in its componentSpecs',
        findings,
      )
    findings.add(object.at, name === '' ? 'object' : name, 'same', 'is not changed')
    return []
  }
  const found = readContainers(pod, containers, name, directory, findings)
  if (kind.endsWith('ServingRuntime') && found.length > 0) judgeFormats(pod, findings)
  return found
}

function addFinding(
  object: Yaml,
  subject: string,
  verdict: 'differs' | 'change',
  text: string,
  findings: Findings,
): Found[] {
  findings.add(object.at, subject, verdict, text)
  return []
}

const startsServer = (object: Yaml): boolean =>
  (object.get('data')?.entries() ?? []).some(([, value]) =>
    /(?:^|[\s/])tritonserver\s+(?:\\\s*)?--/.test(value.text() ?? ''),
  )

const isSeldonTriton = (object: Yaml): boolean =>
  (object.find('spec', 'predictors')?.items() ?? []).some(
    (predictor) => predictor.find('graph', 'implementation')?.text() === 'TRITON_SERVER',
  )

function readContainers(pod: Yaml, containers: Yaml, name: string, directory: string, findings: Findings): Found[] {
  const found: Found[] = []
  for (const container of containers.items()) {
    const launch = launchOf(container, `${name}, container ${container.get('name')?.text() ?? ''}`, directory)
    if (!isTriton(launch)) {
      findings.add(
        container.at,
        `container ${container.get('name')?.text() ?? ''}`,
        'same',
        'is not Triton: not changed',
      )
      continue
    }
    launch.gpus = givesGpus(container, pod)
    readMounts(container, pod, launch)
    found.push({
      launch,
      judge: () => {
        judgeContainer(container, findings)
        judgePod(pod, container, findings)
      },
    })
  }
  return found
}

function launchOf(container: Yaml, name: string, directory: string): Launch {
  const words = (key: string): Launch['argv'] =>
    container
      .get(key)
      ?.items()
      .map((item) => item.located()) ?? []
  const launch: Launch = {
    at: container.at,
    name,
    image: container.get('image')?.located() ?? null,
    argv: [...words('command'), ...words('args')],
    env: [],
    mounts: [],
    directory,
  }
  for (const variable of container.get('env')?.items() ?? []) {
    launch.env.push({
      name: variable.get('name')?.text() ?? '',
      value: variable.get('value')?.text() ?? null,
      at: variable.at,
      without: variable.removal(null),
    })
  }
  // Substitutes `$(NAME)` of Kubernetes if its value is known here.
  const known = new Map(launch.env.map(({ name: key, value }) => [key, value]))
  launch.argv = launch.argv.map((word) => {
    const text = word.text.replaceAll(/\$\(([A-Za-z_]\w*)\)/g, (all, key: string) => known.get(key) ?? all)
    return { ...word, text, isOpen: /\$[({A-Za-z]|\{\{/.test(text) }
  })
  return launch
}

function readMounts(container: Yaml, pod: Yaml, launch: Launch): void {
  const volumes = new Map(
    (pod.get('volumes')?.items() ?? []).map((volume) => [volume.get('name')?.text() ?? '', volume]),
  )
  for (const mount of container.get('volumeMounts')?.items() ?? []) {
    const volume = volumes.get(mount.get('name')?.text() ?? '')
    const path = volume?.find('hostPath', 'path')?.text() ?? null
    launch.mounts.push({
      ...(path === null ? { source: null } : placed(path, launch.directory)),
      target: mount.get('mountPath')?.text() ?? '',
      at: mount.at,
    })
  }
}

const isGpu = (resource: string): boolean => /gpu|nvidia\.com/i.test(resource)

/** True if a container is given GPUs. */
function givesGpus(container: Yaml, pod: Yaml): boolean {
  const asks = (of: string): boolean =>
    (container.find('resources', of)?.entries() ?? []).some(([resource]) => isGpu(resource))
  // Claims of dynamic resources describe their devices in another object.
  return (
    asks('limits') ||
    asks('requests') ||
    container.find('resources', 'claims') !== null ||
    pod.get('runtimeClassName')?.text() === 'nvidia'
  )
}

function judgeContainer(container: Yaml, findings: Findings): void {
  for (const port of container.get('ports')?.items() ?? []) {
    const number = port.get('containerPort')?.text() ?? ''
    const what: Readonly<Record<string, string>> = { '8000': 'HTTP', '8001': 'gRPC', '8002': 'metrics' }
    findings.add(port.at, `port ${number}`, 'same', what[number] ?? '')
  }
  for (const key of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
    const probe = container.get(key)
    if (probe !== null) judgeProbe(key, probe, findings)
  }
  const preStop = container.find('lifecycle', 'preStop')
  if (preStop !== null) findings.fact(preStop.at, 'lifecycle: preStop', 'sigterm')
  for (const of of ['limits', 'requests']) {
    for (const [resource, amount] of container.find('resources', of)?.entries() ?? []) {
      if (!isGpu(resource)) continue
      findings.fact(amount.at, `resources: ${of}: ${resource}: ${amount.text() ?? ''}`, 'gpu')
    }
  }
}

function judgeProbe(key: string, probe: Yaml, findings: Findings): void {
  const path = probe.find('httpGet', 'path')?.text() ?? null
  if (path !== null) return findings.add(probe.at, `${key}: ${path}`, 'same', '')
  const command =
    probe
      .find('exec', 'command')
      ?.items()
      .map((item) => item.text() ?? '')
      .join(' ') ?? ''
  const asks = /\b(?:curl|wget|grpc_health_probe)\b/.exec(command)?.[0]
  if (asks === undefined) findings.add(probe.at, key, 'same', '')
  else
    findings.add(
      probe.at,
      `${key}: ${command}`,
      'change',
      `${asks} may not be in the image: write httpGet with /v2/health/${key === 'livenessProbe' ? 'live' : 'ready'}`,
    )
}

function judgePod(pod: Yaml, container: Yaml, findings: Findings): void {
  const mounted = new Set(
    (container.get('volumeMounts')?.items() ?? []).map((mount) => mount.get('name')?.text() ?? ''),
  )
  for (const volume of pod.get('volumes')?.items() ?? []) {
    const name = volume.get('name')?.text() ?? ''
    if (mounted.has(name) && volume.find('emptyDir', 'medium')?.text() === 'Memory')
      findings.fact(volume.at, `volume ${name}: emptyDir, medium Memory`, 'shmSize')
  }
  const hostIpc = pod.get('hostIPC')
  if (hostIpc !== null) findings.fact(hostIpc.at, 'hostIPC', 'shmSize')
  const grace = pod.get('terminationGracePeriodSeconds')
  if (grace !== null)
    findings.add(
      grace.at,
      `terminationGracePeriodSeconds: ${grace.text() ?? ''}`,
      'same',
      'has to be longer than --exit-timeout-secs (30)',
    )
  const runtime = pod.get('runtimeClassName')
  if (runtime?.text() === 'nvidia') findings.fact(runtime.at, 'runtimeClassName: nvidia', 'gpuSetting')
  for (const [key, value] of pod.get('nodeSelector')?.entries() ?? []) {
    if (/gpu|nvidia|accelerator/i.test(key)) findings.fact(value.at, `nodeSelector: ${key}`, 'gpuSetting')
  }
  for (const toleration of pod.get('tolerations')?.items() ?? []) {
    const key = toleration.get('key')?.text() ?? ''
    if (/gpu|nvidia/i.test(key)) findings.fact(toleration.at, `tolerations: ${key}`, 'gpuSetting')
  }
  for (const init of pod.get('initContainers')?.items() ?? [])
    findings.add(init.at, `init container ${init.get('name')?.text() ?? ''}`, 'same', 'is not changed')
}

/** Reads `predictor: { triton: … }`, `predictor: { model: { modelFormat, runtime } }`, or its own containers. */
function readPredictor(predictor: Yaml, name: string, directory: string, findings: Findings): Found[] {
  const containers = predictor.get('containers')
  if (containers !== null) return readContainers(predictor, containers, name, directory, findings)
  const triton = predictor.get('triton')
  const model = predictor.get('model')
  const runtime = model?.get('runtime')
  // Without a runtime, KServe uses its own for the format.
  const runs = runtime === null || runtime === undefined ? model?.find('modelFormat', 'name') : runtime
  if (triton === null && !/triton/i.test(runs?.text() ?? '')) {
    findings.add(predictor.at, name, 'same', 'is not Triton: not changed')
    return []
  }
  const spec = triton ?? model
  if (spec === null) return []
  const launch = launchOf(spec, name, directory)
  launch.gpus = givesGpus(spec, predictor)
  // The runtime object has the runtime's own arguments.
  launch.argv = [
    { text: 'tritonserver', at: spec.at, isOpen: false },
    ...launch.argv.filter(({ text }) => text.startsWith('-') || !text.endsWith('tritonserver')),
  ]
  return [
    {
      launch,
      judge: () => {
        const version = spec.get('runtimeVersion')
        if (version !== null)
          findings.add(
            version.at,
            `runtimeVersion: ${version.text() ?? ''}`,
            'change',
            'names a version of Triton: leave it out, the runtime has its image',
          )
        const storage = spec.get('storageUri') ?? spec.get('storage')
        if (storage !== null)
          findings.add(
            storage.at,
            `storageUri: ${storage.text() ?? ''}`.trim(),
            'same',
            'KServe copies it to /mnt/models before the server starts',
          )
        if (runtime !== null && runtime !== undefined)
          findings.add(
            runtime.at,
            `runtime: ${runtime.text() ?? ''}`,
            'change',
            'name a ServingRuntime with an image of Nereid',
          )
        else
          findings.add(
            spec.at,
            triton === null ? 'model' : 'triton',
            'change',
            'KServe’s runtime for Triton starts its image: make a ServingRuntime with an image of Nereid, ' +
              'and name it as predictor.model.runtime',
          )
        const format = model?.find('modelFormat', 'name') ?? null
        if (format !== null) judgeFormat(format, `modelFormat: ${format.text() ?? ''}`, findings)
        judgeContainer(spec, findings)
        judgePod(predictor, spec, findings)
      },
    },
  ]
}

function judgeFormats(spec: Yaml, findings: Findings): void {
  for (const format of spec.get('supportedModelFormats')?.items() ?? [])
    judgeFormat(format.get('name') ?? format, `supportedModelFormats: ${format.get('name')?.text() ?? ''}`, findings)
}

function judgeFormat(format: Yaml, subject: string, findings: Findings): void {
  const name = format.text() ?? ''
  if (
    name === 'triton' ||
    name.includes('{{') ||
    (backendRow(backendMeant(name) ?? '')?.served ?? 'absent') !== 'absent'
  )
    findings.add(format.at, subject, 'same', '')
  else findings.fact(format.at, subject, 'absentBackend', 'models of this format do not load')
}

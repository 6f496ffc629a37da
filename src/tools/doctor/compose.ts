/** Reads the services of a compose file. */

import { isOpen, type Findings, type Located } from './findings.js'
import { judgePort, placed, shortMount } from './docker.js'
import { assigned, isTriton, launchAt, type Launch } from './launch.js'
import { serverAt } from './programs.js'
import { commandsAt } from './shell.js'
import type { Yaml } from './yaml.js'

/** Substitutes variables with their defaults, as Compose does; one without a default stays as it is written. */
function expanded(node: Yaml | null): Located | null {
  const located = node?.located() ?? null
  if (located === null) return null
  const text = located.text
    .replaceAll(/\$\{([A-Za-z_]\w*):?-([^}]*)\}/g, (_, _name, fallback: string) => fallback)
    .replaceAll('$$', '$')
  return { ...located, text, isOpen: isOpen(text), written: located.text }
}

const expandedText = (node: Yaml | null): string => expanded(node)?.text ?? ''

/** A command as a list, or as a line that is split like a shell does. */
function argv(node: Yaml | null): Located[] {
  if (node?.isList === true) return node.items().flatMap((item) => expanded(item) ?? [])
  const line = expanded(node)
  if (line === null) return []
  const commands = commandsAt(line.text.replaceAll(/\s*\n\s*/g, ' '), line.at)
  return commands.find((words) => serverAt(words) >= 0) ?? commands.flat()
}

export function readCompose(root: Yaml, directory: string, findings: Findings): Launch[] {
  return root.entries('services').flatMap(([name, service]) => {
    const launch: Launch = {
      ...launchAt(service.at, `service ${name}`, directory),
      image: expanded(service.get('image')),
      argv: [...argv(service.get('entrypoint')), ...argv(service.get('command'))],
      checksHealth: service.get('healthcheck') === null,
      gpus:
        service.entries().some(([key, node]) => givesGpus(key, node)) ||
        service.get('deploy', 'resources', 'reservations', 'devices') !== null,
      judge: () => judgeService(service, findings),
    }
    if (!isTriton(launch)) {
      findings.same(service.at, launch.name, 'is not Triton: not changed')
      return []
    }
    readEnvironment(service, launch)
    readVolumes(service, launch)
    return launch
  })
}

function readVolumes(service: Yaml, { mounts, directory }: Launch): void {
  for (const volume of service.items('volumes')) {
    if (volume.entries().length === 0) mounts.push(shortMount(expandedText(volume), volume.at, directory))
    else {
      const isBound = volume.text('type') === 'bind'
      const source = isBound ? placed(expandedText(volume.get('source')), directory) : { source: null }
      mounts.push({ ...source, target: expandedText(volume.get('target')), at: volume.at })
    }
  }
}

function readEnvironment(service: Yaml, { env }: Launch): void {
  for (const item of service.items('environment'))
    env.push({ ...assigned(expandedText(item)), at: item.at, without: item.removal(item.text()) })
  for (const [name, value] of service.entries('environment'))
    env.push({
      name,
      value: expanded(value)?.text ?? null,
      at: value.at,
      without: value.removal(`${name}: ${value.text() ?? ''}`),
    })
}

/** Members of a service without effect on the server. */
const PLAIN = new Set(
  `container_name restart networks depends_on labels logging profiles hostname stdin_open tty user working_dir
  extra_hosts env_file secrets configs stop_signal`.split(/\s+/),
)

/** True if a member of a service gives it GPUs. */
const givesGpus = (key: string, node: Yaml): boolean =>
  key === 'gpus' || (key === 'runtime' && node.text() === 'nvidia')

function judgeService(service: Yaml, findings: Findings): void {
  for (const [key, node] of service.entries()) {
    const subject = `${key}: ${node.text() ?? ''}`.trim()
    if (key === 'ports') {
      for (const port of node.items()) {
        const target = expandedText(port.get('target') ?? port)
        judgePort(target, `port ${expandedText(port) || target}`, port.at, findings)
      }
    } else if (key === 'shm_size' || key === 'ipc') findings.fact(node.at, subject, 'shmSize')
    else if (key === 'ulimits') findings.fact(node.at, 'ulimits', 'ulimits')
    else if (givesGpus(key, node)) findings.fact(node.at, subject, 'gpu')
    else if (key === 'deploy') judgeDeploy(node, findings)
    else if (key === 'healthcheck') judgeHealth(node, findings)
    else if (key === 'stop_grace_period') findings.fact(node.at, subject, 'gracePeriod')
    else if (key === 'build') findings.differs(node.at, 'build', 'its Dockerfile decides: run doctor on it as well')
    else if (PLAIN.has(key)) findings.same(node.at, subject.replace(/:$/, ''))
  }
}

function judgeDeploy(deploy: Yaml, findings: Findings): void {
  const devices = deploy.get('resources', 'reservations', 'devices')
  if (devices !== null) findings.fact(devices.at, 'deploy: devices', 'gpu')
  if (deploy.get('replicas') !== null || deploy.get('resources', 'limits') !== null) findings.same(deploy.at, 'deploy')
}

function judgeHealth(node: Yaml, findings: Findings): void {
  const words = node.text('test') ?? node.line('test')
  if (!/\bcurl\b/.test(words)) return findings.same(node.at, 'healthcheck')
  findings.fact(node.get('test')?.at ?? node.at, `healthcheck: ${words}`, 'healthCheck')
  findings.apply(node.removal(null))
}

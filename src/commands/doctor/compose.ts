/** Reads the services of a compose file. */

import type { Findings, Located } from './findings.js'
import { judgePort, placed, shortMount } from './docker.js'
import type { Launch } from './launch.js'
import { isTriton } from './launch.js'
import { serverAt } from './programs.js'
import { ShellError, shellCommands } from './shell.js'
import type { Yaml } from './yaml.js'

/** Substitutes variables with their defaults, as Compose does; one without a default stays as it is written. */
function expanded(node: Yaml | null): Located | null {
  const located = node?.located() ?? null
  if (located === null) return null
  const text = located.text
    .replaceAll(/\$\{([A-Za-z_]\w*):?-([^}]*)\}/g, (_, _name, fallback: string) => fallback)
    .replaceAll('$$', '$')
  return { ...located, text, isOpen: /\$[({A-Za-z]|\{\{/.test(text), written: located.text }
}

/** A command as a list, or as a line that is split like a shell does. */
function argv(node: Yaml | null): Located[] {
  if (node === null) return []
  if (node.isList) return node.items().flatMap((item) => expanded(item) ?? [])
  const line = expanded(node)
  if (line === null) return []
  try {
    const commands = shellCommands(line.text.replaceAll(/\s*\n\s*/g, ' '), new Map(), line.at.line).map(({ words }) =>
      words.map(({ text, isOpen }) => ({ text, isOpen, at: line.at })),
    )
    return commands.find((words) => serverAt(words) >= 0) ?? commands.flat()
  } catch (error) {
    if (error instanceof ShellError) return []
    throw error
  }
}

export function readCompose(
  root: Yaml,
  directory: string,
  findings: Findings,
): { launch: Launch; judge: () => void }[] {
  const found: { launch: Launch; judge: () => void }[] = []
  for (const [name, service] of root.get('services')?.entries() ?? []) {
    const launch: Launch = {
      at: service.at,
      name: `service ${name}`,
      image: expanded(service.get('image')),
      argv: [...argv(service.get('entrypoint')), ...argv(service.get('command'))],
      env: [],
      mounts: [],
      directory,
      checksHealth: service.get('healthcheck') === null,
    }
    if (!isTriton(launch)) {
      findings.add(service.at, `service ${name}`, 'same', 'is not Triton: not changed')
      continue
    }
    launch.gpus =
      service.entries().some(([key, node]) => givesGpus(key, node)) ||
      service.find('deploy', 'resources', 'reservations', 'devices') !== null
    readEnvironment(service.get('environment'), launch)
    for (const volume of service.get('volumes')?.items() ?? []) {
      const text = expanded(volume)?.text ?? ''
      if (volume.map() === null) launch.mounts.push(shortMount(text, volume.at, directory))
      else {
        const source = expanded(volume.get('source'))?.text ?? ''
        launch.mounts.push({
          ...(volume.get('type')?.text() === 'bind' ? placed(source, directory) : { source: null }),
          target: expanded(volume.get('target'))?.text ?? '',
          at: volume.at,
        })
      }
    }
    found.push({ launch, judge: () => judgeService(service, findings) })
  }
  return found
}

function readEnvironment(node: Yaml | null, launch: Launch): void {
  for (const item of node?.items() ?? []) {
    const text = expanded(item)?.text ?? ''
    const equals = text.indexOf('=')
    launch.env.push({
      name: equals < 0 ? text : text.slice(0, equals),
      value: equals < 0 ? null : text.slice(equals + 1),
      at: item.at,
      without: item.removal(item.text()),
    })
  }
  for (const [name, value] of node?.entries() ?? [])
    launch.env.push({
      name,
      value: expanded(value)?.text ?? null,
      at: value.at,
      without: value.removal(`${name}: ${value.text() ?? ''}`),
    })
}

/** Members of a service without effect on the server. */
const PLAIN = new Set([
  'container_name',
  'restart',
  'networks',
  'depends_on',
  'labels',
  'logging',
  'profiles',
  'hostname',
  'stdin_open',
  'tty',
  'user',
  'working_dir',
  'extra_hosts',
  'env_file',
  'secrets',
  'configs',
  'stop_signal',
])

/** True if a member of a service gives it GPUs. */
const givesGpus = (key: string, node: Yaml): boolean =>
  key === 'gpus' || (key === 'runtime' && node.text() === 'nvidia')

function judgeService(service: Yaml, findings: Findings): void {
  for (const [key, node] of service.entries()) {
    const subject = `${key}: ${node.text() ?? ''}`.trim()
    if (key === 'ports') {
      for (const port of node.items())
        judgePort(
          expanded(port.get('target') ?? port)?.text ?? '',
          `port ${expanded(port)?.text ?? port.get('target')?.text() ?? ''}`,
          port.at,
          findings,
        )
    } else if (key === 'shm_size' || key === 'ipc') findings.fact(node.at, subject, 'shmSize')
    else if (key === 'ulimits') findings.fact(node.at, 'ulimits', 'ulimits')
    else if (givesGpus(key, node)) findings.fact(node.at, subject, 'gpu')
    else if (key === 'deploy') judgeDeploy(node, findings)
    else if (key === 'healthcheck') judgeHealth(node, findings)
    else if (key === 'stop_grace_period')
      findings.add(node.at, subject, 'same', 'has to be longer than --exit-timeout-secs (30)')
    else if (key === 'build')
      findings.add(node.at, 'build', 'differs', 'its Dockerfile decides: run doctor on it as well')
    else if (PLAIN.has(key)) findings.add(node.at, subject.replace(/:$/, ''), 'same', '')
  }
}

function judgeDeploy(deploy: Yaml, findings: Findings): void {
  const devices = deploy.find('resources', 'reservations', 'devices')
  if (devices !== null) findings.fact(devices.at, 'deploy: devices', 'gpu')
  if (deploy.get('replicas') !== null || deploy.find('resources', 'limits') !== null)
    findings.add(deploy.at, 'deploy', 'same', '')
}

function judgeHealth(node: Yaml, findings: Findings): void {
  const test = node.get('test')
  const words =
    test === null
      ? ''
      : (test.text() ??
        test
          .items()
          .map((item) => item.text() ?? '')
          .join(' '))
  if (!/\bcurl\b/.test(words)) return findings.add(node.at, 'healthcheck', 'same', '')
  findings.add(
    test?.at ?? node.at,
    `healthcheck: ${words}`,
    'change',
    'curl is not in the image: leave it out, the image checks /v2/health/ready itself',
  )
  const { lines } = node
  if (lines !== null) findings.removeLines({ path: node.path, line: lines.from }, lines.through)
}

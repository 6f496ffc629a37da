/**
 * Promises of the container images, read from images/Containerfile. `npm run test:heavy -- image` builds and runs them.
 */
import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

interface Stage {
  from: string
  name: string
  /** Instructions as [word, rest], in their order. */
  lines: [string, string][]
}

/** Arguments before the first stage, and the stages. */
function parsed(text: string): { args: string[]; stages: Stage[] } {
  const joined = text.replaceAll(/^\s*#.*\n/gm, '').replaceAll(/\\\n/g, ' ')
  const args: string[] = []
  const stages: Stage[] = []
  for (const line of joined.split('\n').filter((one) => one.trim() !== '')) {
    const [, word = '', rest = ''] = /^(\w+)\s+(.*)$/.exec(line) ?? []
    const stage = stages.at(-1)
    if (word === 'FROM') {
      const [, from = '', name = ''] = /^(\S+) AS (\w+)$/.exec(rest) ?? []
      stages.push({ from, name, lines: [] })
    } else if (stage === undefined) args.push(rest)
    else stage.lines.push([word, rest])
  }
  return { args, stages }
}

const FILE = parsed(read('images/Containerfile'))
const IMAGES = ['cpu', 'python', 'gpu']

/** A stage with those it is made from, oldest instruction first. */
function whole(name: string): [string, string][] {
  const stage = FILE.stages.find((one) => one.name === name)
  if (stage === undefined) return []
  return [...whole(stage.from), ...stage.lines]
}

const last = (name: string, word: string) => whole(name).findLast(([found]) => found === word)?.[1] ?? ''

test.each(IMAGES)('%s runs as a user without rights, named by number and last', (name) => {
  expect(last(name, 'USER')).toBe('1000')
  expect(whole(name).at(-1)?.[0]).toBe('USER')
})

test.each(IMAGES)('%s starts tritonserver with /models', (name) => {
  expect(JSON.parse(last(name, 'CMD'))).toEqual(['tritonserver', '--model-repository=/models'])
  // An entry point would stand before the `tritonserver …` of a docker run or of a Kubernetes file.
  expect(last(name, 'ENTRYPOINT')).toBe('')
  expect(last(name, 'STOPSIGNAL')).toBe('SIGTERM')
  expect(last(name, 'EXPOSE')).toBe('8000 8001 8002')
  expect(last(name, 'WORKDIR')).toBe('/opt/tritonserver')
  expect(last(name, 'HEALTHCHECK')).toMatch(/CMD \["\/bin\/sh", "-c", "busybox wget .*\/v2\/health\/ready"\]$/)
  expect(last(name, 'ENV')).not.toBe('')
  for (const label of ['title', 'description', 'licenses'])
    expect(last(name, 'LABEL')).toContain(`org.opencontainers.image.${label}=`)
  // Models that an image made of this one copies there would be lost.
  expect(last(name, 'VOLUME')).toBe('')
})

test('Triton’s directories exist, and its command is where manifests call it', () => {
  const install = whole('install')
    .map(([, rest]) => rest)
    .join('\n')
  for (const path of [
    'models',
    'opt/tritonserver/backends',
    'opt/tritonserver/repoagents',
    'opt/tritonserver/caches',
    'opt/tritonserver/bin/tritonserver',
    'usr/local/bin/tritonserver',
  ]) {
    expect(install).toContain(` ${path}`)
  }
})

test('images are made of packages, never of the clone', () => {
  const copied = FILE.stages
    .flatMap(({ lines }) => lines)
    .filter(([word, rest]) => word === 'ADD' || (word === 'COPY' && !rest.startsWith('--from=')))
  expect(copied).toEqual([['COPY', 'nereid-*.tgz /packages/']])
  expect(FILE.args).toHaveLength(2)
  for (const argument of FILE.args) expect(argument).toMatch(/^\w+_IMAGE=docker\.io\/library\/\w+:(?!latest)[\w.-]+$/)
  for (const { from } of FILE.stages) expect(['scratch', 'python', '${DEBIAN_IMAGE}', '${NODE_IMAGE}']).toContain(from)
})

test('the CUDA provider is of the version of the library that the packages bring', () => {
  const version = JSON.parse(read('package.json')) as {
    dependencies?: Record<string, string>
    devDependencies?: Record<string, string>
  }
  const wanted = version.dependencies?.['onnxruntime-node'] ?? version.devDependencies?.['onnxruntime-node']
  expect(read('images/Containerfile')).toContain(`onnxruntime-gpu==${wanted} `)
})

test('the command of the images starts a server, also where it cannot write', async () => {
  const [command = '', ...flags] = JSON.parse(last('cpu', 'CMD')) as string[]
  const directory = mkdtempSync(join(tmpdir(), 'nereid-image-'))
  chmodSync(join(ROOT, 'dist/cli/main.js'), 0o755)
  symlinkSync(join(ROOT, 'dist/cli/main.js'), join(directory, command))
  const ports = await freePorts(3)
  const models = flags.map((flag) => flag.replace('=/models', `=${join(ROOT, 'examples/models')}`))
  const env = { PATH: `${directory}:${process.env['PATH']}`, HOME: '/proc', NODE_ENV: 'production' }
  const child = spawn(command, [...models, ...listenFlags(ports), '--exit-grace-secs=0'], {
    cwd: '/proc',
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let log = ''
  child.stderr.on('data', (chunk: Buffer) => (log = (log + chunk.toString()).slice(-4000)))
  const ended = new Promise((resolve) => child.on('exit', (code, signal) => resolve(code ?? signal)))
  try {
    await expect
      .poll(
        () =>
          fetch(`http://127.0.0.1:${ports[0]}/v2/health/ready`).then(
            (r) => r.status,
            () => log,
          ),
        { timeout: 20_000 },
      )
      .toBe(200)
    child.kill('SIGTERM')
    expect(await ended).toBe(0)
  } finally {
    child.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true })
  }
})

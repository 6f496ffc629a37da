/** Programs of others that suites run: built by Go, from npm, or of Debian, below target/. */
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { npmPackage } from '../../../scripts/lib/npm.mjs'
import { ask, capture } from '../../../scripts/lib/run.mjs'
import { ROOT } from '../../../scripts/setup.mjs'
import { aptMissing, unpacked } from './apt.mjs'
import { must } from './checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'tools')

/** Why programs cannot be built by Go here, null when they can. */
export const goMissing = () =>
  ask('go', ['version']) === null ? 'go: apt-get install golang-go, or a newer one' : null

/**
 * The path of a program that Go builds from a module, which takes minutes once; `set` are variables of it that its own
 * build sets. @throws {Error} with what Go said
 */
export async function goProgram(name, source, version, set = []) {
  const directory = join(HERE, `${name}-${version}`)
  const path = join(directory, name)
  if (existsSync(path)) return path
  mkdirSync(directory, { recursive: true })
  const env = { ...process.env, CGO_ENABLED: '0', GOBIN: directory }
  const flags = ['-s', '-w', ...set.map((one) => `-X ${one}`)].join(' ')
  const { code, text } = await capture('go', ['install', '-trimpath', `-ldflags=${flags}`, `${source}@${version}`], {
    env,
    quiet: true,
  })
  must(code === 0, `go install ${source}@${version}: ${text.trim().split('\n').slice(-4).join(' | ')}`)
  return path
}

/** The directory of a module's files. @throws {Error} with what Go said */
export async function goModule(name, version) {
  const { code, text } = await capture('go', ['mod', 'download', '-json', `${name}@${version}`], { quiet: true })
  const found = /^\{[^]*^\}/m.exec(text)
  must(
    code === 0 && found !== null,
    `go mod download ${name}@${version}: ${text.trim().split('\n').slice(-4).join(' | ')}`,
  )
  return JSON.parse(found[0]).Dir
}

/** The path of a program of an npm package. @throws {Error} with what npm said */
export async function npmProgram(name, source, version) {
  return join(await npmPackage(source, version), '.bin', name)
}

const ARCHITECTURES = { x64: 'amd64', arm64: 'arm64' }

const isInstalled = () => ['prometheus', 'promtool'].every((name) => ask(name, ['--version']) !== null)

/** Why Prometheus cannot be had here, null when it can. */
export const prometheusMissing = () => (isInstalled() ? null : aptMissing())

/** Paths of Prometheus and promtool: those of this machine, or Debian's. */
export async function prometheusPrograms() {
  if (isInstalled()) return { prometheus: 'prometheus', promtool: 'promtool' }
  const directory = await unpacked(join(HERE, 'prometheus'), {
    release: 'bookworm',
    architecture: ARCHITECTURES[process.arch],
    packages: ['prometheus'],
  })
  return { prometheus: join(directory, 'usr/bin/prometheus'), promtool: join(directory, 'usr/bin/promtool') }
}

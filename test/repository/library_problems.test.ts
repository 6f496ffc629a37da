/** Findings about libraries of C backends. The C compiler makes the libraries; the loader's directories are our own. */

import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { STUBS } from '../../src/repository/generated/triton_api.js'
import { libraryProblems } from '../../src/repository/library_problems.js'
import { configured, thisLoader, type Loader } from '../../src/repository/linux_loader.js'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-libraries-'))
afterAll(() => rmSync(ROOT, { recursive: true }))

const EXECUTE = 'TRITONBACKEND_ModelInstanceExecute'
const LOADER: Loader = { machine: process.arch, path: [join(ROOT, 'path')], directories: [join(ROOT, 'system')] }

const calls = (...names: string[]): string =>
  `${names.map((name) => `void* ${name}(void);`).join('\n')}\nvoid* use(void) { return ${names
    .map((name) => `(char*)${name}()`)
    .join(' == 0 ? 0 : ')}; }\n`

interface Made {
  /** Functions that it calls. */
  calls?: string[]
  exports?: string[]
  /** Names of libraries that it needs. */
  needs?: string[]
  flags?: string[]
}

let stubs = 0
/** Writes a library to a path below ROOT, which is returned. */
function made(to: string, what: Made = {}): string {
  const path = join(ROOT, to)
  mkdirSync(dirname(path), { recursive: true })
  const names = what.needs ?? (what.calls === undefined ? [] : ['libtritonserver.so'])
  const needed = names.map((name) => {
    const stub = join(ROOT, `stub${(stubs += 1)}.so`)
    execFileSync('cc', ['-shared', '-nostdlib', `-Wl,-soname,${name}`, '-x', 'c', '-', '-o', stub], { input: 'int s;' })
    return stub
  })
  const exported = (what.exports ?? [EXECUTE]).map((name) => `void* ${name}(void) { return 0; }\n`).join('')
  const used = what.calls === undefined ? '' : calls(...what.calls)
  const flags = ['-shared', '-fPIC', '-nostdlib', '-Wl,--no-as-needed', ...(what.flags ?? [])]
  execFileSync('cc', [...flags, '-x', 'c', '-', '-x', 'none', ...needed, '-o', path], { input: exported + used })
  return path
}

const found = (path: string, loader = LOADER): string[] =>
  libraryProblems(path, loader).map(({ severity, message }) => `${severity}: ${message.replaceAll(ROOT, '')}`)

test('a library that lacks nothing has no problems', () => {
  const path = made('good/a.so', {
    calls: ['TRITONSERVER_ErrorNew'],
    needs: ['libtritonserver.so', 'libtritonserver-717102f0.so', 'liba.so'],
  })
  made('system/liba.so', { exports: [] })
  expect(libraryProblems(path, LOADER)).toEqual([])
})

test('a library without the required entry point is an error, in the words of a load', () => {
  const problem = (exports: string[]) => libraryProblems(made('noexec/a.so', { exports }), LOADER)[0]
  const path = join(ROOT, 'noexec/a.so')
  const missing = `undefined symbol: ${EXECUTE}`
  const text = `unable to find required entrypoint '${EXECUTE}' in shared library: ${path}: ${missing}`
  expect(problem(['TRITONBACKEND_Initialize'])).toMatchObject({ severity: 'error', message: text })
  expect(problem(['TRITONCACHE_CacheLookup'])?.advice).toBe('This is a response cache and not a backend.')
  expect(problem(['TRITONREPOAGENT_ModelAction'])?.advice).toBe('This is a repository agent and not a backend.')
})

test('a function that no header has is an error, with the library that calls it', () => {
  const own = made('newer/a.so', { calls: ['TRITONBACKEND_Tomorrow', 'TRITONSERVER_Later'] })
  expect(libraryProblems(own, LOADER)).toEqual([
    {
      severity: 'error',
      message: `unable to load shared library: ${own}: undefined symbol: TRITONBACKEND_Tomorrow`,
      advice: "Triton's API 1.19, which Nereid implements, has no such function, nor TRITONSERVER_Later.",
    },
  ])
  made('newer/libhelper.so', { exports: [], calls: ['TRITONSERVER_Later'] })
  const other = made('newer/b.so', { needs: ['libhelper.so'], flags: ['-Wl,-rpath,$ORIGIN'] })
  expect(found(other)).toEqual([
    'error: unable to load shared library: /newer/libhelper.so: undefined symbol: TRITONSERVER_Later',
  ])
})

test('a function that another needed library has is not missing', () => {
  made('own/libextra.so', { exports: ['TRITONSERVER_Extra'] })
  const path = made('own/a.so', {
    calls: ['TRITONSERVER_Extra'],
    needs: ['libextra.so', 'libtritonserver.so'],
    flags: ['-Wl,-rpath,${ORIGIN}'],
  })
  expect(found(path)).toEqual([])
})

test('a library that calls the API need not be linked with it: its process has it', () => {
  const path = made('unlinked/a.so', { calls: ['TRITONSERVER_ErrorNew'], needs: [] })
  expect(libraryProblems(path, LOADER)).toEqual([])
})

test('functions that only return an error are a warning', () => {
  const [one = '', two = ''] = STUBS
  expect(found(made('stubs/a.so', { calls: [one, two] }))).toEqual([
    `warning: /stubs/a.so uses functions of Triton that only return an error here: ${[one, two].sort().join(', ')}`,
  ])
})

test('a library for another machine is an error, and what it needs is not searched', () => {
  const path = made('machine/a.so', { needs: ['libnone.so'] })
  const bytes = readFileSync(path)
  bytes.writeUInt16LE(process.arch === 'arm64' ? 62 : 183, 18)
  writeFileSync(path, bytes)
  const other = process.arch === 'arm64' ? 'x64' : 'arm64'
  expect(found(path)).toEqual([`error: /machine/a.so is a library for ${other}, and this machine is ${process.arch}`])
})

test('a file that is no library is an error', () => {
  const path = join(ROOT, 'text.so')
  writeFileSync(path, 'not a library')
  expect(found(path)).toEqual(['error: unable to load shared library: /text.so is not a shared library of Linux'])
})

test('a library that is not found is a warning with the directories', () => {
  const path = made('absent/a.so', { needs: ['libnone.so'], flags: ['-Wl,-rpath,$ORIGIN/../$LIB'] })
  const [problem] = libraryProblems(path, LOADER)
  expect(problem).toMatchObject({ severity: 'warning', message: `${path} needs libnone.so, which is not found` })
  const places = ['path', 'lib', 'lib64', 'system'].map((name) => join(ROOT, name)).join(', ')
  expect(problem?.advice).toBe(`Without it, the model does not load. It is not in ${places}.`)
})

test.each([
  ['LD_LIBRARY_PATH', 'path', []],
  ['the directories of the system', 'system', []],
  ['DT_RUNPATH', 'run', ['-Wl,-rpath,$ORIGIN/../run', '-Wl,--enable-new-dtags']],
  ['DT_RPATH', 'run', ['-Wl,-rpath,$ORIGIN/../run', '-Wl,--disable-new-dtags']],
])('a needed library is found in %s', (_, directory, flags) => {
  made(`${directory}/libfound.so`, { exports: [], needs: ['libmissing.so'] })
  expect(found(made('finds/a.so', { needs: ['libfound.so'], flags }))).toEqual([
    `warning: /${directory}/libfound.so needs libmissing.so, which is not found`,
  ])
  rmSync(join(ROOT, directory, 'libfound.so'))
})

test.each([
  ['DT_RPATH applies to what is needed further on', '--disable-new-dtags', []],
  ['DT_RUNPATH does not', '--enable-new-dtags', ['warning: /chain/one.so needs two.so, which is not found']],
])('%s', (_, dtags, expected) => {
  made('chain/two.so', { exports: [] })
  made('chain/one.so', { exports: [], needs: ['two.so'] })
  const path = made('chain/a.so', { needs: ['one.so'], flags: ['-Wl,-rpath,$ORIGIN', `-Wl,${dtags}`] })
  expect(found(path)).toEqual(expected)
})

test('a library for another machine is skipped as the loader skips it', () => {
  const wrong = made('path/libboth.so', { exports: [] })
  copyFileSync(wrong, join(ROOT, 'system/libboth.so'))
  const bytes = readFileSync(wrong)
  bytes.writeUInt16LE(22, 18)
  writeFileSync(wrong, bytes)
  const path = made('skips/a.so', { needs: ['libboth.so'] })
  expect(found(path)).toEqual([])
  rmSync(join(ROOT, 'system/libboth.so'))
  expect(found(path)).toEqual(['warning: /skips/a.so needs libboth.so, which is not found'])
})

test('libraries that need each other are followed once', () => {
  made('system/ring1.so', { exports: [], needs: ['ring2.so'] })
  made('system/ring2.so', { exports: [], needs: ['ring1.so', 'ring3.so'] })
  expect(found(made('ring/a.so', { needs: ['ring1.so'] }))).toEqual([
    'warning: /system/ring2.so needs ring3.so, which is not found',
  ])
})

test('directories of /etc/ld.so.conf are read with its includes, within limits', () => {
  const directory = join(ROOT, 'etc')
  mkdirSync(join(directory, 'conf.d'), { recursive: true })
  writeFileSync(join(directory, 'main'), '# comment\n/first # more\ninclude conf.d/*.conf\ninclude main\n')
  writeFileSync(join(directory, 'conf.d/a.conf'), '/second\n')
  writeFileSync(join(directory, 'conf.d/b.other'), '/never\n')
  expect([...new Set(configured(join(directory, 'main')))]).toEqual(['/first', '/second'])
  expect(configured(join(directory, 'absent'))).toEqual([])
})

test('the C library of this machine is found', () => {
  const path = join(ROOT, 'libc_user.so')
  execFileSync('cc', ['-shared', '-fPIC', '-x', 'c', '-', '-o', path], {
    input: `#include <stdlib.h>\nvoid* ${EXECUTE}(void) { return malloc(1); }`,
  })
  expect(libraryProblems(path, thisLoader({}))).toEqual([])
})

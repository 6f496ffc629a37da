/** Reading shared libraries, whole and damaged ones. The C compiler makes them. */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { ServerError } from '../../src/native/errors.js'
import { readLibrary, type Library } from '../../src/repository/elf.js'
import { random } from '../config/helpers.js'

const DIRECTORY = mkdtempSync(join(tmpdir(), 'nereid-elf-'))
afterAll(() => rmSync(DIRECTORY, { recursive: true }))

const SOURCE = `
void* TRITONSERVER_ErrorNew(int, const char*);
__attribute__((weak)) void* TRITONSERVER_MetricSet(void*, double);
static void* TRITONBACKEND_private(void) { return 0; }
__attribute__((visibility("hidden"))) void* TRITONBACKEND_hidden(void) { return TRITONBACKEND_private(); }
void* TRITONBACKEND_ModelInstanceExecute(void* i, void** r, unsigned n) {
  return i && TRITONSERVER_MetricSet ? TRITONBACKEND_hidden() : TRITONSERVER_ErrorNew(1, (const char*)r);
}
void another_function(void) {}
`
const ONLY_NEEDS = `
void* TRITONSERVER_ErrorNew(int, const char*);
__attribute__((visibility("hidden"))) void* use(void) { return TRITONSERVER_ErrorNew(1, ""); }
`

let next = 0
/** Path of a library that needs one of the name `needed`. */
function compiled(source: string, needed: string, ...flags: string[]): string {
  const at = join(DIRECTORY, String((next += 1)))
  execFileSync('cc', ['-shared', '-fPIC', `-Wl,-soname,${needed}`, '-x', 'c', '-', '-o', `${at}-stub.so`], {
    input: 'int stub;',
  })
  const all = ['-shared', '-fPIC', '-x', 'c', '-', '-x', 'none', '-Wl,--no-as-needed', `${at}-stub.so`, ...flags]
  execFileSync('cc', [...all, '-o', `${at}.so`], { input: source })
  return `${at}.so`
}

const EXPECTED: Partial<Library> = {
  machine: process.arch,
  exports: ['TRITONBACKEND_ModelInstanceExecute'],
  undefined: ['TRITONSERVER_ErrorNew'],
}

test.each([
  ['both hash tables', '-Wl,--hash-style=both'],
  ['the hash table of GNU', '-Wl,--hash-style=gnu'],
  ['the hash table of the standard', '-Wl,--hash-style=sysv'],
])('functions are read from a library with %s', (_, flag) => {
  const library = readLibrary(compiled(SOURCE, 'libtritonserver-717102f0.so', flag))
  expect(library).toMatchObject(EXPECTED)
  expect(library.needed[0]).toBe('libtritonserver-717102f0.so')
})

test('functions are read from a library without a table of sections', () => {
  const path = compiled(SOURCE, 'libtritonserver.so', '-Wl,--hash-style=gnu')
  const bytes = readFileSync(path)
  bytes.writeUInt16LE(0, 60)
  writeFileSync(path, bytes)
  expect(readLibrary(path)).toMatchObject(EXPECTED)
})

test('functions are read from a library that exports nothing', () => {
  expect(readLibrary(compiled(ONLY_NEEDS, 'libtritonserver.so', '-Wl,--hash-style=gnu', '-nostdlib'))).toMatchObject({
    undefined: ['TRITONSERVER_ErrorNew'],
    exports: [],
  })
})

test('the name and the directories of a library are read', () => {
  const paths = '-Wl,-rpath,$ORIGIN:$ORIGIN/../lib'
  expect(readLibrary(compiled(SOURCE, 'a.so', '-Wl,-soname,own.so', paths, '-Wl,--enable-new-dtags'))).toMatchObject({
    soname: 'own.so',
    runpath: ['$ORIGIN', '$ORIGIN/../lib'],
    rpath: [],
  })
  expect(readLibrary(compiled(SOURCE, 'a.so', paths, '-Wl,--disable-new-dtags'))).toMatchObject({
    soname: null,
    runpath: [],
    rpath: ['$ORIGIN', '$ORIGIN/../lib'],
  })
})

/** The error of reading these bytes; null if there is none. */
function thrown(bytes: Uint8Array | string): unknown {
  const path = join(DIRECTORY, 'file.so')
  writeFileSync(path, bytes)
  try {
    readLibrary(path)
    return null
  } catch (error) {
    return error
  }
}

const whole = readFileSync(compiled(SOURCE, 'libtritonserver.so', '-Wl,--hash-style=gnu'))
const changed = (change: (bytes: Buffer) => void): Buffer => {
  const bytes = Buffer.from(whole)
  change(bytes)
  return bytes
}

test.each([
  ['is not a shared library of Linux', Buffer.alloc(0)],
  ['is not a shared library of Linux', 'not a library at all, and longer than the header of a library has to be'],
  ['is a pointer of Git LFS', 'version https://git-lfs.github.com/spec/v1\noid sha256:0000000000000000000\nsize 1\n'],
  ['is a library of Windows', `MZ${'\0'.repeat(100)}`],
  ['is a library of macOS', Buffer.concat([Buffer.from([0xcf, 0xfa, 0xed, 0xfe]), Buffer.alloc(100)])],
  ['is a 32-bit library', changed((bytes) => bytes.writeUInt8(1, 4))],
  ['is a big-endian library', changed((bytes) => bytes.writeUInt8(2, 5))],
  ['is an object file that was not linked', changed((bytes) => bytes.writeUInt16LE(1, 16))],
  ['is a damaged library', whole.subarray(0, 100)],
  ['is a damaged library', whole.subarray(0, whole.length >> 1)],
  ['has more than 1024 segments', changed((bytes) => bytes.writeUInt16LE(0xffff, 56))],
  ['has no dynamic section', changed((bytes) => bytes.writeUInt16LE(1, 56))],
])('the message says that a file %s', (text, bytes) => {
  const error = thrown(bytes)
  expect(error).toBeInstanceOf(ServerError)
  expect((error as ServerError).message).toContain(text)
})

test('a library for another machine is read, and says which', () => {
  const path = join(DIRECTORY, 'other.so')
  writeFileSync(
    path,
    changed((bytes) => bytes.writeUInt16LE(process.arch === 'arm64' ? 62 : 183, 18)),
  )
  expect(readLibrary(path).machine).toBe(process.arch === 'arm64' ? 'x64' : 'arm64')
  writeFileSync(
    path,
    changed((bytes) => bytes.writeUInt16LE(243, 18)),
  )
  expect(readLibrary(path).machine).toBe('ELF machine 243')
})

test('a pipe is not opened', () => {
  const path = join(DIRECTORY, 'pipe.so')
  execFileSync('mkfifo', [path])
  expect(() => readLibrary(path)).toThrow(/is not a file/)
})

test('any damage is answered with an error of the reader or with names of the file', () => {
  const r = random(7)
  // The tables at the front are where damage leads somewhere else.
  const extent = Math.min(whole.length, 4096)
  const words = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, 0xffff_ffff]
  for (let run = 0; run < 3000; run += 1) {
    const bytes = changed((copy) => {
      for (let count = 1 + Math.floor(r() * 4); count > 0; count -= 1) {
        const at = Math.floor(r() * (r() < 0.5 ? extent : copy.length - 4))
        if (r() < 0.5) copy.writeUInt8(Math.floor(r() * 256), at)
        else copy.writeUInt32LE(words[Math.floor(r() * words.length)] ?? 0, at & ~3)
      }
    })
    const error = thrown(r() < 0.1 ? bytes.subarray(0, Math.floor(r() * bytes.length)) : bytes)
    if (error !== null) expect(error).toBeInstanceOf(ServerError)
  }
})

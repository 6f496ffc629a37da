/** What keeps a module from being released. */
import { expect, test } from 'vitest'
import { flaws, glibcNeeded } from '../../scripts/package/check.mjs'

const module = (...strings: string[]): Buffer => Buffer.from(`\x7fELF\0${strings.join('\0')}\0`, 'latin1')
const promised = { glibc: '2.28', places: ['/home/somebody', '/build/nereid'] }

test('a module that needs what the package promises, and names no place, is fit', () => {
  expect(flaws(module('GLIBC_2.2.5', 'GLIBC_2.28', '/crates/tokio-1.0.0/src/lib.rs'), promised)).toEqual([])
})

test('a newer C library than promised is found, compared as a version', () => {
  expect(glibcNeeded(module('GLIBC_2.4', 'GLIBC_2.17', 'GLIBC_2.2.5'))).toBe('2.17')
  expect(glibcNeeded(module('no version'))).toBeNull()
  expect(flaws(module('GLIBC_2.9', 'GLIBC_2.34'), promised)).toEqual(['it needs glibc 2.34, and the package promises 2.28'])
})

test('a directory of the machine that built it is found and shown', () => {
  expect(flaws(module('GLIBC_2.28', 'src at /home/somebody/.cargo/registry/x.rs'), promised)).toEqual([
    'it names a directory of this machine: /home/somebody/.cargo/registry/x.rs',
  ])
})

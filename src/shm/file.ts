/**
 * POSIX shared memory as a file in /dev/shm. Node has no `mmap`, so `pread` and `pwrite` copy tensors: one copy each,
 * in the kernel, and no SIGBUS when the file is truncated. Linux only.
 */

import { randomBytes } from 'node:crypto'
import { closeSync, constants, fstatSync, openSync, readSync, unlinkSync, writeSync } from 'node:fs'
import { invalid } from './layout.js'

const DIRECTORY = '/dev/shm'
/** Limit of a file name. */
const KEY_BYTES_MAX = 255
const ZEROS_BYTES = 1 << 20
const OPEN = constants.O_RDWR | constants.O_NOFOLLOW

/** Generates a unique key: the process id, for people who inspect /dev/shm, and 64 random bits. */
export function freshKey(): string {
  return `/nereid-${process.pid}-${randomBytes(8).toString('hex')}`
}

export function pathOf(key: string): string {
  const name = key.replace(/^\/+/, '')
  if (name === '' || name === '.' || name === '..' || /[/\0]/.test(name) || Buffer.byteLength(name) > KEY_BYTES_MAX) {
    const name = key.slice(0, KEY_BYTES_MAX)
    throw invalid(`key '${name}': a name of 1 to ${KEY_BYTES_MAX} bytes without inner slashes is needed`)
  }
  return `${DIRECTORY}/${name}`
}

/**
 * Creates a file of `byteSize` zero bytes, accessible to this user only, and returns its descriptor. Writes the zeros,
 * so that a full /dev/shm is an error here (ENOSPC), not in the request that touches the last page.
 */
export function createFile(key: string, byteSize: number): number {
  const path = pathOf(key)
  const descriptor = openSync(path, OPEN | constants.O_CREAT | constants.O_EXCL, 0o600)
  try {
    const zeros = Buffer.alloc(Math.min(ZEROS_BYTES, byteSize))
    for (let at = 0; at < byteSize;) at += writeSync(descriptor, zeros, 0, Math.min(zeros.length, byteSize - at), at)
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    unlinkSync(path)
    throw error
  }
}

/** Opens an existing file. @throws {ServerError} `INVALID_ARG` when it is shorter than `byteSize`. */
export function openFile(key: string, byteSize: number): number {
  const descriptor = openSync(pathOf(key), OPEN)
  const { size } = fstatSync(descriptor)
  if (size >= byteSize) return descriptor
  closeSync(descriptor)
  throw invalid(`region ${key}: the file has ${size} bytes, the tensors need ${byteSize}`)
}

export function writeAll(descriptor: number, bytes: Uint8Array, offset: number): void {
  for (let at = 0; at < bytes.length;) at += writeSync(descriptor, bytes, at, bytes.length - at, offset + at)
}

/** Reads `length` bytes into a new buffer. @throws {ServerError} `INVALID_ARG` when the file was truncated. */
export function readAll(descriptor: number, length: number, offset: number): Buffer {
  const bytes = Buffer.alloc(length)
  for (let at = 0; at < length;) {
    const count = readSync(descriptor, bytes, at, length - at, offset + at)
    if (count === 0) throw invalid(`the file of the region ends ${length - at} bytes too early`)
    at += count
  }
  return bytes
}

/** Removes the file, if it exists. */
export function unlinkFile(key: string): void {
  try {
    unlinkSync(pathOf(key))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

/** Checks a module before its release, and what is native in a package. */
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Sentences about defects; `machine` is the processor that the package is for, `places` are directories of the machine
 * that built it.
 */
export function flaws(bytes, { machine, glibc, places }) {
  const text = bytes.toString('latin1')
  const found = []
  const built = machineOf(bytes)
  if (built !== null && built !== machine) found.push(`it is for ${built}, and the package is for ${machine}`)
  const needs = glibcOf(text)
  if (glibc !== null && newer(needs, glibc)) found.push(`it needs glibc ${needs}, and the package promises ${glibc}`)
  const unknown = unknownFunctions(bytes)
  if (unknown.length > 0) found.push(`it calls ${unknown.join(', ')}, which neither glibc ${glibc} nor Node.js has`)
  for (const place of places) {
    const at = text.indexOf(place)
    if (at >= 0) found.push(`it names a directory of this machine: ${printable(text.slice(at, at + 120))}`)
  }
  return found
}

/** Newest glibc version that a module requires; null if none. */
export function glibcNeeded(bytes) {
  return glibcOf(bytes.toString('latin1'))
}

/** Processors in the header of an ELF file, by Rust's and pip's names of them. */
const MACHINES = { 62: 'x86_64', 183: 'aarch64' }

/** The processor that a program or library of Linux is for; null for any other file. */
export function machineOf(bytes) {
  if (!bytes.subarray(0, ELF64.length).equals(ELF64)) return null
  const machine = bytes.readUInt16LE(18)
  return MACHINES[machine] ?? `the processor ${machine}`
}

/** Lists programs and libraries below a directory with their processors, and the newest glibc needed, null if none. */
export function nativeBelow(directory) {
  const files = []
  let glibc = null
  for (const path of readdirSync(directory, { recursive: true }).toSorted()) {
    if (!statSync(join(directory, path)).isFile()) continue
    const bytes = readFileSync(join(directory, path))
    const machine = machineOf(bytes)
    if (machine === null) continue
    files.push({ path, machine })
    const needs = glibcNeeded(bytes)
    if (newer(needs, glibc)) glibc = needs
  }
  return { files, glibc }
}

const ELF64 = Buffer.from('\x7fELF\x02\x01', 'latin1')
const DYNAMIC_SYMBOLS = 11
const SYMBOL_VERSIONS = 0x6fffffff
const GLOBAL = 1

/**
 * Functions that a Linux module calls and that none of its linked libraries has: the linker leaves them to the process
 * that loads the module. Node.js provides its own; any other name belongs to a newer C library, and the module would
 * not load. Weak ones may be missing.
 */
export function unknownFunctions(bytes) {
  if (!bytes.subarray(0, ELF64.length).equals(ELF64)) return []
  const sections = sectionsOf(bytes)
  const symbols = sections.find(({ type }) => type === DYNAMIC_SYMBOLS)
  const versions = sections.find(({ type }) => type === SYMBOL_VERSIONS)
  const names = sections[symbols?.link]
  if (symbols === undefined || names === undefined) return []
  const found = []
  for (let at = 24; at < symbols.size; at += 24) {
    const symbol = symbols.offset + at
    const isCalled = bytes[symbol + 4] >> 4 === GLOBAL && bytes.readUInt16LE(symbol + 6) === 0
    // Versions 0 and 1 require no version of a library.
    const version = versions === undefined ? 0 : bytes.readUInt16LE(versions.offset + at / 12)
    const start = names.offset + bytes.readUInt32LE(symbol)
    const name = bytes.toString('latin1', start, bytes.indexOf(0, start))
    if (isCalled && version <= 1 && !/^(?:napi|node_api)_/.test(name)) found.push(name)
  }
  return found
}

/** The section headers of a 64-bit ELF file: offsets and sizes in bytes. */
function sectionsOf(bytes) {
  const [table, size, count] = [Number(bytes.readBigUInt64LE(40)), bytes.readUInt16LE(58), bytes.readUInt16LE(60)]
  return Array.from({ length: count }, (_, n) => {
    const at = table + n * size
    return {
      type: bytes.readUInt32LE(at + 4),
      offset: Number(bytes.readBigUInt64LE(at + 24)),
      size: Number(bytes.readBigUInt64LE(at + 32)),
      link: bytes.readUInt32LE(at + 40),
    }
  })
}

function glibcOf(text) {
  const versions = [...text.matchAll(/\0GLIBC_(\d+(?:\.\d+)+)(?=\0)/g)].map(([, version]) => version)
  return versions.reduce((newest, one) => (newer(one, newest) ? one : newest), null)
}

function newer(version, than) {
  if (version === null || than === null) return version !== null
  const [a, b] = [version, than].map((v) => v.split('.').map(Number))
  return a[0] > b[0] || (a[0] === b[0] && (a[1] ?? 0) > (b[1] ?? 0))
}

const printable = (text) => text.replace(/[^\x20-\x7e].*$/s, '')

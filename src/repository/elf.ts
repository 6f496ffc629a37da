/**
 * Reads the dynamic section of a shared library: which libraries and which functions of Triton it needs, and which
 * entry points it exports. Reads only the tables that lead there, so a library of gigabytes costs no more than its
 * symbols.
 *
 * The file is untrusted: every table is limited and has to lie inside the file. Nothing of it runs.
 */

import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs'
import { ServerError } from '../native/errors.js'
import { POINTER } from './onnx_file.js'

const SEGMENTS_MAX = 1024
const SECTIONS_MAX = 4096
/** Maximum number of entries of the dynamic section; real libraries have some dozens. */
const ENTRIES_MAX = 1 << 16
const SYMBOLS_MAX = 1 << 20
const STRINGS_BYTES_MAX = 64 << 20
const NAME_BYTES_MAX = 4096
/** Maximum number of symbols with one hash. */
const CHAIN_MAX = 4096
/** Maximum number of needed libraries, and of functions of Triton. */
const NAMES_MAX = 4096

/** Every name of Triton's C API begins with it. */
const PREFIX = Buffer.from('TRITON')

export interface Library {
  /** `x64` or `arm64`, as `process.arch` names them; `ELF machine <number>` for any other. */
  machine: string
  /** Name that other libraries need this one by; null without one. */
  soname: string | null
  /** Libraries that it needs, as written: names or paths. */
  needed: string[]
  /** Directories of DT_RUNPATH, as written. */
  runpath: string[]
  /** Directories of DT_RPATH, which the loader ignores if there is a DT_RUNPATH. */
  rpath: string[]
  /** Functions of Triton's C API that have to be found for it to load. */
  undefined: string[]
  /** Functions of Triton's C API that it has. */
  exports: string[]
}

/**
 * Reads a shared library of Linux.
 *
 * @throws {ServerError} `INVALID_ARG` if the file is no 64-bit library of Linux or is damaged, `UNSUPPORTED` if it
 *   exceeds a limit. A file that cannot be opened throws what the file system says.
 */
export function readLibrary(path: string): Library {
  // Opening a pipe would wait for a writer.
  if (!statSync(path).isFile()) throw new ServerError('INVALID_ARG', `${path} is not a file`)
  const fd = openSync(path, 'r')
  try {
    return new Reader(path, fd).library()
  } finally {
    closeSync(fd)
  }
}

const MACHINES: Readonly<Record<number, string>> = { 62: 'x64', 183: 'arm64' }

/** Tags of the dynamic section. */
const TAG = {
  end: 0,
  needed: 1,
  hash: 4,
  strings: 5,
  symbols: 6,
  stringsBytes: 10,
  soname: 14,
  rpath: 15,
  runpath: 29,
  gnuHash: 0x6fff_fef5,
} as const

// oxlint-disable no-control-regex -- first bytes of files
/** First bytes of other kinds of files, with a description. */
const STRANGERS: readonly (readonly [begins: RegExp, what: string])[] = [
  POINTER,
  [/^MZ/, 'is a library of Windows'],
  [/^(?:[\u00ce\u00cf]\u00fa\u00ed\u00fe|\u00ca\u00fe\u00ba\u00be)/, 'is a library of macOS'],
]
// oxlint-enable no-control-regex
const STRANGER_BYTES = 48

const HEADER_BYTES = 64
const SEGMENT_BYTES = 56
const SECTION_BYTES = 64
const ENTRY_BYTES = 16
const SYMBOL_BYTES = 24
/** Type of the section that holds the dynamic symbols. */
const SECTION_DYNSYM = 11

/** A part of the file that the loader maps. */
interface Segment {
  offset: number
  address: number
  bytes: number
}

class Reader {
  readonly #path: string
  readonly #fd: number
  readonly #size: number
  #segments: Segment[] = []

  constructor(path: string, fd: number) {
    this.#path = path
    this.#fd = fd
    this.#size = fstatSync(fd).size
  }

  library(): Library {
    const head = this.#header()
    const dynamic = this.#dynamic(head)
    const strings = this.#strings(dynamic)
    const names = (tag: number): string[] => (dynamic.get(tag) ?? []).map((at) => this.#text(strings, at))
    const directories = (tag: number): string[] =>
      names(tag)
        .flatMap((list) => list.split(':'))
        .filter((directory) => directory !== '')
    const machine = head.readUInt16LE(18)
    return {
      machine: MACHINES[machine] ?? `ELF machine ${machine}`,
      soname: names(TAG.soname)[0] ?? null,
      needed: names(TAG.needed),
      runpath: directories(TAG.runpath),
      rpath: directories(TAG.rpath),
      ...this.#functions(this.#symbols(head, dynamic), strings),
    }
  }

  #header(): Buffer {
    const begin = this.#size < HEADER_BYTES ? Buffer.alloc(0) : this.#read(0, HEADER_BYTES)
    const wrong = (what: string): ServerError => new ServerError('INVALID_ARG', `${this.#path} ${what}`)
    const magic = begin.toString('latin1', 0, STRANGER_BYTES)
    const stranger = STRANGERS.find(([begins]) => begins.test(magic))
    if (stranger !== undefined) throw wrong(stranger[1])
    if (!magic.startsWith('\u007fELF')) throw wrong('is not a shared library of Linux')
    if (begin[4] !== 2) throw wrong('is a 32-bit library; a server needs a 64-bit one')
    if (begin[5] !== 1) throw wrong('is a big-endian library')
    const type = begin.readUInt16LE(16)
    if (type !== 3) throw wrong(type === 1 ? 'is an object file that was not linked' : 'is not a shared library')
    return begin
  }

  /** Values of the dynamic section for each tag, in order. */
  #dynamic(head: Buffer): Map<number, number[]> {
    const count = head.readUInt16LE(56)
    if (count > SEGMENTS_MAX) throw this.#tooMany('segments', SEGMENTS_MAX)
    if (count > 0 && head.readUInt16LE(54) !== SEGMENT_BYTES) throw this.#damaged()
    const table = this.#read(word(head, 32), count * SEGMENT_BYTES)
    let dynamic: Segment | null = null
    for (let at = 0; at < table.length; at += SEGMENT_BYTES) {
      const segment = { offset: word(table, at + 8), address: word(table, at + 16), bytes: word(table, at + 32) }
      const type = table.readUInt32LE(at)
      if (type === 1) this.#segments.push(segment)
      if (type === 2) dynamic = segment
    }
    if (dynamic === null) throw new ServerError('INVALID_ARG', `${this.#path} has no dynamic section`)
    if (dynamic.bytes > ENTRIES_MAX * ENTRY_BYTES) throw this.#tooMany('dynamic entries', ENTRIES_MAX)
    const entries = this.#read(dynamic.offset, dynamic.bytes)
    const values = new Map<number, number[]>()
    for (let at = 0; at + ENTRY_BYTES <= entries.length; at += ENTRY_BYTES) {
      const tag = word(entries, at)
      if (tag === TAG.end) break
      const list = values.get(tag)
      if (list === undefined) values.set(tag, [word(entries, at + 8)])
      else if (list.push(word(entries, at + 8)) > NAMES_MAX) throw this.#tooMany('dynamic entries of a kind', NAMES_MAX)
    }
    return values
  }

  #strings(dynamic: ReadonlyMap<number, number[]>): Buffer {
    const bytes = dynamic.get(TAG.stringsBytes)?.[0] ?? 0
    if (bytes > STRINGS_BYTES_MAX) throw this.#tooMany('bytes of names', STRINGS_BYTES_MAX)
    return this.#mapped(dynamic.get(TAG.strings)?.[0] ?? 0, bytes)
  }

  /** The table of dynamic symbols, whose length no entry of the dynamic section gives. */
  #symbols(head: Buffer, dynamic: ReadonlyMap<number, number[]>): Buffer {
    const address = dynamic.get(TAG.symbols)?.[0]
    if (address === undefined) return Buffer.alloc(0)
    const count = this.#symbolsByHash(dynamic) ?? this.#symbolsBySection(head, address)
    if (count > SYMBOLS_MAX) throw this.#tooMany('symbols', SYMBOLS_MAX)
    return this.#mapped(address, count * SYMBOL_BYTES)
  }

  /** Null if the hash tables do not say it: the one of GNU has no entry if a library exports nothing. */
  #symbolsByHash(dynamic: ReadonlyMap<number, number[]>): number | null {
    const [hash] = dynamic.get(TAG.hash) ?? []
    if (hash !== undefined) return this.#mapped(hash, 8).readUInt32LE(4)
    const [gnu] = dynamic.get(TAG.gnuHash) ?? []
    if (gnu === undefined) return null
    const head = this.#mapped(gnu, 16)
    const [buckets, first, blooms] = [head.readUInt32LE(0), head.readUInt32LE(4), head.readUInt32LE(8)]
    if (Math.max(buckets, first, blooms) > SYMBOLS_MAX) throw this.#tooMany('symbols', SYMBOLS_MAX)
    const table = this.#mapped(gnu + 16 + blooms * 8, buckets * 4)
    // First symbol of the last chain.
    let last = 0
    for (let at = 0; at < table.length; at += 4) last = Math.max(last, table.readUInt32LE(at))
    if (last < first) return null
    if (last > SYMBOLS_MAX) throw this.#tooMany('symbols', SYMBOLS_MAX)
    const chains = gnu + 16 + blooms * 8 + buckets * 4
    for (let length = 0; length < CHAIN_MAX; length += 1) {
      // A chain ends with an odd hash.
      const isEnd = (this.#mapped(chains + (last + length - first) * 4, 4).readUInt32LE(0) & 1) === 1
      if (isEnd) return last + length + 1
    }
    throw this.#tooMany('symbols of one hash', CHAIN_MAX)
  }

  #symbolsBySection(head: Buffer, address: number): number {
    const count = head.readUInt16LE(60)
    if (count === 0 || head.readUInt16LE(58) !== SECTION_BYTES) return 0
    if (count > SECTIONS_MAX) throw this.#tooMany('sections', SECTIONS_MAX)
    const table = this.#read(word(head, 40), count * SECTION_BYTES)
    for (let at = 0; at < table.length; at += SECTION_BYTES) {
      const isTable = table.readUInt32LE(at + 4) === SECTION_DYNSYM && word(table, at + 16) === address
      if (isTable) return Math.floor(word(table, at + 32) / SYMBOL_BYTES)
    }
    return 0
  }

  #functions(symbols: Buffer, strings: Buffer): { undefined: string[]; exports: string[] } {
    const [missing, own] = [new Set<string>(), new Set<string>()]
    for (let at = 0; at < symbols.length; at += SYMBOL_BYTES) {
      const name = symbols.readUInt32LE(at)
      const isNamed = name + PREFIX.length <= strings.length
      if (!isNamed || strings.compare(PREFIX, 0, PREFIX.length, name, name + PREFIX.length) !== 0) continue
      const binding = symbols.readUInt8(at + 4) >> 4
      const isDefined = symbols.readUInt16LE(at + 6) !== 0
      // A weak name need not be found, and neither a local nor a hidden one is exported.
      if (!isDefined && binding === 1) missing.add(this.#text(strings, name))
      else if (isDefined && binding !== 0 && [0, 3].includes(symbols.readUInt8(at + 5) & 3))
        own.add(this.#text(strings, name))
      if (missing.size + own.size > NAMES_MAX) throw this.#tooMany('functions of Triton', NAMES_MAX)
    }
    return { undefined: [...missing].sort(), exports: [...own].sort() }
  }

  #text(strings: Buffer, at: number): string {
    const end = at < strings.length ? strings.indexOf(0, at) : -1
    if (end < 0) throw this.#damaged()
    if (end - at > NAME_BYTES_MAX) throw this.#tooMany('bytes of a name', NAME_BYTES_MAX)
    return strings.toString('utf8', at, end)
  }

  /** Bytes at an address of the loaded library. */
  #mapped(address: number, bytes: number): Buffer {
    const inside = this.#segments.find((one) => address >= one.address && address + bytes <= one.address + one.bytes)
    if (inside === undefined) throw this.#damaged()
    return this.#read(inside.offset + address - inside.address, bytes)
  }

  #read(offset: number, bytes: number): Buffer {
    if (offset + bytes > this.#size) throw this.#damaged()
    const into = Buffer.alloc(bytes)
    for (let done = 0; done < bytes;) {
      const count = readSync(this.#fd, into, done, bytes - done, offset + done)
      if (count === 0) throw this.#damaged()
      done += count
    }
    return into
  }

  #damaged(): ServerError {
    return new ServerError('INVALID_ARG', `${this.#path} is a damaged library: it was not copied or written completely`)
  }

  #tooMany(what: string, max: number): ServerError {
    return new ServerError('UNSUPPORTED', `${this.#path} has more than ${max} ${what}`)
  }
}

/** An unsigned number of 64 bits. One beyond 2^53 loses digits and lies outside every file. */
const word = (bytes: Buffer, at: number): number => Number(bytes.readBigUInt64LE(at))

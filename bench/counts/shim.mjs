/**
 * The library that counts (counts.c): compiled here, laid in front of a server's C library, read through a shared file.
 *
 * The file describes itself: names, sizes and places of what it holds come from the C source and nowhere else.
 */
import { execFileSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const SOURCE = fileURLToPath(new URL('counts.c', import.meta.url))
/** Origin of a call: our native module, ONNX Runtime, or the rest of the process (Node, the C and C++ libraries). */
export const IMAGES = ['ours', 'onnxruntime', 'rest']
const HEADER = [
  'magic',
  'generation',
  'ready',
  'allocationPeriod',
  'copyPeriod',
  'sitesDropped',
  'kinds',
  'images',
  'sites',
  'frames',
  'firstSystemCall',
  'namesAt',
  'countersAt',
  'sitesAt',
]
const WORD = 8
const NAME = 16

/** Compiles counts.c into a directory; throws with the reason where that is not possible. */
export function buildShim(directory) {
  if (process.platform !== 'linux') throw new Error('the counting library needs Linux')
  mkdirSync(directory, { recursive: true })
  const library = join(directory, 'counts.so')
  try {
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-fno-builtin', '-fvisibility=hidden', '-o', library, SOURCE], {
      stdio: 'pipe',
    })
  } catch (error) {
    throw new Error(
      `cc could not build the counting library: ${error.stderr?.toString().trim().split('\n').at(-1) || error.message}`,
      { cause: error },
    )
  }
  return library
}

export class Shim {
  #file
  #fd
  #generation = 0

  /** @param ours part of the path of the library whose calls are “ours” */
  constructor(library, directory, ours) {
    this.#file = join(directory, 'counts')
    writeFileSync(this.#file, '')
    this.#fd = openSync(this.#file, 'r+')
    this.env = { LD_PRELOAD: library, BENCH_COUNTS_FILE: this.#file, BENCH_COUNTS_OURS: ours }
  }

  /** Counting begins, with the libraries that are loaded now; `nudge` makes the process do something. */
  async begin(nudge) {
    for (const until = performance.now() + 5000; this.#header().magic === 0; await sleep(5)) {
      if (performance.now() > until) throw new Error('the counting library was not loaded into the process')
    }
    this.#write('generation', (this.#generation += 1))
    for (const until = performance.now() + 5000; this.#header().ready !== this.#generation; await nudge()) {
      if (performance.now() > until) throw new Error('the counting library did not begin to count')
    }
  }

  /** Takes the stack of every so many of our allocations and copies from now on; 0 for none. */
  stacks(allocationPeriod, copyPeriod) {
    this.#write('allocationPeriod', allocationPeriod)
    this.#write('copyPeriod', copyPeriod)
  }

  /** `{ image: { kind: { calls, bytes } } }` since counting began. */
  read() {
    const h = this.#header()
    const names = this.#bytes(h.namesAt, h.kinds * NAME)
    const words = this.#words(h.countersAt, h.images * h.kinds * 2)
    const name = (k) => names.toString('latin1', k * NAME, (k + 1) * NAME).replace(/\0.*$/s, '')
    const kinds = Array.from({ length: h.kinds }, (_, k) => name(k))
    const of = (i) =>
      Object.fromEntries(
        kinds.map((kind, k) => [
          kind,
          { calls: words[(i * h.kinds + k) * 2], bytes: words[(i * h.kinds + k) * 2 + 1] },
        ]),
      )
    return {
      counters: Object.fromEntries(IMAGES.map((image, i) => [image, of(i)])),
      systemCalls: kinds.slice(h.firstSystemCall),
    }
  }

  /**
   * Stacks seen so far: `{ key, kind, calls, bytes, frames }`, `key` being their place in the table, frames as offsets
   * into our library, innermost first.
   */
  sites() {
    const h = this.#header()
    if (h.sitesDropped > 0) throw new Error(`${h.sitesDropped} calls had no room among ${h.sites} stacks`)
    const size = 4 + h.frames
    const words = this.#words(h.sitesAt, h.sites * size)
    const names = Object.keys(this.read().counters.ours)
    const out = []
    for (let i = 0; i < h.sites; i += 1) {
      const [hash, kind, calls, bytes, ...frames] = words.slice(i * size, (i + 1) * size)
      if (hash !== 0) out.push({ key: i, kind: names[kind], calls, bytes, frames: frames.filter((f) => f !== 0) })
    }
    return out
  }

  close() {
    closeSync(this.#fd)
  }

  #header() {
    const words = this.#words(0, HEADER.length)
    return Object.fromEntries(HEADER.map((name, i) => [name, words[i] ?? 0]))
  }

  #bytes(at, length) {
    const out = Buffer.alloc(length)
    readSync(this.#fd, out, 0, length, at)
    return out
  }

  #words(at, count) {
    const bytes = this.#bytes(at, count * WORD)
    return Array.from({ length: count }, (_, i) => Number(bytes.readBigUInt64LE(i * WORD)))
  }

  #write(name, value) {
    const word = Buffer.alloc(WORD)
    word.writeBigUInt64LE(BigInt(value))
    writeSync(this.#fd, word, 0, WORD, HEADER.indexOf(name) * WORD)
  }
}

/**
 * Counters combined number by number.
 *
 * @param {(a: number, b: number) => number} f what becomes of a number of `a` and the same one of `b`
 */
export function combine(a, b, f) {
  const both = (image, kind) => ({
    calls: f(a[image][kind].calls, b[image][kind].calls),
    bytes: f(a[image][kind].bytes, b[image][kind].bytes),
  })
  return Object.fromEntries(
    IMAGES.map((image) => [image, Object.fromEntries(Object.keys(a[image]).map((kind) => [kind, both(image, kind)]))]),
  )
}

const ALLOCATIONS = ['malloc', 'calloc', 'realloc', 'aligned']
const COPIES = ['memcpy', 'memmove']

/** The figures people ask for, of one image's counters. */
export function summarise(counters, systemCalls) {
  const sum = (kinds, key) => kinds.reduce((n, kind) => n + counters[kind][key], 0)
  return {
    allocations: sum(ALLOCATIONS, 'calls'),
    allocatedBytes: sum(ALLOCATIONS, 'bytes'),
    copies: sum(COPIES, 'calls'),
    copiedBytes: sum(COPIES, 'bytes'),
    largeCopies: counters.copy_4k.calls,
    largeCopiedBytes: counters.copy_4k.bytes,
    systemCalls: sum(systemCalls, 'calls'),
    calls: Object.fromEntries(systemCalls.map((name) => [name, counters[name].calls]).filter(([, n]) => n !== 0)),
  }
}

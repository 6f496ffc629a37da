/** Cutting device code out of a library, on an ELF file that is made here. */
import { expect, test } from 'vitest'
import { architecture, cutFatbins } from './fatbin.mjs'

type Entry = [kind: number, arch: number, payload: string]

const PTX = 1
const CODE = 2

function entry([kind, arch, payload]: Entry): Buffer {
  const head = Buffer.alloc(64)
  head.writeUInt16LE(kind, 0)
  head.writeUInt32LE(64, 4)
  head.writeBigUInt64LE(BigInt(payload.length), 8)
  head.writeUInt32LE(arch, 28)
  return Buffer.concat([head, Buffer.from(payload)])
}

function container(...entries: Entry[]): Buffer {
  const body = Buffer.concat(entries.map(entry))
  const head = Buffer.alloc(16)
  head.writeUInt32LE(0xba55ed50, 0)
  head.writeUInt16LE(1, 4)
  head.writeUInt16LE(16, 6)
  head.writeBigUInt64LE(BigInt(body.length), 8)
  return Buffer.concat([head, body])
}

/** A file with one section of this name, between others. */
function elf(contents: Buffer, name = '.nv_fatbin'): Buffer {
  const strings = Buffer.from(`\0.text\0${name}\0.shstrtab\0`)
  const parts = [Buffer.from('before..'), contents, Buffer.from('behind..'), strings]
  const head = Buffer.alloc(64)
  head.writeUInt32BE(0x7f454c46, 0)
  head.set([2, 1, 1], 4)
  const table = 64 + parts.reduce((n, part) => n + part.length, 0)
  head.writeBigUInt64LE(BigInt(table), 40)
  head.writeUInt16LE(64, 58)
  head.writeUInt16LE(4, 60)
  head.writeUInt16LE(3, 62)
  let at = 64
  const offsets = parts.map((part) => (at += part.length) - part.length)
  const section = (nameAt: number, part: number): Buffer => {
    const one = Buffer.alloc(64)
    one.writeUInt32LE(nameAt, 0)
    one.writeBigUInt64LE(BigInt(offsets[part] ?? 0), 24)
    one.writeBigUInt64LE(BigInt(parts[part]?.length ?? 0), 32)
    return one
  }
  return Buffer.concat([head, ...parts, section(0, 0), section(1, 2), section(7, 1), section(8 + name.length, 3)])
}

test('code for other architectures becomes zeros', () => {
  const made = (other: string) =>
    elf(
      Buffer.concat([
        container([CODE, 75, other], [CODE, 90, 'for ninety'], [PTX, 75, other]),
        Buffer.alloc(8),
        container([CODE, 120, other]),
      ]),
    )
  const file = made('others')
  expect(cutFatbins(file, [90])).toEqual({ kept: { 90: 10 }, cut: { 75: 12, 120: 6 } })
  expect(file).toEqual(made('\0\0\0\0\0\0'))
})

test('PTX stays where there is no code for the architecture', () => {
  const file = elf(Buffer.concat([container([PTX, 80, 'a text'], [CODE, 80, 'code']), container([CODE, 90, 'code'])]))
  expect(cutFatbins(file, [90])).toEqual({ kept: { 80: 6, 90: 4 }, cut: { 80: 4 } })
  expect(file.includes('a text')).toBe(true)
})

test('several architectures may stay', () => {
  const file = elf(container([CODE, 80, 'eighty'], [CODE, 86, 'eighty-six'], [CODE, 90, 'ninety']))
  expect(cutFatbins(file, [80, 90]).cut).toEqual({ 86: 10 })
})

function refused(contents: Buffer, text: RegExp, architectures = [90]): void {
  const file = elf(contents)
  const before = Buffer.from(file)
  expect(() => cutFatbins(file, architectures)).toThrow(text)
  expect(file).toEqual(before)
}

test('what is not as expected is refused, and nothing is changed', () => {
  refused(container([CODE, 75, 'old'], [CODE, 80, 'code']), /no code for sm_90, but for sm_75, sm_80/)
  refused(container([3, 90, 'code']), /entry at \d+ is not as expected/)
  refused(
    Buffer.concat([container([CODE, 90, 'code'], [CODE, 75, 'old!']), Buffer.from('junk'.repeat(4))]),
    /neither a container nor padding/,
  )
  const long = container([CODE, 75, 'old'], [CODE, 90, 'code'])
  long.writeBigUInt64LE(1n << 40n, 8)
  refused(long, /container at \d+ is not as expected/)
  const cut = container([CODE, 90, 'code'], [CODE, 75, 'old'])
  cut.writeBigUInt64LE(1n << 40n, 16 + 68 + 8)
  refused(cut, /entry at \d+ is not as expected/)
  expect(() => cutFatbins(Buffer.alloc(100), [90])).toThrow('no ELF file of 64 bits')
  expect(() => cutFatbins(elf(container([CODE, 90, 'code']), '.data'), [90])).toThrow('no code for sm_90, but for none')
})

test('architectures are named as compilers name them', () => {
  expect(['sm_90', '90', 'sm120'].map(architecture)).toEqual([90, 90, 120])
  expect(() => architecture('hopper')).toThrow('hopper is no architecture, such as sm_90')
})

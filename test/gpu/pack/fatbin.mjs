/**
 * Cuts a library with device code to some architectures: the code for others becomes zeros, which compress to nothing,
 * and every offset stays what it was. Pure: changes the bytes that it is given.
 *
 * A section `.nv_fatbin` of an ELF file is a row of containers, each a head and entries: machine code (kind 2) or PTX
 * (kind 1) for one architecture. The layout is not documented by NVIDIA; where something is not as expected here,
 * nothing is cut.
 */

const SECTION = '.nv_fatbin'
const MAGIC = 0xba55ed50
const HEAD_BYTES = 16
const ENTRY_BYTES_MIN = 32
const KIND = { ptx: 1, code: 2 }

/** Such as 90 for `sm_90`. @throws {Error} for anything else */
export function architecture(name) {
  const found = /^(?:sm_?)?(\d{2,3})$/.exec(name)
  if (found === null) throw new Error(`${name} is no architecture, such as sm_90`)
  return Number(found[1])
}

/**
 * Offsets and sizes of the sections with this name. @throws {Error} when the file is no ELF of 64 bits, little endian
 */
function sectionsOf(file, name) {
  if (file.length < 64 || file.readUInt32BE(0) !== 0x7f454c46 || file[4] !== 2 || file[5] !== 1)
    throw new Error('no ELF file of 64 bits')
  const table = Number(file.readBigUInt64LE(40))
  const [entry, count, names] = [58, 60, 62].map((at) => file.readUInt16LE(at))
  const section = (i) => {
    const at = table + i * entry
    if (at + 64 > file.length) throw new Error('the section table reaches past the end of the file')
    return {
      name: file.readUInt32LE(at),
      type: file.readUInt32LE(at + 4),
      offset: Number(file.readBigUInt64LE(at + 24)),
      size: Number(file.readBigUInt64LE(at + 32)),
    }
  }
  const strings = section(names).offset
  const wanted = Buffer.from(`${name}\0`)
  const all = Array.from({ length: count }, (_, i) => section(i)).filter((one) =>
    file.subarray(strings + one.name, strings + one.name + wanted.length).equals(wanted),
  )
  for (const { offset, size } of all)
    if (offset + size > file.length) throw new Error(`${name} reaches past the end of the file`)
  return all
}

/** The entries of one container that begins at `at`, and where it ends. */
function container(file, at, end) {
  const first = at + file.readUInt16LE(at + 6)
  const last = first + Number(file.readBigUInt64LE(at + 8))
  if (file.readUInt16LE(at + 4) !== 1 || first < at + HEAD_BYTES || last > end)
    throw new Error(`the container at ${at} is not as expected`)
  const entries = []
  let next = first
  while (next < last) {
    if (next + ENTRY_BYTES_MIN > last) throw new Error(`the entry at ${next} is cut off`)
    const kind = file.readUInt16LE(next)
    const payload = next + file.readUInt32LE(next + 4)
    const over = payload + Number(file.readBigUInt64LE(next + 8))
    if ((kind !== KIND.ptx && kind !== KIND.code) || payload < next + ENTRY_BYTES_MIN || over > last)
      throw new Error(`the entry at ${next} is not as expected`)
    entries.push({ kind, arch: file.readUInt32LE(next + 28), payload, over })
    next = over
  }
  return { entries, over: last }
}

/**
 * Cuts `file` to machine code for `architectures`. PTX stays where a container has no such code: a driver can still
 * compile it.
 *
 * @returns {{ kept: Record<number, number>, cut: Record<number, number> }} bytes by architecture
 * @throws {Error} when the layout is not the expected one, or when there is no code for one of them; nothing is changed
 * then
 */
export function cutFatbins(file, architectures) {
  const bytes = { kept: {}, cut: {} }
  const holes = []
  for (const { offset, size } of sectionsOf(file, SECTION)) {
    const end = offset + size
    let at = offset
    while (at + HEAD_BYTES <= end) {
      if (file.readUInt32LE(at) !== MAGIC) {
        // Containers are aligned, with zeros between them.
        if (file.readUInt32LE(at) !== 0)
          throw new Error(`at ${at} of the file there is neither a container nor padding`)
        at += 4
        continue
      }
      const { entries, over } = container(file, at, end)
      const isWanted = ({ kind, arch }) => kind === KIND.code && architectures.includes(arch)
      const hasCode = entries.some(isWanted)
      for (const one of entries) {
        const stays = isWanted(one) || (one.kind === KIND.ptx && !hasCode)
        const sums = stays ? bytes.kept : bytes.cut
        sums[one.arch] = (sums[one.arch] ?? 0) + one.over - one.payload
        if (!stays) holes.push(one)
      }
      at = over
    }
  }
  const missing = architectures.filter((arch) => !(arch in bytes.kept))
  if (missing.length > 0)
    throw new Error(
      `there is no code for ${missing.map((arch) => `sm_${arch}`).join(', ')}, but for ${
        Object.keys(bytes.cut)
          .map((arch) => `sm_${arch}`)
          .join(', ') || 'none'
      }`,
    )
  for (const { payload, over } of holes) file.fill(0, payload, over)
  return bytes
}

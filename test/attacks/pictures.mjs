/** Files of pictures that lie about their size, are very large, have no end, or are damaged. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { crc32, deflateSync } from 'node:zlib'
import { ROOT } from '../../scripts/setup.mjs'
import { writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'

const PATH = '/v2/models/letterbox/infer'
const HEADERS = { 'content-type': 'image/*', accept: 'application/octet-stream' }
const FIXTURES = join(ROOT, 'crates', 'vision', 'fixtures')
const MIB = 1 << 20

const decoding = server('pictures', {
  models: (root) =>
    writeModel(root, 'letterbox', {
      config:
        'backend: "image"\nmax_batch_size: 8\nparameters { key: "letterbox" value { string_value: "64x64" } }\n' +
        'output [ { name: "TENSOR" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] } ]\n',
    }),
})

const fixture = (name) => readFileSync(join(FIXTURES, name))

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type), data])
  const [length, sum] = [data.length, crc32(body)].map((number) => {
    const out = Buffer.alloc(4)
    out.writeUInt32BE(number)
    return out
  })
  return Buffer.concat([length, body, sum])
}

/** A PNG of 8 bits per channel in colour that announces a size. */
function png(width, height, rows) {
  const head = Buffer.from('00000000000000000802000000', 'hex')
  head.writeUInt32BE(width, 0)
  head.writeUInt32BE(height, 4)
  const signature = Buffer.from('89504e470d0a1a0a', 'hex')
  return Buffer.concat([signature, chunk('IHDR', head), chunk('IDAT', rows), chunk('IEND', Buffer.alloc(0))])
}

/** Bits as the data of a JPEG's scan. */
function entropy(bits) {
  const bytes = bits.match(/.{1,8}/g).map((byte) => Number.parseInt(byte.padEnd(8, '1'), 2))
  return Buffer.from(bytes.flatMap((byte) => (byte === 0xff ? [byte, 0] : [byte])))
}

/**
 * A progressive JPEG in grey whose first scan has all blocks, one bit each, and each further one skips all of them:
 * runs of 32,766 blocks without a value take 15 bits.
 */
function scans(side, count) {
  const blocks = Math.ceil(side / 8) ** 2
  const segment = (marker, ...bytes) => [0xff, marker, 0, bytes.length + 2, ...bytes]
  // Both tables have one code, the bit 0: of no difference, and of a run of at least 2^14.
  const table = (kind, symbol) => segment(0xc4, kind, 1, ...Array.from({ length: 15 }, () => 0), symbol)
  const size = [side >> 8, side & 255]
  const head = Buffer.from([
    0xff,
    0xd8,
    ...segment(0xdb, 0, ...Array.from({ length: 64 }, () => 1)),
    ...segment(0xc2, 8, ...size, ...size, 1, 1, 0x11, 0),
    ...table(0x00, 0),
    ...table(0x10, 0xe0),
  ])
  const scan = (from, to) => Buffer.from(segment(0xda, 1, 1, 0, from, to, 0))
  const skip = entropy('011111111111110'.repeat(Math.ceil(blocks / 32_766)))
  const further = Array.from({ length: count - 1 }, (_, i) => [scan((i % 63) + 1, (i % 63) + 1), skip]).flat()
  return Buffer.concat([head, scan(0, 0), Buffer.alloc(Math.ceil(blocks / 8)), ...further, Buffer.from([0xff, 0xd9])])
}

/** The first frame of a GIF again and again, without an end. */
function frames(bytes, size) {
  const file = bytes.subarray(0, -1)
  const tables = 13 + (file[10] & 0x80 ? 3 * 2 ** ((file[10] & 7) + 1) : 0)
  const frame = file.subarray(tables)
  return Buffer.concat([file, ...Array.from({ length: Math.ceil(size / frame.length) }, () => frame)])
}

/** The same numbers in each run. */
function* numbers() {
  for (let state = 1; ; state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0) yield state >>> 8
}

const files = () => readdirSync(FIXTURES).filter((name) => /\.(?:jpg|png|webp|gif|bmp)$/.test(name))

/** Posts pictures by eight clients, whose answers are among `expected`; resolves with their number by status. */
async function post(t, pictures, expected) {
  const counts = {}
  const waiting = pictures[Symbol.iterator]()
  const client = async () => {
    for (const [name, body] of waiting) {
      const { status, text } = await t.post(PATH, body, HEADERS)
      counts[status] = (counts[status] ?? 0) + 1
      t.check(expected.includes(status), `${name}: ${status} ${text.slice(0, 300)}`)
    }
  }
  await Promise.all(Array.from({ length: 8 }, client))
  return counts
}

const told = (counts) => Object.entries(counts).map(([status, count]) => `${count} × ${status}`)

export const rows = [
  {
    attack:
      'pictures that announce 100,000 × 100,000 and 16,384 × 16,384 pixels and no side, in a head; a PNG of ' +
      '20,000 × 20,000 in 1 MB',
    limit:
      'The size in the head is compared with `pixels_max` and `side_max` (`vision::picture::PictureLimits`, parameters of ' +
      'the model) before memory for pixels is taken.',
    server: decoding,
    async run(t) {
      const before = t.rssMiB()
      const row = deflateSync(Buffer.alloc(1 + 3 * 20_000))
      const bmp = Buffer.from(fixture('24.bmp'))
      bmp.writeInt32LE(100_000, 18)
      const attacks = [
        [png(100_000, 100_000, row), /at most 16384 pixels per side are accepted \(side_max\)/],
        [png(16_384, 16_384, row), /at most 67108864 pixels are accepted \(pixels_max\)/],
        [png(0, 5, row), /cannot be decoded|has no pixels/],
        [png(2 ** 32 - 1, 2 ** 32 - 1, row), /cannot be decoded|side_max/],
        [png(20_000, 20_000, deflateSync(Buffer.alloc(60_001 * 20_000), { level: 1 })), /\(side_max\)/],
        [bmp, /side_max/],
      ]
      for (const [body, expected] of attacks) {
        const answer = await t.post(PATH, body, HEADERS)
        t.check(answer.status === 400 && expected.test(answer.text), `${answer.status} ${answer.text.slice(0, 200)}`)
      }
      const grown = t.rssMiB() - before
      t.check(grown < 64, `resident memory grew by ${grown} MiB`)
      return `${grown} MiB more`
    },
  },
  {
    attack: 'eight PNGs of 200 KB that unpack to 8,000 × 8,000 pixels each, at once',
    limit:
      'They are within `pixels_max`. Memory for pixels is charged while it is held (`memory::Budget`), and instances ' +
      'of the model bound how many are decoded at once.',
    server: decoding,
    async run(t) {
      const bomb = png(8000, 8000, deflateSync(Buffer.alloc(24_001 * 8000)))
      const before = t.rssMiB()
      const { result, worstMs } = await t.health(() =>
        Promise.all(Array.from({ length: 8 }, () => t.post(PATH, bomb, HEADERS))),
      )
      const statuses = result.map(({ status }) => status)
      t.check(
        statuses.every((status) => [200, 400, 429, 503].includes(status)) && statuses.includes(200),
        statuses.join(' '),
      )
      const kept = t.rssMiB() - before
      t.check(kept < 512, `resident memory is ${kept} MiB more`)
      return `statuses ${statuses.join(' ')}, health within ${worstMs.toFixed(0)} ms, ${kept} MiB more`
    },
  },
  {
    attack: 'progressive JPEGs of 64 megapixels with 16, 64 and 5,000 scans, of 80, 130 and 600 KB',
    limit:
      'A JPEG has at most `scans_max` scans, and times its pixels at most `scan_pixels_max` ' +
      '(`vision::picture::PictureLimits`): 16 scans of the largest picture.',
    server: decoding,
    async run(t) {
      for (const count of [64, 5000]) {
        const many = await t.post(PATH, scans(8000, count), HEADERS)
        const isNamed = many.text.includes('at most 16 are accepted (scan_pixels_max)')
        t.check(many.status === 400 && isNamed, `${many.status} ${many.text.slice(0, 200)}`)
      }
      const small = await t.post(PATH, scans(800, 100), HEADERS)
      t.check(small.status === 400 && small.text.includes('(scans_max)'), `${small.status} ${small.text.slice(0, 200)}`)
      const from = performance.now()
      const { result, worstMs } = await t.health(() => t.post(PATH, scans(8000, 16), HEADERS))
      t.check([200, 400].includes(result.status), `${result.status} ${result.text.slice(0, 200)}`)
      const seconds = ((performance.now() - from) / 1000).toFixed(1)
      const why = result.status === 200 ? '' : `: ${JSON.parse(result.text).error}`
      return `16 scans answered ${result.status} after ${seconds} s${why}, health within ${worstMs.toFixed(0)} ms`
    },
  },
  {
    attack: 'a GIF of 60 MiB with frames without an end',
    limit: 'Of an animation, only the first frame is read (`vision::picture`).',
    server: decoding,
    async run(t) {
      const body = frames(fixture(files().find((name) => name.endsWith('.gif'))), 60 * MIB - 4096)
      const { status, text } = await t.post(PATH, body, HEADERS)
      t.check(status === 200, `${status} ${text.slice(0, 200)}`)
      return `answered ${status}`
    },
  },
  {
    attack: 'pictures of each format and variety that end at any place',
    limit: 'What ends before the last pixel is an error that says so (`vision::picture::decode`).',
    server: decoding,
    async run(t) {
      const each = t.volume(20, 200)
      // The first frame of an animation is whole when later ones are cut.
      const single = files().filter((name) => name !== 'animated.gif')
      const cut = single.flatMap((name) => {
        const bytes = fixture(name)
        const ends = Array.from({ length: each }, (_, i) => Math.floor((i / each) * bytes.length))
        return ends.map((end) => [`${name} up to ${end}`, bytes.subarray(0, end)])
      })
      const counts = await post(t, cut, [400])
      return `${cut.length} files: ${told(counts).join(', ')}`
    },
  },
  {
    attack: '1,000 damaged pictures beside health',
    limit:
      'A file cannot end the process: a panic of a decoder is an error of its request (`vision::picture::guard`), and ' +
      'none is known. Decoding never runs on a reactor.',
    server: decoding,
    async run(t) {
      const random = numbers()
      const next = (below) => random.next().value % below
      const names = files()
      const damaged = Array.from({ length: 1000 }, (_, i) => {
        const name = names[i % names.length]
        const bytes = Buffer.from(fixture(name))
        for (let k = 0; k <= i % 8; k += 1) bytes[next(bytes.length)] = next(256)
        return [`${name}, change ${i}`, bytes]
      })
      const { result, worstMs, p99Ms } = await t.health(() => post(t, damaged, [200, 400]))
      return `${told(result).join(', ')}; health within ${worstMs.toFixed(0)} ms, 99 % within ${p99Ms.toFixed(0)} ms`
    },
  },
]

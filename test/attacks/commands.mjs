/**
 * Files that are handed to the commands beside serving: `nereid doctor`, `nereid check`, `nereid init` and
 * `nereid optimize`. They start no server; the one of the runner only looks on.
 */
import { execFile, execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ROOT } from '../../scripts/setup.mjs'
import { fresh, standard } from './lib/servers.mjs'

/** A limit of the kernel's, which does not count the time that others of the machine have. */
const CPU_SECONDS_MAX = 10
const MS_MAX = 60_000

/** Runs a command of the built package; its exit code, output and time. One that takes too long is killed. */
function run(args, cwd, env = {}) {
  const from = performance.now()
  return new Promise((done) => {
    const limits = { cwd, timeout: MS_MAX, maxBuffer: 64 * 1024 * 1024, env: { ...process.env, ...env } }
    const command = [process.execPath, '--max-old-space-size=512', join(ROOT, 'dist/cli/main.js'), ...args]
    execFile(
      'sh',
      ['-c', `ulimit -t ${CPU_SECONDS_MAX} && exec "$@"`, 'sh', ...command],
      limits,
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.signal === null ? error.code : `did not end by itself (${error.signal})`
        done({ code, text: `${stdout}${stderr}`, ms: performance.now() - from })
      },
    )
  })
}

/** Does something in a directory that is gone afterwards. */
async function within(task) {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-attack-commands-'))
  try {
    return await task(directory)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

const ALIASES = [
  'a0: &a0 [x, x, x, x, x, x, x, x, x, x]',
  ...Array.from({ length: 40 }, (_, i) => `a${i + 1}: &a${i + 1} [${`*a${i},`.repeat(10)}]`),
].join('\n')
const SERVICE = 'services: { t: { image: tritonserver, command: '

/** A mapping that merges the one before it twice. */
const MERGE = (i) => `m${i}: &m${i} { <<: [${i === 0 ? '' : `*m${i - 1}, *m${i - 1}`}] }`

/** Name of a file → its text and the exit codes that are right. */
const FILES = {
  'aliases.yaml': [`${ALIASES}\n${SERVICE}*a40, environment: *a40, volumes: *a40 } }\n`, [1]],
  'rings.yaml': ['services: &s { t: { <<: *s, image: tritonserver, command: [tritonserver, *s] } }\n', [1, 2]],
  'merges.yaml': [
    `${Array.from({ length: 200 }, (_, i) => MERGE(i)).join('\n')}\n` +
      `${SERVICE}[tritonserver], ` +
      '<<: *m199 } }\n',
    [1, 2],
  ],
  'levels.yaml': [Array.from({ length: 1300 }, (_, i) => `${' '.repeat(i)}a:`).join('\n'), [2]],
  'lists.yaml': [`services: \n ${'- '.repeat(400_000)}\n`, [2]],
  'questions.yaml': [`${'? '.repeat(400_000)}\n`, [2]],
  'deep.yaml': [`services: ${'['.repeat(900_000)}\n`, [2]],
  'maps.yaml': [`services: ${'{a: '.repeat(200_000)}\n`, [2]],
  'many.yaml': [`${SERVICE}[tritonserver, ${'"--x=1", '.repeat(80_000)}] } }\n`, [1]],
  'doubling.sh': [`A=aaaaaaaa\n${'A="$A$A"\n'.repeat(64)}tritonserver --id=$A\n`, [2]],
  'arrays.sh': [`A=(a a a a)\n${'A=("${A[@]}" "${A[@]}")\n'.repeat(64)}tritonserver "\${A[@]}"\n`, [2]],
  'split.sh': [`A="${'a '.repeat(30_000)}"\ntritonserver ${'$A '.repeat(100_000)}\n`, [2]],
  'templates.yaml': [`kind: Pod\na: "${'{{ x }}'.repeat(120_000)}"\n`, [0, 1, 2]],
  'branches.yaml': [`kind: Pod\n${'{{ if x }}\n'.repeat(80_000)}`, [0, 1, 2]],
  'words.sh': [`tritonserver ${'a '.repeat(400_000)}\n`, [2]],
  'nested.sh': [`tritonserver ${'$('.repeat(400_000)}\n`, [2]],
  'quotes.sh': [`tritonserver ${`'"`.repeat(400_000)}\n`, [1, 2]],
  'documents.sh': [`tritonserver ${'<<E '.repeat(200_000)}\n`, [0, 1, 2]],
  Dockerfile: [`FROM tritonserver\n${'ENV A=$A$A\n'.repeat(5000)}CMD tritonserver\n`, [1, 2]],
  'large.dockerfile': [`FROM tritonserver\n${'ENV A=$A$A\n'.repeat(50_000)}CMD tritonserver\n`, [2]],
  'here.dockerfile': [`FROM tritonserver\n${'RUN <<E1 <<E2\n'.repeat(4600)}`, [0, 1, 2]],
}

/** A library that is nothing but its tables: what it needs, and its names as it says that they are. */
function library(needs, { segments = 2, namesBytes = null } = {}) {
  const names = Buffer.from(`\0${needs.map((name) => `${name}\0`).join('')}`)
  let at = 1
  const needed = needs.map((name) => {
    const entry = [1n, BigInt(at)]
    at += Buffer.byteLength(name) + 1
    return entry
  })
  const dynamic = [...needed, [5n, 0x10000n], [10n, namesBytes ?? BigInt(names.length)], [0n, 0n]]
  const head = Buffer.alloc(64 + 2 * 56)
  head.write('\x7fELF\x02\x01', 'latin1')
  head.writeBigUInt64LE(64n, 32)
  head.writeUInt16LE(56, 54)
  head.writeUInt16LE(segments, 56)
  const tables = Buffer.alloc(16 * dynamic.length)
  for (const [i, entry] of dynamic.entries())
    for (const [j, value] of entry.entries()) tables.writeBigUInt64LE(value, 16 * i + 8 * j)
  const parts = [
    [1, head.length, 0x10000, names.length],
    [2, head.length + names.length, 0, tables.length],
  ]
  for (const [i, [kind, offset, address, bytes]] of parts.entries()) {
    head.writeUInt32LE(kind, 64 + 56 * i)
    for (const [at, value] of [
      [8, offset],
      [16, address],
      [32, bytes],
    ])
      head.writeBigUInt64LE(BigInt(value), 64 + 56 * i + at)
  }
  return Buffer.concat([head, names, tables])
}

export const rows = [
  {
    attack:
      'nereid gpu beside 5,000 packages, libraries that need one another in a ring and 100 deep, need ' +
      '100,000 others, have names of 2^64 bytes or 60,000 segments, and a FIFO in the place of one',
    limit:
      'A directory has at most `ENTRIES_MAX` entries (`backend_onnx::provider::places`), and libraries are followed ' +
      '`DEPTH_MAX` deep. Only tables of a file are read: `SEGMENTS_MAX`, `DYNAMIC_MAX` and `NAMES_BYTES_MAX` ' +
      '(`…::elf`).',
    server: fresh(standard),
    async run(t) {
      return within(async (directory) => {
        const packages = join(directory, 'lib/python3.12/site-packages')
        const capi = join(packages, 'onnxruntime/capi')
        const cuda = join(packages, 'nvidia/cu13/lib')
        for (const path of [capi, cuda]) mkdirSync(path, { recursive: true })
        for (let i = 0; i < 5000; i += 1) mkdirSync(join(packages, `nvidia/p${i}`))
        writeFileSync(join(capi, 'libonnxruntime.so.1'), library([]))
        writeFileSync(join(capi, 'libonnxruntime_providers_shared.so'), library([]))
        for (let i = 0; i < 100; i += 1)
          writeFileSync(join(cuda, `libcudeep${i}.so`), library([`libcudeep${i + 1}.so`]))
        writeFileSync(join(cuda, 'libcuring.so'), library(['libcuring2.so']))
        writeFileSync(join(cuda, 'libcuring2.so'), library(['libcuring.so', 'libcuring2.so']))
        const provider = join(capi, 'libonnxruntime_providers_cuda.so')
        const needed = ['libcudart.so.13', 'libcudeep0.so', 'libcuring.so', '../../libcu.so']
        let worst = 0
        for (const file of [
          library(needed),
          library([...needed, ...Array.from({ length: 100_000 }, (_, i) => `libcu${i}.so`)]),
          library(needed, { namesBytes: 2n ** 64n - 1n }),
          library(needed, { segments: 60_000 }),
          library(needed).subarray(0, 200),
          Buffer.alloc(64),
          null,
        ]) {
          rmSync(provider, { force: true })
          if (file === null) execFileSync('mkfifo', [provider])
          else writeFileSync(provider, file)
          const { code, text, ms } = await run(['gpu'], directory, { VIRTUAL_ENV: directory })
          worst = Math.max(worst, ms)
          t.check(code === 1 && /onnxruntime|ONNX Runtime/i.test(text), `ended with ${code}: ${text.slice(0, 300)}`)
          t.check(!text.includes('defect'), text.slice(0, 300))
        }
        return `worst ${worst.toFixed(0)} ms`
      })
    },
  },
  {
    attack:
      'nereid doctor of YAML whose aliases are 10^40 items, go in rings or merge themselves, of 900,000 ' +
      'brackets, with 120,000 templates, of scripts that double a variable or an array 64 times, and of ' +
      'Dockerfiles with 4,600 here-documents that never end',
    limit:
      'Files have `FILE_BYTES_MAX` (Dockerfiles `DOCKERFILE_BYTES_MAX`), `FOLLOWED_MAX` aliases and ' +
      '`YAML_DEPTH_MAX` brackets; command lines have ' +
      '`WORDS_MAX` words of `WORD_CHARS_MAX` and `ARGUMENTS_MAX`. The output has `FINDINGS_MAX` lines and ' +
      '`EDITS_MAX` changes. The exit code for more is 2.',
    server: fresh(standard),
    async run(t) {
      return within(async (directory) => {
        let worst = 0
        for (const [name, [text, codes]] of Object.entries(FILES)) {
          writeFileSync(join(directory, name), text)
          const { code, text: said, ms } = await run(['doctor', name], directory)
          worst = Math.max(worst, ms)
          t.check(codes.includes(code), `${name}: ${code}: ${said.slice(0, 300)}`)
          t.check(!/\n {4}at /.test(said), `${name}: a defect of our own: ${said.slice(0, 500)}`)
        }
        return `${Object.keys(FILES).length} files, slowest ${worst.toFixed(0)} ms`
      })
    },
  },
  {
    attack:
      'a file of options (`--config`) of aliases of aliases, 65,000 brackets, 32,000 lists in lists, 6,000 ' +
      'keys, one key 9,000 times, 65,000 mistakes and bytes that are not text; a terabyte, a FIFO, a device, ' +
      'a directory and a loop of links in its place',
    limit:
      'It must be a regular file of at most `FILE_BYTES_MAX`, opened without waiting (`src/cli/sources.ts`). ' +
      'Aliases and tags are not followed, a value is a scalar or a list of scalars, and the first unknown or ' +
      'repeated key ends the read. The exit code of an error is 1.',
    server: fresh(standard),
    async run(t) {
      return within(async (directory) => {
        const bytes = 64 * 1024
        const many = (text) => text.repeat(Math.floor(bytes / text.length))
        const alias = (i) =>
          `a${i}: &a${i} [${Array(10)
            .fill(i === 0 ? '*a' : `*a${i - 1}`)
            .join(', ')}]`
        const texts = [
          ['a: &a [x, x]', ...Array.from({ length: 60 }, (_, i) => alias(i))].join('\n'),
          many('['),
          many('- '),
          many('"'),
          many(']'),
          many('id: x\n'),
          Array.from({ length: 6000 }, (_, i) => `k${i}: 1`).join('\n'),
          Buffer.from([0x7f, 0x45, 0xff, 0xfe]),
        ]
        const files = texts.map((text, i) => (writeFileSync(join(directory, `${i}.yaml`), text), `${i}.yaml`))
        execFileSync('mkfifo', [join(directory, 'fifo')])
        symlinkSync('loop', join(directory, 'loop'))
        writeFileSync(join(directory, 'large'), '')
        truncateSync(join(directory, 'large'), 2 ** 40)
        let worst = 0
        for (const file of [...files, 'fifo', 'loop', 'large', '/dev/zero', directory]) {
          const { code, text, ms } = await run(['config'], directory, { NEREID_CONFIG: file })
          worst = Math.max(worst, ms)
          t.check(
            code === 1 && text.length < 2000 && !/\n {4}at /.test(text),
            `${file}: ${code}: ${text.slice(0, 500)}`,
          )
        }
        return `${files.length + 5} files, slowest ${worst.toFixed(0)} ms`
      })
    },
  },
  {
    attack:
      'nereid doctor and nereid check of FIFOs, devices, a terabyte, loops of links, a model.py of 8 GiB, ' +
      'and a config.pbtxt of 16 MB of mistakes',
    limit:
      'Only regular files are opened, without waiting, with at most `FILE_BYTES_MAX`, `CONFIG_BYTES_MAX` and ' +
      '`CODE_BYTES_MAX`. A configuration reports at most `SYNTAX_PROBLEMS_MAX` mistakes.',
    server: fresh(standard),
    async run(t) {
      return within(async (directory) => {
        execFileSync('mkfifo', [join(directory, 'fifo.sh')])
        symlinkSync('/dev/zero', join(directory, 'zero.yaml'))
        symlinkSync('loop.yaml', join(directory, 'loop.yaml'))
        writeFileSync(join(directory, 'large.sh'), '')
        truncateSync(join(directory, 'large.sh'), 2 ** 40)
        for (const name of ['py', 'wrong', 'fifo']) mkdirSync(join(directory, 'models', name, '1'), { recursive: true })
        writeFileSync(join(directory, 'models/py/config.pbtxt'), 'backend: "python"')
        writeFileSync(join(directory, 'models/py/1/model.py'), '')
        truncateSync(join(directory, 'models/py/1/model.py'), 2 ** 33)
        writeFileSync(join(directory, 'models/wrong/config.pbtxt'), 'x: 1\n'.repeat(3_000_000))
        execFileSync('mkfifo', [join(directory, 'models/fifo/config.pbtxt')])
        symlinkSync('.', join(directory, 'models/self'))
        symlinkSync('/', join(directory, 'models/py/everything'))
        let worst = 0
        const expecting = async (args, code, text) => {
          const ran = await run(args, directory)
          worst = Math.max(worst, ran.ms)
          t.check(ran.code === code && text.test(ran.text), `${args.join(' ')}: ${ran.code}: ${ran.text.slice(0, 300)}`)
        }
        for (const name of ['fifo.sh', 'zero.yaml', 'loop.yaml', 'large.sh']) await expecting(['doctor', name], 2, /./)
        await expecting(['doctor', 'models'], 1, /model\.py: 8589934592 bytes, at most/)
        await expecting(['check', 'models'], 1, /config\.pbtxt: Not a regular file/)
        return `slowest ${worst.toFixed(0)} ms`
      })
    },
  },
  {
    attack:
      'nereid optimize with requests that are 60 MB of brackets, 20 million objects, 200 million lines, one line of ' +
      '100 MB, numbers beyond all and shapes of 2^70 elements; a terabyte, a FIFO and a device in their place',
    limit:
      'It must be a regular file of at most `INPUTS_BYTES_MAX`, and `REQUESTS_MAX` of its requests are used. A value ' +
      'has at most `VALUE_BYTES_MAX` bytes and `BRACKETS_MAX` arrays (src/tools/optimize/inputs.ts). Nothing is ' +
      'written before it was read.',
    server: fresh(standard),
    async run(t) {
      return within(async (directory) => {
        const input = (more) =>
          JSON.stringify({ inputs: [{ name: 'INPUT0', datatype: 'INT32', shape: [1, 1], data: [1], ...more }] })
        const files = {
          brackets: '['.repeat(60_000_000),
          deep: '['.repeat(2_000_000),
          objects: `[${'{},'.repeat(20_000_000)}{}]`,
          lines: '\n'.repeat(200_000_000),
          requests: '{}\n'.repeat(50_000_000),
          long: `[${' '.repeat(100_000_000)}`,
          beyond: '{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,1],"data":[1e999]}]}',
          shape: input({ shape: [2 ** 40, 2 ** 30] }),
          nested: input({ data: 'D' }).replace('"D"', `${'['.repeat(1e6)}1${']'.repeat(1e6)}`),
          kinds: input({ data: [null] }),
          binary: '\u0000'.repeat(50_000_000),
        }
        for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)
        writeFileSync(join(directory, 'terabyte'), '')
        truncateSync(join(directory, 'terabyte'), 2 ** 40)
        execFileSync('mkfifo', [join(directory, 'fifo')])
        symlinkSync('/dev/zero', join(directory, 'device'))
        const model = join(ROOT, 'examples/models/simple')
        let worst = 0
        for (const name of [...Object.keys(files), 'terabyte', 'fifo', 'device']) {
          const { code, text, ms } = await run(['optimize', model, `--inputs=${name}`, '--out=out'], directory)
          t.check(code === 1 && text.startsWith('error: '), `${name}: ${code} ${text.slice(0, 300)}`)
          t.check(text.length < 1000, `${name}: ${text.length} characters of error`)
          t.check(!existsSync(join(directory, 'out')), `${name}: something was written`)
          worst = Math.max(worst, ms)
        }
        return `${Math.round(worst)} ms`
      })
    },
  },
  {
    attack:
      'nereid init and nereid check of ONNX files with graphs 100,000 deep, of 40 million fields, of a ' +
      'terabyte of zeros, with data in /etc/passwd, in a FIFO and in a ring of links; of a FIFO, and of a ' +
      'directory of 5,000 files',
    limit:
      'Limits are `DEPTH_MAX`, `FIELDS_MAX`, `TEXT_BYTES_MAX`, `NAMES_MAX` and `FILES_MAX` of ' +
      "src/repository/onnx_file.ts. Data files must be regular files below the model's directory, with links " +
      'resolved. Copies must fit on the disk.',
    server: fresh(standard),
    async run(t) {
      return within(async (directory) => {
        const varint = (n) => (n < 128 ? [n] : [(n % 128) + 128, ...varint(Math.floor(n / 128))])
        const field = (number, body) => Buffer.concat([Buffer.from([number * 8 + 2, ...varint(body.length)]), body])
        const external = (location) => {
          const entry = Buffer.concat([field(1, Buffer.from('location')), field(2, Buffer.from(location))])
          return field(7, field(5, field(13, entry)))
        }
        // From the inside out, each length in front: graphs in attributes of nodes of graphs.
        const heads = []
        let length = 0
        for (let i = 0; i < 300_000; i += 1) {
          const head = Buffer.from([[6, 5, 1][i % 3] * 8 + 2, ...varint(length)])
          heads.push(head)
          length += head.length
        }
        const deep = Buffer.concat([Buffer.from([7 * 8 + 2, ...varint(length)]), ...heads.reverse()])
        const files = {
          deep,
          fields: Buffer.alloc(80_000_000, Buffer.from([8, 0])),
          empty: Buffer.alloc(0),
          passwd: external('/etc/passwd'),
          up: external('../../../../etc/passwd'),
        }
        for (const [name, bytes] of Object.entries({
          ...files,
          fifo: external('pipe'),
          ring: external('ring.bin'),
          null: external('a\0b'),
        }))
          writeFileSync(join(directory, `${name}.onnx`), bytes)
        writeFileSync(join(directory, 'zeros.onnx'), '')
        truncateSync(join(directory, 'zeros.onnx'), 2 ** 40)
        execFileSync('mkfifo', [join(directory, 'pipe'), join(directory, 'model.onnx')])
        symlinkSync('ring.bin', join(directory, 'ring.bin'))
        mkdirSync(join(directory, 'many'))
        for (let i = 0; i < 5000; i += 1) writeFileSync(join(directory, 'many', `${i}`), '')
        writeFileSync(join(directory, 'many/model.py'), '')
        const wanted = {
          'deep.onnx': /nested more than/,
          'fields.onnx': /more than \d+ fields/,
          'zeros.onnx': /it is not protobuf/,
          'empty.onnx': /./,
          'passwd.onnx': /there is no file|is not below/,
          'up.onnx': /is not below|there is no file/,
          'fifo.onnx': /is not a regular file/,
          'ring.onnx': /there is no file/,
          'null.onnx': /there is no file/,
          'model.onnx': /is not a regular file/,
          many: /more than \d+ files/,
        }
        let worst = 0
        for (const [name, text] of Object.entries(wanted)) {
          const ran = await run(['init', name, '--out=out'], directory)
          worst = Math.max(worst, ran.ms)
          t.check(ran.code === 1 && text.test(ran.text), `${name}: ${ran.code}: ${ran.text.slice(0, 300)}`)
        }
        // The same files as models of a repository.
        for (const name of Object.keys(wanted).filter((one) => one.endsWith('.onnx'))) {
          const version = join(directory, 'checked', name.slice(0, -5), '1')
          mkdirSync(version, { recursive: true })
          symlinkSync(join(directory, name), join(version, 'model.onnx'))
          symlinkSync(join(directory, 'pipe'), join(version, 'pipe'))
        }
        const checked = await run(['check', 'checked'], directory)
        worst = Math.max(worst, checked.ms)
        for (const name of ['zeros', 'empty', 'passwd', 'up', 'fifo', 'ring', 'null', 'model'])
          t.check(
            new RegExp(`checked/${name}\\b.*: error: `).test(checked.text),
            `${name}: ${checked.text.slice(0, 2000)}`,
          )
        t.check(
          checked.code === 1 && !/\n {4}at /.test(checked.text),
          `check: ${checked.code}: ${checked.text.slice(0, 2000)}`,
        )
        return `slowest ${worst.toFixed(0)} ms`
      })
    },
  },
]

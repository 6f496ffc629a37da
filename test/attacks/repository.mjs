/** Repositories that hold what is no model, and requests that change them with more text than anybody reads. */
import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { addSub } from '../../scripts/models/graphs.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { call, field, framed, smallFields } from './lib/call.mjs'
import { fresh, server } from './lib/servers.mjs'
import { pause, until } from './lib/wait.mjs'

const MODEL = config('identity', 0, [['INPUT0', 'TYPE_INT32', [16]]], [['OUTPUT0', 'TYPE_INT32', [16]]])
const LABELLED = config(
  'identity',
  0,
  [['INPUT0', 'TYPE_INT32', [16]]],
  [['OUTPUT0', 'TYPE_INT32', [16], 'label_filename: "labels.txt"']],
)
const fifo = (path) => execFileSync('mkfifo', [path])

/** Model name → how it is made in its directory, and what its load says. */
const ODD = {
  config_fifo: [(at) => fifo(join(at, 'config.pbtxt')), /failed to poll from model repository/],
  config_directory: [(at) => mkdirSync(join(at, 'config.pbtxt')), /failed to poll from model repository/],
  config_device: [(at) => symlinkSync('/dev/zero', join(at, 'config.pbtxt')), /failed to poll from model repository/],
  config_loop: [(at) => symlinkSync('config.pbtxt', join(at, 'config.pbtxt')), /failed to poll from model repository/],
  config_terabyte: [
    (at) => {
      writeFileSync(join(at, 'config.pbtxt'), '')
      truncateSync(join(at, 'config.pbtxt'), 2 ** 40)
    },
    /failed to poll from model repository/,
  ],
  labels_fifo: [
    (at) => (writeFileSync(join(at, 'config.pbtxt'), LABELLED), fifo(join(at, 'labels.txt'))),
    /labels\.txt: Not a regular file/,
  ],
  labels_device: [
    (at) => (writeFileSync(join(at, 'config.pbtxt'), LABELLED), symlinkSync('/dev/zero', join(at, 'labels.txt'))),
    /labels\.txt: Not a regular file/,
  ],
  model_fifo: [
    (at) => fifo(join(at, '1/model.onnx')),
    /is a FIFO; a version directory may hold files and directories only/,
  ],
  weights_fifo: [
    (at) => (writeFileSync(join(at, '1/model.onnx'), addSub()), fifo(join(at, '1/weights'))),
    /is a FIFO; a version directory may hold files and directories only/,
  ],
  model_device: [(at) => symlinkSync('/dev/zero', join(at, '1/model.onnx')), /is a device; a version directory/],
  model_socket: [
    async (at) => {
      const listener = createServer()
      await new Promise((done) => listener.listen(join(at, '1/model.onnx'), done))
      listener.unref()
    },
    /is a socket; a version directory/,
  ],
  version_fifo: [
    (at) => (
      rmSync(join(at, '1'), { recursive: true }),
      fifo(join(at, '1')),
      writeFileSync(join(at, 'config.pbtxt'), MODEL)
    ),
    /at least one version/,
  ],
  // Two ways back at each of three levels: 2^32 paths for a walk that follows them all.
  loops: [
    (at) => {
      writeFileSync(join(at, 'config.pbtxt'), MODEL)
      for (const inner of ['1/a', '1/a/b']) mkdirSync(join(at, inner))
      for (const inner of ['1', '1/a', '1/a/b']) for (const link of ['x', 'y']) symlinkSync(at, join(at, inner, link))
    },
    null,
  ],
  // Every file of the machine, as a part of the model.
  root_link: [(at) => (writeFileSync(join(at, 'config.pbtxt'), MODEL), symlinkSync('/', join(at, 'everything'))), null],
}

async function writeOdd(root) {
  for (const [name, [make]] of Object.entries(ODD)) {
    mkdirSync(join(root, name, '1'), { recursive: true })
    await make(join(root, name))
  }
  symlinkSync('itself', join(root, 'itself'))
  fifo(join(root, 'no_model'))
}

/** Name of the file that a model has summed → how it is made, and what the log says. */
const SUMMED = {
  fifo: [fifo, /read fifo: Not a regular file/],
  device: [(at) => symlinkSync('/dev/zero', at), /read device: it is outside the model's directory/],
  passwd: [(at) => symlinkSync('/etc/passwd', at), /read passwd: it is outside the model's directory/],
  terabyte: [
    (at) => (writeFileSync(at, ''), truncateSync(at, 2 ** 40)),
    /the checksum of file terabyte, which has 1099511627776 bytes, is too much/,
  ],
  long: [(at) => (writeFileSync(at, ''), truncateSync(at, 2 ** 31)), /Mismatched MD5 hash for file long, expect: 0/],
}
const summed = (names) =>
  `${MODEL} model_repository_agents { agents [ { name: "checksum" ` +
  `${names.map((name) => `parameters { key: "MD5:${name}" value: "0" }`).join(' ')} } ] }`

function writeSummed(root) {
  for (const [name, [make]] of Object.entries(SUMMED)) {
    writeModel(root, `sum_${name}`, { config: summed([name]) })
    make(join(root, `sum_${name}`, name))
  }
  writeModel(root, 'sum_leaves', { config: summed(['../../../../../../../etc/passwd']) })
  writeModel(root, 'sum_many', {
    config: summed(Array.from({ length: 40_000 }, (_, i) => `config.pbtxt${'/.'.repeat(i % 7)}${i}`)),
  })
  writeModel(root, 'sum_agents', {
    config: `${MODEL} model_repository_agents { agents [ ${Array(30_000).fill('{ name: "checksum" }').join(',')} ] }`,
  })
}

const explicit = server('odd files', {
  flags: ['--model-control-mode=explicit', '--load-model=simple'],
  models: async (root) => (writeSummed(root), writeOdd(root)),
})
const polling = fresh(
  server('odd files, polled', {
    flags: [
      '--exit-on-error=false',
      '--strict-readiness=false',
      '--model-control-mode=poll',
      '--repository-poll-secs=1',
    ],
    models: writeOdd,
  }),
)

const huge = fresh(
  server('large requests', {
    flags: ['--model-control-mode=explicit', '--load-model=simple', '--http-max-input-size=2000000000'],
  }),
)

/** Where the server of the last row keeps the files of overrides. */
const temporary = mkdtempSync(join(tmpdir(), 'nereid-attack-tmp-'))
process.once('exit', () => rmSync(temporary, { recursive: true, force: true }))
const crashed = fresh(
  server('after a crash', {
    flags: ['--model-control-mode=explicit', '--load-model=simple'],
    env: { TMPDIR: temporary },
    models: () => {
      const namespace = /\d+/.exec(execFileSync('readlink', ['/proc/self/ns/pid']).toString())[0]
      for (let i = 10; i < 60; i++)
        writeModel(temporary, `nereid-model-${namespace}-49999${i}-1-left${i}`, { versions: { 1: addSub() } })
    },
  }),
)

const MILLION = 1_000_000

export const rows = [
  {
    attack:
      'FIFOs, sockets, devices, directories, a terabyte and links that lead back, as config.pbtxt, labels, ' +
      'versions and model files',
    limit:
      'Only regular files are opened, without waiting, with at most `CONFIG_BYTES_MAX` and `LABEL_BYTES_MAX`. A ' +
      'walk enters a directory once and reads at most `ENTRIES_MAX` entries.',
    server: explicit,
    async run(t) {
      let worst = 0
      for (const [name, [, text]] of Object.entries(ODD)) {
        const from = performance.now()
        const answer = await t.post(`/v2/repository/models/${name}/load`, '{}')
        worst = Math.max(worst, performance.now() - from)
        const right = text === null ? answer.status === 200 : answer.status !== 200 && text.test(answer.text)
        t.check(right, `${name}: ${answer.status} ${answer.text.slice(0, 300)}`)
      }
      t.check(worst < 20_000, `the slowest load took ${worst} ms`)
      return `${Object.keys(ODD).length} models, slowest answer ${worst.toFixed(0)} ms`
    },
  },
  {
    attack: 'the same repository at start, and polled each second beside health requests',
    limit: 'A model that cannot be read is reported and left out. The walk of a poll is limited (`ENTRIES_MAX`).',
    server: polling,
    waits: true,
    async run(t) {
      // Two polls.
      const { worstMs } = await t.health(() => pause(2500))
      const index = JSON.parse((await t.post('/v2/repository/index', '{}')).text)
      t.check(
        index.some((m) => m.name === 'simple' && m.state === 'READY'),
        'simple is not ready',
      )
      t.check(
        !index.some((m) => m.name === 'itself' || m.name === 'no_model'),
        'a loop of links or a FIFO is listed as a model',
      )
      return `slowest health ${worstMs.toFixed(0)} ms`
    },
  },
  {
    attack: 'checksums of FIFOs, devices, files of the machine, a terabyte, 2 GiB, 40,000 files and by 30,000 agents',
    limit:
      "Files must be regular files inside the model's directory. A load has at most `CHECKSUM_BYTES_MAX` and " +
      '`CHECKSUM_FILES_MAX`, with at most `AGENTS_MAX` agents. Other requests are answered between the parts of a ' +
      'file.',
    server: explicit,
    measures: true,
    async run(t) {
      truncateSync(join(t.root, 'sum_long', 'long'), t.volume(2 ** 28, 2 ** 31))
      const refused = async (name, text) => {
        const printed = t.printedBytes
        const answer = await t.post(`/v2/repository/models/sum_${name}/load`, '{}')
        t.check(
          answer.text.includes('failed to poll from model repository'),
          `${name}: ${answer.status} ${answer.text}`,
        )
        // The log may come after the answer.
        const isTold = await until(() => text.test(t.printedSince(printed)), { seconds: 5, everyMs: 2 })
        t.check(isTold, `${name}: ${t.printedSince(printed).slice(0, 500)}`)
      }
      for (const [name, [, text]] of Object.entries(SUMMED)) if (name !== 'long') await refused(name, text)
      await refused('leaves', /it is outside the model's directory/)
      await refused('many', /40000 checksums, at most 1024 are checked for one model/)
      await refused('agents', /30000 repository agents, at most 64 are run for one model/)
      // The one that takes long is no reason for others to wait.
      const sum = { isOver: false }
      const long = refused('long', SUMMED.long[1]).finally(() => (sum.isOver = true))
      let worst = 0
      let asked = 0
      for (; !sum.isOver; asked++) {
        const from = performance.now()
        await t.post('/v2/repository/index', '{}')
        worst = Math.max(worst, performance.now() - from)
      }
      await long
      const size = `${t.volume('256 MiB', '2 GiB')}`
      t.check(asked > 10, `the index was answered ${asked} times beside a sum of ${size}`)
      t.check(worst < 500, `the index took ${worst} ms beside a sum`)
      return `the index takes ≤ ${worst.toFixed(0)} ms beside a sum of ${size}`
    },
  },
  {
    attack: 'names, configurations and values of 20 MB, and millions of values, in requests that change the repository',
    limit:
      'Error texts end after 4 KiB (`ERROR_BYTES_MAX`, `ERROR_CHARS_MAX`), and quotes after `QUOTE_CHARS_MAX`. ' +
      'Overrides have at most `CONFIG_BYTES_MAX` and `CONFIG_VALUES_MAX`.',
    server: explicit,
    async run(t) {
      const long = 'x'.repeat(20 * MILLION)
      const load = (overriding, model = 'simple') =>
        t.post(`/v2/repository/models/${model}/load`, JSON.stringify({ parameters: { config: overriding } }))
      writeModel(t.root, 'long_text', { config: `backend: "identity" max_batch_size: ${'9'.repeat(15 * MILLION)}` })
      writeModel(t.root, 'long_name', { config: `backend: "identity" name: "${'n'.repeat(15 * MILLION)}"` })
      writeModel(t.root, 'long_field', { config: 'f'.repeat(15 * MILLION) })
      writeModel(t.root, 'many_versions', {
        config:
          `${MODEL} version_policy { specific { versions: [ ` +
          `${Array.from({ length: 90_000 }, (_, i) => i + 5).join(',')} ] } }`,
      })
      const printed = t.printedBytes
      let bytes = 0
      let worst = 0
      const asks = [
        () => load(long),
        () => load(`{"${long.slice(6 * MILLION)}":1}`),
        () => load(`{"name":"${long.slice(6 * MILLION)}"}`),
        () => load(`{"max_batch_size":"${long.slice(6 * MILLION)}"}`),
        () => load(`{"input":[{"dims":[${'1,'.repeat(7 * MILLION)}]}]}`),
        () => load(`{"input":[${'{},'.repeat(5 * MILLION)}]}`),
        () => load(JSON.stringify({ backend: 'identity', metric_tags: { a: 'x'.repeat(MILLION) } })),
        () => load(`{"backend":"identity","parameters":{"${long.slice(6 * MILLION)}":3}}`),
        ...['long_text', 'long_name', 'long_field', 'many_versions'].map(
          (name) => () => t.post(`/v2/repository/models/${name}/load`, '{}'),
        ),
        () => t.post('/v2/repository/models/simple/load', JSON.stringify({ parameters: { [long]: 'x' } })),
        () =>
          t.post(
            '/v2/repository/models/simple/load',
            JSON.stringify({ parameters: { config: '{}', [`file:../${long}`]: '' } }),
          ),
        () =>
          t.post(
            `/v2/models/simple/infer`,
            JSON.stringify({ inputs: [{ name: long, shape: [1], datatype: 'INT32', data: [1] }] }),
          ),
        () => t.post(`/v2/models/simple/infer`, JSON.stringify({ id: long, inputs: [] })),
        () => t.post(`/v2/systemsharedmemory/region/x/register`, JSON.stringify({ key: long, byte_size: 1 })),
        () => t.post(`/v2/trace/setting`, JSON.stringify({ trace_rate: long })),
        () => t.post(`/v2/logging`, JSON.stringify({ log_format: long })),
      ]
      for (const [i, ask] of asks.entries()) {
        const from = performance.now()
        const answer = await ask()
        worst = Math.max(worst, performance.now() - from)
        bytes = Math.max(bytes, answer.text.length)
        t.check(answer.status >= 400, `request ${i}: ${answer.status}`)
      }
      const logged = t.printedBytes - printed
      t.check(bytes < 8192, `an answer of ${bytes} bytes`)
      t.check(logged < 256 * 1024, `${logged} bytes of log`)
      return `largest answer ${bytes} bytes, ${(logged / 1024).toFixed(0)} KiB of log, slowest ${worst.toFixed(0)} ms`
    },
  },
  {
    attack: 'a configuration in a load request whose bytes are not UTF-8',
    limit: 'Such text is rejected before any decoder reads it (`frontend::text`).',
    server: explicit,
    async run(t) {
      const body = Buffer.from(
        String.raw`{"parameters":{"config":"{\"backend\":\"identity\",\"metric_tags\":{\"a\":\"caf?\"}}"}}`,
      )
      body[body.indexOf('?')] = 0xe9
      const answer = await t.post('/v2/repository/models/simple/load', body)
      t.check(answer.status === 400 && answer.text.includes('not UTF-8'), `${answer.status} ${answer.text}`)
      return 'refused'
    },
  },
  {
    attack: 'a load request with a file of 450 MB',
    limit:
      'The argument of a control operation has at most 256 MiB, with files and their names (`ARGUMENT_BYTES_MAX` in ' +
      'crates/node). A JavaScript string has at most 512 MiB.',
    server: huge,
    async run(t) {
      const body = Buffer.concat([
        Buffer.from('{"parameters":{"config":"{}","file:1/model.onnx":"'),
        Buffer.alloc(t.volume(400, 600) * MILLION, 'A'),
        Buffer.from('"}}'),
      ])
      const answer = await t.post('/v2/repository/models/simple/load', body)
      t.check(answer.status >= 400, `${answer.status} ${answer.text}`)
      return answer.text.slice(0, 80)
    },
  },
  {
    attack: 'load requests with 1,000,000 files, over HTTP and gRPC, and with one whose name has 300 MB',
    limit:
      'Files are counted before they become JavaScript objects (`frontend::limits::LOAD_FILES_MAX`), and their ' +
      'names count with their contents (`ARGUMENT_BYTES_MAX` in crates/node).',
    server: huge,
    async run(t) {
      const load = (parameters) =>
        call(t.grpcPort, 'RepositoryModelLoad', framed(Buffer.concat([field(2, 'simple'), parameters])))
      const refused = /file parameters, at most 1024 are taken/
      let files = ''
      for (let i = 0; i < MILLION; i += 1) files += `,"file:${i}":""`
      const overHttp = await t.post('/v2/repository/models/simple/load', `{"parameters":{"config":"{}"${files}}}`)
      t.check(overHttp.status === 400 && refused.test(overHttp.text), `${overHttp.status} ${overHttp.text}`)
      const overGrpc = await load(
        smallFields(MILLION, (small, i) => small(3, small(1, `file:${i}`) + small(2, small(4, '')))),
      )
      t.check(overGrpc.status === 3 && refused.test(overGrpc.message), `${overGrpc.status} ${overGrpc.message}`)
      const name = field(1, Buffer.alloc(300 * MILLION, 'file:'))
      const long = await load(field(3, Buffer.concat([name, field(2, field(4, ''))])))
      t.check(long.status === 3 && /at most 268435456 are taken/.test(long.message), `${long.status} ${long.message}`)
      return 'refused'
    },
  },
  {
    attack: 'fifty directories of models that crashed processes were given as files',
    limit:
      'A directory has the id of its process, and the next start removes directories of dead processes ' +
      '(`sweepOverrides`).',
    server: crashed,
    async run(t) {
      const left = () => readdirSync(temporary).filter((name) => name.startsWith('nereid-model-'))
      t.check(left().length === 0, `${left().length} directories are still there`)
      const parameters = {
        config: JSON.stringify({ backend: 'onnxruntime' }),
        'file:1/model.onnx': Buffer.from(addSub()).toString('base64'),
      }
      const answer = await t.post('/v2/repository/models/given/load', JSON.stringify({ parameters }))
      t.check(answer.status === 200, `${answer.status} ${answer.text.slice(0, 300)}`)
      t.check(
        left().length === 1 && existsSync(join(temporary, left()[0], '1/model.onnx')),
        `${left().length} directories of the loaded model`,
      )
      await t.post('/v2/repository/models/given/unload', '{}')
      t.check(left().length === 0, 'the directory outlives its model')
      return '50 removed at start'
    },
  },
]

/**
 * What Triton's security bulletins tell of, tried on this server over its sockets: rows for classes that no other area
 * tries. docs/security/vulnerabilities.md names for each CVE the test that shows what becomes of it
 * (test/exposed/cves.mjs).
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { connect } from 'node:http2'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { call, field, framed, smallFields, varint } from './lib/call.mjs'
import { keyOf } from './lib/regions.mjs'
import { server } from './lib/servers.mjs'
import { pause, until } from './lib/wait.mjs'

const MIB = 1 << 20
const SIMPLE = '/v2/models/simple/infer'
const FLOAT = '/v2/models/identity_fp32/infer'
/** Contents of a file that no client may read, in a directory where no client may write. */
const SECRET = 'nobody-may-read-this'
const outside = mkdtempSync(join(tmpdir(), 'nereid-outside-'))
process.once('exit', () => rmSync(outside, { recursive: true, force: true }))
writeFileSync(join(outside, 'secret.txt'), `${SECRET}\n`)
const name = basename(outside)

const FLOATS = (more = '') => [['OUTPUT0', 'TYPE_FP32', [3], more]]
const labelled = (path) => config('identity', 0, [['INPUT0', 'TYPE_FP32', [3]]], FLOATS(`label_filename: "${path}"`))
/** Files that configurations in the repository name, elsewhere on this machine. */
const ELSEWHERE = {
  labels_up: labelled(`../../${name}/secret.txt`),
  labels_absolute: labelled(join(outside, 'secret.txt')),
  model_up:
    `${config('onnxruntime', 0, [['INPUT0', 'TYPE_INT32', [16]]], [['OUTPUT0', 'TYPE_INT32', [16]]])}` +
    `default_model_filename: "../../../${name}/secret.txt"\n`,
  warmup_up:
    `${config('identity', 0, [['INPUT0', 'TYPE_FP32', [3]]], FLOATS())}model_warmup [ { name: "w" batch_size: ` +
    '1 inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 3 ] input_data_file: ' +
    `"../../../${name}/secret.txt" } } } ]\n`,
  dali: config('dali', 8, [['INPUT0', 'TYPE_FP32', [3]]], FLOATS()),
}

const trusting = server('models over the network, and shared memory', {
  flags: [
    '--model-control-mode=explicit',
    '--load-model=simple',
    '--load-model=identity_fp32',
    '--load-model=identity_uint8',
    '--load-model=square',
    '--allow-client-shm=true',
    '--log-verbose=1',
  ],
  models: (root) => {
    for (const [model, text] of Object.entries(ELSEWHERE)) writeModel(root, model, { config: text })
    writeModel(root, 'square', {
      config:
        `${config('square', 0, [['IN', 'TYPE_INT32', [1]]], [['OUT', 'TYPE_INT32', [1]]])}model_transaction_policy ` +
        '{ decoupled: true }\n',
    })
  },
})

const LOG = join(outside, 'log')
const logged = server('a log of everything', {
  flags: [
    '--model-control-mode=explicit',
    '--load-model=*',
    '--allow-client-shm=true',
    '--log-verbose=1',
    `--log-file=${LOG}`,
  ],
})

const load = (t, model, body = '{}') =>
  t.post(`/v2/repository/models/${model}/load`, typeof body === 'string' ? body : JSON.stringify(body))
const content = Buffer.from('planted').toString('base64')
const IDENTITY = JSON.stringify({
  backend: 'identity',
  input: [{ name: 'INPUT0', data_type: 'TYPE_FP32', dims: [3] }],
  output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [3] }],
})

/** A load over gRPC with one file. */
function loadOverGrpc(t, model, file) {
  const parameter = (key, value) => field(3, Buffer.concat([field(1, key), field(2, value)]))
  return call(
    t.grpcPort,
    'RepositoryModelLoad',
    framed(
      Buffer.concat([field(2, model), parameter('config', field(3, IDENTITY)), parameter(file, field(4, 'planted'))]),
    ),
  )
}

/** One request as it stands, over a connection of its own; what came back until its end. */
async function whole(t, request, ms = 20_000) {
  const socket = await t.socket()
  void socket.send(request)
  await socket.endsWithin(ms)
  socket.destroy()
  return socket.received.toString('latin1')
}

const request = (method, path, body, ...headers) =>
  Buffer.concat([
    Buffer.from([`${method} ${path} HTTP/1.1`, 'Host: x', 'Connection: close', ...headers, '', ''].join('\r\n')),
    Buffer.from(body),
  ])

/** Every route that reads a body. */
const BODIES = [
  SIMPLE,
  '/v2/models/simple/generate',
  '/v2/models/simple/generate_stream',
  '/v2/repository/index',
  '/v2/repository/models/simple/load',
  '/v2/repository/models/nothing/unload',
  '/v2/logging',
  '/v2/trace/setting',
  '/v2/models/simple/trace/setting',
  '/v2/systemsharedmemory/region/r/register',
  '/v2/cudasharedmemory/region/r/register',
]

const f32 = (shape, data = [1, 2, 3], more = {}) =>
  JSON.stringify({ inputs: [{ name: 'INPUT0', shape, datatype: 'FP32', data, ...more }] })

export const rows = [
  {
    attack:
      'files of load requests with paths outside the model, and names of models that are paths, over HTTP and gRPC',
    limit:
      "Paths are normalised and must stay in the model's directory, which is new for each load; a name with a " +
      'slash is rejected (`src/repository/override.ts`).',
    server: trusting,
    async run(t) {
      const paths = [
        '../evil',
        '../../evil',
        '1/../../evil',
        `../${name}/evil`,
        join(outside, 'evil'),
        `1/../../../${name}/evil`,
        '..',
        '.',
        '',
        './../evil',
        '1/',
        '/etc/nereid-evil',
        'a\0/../../evil',
      ]
      const before = readdirSync(t.root).sort().join()
      for (const path of paths) {
        const answer = await load(t, 'given', { parameters: { config: IDENTITY, [`file:${path}`]: content } })
        const over = await loadOverGrpc(t, 'given', `file:${path}`)
        // One that begins with a slash lies below the directory all the same.
        if (path.startsWith('/')) continue
        t.check(answer.status >= 400, `HTTP, ${JSON.stringify(path)}: ${answer.status} ${answer.text.slice(0, 200)}`)
        t.check(over.status !== 0, `gRPC, ${JSON.stringify(path)}: ${over.status} ${over.message.slice(0, 200)}`)
      }
      const names = ['..', '.', '../simple', `../${name}`, 'a/../../simple', '/etc', 'simple/1', 'simple\0', '']
      for (const model of names) {
        const over = await call(t.grpcPort, 'RepositoryModelLoad', framed(field(2, model)))
        t.check(over.status !== 0, `a model ${JSON.stringify(model)} was loaded`)
        const given = await loadOverGrpc(t, model, 'file:1/evil')
        t.check(given.status !== 0, `a model ${JSON.stringify(model)} was loaded with files`)
      }
      for (const path of ['..%2f..%2fetc', '%2e%2e', '..', '%00', 'simple%2f1']) {
        const answer = await whole(t, request('POST', `/v2/repository/models/${path}/load`, '{}', 'Content-Length: 2'))
        t.check(/^HTTP\/1\.1 [45]/.test(answer), `${path}: ${answer.slice(0, 100)}`)
      }
      t.check(readdirSync(t.root).sort().join() === before, `the repository has ${readdirSync(t.root)}`)
      t.check(
        !existsSync(join(outside, 'evil')) && !existsSync(join(tmpdir(), 'evil')) && !existsSync('/etc/nereid-evil'),
        'a file was written elsewhere',
      )
      return `${paths.length} paths, ${names.length} names`
    },
  },
  {
    attack:
      'labels, models and warm-up data of configurations with paths outside the model; a backend that does not exist',
    limit:
      "A path of a configuration must stay in the model's own directory (`src/config/labels.ts`, " +
      '`engine::data_file`). No answer contains text of other files.',
    server: trusting,
    async run(t) {
      for (const model of Object.keys(ELSEWHERE)) {
        const answer = await load(t, model)
        t.check(answer.status === 400, `${model}: ${answer.status} ${answer.text.slice(0, 200)}`)
        t.check(!answer.text.includes(SECRET), `${model}: the answer has the file in it`)
      }
      const given = (label) => ({
        ...JSON.parse(IDENTITY),
        output: [{ name: 'OUTPUT0', data_type: 'TYPE_FP32', dims: [3], label_filename: label }],
      })
      for (const label of [
        `../../${name}/secret.txt`,
        join(outside, 'secret.txt'),
        '../../../../../../../../etc/passwd',
        '/proc/self/environ',
      ]) {
        const answer = await load(t, 'given', {
          parameters: { config: JSON.stringify(given(label)), 'file:1/x': content },
        })
        t.check(answer.status === 400, `${label}: ${answer.status}`)
        const classes = await t.post(
          '/v2/models/given/infer',
          JSON.stringify({
            inputs: [{ name: 'INPUT0', shape: [3], datatype: 'FP32', data: [1, 2, 3] }],
            outputs: [{ name: 'OUTPUT0', parameters: { classification: 3 } }],
          }),
        )
        t.check(
          !classes.text.includes(SECRET) && !classes.text.includes('root:'),
          `${label}: classes are lines of the file`,
        )
      }
      return `${Object.keys(ELSEWHERE).length + 4} models refused`
    },
  },
  {
    attack: 'names of models for a shell, in load requests with code',
    limit:
      'The server uses no shell. Python models whose names have shell characters are rejected ' +
      '(`backend_python::code`).',
    server: trusting,
    async run(t) {
      const planted = join(outside, 'planted')
      const names = [
        `x;touch ${planted}`,
        `$(touch ${planted})`,
        `\`touch ${planted}\``,
        `x|touch ${planted}`,
        `x&touch ${planted}`,
        `x\ntouch ${planted}`,
        `-c touch`,
        "';touch x;'",
      ]
      for (const model of names) {
        const python = JSON.stringify({ backend: 'python', parameters: {} })
        const parameter = (key, value) => field(3, Buffer.concat([field(1, key), field(2, value)]))
        const body = Buffer.concat([
          field(2, model),
          parameter('config', field(3, python)),
          parameter('file:1/model.py', field(4, 'raise SystemExit\n')),
        ])
        const over = await call(t.grpcPort, 'RepositoryModelLoad', framed(body))
        t.check(over.status !== 0, `${JSON.stringify(model)} was loaded`)
        t.check(!existsSync(planted), `${JSON.stringify(model)} reached a shell`)
      }
      return `${names.length} names refused`
    },
  },
  {
    attack: 'three megabytes in chunks of one byte, to every route that reads a body',
    limit: 'Chunks are decoded in place, and a body has at most `frontend::limits::CHUNKS_MAX` of them.',
    server: trusting,
    measures: true,
    async run(t) {
      const chunks = Buffer.from('1\r\n \r\n'.repeat(500_000))
      const { worstMs } = await t.health(async () => {
        for (const path of BODIES) {
          const answer = await whole(t, request('POST', path, chunks, 'Transfer-Encoding: chunked'))
          t.check(
            answer.startsWith('HTTP/1.1 400') && answer.includes('65536 non-empty chunks'),
            `${path}: ${answer.slice(0, 120)}`,
          )
        }
      })
      t.check(worstMs < 1000, `health took ${worstMs} ms`)
      return `${BODIES.length} routes answer 400, health at worst ${worstMs.toFixed(1)} ms`
    },
  },
  {
    attack: 'JSON of 100,000 brackets and of 100,000 objects, to every route that reads JSON, and in a configuration',
    limit: 'Tensor data nest to `DATA_DEPTH_MAX`; every other JSON reader uses a bit for each level, and no stack.',
    server: trusting,
    async run(t) {
      const deep = [
        '['.repeat(100_000),
        `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`,
        `{"inputs":${'['.repeat(100_000)}${']'.repeat(100_000)}}`,
        `{"parameters":{"config":${JSON.stringify('{"a":'.repeat(50_000))}}}`,
      ]
      for (const path of BODIES) {
        for (const [i, body] of deep.entries()) {
          const answer = await t.post(path, body)
          // Members that a control operation does not know are passed over.
          const isRight =
            path.startsWith('/v2/models/simple/') && !path.endsWith('setting')
              ? answer.status >= 400
              : answer.status < 600
          t.check(isRight && answer.text.length < 8192, `${path}, ${i}: ${answer.status}, ${answer.text.length} bytes`)
        }
      }
      const data = await t.post(
        FLOAT,
        '{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":' +
          `${'['.repeat(100_000)}1${']'.repeat(100_000)}}]}`,
      )
      t.check(data.status === 400, `data: ${data.status}`)
      return `${BODIES.length * deep.length + 1} bodies`
    },
  },
  {
    attack: 'shapes, sizes and offsets at the ends of 32 and 64 bits, negative, as fractions and as text',
    limit:
      'Each number is read as its own type. Sums and products are checked for overflow and compared with the ' +
      'received bytes (`tensor::element_count`, `memory::RegionLimits`).',
    server: trusting,
    async run(t) {
      const numbers = [
        '-1',
        '0',
        '1.5',
        '1e300',
        '-0',
        '2147483648',
        '4294967296',
        '9223372036854775807',
        '9223372036854775808',
        '18446744073709551615',
        '18446744073709551616',
        '"3"',
        'null',
        'true',
        '[]',
        '{}',
      ]
      let asked = 0
      const refused = async (path, body, headers) => {
        asked += 1
        const answer = await t.post(path, body, headers)
        t.check(answer.status >= 400 && answer.status < 600, `${body.slice(0, 200)}: ${answer.status}`)
      }
      for (const n of numbers) {
        // A tensor of no elements is one.
        if (Number(n) !== 0) await refused(FLOAT, f32([]).replace('[]', `[${n}]`))
        await refused(FLOAT, f32([]).replace('[]', `[4294967296,${n},4294967296]`))
        await refused(
          SIMPLE,
          `{"inputs":[{"name":"INPUT0","shape":[${n},16],"datatype":"INT32","data":[1]},` +
            `{"name":"INPUT1","shape":[${n},16],"datatype":"INT32","data":[1]}]}`,
        )
        await refused(
          FLOAT,
          `{"inputs":[{"name":"INPUT0","shape":[3],"datatype":"FP32","parameters":{"binary_data_size":${n}}}]}`,
          { 'Inference-Header-Content-Length': '10' },
        )
        await refused(
          FLOAT,
          `{"inputs":[{"name":"INPUT0","shape":[3],"datatype":"FP32","parameters":{` +
            `"shared_memory_region":"r","shared_memory_offset":${n},"shared_memory_byte_size":${n}}}]}`,
        )
        await refused(SIMPLE, `{"inputs":[],"parameters":{"priority":${n},"timeout":${n},"sequence_id":${n}}}`)
        await refused('/v2/systemsharedmemory/region/r/register', `{"key":"/nothing","offset":${n},"byte_size":${n}}`)
        await refused(
          '/v2/cudasharedmemory/region/r/register',
          `{"raw_handle":{"b64":"${'A'.repeat(88)}"},"device_id":${n},"byte_size":${n}}`,
        )
      }
      // Over gRPC: dims and parameters are 64 bits wide; protobuf writes a negative number as ten bytes.
      const int64 = (n) => {
        const out = []
        let rest = BigInt.asUintN(64, n)
        for (; rest > 127n; rest >>= 7n) out.push(Number(rest & 127n) | 128)
        return Buffer.from([...out, Number(rest)])
      }
      for (const n of [-1n, 0n, 1n << 31n, 1n << 62n, (1n << 63n) - 1n, -(1n << 63n)]) {
        const shape = Buffer.concat([int64(n), int64(n), int64(4n)])
        const input = Buffer.concat([field(1, 'INPUT0'), field(2, 'FP32'), field(3, shape)])
        const answer = await call(
          t.grpcPort,
          'ModelInfer',
          framed(Buffer.concat([field(1, 'identity_fp32'), field(5, input), field(7, Buffer.alloc(12))])),
        )
        asked += 1
        t.check(answer.status !== 0, `gRPC, ${n}: answered`)
      }
      return `${asked} refused`
    },
  },
  {
    attack: 'a million outputs in a request, the same one 100,000 times, and a million inputs',
    limit:
      'An output that does not exist, or is named twice, is rejected. Their number is checked before they are ' +
      'stored (`protocol::http::Limits`).',
    server: trusting,
    async run(t) {
      const input = '{"name":"INPUT0","shape":[3],"datatype":"FP32","data":[1,2,3]}'
      const list = (count, of) => Array.from({ length: count }, (_, i) => of(i)).join(',')
      const bodies = [
        `{"inputs":[${input}],"outputs":[${list(1_000_000, (i) => `{"name":"o${i}"}`)}]}`,
        `{"inputs":[${input}],"outputs":[${list(100_000, () => '{"name":"OUTPUT0"}')}]}`,
        `{"inputs":[${list(500_000, (i) => `{"name":"i${i}","shape":[1],"datatype":"FP32","data":[1]}`)}]}`,
      ]
      const before = t.rssMiB()
      for (const [i, body] of bodies.entries()) {
        const answer = await t.post(FLOAT, body)
        t.check(
          answer.status === 400 && answer.text.length < 8192,
          `HTTP ${i}: ${answer.status} ${answer.text.slice(0, 200)}`,
        )
      }
      const given = Buffer.concat([field(1, 'INPUT0'), field(2, 'FP32'), field(3, varint(3))])
      const many = smallFields(1_000_000, (small, i) => small(6, small(1, `o${i}`)))
      const same = smallFields(100_000, (small) => small(6, small(1, 'OUTPUT0')))
      for (const outputs of [many, same]) {
        const message = Buffer.concat([field(1, 'identity_fp32'), field(5, given), outputs, field(7, Buffer.alloc(12))])
        const answer = await call(t.grpcPort, 'ModelInfer', framed(message))
        t.check(answer.status !== 0 && answer.message.length < 8192, `gRPC: ${answer.status}`)
      }
      const grown = t.rssMiB() - before
      t.check(grown < 512, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `refused, +${grown.toFixed(0)} MiB`
    },
  },
  {
    attack: 'headers whose values are not numbers, too large or control characters, over HTTP and gRPC',
    limit:
      'A header that cannot be read gets an error status, never an exception. The answer does not repeat it ' +
      'unescaped.',
    server: trusting,
    async run(t) {
      const values = [
        'abc',
        '-1',
        '99999999999999999999999',
        '1e9',
        '0x10',
        '+5',
        ' ',
        '5;5',
        '5,5',
        '\x00',
        '\x1b[2J',
        'é',
        '5'.repeat(5000),
      ]
      let count = 0
      for (const header of [
        'Inference-Header-Content-Length',
        'Content-Length',
        'Content-Encoding',
        'Accept-Encoding',
        'Transfer-Encoding',
        'Expect',
        'traceparent',
        'triton-request-id',
        'Connection',
        'Host',
      ]) {
        for (const value of values) {
          const body = f32([3])
          const framing =
            header === 'Content-Length' || header === 'Transfer-Encoding' ? [] : [`Content-Length: ${body.length}`]
          const answer = await whole(t, request('POST', FLOAT, body, ...framing, `${header}: ${value}`), 3000)
          count += 1
          t.check(
            answer === '' || /^HTTP\/1\.1 (100|200|400|408|411|413|417|431|500|501)/.test(answer),
            `${header}: ${JSON.stringify(value.slice(0, 20))}: ${answer.slice(0, 80)}`,
          )
          t.check(!answer.includes('\x1b[2J'), `${header}: the answer has what was sent in it`)
        }
      }
      for (const headers of [
        { 'grpc-timeout': 'abc' },
        { 'grpc-timeout': '99999999999999H' },
        { 'grpc-timeout': '-1S' },
        { 'grpc-encoding': 'nothing' },
        { triton_grpc_error: 'maybe' },
        { traceparent: 'x'.repeat(4000) },
      ]) {
        const answer = await call(t.grpcPort, 'ServerLive', framed(Buffer.alloc(0)), headers)
        count += 1
        t.check(answer.status >= 0, `${JSON.stringify(headers).slice(0, 80)}: no status`)
        const isNoTimeout = ['abc', '-1S'].includes(headers['grpc-timeout'])
        t.check(
          !isNoTimeout || answer.status === 13,
          `${headers['grpc-timeout']} as a timeout: status ${answer.status}`,
        )
      }
      return `${count} requests`
    },
  },
  {
    attack:
      'thousands of streams that are cancelled before, while and after their requests are read, with errors ' +
      'in either form',
    limit: 'A request has one owner, and the response to a cancelled request is dropped (`frontend::answers::Inbox`).',
    server: trusting,
    async run(t) {
      const input = (value) =>
        Buffer.concat([field(1, 'IN'), field(2, 'INT32'), field(3, varint(1)), field(5, field(2, varint(value)))])
      const message = (model, value) => framed(Buffer.concat([field(1, model), field(3, 'id'), field(5, input(value))]))
      const before = t.rssMiB()
      let made = 0
      for (let round = 0; round < 20; round += 1) {
        const session = connect(`http://127.0.0.1:${t.grpcPort}`)
        session.on('error', () => {})
        const over = []
        for (let i = 0; i < 90; i += 1) {
          const stream = session.request({
            ':method': 'POST',
            ':path': '/inference.GRPCInferenceService/ModelStreamInfer',
            'content-type': 'application/grpc',
            te: 'trailers',
            ...(i % 2 === 0 ? { triton_grpc_error: 'true' } : {}),
          })
          over.push(new Promise((resolve) => stream.once('close', resolve)))
          stream.on('error', () => {})
          stream.resume()
          made += 1
          for (let n = 0; n < 5; n += 1) stream.write(message(n % 2 === 0 ? 'square' : 'nothing', 50))
          // At once, with the first answer, or with the end.
          if (i % 3 === 0) stream.close(8)
          else if (i % 3 === 1) stream.once('data', () => stream.close(8))
          else setTimeout(() => stream.close(8), 20)
        }
        await Promise.race([Promise.all(over), pause(3000)])
        session.destroy()
      }
      const inflight = () => t.metric('nereid_inflight_requests')
      t.check(await until(async () => (await inflight()) <= 1), `${await inflight()} requests are still in flight`)
      const grown = t.rssMiB() - before
      t.check(grown < 64, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `${made} streams, +${grown.toFixed(0)} MiB`
    },
  },
  {
    attack: 'loads, unloads, settings, registrations and statistics from sixteen clients at once, beside inferences',
    limit:
      'One thread changes the server, one change at a time for each model (`src/repository`). Versions are replaced ' +
      'as a whole (`engine::table`).',
    server: trusting,
    async run(t) {
      const file = `/dev/shm/nereid-attack-race-${process.pid}`
      writeFileSync(file, Buffer.alloc(4096))
      let odd = 0
      let answered = 0
      const ask = async (path, body) => {
        const answer = await t.post(path, body)
        answered += 1
        // Refused because of the others is in order; a defect of the server's is not.
        if (answer.status === 500 && !/Unable to (open|find)/.test(answer.text)) odd += 1
        return answer
      }
      const region = JSON.stringify({ key: keyOf(file), offset: 0, byte_size: 4096 })
      const works = [
        () => load(t, 'identity_bytes'),
        () => ask('/v2/repository/models/identity_bytes/unload', '{}'),
        () => load(t, 'given', { parameters: { config: IDENTITY, 'file:1/x': content } }),
        () => ask('/v2/repository/models/given/unload', '{}'),
        () => ask('/v2/logging', '{"log_info":true}'),
        () => ask('/v2/trace/setting', '{"trace_rate":"9"}'),
        () => ask('/v2/systemsharedmemory/region/race/register', region),
        () => ask('/v2/systemsharedmemory/region/race/unregister', ''),
        () => ask('/v2/repository/index', '{}'),
        () => t.get('/v2/models/stats'),
        () => ask('/v2/models/given/infer', f32([3])),
        () => ask(FLOAT, f32([3])),
      ]
      try {
        const asked = t.volume(60, 250)
        const client = async (n) => {
          for (let i = n; i < n + asked; i += 1) await works[(i * (n + 1)) % works.length]()
        }
        await Promise.all(Array.from({ length: 16 }, (_, n) => client(n)))
      } finally {
        await t.post('/v2/systemsharedmemory/region/race/unregister', '')
        await t.post('/v2/repository/models/given/unload', '{}')
        unlinkSync(file)
      }
      t.check(odd === 0, `${odd} answers are defects of the server's`)
      return `${answered} answers`
    },
  },
  {
    attack:
      'keys of shared memory that are paths, devices, other programs’ and Triton’s own; a region whose ' +
      'object was replaced, and unregistered while it is read',
    limit:
      'A key is one name in /dev/shm, opened anew each time and never followed. A region stays until its last ' +
      'request is answered (`memory::RegionLimits`).',
    server: trusting,
    async run(t) {
      const register = (region, body) =>
        t.post(`/v2/systemsharedmemory/region/${region}/register`, JSON.stringify(body))
      const link = `/dev/shm/nereid-attack-link-${process.pid}`
      const directory = `/dev/shm/nereid-attack-directory-${process.pid}`
      const file = `/dev/shm/nereid-attack-object-${process.pid}`
      symlinkSync('/etc/passwd', link)
      mkdirSync(directory)
      const floats = (value) => Buffer.from(new Float32Array(1024).fill(value).buffer)
      writeFileSync(file, floats(1))
      const use = async () => {
        const body = {
          inputs: [
            {
              name: 'INPUT0',
              shape: [1024],
              datatype: 'FP32',
              parameters: { shared_memory_region: 'one', shared_memory_byte_size: 4096 },
            },
          ],
        }
        const answer = await t.post(FLOAT, JSON.stringify(body))
        return answer.status === 200 ? JSON.parse(answer.text).outputs[0].data[0] : answer.status
      }
      try {
        const keys = [
          '/../../etc/passwd',
          '../etc/passwd',
          '/etc/passwd',
          '//etc/passwd',
          '/a/b',
          '/.',
          '/..',
          '',
          '/',
          '/sem.x',
          'triton_python_backend_shm_region_1',
          '/triton_python_backend_shm_region_1',
          `/${'x'.repeat(300)}`,
          '/a\0b',
          keyOf(link),
          keyOf(directory),
        ]
        for (const key of keys) {
          const answer = await register('odd', { key, offset: 0, byte_size: 1 })
          t.check(answer.status >= 400, `${JSON.stringify(key.slice(0, 60))} was registered`)
        }
        for (const [offset, size] of [
          [0, 4097],
          [4096, 1],
          [4095, 2],
          [2 ** 53, 1],
          [1, 2 ** 53],
        ]) {
          const answer = await register('odd', { key: keyOf(file), offset, byte_size: size })
          t.check(answer.status === 400, `${size} bytes at ${offset}: ${answer.status}`)
        }
        t.check((await register('one', { key: keyOf(file), offset: 0, byte_size: 4096 })).status === 200, 'no region')
        t.check((await use()) === 1, 'the region is not what its object is')
        // Another object of the same name: the region stays that of the old one until it is registered again.
        unlinkSync(file)
        writeFileSync(file, floats(2))
        t.check((await use()) === 1, 'a region follows its name')
        await t.post('/v2/systemsharedmemory/region/one/unregister', '')
        t.check(
          (await register('one', { key: keyOf(file), offset: 0, byte_size: 4096 })).status === 200,
          'no second region',
        )
        t.check((await use()) === 2, 'a region that was registered again has the old object')
        let right = 0
        await Promise.all([
          ...Array.from({ length: 300 }, async () => {
            const value = await use()
            if (value === 2 || value === 404) right += 1
          }),
          (async () => {
            for (let i = 0; i < 100; i += 1) {
              await t.post('/v2/systemsharedmemory/region/one/unregister', '')
              await register('one', { key: keyOf(file), offset: 0, byte_size: 4096 })
            }
          })(),
        ])
        t.check(right === 300, `${300 - right} answers are neither the data nor a refusal`)
        return `${keys.length} keys refused`
      } finally {
        await t.post('/v2/systemsharedmemory/unregister', '')
        for (const path of [link, file]) unlinkSync(path)
        rmSync(directory, { recursive: true })
      }
    },
  },
  {
    attack: 'bodies that end early, after one with a secret: over HTTP with and without chunks, gzip and gRPC',
    limit: 'An incomplete body is not a request, and a reused slab is written before it is read (`memory::SlabPool`).',
    server: trusting,
    async run(t) {
      const size = 4 * MIB
      const secret = Buffer.alloc(size, SECRET)
      const head = (bytes) =>
        Buffer.from(
          JSON.stringify({
            inputs: [{ name: 'INPUT0', shape: [bytes], datatype: 'UINT8', parameters: { binary_data_size: bytes } }],
            outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }],
          }),
        )
      const json = head(size)
      const path = '/v2/models/identity_uint8/infer'
      const first = await t.post(path, Buffer.concat([json, secret]), {
        'Inference-Header-Content-Length': String(json.length),
      })
      t.check(first.status === 200 && first.text.includes(SECRET), `the secret itself: ${first.status}`)
      let bytes = 0
      const early = async (...parts) => {
        const socket = await t.socket()
        for (const part of parts) await socket.send(part)
        socket.socket.end()
        await socket.endsWithin(5000)
        bytes += socket.received.length
        t.check(!socket.received.includes(SECRET), 'an answer has the bytes of another request')
        socket.destroy()
      }
      const named = ['Inference-Header-Content-Length: ' + json.length]
      for (let i = 0; i < 20; i += 1) {
        await early(
          request('POST', path, json, ...named, `Content-Length: ${json.length + size}`),
          Buffer.alloc(1000, 'y'),
        )
        await early(
          request('POST', path, '', ...named, 'Transfer-Encoding: chunked'),
          `${json.length.toString(16)}\r\n`,
          json,
          `\r\n${size.toString(16)}\r\n`,
          Buffer.alloc(1000, 'y'),
        )
        await early(
          request('POST', path, '', ...named, 'Content-Encoding: gzip', `Content-Length: 3000`),
          gzipSync(Buffer.concat([json, secret.fill('y')])).subarray(0, 3000),
        )
      }
      const answer = await call(t.grpcPort, 'ModelInfer', framed(Buffer.alloc(MIB, 7)).subarray(0, MIB / 2)).catch(
        (error) => ({ status: 2, message: error.message }),
      )
      t.check(answer.status !== 0, 'half a message was answered')
      return `60 bodies, ${bytes} bytes of answers`
    },
  },
  {
    attack:
      '5,000 packed requests that fail: cut, damaged, of an unknown kind, too large, and for a model that ' +
      'does not exist',
    limit: 'A request returns its memory however it ends (`memory::Budget`).',
    server: trusting,
    async run(t) {
      const packed = gzipSync(Buffer.alloc(MIB, 32))
      const damaged = Buffer.from(packed)
      damaged.fill(0xff, 20, 60)
      const kinds = [
        [SIMPLE, packed.subarray(0, packed.length / 2), 'gzip'],
        [SIMPLE, damaged, 'gzip'],
        [SIMPLE, packed, 'br'],
        [SIMPLE, packed, 'deflate'],
        ['/v2/models/nothing/infer', packed, 'gzip'],
      ]
      const round = async (count) => {
        for (let i = 0; i < count; i += 50) {
          await Promise.all(
            Array.from({ length: 50 }, async (_, n) => {
              const [path, body, kind] = kinds[(i + n) % kinds.length]
              const answer = await t.post(path, body, { 'Content-Encoding': kind })
              t.check(answer.status >= 400, `${kind}: ${answer.status}`)
            }),
          )
        }
      }
      await round(t.volume(500, 1000))
      const before = t.rssMiB()
      await round(t.volume(1000, 4000))
      const grown = t.rssMiB() - before
      t.check(grown < 48, `resident memory grew by ${grown.toFixed(0)} MiB`)
      const charged = await t.metric('nereid_memory_budget_bytes', 'kind="unpacked"')
      t.check(charged === undefined || charged === 0, `${charged} bytes are still charged`)
      return `+${grown.toFixed(0)} MiB`
    },
  },
  {
    attack: 'ends of lines, escapes of terminals and forged entries, in names, ids, keys, headers and mistakes',
    limit: 'A log message is one line, and its control characters are escaped (`src/log/format.ts`).',
    server: logged,
    async run(t) {
      const forged = 'FORGED\r\nI1123 00:00:00.000000 1 main.cc:1] "FORGED ENTRY"\n\x1b[2J\x07\u2028\u009b31m'
      const from = readFileSync(LOG, 'utf8').length
      const json = JSON.stringify(forged)
      await t.post(SIMPLE, `{"id":${json},"inputs":[{"name":${json},"shape":[1],"datatype":${json},"data":[1]}]}`)
      await t.post(SIMPLE, `{"inputs":[],"parameters":{${json}:${json}}}`)
      await load(t, encodeURIComponent(forged))
      await call(t.grpcPort, 'RepositoryModelLoad', framed(field(2, forged)))
      await call(t.grpcPort, 'ModelInfer', framed(Buffer.concat([field(1, forged), field(3, forged)])))
      await load(t, 'given', { parameters: { config: `{"backend":${json}}` } })
      await load(t, 'given', { parameters: { config: JSON.stringify({ backend: 'identity', [forged]: 1 }) } })
      await t.post('/v2/systemsharedmemory/region/r/register', JSON.stringify({ key: forged, byte_size: 1 }))
      await t.post('/v2/trace/setting', JSON.stringify({ trace_rate: forged }))
      await whole(
        t,
        Buffer.from(`GET /v2/models/${'\x1b[2J\x07'} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`),
        3000,
      )
      await t.checkServes()
      // The last of them is in the log as well.
      await until(() => readFileSync(LOG, 'utf8').slice(from).includes('2J\\u0007'), { seconds: 2 })
      const said = readFileSync(LOG, 'utf8').slice(from)
      t.check(said.includes('FORGED'), 'nothing of it was logged: this row shows nothing')
      // eslint-disable-next-line no-control-regex
      t.check(!/[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f\u2028\u2029]/.test(said), 'control characters are in the log')
      t.check(!said.split('\n').some((line) => line.startsWith('I1123 00:00:00.000000')), 'a line of the log is forged')
      return `${said.length} bytes of log`
    },
  },
]

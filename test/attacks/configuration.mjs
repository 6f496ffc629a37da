/** Configurations whose numbers, files and libraries are not what a server can use. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { addSub, identity } from '../../scripts/models/graphs.mjs'
import { TYPE } from '../../scripts/models/onnx.mjs'
import { chained, config, ensemble, writeModel } from '../../scripts/models/repository.mjs'
import { fresh, server } from './lib/servers.mjs'

const INPUT = ['INPUT0', 'TYPE_INT32', [16]]
const OUTPUT = ['OUTPUT0', 'TYPE_INT32', [16]]
const model = (batch, more, input = INPUT, output = OUTPUT) => ({
  config: config('identity', batch, [input], [output], more),
})

/** One warm-up sample of the identity model. */
const warmup = (sample, input) =>
  `model_warmup [ { name: "w" ${sample} inputs { key: "INPUT0" value { data_type: TYPE_INT32 ${input} } } } ]\n`
const zeros = 'dims: [ 16 ] zero_data: true'
const TERA = '1000000000000'

/** Model name → what is written, what its load says; null = it loads. */
const NUMBERS = {
  warm_batch: [
    model(0, warmup('batch_size: 4294967295', zeros)),
    /batch size 4294967295 for '.*', max allowed is 1; .* more;/,
  ],
  warm_batch_allowed: [
    model(2147483647, warmup('batch_size: 2147483647', zeros)),
    /batch_size of warmup sample 'w' .* is 2147483647: at most 16384/,
  ],
  warm_dims: [
    model(0, warmup('batch_size: 1', `dims: [ ${TERA} ] zero_data: true`)),
    /warmup setting for input 'INPUT0' has \[1000000000000\] elements .*: at most 1073741824 bytes/,
  ],
  warm_random: [
    model(0, warmup('batch_size: 1', `dims: [ ${TERA}, ${TERA} ] random_data: true`)),
    /at most 1073741824 bytes/,
  ],
  warm_product: [
    model(16384, warmup('batch_size: 16384', 'dims: [ 262144 ] zero_data: true')),
    /needs 17179869184 bytes, 16384 times 1048576: at most 1073741824/,
  ],
  warm_count: [
    model(0, warmup('batch_size: 1 count: 4294967295', zeros)),
    /count of warmup sample 'w' .* is 4294967295: at most 100000/,
  ],
  instances: [
    model(0, 'instance_group [ { count: 2147483647 kind: KIND_CPU } ]\n'),
    /instance group 'instances_0' .* has count 2147483647: at most 4096 instances/,
  ],
  preferred: [
    model(8, `dynamic_batching { preferred_batch_size: [ ${Array(2000).fill('4').join(', ')} ] }\n`),
    /number of preferred batch sizes .* is 2000: at most 1024/,
  ],
  buckets: [
    model(
      0,
      'model_metrics { metric_control [ { metric_identifier { family: ' +
        '"nv_inference_first_response_histogram_ms" } histogram_options { buckets: [ ' +
        `${Array.from({ length: 5000 }, (_, i) => i + 1).join(', ')} ] } } ] }\n`,
    ),
    /number of histogram buckets .* is 5000: at most 1024/,
  ],
  threads: [
    {
      config: config(
        'onnxruntime',
        0,
        [INPUT],
        [OUTPUT],
        'parameters { key: "intra_op_thread_count" value { string_value: "2147483647" } }\n',
      ),
      versions: { 1: identity(TYPE.INT32, [16]) },
    },
    /intra_op_thread_count of model 'threads' is 2147483647: at most 1024/,
  ],
  // Nothing is sized by these: they load, and serve.
  levels: [
    model(
      2147483647,
      'dynamic_batching { priority_levels: 18446744073709551615 default_priority_level: 18446744073709551615 ' +
        'max_queue_delay_microseconds: 18446744073709551615 default_queue_policy { max_queue_size: 4294967295 ' +
        'default_timeout_microseconds: 18446744073709551615 } }\n',
    ),
    null,
  ],
  missing_optional: [
    model(0, '', ['INPUT0', 'TYPE_INT32', [TERA], 'optional: true'], ['OUTPUT0', 'TYPE_INT32', [TERA]]),
    null,
  ],
  // The graph makes another output than it declares.
  declared: [{ config: null, versions: { 1: identity(TYPE.INT32, [1000000, 1000000]) } }, null],
}

function writeNumbers(root) {
  for (const [name, [files]] of Object.entries(NUMBERS)) writeModel(root, name, files)
}

/** An ensemble that calls these models one after another, each with the output of the one before. */
const chain = (called) => ({ config: ensemble(0, [INPUT], [OUTPUT], chained(called)) })

const times = (count, make) => Array.from({ length: count }, (_, i) => make(i))
const RING = 300

function writeEnsembles(root) {
  writeModel(root, 'one', model(0, ''))
  writeModel(root, 'steps', chain(times(2000, () => 'one')))
  times(40, (i) => writeModel(root, `double${i}`, chain(times(2, () => (i === 0 ? 'one' : `double${i - 1}`)))))
  times(40, (i) => writeModel(root, `deep${i}`, chain([i === 0 ? 'one' : `deep${i - 1}`])))
  times(RING, (i) => writeModel(root, `ring${i}`, chain([`ring${(i + 1) % RING}`])))
}

const explicit = server('configurations', {
  flags: ['--model-control-mode=explicit', '--load-model=simple'],
  models: (root) => {
    writeNumbers(root)
    writeFiles(root)
    writeEnsembles(root)
  },
})

async function load(t, name, text) {
  const from = performance.now()
  const answer = await t.post(`/v2/repository/models/${name}/load`, '{}')
  const ms = performance.now() - from
  if (text === null) t.check(answer.status === 200, `${name}: ${answer.status} ${answer.text.slice(0, 300)}`)
  else
    t.check(answer.status === 400 && text.test(answer.text), `${name}: ${answer.status} ${answer.text.slice(0, 300)}`)
  return { ms, bytes: answer.text.length }
}

/** Data files that are not the model's: `file` as configured, what the load says, and what lies there. */
const FILES = {
  up: ['../../../../../../../../etc/passwd', /must stay inside the directory 'warmup'/],
  absolute: ['/etc/passwd', /must stay inside the directory 'warmup'/],
  device: ['device', /is a link to a place outside the model's directory/, (at) => symlinkSync('/dev/zero', at)],
  link: ['link', /is a link to a place outside the model's directory/, (at) => symlinkSync('/etc/passwd', at)],
  fifo: ['fifo', /is not a regular file/, (at) => execFileSync('mkfifo', [at])],
  directory: ['directory', /is not a regular file/, (at) => mkdirSync(at)],
  short: [
    'short',
    /warmup setting expects 64 bytes, but the data provided from .* has 3 bytes/,
    (at) => writeFileSync(at, 'abc'),
  ],
  // A terabyte of holes: the tensor's 64 bytes are read.
  long: [
    'long',
    null,
    (at) => {
      writeFileSync(at, '')
      truncateSync(at, 2 ** 40)
    },
  ],
}

function writeFiles(root) {
  for (const [name, [file, , make]] of Object.entries(FILES)) {
    writeModel(root, `file_${name}`, model(0, warmup('batch_size: 1', `dims: [ 16 ] input_data_file: "${file}"`)))
    mkdirSync(join(root, `file_${name}`, 'warmup'), { recursive: true })
    make?.(join(root, `file_${name}`, 'warmup', file))
  }
}

/** Instances of a rate limiter: how many, and the resources each takes. */
const limited = (count, resources) =>
  model(
    0,
    `instance_group [ { count: ${count} kind: KIND_CPU rate_limiter { resources [ ${resources.join(', ')} ] } } ]\n`,
  )
const resource = (name, count) => `{ name: "${name}" count: ${count} }`
const RESOURCES = {
  many: [
    limited(
      1,
      times(5000, (i) => resource(`r${i}`, 1)),
    ),
    /declares 5000 resources in its rate_limiter: at most 256 are supported/,
  ],
  // There is as much as the largest of them wants, where nothing is said.
  units: [limited(4, [resource('R', 4294967295)]), null],
  // As many instances as there may be, with as much as they may declare.
  most: [
    limited(
      4096,
      times(256, (i) => resource(`r${i}`, 1)),
    ),
    null,
  ],
}

const limiting = server('a rate limiter', {
  flags: ['--model-control-mode=explicit', '--load-model=simple', '--rate-limit=execution_count'],
  models: (root) => {
    for (const [name, [files]] of Object.entries(RESOURCES)) writeModel(root, name, files)
  },
})

/**
 * A server whose ONNX Runtime is the file that `write` made: the package is found elsewhere, as with a broken
 * installation.
 */
const elsewhere = mkdtempSync(join(tmpdir(), 'nereid-library-'))
process.once('exit', () => rmSync(elsewhere, { recursive: true, force: true }))
const garbage = fresh(
  server('garbage libonnxruntime', {
    flags: ['--exit-on-error=false', '--strict-readiness=false'],
    standard: false,
    env: { NODE_OPTIONS: `--require ${join(elsewhere, 'hook.cjs')}` },
    models: (root) => {
      const bin = join(elsewhere, 'onnxruntime-node', 'bin', 'napi-v6', process.platform, process.arch)
      mkdirSync(bin, { recursive: true })
      writeFileSync(join(bin, 'libonnxruntime.so.1'), 'not a library '.repeat(1000))
      const found = JSON.stringify(join(elsewhere, 'onnxruntime-node', 'package.json'))
      writeFileSync(
        join(elsewhere, 'hook.cjs'),
        `const m = require('node:module'); const was = m._resolveFilename
         m._resolveFilename = function (name, ...rest) {
           return name === 'onnxruntime-node/package.json' ? ${found} : was.call(this, name, ...rest)
         }\n`,
      )
      for (const name of ['first', 'second']) writeModel(root, name, { versions: { 1: addSub() } })
      writeModel(root, 'other', model(0, ''))
    },
  }),
)

export const rows = [
  {
    attack:
      'ensembles of 2,000 steps, of ensembles forty deep, of two ensembles of two ensembles and so on, and in ' +
      `a ring of ${RING}`,
    limit: 'The failed load names the limit: `STEPS_MAX`, `MAPPINGS_MAX`, `CALLS_MAX` or `DEPTH_MAX` of `graph`.',
    server: explicit,
    async run(t) {
      const loads = [
        ['steps', /has 2000 steps: at most 1024 are supported/],
        ['double39', /which is not valid.*has 32766 calls for each request, .*: at most 16384 are supported/],
        ['deep39', /which is not valid.*has 17 ensembles inside one another: at most 16 are supported/],
        ['ring0', /circular dependency between ensembles: ring299 -> ... -> ring298 -> ring299/],
        ['double8', null],
      ]
      let worst = 0
      for (const [name, text] of loads) {
        const { ms, bytes } = await load(t, name, text)
        t.check(bytes < 8192, `${name}: an error of ${bytes} bytes`)
        worst = Math.max(worst, ms)
      }
      const input = { name: 'INPUT0', shape: [16], datatype: 'INT32', data: Array(16).fill(1) }
      const answer = await t.post('/v2/models/double8/infer', JSON.stringify({ inputs: [input] }))
      t.check(answer.status === 200, `512 calls for one request: ${answer.status} ${answer.text.slice(0, 300)}`)
      return `slowest load ${worst.toFixed(0)} ms`
    },
  },
  {
    attack: 'configurations whose numbers ask for terabytes, or for billions of instances, threads, requests or runs',
    limit:
      'Each number that sizes something has a limit, and the failed load names it (`engine::limits`, ' +
      '`backend_onnx::options`).',
    server: explicit,
    async run(t) {
      let worst = 0
      for (const [name, [, text]] of Object.entries(NUMBERS)) {
        const { ms, bytes } = await load(t, name, text)
        t.check(bytes < 4096, `${name}: an error of ${bytes} bytes`)
        worst = Math.max(worst, ms)
      }
      t.check(t.rssMiB() < 512, `resident memory is ${t.rssMiB()} MiB`)
      return (
        `${Object.keys(NUMBERS).length} configurations, slowest load ${worst.toFixed(0)} ms, ` +
        `${t.rssMiB().toFixed(0)} MiB resident`
      )
    },
  },
  {
    attack:
      'rate limiters of 5,000 resources, of four thousand million units, and of 256 resources for each of ' +
      '4,096 instances',
    limit:
      'An instance has at most `scheduler::rate::RESOURCES_MAX` resources, and a version has at most ' +
      '`engine::limits::INSTANCES_MAX` instances.',
    server: limiting,
    async run(t) {
      const before = t.rssMiB()
      let worst = 0
      for (const [name, [, text]] of Object.entries(RESOURCES)) worst = Math.max(worst, (await load(t, name, text)).ms)
      const input = { name: 'INPUT0', shape: [16], datatype: 'INT32', data: Array(16).fill(1) }
      const from = performance.now()
      const answers = await Promise.all(
        times(200, () => t.post('/v2/models/most/infer', JSON.stringify({ inputs: [input] }))),
      )
      t.check(
        answers.every((a) => a.status === 200),
        `status ${answers.find((a) => a.status !== 200)?.status}`,
      )
      const ms = performance.now() - from
      t.check(ms < 10_000, `200 requests took ${ms.toFixed(0)} ms`)
      const grown = t.rssMiB() - before
      t.check(grown < 512, `resident memory grew by ${grown} MiB`)
      return (
        `slowest load ${worst.toFixed(0)} ms, 200 requests in ${ms.toFixed(0)} ms, +${grown.toFixed(0)} MiB ` +
        'resident'
      )
    },
  },
  {
    attack:
      'requests at four thousand priorities of a model that allows 2^64, and one without an optional input of 4 TB',
    limit:
      'A level is created when a request uses it, and at most `LEVELS_KEPT_MAX` empty levels are kept. `identity` ' +
      'fills in at most `MADE_UP_BYTES_MAX`.',
    server: explicit,
    async run(t) {
      await load(t, 'levels', null)
      await load(t, 'missing_optional', null)
      const input = { name: 'INPUT0', shape: [1, 16], datatype: 'INT32', data: Array(16).fill(1) }
      const one = async (priority) => {
        const answer = await t.post(
          '/v2/models/levels/infer',
          JSON.stringify({ inputs: [input], parameters: { priority } }),
        )
        t.check(answer.status === 200, `priority ${priority}: ${answer.status} ${answer.text.slice(0, 200)}`)
      }
      for (let at = 1; at <= 4096; at += 64)
        await Promise.all(Array.from({ length: 64 }, (_, i) => one((at + i) * 1000)))
      const answer = await t.post('/v2/models/missing_optional/infer', JSON.stringify({ inputs: [] }))
      t.check(
        /too large to be made up: at most/.test(answer.text),
        `without the input: ${answer.status} ${answer.text}`,
      )
      t.check(t.rssMiB() < 512, `resident memory is ${t.rssMiB()} MiB`)
      return `${t.rssMiB().toFixed(0)} MiB resident`
    },
  },
  {
    attack: 'warm-up samples of 128 MiB and, as a file of strings, 96 MiB where --memory-limit is 256 MiB',
    limit: 'Samples are charged to `memory::Budget`, at most a quarter of `--memory-limit` (`engine::warmup`).',
    server: fresh(
      server('warm-up beyond the memory limit', {
        flags: ['--model-control-mode=explicit', '--load-model=simple', `--memory-limit=${256 << 20}`],
        models: (root) => {
          const [input, output] = ['INPUT0', 'OUTPUT0'].map((name) => [name, 'TYPE_INT32', [524288]])
          const wide = (batch) =>
            model(64, warmup(`batch_size: ${batch}`, 'dims: [ 524288 ] zero_data: true'), input, output)
          writeModel(root, 'warm_memory', wide(64))
          writeModel(root, 'warm_fits', wide(16))
          const text = warmup('batch_size: 1', 'dims: [ 1 ] input_data_file: "strings"').replace(
            'TYPE_INT32',
            'TYPE_STRING',
          )
          const string = (name) => [name, 'TYPE_STRING', [1]]
          writeModel(root, 'warm_strings', {
            config: config('identity', 0, [string('INPUT0')], [string('OUTPUT0')], text),
          })
          mkdirSync(join(root, 'warm_strings', 'warmup'), { recursive: true })
          const data = Buffer.alloc(96 << 20)
          data.writeUInt32LE(data.length - 4)
          writeFileSync(join(root, 'warm_strings', 'warmup', 'strings'), data)
        },
      }),
    ),
    async run(t) {
      const quarter = /134217728 bytes: at most 67108864 bytes are supported, a quarter of --memory-limit, 268435456/
      const before = t.rssMiB()
      await load(t, 'warm_memory', quarter)
      await load(t, 'warm_strings', /67108864/)
      await load(t, 'warm_fits', null)
      const grown = t.rssMiB() - before
      t.check(grown < 96, `resident memory grew by ${grown} MiB`)
      return `+${grown.toFixed(0)} MiB resident`
    },
  },
  {
    attack: 'warm-up data from /etc/passwd, /dev/zero, a FIFO, a directory, a file of a terabyte',
    limit:
      "Data files must be regular files inside the model's own directory, with links resolved. Only the bytes of " +
      'the tensor are read (`engine::data_file`).',
    server: explicit,
    async run(t) {
      let worst = 0
      for (const [name, [, text]] of Object.entries(FILES))
        worst = Math.max(worst, (await load(t, `file_${name}`, text)).ms)
      return `slowest answer ${worst.toFixed(0)} ms`
    },
  },
  {
    attack: 'the same configurations in a repository that is loaded at start, with --exit-on-error=false',
    limit: 'A model that cannot be loaded is UNAVAILABLE with its reason; the other models serve.',
    server: fresh(
      server('all of them at start', {
        flags: ['--exit-on-error=false', '--strict-readiness=false'],
        models: (root) => (writeNumbers(root), writeFiles(root)),
      }),
    ),
    async run(t) {
      const index = JSON.parse((await t.post('/v2/repository/index', '{}')).text)
      const state = (name) => index.find((m) => m.name === name)?.state
      for (const [name, [, text]] of Object.entries(NUMBERS))
        t.check(state(name) === (text === null ? 'READY' : 'UNAVAILABLE'), `${name}: ${state(name)}`)
      return `${index.filter((m) => m.state === 'READY').length} of ${index.length} models ready`
    },
  },
  {
    attack: 'a libonnxruntime that is not a library',
    limit:
      "Each model and each attempt gets UNAVAILABLE with the loader's text and the path " +
      '(`backend_onnx::ffi::probe`).',
    server: garbage,
    async run(t) {
      for (let i = 0; i < 2; i++) {
        const index = JSON.parse((await t.post('/v2/repository/index', '{}')).text)
        for (const name of ['first', 'second']) {
          const { state, reason = '' } = index.find((m) => m.name === name) ?? {}
          const right = /unable to use ONNX Runtime at '.*libonnxruntime\.so\.1': .*invalid ELF header/.test(reason)
          t.check(state === 'UNAVAILABLE' && right, `${name}: ${state} ${reason}`)
        }
      }
      const input = { name: 'INPUT0', shape: [16], datatype: 'INT32', data: Array(16).fill(1) }
      const answer = await t.post('/v2/models/other/infer', JSON.stringify({ inputs: [input] }))
      t.check(answer.status === 200, `another model answered ${answer.status} ${answer.text}`)
      return 'the rest serves'
    },
  },
]

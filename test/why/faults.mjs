/**
 * Staged faults and healthy servers. Each has a model before and after the change that mends it, and loads, so that
 * what a server advises and expects can be compared with what the change brings.
 *
 * Models that wait (`identity` with a delay, a model in TypeScript) cost no CPU. Those of ONNX compute.
 */
import { deep } from '../../bench/models/graphs.mjs'
import { tensor } from '../../bench/messages.mjs'
import { addSub } from '../../scripts/models/graphs.mjs'
import { config } from '../../scripts/models/repository.mjs'

const WIDTH = 512
const NUMBERS = [[['INPUT0', 'TYPE_FP32', [16]]], [['OUTPUT0', 'TYPE_FP32', [16]]]]

const instances = (count) => `instance_group [ { count: ${count} kind: KIND_CPU } ]\n`
/** With `delay` null requests do not run together. */
const batching = (delay) => (delay === null ? '' : `dynamic_batching { max_queue_delay_microseconds: ${delay} }\n`)
const parameter = (key, value) => `parameters { key: "${key}" value { string_value: "${value}" } }\n`

/** Executions take so many milliseconds, whatever their rows, and no CPU. */
const waiting = ({ ms, batch = 0, count = 1, delay = null }) => ({
  config: config('identity', batch, ...NUMBERS, instances(count) + batching(delay) + parameter('execute_delay_ms', ms)),
  inputs: [tensor('INPUT0', 'FP32', batch === 0 ? [16] : [1, 16])],
})

/** Computes for some milliseconds: for each row of a batch, or with `first` for the first one alone. */
const computing = ({
  batch = 1,
  count = 1,
  threads = 1,
  delay = 0,
  rows = 1,
  layers = 300,
  first = false,
  spins = false,
}) => ({
  config: config(
    'onnxruntime',
    batch,
    [['INPUT0', 'TYPE_FP32', [WIDTH]]],
    [['OUTPUT0', 'TYPE_FP32', [WIDTH]]],
    instances(count) +
      batching(delay) +
      parameter('intra_op_thread_count', threads) +
      (spins ? parameter('session.intra_op.allow_spinning', 1) : ''),
  ),
  versions: { 1: deep(layers, WIDTH, { first }) },
  inputs: [tensor('INPUT0', 'FP32', [rows, WIDTH])],
})

/** Waits 20 ms, and every `every`th time a second. */
const hanging = ({ every, count }) => ({
  config: config('javascript', 0, ...NUMBERS, instances(count)),
  files: {
    '1/model.ts': `import { setTimeout as sleep } from 'node:timers/promises'
import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'

let executions = 0
const answerOf = ({ data, shape }) => new InferenceResponse([Tensor.from('OUTPUT0', data, shape)])

export default defineModel({
  execute: async (requests) => {
    executions += 1
    await sleep(executions % ${every} === 0 ? 1000 : 20)
    return requests.map((request) => answerOf(request.input('INPUT0')))
  },
})
`,
  },
  inputs: [tensor('INPUT0', 'FP32', [16])],
})

const open = (rate, seed) => ({ rate, seed, connections: 64 })
const closed = (connections) => ({ rate: 0, seed: 1, connections })

/**
 * `advice` is the first advice: its name, and its value where only one is right. `after` is the model with a value: the
 * advised one, or `to` without advice.
 */
export const FAULTS = [
  {
    name: 'one instance too few',
    advice: { change: /instance/, to: 2 },
    before: waiting({ ms: 20 }),
    to: 2,
    after: (count) => waiting({ ms: 20, count }),
    loads: [open(40, 1), open(37, 2), closed(2)],
  },
  {
    name: 'queue delay too long',
    advice: { change: /delay/ },
    flags: ['--strict-batching-delay=true'],
    before: waiting({ ms: 10, batch: 32, delay: 100_000 }),
    to: 0,
    after: (delay) => waiting({ ms: 10, batch: 32, delay }),
    loads: [open(30, 3), open(45, 4), closed(2)],
  },
  {
    name: 'batch too small',
    advice: { change: /batch/ },
    before: computing({ batch: 2, count: 2, layers: 900, first: true }),
    to: 16,
    after: (batch) => computing({ batch, count: 2, layers: 900, first: true }),
    loads: [closed(16), open(250, 4), closed(32)],
  },
  {
    name: 'threads fighting',
    advice: { change: /thread/ },
    before: computing({ batch: 16, rows: 8, count: 4, threads: 4, layers: 100, spins: true }),
    to: 1,
    after: (threads) => computing({ batch: 16, rows: 8, count: 4, threads, layers: 100, spins: true }),
    loads: [closed(4), closed(8)],
  },
  {
    name: 'a hog beside it',
    advice: { change: /neighbour|hog|cores/ },
    hogs: 3,
    before: computing({ count: 2 }),
    to: null,
    after: () => computing({ count: 2 }),
    loads: [closed(2), open(60, 5)],
  },
  {
    name: 'a model that sometimes hangs',
    advice: { change: /hang/ },
    before: hanging({ every: 60, count: 2 }),
    to: null,
    after: () => hanging({ every: 1e9, count: 2 }),
    loads: [open(40, 6), closed(2)],
  },
]

/** No advice may be given for these. */
export const HEALTHY = [
  { name: 'two instances, half used', before: waiting({ ms: 20, count: 2 }), loads: [open(25, 7), open(15, 8)] },
  {
    name: 'batches as large as they pay',
    before: computing({ batch: 16, layers: 100 }),
    loads: [open(100, 9), open(150, 10)],
  },
  {
    name: 'a small model on the reactor',
    loads: [open(500, 11), closed(2)],
    before: {
      config: config(
        'onnxruntime',
        8,
        [
          ['INPUT0', 'TYPE_INT32', [16]],
          ['INPUT1', 'TYPE_INT32', [16]],
        ],
        [
          ['OUTPUT0', 'TYPE_INT32', [16]],
          ['OUTPUT1', 'TYPE_INT32', [16]],
        ],
      ),
      versions: { 1: addSub() },
      inputs: ['INPUT0', 'INPUT1'].map((name) => tensor(name, 'INT32', [1, 16])),
    },
  },
]

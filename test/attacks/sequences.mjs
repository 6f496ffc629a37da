/** Sequences: clients that start them and never end them, ids without measure, and states that grow. */
import { TYPE, model, node, value } from '../../scripts/models/onnx.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'
import { Target } from './lib/target.mjs'
import { until } from './lib/wait.mjs'

const LIMIT = 65_536
const STARTS = 200_000
/** The same with less. */
const LIMIT_LOW = 1000
const STARTS_LOW = 3000
const SOCKETS = 8
const ID_BYTES = 1 << 20
const MIB = 1 << 20
const MEMORY_MIB = 64

const staying = {
  models: (root) => {
    const tensors = [[['INPUT', 'TYPE_INT32', [1]]], [['OUTPUT', 'TYPE_INT32', [1]]]]
    const control = (name, kind, more) => `{ name: "${name}" control [ { kind: CONTROL_SEQUENCE_${kind} ${more} } ] }`
    const flags = ['START', 'END', 'READY'].map((kind) => control(kind, kind, 'int32_false_true: [ 0, 1 ]'))
    const controls = [...flags, control('CORRID', 'CORRID', 'data_type: TYPE_STRING')].join(', ')
    const more =
      `sequence_batching { max_sequence_idle_microseconds: 3600000000 control_input [ ${controls} ] oldest { ` +
      'max_candidate_sequences: 1000000 } }\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n'
    writeModel(root, 'sums', { config: config('dyna_sequence', 1, ...tensors, more) })
  },
}
const sequences = server('a model with sequences that stay for an hour', staying)
const fewSequences = server('the same, with 1,000 sequences', { ...staying, flags: [`--sequence-limit=${LIMIT_LOW}`] })

/** Each request makes the state of its sequence twice as long, and one longer. */
const growing = server('a model whose states grow, on 64 MiB', {
  flags: [`--memory-limit=${MEMORY_MIB * MIB}`],
  models: (root) => {
    const graph = model({
      nodes: [
        node('Identity', ['INPUT'], ['OUTPUT']),
        node('Concat', ['STATE', 'STATE', 'INPUT'], ['STATE_OUT'], { axis: 0 }),
      ],
      inputs: [value('INPUT', TYPE.INT32, [1]), value('STATE', TYPE.INT32, ['n'])],
      outputs: [value('OUTPUT', TYPE.INT32, [1]), value('STATE_OUT', TYPE.INT32, ['m'])],
    })
    const tensors = [[['INPUT', 'TYPE_INT32', [1]]], [['OUTPUT', 'TYPE_INT32', [1]]]]
    const state = '{ input_name: "STATE" output_name: "STATE_OUT" data_type: TYPE_INT32 dims: [ -1 ] }'
    const more =
      `sequence_batching { max_sequence_idle_microseconds: 3600000000 state [ ${state} ] oldest { ` +
      'max_candidate_sequences: 100000 } }\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n'
    writeModel(root, 'grows', { config: config('onnxruntime', 0, ...tensors, more), versions: { 1: graph } })
  },
})

/**
 * Sends `requests` requests of each of so many sequences, then their ends: how much that held, and how many were
 * refused.
 */
async function grow(t, sequences, requests) {
  const before = t.rssMiB()
  let refused = 0
  const all = (from, to) =>
    Promise.all(
      Array.from({ length: SOCKETS }, async (_, part) => {
        const raw = await t.raw()
        for (let id = 1 + part; id <= sequences; id += SOCKETS) {
          for (let i = from; i < to; i += 1) {
            const flags = `"sequence_start":${i === 0},"sequence_end":${i === requests}`
            const text =
              `{"inputs":[{"name":"INPUT","datatype":"INT32","shape":[1],"data":[1]}],` +
              `"parameters":{"sequence_id":${id},${flags}}}`
            raw.send(`POST /v2/models/grows/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ${text.length}\r\n\r\n${text}`)
            const answer = await raw.answer()
            if (answer.status === 503) refused += 1
            else t.check(answer.status === 200, `request ${i} of sequence ${id}: ${answer.status} ${answer.body}`)
          }
        }
        raw.destroy()
      }),
    )
  const { worstMs } = await t.health(() => all(0, requests))
  const grown = t.rssMiB() - before
  const charged = (await t.metric('nereid_memory_used_bytes')) / MIB
  t.check(refused > 0, 'nothing was refused')
  t.check(charged > MEMORY_MIB / 2 && charged <= MEMORY_MIB, `${charged.toFixed(0)} MiB are charged`)
  t.check(grown < 2 * MEMORY_MIB + 32, `resident memory grew by ${grown.toFixed(0)} MiB`)
  // Small requests of others have their reserve meanwhile.
  await t.checkServes()
  const refusedBefore = refused
  await all(requests, requests + 1)
  t.check(refused === refusedBefore, `${refused - refusedBefore} ends were refused`)
  t.check(
    await until(async () => (await t.metric('nereid_memory_used_bytes')) === 0),
    'charges are left when all sequences have ended',
  )
  return (
    `+${grown.toFixed(0)} MiB, ${charged.toFixed(0)} MiB charged, ${refused} refused, health at worst ` +
    `${worstMs.toFixed(1)} ms`
  )
}

const body = (id, flags) =>
  `{"inputs":[{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":[1]}],` +
  `"parameters":{"sequence_id":"${id}",${flags}}}`
const post = (id, flags) => {
  const text = body(id, flags)
  return `POST /v2/models/sums/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ${text.length}\r\n\r\n${text}`
}
const START = '"sequence_start":true'

/** Starts so many sequences, of which so many are taken. */
async function started(t, starts, limit) {
  const before = t.rssMiB()
  let refused = 0
  const { worstMs } = await t.health(() =>
    Promise.all(
      Array.from({ length: SOCKETS }, async (_, part) => {
        const raw = await t.raw()
        for (let i = part; i < starts; i += SOCKETS) {
          raw.send(post(`s${i}`, START))
          const answer = await raw.answer()
          if (answer.status === 503) refused += 1
        }
        raw.destroy()
      }),
    ),
  )
  const grown = t.rssMiB() - before
  t.check(refused === starts - limit, `${refused} of ${starts} were refused`)
  t.check(grown < 128, `resident memory grew by ${grown.toFixed(0)} MiB`)
  const goesOn = await t.post('/v2/models/sums/infer', body('s1', '"sequence_end":true'))
  t.check(goesOn.status === 200, `a sequence in progress: ${goesOn.status} ${goesOn.text}`)
  const next = await t.post('/v2/models/sums/infer', body('next', `${START},"sequence_end":true`))
  t.check(next.status === 200, `a place that is free again: ${next.status} ${next.text}`)
  return `+${grown.toFixed(0)} MiB, health at worst ${worstMs.toFixed(1)} ms`
}

export const rows = [
  {
    attack:
      `${STARTS} sequences that are started over ${SOCKETS} connections and never ended, of a model that ` +
      'forgets them after an hour',
    limit:
      'A model has at most `--sequence-limit` = `options::SEQUENCES_MAX_DEFAULT` sequences; then the ' +
      'answer is 503.',
    server: sequences,
    nightly: true,
    run: (t) => started(t, STARTS, LIMIT),
  },
  {
    attack: `${STARTS_LOW} sequences that are started and never ended, where ${LIMIT_LOW} are allowed`,
    limit: 'A model has at most `--sequence-limit` sequences; then the answer is 503.',
    server: fewSequences,
    run: (t) => started(t, STARTS_LOW, LIMIT_LOW),
  },
  {
    attack: 'correlation ids of 1 MiB',
    limit: 'Ids of more than 128 characters are rejected (`protocol`).',
    server: fewSequences,
    async run(t) {
      const before = t.rssMiB()
      for (let i = 0; i < 50; i += 1) {
        const answer = await t.post('/v2/models/sums/infer', body(`${i}${'x'.repeat(ID_BYTES)}`, START))
        t.check(
          answer.status >= 400 && answer.text.length < 8192,
          `status ${answer.status}, ${answer.text.length} bytes`,
        )
      }
      const grown = t.rssMiB() - before
      t.check(grown < 64, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `+${grown.toFixed(0)} MiB`
    },
  },
  {
    attack: '32 sequences whose states grow to 8 MiB each, on 64 MiB',
    limit:
      'A state has at most `engine::limits::STATE_BYTES_MAX` and is charged to `--memory-limit` while its sequence ' +
      'lasts. Beyond that, the answer is 503, and the state stays unchanged.',
    server: growing,
    // Twenty doublings of four bytes.
    run: (t) => grow(t, 32, 20),
  },
  {
    attack: '1,500 sequences whose states grow to 64 KiB each, on 64 MiB',
    limit: 'States of more than `engine::limits::STATE_UNCHARGED_BYTES_MAX` are charged like large ones.',
    server: growing,
    run: (t) => grow(t, 1500, 13),
  },
  {
    attack: 'SIGTERM of a server with a sequence that its client never ends, and its model would remember for an hour',
    limit:
      'The server exits after `engine::limits::EXIT_SEQUENCE_IDLE_US_MAX` 10 s without a request, or earlier with a ' +
      'shorter `max_sequence_idle_microseconds` or `--exit-timeout-secs`. The exit code is 0.',
    waits: true,
    async run(t) {
      const other = await Target.start(sequences)
      try {
        const answer = await other.post('/v2/models/sums/infer', body('s1', START))
        t.check(answer.status === 200, `${answer.status} ${answer.text}`)
        const from = performance.now()
        other.child.kill('SIGTERM')
        await until(() => !other.isAlive, { seconds: 60 })
        const [code, seconds] = [other.child.exitCode, (performance.now() - from) / 1000]
        t.check(code === 0 && seconds < 20, `it ended with ${code} after ${seconds.toFixed(1)} s`)
        return `ended with ${code} after ${seconds.toFixed(1)} s`
      } finally {
        await other.stop()
      }
    },
  },
]

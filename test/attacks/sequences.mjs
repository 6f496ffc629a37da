/** Sequences: clients that start them and never end them, and ids without measure. */
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'

const LIMIT = 65_536
const STARTS = 200_000
const SOCKETS = 8
const ID_BYTES = 1 << 20

const sequences = server('a model with sequences that stay for an hour', {
  models: (root) => {
    const tensors = [[['INPUT', 'TYPE_INT32', [1]]], [['OUTPUT', 'TYPE_INT32', [1]]]]
    const control = (name, kind, more) => `{ name: "${name}" control [ { kind: CONTROL_SEQUENCE_${kind} ${more} } ] }`
    const flags = ['START', 'END', 'READY'].map((kind) => control(kind, kind, 'int32_false_true: [ 0, 1 ]'))
    const controls = [...flags, control('CORRID', 'CORRID', 'data_type: TYPE_STRING')].join(', ')
    const more = `sequence_batching { max_sequence_idle_microseconds: 3600000000 control_input [ ${controls} ] oldest { max_candidate_sequences: 1000000 } }\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n`
    writeModel(root, 'sums', { config: config('dyna_sequence', 1, ...tensors, more) })
  },
})

const body = (id, flags) =>
  `{"inputs":[{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":[1]}],"parameters":{"sequence_id":"${id}",${flags}}}`
const post = (id, flags) => {
  const text = body(id, flags)
  return `POST /v2/models/sums/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ${text.length}\r\n\r\n${text}`
}
const START = '"sequence_start":true'

export const rows = [
  {
    attack: `${STARTS} sequences that are started over ${SOCKETS} connections and never ended, of a model that forgets them after an hour`,
    limit: '`--sequence-limit` = `scheduler::sequence::SEQUENCES_MAX_DEFAULT` for each model; then 503',
    server: sequences,
    async run(t) {
      const before = t.rssMiB()
      let refused = 0
      const { worstMs } = await t.health(() =>
        Promise.all(
          Array.from({ length: SOCKETS }, async (_, part) => {
            const raw = await t.raw()
            for (let i = part; i < STARTS; i += SOCKETS) {
              raw.send(post(`s${i}`, START))
              const answer = await raw.answer()
              if (answer.status === 503) refused += 1
            }
            raw.destroy()
          }),
        ),
      )
      const grown = t.rssMiB() - before
      t.check(refused === STARTS - LIMIT, `${refused} of ${STARTS} were refused`)
      t.check(grown < 128, `resident memory grew by ${grown.toFixed(0)} MiB`)
      const goesOn = await t.post('/v2/models/sums/infer', body('s1', '"sequence_end":true'))
      t.check(goesOn.status === 200, `a sequence in progress: ${goesOn.status} ${goesOn.text}`)
      const next = await t.post('/v2/models/sums/infer', body('next', `${START},"sequence_end":true`))
      t.check(next.status === 200, `a place that is free again: ${next.status} ${next.text}`)
      return `+${grown.toFixed(0)} MiB, health at worst ${worstMs.toFixed(1)} ms`
    },
  },
  {
    attack: 'correlation ids of 1 MiB',
    limit: 'ids of more than 128 characters are refused (`protocol`)',
    server: sequences,
    async run(t) {
      const before = t.rssMiB()
      for (let i = 0; i < 50; i += 1) {
        const answer = await t.post('/v2/models/sums/infer', body(`${i}${'x'.repeat(ID_BYTES)}`, START))
        t.check(answer.status >= 400 && answer.text.length < 8192, `status ${answer.status}, ${answer.text.length} bytes`)
      }
      const grown = t.rssMiB() - before
      t.check(grown < 64, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `+${grown.toFixed(0)} MiB`
    },
  },
]

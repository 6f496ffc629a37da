/** Lengths that would make others' memory theirs. */
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'

const LONG = 1_000_000
const SHORT = 200

/** A first run of a tenth of a second makes the following requests wait, so that they run together. */
const padded = server('padded requests', {
  models: (root) => {
    const parameter = (key, text) => `parameters { key: "${key}" value { string_value: "${text}" } }\n`
    const more =
      'dynamic_batching { }\ninstance_group [ { count: 1 kind: KIND_CPU } ' +
      `]\n${parameter('execute_delay_ms', 100)}${parameter('nereid.padding.INPUT0', '[n]')}` +
      `${parameter('nereid.padding.OUTPUT0', '[n]')}`
    const io = [[['INPUT0', 'TYPE_INT32', [-1]]], [['OUTPUT0', 'TYPE_INT32', [-1]]]]
    writeModel(root, 'padded', { config: config('identity', 100_000, ...io, more) })
  },
})

async function ask(t, length) {
  const tensor = { name: 'INPUT0', shape: [1, length], datatype: 'INT32', parameters: { binary_data_size: 4 * length } }
  const head = Buffer.from(
    JSON.stringify({ inputs: [tensor], outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }] }),
  )
  const headers = { 'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': `${head.length}` }
  const body = Buffer.concat([head, Buffer.alloc(4 * length, 1)])
  const answer = await fetch(`${t.url}/v2/models/padded/infer`, { method: 'POST', body, headers })
  const bytes = Buffer.from(await answer.arrayBuffer())
  return { status: answer.status, bytes: bytes.length - Number(answer.headers.get('inference-header-content-length')) }
}

export const rows = [
  {
    attack: `${SHORT} requests of one element and one of ${LONG.toLocaleString('en')} to a model that pads them`,
    limit:
      'A row is padded to `ROW_RATIO_MAX` times its own bytes or to `ROW_BYTES_FREE`, and a batch to ' +
      '`BATCH_BYTES_MAX` (`scheduler::padding`). Other requests do not run together.',
    server: padded,
    async run(t) {
      const first = ask(t, 1)
      await first
      const before = t.rssMiB()
      let worst = before
      const timer = setInterval(() => (worst = Math.max(worst, t.rssMiB())), 5)
      const lengths = [1, LONG, ...Array(SHORT).fill(1)]
      const answers = await Promise.all(lengths.map((length) => ask(t, length)))
      clearInterval(timer)
      answers.forEach((answer, i) =>
        t.check(
          answer.status === 200 && answer.bytes === 4 * lengths[i],
          `a request of ${lengths[i]}: status ${answer.status}, ${answer.bytes} bytes`,
        ),
      )
      const grown = Math.max(worst, t.rssMiB()) - before
      // Padded together they would be 800 MB.
      t.check(grown < 128, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `+${grown.toFixed(0)} MiB`
    },
  },
]

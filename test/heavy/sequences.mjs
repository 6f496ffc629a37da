/**
 * Requests of sequences over gRPC streams, through an ensemble whose last step keeps their state on four instances,
 * beside three busy loops: the requests of a sequence reach that step in the order in which the stream sent them. Every
 * answer is the sum so far, so it tells the order. `npm test` sends some thousands (test/client/sequences.test.ts), and
 * proves the same for every order of few threads (`crates/graph/tests/turns.rs`).
 */
import { spawn } from 'node:child_process'
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { end } from '../../bench/lib/process.mjs'
import { startNereid } from '../../bench/subjects/nereid.mjs'
import { config, ensemble, step, writeModel } from '../../scripts/models/repository.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'sequences')
const REQUESTS = Number(process.env.NEREID_REQUESTS ?? 1_000_000)
const STREAMS = 16
const [LENGTH, SUMS] = [4, [1, 3, 6, 10]]
const BUSY = 3

function writeModels(root) {
  const tensors = [[['INPUT0', 'TYPE_INT32', [1]]], [['OUTPUT0', 'TYPE_INT32', [1]]]]
  const single = [[['INPUT', 'TYPE_INT32', [1]]], [['OUTPUT', 'TYPE_INT32', [1]]]]
  const control = (kind) =>
    `{ name: "${kind}" control [ { kind: CONTROL_SEQUENCE_${kind} int32_false_true: [ 0, 1 ] } ] }`
  const four = 'instance_group [ { count: 4 kind: KIND_CPU } ]\n'
  writeModel(root, 'identity', { config: config('identity', 8, ...tensors, four) })
  writeModel(root, 'sums', {
    config: config(
      'sequence',
      8,
      ...single,
      `sequence_batching { control_input [ ${['START', 'READY'].map(control).join(', ')} ] }\n${four}`,
    ),
  })
  const last =
    '{ model_name: "sums" model_version: -1 input_map { key: "INPUT" value: "between" } output_map { key: ' +
    '"OUTPUT" value: "OUTPUT0" } }'
  writeModel(root, 'chain', { config: ensemble(8, ...tensors, [step('identity', -1, 'INPUT0', 'between'), last]) })
}

/**
 * Sends sequences on one stream, each without waiting for its answers. Resolves with how many requests had another
 * answer than expected.
 */
async function ask(client, first, sequences, wrong) {
  const stream = client.stream()
  const answers = stream[Symbol.asyncIterator]()
  for (let n = 0; n < sequences; n += 1) {
    const id = first + n
    for (let i = 0; i < LENGTH; i += 1) {
      const sequence = { id, start: i === 0, end: i === LENGTH - 1 }
      await stream.send('chain', { INPUT0: { data: Int32Array.of(i + 1), shape: [1, 1] } }, { id: String(i), sequence })
    }
    for (let i = 0; i < LENGTH; i += 1) {
      const { value } = await answers.next()
      const found = value.error?.message ?? value.result.output('OUTPUT0').as('INT32')[0]
      const at = value.error?.requestId ?? value.result.id
      if (found !== SUMS[Number(at)]) wrong.push(`sequence ${id}, request ${at}: ${found}`)
    }
  }
  stream.end()
  for (let next = await answers.next(); !next.done; next = await answers.next())
    wrong.push('an answer that was not asked for')
}

/** Ends with its parent, which may be killed before it ends the loop. */
const LOOP = `while (process.ppid === ${process.pid});`

/**
 * Asks a server of its own for so many requests of sequences beside busy loops. `directory` is emptied.
 *
 * @returns `{ requests, wrong }`: how many were sent, and what of the answers is wrong
 */
export async function inOrder(directory, asked, busyLoops) {
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  writeModels(join(directory, 'models'))
  const server = await startNereid(ROOT, { repository: join(directory, 'models') })
  const { connect } = await import(join(ROOT, 'client/dist/node.js'))
  const client = connect(`grpc://127.0.0.1:${server.grpc}`)
  const busy = Array.from({ length: busyLoops }, () => spawn(process.execPath, ['-e', LOOP], { stdio: 'ignore' }))
  try {
    const wrong = []
    const each = Math.ceil(asked / LENGTH / STREAMS)
    await Promise.all(Array.from({ length: STREAMS }, (_, i) => ask(client, 1 + i * each, each, wrong)))
    return { requests: each * LENGTH * STREAMS, wrong }
  } finally {
    client.close()
    for (const one of busy) one.kill('SIGKILL')
    await end(server.child)
  }
}

async function run(checks) {
  let measured
  await checks.step(`${REQUESTS} requests of sequences are answered in order beside ${BUSY} busy loops`, async () => {
    const from = performance.now()
    const { requests, wrong } = await inOrder(HERE, REQUESTS, BUSY)
    must(wrong.length === 0, `${wrong.length} wrong answers: ${wrong.slice(0, 5).join('; ')}`)
    const seconds = ((performance.now() - from) / 1000).toFixed(0)
    measured = `${requests} requests in ${seconds} s, ${wrong.length} out of order`
  })
  return measured
}

export const sequences = {
  about: 'a million requests of sequences through an ensemble, in order beside busy loops',
  missing: async () => [],
  run,
}

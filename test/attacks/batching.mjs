/** Batching libraries that do not answer. Needs a C compiler. */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { server } from './lib/servers.mjs'

/** Lets no request in, and answers no question. */
const SOURCE = `
#include <unistd.h>
void *TRITONBACKEND_ModelBatcherInitialize(void **batcher, void *model) { return 0; }
void *TRITONBACKEND_ModelBatcherFinalize(void *batcher) { return 0; }
void *TRITONBACKEND_ModelBatchInitialize(const void *batcher, void **batch) { return 0; }
void *TRITONBACKEND_ModelBatchFinalize(void *batch) { return 0; }
void *TRITONBACKEND_ModelBatchIncludeRequest(void *request, void *batch, char *includes) { for (;;) pause(); }
`
const io = [[['INPUT0', 'TYPE_INT32', [-1]]], [['OUTPUT0', 'TYPE_INT32', [-1]]]]

const hanging = server('a batching library that hangs', {
  // Its own user could not read the repository.
  flags: ['--host-user=root'],
  models: (root) => {
    const more =
      'dynamic_batching { }\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n' +
      'parameters { key: "execute_delay_ms" value { string_value: "200" } }\n'
    writeModel(root, 'hanging', { config: config('identity', 8, ...io, more) })
    writeModel(root, 'beside', { config: config('identity', 8, ...io, 'dynamic_batching { }\n') })
    const library = join(root, 'hanging', 'batchstrategy.so')
    execFileSync('cc', ['-w', '-shared', '-fPIC', '-x', 'c', '-', '-o', library], { input: SOURCE })
  },
})

const REQUESTS = 5
/** The longest time of one question, with the start of a process. */
const ANSWER_MS_MAX = 7000

export const rows = [
  {
    attack: `${REQUESTS} requests at once to a model whose batching library never answers`,
    limit:
      'A question may take `engine::batching_library::ANSWER_MS_MAX`, 5 s. Then the process of the library is ' +
      'started again, and only the first request of the question is executed. Other models do not wait.',
    server: hanging,
    async run(t) {
      const ask = async (model) => {
        const from = performance.now()
        const body = JSON.stringify({ inputs: [{ name: 'INPUT0', shape: [1, 1], datatype: 'INT32', data: [7] }] })
        const { status } = await t.post(`/v2/models/${model}/infer`, body)
        return { status, ms: performance.now() - from }
      }
      const all = Array.from({ length: REQUESTS }, () => ask('hanging'))
      const beside = await Promise.all(Array.from({ length: 50 }, () => ask('beside')))
      const answers = await Promise.all(all)
      for (const { status } of [...answers, ...beside]) t.check(status === 200, `status ${status}`)
      const [slowest, other] = [answers, beside].map((list) => Math.max(...list.map(({ ms }) => ms)))
      t.check(slowest < REQUESTS * ANSWER_MS_MAX, `a request took ${slowest.toFixed(0)} ms`)
      t.check(other < 3000, `a request of another model took ${other.toFixed(0)} ms`)
      t.check(/hanging batching_0/.test(t.output()), `the log: ${t.output().slice(-600)}`)
      return `${slowest.toFixed(0)} ms, another model ${other.toFixed(0)} ms`
    },
  },
]

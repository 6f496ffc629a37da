/** Models that look cheap until a request makes them dear. */
import { TYPE, initializer, model, node, raw, subgraph, value } from '../../scripts/models/onnx.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { HOLD_MS_MAX, judgedHold } from './lib/control.mjs'
import { server } from './lib/servers.mjs'
import { pause } from './lib/wait.mjs'

/** Y = X, negated as often as N says. */
function rounds() {
  const x = [16]
  const body = subgraph({
    nodes: [node('Identity', ['go'], ['again']), node('Neg', ['x'], ['next'])],
    inputs: [value('i', TYPE.INT64, []), value('go', TYPE.BOOL, []), value('x', TYPE.FP32, x)],
    outputs: [value('again', TYPE.BOOL, []), value('next', TYPE.FP32, x)],
  })
  return model({
    nodes: [node('Loop', ['N', 'yes', 'X'], ['Y'], { body: { graph: body } })],
    inputs: [value('X', TYPE.FP32, x), value('N', TYPE.INT64, [1])],
    outputs: [value('Y', TYPE.FP32, x)],
    initializers: [initializer('yes', TYPE.BOOL, [], raw(Uint8Array.of(1)))],
  })
}

/** Y = the sum of 0 … N. */
function range() {
  return model({
    nodes: [
      node('Squeeze', ['N'], ['limit']),
      node('Range', ['start', 'limit', 'step'], ['all']),
      node('ReduceSum', ['all'], ['Y'], { keepdims: 1 }),
    ],
    inputs: [value('N', TYPE.INT64, [1])],
    outputs: [value('Y', TYPE.INT64, [1])],
    initializers: [
      initializer('start', TYPE.INT64, [], raw(BigInt64Array.of(0n))),
      initializer('step', TYPE.INT64, [], raw(BigInt64Array.of(1n))),
    ],
  })
}

const n = ['N', 'TYPE_INT64', [1]]
const one = 'instance_group [ { count: 1 kind: KIND_CPU } ]\n'

const dear = server('dear models', {
  models: (root) => {
    const x = ['X', 'TYPE_FP32', [16]]
    writeModel(root, 'rounds', {
      config: config('onnxruntime', 0, [x, n], [['Y', 'TYPE_FP32', [16]]], one),
      versions: { 1: rounds() },
    })
    writeModel(root, 'range', {
      config: config('onnxruntime', 0, [n], [['Y', 'TYPE_INT64', [1]]], one),
      versions: { 1: range() },
    })
  },
})

const bodyOf = (count, withX) =>
  JSON.stringify({
    inputs: [
      ...(withX ? [{ name: 'X', shape: [16], datatype: 'FP32', data: Array(16).fill(1) }] : []),
      { name: 'N', shape: [1], datatype: 'INT64', data: [count] },
    ],
    outputs: [{ name: 'Y', parameters: { binary_data: true } }],
  })

const request = (path, body) => `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`

async function teach(t, name, withX) {
  for (let i = 0; i < 64; i++) {
    const answer = await t.post(`/v2/models/${name}/infer`, bodyOf(1, withX))
    t.check(answer.status === 200, `${name}: ${answer.status} ${answer.text.slice(0, 200)}`)
  }
}

export const rows = [
  {
    attack: 'a Loop learned as cheap, then asked for 2^40 rounds, and given up',
    limit:
      'Graphs whose cost may depend on data never run on a reactor (`Capabilities::cost_may_depend_on_data`). A ' +
      'cancelled run is stopped.',
    server: dear,
    measures: true,
    async run(t) {
      await teach(t, 'rounds', true)
      const { ms, result, unknown } = await judgedHold(t, HOLD_MS_MAX, async () => {
        const socket = await t.socket()
        await socket.send(request('/v2/models/rounds/infer', bodyOf(2 ** 40, true)))
        // So long it runs.
        await pause(500)
        t.check(socket.received.length === 0 && !socket.isClosed, `an answer came: ${socket.received}`)
        socket.destroy()
        // The only instance is free again once the run was stopped.
        const from = performance.now()
        await teach(t, 'rounds', true)
        return performance.now() - from
      })
      t.check(result.worstMs < 1000, `health took ${result.worstMs.toFixed(1)} ms`)
      t.check(result.result < 20_000, `the run was stopped after ${result.result.toFixed(0)} ms`)
      return (
        `held at most ${ms} ms${unknown}, health at most ${result.worstMs.toFixed(1)} ms, stopped and 64 ` +
        `others answered in ${result.result.toFixed(0)} ms`
      )
    },
  },
  {
    attack: 'a Range learned as cheap, then asked for 16 million numbers',
    limit:
      'Operands that set the size of a result must not be computed from data; otherwise the model never runs on a ' +
      'reactor.',
    server: dear,
    measures: true,
    async run(t) {
      await teach(t, 'range', false)
      const { ms, result, unknown } = await judgedHold(t, HOLD_MS_MAX, () =>
        t.post('/v2/models/range/infer', bodyOf(16e6, false)),
      )
      t.check(result.result.status === 200, `status ${result.result.status}`)
      return `held at most ${ms} ms${unknown}, health at most ${result.worstMs.toFixed(1)} ms`
    },
  },
]

/** Unusual configurations that Triton loads or rejects: the same happens here, over the real core with real models. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { TYPE, model, node, value } from '../../scripts/models/onnx.mjs'
import { Server } from '../../src/index.js'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-drop-in-'))
afterAll(() => rmSync(ROOT, { recursive: true }))

let next = 0
/** A server of these models: configuration and graph by directory. */
async function serving(models: Record<string, { config: string; graph?: Uint8Array }>): Promise<Server> {
  const root = join(ROOT, String((next += 1)))
  for (const [name, { config, graph }] of Object.entries(models)) {
    mkdirSync(join(root, name, '1'), { recursive: true })
    writeFileSync(join(root, name, 'config.pbtxt'), config)
    if (graph !== undefined) writeFileSync(join(root, name, '1', 'model.onnx'), graph)
  }
  const server = await Server.start({
    modelRepository: root,
    log: () => {},
    exitOnError: false,
    http: { address: '127.0.0.1' },
  })
  onTestFinished(async () => void (await server.stop({ timeoutMs: 2000 })))
  return server
}

const failures = (server: Server): [string, string][] =>
  server.failures.map(({ model: name, reason }) => [name, reason.trimEnd()])

/** The response to 5, as a sequence of one request. */
async function oneOf(server: Server, name: string, input: string): Promise<unknown> {
  const tensor = { name: input, shape: [1, 1], datatype: 'INT32', data: [5] }
  const body = JSON.stringify({
    inputs: [tensor],
    parameters: { sequence_id: 7, sequence_start: true, sequence_end: true },
  })
  const response = await fetch(`http://127.0.0.1:${server.ports.http}/v2/models/${name}/infer`, {
    method: 'POST',
    body,
  })
  const answer = (await response.json()) as { outputs?: { data: number[] }[]; error?: string }
  return answer.outputs?.[0]?.data[0] ?? answer.error
}

/** OUTPUT = INPUT + START + READY. */
const controlled = (shape: (string | number)[]): Uint8Array =>
  model({
    nodes: [node('Add', ['INPUT', 'START'], ['sum']), node('Add', ['sum', 'READY'], ['OUTPUT'])],
    inputs: [value('INPUT', TYPE.INT32, shape), value('START', TYPE.INT32, shape), value('READY', TYPE.INT32, shape)],
    outputs: [value('OUTPUT', TYPE.INT32, shape)],
  })

const control = (name: string, kind: string): string =>
  `control_input [ { name: "${name}" control [ { kind: ${kind} int32_false_true: [0, 1] } ] } ]\n`

/** A sequence model whose warmup sample names its controls. */
const warmed = (rows: number, controls: string): string => `
  backend: "onnxruntime" max_batch_size: ${rows}
  input [ { name: "INPUT" data_type: TYPE_INT32 dims: [1] } ]
  output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [1] } ]
  sequence_batching { ${control('START', 'CONTROL_SEQUENCE_START')} ${control('READY', 'CONTROL_SEQUENCE_READY')} }
  model_warmup [ { name: "zeros" batch_size: 1
    inputs { key: "INPUT" value { data_type: TYPE_INT32 dims: [1] zero_data: true } } ${controls} } ]`

const sample = (name: string, dims: string, type = 'TYPE_INT32'): string =>
  `inputs { key: "${name}" value { data_type: ${type} dims: ${dims} zero_data: true } }`

test('R-47 a warmup sample may name control tensors', async () => {
  const both = (dims: string): string => sample('START', dims) + sample('READY', dims)
  const server = await serving({
    plain: { config: warmed(0, both('[1]')), graph: controlled([1]) },
    batching: { config: warmed(4, both('[1]')), graph: controlled(['batch', 1]) },
    with_rows: { config: warmed(4, both('[1, 1]')), graph: controlled(['batch', 1]) },
    one_of_two: { config: warmed(4, sample('READY', '[1]')), graph: controlled(['batch', 1]) },
    none: { config: warmed(4, ''), graph: controlled(['batch', 1]) },
    other: { config: warmed(4, sample('OTHER', '[1]')), graph: controlled(['batch', 1]) },
    wrong_type: { config: warmed(4, sample('START', '[1]', 'TYPE_FP32')), graph: controlled(['batch', 1]) },
    wrong_dims: { config: warmed(4, sample('START', '[2]')), graph: controlled(['batch', 1]) },
  })
  const reasons = new Map(failures(server))
  expect([...reasons.keys()]).toEqual(['other', 'wrong_dims', 'wrong_type'])
  expect(reasons.get('other')).toContain("unexpected inference input 'OTHER' for model 'other'")
  expect(reasons.get('wrong_type')).toContain(
    "inference input 'START' data-type is 'FP32', but model 'wrong_type' expects 'INT32'",
  )
  expect(reasons.get('wrong_dims')).toContain("unexpected shape for input 'START' for model 'wrong_dims'")
  expect(await oneOf(server, 'batching', 'INPUT'), 'START and READY are those of the request again').toBe(7)
})

/** OUTPUT = INPUT, both scalars. */
const scalar = model({
  nodes: [node('Identity', ['INPUT'], ['OUTPUT'])],
  inputs: [value('INPUT', TYPE.FP32, [])],
  outputs: [value('OUTPUT', TYPE.FP32, [])],
})

const scalars = (input: string, output = input): string => `
  backend: "onnxruntime"
  input [ { name: "INPUT" data_type: TYPE_FP32 ${input} } ]
  output [ { name: "OUTPUT" data_type: TYPE_FP32 ${output} } ]`

test('R-14 a scalar of the graph may have any dimensions of 1 in the configuration', async () => {
  const server = await serving({
    none: { config: 'backend: "onnxruntime"', graph: scalar },
    one: { config: scalars('dims: [1]'), graph: scalar },
    two: { config: scalars('dims: [1, 1]'), graph: scalar },
    three: { config: scalars('dims: [1, 1, 1]', 'dims: [1]'), graph: scalar },
    reshaped: { config: scalars('dims: [1] reshape { shape: [1, 1] }'), graph: scalar },
    larger: { config: scalars('dims: [1, 2]'), graph: scalar },
  })
  expect(failures(server).map(([name]) => name)).toEqual(['larger'])
  for (const [name, shape, out] of [
    ['none', [1], [1]],
    ['one', [1], [1]],
    ['two', [1, 1], [1, 1]],
    ['three', [1, 1, 1], [1]],
    ['reshaped', [1], [1]],
  ] as const) {
    const request = { inputs: { INPUT: { data: new Float32Array([3]), shape: [...shape] } } }
    // Repeated, because equal requests later run by a recipe.
    for (let i = 0; i < 4; i += 1) {
      const answer = await server.model(name).infer(request)
      expect([name, ...answer.output('OUTPUT').data, answer.output('OUTPUT').shape]).toEqual([name, 3, [...out]])
    }
  }
})

const sequence = (state: string): string => `
  backend: "identity" max_batch_size: 4
  input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [1] } ]
  output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] } ]
  sequence_batching { state [ { input_name: "S_IN" output_name: "S_OUT" ${state} } ] }`

test('S-23 a state without data type loads as long as the model does not use it', async () => {
  const server = await serving({
    untyped: { config: sequence('dims: [1]') },
    typed: { config: sequence('data_type: TYPE_INT32 dims: [1]') },
  })
  expect(failures(server)).toEqual([])
  for (const name of ['untyped', 'typed']) expect(await oneOf(server, name, 'INPUT0')).toBe(5)
})

const calling = (version: string): string => `
  platform: "ensemble" max_batch_size: 4
  input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [1] } ]
  output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] } ]
  ensemble_scheduling { step [ { model_name: "called" ${version}
    input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } ] }`

test('R-37 of the negative versions of a step, only -1 means the latest', async () => {
  const server = await serving({
    called: { config: sequence('data_type: TYPE_INT32 dims: [1]').replace(/sequence_batching.*/s, '') },
    latest: { config: calling('model_version: -1') },
    named: { config: calling('model_version: 1') },
    second: { config: calling('model_version: -2') },
    unset: { config: calling('') },
  })
  const depends = (name: string, version: number): string =>
    `load failed for model '${name}': ensemble '${name}' depends on 'called' whose required version ` +
    `${version} is not loaded.`
  expect(failures(server)).toEqual([
    ['second', depends('second', -2)],
    ['unset', depends('unset', 0)],
  ])
})

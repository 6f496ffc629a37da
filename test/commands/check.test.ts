// `nereid check`: places and texts of mistakes in real directories, which agree with those of a load.
import { chmodSync } from 'node:fs'
import { describe, expect, test, vi } from 'vitest'
import { PYTHON } from '../../scripts/lib/venv.mjs'
import { addSub, identity } from '../../scripts/models/graphs.mjs'
import { TYPE, model, node, value } from '../../scripts/models/onnx.mjs'
import { parseArguments } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import * as check from '../../src/tools/check/index.js'
import { loadProblems } from '../../src/tools/check/load.js'
import { ConfigSyntaxError, parsePbtxt, pbtxtProblems, repositoryHint } from '../../src/config/index.js'
import { SYNTAX_PROBLEMS_MAX } from '../../src/config/pbtxt.js'
import { writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { files, runs } from './harness.js'

const GOOD = `backend: "onnxruntime"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
`

/** The graph that matches `GOOD`. */
const MODEL = identity(TYPE.FP32, [1], 'A', 'B')

/** The same graph with an operator that ONNX Runtime lacks. */
const MISSING = model({
  nodes: [node('NoSuchOperator', ['A'], ['B'])],
  inputs: [value('A', TYPE.FP32, [1])],
  outputs: [value('B', TYPE.FP32, [1])],
})

async function checked(
  content: Record<string, string | Uint8Array>,
  args: string[] = [],
): Promise<{ code: number; out: string }> {
  const directory = files(content)
  return runs(check, [directory, ...args], directory)
}

describe('a configuration', () => {
  test('every mistake is printed with its line, a caret and the likely meaning', async () => {
    const config = `name: "m"
max_batchsize: 8
input [
	{
		name: "A"
		data_type: FP32
		dims: [ 3, x, 2 ]
	}
]
output [ { name: OUT dims: [ 1 ] } ]
dynamic_batching { preferred_batch_sizes: [ 4 ] }
`
    const { code, out } = await checked({ 'm/1/': '', 'm/config.pbtxt': config })
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "./m/config.pbtxt:2:1: error: Message type "inference.ModelConfig" has no field named "max_batchsize". Did you mean "max_batch_size"?
          2 | max_batchsize: 8
            | ^^^^^^^^^^^^^
      ./m/config.pbtxt:6:28: error: Unknown enumeration value of "FP32" for field "data_type". Did you mean "TYPE_FP32"?
          6 |                 data_type: FP32
            |                            ^^^^
      ./m/config.pbtxt:7:28: error: Expected integer, got: x
          7 |                 dims: [ 3, x, 2 ]
            |                            ^
      ./m/config.pbtxt:10:18: error: Expected string, got: OUT. Strings need quotes.
         10 | output [ { name: OUT dims: [ 1 ] } ]
            |                  ^^^
      ./m/config.pbtxt:11:20: error: Message type "inference.ModelDynamicBatching" has no field named "preferred_batch_sizes". Did you mean "preferred_batch_size"?
         11 | dynamic_batching { preferred_batch_sizes: [ 4 ] }
            |                    ^^^^^^^^^^^^^^^^^^^^^
      1 model, 5 errors, 0 warnings
      "
    `)
  })

  test('an unknown field hides no mistake behind it, on its line or in its block', async () => {
    const config = `backend: "onnxruntime"
dynamic_batching { max_queue_delay_ms: 5 preferred_batch_siz: [ 4 ], foo: "a" 'b' priority_levles: -1 }
optimization { unknown { a: 1 b { c: [ 2 ] } } grapf { level: 1 } cuda { graphs: yes } } max_batchsize: 8
`
    const { out } = await checked({ 'm/1/': '', 'm/config.pbtxt': config })
    const fields = [...out.matchAll(/(\d+:\d+): error: .*(?:no field named|Invalid value for boolean).*?"(\w+)"/g)]
    expect(fields.map(([, place, name]) => `${place} ${name}`)).toEqual([
      '2:20 max_queue_delay_ms',
      '2:42 preferred_batch_siz',
      '2:70 foo',
      '2:83 priority_levles',
      '3:16 unknown',
      '3:48 grapf',
      '3:82 graphs',
      '3:90 max_batchsize',
    ])
    expect(out).toContain('Did you mean "max_queue_delay_microseconds"?')
  })

  test('C-29: what follows a field that there is not is read', () => {
    const text = `dynamic_batching { max_queue_delay_ms: -5, bogus { a: "x" b [ 1 ] } preferred_batch_sise: 4 }
parameters { key: "a" val: "x" "y" value { string_val: "x" string_value: 1 } }
max_batch_size: "x"`
    expect(pbtxtProblems(Buffer.from(text), 'c').map(({ message }) => message.replace(/^.*? c: /, ''))).toEqual([
      '1:38: Message type "inference.ModelDynamicBatching" has no field named "max_queue_delay_ms". Did you mean ' +
        '"max_queue_delay_microseconds"?',
      '1:50: Message type "inference.ModelDynamicBatching" has no field named "bogus".',
      '1:89: Message type "inference.ModelDynamicBatching" has no field named "preferred_batch_sise". Did you mean ' +
        '"preferred_batch_size"?',
      '2:26: Message type "inference.ModelConfig.ParametersEntry" has no field named "val". A map entry has the ' +
        'fields "key" and "value".',
      '2:54: Message type "inference.ModelParameter" has no field named "string_val". Did you mean "string_value"?',
      '2:74: Expected string, got: 1 Strings need quotes.',
      '3:17: Expected integer, got: "x"',
    ])
  })

  test('C-29: the first mistake is the one of a load; a text without any has none', () => {
    for (const text of [
      'nam: "m"',
      'name: "m" }',
      'input [ { name: "A" ]',
      'name: "m',
      'max_batch_size: 3000000000',
      '\u0001',
      'input { dims: [ 1, ] }',
    ]) {
      let thrown: unknown = null
      try {
        parsePbtxt(text, 'p')
      } catch (error) {
        thrown = error
      }
      expect(thrown, text).toBeInstanceOf(ConfigSyntaxError)
      expect(pbtxtProblems(text, 'p')[0]?.message, text).toBe((thrown as Error).message)
    }
    expect(pbtxtProblems(GOOD, 'p')).toEqual([])
  })

  test('a mistake neither hides the next field nor causes further mistakes', () => {
    const reported = (text: string): string[] => pbtxtProblems(text, 'p').map(({ line, reason }) => `${line} ${reason}`)
    expect(reported('nam: "m"\nbackend: 3\nmax_batch_size: 4')).toEqual([
      '1 Message type "inference.ModelConfig" has no field named "nam".',
      '2 Expected string, got: 3',
    ])
    expect(reported('foo { bar { baz: [ 1, 2 ] } }\nplatfrm: "x"')).toHaveLength(2)
    expect(reported('name: "m\nbackend: "b\n')).toEqual([
      '1 String literals cannot cross line boundaries.',
      '2 String literals cannot cross line boundaries.',
    ])
    expect(reported('}\nname: "m"\n')).toEqual(['1 Expected identifier, got: }'])
    expect(reported('parameters { key: "k" vaule { string_value: "v" } }\nnam: "m"')).toHaveLength(2)
    // After an open block the rest cannot be judged.
    expect(reported('input [\n { name: "A"\n]\noutput [ { nam: "B" } ]')).toEqual(['3 Expected identifier, got: ]'])
  })

  test(`at most ${SYNTAX_PROBLEMS_MAX} mistakes of a file are reported`, () => {
    const from = performance.now()
    expect(pbtxtProblems('x: 1\n'.repeat(200_000), 'p')).toHaveLength(SYNTAX_PROBLEMS_MAX)
    expect(pbtxtProblems('dims: [ '.repeat(200_000), 'p').length).toBeLessThanOrEqual(SYNTAX_PROBLEMS_MAX)
    expect(pbtxtProblems(`input { ${'a '.repeat(400_000)}`, 'p').length).toBeLessThanOrEqual(SYNTAX_PROBLEMS_MAX)
    expect(performance.now() - from).toBeLessThan(20_000)
  })

  test('a place in a line of tabs, wide characters and control characters', async () => {
    const { out } = await checked({ 'm/1/': '', 'm/config.pbtxt': '\tparameters { key: "é\u001b😀" valu: 1 }\n' })
    expect(out).toMatchInlineSnapshot(`
      "./m/config.pbtxt:1:33: error: Message type "inference.ModelConfig.ParametersEntry" has no field named "valu". A map entry has the fields "key" and "value".
          1 |         parameters { key: "é·😀" valu: 1 }
            |                                 ^^^^
      1 model, 1 error, 0 warnings
      "
    `)
  })

  test('independent rules are all reported, with places', async () => {
    const config = `name: "other"
backend: "onnx_runtime"
input [ { name: "A" data_type: TYPE_FP32 dims: [ ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
`
    const { out } = await checked({ 'm/1/model.onnx': '', 'm/config.pbtxt': config })
    expect(out).toMatchInlineSnapshot(`
      "./m/config.pbtxt:1:7: error: unexpected directory name 'm' for model 'other', directory name must equal model name
          1 | name: "other"
            |       ^^^^^^^
      ./m/config.pbtxt:3:17: error: model input 'A' must specify 'dims' for m
          3 | input [ { name: "A" data_type: TYPE_FP32 dims: [ ] } ]
            |                 ^^^
      ./m/config.pbtxt:2:10: error: unable to find backend library for backend 'onnx_runtime', try specifying runtime on the model configuration. Did you mean backend: "onnxruntime"?
          2 | backend: "onnx_runtime"
            |          ^^^^^^^^^^^^^^
      1 model, 3 errors, 0 warnings
      "
    `)
  })

  test('a file outside of a model is checked by its content alone', async () => {
    const directory = files({ 'some.pbtxt': `name: "m"\n${GOOD}`, 'resnet/config.pbtxt': 'platform: "onnxruntime"' })
    expect((await runs(check, [join(directory, 'some.pbtxt')])).code).toBe(0)
    const { code, out } = await runs(check, [join(directory, 'resnet/config.pbtxt')], directory)
    expect([code, out]).toMatchInlineSnapshot(`
      [
        1,
        "./resnet/config.pbtxt:1:11: error: unexpected platform type 'onnxruntime' for resnet; did you mean backend: "onnxruntime"?
          1 | platform: "onnxruntime"
            |           ^^^^^^^^^^^^^
      1 model, 1 error, 0 warnings
      ",
      ]
    `)
  })
})

describe('a file outside of a model', () => {
  const IO =
    'input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "B" data_type: TYPE_FP32 ' +
    'dims: [ 1 ] } ]\n'
  const lone = async (text: string, args: string[] = []): Promise<{ code: number; out: string }> => {
    const directory = files({ 'bert/config.pbtxt': text })
    return runs(check, [join(directory, 'bert/config.pbtxt'), ...args], directory)
  }

  const absent: [string, string][] = [
    [
      'backend: "tensorrtllm" max_batch_size: 4',
      'TensorRT-LLM engines are not in this release; write backend: "python", and the model.py of TensorRT-LLM',
    ],
    ['backend: "tensorrt_llm"', 'TensorRT-LLM engines are not in this release'],
    ['backend: "dali"', 'DALI pipelines are not in this release; run the pipeline from a model.py'],
    ['backend: "fastertransformer"', 'FasterTransformer models are not in this release'],
    ['backend: "neuron"', 'Neuron models are not in this release'],
    [
      'backend: "stateful"',
      'The stateful backend is not in this release; serve its ONNX model with backend: "onnxruntime", and ' +
        'write each pair of its state_pairs as a state of sequence_batching (implicit state)',
    ],
    ['backend: "my_backend"', "unable to find backend library for backend 'my_backend'"],
    ['backend: "pyhton"', 'Did you mean backend: "python"?'],
    [
      'default_model_filename: "model.pt"',
      "model 'bert' must specify its inputs and outputs: they are not read from a file of PyTorch",
    ],
  ]
  test.each(absent)('an absent backend: %s', async (text, reported) => {
    const { code, out } = await lone(text)
    expect([code, out]).toEqual([1, expect.stringContaining(reported)])
    expect(out).toMatch(/1 model, 1 error, 0 warnings\n$/)
  })

  test('a model of vLLM without its model.json, and an interpreter without the package', async () => {
    const directory = files({ 'llm/1/notes.txt': '', 'llm/config.pbtxt': 'backend: "vllm"' })
    const { code, out } = await runs(check, [directory], directory)
    expect([code, out]).toEqual([1, expect.stringContaining("unable to find './llm/1/model.json' for model 'llm'")])
    const loaded = await loadProblems(resolveSettings(parseArguments([`--model-repository=${directory}`])).settings, [])
    expect(loaded.map(({ reason }) => reason)).toEqual([
      expect.stringContaining(`unable to find '${directory}/llm/1/model.json' for model 'llm'`),
    ])
    writeFileSync(join(directory, 'llm/1/model.json'), '{"model": "facebook/opt-125m"}')
    const warned = await runs(check, [`--backend-config=python,python-executable=${PYTHON}`, directory], directory)
    expect([warned.code, warned.out]).toEqual([
      0,
      expect.stringContaining(
        `${PYTHON} has no module 'vllm', which runs this model: get it with ${PYTHON} -m pip install vllm`,
      ),
    ])
  })

  test('a TensorRT plan without inputs or outputs, in a repository as well', async () => {
    const reported = "model 'bert' must specify its inputs and outputs: they are not read from a TensorRT plan"
    for (const text of [
      'platform: "tensorrt_plan"\nmax_batch_size: 8\n',
      'backend: "tensorrt"\ninput [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]\n',
      'default_model_filename: "model.plan"\n',
    ]) {
      const { code, out } = await lone(text)
      expect([code, out], text).toEqual([1, expect.stringContaining(reported)])
      const directory = files({ 'bert/1/model.plan': 'plan', 'bert/config.pbtxt': text })
      const { out: inside } = await runs(check, [directory])
      expect(inside, text).toContain(reported)
      const loaded = await loadProblems(
        resolveSettings(parseArguments([`--model-repository=${directory}`])).settings,
        [],
      )
      expect(
        loaded.map(({ reason }) => reason),
        text,
      ).toEqual([expect.stringContaining(reported)])
    }
    expect((await lone(`platform: "tensorrt_plan"\n${IO}`)).code).toBe(0)
    // Only a model on this machine tells where it runs.
    const onCpu = files({
      'bert/1/model.plan': 'plan',
      'bert/config.pbtxt': `platform: "tensorrt_plan"\n${IO}instance_group [ { kind: KIND_CPU } ]`,
    })
    const [cpu] = await loadProblems(resolveSettings(parseArguments([`--model-repository=${onCpu}`])).settings, [])
    expect(cpu?.reason).toContain('a TensorRT plan runs on GPUs only, and an instance is on the CPU. Other ways: ')
    const { out } = await runs(check, ['--format=json', onCpu])
    const [{ message } = { message: '?' }] = (JSON.parse(out) as { problems: { message: string }[] }).problems
    expect(cpu?.reason).toContain(message)
  })

  test('a missing name is that of the directory, a missing backend is that of the files', async () => {
    expect(await lone(`backend: "onnxruntime"\n${IO}`)).toEqual({
      code: 0,
      out: '1 model, 0 errors, 0 warnings\n',
      err: '',
    })
    expect((await lone(`backend: "onnxruntime"\n${IO.replace('dims: [ 1 ]', 'dims: [ ]')}`)).out).toContain(
      "model input 'A' must specify 'dims' for bert\n",
    )
    const { code, out } = await lone(`max_batch_size: 4\n${IO}`)
    expect([code, out]).toEqual([
      0,
      expect.stringContaining(
        'warning: names no backend: loading takes it from the file of the model, which is not beside config.pbtxt',
      ),
    ])
    expect((await lone(`${IO.replace('dims: [ 1 ]', 'dims: [ 0 ]')}`)).code).toBe(1)
  })

  test('the place is that of the field, not of the name that looks the same', async () => {
    expect((await lone('name: "dali"\nbackend: "dali"\n')).out).toContain(
      './bert/config.pbtxt:2:10: error: unable to find backend library',
    )
    const effect = await lone(`name: "bert"\nbackend: "onnxruntime"\n${IO}optimization { cuda { graphs: true } }\n`)
    expect(effect.out).toContain(
      "./bert/config.pbtxt:5:1: warning: model 'bert' has settings without effect in this release: optimization.cuda",
    )
  })

  test('placeholders of templates, and JSON', async () => {
    expect((await lone('backend: "onnxruntime"\nmax_batch_size: ${batch}\n')).out).toContain(
      'Expected integer, got: $. It is a placeholder of a template: fill in the value first.',
    )
    expect(
      (await lone('backend: "onnxruntime"\nmodel_transaction_policy { decoupled: ${decoupled_mode} }\n')).out,
    ).toContain('got: $. It is a placeholder of a template')
    expect((await lone('{ "name": "m" }\n')).out).toContain(
      'Expected identifier, got: {. It looks like JSON: fields have no quotes here, and no brackets around them.',
    )
  })

  test('obvious mistakes are warnings there, too', async () => {
    const { code, out } = await lone(`backend: "onnxruntime"\n${IO}instance_group [ { count: -1 } ]\n`)
    expect([code, out]).toEqual([
      0,
      expect.stringContaining('./bert/config.pbtxt:4:27: warning: instance group with count: -1'),
    ])
  })

  test('--load reports that there is nothing to load', async () => {
    const { code, out } = await lone(`backend: "onnxruntime"\n${IO}`, ['--load'])
    expect([code, out]).toEqual([
      0,
      expect.stringContaining(
        './bert/config.pbtxt: warning: is not loaded: there are no versions of a model beside it',
      ),
    ])
  })
})

describe('a repository', () => {
  test('mistakes in directories, names, files and ensembles', async () => {
    const maps = 'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" }'
    const scheduling = (model: string): string => `ensemble_scheduling { step [ { model_name: "${model}" ${maps} } ] }`
    const step = (model: string): string => `platform: "ensemble"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
${scheduling(model)}
`
    const { out } = await checked({
      'ensemble/1/': '',
      'ensemble/config.pbtxt': step('fien'),
      'fine/1/model.onnx': MODEL,
      'fine/config.pbtxt': GOOD,
      'gpu/1/model.onnx': '',
      'gpu/config.pbtxt': `${GOOD}instance_group [ { kind: KIND_GPU } ]`,
      'misnamed/1/resnet50.onnx': '',
      'misnamed/config.pbtxt': GOOD,
      'nothing/1/resnet50.onnx': '',
      'stray/v1/': '',
      'stray/config.pbtxt': GOOD,
      'torch/1/model.pt': '',
      'waits/1/': '',
      'waits/config.pbtxt': step('torch'),
    })
    expect(out).toMatchInlineSnapshot(`
      "./ensemble/config.pbtxt:4:44: error: ensemble ensemble contains models that are not available or ambiguous: fien. Did you mean "fine"?
          4 | ensemble_scheduling { step [ { model_name: "fien" input_map { key: "A" value: "A" } output_map { key: "B" value: "B" } }
            |                                            ^^^^^^
      ./gpu/config.pbtxt:4:1: error: instance group gpu_0 of model gpu has kind KIND_GPU but server does not support GPUs; --gpu-fallback=cpu serves it on the CPU
          4 | instance_group [ { kind: KIND_GPU } ]
            | ^^^^^^^^^^^^^^
      ./misnamed: error: failed to stat file ./misnamed/1/model.onnx; there is 'resnet50.onnx': call it 'model.onnx', or set default_model_filename: "resnet50.onnx"
      ./nothing: error: Invalid model name: Could not determine backend for model 'nothing' with no backend in model configuration. Expected model name of the form 'model.<backend_name>'. 'resnet50.onnx' is not a name that the backend looks for: call it 'model.onnx', or name it in the configuration: backend: "onnxruntime" default_model_filename: "resnet50.onnx".
      ./stray: warning: ignore version directory 'v1' which fails to convert to integral number. A version is called by its number: '1'.
      ./stray: error: at least one version must be available under the version policy of model 'stray'
      ./torch: error: failed to load model 'torch': './torch/1/model.pt' is empty
      ./waits/config.pbtxt:4:44: error: ensemble 'waits' depends on 'torch' which has no loaded version. Model 'torch' loading failed with error: failed to load model 'torch': './torch/1/model.pt' is empty
          4 | ensemble_scheduling { step [ { model_name: "torch" input_map { key: "A" value: "A" } output_map { key: "B" value: "B" } 
            |                                            ^^^^^^^
      8 models, 7 errors, 1 warning
      "
    `)
  })

  describe('an ensemble that does not fit its models is reported like by a load', () => {
    const io = (name: string, type: string, dims: string, more = ''): string =>
      `{ name: "${name}" data_type: ${type} dims: [ ${dims} ] ${more} }`
    const identity = (type: string, dims: string, batch = 0): string =>
      `backend: "identity" max_batch_size: ${batch} input [ ${io('INPUT0', type, dims)} ] output [ ` +
      `${io('OUTPUT0', type, dims)} ]`
    const ensemble = (
      inputs: string,
      outputs: string,
      batch = 0,
    ): string => `platform: "ensemble" max_batch_size: ${batch}
input [ ${io('A', 'TYPE_FP32', '4')} ] output [ ${io('B', 'TYPE_FP32', '4')} ]
ensemble_scheduling { step [ { model_name: "m" model_version: -1 ${inputs} ${outputs} } ] }
`
    const map = (field: string, key: string, value: string): string => `${field} { key: "${key}" value: "${value}" }`
    const IN = map('input_map', 'INPUT0', 'A')
    const OUT = map('output_map', 'OUTPUT0', 'B')
    const cases: [string, string, string, string][] = [
      [
        'an input that the model has not',
        ensemble(map('input_map', 'INPUT', 'A'), OUT),
        identity('TYPE_FP32', '4'),
        'is mapping to non-existing input INPUT in model m',
      ],
      [
        'an output that the model has not',
        ensemble(IN, map('output_map', 'OUT', 'B')),
        identity('TYPE_FP32', '4'),
        'is mapped from non-existing output OUT in model m',
      ],
      [
        'another datatype',
        ensemble(IN, OUT),
        identity('TYPE_INT32', '4'),
        'inconsistent data type: TYPE_FP32 is inferred from model e while TYPE_INT32',
      ],
      [
        'another shape',
        ensemble(IN, OUT),
        identity('TYPE_FP32', '5'),
        'inconsistent shape: [4] is inferred from model e while [5]',
      ],
      [
        'another shape with batches',
        ensemble(IN, OUT, 2),
        identity('TYPE_FP32', '5', 2),
        'inconsistent shape: [-1,4] is inferred from model e while [-1,5]',
      ],
      [
        'larger batches',
        ensemble(IN, OUT, 8),
        identity('TYPE_FP32', '4', 4),
        'which only allows maximum batch size to be 4',
      ],
      ['any length', ensemble(IN, OUT), identity('TYPE_FP32', '-1'), ''],
    ]
    test.each(cases)('%s', async (_, e, m, text) => {
      const directory = files({ 'e/1/': '', 'e/config.pbtxt': e, 'm/1/': '', 'm/config.pbtxt': m })
      const { code, out } = await runs(check, ['--format=json', directory])
      const reported = (JSON.parse(out) as { problems: { message: string }[] }).problems.map(({ message }) => message)
      const [settings] = [resolveSettings(parseArguments([`--model-repository=${directory}`])).settings]
      const loaded = (await loadProblems(settings, [])).map(({ reason }) =>
        reason.replace("load failed for model 'e': ", '').trimEnd(),
      )
      expect(reported).toEqual(loaded)
      expect(code).toBe(text === '' ? 0 : 1)
      if (text !== '') expect(reported.join('\n')).toContain(text)
    })
  })

  test('R-05: a model in two repositories', async () => {
    const one = files({ 'm/1/model.onnx': '' })
    const two = files({ 'm/1/model.onnx': MODEL, 'm/config.pbtxt': `${GOOD}max_batch_sise: 8\n` })
    const { out } = await runs(check, [`--model-repository=${one}`, two])
    expect(out).toContain("error: failed to poll model 'm': not unique across all model repositories")
    // Each is checked for other mistakes as well: all are reported, and both are marked.
    expect(out).toContain('the file is empty')
    expect(out).toContain('max_batch_sise')
    expect(out).toContain('2 models, 3 errors')
    const { out: marks } = await runs(check, ['--format=github', one, two])
    for (const directory of [one, two])
      expect(marks).toMatch(new RegExp(`file=[^,]*${basename(directory)}/m,.*not unique`))
  })

  test('flags of the server count, and wrong ones are refused', async () => {
    const directory = files({
      'gpu/1/model.onnx': MODEL,
      'gpu/config.pbtxt': `${GOOD}instance_group [ { kind: KIND_GPU } ]`,
    })
    expect((await runs(check, [directory])).code).toBe(1)
    expect((await runs(check, [directory, '--gpu-fallback', 'cpu'])).code).toBe(0)
    const wrong = await runs(check, [directory, '--gpu-falback=cpu'])
    expect([wrong.code, wrong.err]).toEqual([1, expect.stringContaining("did you mean '--gpu-fallback'?")])
    expect((await runs(check, [])).err).toContain('Nothing to check')
    expect((await runs(check, ['/nowhere'])).out).toBe(
      'error: failed to stat file /nowhere\n0 models, 1 error, 0 warnings\n',
    )
    expect((await runs(check, [join(directory, 'gpu/1/model.onnx')], directory)).out).toMatch(
      /^error: \.\/gpu\/1\/model\.onnx is not a configuration; '\.\/gpu\/1\/model\.onnx' is a model: .* init \.\/gpu\/1\/model\.onnx puts it into the repository models/,
    )
  })

  test('as JSON', async () => {
    const directory = files({ 'm/1/model.onnx': '', 'm/config.pbtxt': 'backend: "onnxruntime"\nmax_batchsize: 8\n' })
    const { code, out } = await runs(check, ['--format=json', directory], directory)
    expect([code, JSON.parse(out)]).toMatchInlineSnapshot(`
      [
        1,
        {
          "errors": 1,
          "models": 1,
          "problems": [
            {
              "advice": "Did you mean "max_batch_size"?",
              "column": 1,
              "endColumn": 14,
              "line": 2,
              "message": "Message type "inference.ModelConfig" has no field named "max_batchsize".",
              "model": "m",
              "path": "./m/config.pbtxt",
              "severity": "error",
            },
          ],
          "warnings": 0,
        },
      ]
    `)
  })

  test.each([
    ['Identity', 0],
    ['NonZero', 1],
  ])('a size that the file leaves open in an output is the one of ONNX Runtime: %s', async (op, wanted) => {
    const type = op === 'Identity' ? TYPE.FP32 : TYPE.INT64
    const open = model({
      nodes: [node(op, ['A'], ['B'])],
      inputs: [value('A', TYPE.FP32, [1, 4])],
      outputs: [value('B', type, op === 'Identity' ? [1, 'M'] : [2, 'M'])],
    })
    const dims = op === 'Identity' ? '1, 4' : '2, 4'
    const directory = files({
      'm/1/model.onnx': open,
      'm/config.pbtxt':
        'backend: "onnxruntime"\ninput [ { name: "A" data_type: TYPE_FP32 dims: [ 1, 4 ] } ]\n' +
        `output [ { name: "B" data_type: TYPE_${op === 'Identity' ? 'FP32' : 'INT64'} dims: [ ${dims} ] } ]\n`,
    })
    const { code, out } = await runs(check, [directory], directory)
    const loaded = await runs(check, [directory, '--load'], directory)
    expect([code, loaded.code]).toEqual([wanted, wanted])
    const text = "tensor 'B': the model expects 2 dimensions (shape [2,-1]) but the model configuration specifies 2"
    if (wanted === 1) expect(out).toContain(text)
    expect(loaded.out).toBe(out)
  })

  test('checks of models in TypeScript and Python that need --load are listed without it', async () => {
    const content = {
      'a/1/model.ts': [
        "import { Model } from 'nereid/backend'",
        'export default class extends Model { execute() { return [] } }',
        '',
      ].join('\n'),
      'a/config.pbtxt': `backend: "javascript"\n${GOOD.replace(/.*\n/, '')}`,
      'b/1/model.onnx': MODEL,
      'b/config.pbtxt': GOOD,
    }
    const line = 'only with --load: imports, and what the code declares and initialises (a)\n'
    expect(await checked(content)).toMatchObject({ code: 0, out: `${line}2 models, 0 errors, 0 warnings\n` })
    expect((await checked(content, ['--load'])).out).not.toContain('only with')
    const tuned = `${GOOD}parameters { key: "execution_mode" value { string_value: "9" } }\n`
    expect((await checked({ 'c/1/model.onnx': MODEL, 'c/config.pbtxt': tuned })).out).toBe(
      'only with --load: values of parameters, accelerators and operator libraries (c)\n' +
        '1 model, 0 errors, 0 warnings\n',
    )
    const { out } = await checked(content, ['--format=json'])
    expect((JSON.parse(out) as { onlyWithLoad: string[] }).onlyWithLoad).toEqual([
      'imports, and what the code declares and initialises (a)',
    ])
  })

  test('with --load the models are loaded, and their failures reported', async () => {
    const directory = files({ 'm/1/model.onnx': addSub(), 'broken/1/model.onnx': MISSING })
    expect((await runs(check, [directory])).code).toBe(0)
    const { code, out } = await runs(check, ['--load', directory], directory)
    expect(code).toBe(1)
    expect(out).toMatch(/^\.\/broken\/1\/model\.onnx: error: onnx runtime error \d+: .*NoSuchOperator/)
    expect(out).toContain('2 models, 1 error, 0 warnings\n')
    expect((await runs(check, ['--load', join(directory, 'm')])).code).toBe(0)
  })
})

describe('a model of PyTorch', () => {
  const IO =
    'input [ { name: "A__0" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "B__0" data_type: ' +
    'TYPE_FP32 dims: [ 1 ] } ]\n'
  const reported = async (content: Record<string, string>, python = 'sh'): Promise<string> => {
    // An interpreter that finds every module, or none.
    const directory = files({ ...content, 'bin/sh': '#!/bin/sh\nexit 0\n', 'bin/none': '#!/bin/sh\nexit 1\n' })
    for (const name of ['sh', 'none']) chmodSync(join(directory, 'bin', name), 0o755)
    vi.stubEnv('NEREID_PYTHON', join(directory, 'bin', python))
    try {
      return (await runs(check, [join(directory, 'r')], directory)).out
    } finally {
      vi.unstubAllEnvs()
    }
  }

  test('is right with its file, by backend or by platform, or with a class in a model.py', async () => {
    expect(
      await reported({
        'r/a/1/model.pt': 'PK',
        'r/a/config.pbtxt': `backend: "pytorch"\n${IO}`,
        'r/b/1/model.pt2': 'PK',
        'r/b/config.pbtxt': `platform: "torch_aoti"\n${IO}`,
        'r/c/1/model.py': '',
        'r/c/config.pbtxt': `backend: "pytorch" runtime: "model.py"\n${IO}`,
      }),
    ).toBe('only with --load: what the backend pytorch checks (a, b, c)\n3 models, 0 errors, 0 warnings\n')
  })

  test.each([
    [
      'no file',
      { 'r/a/1/': '', 'r/a/config.pbtxt': `backend: "pytorch"\n${IO}` },
      "unable to find './r/a/1/model.pt' for model 'a'",
    ],
    [
      'a file of another name',
      { 'r/a/1/net.pt': 'PK', 'r/a/config.pbtxt': `backend: "pytorch"\n${IO}` },
      "unable to find './r/a/1/model.pt' for model 'a'; there is 'net.pt': call it 'model.pt', or set " +
        'default_model_filename: "net.pt"',
    ],
    [
      'the file of another platform',
      { 'r/a/1/net.pt2': 'PK', 'r/a/config.pbtxt': `platform: "torch_aoti"\n${IO}` },
      "unable to find './r/a/1/model.pt2' for model 'a'",
    ],
    [
      'a pointer',
      { 'r/a/1/model.pt': 'version https://git-lfs.github.com/spec/v1\n', 'r/a/config.pbtxt': IO },
      "failed to load model 'a': './r/a/1/model.pt' is a pointer of Git LFS",
    ],
    [
      'no inputs',
      { 'r/a/1/model.pt': 'PK' },
      "model 'a' must specify its inputs and outputs: they are not read from a file of PyTorch",
    ],
  ] as [string, Record<string, string>, string][])('with %s is told what is missing', async (_, content, text) => {
    expect(await reported(content)).toContain(text)
  })

  test('without torch in the interpreter, its command of installation is named', async () => {
    const out = await reported({ 'r/a/1/model.pt': 'PK', 'r/a/config.pbtxt': IO }, 'none')
    expect(out).toMatch(
      /^\.\/r\/a: warning: (.*\/none) has no module 'torch', which runs this model: get it with \1 -m pip install torch, or name another interpreter with NEREID_PYTHON$/m,
    )
    expect(out).toContain('1 model, 0 errors, 1 warning\n')
  })

  test('of OpenVINO needs no inputs in its configuration', async () => {
    const content = {
      'r/a/1/model.xml': '<net/>',
      'r/b/1/model.onnx': 'onnx',
      'r/b/config.pbtxt': 'backend: "openvino" default_model_filename: "model.onnx"',
    }
    expect(await reported(content)).toBe(
      'only with --load: what the backend openvino checks (a, b)\n2 models, 0 errors, 0 warnings\n',
    )
    const out = await reported(
      { ...content, 'r/c/1/net.xml': '<net/>', 'r/c/config.pbtxt': 'backend: "openvino"' },
      'none',
    )
    expect(out).toMatch(
      /^\.\/r\/a: warning: (.*\/none) has no module 'openvino', which runs this model: get it with \1 -m pip install openvino, /m,
    )
    expect(out).toContain(
      "unable to find './r/c/1/model.xml' for model 'c'; there is 'net.xml': call it 'model.xml', or set " +
        'default_model_filename',
    )
    expect(out).toContain('3 models, 1 error, 2 warnings\n')
  })

  test('of TensorFlow needs no inputs in its configuration', async () => {
    const content = {
      'r/a/1/model.savedmodel/saved_model.pb': 'graph',
      'r/b/1/net/saved_model.pb': 'graph',
      'r/b/config.pbtxt': 'backend: "tensorflow" default_model_filename: "net"',
    }
    expect(await reported(content)).toBe(
      'only with --load: what the backend tensorflow checks (a, b)\n2 models, 0 errors, 0 warnings\n',
    )
    expect(await reported(content, 'none')).toMatch(
      /^\.\/r\/a: warning: (.*\/none) has no module 'tensorflow', which runs this model: get it with \1 -m pip install tensorflow, /m,
    )
  })

  test.each([
    ['nothing', { 'r/a/1/': '' }, "unable to find './r/a/1/model.savedmodel' for model 'a'\n"],
    [
      'a directory of another name',
      { 'r/a/1/net/saved_model.pb': 'graph' },
      "for model 'a'; there is 'net': call it 'model.savedmodel', or set default_model_filename: \"net\"",
    ],
    [
      'the files of TensorFlow Serving',
      { 'r/a/1/saved_model.pb': 'graph', 'r/a/1/variables/variables.index': 'v', 'r/a/1/labels.txt': '' },
      'its files are in the directory of the version: cd ./r/a/1 && mkdir model.savedmodel && mv ' +
        'saved_model.pb variables model.savedmodel',
    ],
    [
      'a directory too many',
      { 'r/a/1/model.savedmodel/1/saved_model.pb': 'graph' },
      "'./r/a/1/model.savedmodel' has no saved_model.pb; there is one in '1': move its contents up",
    ],
    [
      'a file',
      { 'r/a/1/model.savedmodel': 'graph' },
      "'./r/a/1/model.savedmodel' is a file, and has to be a directory with a saved_model.pb",
    ],
    [
      'weights that are a pointer',
      {
        'r/a/1/model.savedmodel/saved_model.pb': 'graph',
        'r/a/1/model.savedmodel/variables/variables.index': 'version https://git-lfs.github.com/spec/v1\n',
      },
      "'./r/a/1/model.savedmodel' has a variables/variables.index that is a pointer of Git LFS",
    ],
    [
      'a model of Keras',
      { 'r/a/1/model.keras': 'PK' },
      "there is 'model.keras', a model of Keras: make a SavedModel of it, and serve it with platform: " +
        '"tensorflow_savedmodel": python -c \'import keras; keras.saving.load_model("./r/a/1/model.keras", ' +
        'compile=False).export("./r/a/1/model.savedmodel")\'',
    ],
  ] as [string, Record<string, string>, string][])(
    'of TensorFlow with %s is told what to do',
    async (_, content, text) => {
      expect(await reported({ ...content, 'r/a/config.pbtxt': 'backend: "tensorflow"' })).toContain(text)
    },
  )

  test('of TensorFlow in another format is refused with the command that converts it', async () => {
    const out = await reported({
      'r/a/1/model.graphdef': 'graph',
      'r/a/config.pbtxt': `platform: "tensorflow_graphdef"\n${IO}`,
      'r/b/1/net.h5': 'HDF',
      'r/b/config.pbtxt': 'backend: "tensorflow" default_model_filename: "net.h5"',
      'r/c/1/model.h5': 'HDF',
      'r/d/1/saved_model.pb': 'graph',
    })
    expect(out).toContain(
      "'./r/a/1/model.graphdef' is a GraphDef, whose inputs and outputs have no signature: make a SavedModel of it, " +
        'and serve it with platform: "tensorflow_savedmodel": python -c \'import tensorflow as tf; ',
    )
    expect(out).toContain('simple_save(s, "./r/a/1/model.savedmodel", t(["A__0"]), t(["B__0"]))')
    expect(out).toContain("'./r/b/1/net.h5' is a model of Keras: make a SavedModel of it")
    expect(out).toContain("'model.h5' is a model of Keras: make a SavedModel of it, which is served: python -c ")
    expect(out).toContain(
      "'saved_model.pb' and what belongs to it have to be in a directory 'model.savedmodel' of the version.",
    )
    expect(out).toContain('4 models, 4 errors, ')
  })
})

describe('--load', () => {
  test('valid models are loaded next to invalid ones, and both are reported', async () => {
    const directory = files({
      'good/1/model.onnx': addSub(),
      'broken/1/model.onnx': MISSING,
      'wrong/1/model.onnx': MODEL,
      'wrong/config.pbtxt': 'max_batchsize: 8',
      'torch/1/model.pt': '',
    })
    const { code, out } = await runs(check, ['--load', directory], directory)
    expect(code).toBe(1)
    expect(out).toContain(
      './wrong/config.pbtxt:1:1: error: Message type "inference.ModelConfig" has no field named "max_batchsize".',
    )
    expect(out).toContain("./torch: error: failed to load model 'torch': './torch/1/model.pt' is empty")
    expect(out).toContain('./broken/1/model.onnx: error: onnx runtime error')
    expect(out).toContain('4 models, 3 errors, 0 warnings\n')
  })

  test('of models and files that are named, only those', async () => {
    const directory = files({
      'one/1/model.onnx': MISSING,
      'one/config.pbtxt': GOOD,
      'two/1/model.onnx': MISSING,
      'three/1/model.onnx': MODEL,
      'three/config.pbtxt': 'max_batchsize: 8',
    })
    const { out } = await runs(
      check,
      ['--load', join(directory, 'one/config.pbtxt'), join(directory, 'three')],
      directory,
    )
    expect(out).toContain('./one/1/model.onnx: error: onnx runtime error')
    expect(out).not.toContain('two')
    expect(out).toContain('2 models, 2 errors, 0 warnings\n')
  })

  test('an ensemble does not repeat the errors of its models', async () => {
    const step =
      'platform: "ensemble"\ninput [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "B" ' +
      'data_type: TYPE_FP32 dims: [ 1 ] } ]\nensemble_scheduling { step [ { model_name: "m" model_version: -1 ' +
      'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" } } ] }\n'
    const directory = files({ 'e/1/': '', 'e/config.pbtxt': step, 'm/1/model.onnx': MISSING, 'm/config.pbtxt': GOOD })
    const { out } = await runs(check, ['--load', directory], directory)
    expect(out).toContain("./e/config.pbtxt:4:44: error: ensemble 'e' depends on 'm' which has no loaded version.\n")
    expect(out.match(/onnx runtime error/g)).toHaveLength(1)
    expect(out).toContain('2 models, 2 errors, 0 warnings\n')
  })

  test('Python errors are printed in lines, with terminal escapes made visible', async () => {
    const directory = files({
      'py/config.pbtxt': `backend: "python"\n${GOOD.replace('backend: "onnxruntime"\n', '')}`,
      'py/1/model.py':
        'def helper():\n    raise ValueError("no \\x1b[2J weights")\nclass TritonPythonModel:\n    def ' +
        'initialize(self, args):\n        helper()\n',
    })
    const { code, out } = await runs(
      check,
      ['--load', directory, `--backend-config=python,python-executable=${PYTHON}`],
      directory,
    )
    expect(code).toBe(1)
    expect(out).not.toContain('\u001b')
    expect(out).toMatchInlineSnapshot(`
      "./py/1/model.py:2:5: error: ValueError: no \\u001B[2J weights

          At:
            ./py/1/model.py(2): helper
            ./py/1/model.py(5): initialize
              (2): raise ValueError('no \\x1b[2J weights')
          2 |     raise ValueError("no \\x1b[2J weights")
            |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      1 model, 1 error, 0 warnings
      "
    `)
  })
})

describe('names of guides', () => {
  test('a load reports the same as check', async () => {
    const directory = files({
      'backend/1/model.bin': '',
      'backend/config.pbtxt': 'backend: "onnx_runtime"',
      'platform/1/model.bin': '',
      'platform/config.pbtxt': 'platform: "torchscript"',
      'pair/1/model.bin': '',
      'pair/config.pbtxt': 'backend: "onnxruntime" platform: "onnx"',
      'file/1/resnet.onnx': '',
      'file/config.pbtxt': GOOD,
      'none/1/resnet.onnx': '',
      'syntax/1/': '',
      'syntax/config.pbtxt': 'max_batchsize: 1',
    })
    const { out } = await runs(check, ['--format=json', directory])
    const reported = (JSON.parse(out) as { problems: { model: string; message: string; advice: string }[] }).problems
    const loaded = await loadProblems(resolveSettings(parseArguments([`--model-repository=${directory}`])).settings, [])
    expect(loaded.map(({ model }) => model)).toEqual(['backend', 'file', 'none', 'pair', 'platform', 'syntax'])
    for (const { model, reason } of loaded) {
      const { message = '?', advice = '?' } = reported.find((problem) => problem.model === model) ?? {}
      expect(reason, model).toContain(message)
      expect(reason, model).toContain(advice)
    }
  })

  const cases: [string, string][] = [
    ['onnx_runtime', 'did you mean backend: "onnxruntime"?'],
    ['onnx', 'did you mean backend: "onnxruntime"?'],
    ['ort', 'did you mean backend: "onnxruntime"?'],
    ['onnxruntim', 'did you mean backend: "onnxruntime"?'],
    ['py', 'did you mean backend: "python"?'],
    ['python3', 'did you mean backend: "python"?'],
    ['torchscript', 'did you mean backend: "pytorch"?'],
    ['tensorflow2', 'did you mean backend: "tensorflow"?'],
    ['keras', 'did you mean backend: "tensorflow"?'],
    ['xgboost', 'did you mean backend: "fil"?'],
    ['something', ''],
  ]
  test.each(cases)('%s', async (name, hint) => {
    for (const field of ['backend', 'platform']) {
      const { code, out } = await checked({ 'm/1/model.bin': '', 'm/config.pbtxt': `${field}: "${name}"` })
      expect(code, field).toBe(1)
      expect(out.toLowerCase(), field).toContain(hint.toLowerCase())
      if (hint === '') expect(out, field).not.toMatch(/did you mean|release/)
    }
  })
})

test('a repository without models, and a model without a directory, are warnings', async () => {
  const empty = await checked({ 'README.md': '' })
  expect(empty.out).toMatch(/warning: model repository '[^']*' has no models: nereid init/)
  const flat = await checked({ 'flat.onnx': MODEL })
  expect(flat.out).toMatch(/warning: 'flat\.onnx' is in the model repository itself and is not served/)
  expect([empty.code, flat.code]).toEqual([0, 0])
  // Another model of the same size is no copy.
  const other = Buffer.from(MODEL).fill('X', MODEL.length - 8)
  const beside = await checked({ 'flat.onnx': other, 'real/1/model.onnx': MODEL })
  expect(beside.out).toMatch(/warning: 'flat\.onnx' is in the model repository itself and is not served/)
  expect((await checked({ 'flat.onnx': MODEL, 'real/1/model.onnx': MODEL })).out).not.toContain('flat.onnx')
  // The model that `init` made of it has the directory's name.
  const optimum = join(files({ 'optimum/model.onnx': MODEL, 'optimum/optimum/1/model.onnx': MODEL }), 'optimum')
  expect(repositoryHint(optimum, new Map(), true)).toMatch(/^'model\.onnx' is in the model repository itself/)
  expect(repositoryHint(optimum, new Map([['optimum', join(optimum, 'optimum')]]), true)).toBeNull()
})

test('a model given as a repository is recognised by its versions', async () => {
  const model = join(files({ 'adder/1/model.onnx': MODEL }), 'adder')
  expect(repositoryHint(model, new Map([['1', join(model, '1')]]), true)).toBe(
    `model repository '${model}' has only directories of versions: if it is a model itself, serve the ` +
      `directory above it, --model-repository=${dirname(model)}`,
  )
  const bare = await checked({ 'adder/1/': '', 'ghost/notes.txt': '' })
  expect(bare.out).toMatch(
    /adder: error: Invalid model name: .*\. There is no model\.onnx, model\.py or other file of a model in '[^']*adder\/1'/,
  )
  expect(bare.out).toMatch(
    /ghost: error: Invalid model name: .*\. There is no directory of a version in '[^']*ghost', such as 1/,
  )
})

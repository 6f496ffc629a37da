// Facts from the model directory: the configuration, the backend, the versions, the labels; and completion.
import { execFileSync } from 'node:child_process'
import { mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { describe, expect, test } from 'vitest'
import {
  CONFIG_BYTES_MAX,
  finishConfig,
  inferBackend,
  listFirstDirectory,
  loadConfigFile,
  moveGpuGroupsToCpu,
  nameOr,
  NO_GPUS,
  parsePbtxt,
  prepareConfig,
  readLabels,
  requireName,
  resolveInstanceGroups,
  selectVersions,
  type Listing,
} from '../../src/config/index.js'
import { ADDSUB, ADDSUB_CONFIG, directory, finish, io, poll, pollConfig, reason, tensor } from './helpers.js'

const AUTO = { autoComplete: true, configName: null }
const STRICT = { autoComplete: false, configName: null }

describe('R-17, R-19 which file is read', () => {
  const model = directory('m', { 'config.pbtxt': 'backend: "a"', 'configs/fast.pbtxt': 'backend: "b"', '1/': '' })
  const bare = directory('bare', { '1/': '' })
  const cases: [string, string, string | null, string, string | null][] = [
    ['config.pbtxt', model, null, 'a', 'config.pbtxt'],
    ['the named configuration', model, 'fast', 'b', 'configs/fast.pbtxt'],
    ['config.pbtxt when there is none of that name', model, 'slow', 'a', 'config.pbtxt'],
    ['nothing', bare, null, '', null],
  ]
  test.each(cases)('%s', (_, path, configName, backend, file) => {
    const loaded = loadConfigFile(path, { autoComplete: true, configName })
    expect(loaded).toMatchObject({
      config: { backend },
      path: file === null ? null : `${path}/${file}`,
      provided: file !== null,
    })
  })

  test('a missing file is an error with auto-complete off', () => {
    expect(reason(() => loadConfigFile(bare, STRICT))).toBe(
      `Internal: failed to open text file for read ${bare}/config.pbtxt: No such file or directory`,
    )
  })

  test('C-29 a file that does not parse is logged with its place', () => {
    const broken = directory('broken', { 'config.pbtxt': 'max_batch_size 8 {' })
    const lines: string[] = []
    expect(reason(() => loadConfigFile(broken, AUTO, (level, line) => lines.push(`${level}: ${line}`)))).toBe(
      `Internal: failed to read text proto from ${broken}/config.pbtxt: 1:16: Expected ":", found "8".`,
    )
    expect(lines).toEqual(['error: Error parsing text-format inference.ModelConfig: 1:16: Expected ":", found "8".'])
  })

  test('anything but a file of limited size is rejected at once, without waiting', () => {
    const odd: [string, (path: string) => void, string][] = [
      ['a FIFO', (path) => void execFileSync('mkfifo', [path]), 'Not a regular file'],
      ['a directory', (path) => mkdirSync(path), 'Is a directory'],
      ['a device', (path) => symlinkSync('/dev/zero', path), 'Not a regular file'],
      ['a loop of links', (path) => symlinkSync('config.pbtxt', path), 'Too many levels of symbolic links'],
    ]
    for (const [what, make, why] of odd) {
      const path = `${directory('odd', { '1/': '' })}/config.pbtxt`
      make(path)
      expect(
        reason(() => loadConfigFile(dirname(path), AUTO)),
        what,
      ).toBe(`Internal: failed to open text file for read ${path}: ${why}`)
    }
    const big = directory('big', { 'config.pbtxt': '' })
    truncateSync(`${big}/config.pbtxt`, 10 * 2 ** 30)
    expect(reason(() => loadConfigFile(big, AUTO))).toBe(
      `Internal: failed to read text proto from ${big}/config.pbtxt: 10737418240 bytes, at most ` +
        `${CONFIG_BYTES_MAX} are read`,
    )
  })

  test('the load parameter replaces the file and merges nothing', () => {
    const loaded = pollConfig(model, 'm', AUTO, '{"backend":"c"}')
    expect(loaded).toMatchObject({ config: { name: 'm', backend: 'c' }, path: null, provided: true })
  })

  test('a model without a description and a backend that completes it is NOT_FOUND', () => {
    const config = pollConfig(directory('m.identity', { '1/': '' }), 'm.identity', AUTO).config
    expect(
      reason(() => finishConfig(config, null, { flags: AUTO, provided: false, settings: [], devices: NO_GPUS })),
    ).toBe("Not found: model configuration is not provided for model 'm.identity'")
  })
})

describe('R-03 names', () => {
  test('an empty name is the directory name, another one is refused', () => {
    expect(nameOr(parsePbtxt('', ''), 'm').name).toBe('m')
    expect(nameOr(parsePbtxt('name: "other"', ''), 'm').name).toBe('other')
    const refusal =
      "Invalid argument: unexpected directory name 'm' for model 'other', directory name must equal model name"
    expect(reason(() => requireName(parsePbtxt('name: "other"', ''), 'm'))).toBe(refusal)
    const polled = (text: string): string =>
      reason(() => pollConfig(directory('m', { 'config.pbtxt': text, '1/model.onnx': '' }), 'm', AUTO))
    expect(polled('name: "other"')).toBe(refusal)
    // A mistake in the configuration itself is reported first.
    expect(polled('name: "other" max_batch_size: -1')).toBe(
      "Invalid argument: 'max_batch_size' must be non-negative value for other",
    )
  })
})

describe('R-09, R-10 backend, platform, file', () => {
  const cases: [string, string[], string][] = [
    ['', ['model.onnx'], 'onnxruntime onnxruntime_onnx model.onnx'],
    ['', ['model.onnx/'], 'onnxruntime onnxruntime_onnx model.onnx'],
    ['platform: "onnxruntime_onnx"', [], 'onnxruntime onnxruntime_onnx model.onnx'],
    ['backend: "onnxruntime"', [], 'onnxruntime onnxruntime_onnx model.onnx'],
    ['default_model_filename: "model.onnx"', [], 'onnxruntime onnxruntime_onnx model.onnx'],
    ['backend: "onnxruntime" default_model_filename: "foo.onnx"', [], 'onnxruntime onnxruntime_onnx foo.onnx'],
    ['default_model_filename: "foo.onnx"', ['model.onnx'], '  foo.onnx'],
    ['', ['model.plan', 'model.onnx'], 'tensorrt tensorrt_plan model.plan'],
    ['', ['model.plan/', 'model.onnx'], 'onnxruntime onnxruntime_onnx model.onnx'],
    ['', ['model.xml'], 'openvino  model.xml'],
    ['', ['model.pt'], 'pytorch pytorch_libtorch model.pt'],
    ['platform: "libtorch"', [], 'pytorch libtorch model.pt'],
    ['', ['model.pt2'], 'pytorch torch_aoti model.pt2'],
    ['platform: "torch_aoti"', [], 'pytorch torch_aoti model.pt2'],
    ['backend: "pytorch"', [], 'pytorch pytorch_libtorch model.pt'],
    ['', ['model.py'], 'python  model.py'],
    ['backend: "python"', ['model.onnx'], 'python  model.py'],
    ['', ['model.savedmodel/'], 'tensorflow tensorflow_savedmodel model.savedmodel'],
    ['', ['model.savedmodel'], 'dotted  model.dotted'],
    ['backend: "tensorflow"', ['model.graphdef'], 'tensorflow tensorflow_graphdef model.graphdef'],
    ['backend: "tensorflow"', [], 'tensorflow tensorflow_savedmodel model.savedmodel'],
    ['platform: "ensemble"', [], ' ensemble '],
    ['backend: "identity"', [], 'identity  '],
    ['', [], 'dotted  model.dotted'],
  ]
  test.each(cases)('%j with %j is %j', (text, files, expected) => {
    const listing: Listing = new Map(files.map((f) => (f.endsWith('/') ? [f.slice(0, -1), 'directory'] : [f, 'file'])))
    const found = inferBackend(parsePbtxt(text, ''), listing, 'x.dotted')
    expect(`${found.backend} ${found.platform} ${found.defaultModelFilename}`).toBe(expected)
  })

  test('nothing at all names the form it would have understood', () => {
    expect(reason(() => inferBackend(parsePbtxt('', ''), new Map(), 'plain'))).toBe(
      "Invalid argument: Invalid model name: Could not determine backend for model 'plain' with no backend " +
        "in model configuration. Expected model name of the form 'model.<backend_name>'.",
    )
    expect(inferBackend(parsePbtxt('', ''), new Map(), 'a.b.c')).toMatchObject({
      backend: 'b.c',
      defaultModelFilename: 'model.b.c',
    })
  })

  test('the directory looked into is the first in byte order, 10 before 2', () => {
    const model = directory('m', { '2/model.py': '', '10/model.onnx': '', 'config.pbtxt': '' })
    expect([...listFirstDirectory(model)]).toEqual([['model.onnx', 'file']])
    expect([...listFirstDirectory(directory('e', {}))]).toEqual([])
  })
})

describe('R-05 … R-07 versions', () => {
  const cases: [string, number[], number[] | string, string[]?][] = [
    ['version_policy { latest { num_versions: 1 } }', [1, 3, 2], [3]],
    ['version_policy { latest { num_versions: 2 } }', [10, 9, 2], [9, 10]],
    ['version_policy { latest { num_versions: 9 } }', [1, 2], [1, 2]],
    ['version_policy { all { } }', [3, 1], [1, 3]],
    [
      'version_policy { specific { versions: [3, 9, 1, 3] } }',
      [1, 2, 3],
      [1, 3],
      ["version 9 is specified for model 'm', but the version directory is not present"],
    ],
    ['version_policy { latest { num_versions: 0 } }', [1], 'none'],
    [
      'version_policy { specific { versions: 7 } }',
      [1],
      'none',
      ["version 7 is specified for model 'm', but the version directory is not present"],
    ],
    ['version_policy { all { } }', [], 'none'],
  ]
  test.each(cases)('%s of %j', (text, available, expected, logged = []) => {
    const lines: string[] = []
    const select = (): number[] =>
      selectVersions(parsePbtxt(`name: "m" ${text}`, ''), available, (_, line) => lines.push(line))
    if (expected === 'none')
      expect(reason(select)).toBe(
        "Invalid argument: at least one version must be available under the version policy of model 'm'",
      )
    else expect(select()).toEqual(expected)
    expect(lines).toEqual(logged)
  })
})

describe('C-11 labels', () => {
  const labels = (file: string, files: Record<string, string>): string => {
    const model = directory('m', files)
    return reason(() =>
      readLabels(parsePbtxt(`name: "m" output { name: "O" label_filename: "${file}" }`, ''), model),
    ).replaceAll(model, '{model}')
  }
  test('the file crosses unchanged, even invalid UTF-8', () => {
    const model = directory('m', { 'sub/': '' })
    const text = Buffer.from('zero\ncaf\xe9\r\n', 'latin1')
    writeFileSync(`${model}/sub/l.txt`, text)
    const config = parsePbtxt('output { name: "A" } output { name: "O" label_filename: "sub/l.txt" }', '')
    expect(readLabels(config, model)).toEqual([{ output: 'O', text }])
  })
  test('a missing file and a path that leaves the directory', () => {
    expect(labels('nolabels.txt', {})).toBe(
      'Internal: failed to open text file for read {model}/nolabels.txt: No such file or directory',
    )
    expect(labels('../x', {})).toBe(
      "Unsupported: label file path '{model}/../x' for output 'O' in model 'm' is outside model directory",
    )
    expect(labels('a/../..', {})).toContain('Unsupported: ')
    expect(labels('..x', { '..x': 'a' })).toBe('ok')
  })
})

describe('R-15 completion', () => {
  const PAIR = io([tensor('I', 11, [-1, 5])], [tensor('O', 11, [-1, 5])])
  const shown = (text: string | null, graph = PAIR, settings: { key: string; value: string }[] = []): string => {
    const config = finish(poll('m', text), graph, true, settings)
    const dims = (list: { name: string; dims: bigint[] }[]): string => list.map((t) => `${t.name}[${t.dims}]`).join(' ')
    return (
      `${config.maxBatchSize} ${config.schedulingChoice.case ?? 'default'} ${dims(config.input)} -> ` +
      `${dims(config.output)}`
    )
  }
  const setting = (value: string): { key: string; value: string }[] => [{ key: 'default-max-batch-size', value }]

  test('a batching graph gets size 4 and a batcher, other sizes by setting', () => {
    expect(shown(null)).toBe('4 dynamicBatching I[5] -> O[5]')
    expect(shown(null, PAIR, setting('16'))).toBe('16 dynamicBatching I[5] -> O[5]')
    expect(shown(null, PAIR, setting('1'))).toBe('1 default I[5] -> O[5]')
    expect(shown(null, PAIR, setting('-3'))).toBe('0 default I[-1,5] -> O[-1,5]')
    expect(reason(() => shown(null, PAIR, setting('few')))).toBe(
      "Invalid argument: failed to convert 'few' to integral number",
    )
  })
  test('existing fields stay: size, scheduler, one of the two halves', () => {
    expect(shown('max_batch_size: 6')).toBe('6 dynamicBatching I[5] -> O[5]')
    expect(shown('max_batch_size: 6 sequence_batching { }')).toBe('6 sequenceBatching I[5] -> O[5]')
    expect(shown('max_batch_size: 6 input { name: "I" data_type: TYPE_FP32 dims: 5 }')).toBe(
      '6 dynamicBatching I[5] -> O[5]',
    )
    expect(
      shown(
        'input { name: "I" data_type: TYPE_FP32 dims: [-1, 5] } output { name: "O" data_type: TYPE_FP32 ' +
          'dims: [-1, 5] }',
      ),
    ).toBe('0 default I[-1,5] -> O[-1,5]')
  })
  test('a graph with a tensor that cannot batch is served without batches or not at all', () => {
    const mixed = io([tensor('I', 11, [-1, 5])], [tensor('O', 11, [5])])
    expect(shown(null, mixed)).toBe('0 default I[-1,5] -> O[5]')
    expect(reason(() => shown('max_batch_size: 2', mixed))).toBe(
      "Invalid argument: autofill failed for model 'm': model does not support batching while non-zero " +
        'max_batch_size is specified',
    )
  })
  test('overridable initialisers are not listed and need not batch', () => {
    expect(shown(null, io([tensor('I', 11, [-1, 5]), tensor('W', 11, [5], true)], [tensor('O', 11, [-1, 5])]))).toBe(
      '4 dynamicBatching I[5] -> O[5]',
    )
  })
  test('a type the protocol does not have fails validation', () => {
    expect(reason(() => shown(null, io([tensor('I', 0, [-1, 5])], [])))).toBe(
      "Invalid argument: model input 'I' must specify 'data_type' for m",
    )
  })
  test('the log names completed and skipped fields', () => {
    const lines: string[] = []
    finish(poll('m', null), PAIR, true, [], (level, line) => lines.push(`${level}: ${line}`))
    finish(poll('m', ADDSUB_CONFIG), ADDSUB, true, [], (level, line) => lines.push(`${level}: ${line}`))
    expect(lines).toEqual([
      "warning: autofilled max_batch_size to 4 for model 'm' since batching is supporrted but no " +
        'max_batch_size is specified in model configuration. Must specify max_batch_size to utilize autofill ' +
        'with a larger max batch size',
      "info: skipping model configuration auto-complete for 'm': inputs and outputs already specified",
    ])
  })
})

describe('R-16 the rest of the comparison with the graph', () => {
  const cases: [string, ReturnType<typeof io>, string][] = [
    ['input { name: "I" data_type: TYPE_FP32 dims: 5 }', io([tensor('I', 11, [-1])], []), 'ok'],
    ['input { name: "I" data_type: TYPE_FP32 dims: 1 }', io([tensor('I', 11, [])], []), 'ok'],
    [
      'input { name: "I" data_type: TYPE_FP32 dims: [2, 3] }',
      io([tensor('I', 11, [])], []),
      "unable to load model 'm', scalar tensor 'I', should only provide 1 in the model configuration when " +
        "the model doesn't support batching. Model configuration provided: [2,3].",
    ],
    [
      'output { name: "O" data_type: TYPE_FP32 dims: 5 }',
      io([], [tensor('O', 11, [-1])]),
      "model 'm', tensor 'O': the model expects 1 dimensions (shape [-1]) but the model configuration " +
        'specifies 1 dimensions (shape [5])',
    ],
    [
      'output { name: "O" data_type: TYPE_FP32 dims: 5 reshape { shape: [5, 1] } }',
      io([], [tensor('O', 11, [5, 1]), tensor('P', 11, [1])]),
      'ok',
    ],
    [
      'max_batch_size: 2 input { name: "I" data_type: TYPE_FP32 dims: 5 optional: true }',
      io([tensor('I', 11, [-1, 5], true)], []),
      "unable to load model 'm', optional input 'I' is not supported for models that support batching",
    ],
    [
      'input { name: "I" data_type: TYPE_FP32 dims: 5 optional: true allow_ragged_batch: true }',
      io([tensor('I', 11, [-1], true)], []),
      "unable to load model 'm', configuration expects model provides input with shape [-1] for ragged input " +
        "'I', which is not supported for optional input",
    ],
    [
      'max_batch_size: 2 sequence_batching { control_input { name: "S" control { kind: ' +
        'CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } } }',
      io([tensor('S', 8, [-1, 1])], []),
      "unable to load model 'm', sequence control 'S', the model expects data-type INT32 but the model " +
        'configuration specifies data-type TYPE_FP32',
    ],
    [
      'max_batch_size: 2 sequence_batching { control_input { name: "S" control { kind: ' +
        'CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } } }',
      io([tensor('S', 11, [-1, 2])], []),
      "unable to load model 'm', sequence control 'S' in model has dims [2] but dims [1] is expected",
    ],
  ]
  test.each(cases)('%j', (text, graph, expected) => {
    expect(
      reason(() => finish(poll('m', text, ['model.onnx'], false), graph, false)).replace('Invalid argument: ', ''),
    ).toBe(expected)
  })
})

describe('C-13, C-14 instance groups', () => {
  const groups = (text: string, gpus: number[] = []): string => {
    const devices = { gpus, gpuSupport: gpus.length > 0, minComputeCapability: 6 }
    const names = ['AUTO', 'GPU', 'CPU', 'MODEL']
    const config = resolveInstanceGroups(parsePbtxt(`name: "m" ${text}`, ''), devices)
    return config.instanceGroup.map((g) => `${g.name} ${names[g.kind]} ${g.count} [${g.gpus}]`).join('; ')
  }
  const cases: [string, number[], string][] = [
    ['backend: "onnxruntime"', [], 'm CPU 2 []'],
    ['backend: "identity"', [], 'm CPU 1 []'],
    ['backend: "onnxruntime" instance_group { }', [], 'm_0 CPU 2 []'],
    [
      'backend: "onnxruntime" instance_group { count: -1 kind: KIND_CPU } instance_group { name: "x" count: 3 }',
      [],
      'm_0 CPU 2 []; x CPU 3 []',
    ],
    ['backend: "onnxruntime" instance_group { kind: KIND_MODEL }', [], 'm_0 MODEL 1 []'],
    ['backend: "onnxruntime"', [0, 1], 'm GPU 1 [0,1]'],
    ['instance_group { gpus: 1 }', [0, 1], 'm_0 GPU 1 [1]'],
  ]
  test.each(cases)('%j with GPUs %j', (text, gpus, expected) => expect(groups(text, gpus)).toBe(expected))

  test('groups are checked before the file is opened', () => {
    const ready = (text: string, flags = AUTO): string =>
      reason(() => prepareConfig(parsePbtxt(`name: "m" backend: "onnxruntime" ${text}`, ''), flags, NO_GPUS)).replace(
        'Invalid argument: ',
        '',
      )
    const bad = 'input { name: "I" data_type: TYPE_FP32 dims: 0 }'
    const output = 'output { name: "O" data_type: TYPE_FP32 dims: 1 }'
    const gpu = 'instance_group { kind: KIND_GPU }'
    const text = "model input 'I' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m"
    expect(ready(`platform: "onnxruntime_onnx" version_policy { all { } } ${bad} ${output} ${gpu}`)).toMatch(
      /^instance group m_0 of model m has kind KIND_GPU/,
    )
    expect(ready(`platform: "onnxruntime_onnx" version_policy { all { } } ${bad} ${output}`)).toBe(text)
    expect(ready(`platform: "onnxruntime_onnx" version_policy { all { } } ${bad}`)).toBe('ok')
    expect(ready(`platform: "onnxruntime_onnx" version_policy { all { } } ${bad}`, STRICT)).toBe(text)
  })

  test('--gpu-fallback=cpu: groups for a GPU move to the CPU and keep their counts', () => {
    const moved = (text: string): string => {
      const result = moveGpuGroupsToCpu(parsePbtxt(`name: "m" backend: "onnxruntime" ${text}`, ''))
      const groups = resolveInstanceGroups(result.config, NO_GPUS).instanceGroup.map(
        (g) => `${g.name} ${g.kind} ${g.count} [${g.gpus}]`,
      )
      return `${result.moved.join(', ')} | ${groups.join('; ')}`
    }
    expect(moved('instance_group [ { kind: KIND_GPU count: 3 gpus: [ 0, 1 ] }, { kind: KIND_CPU count: 1 } ]')).toBe(
      'm_0 | m_0 2 3 []; m_1 2 1 []',
    )
    expect(moved('instance_group [ { name: "g" kind: KIND_GPU } ]')).toBe('g | g 2 2 []')
    expect(moved('instance_group [ { gpus: 0 } ]')).toBe('m_0 | m_0 2 2 []')
    expect(moved('')).toBe(' | m 2 2 []')
    expect(
      reason(() => resolveInstanceGroups(parsePbtxt('name: "m" instance_group [ { kind: KIND_GPU } ]', ''), NO_GPUS)),
    ).toBe(
      'Invalid argument: instance group m_0 of model m has kind KIND_GPU but server does not support GPUs; ' +
        '--gpu-fallback=cpu serves it on the CPU',
    )
    // A plan runs only on GPUs.
    expect(
      reason(() =>
        resolveInstanceGroups(
          parsePbtxt('name: "m" backend: "tensorrt" instance_group [ { kind: KIND_GPU } ]', ''),
          NO_GPUS,
        ),
      ),
    ).toBe('Invalid argument: instance group m_0 of model m has kind KIND_GPU but server does not support GPUs')
  })

  test('an unusable GPU is named with those that are usable', () => {
    expect(reason(() => groups('instance_group { kind: KIND_GPU gpus: 7 }', [0, 1]))).toBe(
      'Invalid argument: instance group m_0 of model m specifies invalid or unsupported gpu id 7. GPUs with ' +
        'at least the minimum required CUDA compute compatibility of 6.000000 are: 0, 1',
    )
  })
})

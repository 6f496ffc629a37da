/** Model repositories with common mistakes, and the expected reports. */
import { addSub } from '../../scripts/models/graphs.mjs'
import { TYPE, model, node, value } from '../../scripts/models/onnx.mjs'
import { ADDSUB_CONFIG } from '../config/helpers.js'

export interface Mistake {
  name: string
  files: Record<string, string | Uint8Array>
  /** Texts that the output contains: places such as `m/config.pbtxt:4:`, and reasons. */
  reported: string[]
  /** A warning: a load accepts it. */
  isWarning?: true
  /** Only a load finds it. */
  needsLoad?: true
}

const GRAPH = addSub()
const FIXED = addSub(TYPE.INT32, [1, 16])

/** Matches `GRAPH`. Its inputs are in lines 4 and 5, its outputs in 8 and 9; appended text begins at line 11. */
const CONFIG = ADDSUB_CONFIG

const PYTHON = `backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
`

const CODE = `class TritonPythonModel:
    def execute(self, requests):
        return []
`

/** The model `m` with a changed `CONFIG`. */
function onnx(from: string, to: string, more: Record<string, string | Uint8Array> = {}): Mistake['files'] {
  if (!CONFIG.includes(from)) throw new Error(`the configuration has no ${from}`)
  return { 'm/1/model.onnx': GRAPH, 'm/config.pbtxt': CONFIG.replace(from, to), ...more }
}

const appended = (text: string, more: Record<string, string | Uint8Array> = {}): Mistake['files'] =>
  onnx('', '', { 'm/config.pbtxt': CONFIG + text, ...more })

const python = (code: string, more = ''): Mistake['files'] => ({
  'm/1/model.py': code,
  'm/config.pbtxt': PYTHON + more,
})

/** A model file that replaces the right one, without a configuration. */
const file = (bytes: string | Uint8Array): Mistake['files'] => ({ 'm/1/model.onnx': bytes })

const warmup = (input: string, more: Record<string, string | Uint8Array> = {}): Mistake['files'] =>
  appended(
    `model_warmup [ {
  name: "one" batch_size: 1
  inputs { key: "INPUT0" value { data_type: TYPE_INT32 dims: [ 16 ] zero_data: true } }
  inputs { ${input} }
} ]
`,
    more,
  )

const INPUT1 = 'key: "INPUT1" value { data_type: TYPE_INT32 dims: [ 16 ]'

function ensemble(step: string): string {
  return `platform: "ensemble"
max_batch_size: 4
input [ { name: "A" data_type: TYPE_INT32 dims: [ 16 ] }, { name: "B" data_type: TYPE_INT32 dims: [ 16 ] } ]
output [ { name: "SUM" data_type: TYPE_INT32 dims: [ 16 ] } ]
ensemble_scheduling {
  step [ {
    ${step}
  } ]
}
`
}

const STEP =
  'model_name: "m" model_version: -1\n    input_map { key: "INPUT0" value: "A" }\n    input_map { key: ' +
  '"INPUT1" value: "B" }\n    output_map { key: "OUTPUT0" value: "SUM" }'

/** An ensemble of two models that differ, with one step per line: `first` in line 6, the model `next` in line 7. */
function twoSteps(first: string, second: string, next = 'twin'): Mistake['files'] {
  const io = (name: string, type = 'TYPE_INT32'): string => `{ name: "${name}" data_type: ${type} dims: [ 16 ] }`
  const config = (inputs: string[], outputs: string[], batch = 4): string =>
    `backend: "identity"\nmax_batch_size: ${batch}\ninput [ ${inputs.join()} ]\noutput [ ${outputs.join()} ]\n`
  const step = (model: string, tensor: string, map: string): string =>
    `  step { output_map { ${map} } input_map { key: "INPUT0" value: "${tensor}" } model_name: "${model}" ` +
    'model_version: -1 }\n'
  const models = {
    m: config([io('INPUT0')], [io('OUTPUT0'), io('OUTPUT1')]),
    twin: config([io('INPUT0')], [io('OUTPUT0')]),
    float: config([io('INPUT0', 'TYPE_FP32')], [io('OUTPUT0')]),
    add2: config([io('INPUT0'), io('EXTRA')], [io('OUTPUT0')]),
    small: config([io('INPUT0')], [io('OUTPUT0')], 2),
  }
  const e =
    `platform: "ensemble"\nmax_batch_size: 4\ninput [ ${io('A')} ]\noutput [ ${io('SUM')} ` +
    `]\nensemble_scheduling {\n${step('m', 'A', first)}${step(next, 'MID', second)}}\n`
  return Object.fromEntries(
    Object.entries({ ...models, e }).flatMap(([name, text]) => [
      [`${name}/1/`, ''],
      [`${name}/config.pbtxt`, text],
    ]),
  )
}

/** `OUTPUT0 = INPUT0` with another version of the operators or of the file format. */
export function versioned(ir: number, opset: number): Buffer {
  const bytes = model({
    nodes: [node('Identity', ['INPUT0'], ['OUTPUT0'])],
    inputs: [value('INPUT0', TYPE.INT32, ['n'])],
    outputs: [value('OUTPUT0', TYPE.INT32, ['n'])],
  })
  bytes[1] = ir
  bytes[bytes.length - 1] = opset
  return bytes
}

/** A model with weights in a separate file. */
export function external(location: string): Buffer {
  const bytes = (field: number, ...parts: Uint8Array[]): Buffer => {
    const body = Buffer.concat(parts)
    return Buffer.concat([Buffer.of((field << 3) | 2, body.length), body])
  }
  const text = (field: number, string: string): Buffer => bytes(field, Buffer.from(string))
  const tensor = {
    body: Buffer.concat([
      Buffer.of(8, 1, 16, 1),
      text(8, 'w'),
      bytes(13, text(1, 'location'), text(2, location)),
      Buffer.of(112, 1),
    ]),
  }
  return model({
    nodes: [node('Add', ['INPUT0', 'w'], ['OUTPUT0'])],
    inputs: [value('INPUT0', TYPE.FP32, ['n'])],
    outputs: [value('OUTPUT0', TYPE.FP32, ['n'])],
    initializers: [tensor],
  })
}

export const MISTAKES: Mistake[] = [
  // Inputs and outputs that differ from the graph's.
  {
    name: 'an input of another name',
    files: onnx('"INPUT0"', '"INPUT_0"'),
    reported: ['m/config.pbtxt:4:', "unexpected inference input 'INPUT_0', allowed inputs are: INPUT0, INPUT1"],
  },
  {
    name: 'an output of another name',
    files: onnx('"OUTPUT1"', '"logits"'),
    reported: ['m/config.pbtxt:9:', "unexpected inference output 'logits', allowed outputs are: OUTPUT0, OUTPUT1"],
  },
  {
    name: 'an input of another datatype',
    files: onnx('"INPUT1" data_type: TYPE_INT32', '"INPUT1" data_type: TYPE_FP32'),
    reported: ['m/config.pbtxt:5:', "datatype TYPE_FP32 for input 'INPUT1', model provides TYPE_INT32"],
  },
  {
    name: 'an output of another datatype',
    files: onnx('"OUTPUT0" data_type: TYPE_INT32', '"OUTPUT0" data_type: TYPE_INT64'),
    reported: ['m/config.pbtxt:8:', "datatype TYPE_INT64 for output 'OUTPUT0', model provides TYPE_INT32"],
  },
  {
    name: 'an input of another rank',
    files: onnx('"INPUT0" data_type: TYPE_INT32 dims: [ 16 ]', '"INPUT0" data_type: TYPE_INT32 dims: [ 4, 4 ]'),
    reported: ['m/config.pbtxt:4:', 'the model expects 2 dimensions (shape [-1,16])', 'making complete shape [-1,4,4]'],
  },
  {
    name: 'dims with the batch dimension',
    files: onnx('"INPUT0" data_type: TYPE_INT32 dims: [ 16 ]', '"INPUT0" data_type: TYPE_INT32 dims: [ -1, 16 ]'),
    reported: ['m/config.pbtxt:4:', 'making complete shape [-1,-1,16]', 'leave the batch dimension out'],
  },
  {
    name: 'dims without the batch dimension',
    files: onnx('max_batch_size: 8', 'max_batch_size: 0'),
    reported: ['m/config.pbtxt:4:', '(shape [-1,16])', 'dims have every dimension, that of the batch too'],
  },
  {
    name: 'an input of another size',
    files: onnx('"INPUT1" data_type: TYPE_INT32 dims: [ 16 ]', '"INPUT1" data_type: TYPE_INT32 dims: [ 17 ]'),
    reported: ['m/config.pbtxt:5:', 'shape [-1,16]'],
  },
  {
    name: 'an output of a fixed size that is variable in the graph',
    files: { 'm/1/model.onnx': addSub(TYPE.INT32, ['batch', 'n']), 'm/config.pbtxt': CONFIG },
    reported: ['m/config.pbtxt:8:', 'shape [-1,-1]'],
  },
  {
    name: 'an input left out',
    files: onnx(',\n  { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] }', ''),
    reported: ['m/config.pbtxt:3:', 'configuration expects 1 inputs, model provides 2', 'INPUT1'],
  },
  {
    name: 'an input that occurs twice',
    files: onnx('"INPUT1"', '"INPUT0"'),
    reported: ['m/config.pbtxt:5:', "input 'INPUT0' occurs twice"],
    isWarning: true,
  },
  {
    name: 'batches of a model whose first dimension is fixed',
    files: { 'm/1/model.onnx': FIXED, 'm/config.pbtxt': CONFIG },
    reported: ['m/config.pbtxt:2:', 'the first dimension must be -1', 'max_batch_size: 0'],
  },
  {
    name: 'batches of such a model, with nothing else said',
    files: { 'm/1/model.onnx': FIXED, 'm/config.pbtxt': 'max_batch_size: 8\n' },
    reported: ['m/config.pbtxt:1:', 'model does not support batching'],
  },
  {
    name: 'a control of sequences that the model does not have',
    files: appended(
      'sequence_batching {\n  control_input [ {\n    name: "START" control [ { kind: CONTROL_SEQUENCE_START ' +
        'int32_false_true: [ 0, 1 ] } ]\n  } ]\n}\n',
    ),
    reported: ['m/config.pbtxt:13:', "sequence control 'START', but model does not provide that input"],
  },

  {
    name: 'a name, an input and a type at once',
    files: {
      'm/1/model.onnx': GRAPH,
      'm/config.pbtxt': `name: "n" ${CONFIG.replace('"INPUT0"', '"IN"').replace(
        '"INPUT1" data_type: TYPE_INT32 dims: [ 16 ]',
        '"INPUT1" data_type: TYPE_FP16 dims: [ 5 ]',
      )}`,
    },
    reported: [
      "m/config.pbtxt:1:7: error: unexpected directory name 'm' for model 'n'",
      "m/config.pbtxt:4:11: error: unexpected inference input 'IN'",
      'm/config.pbtxt:5:11:',
      'datatype TYPE_FP16',
      'making complete shape [-1,5]',
      '4 errors',
    ],
  },
  {
    name: 'several mistakes in a tensor, and the rest is to be taken from the file',
    files: {
      'm/1/model.onnx': GRAPH,
      'm/config.pbtxt': 'backend: "onnxruntime"\ninput { name: "INPUT0" data_type: TYPE_INT64 dims: [ 5 ] }\n',
    },
    reported: [
      'm/config.pbtxt:2:',
      'expects 1 inputs, model provides 2',
      'm/config.pbtxt:2:15:',
      'datatype TYPE_INT64',
      'making complete shape [-1,5]',
      '3 errors',
    ],
  },
  {
    name: 'several tensors that are not those of the graph',
    files: {
      'm/1/model.onnx': GRAPH,
      'm/config.pbtxt': CONFIG.replace('"INPUT0" data_type: TYPE_INT32', '"INPUT0" data_type: TYPE_INT64')
        .replace('"OUTPUT0"', '"SUM"')
        .replace('"OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ]', '"OUTPUT1" data_type: TYPE_INT32 dims: [ 15 ]'),
    },
    reported: [
      'm/config.pbtxt:4:',
      "for input 'INPUT0'",
      'm/config.pbtxt:8:',
      "unexpected inference output 'SUM'",
      'm/config.pbtxt:9:',
      'making complete shape [-1,15]',
      '3 errors',
    ],
  },
  {
    name: 'several dims that cannot be',
    files: {
      'm/1/model.onnx': GRAPH,
      'm/config.pbtxt': CONFIG.replace('[ 16 ]', '[ 0 ]').replace(/\[ 16 \] \}\n\]\n$/, '[ -3 ] }\n]\n'),
    },
    reported: ['m/config.pbtxt:4:', 'm/config.pbtxt:9:', '2 errors'],
  },

  // Files and directories.
  {
    name: 'no directory of a version',
    files: { 'm/model.onnx': GRAPH, 'm/config.pbtxt': CONFIG },
    reported: ['m: ', 'at least one version must be available', 'mv m/model.onnx m/1/'],
  },
  {
    name: 'a version called v1',
    files: { 'm/v1/model.onnx': GRAPH, 'm/config.pbtxt': CONFIG },
    reported: ['m: ', "ignore version directory 'v1'", "'1'"],
  },
  {
    name: 'a version called 01',
    files: { 'm/01/model.onnx': GRAPH, 'm/config.pbtxt': CONFIG },
    reported: ['m: ', 'contains leading zeros', "'1'"],
  },
  {
    name: 'a model file of another name',
    files: { 'm/1/Model.onnx': GRAPH, 'm/config.pbtxt': CONFIG },
    reported: ['m/1/model.onnx', "there is 'Model.onnx'"],
  },
  {
    name: 'a model file one directory too deep',
    files: { 'm/1/onnx/model.onnx': GRAPH, 'm/config.pbtxt': CONFIG },
    reported: ['m/1/model.onnx', "there is 'onnx/model.onnx'"],
  },
  {
    name: 'a configuration of another name',
    files: { 'm/1/model.onnx': GRAPH, 'm/config.pbtx': CONFIG },
    reported: ['m', "'config.pbtx' is not read", 'config.pbtxt'],
    isWarning: true,
  },
  {
    name: 'a version that the policy names and that is not there',
    files: appended('version_policy { specific { versions: [ 1, 3 ] } }\n'),
    reported: ['m/config.pbtxt:11:', 'version 3 is specified'],
    isWarning: true,
  },
  {
    name: 'no version of those that the policy names',
    files: appended('version_policy { specific { versions: [ 2 ] } }\n'),
    reported: ['m/config.pbtxt:11:', 'version 2 is specified', 'at least one version must be available'],
  },
  {
    name: 'labels that are not there',
    files: onnx('"OUTPUT0" data_type: TYPE_INT32', '"OUTPUT0" label_filename: "labels.txt" data_type: TYPE_INT32'),
    reported: ['m/config.pbtxt:8:', 'm/labels.txt: No such file or directory'],
  },
  {
    name: 'labels beside the model file',
    files: onnx('"OUTPUT0" data_type: TYPE_INT32', '"OUTPUT0" label_filename: "labels.txt" data_type: TYPE_INT32', {
      'm/1/labels.txt': 'a\n',
    }),
    reported: ['m/config.pbtxt:8:', 'm/labels.txt: No such file or directory', '1/labels.txt'],
  },
  {
    name: 'a directory that is called otherwise',
    files: appended('name: "model"\n'),
    reported: ['m/config.pbtxt:11:', "unexpected directory name 'm' for model 'model'"],
  },
  {
    name: 'a plan of TensorRT that is not there',
    files: {
      'm/1/resnet.plan': 'plan',
      'm/config.pbtxt': CONFIG.replace('backend: "onnxruntime"', 'platform: "tensorrt_plan"'),
    },
    reported: ['failed to stat file', 'm/1/model.plan', "there is 'resnet.plan'"],
  },
  {
    name: 'a pointer of Git LFS',
    files: file(
      'version https://git-lfs.github.com/spec/v1\noid ' +
        'sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 97821345\n',
    ),
    reported: ['m/1/model.onnx', 'pointer of Git LFS', 'git lfs pull'],
  },
  {
    name: 'a page of HTML',
    files: file('\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n'),
    reported: ['m/1/model.onnx', 'HTML'],
  },
  { name: 'an empty file', files: file(''), reported: ['m/1/model.onnx', 'is empty'] },
  {
    name: 'a model of PyTorch with another name',
    files: file(Buffer.concat([Buffer.from('PK\u0003\u0004'), Buffer.alloc(30), Buffer.from('model/data.pkl')])),
    reported: ['m/1/model.onnx', 'zip archive', 'torch.onnx.export'],
  },
  {
    name: 'half of a file',
    files: file(GRAPH.subarray(0, GRAPH.length - 40)),
    reported: ['m/1/model.onnx', 'ends in the middle'],
  },
  {
    name: 'operators that are too new',
    files: file(versioned(9, 99)),
    reported: ['m/1/model.onnx', 'opset 99', 'opset_version='],
  },
  {
    name: 'a file format that is too new',
    files: file(versioned(99, 19)),
    reported: ['m/1/model.onnx', 'IR version 99'],
  },
  {
    name: 'weights that are not there',
    files: file(external('model.onnx_data')),
    reported: ['m/1/model.onnx', 'model.onnx_data'],
  },

  // Configurations.
  {
    name: 'a count of -1',
    files: appended('instance_group [ { kind: KIND_CPU count: -1 } ]\n'),
    reported: ['m/config.pbtxt:11:', 'count: -1'],
    isWarning: true,
  },
  {
    name: 'a dim of 0',
    files: onnx('"INPUT0" data_type: TYPE_INT32 dims: [ 16 ]', '"INPUT0" data_type: TYPE_INT32 dims: [ 0 ]'),
    reported: ['m/config.pbtxt:4:', 'dimension must be integer >= 1, or -1'],
  },
  {
    name: 'a dim of -2',
    files: onnx('"OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ]', '"OUTPUT1" data_type: TYPE_INT32 dims: [ -2 ]'),
    reported: ['m/config.pbtxt:9:', 'dimension must be integer >= 1, or -1'],
  },
  {
    name: 'a reshape of another number of elements',
    files: onnx(
      '"INPUT1" data_type: TYPE_INT32 dims: [ 16 ]',
      '"INPUT1" data_type: TYPE_INT32 dims: [ 16 ] reshape { shape: [ 4, 5 ] }',
    ),
    reported: ['m/config.pbtxt:5:', 'has different size for dims and reshape'],
  },
  {
    name: 'instances on a GPU that is not there',
    files: appended('instance_group [ { kind: KIND_GPU gpus: [ 97 ] } ]\n'),
    reported: ['m/config.pbtxt:11:', 'instance group m_0 of model m'],
  },
  {
    name: 'GPUs of instances on the CPU',
    files: appended('instance_group [ { kind: KIND_CPU gpus: [ 0 ] } ]\n'),
    reported: ['m/config.pbtxt:11:', 'has kind KIND_CPU but specifies one or more GPUs'],
  },
  {
    name: 'two instance groups of one name',
    files: appended(
      'instance_group [\n  { name: "a" count: 1 kind: KIND_CPU },\n  { name: "a" count: 1 kind: KIND_CPU }\n]\n',
    ),
    reported: ['m/config.pbtxt:13:', "'a'"],
    isWarning: true,
  },
  {
    name: 'a backend that is not there',
    files: onnx('"onnxruntime"', '"onnx"'),
    reported: ['m/config.pbtxt:1:', 'Did you mean backend: "onnxruntime"?'],
  },
  {
    name: 'a platform of another backend',
    files: onnx('backend: "onnxruntime"', 'backend: "onnxruntime" platform: "tensorrt_plan"'),
    reported: ['m/config.pbtxt:1:', "unexpected 'platform' and 'backend' pair"],
  },
  {
    name: 'batches that are preferred and too large',
    files: appended('dynamic_batching { preferred_batch_size: [ 4, 16 ] }\n'),
    reported: ['m/config.pbtxt:11:', 'preferred size must be <= max batch size'],
  },
  {
    name: 'dynamic batching without batches',
    files: {
      'm/1/model.onnx': FIXED,
      'm/config.pbtxt': `${CONFIG.replace('max_batch_size: 8', 'max_batch_size: 0').replaceAll(
        '[ 16 ]',
        '[ 1, 16 ]',
      )}dynamic_batching { }\n`,
    },
    reported: ['m/config.pbtxt:11:', 'max_batch_size'],
    isWarning: true,
  },
  {
    name: 'a decoupled model with a response cache',
    files: appended('model_transaction_policy { decoupled: true }\nresponse_cache { enable: true }\n'),
    reported: ['m/config.pbtxt:', "Response Cache does not currently support model m with 'decoupled'"],
  },
  {
    name: 'a bracket that is not closed',
    files: onnx('dims: [ 16 ] }\n]\noutput', 'dims: [ 16 ] }\noutput'),
    reported: ['m/config.pbtxt:'],
  },
  {
    name: 'a comma behind the last item',
    files: onnx('dims: [ 16 ] }\n]\noutput', 'dims: [ 16 ] },\n]\noutput'),
    reported: ['m/config.pbtxt:6:', 'Expected "{", found "]"'],
  },
  {
    name: 'strings without quotes',
    files: onnx('"onnxruntime"', 'onnxruntime'),
    reported: ['m/config.pbtxt:1:', 'Strings stand in quotes'],
  },
  {
    name: 'a configuration in JSON',
    files: { 'm/1/model.onnx': GRAPH, 'm/config.pbtxt': '{ "backend": "onnxruntime" }\n' },
    reported: ['m/config.pbtxt:1:', 'looks like JSON'],
  },

  // Warm-up.
  {
    name: 'warm-up with a file that is not there',
    files: warmup(`${INPUT1} input_data_file: "raw" }`),
    reported: ['m/config.pbtxt:14:', 'm/warmup/raw: No such file or directory'],
  },
  {
    name: 'a file of warm-up in the directory of the model',
    files: warmup(`${INPUT1} input_data_file: "raw" }`, { 'm/raw': Buffer.alloc(64) }),
    reported: ['m/config.pbtxt:14:', 'm/warmup/raw: No such file or directory'],
  },
  {
    name: 'an initial state that is too short',
    files: {
      'm/1/model.py': CODE,
      'm/initial_state/zeros': Buffer.alloc(2),
      'm/config.pbtxt':
        `${PYTHON}sequence_batching {\n  state [ {\n    input_name: "S" output_name: "T" data_type: TYPE_FP32 ` +
        'dims: [ 1 ]\n    initial_state { data_type: TYPE_FP32 dims: [ 1 ] name: "zeros" data_file: "zeros" }\n ' +
        ' } ]\n}\n',
    },
    reported: ['m/config.pbtxt:7:', 'expects 4 bytes', 'only has 2 bytes'],
  },
  {
    name: 'a file of warm-up that is too short',
    files: warmup(`${INPUT1} input_data_file: "raw" }`, { 'm/warmup/raw': Buffer.alloc(60) }),
    reported: ['m/config.pbtxt:14:', 'expects 64 bytes', 'only has 60 bytes'],
  },
  {
    name: 'warm-up of another shape',
    files: warmup('key: "INPUT1" value { data_type: TYPE_INT32 dims: [ 8 ] zero_data: true }'),
    reported: ['m/config.pbtxt:14:', 'INPUT1'],
  },
  {
    name: 'warm-up of another datatype',
    files: warmup('key: "INPUT1" value { data_type: TYPE_FP32 dims: [ 16 ] zero_data: true }'),
    reported: ['m/config.pbtxt:14:', 'INPUT1'],
  },
  {
    name: 'warm-up of an input that the model does not have',
    files: warmup('key: "INPUT2" value { data_type: TYPE_INT32 dims: [ 16 ] zero_data: true }'),
    reported: ['m/config.pbtxt:14:', 'INPUT2'],
  },
  {
    name: 'warm-up without data',
    files: warmup('key: "INPUT1" value { data_type: TYPE_INT32 dims: [ 16 ] }'),
    reported: ['m/config.pbtxt:14:', 'input_data_type'],
  },
  {
    name: 'warm-up of more rows than fit',
    files: appended(
      'model_warmup [ {\n  name: "one" batch_size: 16\n  inputs { key: "INPUT0" value { data_type: ' +
        'TYPE_INT32 dims: [ 16 ] zero_data: true } }\n} ]\n',
    ),
    reported: ['m/config.pbtxt:12:', 'max allowed is 8'],
  },

  // Ensembles.
  {
    name: 'a step of a model that is not there',
    files: { 'e/1/': '', 'e/config.pbtxt': ensemble(STEP.replace('"m"', '"n"')), 'm/1/model.onnx': GRAPH },
    reported: ['e/config.pbtxt:7:', 'not available or ambiguous: n'],
  },
  {
    name: 'a step with a tensor that its model does not have',
    files: { 'e/1/': '', 'e/config.pbtxt': ensemble(STEP.replace('"OUTPUT0"', '"SUM0"')), 'm/1/model.onnx': GRAPH },
    reported: ['e/config.pbtxt:10:', 'mapped from non-existing output SUM0 in model m'],
  },
  {
    name: 'an input of a step that nothing feeds',
    files: {
      'e/1/': '',
      'e/config.pbtxt': ensemble(STEP.replace('    input_map { key: "INPUT1" value: "B" }\n', '')),
      'm/1/model.onnx': GRAPH,
    },
    reported: ['e/config.pbtxt:3:', "'B'"],
  },
  {
    name: 'a tensor of an ensemble of another datatype',
    files: {
      'e/1/': '',
      'e/config.pbtxt': ensemble(STEP).replace('"A" data_type: TYPE_INT32', '"A" data_type: TYPE_FP32'),
      'm/1/model.onnx': GRAPH,
    },
    reported: ['e/config.pbtxt:3:', 'inconsistent data type'],
  },
  {
    name: 'a tensor that another step maps rightly',
    files: twoSteps('key: "OUTPUT1" value: "MID"', 'key: "OUTPUT1" value: "SUM"'),
    reported: ['e/config.pbtxt:7:', 'SUM is mapped from non-existing output OUTPUT1 in model twin'],
  },
  {
    name: 'a tensor between two steps of another datatype',
    files: twoSteps('key: "OUTPUT0" value: "MID"', 'key: "OUTPUT0" value: "SUM"', 'float'),
    reported: ['e/config.pbtxt:7:', 'ensemble tensor MID: inconsistent data type'],
  },
  {
    name: 'a step with a tensor that nothing is mapped to',
    files: twoSteps('key: "OUTPUT0" value: "MID"', 'key: "OUTPUT0" value: "SUM"', 'add2'),
    reported: ['e/config.pbtxt:7:', 'input EXTRA in model add2 is not mapped'],
  },
  {
    name: 'a step whose batches are smaller than those of the ensemble',
    files: twoSteps('key: "OUTPUT0" value: "MID"', 'key: "OUTPUT0" value: "SUM"', 'small'),
    reported: ['e/config.pbtxt:7:', 'model small which only allows maximum batch size to be 2'],
  },
  {
    name: 'a step without a version',
    files: { 'e/1/': '', 'e/config.pbtxt': ensemble(STEP.replace(' model_version: -1', '')), 'm/1/model.onnx': GRAPH },
    reported: ['e/config.pbtxt:7:', 'whose required version 0 is not loaded', 'model_version: -1'],
  },
  {
    name: 'an ensemble that needs itself',
    files: { 'e/1/': '', 'e/config.pbtxt': ensemble(STEP.replace('"m"', '"e"')) },
    reported: ['e/config.pbtxt', 'circular dependency'],
  },

  // Python models.
  {
    name: 'code with a mistake of syntax',
    files: python(`${CODE}\n    def finalize(self)\n        pass\n`),
    reported: ['m/1/model.py:5:', 'SyntaxError'],
  },
  {
    name: 'code that is indented wrongly',
    files: python(CODE.replace('        return', '      return') + '       x = 1\n'),
    reported: ['m/1/model.py:', 'IndentationError'],
  },
  {
    name: 'code without the class',
    files: python(CODE.replace('TritonPythonModel', 'Model')),
    reported: ['m/1/model.py', 'TritonPythonModel'],
  },
  {
    name: 'an import that is not installed',
    files: python(`import json\nimport nereid_no_such_module\n\n${CODE}`),
    reported: ['m/1/model.py:2', "No module named 'nereid_no_such_module'"],
    needsLoad: true,
  },
  {
    name: 'a code file of another name',
    files: { 'm/1/Model.py': CODE, 'm/config.pbtxt': PYTHON },
    reported: ['m/1/model.py', "there is 'Model.py'"],
  },
  {
    name: 'an environment that is not there',
    files: python(
      CODE,
      'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }\n',
    ),
    reported: ['m/config.pbtxt:4:', 'Failed to get the canonical path', 'm/env.tar.gz'],
  },
]

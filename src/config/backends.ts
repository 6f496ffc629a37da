/**
 * Table of backends: a row for each that Triton or this server has. All code about a backend's files, platforms,
 * settings, devices or names reads this table, and the one in docs/models.md is made from it. A backend without a row
 * is a directory below `--backend-directory`, or missing.
 *
 * Rows with files are in the order in which the files are searched (docs/spec/backends-native.md, 1.1).
 */

/** ONNX Runtime's GPU providers, by their names in `ProviderReport` and in texts. */
export const PROVIDERS = { cuda: 'CUDA', tensorrt: 'TensorRT' } as const

/** The platform of a TensorRT plan; some fields are valid only with it. */
export const PLAN_PLATFORM = 'tensorrt_plan'

/** A file of a version that identifies its backend. */
export interface ModelFile {
  name: string
  kind: 'file' | 'directory' | 'any'
  /** Default and only valid value of `platform`; absent if any is valid. */
  platform?: string
  /** Other spellings of the platform that identify the backend. */
  aliases?: readonly string[]
  /** For a directory: it must contain one of these. */
  holds?: readonly string[]
}

/** Files not served; Python code converts them. */
export interface Foreign {
  ends: RegExp
  /** The platform of configurations that name such a file. */
  platform?: string
  what: string
  /** Code that reads `file` and writes `to`. Names of inputs and outputs come from a configuration. */
  code: (file: string, to: string, inputs: readonly string[], outputs: readonly string[]) => string
}

export interface Backend {
  name: string
  /** Name in Triton's texts, if it differs. */
  title?: string
  /** Spelling in a configuration, if it is not `backend: "<name>"`. */
  written?: string
  /** Other common names, in lower case without separators. Platforms and file name endings are known already. */
  spellings?: readonly string[]
  /** Files of a version; the first is the default, and the target of conversions of `foreign` files. */
  files?: readonly ModelFile[]
  /** The platform decides before `backend` and the files, as in Triton. */
  platformDecides?: true
  foreign?: readonly Foreign[]
  /** Endings of file names that `nereid init` accepts; a whole name if others with its ending are something else. */
  init?: readonly string[]
  /** Files by values of the model parameter `model_type`, the default first; they identify no backend. */
  chosen?: Readonly<Record<string, string>>
  /** Keys of `--backend-config=<name>,…` that its code reads; absent if it may read any. */
  settings?: readonly string[]
  /**
   * Instances of a group without a kind: `auto`, on each GPU, or else on the CPU; `only`, on GPUs or nowhere; absent,
   * on the CPU. `never` puts them on the CPU even if the group asks for a GPU; `cpu` refuses groups of other kinds.
   */
  devices?: 'auto' | 'only' | 'never' | 'cpu'
  /**
   * For a backend of ONNX Runtime, with the settings of `onnxruntime`: its GPU providers. A GPU needs one of them, if
   * the list has any; texts name the first.
   */
  providers?: readonly (keyof typeof PROVIDERS)[]
  /** CPU instances of a group without a count; 1 if absent. */
  cpuInstances?: number
  /** Words in the names of images made for it. */
  images?: readonly string[]
  /** For a backend that `python` serves: the module of the user's interpreter that runs its models. */
  module?: string
  /** File of a version that its code always reads, whatever `default_model_filename` is; it identifies no backend. */
  reads?: string
  /** A model file that does not declare inputs and outputs, so the configuration must. */
  opaque?: string
  /** `max_batch_size` of a configuration without one, whatever the setting `default-max-batch-size` is. */
  maxBatchSize?: number
  /** Text endpoints serve its models, whose inputs and outputs may have any names. */
  isText?: true
  /**
   * Code that runs its models: `core`, the native module; `python`, our `crates/backend-python/backends/<name>`;
   * `absent`, only a directory of the user's.
   */
  served: 'core' | 'python' | 'absent'
  /** For an absent backend, the reason and advice in errors and doctor; otherwise the text of docs/models.md. */
  note: string
}

/** Backends of the core for tests and examples. */
const FOR_TESTS = [
  'identity',
  'repeat',
  'speak',
  'square',
  'sequence',
  'dyna_sequence',
  'implicit_state',
  'iterative_sequence',
  'device_identity',
]

/** Backends of the core for the steps around a network that sees pictures. */
const VISION: readonly (readonly [string, string])[] = [
  ['image', 'files of pictures to the tensor of a network: [Pictures](images.md)'],
  ['boxes', 'outputs of a detection network to boxes in pixels of the picture: [Pictures](images.md)'],
  ['labels', 'outputs of a classification network to the best classes and their names: [Pictures](images.md)'],
]

/** A Python literal. */
const literal = (value: string | readonly string[]): string => JSON.stringify(value)

export const KERAS: Foreign = {
  ends: /\.(?:keras|h5|hdf5)$/i,
  what: 'a model of Keras',
  code: (file, to) => `import keras; keras.saving.load_model(${literal(file)}, compile=False).export(${literal(to)})`,
}

export const GRAPHDEF = {
  ends: /\.graphdef$/i,
  platform: 'tensorflow_graphdef',
  what: 'a GraphDef, whose inputs and outputs have no signature',
  code: (file, to, inputs, outputs) =>
    'import tensorflow as tf; v1 = tf.compat.v1; v1.disable_eager_execution(); g = v1.GraphDef(); ' +
    `g.ParseFromString(open(${literal(file)}, "rb").read()); ` +
    'tf.import_graph_def(g, name=""); s = v1.Session(); t = lambda names: {n: s.graph.get_tensor_by_name(n + ' +
    '":0") for n in names}; ' +
    `v1.saved_model.simple_save(s, ${literal(to)}, t(${literal(inputs)}), t(${literal(outputs)}))`,
} satisfies Foreign

export const BACKENDS: readonly Backend[] = [
  {
    name: 'tensorflow',
    spellings: ['tf', 'tensorflow1', 'tensorflow2', 'keras'],
    cpuInstances: 2,
    images: ['tf', 'tf1', 'tf2', 'tensorflow'],
    files: [
      {
        name: 'model.savedmodel',
        kind: 'directory',
        platform: 'tensorflow_savedmodel',
        holds: ['saved_model.pb', 'saved_model.pbtxt', 'saved_model.cpb'],
      },
      { name: 'model.graphdef', kind: 'file', platform: GRAPHDEF.platform },
    ],
    platformDecides: true,
    foreign: [KERAS, GRAPHDEF],
    init: ['saved_model.pb'],
    settings: [],
    devices: 'auto',
    module: 'tensorflow',
    served: 'python',
    note:
      "the user's `tensorflow` runs SavedModels, whose signature has inputs, outputs and batching; GraphDef is " +
      'rejected, with the command that converts it: [TensorFlow](tensorflow.md)',
  },
  {
    name: 'tensorrt',
    spellings: ['trt'],
    files: [{ name: 'model.plan', kind: 'file', platform: PLAN_PLATFORM }],
    init: ['.plan', '.engine', '.trt'],
    settings: [],
    devices: 'only',
    providers: ['tensorrt'],
    opaque: 'a TensorRT plan',
    served: 'core',
    note:
      "plans, run by ONNX Runtime's TensorRT provider; inputs and outputs have to be in the configuration: " +
      '[GPUs](gpu.md)',
  },
  {
    name: 'onnxruntime',
    spellings: ['ort', 'onnxrt', 'onnxmodel', 'onnxruntimegpu', 'microsoftonnxruntime'],
    files: [{ name: 'model.onnx', kind: 'any', platform: 'onnxruntime_onnx' }],
    init: ['.onnx'],
    settings: [
      'enable-global-threadpool',
      'intra_op_thread_count',
      'inter_op_thread_count',
      'library',
      'provider-directory',
      'provider-library',
      'cache-directory',
      'adaptive-threads',
    ],
    devices: 'auto',
    providers: ['cuda'],
    cpuInstances: 2,
    served: 'core',
    note: 'inputs, outputs and batching are read from the file; a directory holds `model.onnx` and its external data',
  },
  {
    name: 'text',
    spellings: [
      'textembeddings',
      'embedding',
      'embeddings',
      'sentencetransformer',
      'sentencetransformers',
      'huggingface',
      'transformers',
      'tei',
      'textembeddingsinference',
      'crossencoder',
      'reranker',
    ],
    isText: true,
    maxBatchSize: 1024,
    devices: 'auto',
    providers: ['cuda'],
    cpuInstances: 2,
    served: 'core',
    note:
      'folders of a hub with `model.onnx` and `tokenizer.json`: texts in; embeddings, scores or classes out: ' +
      '[Text models](text.md)',
  },
  {
    name: 'openvino',
    title: 'OpenVINO',
    spellings: ['vino', 'openvinoir'],
    files: [{ name: 'model.xml', kind: 'any' }],
    init: ['.xml'],
    settings: [],
    images: ['openvino'],
    devices: 'cpu',
    module: 'openvino',
    served: 'python',
    note:
      "the user's `openvino` runs them; inputs and outputs are read from the file, and batching if it has " +
      'layouts: [OpenVINO](openvino.md)',
  },
  {
    name: 'pytorch',
    spellings: ['torch', 'torchscript', 'pytorchtorchscript', 'jit'],
    images: ['pyt', 'pytorch'],
    files: [
      { name: 'model.pt', kind: 'any', platform: 'pytorch_libtorch', aliases: ['libtorch'] },
      { name: 'model.pt2', kind: 'any', platform: 'torch_aoti' },
    ],
    init: ['.pt', '.pt2', '.pth', '.torchscript', '.jit'],
    settings: [],
    devices: 'auto',
    module: 'torch',
    opaque: 'a file of PyTorch',
    served: 'python',
    note: "the user's `torch` runs them; inputs and outputs have to be in the configuration: [PyTorch](pytorch.md)",
  },
  {
    name: 'python',
    spellings: ['python2', 'python3', 'pythonbackend'],
    files: [{ name: 'model.py', kind: 'any' }],
    devices: 'auto',
    settings: [
      'python-executable',
      'environment-root',
      'execute-timeout-ms',
      'memory-limit-bytes',
      'shm',
      'shm-max-byte-size',
      'shm-default-byte-size',
      'shm-growth-byte-size',
      'restart',
      'output',
      'output-bytes-per-second',
      'new-privileges',
      'stub-timeout-seconds',
      'exit-grace-seconds',
      'shm-region-prefix-name',
      'shm_message_queue_size',
      'thread-pool-size',
    ],
    served: 'core',
    note: "the model's `auto_complete_config` sets inputs and outputs: [Python models](python.md)",
  },
  {
    name: 'javascript',
    spellings: ['js', 'node', 'nodejs', 'typescript', 'ts'],
    files: ['model.mjs', 'model.js', 'model.cjs', 'model.ts', 'model.mts'].map((name) => ({ name, kind: 'file' })),
    settings: [
      'isolation',
      'execute-timeout-ms',
      'memory-limit-bytes',
      'start-timeout-seconds',
      'exit-grace-seconds',
      'restart',
      'shm-default-byte-size',
      'shm-growth-byte-size',
      'shm-max-byte-size',
      'output-bytes-per-second',
    ],
    devices: 'never',
    served: 'core',
    note: 'the model declares inputs and outputs: [TypeScript models](typescript-models.md)',
  },
  {
    name: 'fil',
    spellings: ['forest', 'xgboost', 'lightgbm', 'treelite'],
    images: ['fil'],
    settings: [],
    devices: 'never',
    providers: [],
    served: 'core',
    chosen: {
      xgboost: 'xgboost.model',
      xgboost_json: 'xgboost.json',
      xgboost_ubj: 'xgboost.ubj',
      lightgbm: 'model.txt',
      treelite_checkpoint: 'checkpoint.tl',
    },
    // Files of tokenizers end in .model too, and any text in .txt.
    init: ['xgboost.json', 'xgboost.model', '.ubj', 'model.txt', '.tl'],
    note:
      'trees of XGBoost, LightGBM and treelite; the parameter `model_type` names the format of the file: ' +
      '[Trees](trees.md)',
  },
  {
    name: 'ensemble',
    written: 'platform: "ensemble"',
    spellings: ['ensembles', 'ensemblescheduling', 'pipeline'],
    served: 'core',
    note: 'the directory of a version may be empty; a configuration is needed',
  },
  ...VISION.map(([name, note]) => ({ name, served: 'core' as const, settings: [], devices: 'never' as const, note })),
  ...FOR_TESTS.map((name) => ({ name, served: 'core' as const, note: 'built in, for tests and examples' })),
  {
    name: 'dali',
    images: ['dali'],
    served: 'absent',
    note:
      'DALI pipelines are not in this release; run the pipeline from a model.py (backend: "python") that ' +
      'imports nvidia.dali, or decode and resize there with Pillow or OpenCV',
  },
  {
    name: 'tensorrtllm',
    spellings: ['trtllm'],
    images: ['trtllm', 'tensorrtllm'],
    served: 'absent',
    note:
      'TensorRT-LLM engines are not in this release; write backend: "python", and the model.py of TensorRT-LLM ' +
      '(all_models/llmapi or all_models/inflight_batcher_llm) runs the engine with the package tensorrt_llm',
  },
  {
    name: 'vllm',
    images: ['vllm'],
    devices: 'auto',
    module: 'vllm',
    reads: 'model.json',
    init: ['model.json'],
    served: 'python',
    note:
      "the user's `vllm` runs the engine that `model.json` describes; tried with vLLM 0.32 on a CPU: " +
      '[vLLM](vllm.md)',
  },
  {
    name: 'fastertransformer',
    images: ['fastertransformer'],
    served: 'absent',
    note:
      'FasterTransformer models are not in this release, and that backend is not maintained; serve the original ' +
      'weights with vLLM (backend: "vllm"), or with the model.py of TensorRT-LLM (backend: "python")',
  },
  {
    name: 'neuron',
    spellings: ['inferentia', 'awsneuron'],
    images: ['neuron', 'neuronx'],
    served: 'absent',
    note:
      'Neuron models are not in this release; load the compiled model in a model.py (backend: "python") that ' +
      'imports torch_neuronx',
  },
  {
    name: 'stateful',
    served: 'absent',
    note:
      'the stateful backend is not in this release; serve its ONNX model with backend: "onnxruntime", and ' +
      'write each pair of its state_pairs as a state of sequence_batching (implicit state)',
  },
]

const ROWS: ReadonlyMap<string, Backend> = new Map(BACKENDS.map((row) => [row.name, row]))

/** File name endings that `nereid init` accepts, for hints and shells. */
export const INIT_ENDS: readonly string[] = BACKENDS.flatMap(({ init = [] }) => init)

export const isForInit = (file: string): boolean => INIT_ENDS.some((end) => file.endsWith(end))

/** The row of a backend, or undefined. */
export const backendRow = (name: string): Backend | undefined => ROWS.get(name)

/** True if the native module serves it without extra files. */
export const isBuiltIn = (name: string): boolean => backendRow(name)?.served === 'core'

/** True if ONNX Runtime runs its models. */
export const isOfOnnxRuntime = (name: string): boolean => backendRow(name)?.providers !== undefined

/** ONNX Runtime's GPU provider of a backend, as texts name it; empty if it has none. */
export function providerName(name: string): string {
  const [first] = backendRow(name)?.providers ?? []
  return first === undefined ? '' : PROVIDERS[first]
}

/** The backend whose `--backend-config` applies to it. */
export const settingsOwner = (name: string): string => (isOfOnnxRuntime(name) ? 'onnxruntime' : name)

/**
 * What a backend is, once: a row for each that Triton or this server has. Everything that knows a backend's files, platforms, settings, devices or words
 * reads it here, and the table of docs/models.md is made from it. A backend without a row is a directory below `--backend-directory`, or is not there.
 *
 * The rows with files are in the order in which the files are looked for (docs/spec/backends-native.md, 1.1).
 */

/** Providers of ONNX Runtime for GPUs, as reports of them (`ProviderReport`) and texts call them. */
export const PROVIDERS = { cuda: 'CUDA', tensorrt: 'TensorRT' } as const

/** The platform of a TensorRT plan, which may have what no other model has. */
export const PLAN_PLATFORM = 'tensorrt_plan'

/** A file of a version that tells its backend. */
export interface ModelFile {
  name: string
  kind: 'file' | 'directory' | 'any'
  /** What `platform` is filled with, and may be; left out: any is taken. */
  platform?: string
  /** Further spellings of the platform that tell the backend. */
  aliases?: readonly string[]
  /** For a directory: it has to contain one of these files. */
  holds?: readonly string[]
}

/** Files that are not served; code in Python makes one of them that is. */
export interface Foreign {
  ends: RegExp
  /** The platform of configurations that name such a file. */
  platform?: string
  what: string
  /** The code that reads `file` and writes `to`. Names of inputs and outputs are those of a configuration. */
  code: (file: string, to: string, inputs: readonly string[], outputs: readonly string[]) => string
}

export interface Backend {
  name: string
  /** How a configuration names it, where that is not `backend: "<name>"`. */
  written?: string
  /** What guides, other servers and habit call it as well, in small letters without separators. Platforms and ends of file names need no word here. */
  spellings?: readonly string[]
  /** The first is the default. */
  files?: readonly ModelFile[]
  foreign?: readonly Foreign[]
  /** Files of which a parameter of the model chooses one: they tell no backend. */
  chosen?: readonly string[]
  /** Keys of `--backend-config=<name>,…` that its code reads; left out: any. */
  settings?: readonly string[]
  /** Where instances are whose group leaves it open: `auto`, on each GPU, else on the CPU; `only`, on GPUs or nowhere; left out, on the CPU. With `never` they are there also if the group says a GPU. */
  devices?: 'auto' | 'only' | 'never'
  /** Of a backend whose models ONNX Runtime runs, with the settings of `onnxruntime`: its providers for GPUs, one of which has to be there, if there are any. The first is told. */
  providers?: readonly (keyof typeof PROVIDERS)[]
  /** Instances on the CPU where no count is given; left out: 1. */
  cpuInstances?: number
  /** Words in the names of images that are made for it. */
  images?: readonly string[]
  /** Of one that is served by `python`: the module of the user's interpreter that runs its models. */
  module?: string
  /** The file of a version that its code reads by this name, whatever `default_model_filename` says; it tells no backend. */
  reads?: string
  /** What does not say which inputs and outputs a model has, so that the configuration must. */
  opaque?: string
  /** What runs its models: `core`, the native module; `python`, our `crates/backend-python/backends/<name>`; `absent`, nothing but a directory of the user's. */
  served: 'core' | 'python' | 'absent'
  /** Of one that is absent what errors and doctor say, and what to do; else what docs/models.md says of it. */
  note: string
}

/** Served by the core, for tests and examples. */
const FOR_TESTS = ['identity', 'repeat', 'square', 'sequence', 'dyna_sequence', 'implicit_state', 'iterative_sequence', 'device_identity']

/** As Python reads it. */
const literal = (value: string | readonly string[]): string => JSON.stringify(value)

export const KERAS: Foreign = {
  ends: /\.(?:keras|h5|hdf5)$/i, what: 'a model of Keras',
  code: (file, to) => `import keras; keras.saving.load_model(${literal(file)}, compile=False).export(${literal(to)})`,
}

export const GRAPHDEF = {
  ends: /\.graphdef$/i, platform: 'tensorflow_graphdef', what: 'a GraphDef, whose inputs and outputs have no signature',
  code: (file, to, inputs, outputs) =>
    `import tensorflow as tf; v1 = tf.compat.v1; v1.disable_eager_execution(); g = v1.GraphDef(); g.ParseFromString(open(${literal(file)}, "rb").read()); ` +
    'tf.import_graph_def(g, name=""); s = v1.Session(); t = lambda names: {n: s.graph.get_tensor_by_name(n + ":0") for n in names}; ' +
    `v1.saved_model.simple_save(s, ${literal(to)}, t(${literal(inputs)}), t(${literal(outputs)}))`,
} satisfies Foreign

export const BACKENDS: readonly Backend[] = [
  {
    name: 'tensorflow', spellings: ['tf', 'tensorflow1', 'tensorflow2', 'keras'], cpuInstances: 2, images: ['tf', 'tf1', 'tf2', 'tensorflow'],
    files: [
      { name: 'model.savedmodel', kind: 'directory', platform: 'tensorflow_savedmodel', holds: ['saved_model.pb', 'saved_model.pbtxt', 'saved_model.cpb'] },
      { name: 'model.graphdef', kind: 'file', platform: GRAPHDEF.platform },
    ],
    foreign: [KERAS, GRAPHDEF], settings: [], devices: 'auto', module: 'tensorflow',
    served: 'python', note: "the user's `tensorflow` runs SavedModels, whose signature says inputs, outputs and batching; GraphDef is refused, with the command that converts it: [TensorFlow](tensorflow.md)",
  },
  {
    name: 'tensorrt', spellings: ['trt'], files: [{ name: 'model.plan', kind: 'file', platform: PLAN_PLATFORM }], settings: [], devices: 'only', providers: ['tensorrt'],
    opaque: 'a TensorRT plan', served: 'core', note: "plans, run by ONNX Runtime's TensorRT provider; inputs and outputs have to be in the configuration: [GPUs](gpu.md)",
  },
  {
    name: 'onnxruntime', spellings: ['ort', 'onnxrt', 'onnxmodel', 'onnxruntimegpu', 'microsoftonnxruntime'], files: [{ name: 'model.onnx', kind: 'any', platform: 'onnxruntime_onnx' }],
    settings: ['enable-global-threadpool', 'intra_op_thread_count', 'inter_op_thread_count', 'library', 'provider-directory', 'provider-library', 'cache-directory'],
    devices: 'auto', providers: ['cuda'], cpuInstances: 2,
    served: 'core', note: 'inputs, outputs and batching are read from the file; a directory holds `model.onnx` and its external data',
  },
  {
    name: 'openvino', spellings: ['vino', 'openvinoir'], files: [{ name: 'model.xml', kind: 'any' }], settings: [], images: ['openvino'], module: 'openvino',
    served: 'python', note: "the user's `openvino` runs them; inputs and outputs are read from the file, and batching where it has layouts: [OpenVINO](openvino.md)",
  },
  {
    name: 'pytorch', spellings: ['torch', 'torchscript', 'pytorchtorchscript', 'jit'], images: ['pyt', 'pytorch'],
    files: [{ name: 'model.pt', kind: 'any', platform: 'pytorch_libtorch', aliases: ['libtorch'] }, { name: 'model.pt2', kind: 'any', platform: 'torch_aoti' }],
    settings: [], devices: 'auto', module: 'torch', opaque: 'a file of PyTorch',
    served: 'python', note: "the user's `torch` runs them; inputs and outputs have to be in the configuration: [PyTorch](pytorch.md)",
  },
  {
    name: 'python', spellings: ['python2', 'python3', 'pythonbackend'], files: [{ name: 'model.py', kind: 'any' }], devices: 'auto',
    settings: [
      'python-executable', 'environment-root', 'execute-timeout-ms', 'memory-limit-bytes', 'shm', 'shm-max-byte-size', 'shm-default-byte-size', 'shm-growth-byte-size', 'restart', 'output',
      'output-bytes-per-second', 'new-privileges', 'stub-timeout-seconds', 'exit-grace-seconds', 'shm-region-prefix-name', 'shm_message_queue_size', 'thread-pool-size',
    ],
    served: 'core', note: "the model's `auto_complete_config` says inputs and outputs: [Python models](python.md)",
  },
  {
    name: 'fil', spellings: ['forest', 'xgboost', 'lightgbm', 'treelite'], images: ['fil'], settings: [], devices: 'never', providers: [],
    chosen: ['xgboost.model', 'xgboost.json', 'xgboost.ubj', 'model.txt', 'checkpoint.tl'],
    served: 'core', note: 'trees of XGBoost, LightGBM and treelite; the parameter `model_type` says which file: [Trees](trees.md)',
  },
  {
    name: 'ensemble', written: 'platform: "ensemble"', spellings: ['ensembles', 'ensemblescheduling', 'pipeline'],
    served: 'core', note: 'the directory of a version may be empty; a configuration is needed',
  },
  ...FOR_TESTS.map((name) => ({ name, served: 'core' as const, note: 'built in, for tests and examples' })),
  {
    name: 'dali', images: ['dali'],
    served: 'absent', note: 'DALI pipelines are not in this release; run the pipeline from a model.py (backend: "python") that imports nvidia.dali, or decode and resize there with Pillow or OpenCV',
  },
  {
    name: 'tensorrtllm', spellings: ['trtllm'], images: ['trtllm', 'tensorrtllm'],
    served: 'absent', note: 'TensorRT-LLM engines are not in this release; write backend: "python", and the model.py of TensorRT-LLM (all_models/llmapi or all_models/inflight_batcher_llm) runs the engine with the package tensorrt_llm',
  },
  {
    name: 'vllm', images: ['vllm'], devices: 'auto', module: 'vllm', reads: 'model.json',
    served: 'python', note: "the user's `vllm` runs the engine that `model.json` describes; never tried with vLLM itself: [vLLM](vllm.md)",
  },
  {
    name: 'fastertransformer', images: ['fastertransformer'],
    served: 'absent', note: 'FasterTransformer models are not in this release, and nobody maintains that backend; serve the original weights with vLLM (backend: "vllm"), or with the model.py of TensorRT-LLM (backend: "python")',
  },
  {
    name: 'neuron', spellings: ['inferentia', 'awsneuron'], images: ['neuron', 'neuronx'],
    served: 'absent', note: 'Neuron models are not in this release; load the compiled model in a model.py (backend: "python") that imports torch_neuronx',
  },
  {
    name: 'stateful',
    served: 'absent', note: 'the stateful backend is not in this release; serve its ONNX model with backend: "onnxruntime", and write each pair of its state_pairs as a state of sequence_batching (implicit state)',
  },
]

const ROWS: ReadonlyMap<string, Backend> = new Map(BACKENDS.map((row) => [row.name, row]))

/** How files end that `nereid init` makes a repository of, for hints and shells. */
export const INIT_ENDS: readonly string[] = ['.onnx', '.pt', '.xml', 'xgboost.json', '.ubj', 'model.txt', '.tl']

export const isForInit = (file: string): boolean => INIT_ENDS.some((end) => file.endsWith(end))

/** The row of a backend; undefined of one that has none. */
export const backendRow = (name: string): Backend | undefined => ROWS.get(name)

/** Whether the native module serves it without files of its own. */
export const isBuiltIn = (name: string): boolean => backendRow(name)?.served === 'core'

/** Whether ONNX Runtime runs its models. */
export const isOfOnnxRuntime = (name: string): boolean => backendRow(name)?.providers !== undefined

/** The backend whose `--backend-config` holds for models of another. */
export const settingsOwner = (name: string): string => (isOfOnnxRuntime(name) ? 'onnxruntime' : name)

/**
 * Differences from Triton that doctor reports: each row names a row of COMPAT.md by its first words, and adds short
 * advice. Only COMPAT.md has the reasons.
 */

import { providerName } from '../../internal.js'

/** How a line of a deployment must change. */
export type Verdict = 'same' | 'differs' | 'change' | 'impossible'

export const VERDICTS: Readonly<Record<Verdict, string>> = {
  same: 'as it is',
  differs: 'differs',
  change: 'to change',
  impossible: 'not possible yet',
}

export interface Fact {
  verdict: Verdict
  /** First words of a row of COMPAT.md; null if the server itself does not differ. */
  row: string | null
  advice: string
}

const same = (advice: string): Fact => ({ verdict: 'same', row: null, advice })
const differs = (row: string, advice: string): Fact => ({ verdict: 'differs', row, advice })
const change = (row: string | null, advice: string): Fact => ({ verdict: 'change', row, advice })
const impossible = (row: string, advice: string): Fact => ({ verdict: 'impossible', row, advice })

const provider = (backend: string): string => `ONNX Runtime’s ${providerName(backend)} provider`

/** The row of all backends that have no code here. */
const ABSENT = 'Frameworks that are not in this release'

export const FACTS = {
  gpu: differs(
    'A GPU, and no provider of ONNX Runtime',
    `stays; ONNX models use it when ${provider('onnxruntime')} is found, as in the image nereid-gpu: ` +
      'nereid gpu shows what is missing',
  ),
  gpuInstances: differs(
    'Instance groups that need a GPU, without one',
    `runs there when ${provider('onnxruntime')} is found (nereid gpu shows what is missing); without a GPU, ` +
      '--gpu-fallback=cpu serves it on the CPU',
  ),
  gpuOfCode: differs(
    'Instance groups that need a GPU, without one',
    'runs there if its code or its Python package can use a GPU; without one, --gpu-fallback=cpu serves it on the CPU',
  ),
  cpuAnyway: differs(
    'Models of trees, `KIND_GPU`',
    'runs on the CPU, with a warning; on a machine without a GPU, --gpu-fallback=cpu serves it',
  ),
  cpuKinds: change(
    null,
    'runs on the CPU only, and fails to load, as in Triton: write kind: KIND_CPU, or leave the kind out',
  ),
  gpuMissing: change(
    'Instance groups that need a GPU, without one',
    'models need a GPU, and the container has none: --gpu-fallback=cpu serves them on the CPU',
  ),
  gpuCode: same(
    'the code may use a GPU by itself; its tensors are on one with FORCE_CPU_ONLY_INPUT_TENSORS "no", as in Triton',
  ),
  gpuSetting: same('names the available GPUs, as for Triton'),
  cloud: differs(
    'Models of a repository in a cloud',
    'is read with the same variables; what is downloaded is kept, in --repository-cache-directory',
  ),
  storage: change(null, 'this cloud is not supported: copy the models to a directory, and name it'),
  cloudSetting: same('read as by Triton'),
  hubTokenizer: differs(
    "Triton's OpenAI front end, `--tokenizer`",
    'nothing is downloaded: name a folder, or put the model into the cache of Hugging Face (HF_HOME) before',
  ),
  frontEnds: impossible('SageMaker and Vertex AI front ends', 'serve the v2 API on --http-port and map to it in front'),
  backends: differs(
    'Processes of backend libraries',
    'libraries of backends run in processes of their own; settings reach them',
  ),
  unknownBackend: change(
    'Processes of backend libraries',
    'put its library libtriton_<name>.so, or its model.py, below --backend-directory',
  ),
  unknownAgent: change(
    'Processes of caches and repository agents',
    'put its library libtritonrepoagent_<name>.so below --repoagent-directory',
  ),
  absentBackend: impossible(ABSENT, ''),
  plan: differs(
    'TensorRT plans',
    `is run on GPUs only, by ${provider('tensorrt')} (nereid gpu shows what is missing); without a ` +
      'GPU, serve the ONNX file that it was made from',
  ),
  agents: differs(
    'Processes of caches and repository agents',
    'checksum is built in; others run in processes of their own',
  ),
  threads: same('accepted without effect: see --reactor-threads'),
  noEffect: same('accepted without effect; a warning at start names it'),
  ineffective: differs(
    'Settings of a configuration that have no effect in this release',
    'responses are the same without it; it may stay',
  ),
  onnxThreads: differs(
    'Threads of an ONNX model that sets none',
    'a single request uses all cores, concurrent requests one each; intra_op_thread_count sets a number',
  ),
  delay: differs(
    'Dynamic batching delay',
    'an idle instance does not wait; --strict-batching-delay waits as Triton does',
  ),
  cache: differs('Response cache, which requests are equal', 'needs --cache-config, as in Triton'),
  cacheTls: change('Response cache in Redis, TLS', 'leave it out; reach Redis through a TLS tunnel'),
  redis: differs(
    'Response cache in Redis, a Redis that cannot be reached',
    'starts without a Redis and connects when it can',
  ),
  sigterm: differs('SIGTERM', 'ports stay open for --exit-grace-secs (3 s), so a sleep before the end is not needed'),
  stub: differs(
    'Python models, a `triton_python_backend_stub`',
    'is not used: any CPython from 3.9 on with numpy runs models',
  ),
  environment: differs('Python models, archives of environments', 'archives of conda-pack in gzip (.tar.gz)'),
  environmentFormat: change('Python models, archives of environments', 'pack it as .tar.gz'),
  shmKeys: differs('Python models, `shm-region-prefix-name`', 'is read, and has no effect'),
  clientShm: differs(
    '`--allow-client-shm`',
    'was on in this image: clients that register regions of shared memory need --allow-client-shm=true',
  ),
  httpStatus: differs('HTTP status by error class', 'some errors have another HTTP status than in this image'),
  latencyCounters: differs('Latency counters with', 'are hidden, and still count'),
  otel: differs(
    'Traces of mode opentelemetry, how they are sent',
    'the collector must take OTLP over HTTP in protobuf; OTEL_EXPORTER_OTLP_PROTOCOL=http/json sends JSON',
  ),
  implicitState: differs('Implicit state without an initial one', 'starts with zeros'),
  sequences: differs(
    'Sequences in progress when their model is reloaded',
    'a reload lets those in progress go on with the old load',
  ),
  shmSize: same(
    'no longer needed: tensors of Python models travel in memory without a name, not in /dev/shm; it may stay',
  ),
  gracePeriod: same('has to be longer than --exit-timeout-secs (30)'),
  healthCheck: change(null, 'curl is not in the image: leave it out, the image checks /v2/health/ready itself'),
  ulimits: same('not needed any more; it may stay'),
  image: change(null, ''),
  imageBackend: impossible(ABSENT, 'left as it is'),
  preload: change(null, 'libraries for other backends or allocators have no use here: leave it out'),
} as const satisfies Record<string, Fact>

export type FactName = keyof typeof FACTS

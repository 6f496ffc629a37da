/**
 * What guides, other servers and habit call the backends, and what they are called in a configuration. Errors about a backend or platform
 * that is not known end with it.
 */
import { nearest } from './suggest.js'

/** How a configuration names each backend that Triton has: the field, and the value. */
const NAMES: Readonly<Record<string, string>> = {
  onnxruntime: 'backend: "onnxruntime"',
  python: 'backend: "python"',
  ensemble: 'platform: "ensemble"',
  pytorch: 'backend: "pytorch"',
  tensorrt: 'backend: "tensorrt"',
  tensorflow: 'backend: "tensorflow"',
  openvino: 'backend: "openvino"',
}

/** Frameworks of Triton whose models this release does not run, and what can be done with such a model. */
const ABSENT: Readonly<Record<string, string>> = {
  pytorch: 'PyTorch models are not in this release; export the model to ONNX, or run it from a model.py (backend: "python")',
  tensorrt: 'TensorRT plans want a GPU, ONNX Runtime\'s TensorRT provider and TensorRT 10, and have not been run yet; serve the ONNX file that the plan was made from (backend: "onnxruntime")',
  tensorflow: 'TensorFlow models are not in this release; convert the model to ONNX (tf2onnx), or run it from a model.py (backend: "python")',
  openvino: 'OpenVINO models are not in this release; serve the ONNX file that the model was made from (backend: "onnxruntime")',
  dali: 'DALI pipelines are not in this release; do their work in a model.py (backend: "python")',
  fil: 'models of trees are not in this release; convert the model to ONNX (skl2onnx, onnxmltools), or run it from a model.py (backend: "python")',
  tensorrtllm: 'TensorRT-LLM engines are not in this release; run the model from a model.py (backend: "python")',
  vllm: 'vLLM is not in this release; run the engine from a model.py (backend: "python")',
}

/** Folded spelling → backend. */
const SPELLINGS: Readonly<Record<string, string>> = {
  ...Object.fromEntries([...Object.keys(NAMES), ...Object.keys(ABSENT)].map((name) => [name, name])),
  onnx: 'onnxruntime',
  ort: 'onnxruntime',
  onnxrt: 'onnxruntime',
  onnxmodel: 'onnxruntime',
  onnxruntimeonnx: 'onnxruntime',
  onnxruntimegpu: 'onnxruntime',
  microsoftonnxruntime: 'onnxruntime',
  py: 'python',
  python2: 'python',
  python3: 'python',
  pythonbackend: 'python',
  ensembles: 'ensemble',
  ensemblescheduling: 'ensemble',
  pipeline: 'ensemble',
  torch: 'pytorch',
  torchscript: 'pytorch',
  libtorch: 'pytorch',
  pytorchlibtorch: 'pytorch',
  pytorchtorchscript: 'pytorch',
  torchaoti: 'pytorch',
  jit: 'pytorch',
  trt: 'tensorrt',
  plan: 'tensorrt',
  tensorrtplan: 'tensorrt',
  tf: 'tensorflow',
  tensorflow1: 'tensorflow',
  tensorflow2: 'tensorflow',
  tensorflowsavedmodel: 'tensorflow',
  tensorflowgraphdef: 'tensorflow',
  savedmodel: 'tensorflow',
  graphdef: 'tensorflow',
  keras: 'tensorflow',
  vino: 'openvino',
  openvinoir: 'openvino',
  forest: 'fil',
  xgboost: 'fil',
  lightgbm: 'fil',
  treelite: 'fil',
  trtllm: 'tensorrtllm',
}

const fold = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')

/** The backend that a name most likely means; null for a name that is nothing's. */
export function backendMeant(name: string): string | null {
  // Longer than any name: no misspelling.
  if (name.length > 64) return null
  const folded = fold(name)
  if (Object.hasOwn(SPELLINGS, folded)) return SPELLINGS[folded] ?? null
  return folded.length < 4 ? null : (nearest(folded, Object.keys(NAMES)) ?? null)
}

/** What is to be said of a backend that Triton has and this release has not; null of any other. */
export function absentBackend(backend: string): string | null {
  return Object.hasOwn(ABSENT, backend) ? (ABSENT[backend] ?? null) : null
}

/** What goes behind an error about a value of the field `backend` or `platform`; empty when nothing is known of it. */
export function backendHint(name: string, field: 'backend' | 'platform' = 'backend'): string {
  const meant = backendMeant(name)
  if (meant === null) return ''
  const absent = absentBackend(meant)
  if (absent !== null) return `; ${absent}`
  // No platform that is refused has the name of its backend.
  return name === meant && field === 'backend' ? '' : `; did you mean ${NAMES[meant] ?? meant}?`
}

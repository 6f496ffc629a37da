/** Judges environment variables of a Triton start. */

import type { FactName } from './facts.js'
import type { Findings } from './findings.js'
import type { Launch } from './launch.js'

/** Facts by name; the first match counts. */
const VARIABLES: readonly (readonly [RegExp, FactName | 'works'])[] = [
  [/^(?:CUDA_|NVIDIA_|NCCL_)/, 'gpuSetting'],
  [/^LD_PRELOAD$/, 'preload'],
  [/^TRITON_SERVER_ESCAPE_LOG_MESSAGES$|^TRITONCACHE_REDIS_/, 'works'],
  [/^(?:AWS_|S3_|GOOGLE_|AZURE_|TRITON_(?:CLOUD|AWS|GCS|AZURE)_)/, 'cloudSetting'],
  [/^(?:AIP_|SAGEMAKER_)/, 'frontEnds'],
  [/^TRT_|^TENSORRT_/, 'backends'],
  [/^OTEL_(?:SERVICE_NAME|BSP_|EXPORTER_OTLP_(?:TRACES_)?PROTOCOL)/, 'works'],
  [/^OMP_NUM_THREADS$|^MKL_NUM_THREADS$/, 'onnxThreads'],
  [/^PYTHON|^VIRTUAL_ENV$|^CONDA_|^HF_|^TRANSFORMERS_|^TOKENIZERS_|^TF_|^TORCH_|^PYTORCH_|^OPENVINO_/, 'works'],
]

export function judgeEnvironment(env: Launch['env'], findings: Findings): void {
  for (const { name, value, at, without } of env) {
    const subject = value === null ? name : `${name}=${value}`
    const known = VARIABLES.find(([pattern]) => pattern.test(name))?.[1]
    // Only the code of models can use any other variable.
    if (known === undefined || known === 'works') findings.same(at, hidden(name, subject))
    else if (known === 'backends') findings.fact(at, subject, known)
    else findings.fact(at, hidden(name, subject), known)
    if (known === 'preload') findings.apply(without ?? [{ at, from: `${name}=${value ?? ''}`, to: '' }])
  }
}

/** Hides values that look like secrets: reports are pasted into tickets. */
function hidden(name: string, subject: string): string {
  return /SECRET|PASSWORD|TOKEN|KEY|CREDENTIAL/i.test(name) && subject.includes('=') ? `${name}=…` : subject
}

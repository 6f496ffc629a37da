/** Models whose code is Python, for Nereid and for Triton: the same files. */
import { DECOUPLED, REPEAT, config, writeModel } from '../../scripts/models/repository.mjs'

/** A model whose code is run for each request: `responses` are its answers. */
const eachRequest = (code) => `import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
${code}        return responses
`

/** Sum and difference, as `simple`. */
const ADD_SUB =
  eachRequest(`            inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")]
            a, b = (tensor.as_numpy() for tensor in inputs)
            outputs = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
`)

const IDENTITY = eachRequest(`            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            output = pb_utils.Tensor("OUTPUT0", tensor.as_numpy())
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
`)

/** Passes its inputs to `simple` and returns the outputs. */
const CALLER =
  eachRequest(`            inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")]
            outputs = ["OUTPUT0", "OUTPUT1"]
            call = pb_utils.InferenceRequest(model_name="simple", requested_output_names=outputs, inputs=inputs)
            answer = call.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            responses.append(pb_utils.InferenceResponse(output_tensors=answer.output_tensors()))
`)

/** Like the backend `repeat`. Requests wait on threads that stay: the CPU time of an ended thread is not seen. */
const REPEATER = `import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils


def repeat(request):
    values, delays = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("IN", "DELAY"))
    sender = request.get_response_sender()
    due = time.monotonic()
    for i, (value, delay) in enumerate(zip(values, delays)):
        if delay:
            due += delay / 1000
            time.sleep(max(0, due - time.monotonic()))
        index = pb_utils.Tensor("IDX", np.array([i], np.uint32))
        outputs = [pb_utils.Tensor("OUT", np.array([value], np.int32)), index]
        sender.send(pb_utils.InferenceResponse(output_tensors=outputs))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class TritonPythonModel:
    def initialize(self, args):
        self.threads = ThreadPoolExecutor(64)

    def execute(self, requests):
        for request in requests:
            self.threads.submit(repeat, request)
        return None

    def finalize(self):
        self.threads.shutdown()
`

const ONE = 'instance_group [ { count: 1 kind: KIND_CPU } ]\n'
const both = (type, dims) => [[['INPUT0', type, dims]], [['OUTPUT0', type, dims]]]
/** Inputs and outputs of `simple`. */
export const PAIR = ['INPUT', 'OUTPUT'].map((way) => [0, 1].map((n) => [`${way}${n}`, 'TYPE_INT32', [16]]))

const IO = {
  python_identity: [0, ...both('TYPE_FP32', [-1])],
  python_strings: [0, ...both('TYPE_STRING', [-1])],
  python_simple: [8, ...PAIR],
  python_caller: [8, ...PAIR],
  python_repeat: [0, ...REPEAT],
}
const CODE = {
  python_identity: IDENTITY,
  python_strings: IDENTITY,
  python_simple: ADD_SUB,
  python_caller: CALLER,
  python_repeat: REPEATER,
}
export const PYTHON_MODELS = Object.keys(CODE)

/** Writes a Python model, one instance of it; `more` is added to its configuration. */
function writePython(directory, name, io, code, more = '') {
  writeModel(directory, name, { config: config('python', ...io, ONE + more), files: { '1/model.py': code } })
}

/** The identity of the suite `python` in TypeScript. */
export const TYPESCRIPT_MODEL = 'typescript_identity'
const TYPESCRIPT_CODE = `import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'

export default defineModel({
  inputs: { INPUT0: { datatype: 'FP32', dims: [-1] } },
  outputs: { OUTPUT0: { datatype: 'FP32', dims: [-1] } },
  execute(requests) {
    return requests.map((request) => {
      const { data, shape } = request.input('INPUT0')
      return new InferenceResponse([Tensor.from('OUTPUT0', data, shape)])
    })
  },
})
`

/** The same sum and difference as behind Fastify (bench/peers/node_simple.mjs). */
export const TYPESCRIPT_SIMPLE = 'typescript_simple'
const TYPESCRIPT_SIMPLE_CODE = `import { InferenceResponse, Tensor, defineModel } from 'nereid/backend'

export default defineModel({
  execute(requests) {
    return requests.map((request) => {
      const [a, b] = [request.input('INPUT0'), request.input('INPUT1')]
      return new InferenceResponse([
        Tensor.from('OUTPUT0', a.data.map((value, i) => value + b.data[i]), a.shape),
        Tensor.from('OUTPUT1', a.data.map((value, i) => value - b.data[i]), a.shape),
      ])
    })
  },
})
`

/** The models of the suite `python` that no Triton has a backend for. */
export function writeTypeScriptModels(directory) {
  writeModel(directory, TYPESCRIPT_SIMPLE, {
    config: config('javascript', ...IO.python_simple, ONE),
    files: { '1/model.ts': TYPESCRIPT_SIMPLE_CODE },
  })
  writeModel(directory, TYPESCRIPT_MODEL, {
    config: config('javascript', ...IO.python_identity, ONE),
    files: { '1/model.ts': TYPESCRIPT_CODE },
  })
}

/** The models of the suite `python`. `python_caller` calls `simple`, which is another's to write. */
export function writePythonModels(directory) {
  for (const name of PYTHON_MODELS)
    writePython(directory, name, IO[name], CODE[name], name === 'python_repeat' ? DECOUPLED : '')
}

/** Writes Python models in place of those that use other backends here, for Triton's Python backend. */
export function writeStandIns(directory, { sequenced, rows }) {
  const cached = 'response_cache { enable: true }\n'
  writePython(directory, 'simple', IO.python_simple, ADD_SUB)
  writePython(directory, 'simple_cached', IO.python_simple, ADD_SUB, cached)
  writePython(directory, 'identity', IO.python_identity, IDENTITY)
  for (const [name, more] of Object.entries(sequenced)) writePython(directory, name, [rows, ...PAIR], ADD_SUB, more)
  writePython(directory, 'repeat', IO.python_repeat, REPEATER, DECOUPLED)
}

"""Calls of preprocessing, engine and postprocessing in the shape of TensorRT-LLM's tensorrt_llm_bls: one response of
this model for each response of the engine."""
import json
import uuid

import triton_python_backend_utils as pb_utils

from lib.calls import call, stream

PREPROCESSED = {
    "INPUT_ID": "input_ids", "REQUEST_INPUT_LEN": "input_lengths", "OUT_END_ID": "end_id",
    "STOP_WORDS_IDS": "stop_words_list", "BAD_WORDS_IDS": "bad_words_list",
}  # fmt: skip
NAMES = {
    "text_input": "QUERY", "max_tokens": "REQUEST_OUTPUT_LEN", "bad_words": "BAD_WORDS_DICT",
    "stop_words": "STOP_WORDS_DICT",
}  # fmt: skip


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.engine = parameters["tensorrt_llm_model_name"]["string_value"]

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                for texts in self._texts(request):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", texts)]))
            except Exception as error:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def _texts(self, request):
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        call_id = str(uuid.uuid4())
        asked = {NAMES[name]: array for name, array in inputs.items() if name in NAMES}
        found = call("preprocessing", asked, list(PREPROCESSED), call_id)
        arrays = {PREPROCESSED[name]: array for name, array in found.items()}
        arrays["request_output_len"] = inputs["max_tokens"]
        for name, target in (("stream", "streaming"), ("exclude_input_in_output", "exclude_input_in_output")):
            if name in inputs:
                arrays[target] = inputs[name]
        for step in stream(self.engine, arrays, ["output_ids", "sequence_length"], call_id):
            tokens = {"TOKENS_BATCH": step["output_ids"], "SEQUENCE_LENGTH": step["sequence_length"]}
            yield call("postprocessing", tokens, ["OUTPUT"], call_id)["OUTPUT"]

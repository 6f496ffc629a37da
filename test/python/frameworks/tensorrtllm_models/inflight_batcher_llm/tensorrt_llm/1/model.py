"""Stand-in for the engine between preprocessing and postprocessing: the ids of ` t0 t1 t2 …` follow the ids of the
prompt, up to the requested number or a stop word. With `streaming`, each response has the id of one step.

It takes the inputs of TensorRT-LLM's all_models/inflight_batcher_llm/tensorrt_llm that concern a text; the others and
their outputs are absent. FIRST is the id of ` t0` in the tests' vocabulary.
"""
import json

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
FIRST = 3


def value(request, name, default):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy().reshape(-1)


class TritonPythonModel:
    def initialize(self, args):
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        if not self.decoupled:
            return [self._whole(request) for request in requests]
        for request in requests:
            sender = request.get_response_sender()
            is_streaming = value(request, "streaming", [False])[0]
            responses = self._steps(request) if is_streaming else [self._whole(request)]
            # The last response is the final one, as of the engine, and no empty one follows.
            for one in responses[:-1]:
                sender.send(one)
            sender.send(responses[-1], flags=FINAL)
        return None

    def _rows(self, request):
        """The new ids of each row."""
        stops = pb_utils.get_input_tensor_by_name(request, "stop_words_list")
        rows = []
        for row, length in enumerate(value(request, "request_output_len", [0])):
            ids = list(range(FIRST, FIRST + length))
            ends = [] if stops is None else [one for one in ids if one in stops.as_numpy()[row][0]]
            rows.append(ids[: ids.index(ends[0]) + 1] if ends else ids)
        return rows

    def _steps(self, request):
        return [self._response([[one]]) for ids in self._rows(request) for one in ids]

    def _whole(self, request):
        lengths = value(request, "input_lengths", [])
        prompts = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy().reshape(len(lengths), -1)
        excludes = value(request, "exclude_input_in_output", [False] * len(lengths))
        rows = [
            ids if is_excluded else [*prompt[:length], *ids]
            for prompt, length, ids, is_excluded in zip(prompts, lengths, self._rows(request), excludes)
        ]
        return self._response(rows)

    def _response(self, rows):
        width = max(len(ids) for ids in rows)
        padded = np.array([[[*ids, *[0] * (width - len(ids))]] for ids in rows], dtype=np.int32)
        lengths = np.array([[len(ids)] for ids in rows], dtype=np.int32)
        tensors = [pb_utils.Tensor("output_ids", padded), pb_utils.Tensor("sequence_length", lengths)]
        return pb_utils.InferenceResponse(output_tensors=tensors)

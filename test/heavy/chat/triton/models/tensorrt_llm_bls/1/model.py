"""A model with the tensors of tensorrtllm_backend's tensorrt_llm_bls, over words.py in the place of an engine."""
import os

import numpy as np
import triton_python_backend_utils as pb_utils
from words import pieces


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            answer(request)


def answer(request):
    def given(name):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        return None if tensor is None else tensor.as_numpy().reshape(-1).tolist()

    def first(name, default=None):
        value = given(name)
        return default if value is None else value[0]

    prompt = first("text_input").decode()
    tokens = pieces(
        prompt,
        max_tokens=first("max_tokens"),
        temperature=first("temperature", 1.0),
        seed=first("seed"),
        stop=[word.decode() for word in given("stop_words") or []],
        schema=(first("guided_decoding_guide") or b"").decode() or None,
        form=os.environ.get("TOOL_FORM", "llama3"),
    )
    if not first("exclude_input_in_output", True):
        tokens = [prompt, *tokens]
    sent = [[token] for token in tokens] if first("stream", False) else [tokens]
    sender = request.get_response_sender()
    for group in sent:
        outputs = [
            pb_utils.Tensor("text_output", np.array([["".join(group)]], object)),
            pb_utils.Tensor("num_input_tokens", np.array([[len(prompt.split())]], np.int32)),
            pb_utils.Tensor("num_output_tokens", np.array([[len(group)]], np.int32)),
        ]
        sender.send(pb_utils.InferenceResponse(outputs))
    # The end has no outputs, as that of the C++ backend of decoupled models.
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

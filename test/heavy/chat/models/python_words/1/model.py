"""A model that streams words. A prompt with `slowly` has 20 ms between them; if its client leaves, the journal beside this file says so."""
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from words import pieces

JOURNAL = Path(__file__).with_name("journal")


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            answer(request)


def answer(request):
    def given(name, default):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        return default if tensor is None else tensor.as_numpy().reshape(-1).tolist()

    (prompt,) = given("text_input", None)
    prompt = prompt.decode()
    (most,) = given("max_tokens", [16])
    tokens = pieces(
        prompt,
        max_tokens=most,
        temperature=given("temperature", [1.0])[0],
        seed=given("seed", [None])[0],
        stop=[word.decode() for word in given("stop", [])],
    )
    sender = request.get_response_sender()
    for index, token in enumerate(tokens):
        if "slowly" in prompt:
            time.sleep(0.02)
        if request.is_cancelled():
            with JOURNAL.open("a") as file:
                print(f"cancelled after {index}", file=file)
            break
        last = index == len(tokens) - 1
        outputs = {
            "text_output": np.array([token], object),
            "finish_reason": np.array([("length" if len(tokens) == most else "stop") if last else ""], object),
            "num_input_tokens": np.array([len(prompt.split())], np.uint32),
            "num_output_tokens": np.array([1], np.uint32),
        }
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor(*output) for output in outputs.items()]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

"""A backend `vllm` with the tensors of the public vllm_backend, over words.py in the place of an engine."""
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils
from words import logprobs, pieces

INPUTS = {
    "text_input": "STRING", "stream": "BOOL", "sampling_parameters": "STRING", "exclude_input_in_output": "BOOL",
    "return_finish_reason": "BOOL", "return_logprobs": "BOOL", "return_num_input_tokens": "BOOL", "return_num_output_tokens": "BOOL",
}  # fmt: skip
OUTPUTS = {"text_output": "STRING", "finish_reason": "STRING", "logprobs": "STRING", "num_input_tokens": "UINT32", "num_output_tokens": "UINT32"}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for name, kind in INPUTS.items():
            config.add_input({"name": name, "data_type": f"TYPE_{kind}", "dims": [1], **({} if name == "text_input" else {"optional": True})})
        for name, kind in OUTPUTS.items():
            config.add_output({"name": name, "data_type": f"TYPE_{kind}", "dims": [-1]})
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def execute(self, requests):
        for request in requests:
            answer(request)


def answer(request):
    def given(name, default=None):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        return default if tensor is None else tensor.as_numpy().reshape(-1)[0]

    prompt = given("text_input").decode()
    sampling = json.loads(given("sampling_parameters", b"{}"))
    known = {"max_tokens", "temperature", "seed", "stop", "top_p", "frequency_penalty", "presence_penalty", "ignore_eos", "min_tokens", "n", "logprobs", "lora_name", "structured_outputs"}
    if sampling.keys() - known:
        request.get_response_sender().send(
            pb_utils.InferenceResponse([], pb_utils.TritonError(f"Unexpected keyword argument '{min(sampling.keys() - known)}'")),
            flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
        )
        return
    structured = sampling.get("structured_outputs")
    structured = None if structured is None else json.loads(structured)
    stop = sampling.get("stop") or []
    tokens = pieces(
        prompt,
        max_tokens=sampling.get("max_tokens", 16),
        temperature=sampling.get("temperature", 1.0),
        seed=sampling.get("seed"),
        stop=[stop] if isinstance(stop, str) else stop,
        schema=None if structured is None else structured["json"],
        form=os.environ.get("TOOL_FORM", "llama3"),
    )
    if not given("exclude_input_in_output", False):
        tokens = [prompt, *tokens]
    sent = [[token] for token in tokens] if given("stream", False) else [tokens]
    sender = request.get_response_sender()
    for index, group in enumerate(sent):
        last = index == len(sent) - 1
        outputs = {
            "text_output": np.array(["".join(group)], object),
            "finish_reason": np.array(["stop" if last else "None"], object),
            "num_input_tokens": np.array([len(prompt.split())], np.uint32),
            "num_output_tokens": np.array([len(group)], np.uint32),
        }
        if given("return_logprobs", False):
            outputs["logprobs"] = np.array([json.dumps([logprobs(token, sampling["logprobs"]) for token in group])], object)
        sender.send(
            pb_utils.InferenceResponse([pb_utils.Tensor(*output) for output in outputs.items()]),
            flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0,
        )

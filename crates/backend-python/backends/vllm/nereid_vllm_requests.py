"""Converts requests for the engine, and its outputs to responses (docs/spec/backends-native.md, 9)."""
import base64
import importlib
import io
import json
import sys
import typing

import numpy as np

import triton_python_backend_utils as pb_utils
from nereid_shared import RequestError, text_of


def _tensor(name, data_type, dims, optional=None):
    return {
        "name": name,
        "data_type": data_type,
        "dims": [dims],
        **({} if optional is None else {"optional": optional}),
    }


EXTRAS = (
    "return_finish_reason",
    "return_cumulative_logprob",
    "return_logprobs",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
INPUTS = [
    _tensor("text_input", "TYPE_STRING", 1),
    _tensor("image", "TYPE_STRING", -1, True),
    _tensor("stream", "TYPE_BOOL", 1, True),
    _tensor("sampling_parameters", "TYPE_STRING", 1, True),
    _tensor("exclude_input_in_output", "TYPE_BOOL", 1, True),
    *(_tensor(name, "TYPE_BOOL", 1, True) for name in EXTRAS),
    _tensor("embedding_request", "TYPE_STRING", 1, True),
]
OUTPUTS = [
    _tensor("text_output", "TYPE_STRING", -1),
    _tensor("finish_reason", "TYPE_STRING", -1),
    _tensor("cumulative_logprob", "TYPE_FP32", -1),
    _tensor("logprobs", "TYPE_STRING", -1),
    _tensor("num_input_tokens", "TYPE_UINT32", 1),
    _tensor("num_output_tokens", "TYPE_UINT32", -1),
]
#: Settings that are objects of vLLM, with their classes: JSON objects, or JSON as a text.
STRUCTURED = {"structured_outputs": "StructuredOutputsParams", "guided_decoding": "GuidedDecodingParams"}
#: Prefix of parameters for the server, not for the engine.
PREFIX_OF_THE_SERVER = "triton_"
#: Largest bias of a token, and its negative the smallest, as in vLLM's own server.
BIAS_MAX = 100.0
#: Logarithm that stands for that of 0, as in vLLM's own server: JSON has no infinity.
LOGPROB_MIN = -9999.0


class UnknownLora(RequestError):
    """An error without the prefix of other errors, as in Triton."""


class Generation:
    """Text for a prompt. A streaming request gets the text of each step; others get one response, with the prompt in
    front unless it is excluded."""

    def __init__(self, request, loras):
        self._prompt = _text(request, "text_input")
        self._images = _images(request)
        self.streams = _flag(request, "stream")
        excludes = _flag(request, "exclude_input_in_output", None)
        if self.streams and excludes is False:
            raise RequestError("When streaming, `exclude_input_in_output` = False is not allowed.", "INVALID_ARG")
        self._front = self._prompt if not self.streams and not excludes else ""
        self._extras = {name for name in EXTRAS if _flag(request, name)}
        settings = _settings(request)
        self._lora = _lora(settings.pop("lora_name", None), loras)
        self._sampling = _sampling(settings, self.streams)

    def start(self, engine, number, first_token):
        prompt = {"prompt": self._prompt, "multi_modal_data": {"image": self._images}} if self._images else self._prompt
        more = {}
        if first_token and self._prompt.startswith(first_token):
            # A chat template wrote it. The tokenizer would put a second one before it.
            more["tokenization_kwargs"] = {"add_special_tokens": False}
        return engine.generate(prompt, self._sampling, number, lora_request=self._lora, **more)

    def response(self, output):
        """Converts one output of the engine: texts and tokens of one step, or all of them in the only output."""
        completions = output.outputs
        made = [_texts("text_output", [self._front + one.text for one in completions])]
        if "return_finish_reason" in self._extras:
            made.append(_texts("finish_reason", [str(one.finish_reason) for one in completions]))
        if "return_cumulative_logprob" in self._extras:
            made.append(
                pb_utils.Tensor(
                    "cumulative_logprob", np.array([one.cumulative_logprob for one in completions], np.float32)
                )
            )
        if "return_logprobs" in self._extras:
            made.append(_texts("logprobs", [_logprobs(one.logprobs) for one in completions]))
        if "return_num_input_tokens" in self._extras:
            made.append(_count("num_input_tokens", [len(output.prompt_token_ids)]))
        if "return_num_output_tokens" in self._extras:
            made.append(_count("num_output_tokens", [len(one.token_ids) for one in completions]))
        return pb_utils.InferenceResponse(made)


class Embedding:
    """A vector for a text, or for a list of tokens."""

    streams = False

    def __init__(self, request, loras):
        asked = _object(_text(request, "embedding_request"), "embedding_request")
        prompt = asked.get("input")
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
            prompt = {"prompt_token_ids": prompt}
        elif not isinstance(prompt, str):
            raise RequestError("'input' of embedding_request must be a text or a list of tokens", "INVALID_ARG")
        self._prompt = prompt
        self._dimensions = asked.get("pooling_params", {}).get("dimensions")
        self._extras = {name for name in EXTRAS if _flag(request, name)}

    def start(self, engine, number, first_token):
        settings = {} if not self._dimensions else {"dimensions": self._dimensions[0]}
        return engine.encode(
            self._prompt, importlib.import_module("vllm").PoolingParams(task="embed", **settings), number
        )

    def response(self, output):
        vector = importlib.import_module("vllm.outputs").EmbeddingRequestOutput.from_base(output).outputs.embedding
        made = [_texts("text_output", [json.dumps(vector)])]
        if "return_num_input_tokens" in self._extras:
            made.append(_count("num_input_tokens", [len(output.prompt_token_ids)]))
        if "return_num_output_tokens" in self._extras:
            made.append(_count("num_output_tokens", [0]))
        return pb_utils.InferenceResponse(made)


def _value(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    values = tensor.as_numpy().reshape(-1)
    if len(values) == 0:
        raise RequestError(f"input '{name}' has no element", "INVALID_ARG")
    return values[0]


def _text(request, name):
    value = _value(request, name)
    if value is None:
        raise RequestError(f"input '{name}' is missing", "INVALID_ARG")
    return value.decode("utf-8", "replace")


def _flag(request, name, default=False):
    value = _value(request, name)
    return default if value is None else bool(value)


def _object(text, name):
    try:
        found = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{name} is no JSON: {error}", "INVALID_ARG") from None
    if not isinstance(found, dict):
        raise RequestError(f"{name} must be a JSON object", "INVALID_ARG")
    return found


def _settings(request):
    """Sampling settings from the input `sampling_parameters`, else from the parameters of the request."""
    if pb_utils.get_input_tensor_by_name(request, "sampling_parameters") is not None:
        return _object(_text(request, "sampling_parameters"), "sampling_parameters")
    return {
        name: value
        for name, value in json.loads(request.parameters()).items()
        if not name.startswith(PREFIX_OF_THE_SERVER)
    }


def _sampling(settings, streams):
    of_vllm = importlib.import_module("vllm.sampling_params")
    kinds = of_vllm.SamplingParams.__annotations__
    try:
        for name, value in settings.items():
            if name in STRUCTURED and value is not None:
                value = _object(value if isinstance(value, str) else json.dumps(value), name)
                settings[name] = getattr(of_vllm, STRUCTURED[name])(**value)
            elif name == "logit_bias" and value is not None:
                settings[name] = _biases(value)
            elif isinstance(value, str) and name in kinds:
                settings[name] = _typed(value, kinds[name])
        settings["output_kind"] = of_vllm.RequestOutputKind.DELTA if streams else of_vllm.RequestOutputKind.FINAL_ONLY
        return of_vllm.SamplingParams(**settings)
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"sampling parameters: {text_of(error)}", "INVALID_ARG") from None


def _biases(value):
    """Biases by token id. The ids are texts, because they are names of a JSON object."""
    given = _object(value if isinstance(value, str) else json.dumps(value), "logit_bias")
    try:
        return {int(token): min(BIAS_MAX, max(-BIAS_MAX, float(bias))) for token, bias in given.items()}
    except (TypeError, ValueError) as error:
        raise RequestError(f"logit_bias must have a number for each token id: {error}", "INVALID_ARG") from None


def _typed(text, kind):
    """Converts a text to the type of a setting: clients send numbers and booleans as texts."""
    kinds = typing.get_args(kind) or (kind,)
    for number in (int, float):
        if number in kinds:
            return number(text)
    return text.lower() == "true" if bool in kinds else text


def _lora(name, loras):
    if name is None:
        return None
    if loras is None:
        raise UnknownLora("LoRA feature is not enabled.", "INVALID_ARG")
    names = list(loras)
    if name not in names:
        raise UnknownLora(f"LoRA {name} is not supported, we currently support {names}", "INVALID_ARG")
    number = names.index(name) + 1
    return importlib.import_module("vllm.lora.request").LoRARequest(str(number), number, loras[name])


def _images(request):
    tensor = pb_utils.get_input_tensor_by_name(request, "image")
    if tensor is None:
        return []
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise RequestError("images need the package Pillow in the interpreter of the model", "UNAVAILABLE") from None
    try:
        return [
            Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB") for image in tensor.as_numpy().reshape(-1)
        ]
    except Exception as error:
        raise RequestError(f"input 'image' must have images in base64: {error}", "INVALID_ARG") from None


def _texts(name, texts):
    return pb_utils.Tensor(name, np.array([text.encode() for text in texts], np.object_))


def _count(name, numbers):
    return pb_utils.Tensor(name, np.array(numbers, np.uint32))


def _logprobs(steps):
    if steps is None:
        return "null"
    return json.dumps(
        [
            {
                token: {"logprob": max(one.logprob, LOGPROB_MIN), "rank": one.rank, "decoded_token": one.decoded_token}
                for token, one in step.items()
            }
            for step in steps
        ]
    )


def failure_of(error):
    """Text and code of an error of the engine."""
    if not str(error) and error.__cause__ is not None:
        # EngineGenerateError has no text of its own.
        error = error.__cause__
    exceptions = sys.modules.get("vllm.exceptions")
    if isinstance(error, (ValueError, getattr(exceptions, "VLLMClientError", ValueError))):
        return text_of(error), "INVALID_ARG"
    # The engine rejects requests beyond the limits of its queue.
    is_full = isinstance(error, getattr(exceptions, "GracefulHTTPError", ())) and error.http_status == 503
    return text_of(error), "UNAVAILABLE" if is_full else "INTERNAL"

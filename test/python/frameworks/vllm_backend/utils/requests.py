"""What a request asks, and its responses; the engine for as long as it runs."""
import json
from contextlib import asynccontextmanager

import numpy as np
import triton_python_backend_utils as pb_utils
from vllm.sampling_params import SamplingParams
from vllm.usage.usage_lib import UsageContext
from vllm.utils import random_uuid


@asynccontextmanager
async def running_engine(arguments, loggers):
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_vllm_config(vllm_config=arguments.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER), stat_loggers=loggers)
    try:
        await engine.reset_mm_cache()
        yield engine
    finally:
        engine.shutdown()


class Request:
    def __init__(self, request, dtype):
        self.id = random_uuid()
        self.dtype = dtype
        self.prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode("utf-8")
        stream = pb_utils.get_input_tensor_by_name(request, "stream")
        self.stream = stream.as_numpy()[0] if stream else False
        excludes = pb_utils.get_input_tensor_by_name(request, "exclude_input_in_output")
        if excludes:
            self.in_front = not excludes.as_numpy()[0]
        else:
            self.in_front = not self.stream
        if self.in_front and self.stream:
            raise ValueError("When streaming, `exclude_input_in_output` = False is not allowed.")
        sampling = pb_utils.get_input_tensor_by_name(request, "sampling_parameters")
        settings = json.loads(sampling.as_numpy()[0].decode("utf-8") if sampling else request.parameters())
        kinds = SamplingParams.__annotations__
        for name, value in settings.items():
            if isinstance(value, str) and kinds.get(name) in (int, float):
                settings[name] = kinds[name](value)
        settings["max_tokens"] = int(settings.get("max_tokens", 16))
        self.sampling = SamplingParams(**settings)
        self.sent = {}

    def response(self, output):
        texts = []
        for one in output.outputs:
            texts.append(((self.prompt if self.in_front else "") + one.text[self.sent.get(one.index, 0) :]).encode("utf-8"))
            self.sent[one.index] = len(one.text)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("text_output", np.asarray(texts, dtype=self.dtype))])

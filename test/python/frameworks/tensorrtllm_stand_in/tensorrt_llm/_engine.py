"""The engine: one word per step, up to `max_tokens`, or up to a word of `stop`."""
import asyncio
import itertools
import os
import threading
from dataclasses import dataclass, field
from typing import Any, Optional

STEP_SECONDS = 0.002


class SamplingParams:
    """Rejects fields that it does not know, as the real class does."""

    KNOWN = {
        "n": 1, "best_of": None, "beam_width": 1, "max_tokens": 32, "temperature": None, "top_k": None, "top_p": None,
        "frequency_penalty": None, "presence_penalty": None, "seed": None, "stop": None,
        "exclude_input_from_output": True, "return_perf_metrics": False,
    }  # fmt: skip

    def __init__(self, **values):
        unknown = sorted(values.keys() - self.KNOWN.keys())
        if unknown:
            raise TypeError(f"SamplingParams.__init__() got an unexpected keyword argument '{unknown[0]}'")
        for name, value in {**self.KNOWN, **values}.items():
            setattr(self, name, value)
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")


@dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list = field(default_factory=list)
    cumulative_logprob: Optional[float] = None
    logprobs: list = field(default_factory=list)
    finish_reason: Optional[str] = None
    stop_reason: Optional[Any] = None


class RequestOutput:
    """A request and its result. Iterating yields the same object after each step, or once without `streaming`."""

    def __init__(self, engine, request_id, prompt, sampling_params, streaming):
        self.request_id, self.prompt = request_id, prompt
        self.prompt_token_ids = list(range(len(prompt.split())))
        self.finished = False
        self._engine, self._params, self._streaming = engine, sampling_params, streaming
        self._is_aborted = threading.Event()
        self._stops = [stop.decode() if isinstance(stop, bytes) else stop for stop in self._list(sampling_params.stop)]
        self._words = []
        self.outputs = [CompletionOutput(index) for index in range(max(sampling_params.n, sampling_params.beam_width))]

    @staticmethod
    def _list(stop):
        return [] if stop is None else [stop] if isinstance(stop, str) else list(stop)

    def abort(self):
        """May be called in any thread. The next step is the last one, with the reason `cancelled`."""
        self._is_aborted.set()

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.finished:
            raise StopAsyncIteration
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self._step()
            if self.finished or self._streaming:
                return self

    def _step(self):
        reason = stop = None
        if self._is_aborted.is_set():
            reason = "cancelled"
        elif f"t{len(self._words)}" in self._stops:
            reason, stop = "stop", f"t{len(self._words)}"
        else:
            self._words.append(f" t{len(self._words)}")
            if len(self._words) == self._params.max_tokens:
                reason = "length"
        prompt = "" if self._params.exclude_input_from_output else self.prompt
        for output in self.outputs:
            output.text = prompt + "".join(self._words)
            output.token_ids = list(range(len(self._words)))
            output.cumulative_logprob = -0.5 * len(self._words)
            output.finish_reason, output.stop_reason = reason, stop
        self.finished = reason is not None
        if self.finished:
            self._engine.note("aborted" if reason == "cancelled" else "finished", self.request_id)


class LLM:
    """The engine. May be constructed in any thread; `generate_async` is called in the thread of the event loop."""

    KNOWN = {
        "model", "tokenizer", "backend", "dtype", "tensor_parallel_size", "pipeline_parallel_size", "gpus_per_node",
        "max_batch_size", "max_num_tokens", "max_seq_len", "kv_cache_config", "pytorch_backend_config",
    }  # fmt: skip

    def __init__(self, model, **arguments):
        unknown = sorted(arguments.keys() - self.KNOWN)
        if unknown:
            raise ValueError(f"LLM.__init__() got an unexpected argument '{unknown[0]}'")
        self._directory = model
        self._ids = itertools.count(1)
        broken = os.path.join(model, "broken")
        if os.path.exists(broken):
            with open(broken) as file:
                raise RuntimeError(file.read())
        self.note("started", *(f"{name}={value}" for name, value in sorted(arguments.items())))

    def note(self, *words):
        with open(os.path.join(self._directory, "journal"), "a") as file:
            print(*words, file=file)

    def generate_async(self, inputs, sampling_params=None, streaming=False):
        asyncio.get_running_loop()
        params = sampling_params or SamplingParams()
        request = RequestOutput(self, next(self._ids), inputs, params, streaming)
        self.note("generate", request.request_id, repr(inputs), f"temperature={params.temperature}")
        return request

    def shutdown(self):
        self.note("shutdown")

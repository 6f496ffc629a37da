"""A stand-in for the package vllm, for tests of what serves it: the names that model.py files of vLLM backends import, over an engine that writes words.

It is not vLLM and computes nothing: a prompt is answered with ` t0 t1 t2 …`, a word per step, up to `max_tokens`. Arguments and signatures are there as far
as those files use them. `model` in the engine's arguments is a directory: the engine appends what happens to its file `journal`, fails to start with the
text of its file `broken`, and fails its health check while there is a file `sick`.
"""
import asyncio
import enum
import os
import sys
import types
import uuid
from dataclasses import dataclass, field
from typing import Any, Optional

__version__ = "0.0.0+stand.in"

STEP_SECONDS = 0.002


class AsyncEngineArgs:
    """Refuses arguments that it does not know, as the real one does."""

    KNOWN = {
        "model": "", "gpu_memory_utilization": 0.9, "enforce_eager": False, "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "max_model_len": 2048,
        "enable_lora": False, "max_loras": 1, "max_lora_rank": 16, "disable_log_stats": False, "enable_log_requests": False,
        "disable_log_requests": True, "aggregate_engine_logging": False, "dtype": "auto", "task": "generate",
    }  # fmt: skip

    def __init__(self, **arguments):
        unknown = sorted(arguments.keys() - self.KNOWN.keys())
        if unknown:
            raise TypeError(f"AsyncEngineArgs.__init__() got an unexpected keyword argument '{unknown[0]}'")
        for name, value in {**self.KNOWN, **arguments}.items():
            setattr(self, name, value)

    def create_engine_config(self, usage_context=None):
        return VllmConfig(self)


class ModelConfig:
    def __init__(self, arguments):
        self.max_model_len = arguments.max_model_len


class VllmConfig:
    def __init__(self, arguments):
        self.arguments = arguments
        self.model_config = ModelConfig(arguments)


class _Fields:
    """Takes the names that its classes annotate, as keywords; with the defaults that they give."""

    def __init__(self, **values):
        known = {name for one in type(self).__mro__ for name in getattr(one, "__annotations__", {})}
        for name, value in values.items():
            if name not in known:
                raise TypeError(f"Unexpected keyword argument '{name}'")
            setattr(self, name, value)

    def __repr__(self):
        return f"{type(self).__name__}({vars(self)})"


class StructuredOutputsParams(_Fields):
    json: Optional[Any] = None
    regex: Optional[str] = None
    choice: Optional[list] = None


class RequestOutputKind(enum.Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class SamplingParams(_Fields):
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: Optional[int] = None
    stop: Optional[Any] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    logprobs: Optional[int] = None
    logit_bias: Optional[dict] = None
    structured_outputs: Optional[StructuredOutputsParams] = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE

    def __init__(self, **values):
        super().__init__(**values)
        if not isinstance(self.temperature, (int, float)) or self.temperature < 0:
            raise ValueError(f"temperature must be non-negative, got {self.temperature}.")
        if not isinstance(self.max_tokens, int) or self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}.")


class PoolingParams(_Fields):
    dimensions: Optional[int] = None
    task: Optional[str] = None


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""


@dataclass
class Logprob:
    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: list
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[list] = None
    finish_reason: Optional[str] = None


@dataclass
class RequestOutput:
    request_id: str
    prompt: Optional[str]
    prompt_token_ids: list
    outputs: list
    finished: bool


@dataclass
class EmbeddingOutput:
    embedding: list


@dataclass
class PoolingOutput:
    data: list


@dataclass
class PoolingRequestOutput:
    request_id: str
    outputs: Any
    prompt_token_ids: list
    finished: bool = True

    def __class_getitem__(cls, _):
        return cls


class EmbeddingRequestOutput(PoolingRequestOutput):
    @staticmethod
    def from_base(base):
        return EmbeddingRequestOutput(base.request_id, EmbeddingOutput(list(base.outputs.data)), base.prompt_token_ids)


class TokensPrompt(dict):
    pass


class EngineClient:
    pass


class UsageContext(enum.Enum):
    OPENAI_API_SERVER = 1
    ENGINE_CONTEXT = 2


class StatLoggerBase:
    def __init__(self, vllm_config, engine_index=0):
        self.vllm_config, self.engine_index = vllm_config, engine_index

    def record(self, scheduler_stats=None, iteration_stats=None, mm_cache_stats=None, engine_idx=0):
        raise NotImplementedError

    def log_engine_initialized(self):
        pass

    def log(self):
        pass


def build_1_2_5_buckets(largest):
    buckets = [mantissa * 10**exponent for exponent in range(7) for mantissa in (1, 2, 5)]
    return [bucket for bucket in buckets if bucket <= largest]


class SchedulerStats:
    pass


class MultiModalCacheStats:
    pass


@dataclass
class FinishedRequestStats:
    e2e_latency: float
    num_prompt_tokens: int
    num_generation_tokens: int


@dataclass
class IterationStats:
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    finished_requests: list = field(default_factory=list)
    time_to_first_tokens_iter: list = field(default_factory=list)
    inter_token_latencies_iter: list = field(default_factory=list)
    n_params_iter: list = field(default_factory=list)


class Tokenizer:
    bos_token = "<s>"


class EngineDeadError(Exception):
    """What each call raises once the engine's process has ended."""


class AsyncLLM(EngineClient):
    """The engine. Has to be made in the event loop that runs it."""

    def __init__(self, config, stat_loggers=None):
        arguments = config.arguments
        asyncio.get_running_loop()
        self._directory = arguments.model
        self._lora = arguments.enable_lora
        self._task = arguments.task
        self._running = {}
        self._loggers = []
        broken = os.path.join(self._directory, "broken")
        if os.path.exists(broken):
            with open(broken) as file:
                raise RuntimeError(file.read())
        if not arguments.disable_log_stats:
            self._loggers = [make(config, 0) for make in stat_loggers or []]
        self._note("started")

    @classmethod
    def from_vllm_config(cls, vllm_config, start_engine_loop=True, usage_context=None, stat_loggers=None, enable_log_requests=False, aggregate_engine_logging=False, disable_log_stats=False):
        return cls(vllm_config, stat_loggers)

    @classmethod
    def from_engine_args(cls, engine_args, start_engine_loop=True, usage_context=None, stat_loggers=None):
        return cls(engine_args.create_engine_config(usage_context), stat_loggers)

    def _note(self, *words):
        with open(os.path.join(self._directory, "journal"), "a") as file:
            print(*words, file=file)

    async def reset_mm_cache(self):
        pass

    async def get_supported_tasks(self):
        return (self._task,)

    def get_tokenizer(self):
        return Tokenizer()

    async def check_health(self):
        if os.path.exists(os.path.join(self._directory, "sick")):
            raise RuntimeError("EngineDeadError: the engine is sick")

    async def abort(self, request_id, internal=False):
        if self._running.get(request_id) is False:
            self._running[request_id] = True
            self._note("aborted", request_id)

    def shutdown(self):
        self._note("shutdown")

    def _tell(self, **stats):
        for logger in self._loggers:
            logger.record(SchedulerStats(), IterationStats(**stats))

    async def generate(self, prompt, sampling_params, request_id, lora_request=None, tokenization_kwargs=None, priority=0):
        if os.path.exists(os.path.join(self._directory, "dead")):
            raise EngineDeadError("EngineCore encountered an issue. See stack trace (above) for the root cause.")
        if prompt == "mute":
            raise RuntimeError
        if prompt == "too long":
            raise ValueError("The decoder prompt (length 9) is longer than the maximum model length of 8.")
        images = []
        if isinstance(prompt, dict):
            images = prompt.get("multi_modal_data", {}).get("image", [])
            prompt = prompt["prompt"]
        if lora_request is not None and not self._lora:
            raise ValueError(f"Got lora_request {lora_request} but LoRA is not enabled!")
        if sampling_params is None:
            raise TypeError("sampling_params is None")
        self._running[request_id] = False
        self._note("generate", request_id, repr(prompt), f"temperature={sampling_params.temperature}", f"images={len(images)}", f"lora={lora_request and lora_request.lora_path}", f"bias={sampling_params.logit_bias}", f"tokenization={tokenization_kwargs}")
        words = prompt.split()
        tokens = []
        self._tell(num_prompt_tokens=len(words), n_params_iter=[sampling_params.n])
        try:
            while not self._running[request_id]:
                await asyncio.sleep(STEP_SECONDS)
                tokens.append(f" t{len(tokens)}")
                finished = len(tokens) == sampling_params.max_tokens
                first = {"time_to_first_tokens_iter": [0.01]} if len(tokens) == 1 else {"inter_token_latencies_iter": [0.01]}
                ended = [FinishedRequestStats(0.5, len(words), len(tokens))] if finished else []
                self._tell(num_generation_tokens=1, finished_requests=ended, **first)
                if sampling_params.output_kind is RequestOutputKind.FINAL_ONLY and not finished:
                    continue
                yield RequestOutput(request_id, prompt, list(range(len(words))), [self._output(i, tokens, sampling_params, finished) for i in range(sampling_params.n)], finished)
                if finished:
                    self._note("finished", request_id)
                    return
            # As the engine does for one that is aborted from elsewhere: nothing more comes.
            await asyncio.Event().wait()
        except (asyncio.CancelledError, GeneratorExit):
            await self.abort(request_id, internal=True)
            raise
        finally:
            self._running.pop(request_id, None)

    def _output(self, index, tokens, sampling_params, finished):
        start = len(tokens) - 1 if sampling_params.output_kind is RequestOutputKind.DELTA else 0
        numbers = list(range(start, len(tokens)))
        logprobs = total = None
        if sampling_params.logprobs is not None:
            logprobs = [{i: Logprob(-0.5, 1, tokens[i])} for i in numbers]
            total = -0.5 * len(tokens)
        return CompletionOutput(index, "".join(tokens[start:]), numbers, total, logprobs, "length" if finished else None)

    async def encode(self, prompt, pooling_params, request_id):
        self._note("encode", request_id, repr(prompt))
        words = prompt["prompt_token_ids"] if isinstance(prompt, dict) else prompt.split()
        await asyncio.sleep(STEP_SECONDS)
        yield PoolingRequestOutput(request_id, PoolingOutput([0.5] * (pooling_params.dimensions or 4)), list(words))


AsyncLLMEngine = AsyncLLM
StatLoggerFactory = Any


def random_uuid():
    return uuid.uuid4().hex


def _modules():
    here = globals()
    names = {
        "config": ["VllmConfig"], "engine.arg_utils": ["AsyncEngineArgs"], "engine.async_llm_engine": ["AsyncLLMEngine"], "engine.protocol": ["EngineClient"],
        "inputs.data": ["TokensPrompt"], "lora.request": ["LoRARequest"],
        "outputs": ["CompletionOutput", "EmbeddingOutput", "EmbeddingRequestOutput", "PoolingRequestOutput", "RequestOutput"],
        "pooling_params": ["PoolingParams"], "sampling_params": ["RequestOutputKind", "SamplingParams", "StructuredOutputsParams"], "usage.usage_lib": ["UsageContext"],
        "utils": ["random_uuid"], "v1.engine.async_llm": ["AsyncLLM"], "v1.engine.exceptions": ["EngineDeadError"],
        "v1.metrics.loggers": ["StatLoggerBase", "StatLoggerFactory", "build_1_2_5_buckets"],
        "v1.metrics.stats": ["IterationStats", "MultiModalCacheStats", "SchedulerStats"],
    }  # fmt: skip
    for path, members in names.items():
        parent = sys.modules[__name__]
        for part in path.split("."):
            name = f"{parent.__name__}.{part}"
            module = sys.modules.setdefault(name, types.ModuleType(name))
            module.__path__ = []
            setattr(parent, part, module)
            parent = module
        for member in members:
            setattr(parent, member, here[member])


_modules()

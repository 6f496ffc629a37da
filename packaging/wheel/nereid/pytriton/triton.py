"""`Triton`: functions are bound, then served."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from nereid._command import command, environment
from nereid._inline import Inline
from nereid._repository import INLINE_CODE, config_text, write_model
from nereid._runner import _Base
from nereid._server import Server, _arguments
from nereid._signature import Tensor as Spec
from nereid.pytriton.model_config import ModelConfig, Tensor

_DEFAULTS = {"http_address": "0.0.0.0", "grpc_address": "0.0.0.0", "metrics_address": "0.0.0.0", "exit_timeout_secs": 30, "exit_grace_secs": 0}


class TritonConfig:
    """Flags of the server, with underscores: `TritonConfig(http_port=9000)`."""

    def __init__(self, **flags: Any) -> None:
        self.flags = flags


class Request(Dict[str, Any]):
    """The arrays of a request by name, and its `parameters`."""

    parameters: Dict[str, Any] = {}


class Triton:
    """Serves the bound functions from `run` to `stop`, or in `serve` until the program is interrupted."""

    def __init__(self, *, config: Optional[TritonConfig] = None) -> None:
        self._flags = {**_DEFAULTS, **(config.flags if config else {})}
        self._texts: Dict[str, str] = {}
        self._classes: Dict[str, type] = {}
        self.server: Optional[Server] = None

    def bind(
        self,
        model_name: str,
        infer_func: Union[Callable[..., Any], Sequence[Callable[..., Any]]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        config: Optional[ModelConfig] = None,
        strict: bool = False,
    ) -> None:
        """`infer_func`: of a list, each function is an instance. Names and types of results are always compared with `outputs`, shapes never, so `strict` changes nothing."""
        if self.server is not None:
            raise RuntimeError(f"'{model_name}' is bound after run(); bind it before")
        if model_name in self._texts:
            raise ValueError(f"two models are called '{model_name}'")
        functions = [infer_func] if callable(infer_func) else list(infer_func)
        config = config or ModelConfig()
        ins, outs = _specs(inputs, "INPUT"), _specs(outputs, "OUTPUT")
        self._texts[model_name] = _text(model_name, ins, outs, config, len(functions))
        self._classes[model_name] = _class(model_name, functions, outs)

    def run(self) -> None:
        if self.server is None:
            self.server = Server([*command(), *_arguments(self._flags)], environment(), self._flags, 300.0, self)

    def serve(self) -> None:
        self.run()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def __enter__(self) -> Triton:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def write(self, directory: str) -> Inline:
        """As `nereid._server.Models`."""
        for name, text in self._texts.items():
            write_model(directory, name, text, INLINE_CODE)
        return Inline(self._classes)


def _specs(tensors: Sequence[Tensor], prefix: str) -> List[Spec]:
    return [Spec(t.name or f"{prefix}_{i}", t.dtype, tuple(t.shape), "array", t.optional) for i, t in enumerate(tensors, 1)]


def _text(name: str, inputs: List[Spec], outputs: List[Spec], config: ModelConfig, count: int) -> str:
    more = [f"instance_group [{{ count: {count} kind: KIND_CPU }}]"]
    if config.batching:
        b = config.batcher
        more.append(
            f"dynamic_batching {{ max_queue_delay_microseconds: {b.max_queue_delay_microseconds} "
            f"preferred_batch_size: {list(b.preferred_batch_size or [])} preserve_ordering: {str(b.preserve_ordering).lower()} }}"
        )
    return config_text(name, config.max_batch_size if config.batching else 0, inputs, outputs, True, more)


def _class(name: str, functions: List[Callable[..., Any]], outputs: List[Spec]) -> type:
    numbers = itertools.count()

    class TritonPythonModel(_Base):
        def initialize(self, args: Any) -> None:
            self.call = functions[next(numbers) % len(functions)]

        def finalize(self) -> None:
            pass

        def execute(self, requests: Sequence[Any]) -> List[Any]:
            given = []
            for one in requests:
                request = Request({t.name(): t.as_numpy() for t in one.inputs()})
                request.parameters = json.loads(one.parameters() or "{}")
                given.append(request)
            results = list(self.call(given))
            if len(results) != len(given):
                raise ValueError(f"'{name}' returned {len(results)} results for {len(given)} requests")
            return [self.answer(result) for result in results]

        def answer(self, result: Any) -> Any:
            names = [s.name for s in outputs]
            arrays = result if isinstance(result, dict) else dict(zip(names, result))
            if set(arrays) != set(names) or len(result) != len(names):
                raise ValueError(f"'{name}' returned the outputs {list(arrays)}; it has {names}")
            for s in outputs:
                got = arrays[s.name].dtype
                if got != s.numpy and not (s.numpy == object and got.kind in "SU"):
                    raise TypeError(f"output '{s.name}' of '{name}' has the type {got}; expected {s.numpy}")
            return self.utils.InferenceResponse([self.utils.Tensor(s.name, arrays[s.name].astype(object) if s.numpy == object else arrays[s.name]) for s in outputs])

    return TritonPythonModel

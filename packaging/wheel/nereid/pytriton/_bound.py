"""A bound function as the `TritonPythonModel` that the server calls. The texts of wrong results are PyTriton's."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
import threading
from typing import Any, AsyncGenerator, Callable, Iterable, List, Mapping, Optional, Sequence

import numpy as np

from nereid._runner import CALLS_MAX, _Loop
from nereid.pytriton._warmup import warmup_requests
from nereid.pytriton.exceptions import PyTritonUnrecoverableError
from nereid.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from nereid.pytriton.proxy.types import Request

LOGGER = logging.getLogger("nereid.pytriton")
#: numpy types of texts, in declarations.
TEXTS = (bytes, object, np.bytes_, np.object_)
_KINDS = "biufOSU"


def bound_class(functions: Sequence[Callable[..., Any]], config: TritonModelConfig, is_strict: bool, on_unrecoverable: Callable[[BaseException], None]) -> type:
    """The class whose instances each have one of the functions, in turn. `on_unrecoverable` is called by the thread of an instance."""
    numbers = itertools.count()

    class TritonPythonModel(_Bound):
        def function(self) -> Callable[..., Any]:
            return functions[next(numbers) % len(functions)]

    TritonPythonModel.config = config
    TritonPythonModel.is_strict = is_strict
    TritonPythonModel.on_unrecoverable = staticmethod(on_unrecoverable)
    return TritonPythonModel


class _Bound(_Loop):
    config: TritonModelConfig
    is_strict: bool
    on_unrecoverable: Callable[[BaseException], None]

    def function(self) -> Callable[..., Any]:
        raise NotImplementedError

    def initialize(self, args: Mapping[str, str]) -> None:
        self.calls = threading.BoundedSemaphore(CALLS_MAX)
        self.start_loop()
        self.call = self.function()
        # As in PyTriton a model is served even if its warm-up fails.
        try:
            for request in warmup_requests(self.config.model_warmup or ()):
                self.warm_up(request)
        except Exception as error:
            LOGGER.warning("Warmup of model '%s' has no data: %s", self.config.model_name, error)

    def warm_up(self, request: Request) -> None:
        try:
            self.start(_consumed(self.call([request]))).result()
        except Exception as error:
            LOGGER.warning("Warmup request of model '%s' failed: %s", self.config.model_name, error)

    def finalize(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)

    def execute(self, requests: Sequence[Any]) -> Optional[List[Any]]:
        given = [self.request(one) for one in requests]
        if self.config.decoupled:
            senders = [one.get_response_sender() for one in requests]
            self.calls.acquire()
            self.start(self.stream(given, senders))
            return None
        try:
            results = self.call(given)
            if not isinstance(results, list):
                results = self.start(self.only(results)).result()
            return self.responses(results, len(given))
        except BaseException as error:
            self.look(error)
            raise

    def request(self, one: Any) -> Request:
        found = {tensor.name(): tensor for tensor in one.inputs()}
        arrays = {spec.name: found[spec.name].as_numpy() for spec in self.config.inputs if spec.name in found}
        return Request(arrays, json.loads(one.parameters() or "{}"), None, list(one.requested_output_names()))

    async def only(self, made: Any) -> Any:
        """The result of a coroutine, or the only one of a generator."""
        results = each(made)
        try:
            first = await results.__anext__()
            async for _ in results:
                raise ValueError(f"'{self.config.model_name}' yields more than one result for a call; that needs ModelConfig(decoupled=True)")
            return first
        except StopAsyncIteration:
            raise ValueError(f"'{self.config.model_name}' yields no result; that needs ModelConfig(decoupled=True)") from None
        finally:
            await results.aclose()

    async def stream(self, given: List[Request], senders: Sequence[Any]) -> None:
        """Sends what the function yields, each time a response for each request. The calls of an instance take turns on its loop."""
        final = self.utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        try:
            made = each(self.call(given))
            try:
                async for results in made:
                    responses = self.responses(results, len(given))
                    if all(sender.is_cancelled() for sender in senders):
                        break
                    for sender, response in zip(senders, responses):
                        sender.send(response)
            finally:
                await made.aclose()
            for sender in senders:
                sender.send(flags=final)
        except BaseException as error:  # noqa: B036  the loop and the other calls go on
            self.look(error)
            response = self.failed(error)
            for sender in senders:
                sender.send(response, final)
        finally:
            self.calls.release()

    def look(self, error: BaseException) -> None:
        if isinstance(error, PyTritonUnrecoverableError):
            LOGGER.error("Unrecoverable error in model '%s', the server is stopped: %s", self.config.model_name, error)
            self.on_unrecoverable(error)

    def responses(self, results: Any, count: int) -> List[Any]:
        check_results(self.config, results, count, self.is_strict)
        return [self.utils.InferenceResponse(list(self.tensors(result))) for result in results]

    def tensors(self, result: Mapping[str, Any]) -> Iterable[Any]:
        for spec in self.config.outputs:
            if spec.name in result:
                array = result[spec.name]
                if array.dtype.kind == "U":
                    array = np.char.encode(array, "utf-8")
                # As in PyTriton, without `strict` the declared type is what the client gets.
                yield self.utils.Tensor(spec.name, array.astype(object if spec.dtype in TEXTS else spec.dtype, copy=False))


async def each(made: Any) -> AsyncGenerator[Any, None]:
    """What a call gives, as it is made: of a generator, of an async one, of a coroutine, or the result."""
    if inspect.isasyncgen(made):
        try:
            async for one in made:
                yield one
        finally:
            await made.aclose()
    elif inspect.isgenerator(made):
        try:
            for one in made:
                yield one
                # The other calls have their turn.
                await asyncio.sleep(0)
        finally:
            made.close()
    else:
        yield await made if inspect.isawaitable(made) else made


async def _consumed(made: Any) -> None:
    async for _ in each(made):
        pass


def check_results(config: TritonModelConfig, results: Any, count: int, is_strict: bool) -> None:
    """Raises ValueError for results that cannot be sent; with `is_strict` also for those that are not as declared."""
    name = config.model_name
    must = f"Outputs returned by `{name}` model callable must be list of response dicts with numpy arrays."
    if not isinstance(results, list):
        raise ValueError(f"{must} Got outputs={results} instead.")
    if len(results) != count:
        raise ValueError(
            f"Number of outputs returned by `{name}` inference callable ({len(results)}) does not match number of requests ({count}) received from Triton."
        )
    declared = {spec.name: spec for spec in config.outputs}
    for result in results:
        if not isinstance(result, dict):
            raise ValueError(f"{must} Got response={result} instead.")
        for output, value in result.items():
            _check_data(name, output, value)
            if is_strict:
                _check_declared(config, declared.get(output), output, value)


def _check_data(model: str, output: Any, value: Any) -> None:
    if not isinstance(output, str):
        raise ValueError(f"Not all keys returned by `{model}` model callable are string")
    if not isinstance(value, np.ndarray):
        raise ValueError(f"Not all values returned by `{model}` model callable are numpy arrays")
    if value.dtype.kind not in _KINDS:
        raise ValueError(
            f"Only bool, numeric, string, unicode and object arrays are supported by Triton (dtype.kind: {_KINDS}). "
            f"Returned `{output}` for model `{model}` has `{value.dtype.kind}` dtype.kind."
        )
    if value.dtype.kind == "O" and value.size > 0:
        first = value.item(0)
        if isinstance(first, str):
            raise ValueError(f"Use string/byte-string instead of object for passing string in NumPy array from model `{model}`.")
        if not isinstance(first, bytes):
            raise ValueError(f"Only bytes as objects dtype are supported by PyTriton. Returned `{output}` from `{model}` has `{type(first)}` type.")


def _check_declared(config: TritonModelConfig, spec: Optional[TensorSpec], output: str, value: np.ndarray) -> None:
    model = config.model_name
    if spec is None:
        raise ValueError(f"Returned output `{output}` is not defined in model config for model `{model}`.")
    is_right = spec.dtype in TEXTS if value.dtype.kind in "OSU" else np.issubdtype(value.dtype, spec.dtype)
    if not is_right:
        raise ValueError(
            f"Returned output `{output}` for model `{model}` has invalid type. "
            f"Returned: {value.dtype} ({value.dtype.kind}). Expected: {spec.dtype}."
        )
    shape = value.shape[1 if config.batching else 0 :]
    if len(shape) != len(spec.shape):
        raise ValueError(f"Returned output `{output}` for model `{model}` has invalid shapes. Returned: {shape}. Expected: {spec.shape}.")
    if any(want not in (-1, got) for got, want in zip(shape, spec.shape)):
        raise ValueError(
            f"Returned output `{output}` for model `{model}` has invalid shapes at one or more positions. Returned: {shape}. Expected: {spec.shape}."
        )

"""A function inside the process that runs it: the `TritonPythonModel` that the server calls."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import threading
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from nereid._model import SCRIPT, Model, as_model
from nereid._rows import joined, split
from nereid._signature import Tensor

#: Calls of an async function or generator that run at once, per instance; more requests wait in the server's queue.
CALLS_MAX = 64


class Reached(BaseException):
    """`serve` was called while a model's process imports the file: in a script all that stands before the call is defined."""

    def __str__(self) -> str:
        return 'nereid.serve is called when the module is imported: put the call below `if __name__ == "__main__":`'


#: True in a process that imports a file for its functions.
is_importing = False


def model_at(place: Mapping[str, Any]) -> type:
    """The class for the function at a place that `Model.place` made. Imports its file."""
    for path in place["path"]:
        if path not in sys.path:
            sys.path.append(path)
    found: Any = imported(place["module"], place["file"])
    for part in place["name"].split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AttributeError(f"{place['file']} has no '{place['name']}' when it is imported; define it outside of `if __name__ == \"__main__\":`") from None
    return model_class(as_model(found))


def imported(module: Optional[str], file: str) -> Any:
    """Imports a module by its name or, without one, a script, whose `__name__` is not `__main__`."""
    global is_importing
    is_importing = True
    try:
        return importlib.import_module(module) if module is not None else _script(file)
    finally:
        is_importing = False


def _script(file: str) -> Any:
    spec = importlib.util.spec_from_file_location(SCRIPT, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    directory = os.path.dirname(file)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        spec.loader.exec_module(module)
    except Reached:
        pass
    return module


def model_class(model: Model) -> type:
    """The `TritonPythonModel` of a function. Each instance of a class model is constructed once."""
    function, streams = model.function, model.signature.streams
    call = function.__call__ if isinstance(function, type) else function
    is_async = inspect.isasyncgenfunction(call) or inspect.iscoroutinefunction(call)
    base: type
    if model.batch is not None:
        base = _AsyncBatched if is_async else _Batched
    else:
        base = _Async if is_async else _Streaming if streams else _Single

    class TritonPythonModel(base):  # type: ignore[misc, valid-type]
        of = model

    return TritonPythonModel


class _Base:
    of: Model
    #: The module triton_python_backend_utils, or what is used of it.
    utils: Any = None

    def initialize(self, args: Mapping[str, str]) -> None:
        if self.utils is None:
            import triton_python_backend_utils

            self.utils = triton_python_backend_utils
        function = self.of.function
        self.call = function() if isinstance(function, type) else function

    def finalize(self) -> None:
        close = getattr(self.call, "close", None)
        if isinstance(self.of.function, type) and close is not None:
            close()

    def arguments(self, request: Any) -> dict:
        found = {tensor.name(): tensor for tensor in request.inputs()}
        given = {}
        for spec in self.of.signature.inputs:
            if spec.name in found:
                given[spec.name] = _received(spec, found[spec.name].as_numpy(), self.of.batch is not None)
        return given

    def arrays(self, result: Any, rows: Any) -> List[np.ndarray]:
        """The arrays of a result, in the order of the outputs."""
        specs = self.of.signature.outputs
        name = self.of.name
        if isinstance(result, Mapping):
            wrong = set(result) ^ {spec.name for spec in specs}
            if wrong:
                raise ValueError(f"'{name}' returned the outputs {_names(result)}; it has {_names(s.name for s in specs)}")
            results: Sequence[Any] = [result[spec.name] for spec in specs]
        elif len(specs) == 1:
            results = [result]
        else:
            if not isinstance(result, (tuple, list)) or len(result) != len(specs):
                found = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
                raise ValueError(f"'{name}' returned {found}; it has {len(specs)} outputs: {_names(s.name for s in specs)}")
            results = result
        return [_sent(spec, one, rows, name) for spec, one in zip(specs, results)]

    def response(self, arrays: Sequence[np.ndarray]) -> Any:
        utils = self.utils
        return utils.InferenceResponse([utils.Tensor(spec.name, array) for spec, array in zip(self.of.signature.outputs, arrays)])

    def failed(self, error: BaseException) -> Any:
        """The response for an exception of one call among several; a call alone raises it instead."""
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return self.utils.InferenceResponse([], self.utils.TritonError(f"{type(error).__name__}: {error}\n{text}"))


class _Single(_Base):
    def execute(self, requests: Sequence[Any]) -> List[Any]:
        return [self.response(self.arrays(self.call(**self.arguments(request)), None)) for request in requests]


class _Batched(_Base):
    def result(self, arguments: Mapping[str, Any]) -> Any:
        return self.call(**arguments)

    def execute(self, requests: Sequence[Any]) -> List[Any]:
        given = [self.arguments(request) for request in requests]
        responses: List[Any] = [None] * len(requests)
        for names in {frozenset(one) for one in given}:
            # A call has an optional input for all of its rows, or for none.
            mine = [i for i, one in enumerate(given) if one.keys() == names]
            rows = [len(next(iter(given[i].values()))) for i in mine]
            arrays = self.arrays(self.result(joined([given[i] for i in mine])), sum(rows))
            for i, some in zip(mine, split(arrays, rows)):
                responses[i] = self.response(some)
        return responses


class _Streaming(_Base):
    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            made: Iterator[Any] = iter(self.call(**self.arguments(request)))
            for result in made:
                if sender.is_cancelled():
                    break
                sender.send(self.response(self.arrays(result, None)))
            if hasattr(made, "close"):
                made.close()
            sender.send(flags=self.utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class _Loop(_Base):
    """Async functions: all calls of an instance run on one loop, in a thread of its own."""

    def initialize(self, args: Mapping[str, str]) -> None:
        self.start_loop()
        super().initialize(args)

    def start_loop(self) -> None:
        import asyncio

        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="nereid-async", daemon=True).start()

    def start(self, coroutine: Any) -> Any:
        import asyncio

        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)


class _AsyncBatched(_Loop, _Batched):
    def result(self, arguments: Mapping[str, Any]) -> Any:
        return self.start(self.call(**arguments)).result()


class _Async(_Loop):
    """A request is answered by its sender, so the instance is free before the answer."""

    def initialize(self, args: Mapping[str, str]) -> None:
        self.calls = threading.BoundedSemaphore(CALLS_MAX)
        super().initialize(args)

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            self.calls.acquire()
            self.start(self.answer(request, request.get_response_sender()))

    async def answer(self, request: Any, sender: Any) -> None:
        final = self.utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        try:
            if not self.of.signature.streams:
                sender.send(self.response(self.arrays(await self.call(**self.arguments(request)), None)), final)
                return
            made = self.call(**self.arguments(request))
            async for result in made:
                if sender.is_cancelled():
                    break
                sender.send(self.response(self.arrays(result, None)))
            await made.aclose()
            sender.send(flags=final)
        except BaseException as error:  # noqa: B036  the loop and the other calls go on
            sender.send(self.failed(error), final)
        finally:
            self.calls.release()


def _received(spec: Tensor, array: np.ndarray, is_batch: bool) -> Any:
    if spec.form == "array":
        return array
    flat = array.reshape(-1).tolist()
    if spec.dtype is str:
        flat = [item.decode() for item in flat]
    if spec.form == "value":
        return flat[0] if spec.numpy == np.object_ or spec.dtype in (np.float64, np.int64, np.bool_) else array.reshape(-1)[0]
    return flat


def _sent(spec: Tensor, value: Any, rows: Any, name: str) -> np.ndarray:
    where = f"output '{spec.name}' of '{name}'"
    if value is None:
        raise TypeError(f"{where} is None; expected {spec.numpy}: is a return missing?")
    cast = f".astype(np.{spec.numpy})"
    if hasattr(value, "detach"):
        # A tensor of PyTorch, on any device.
        value, cast = value.detach().cpu().numpy(), f".to(torch.{spec.numpy})"
    if spec.numpy == np.object_:
        array = np.asarray(value, dtype=np.object_)
        wrong = next((type(item) for item in array.reshape(-1).tolist() if not isinstance(item, (str, bytes))), None)
        if wrong is not None:
            raise TypeError(f"{where} has an element of type {wrong.__name__}; expected str or bytes")
    else:
        array = np.asarray(value)
        if array.dtype != spec.numpy:
            if hasattr(value, "dtype") or not np.can_cast(array.dtype, spec.numpy, "same_kind"):
                advice = f": use {cast}" if np.can_cast(array.dtype, spec.numpy, "same_kind") else ""
                raise TypeError(f"{where} has the type {array.dtype}; expected {spec.numpy}{advice}")
            array = array.astype(spec.numpy)
    # Values and lists have no dimension for one element.
    if spec.form == "value" and array.ndim == 0:
        array = array.reshape(1)
    if spec.form == "list" and rows is not None and array.ndim == 1:
        array = array.reshape(-1, 1)
    shape: Tuple[int, ...] = spec.shape if rows is None else (rows, *spec.shape)
    if len(shape) != array.ndim or any(want not in (-1, got) for want, got in zip(shape, array.shape)):
        more = f"; the function got {rows} rows and has to return as many" if rows is not None else ""
        raise ValueError(f"{where} has the shape {list(array.shape)}; expected {list(shape)}{more}")
    return array


def _names(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"

"""
What a function takes and returns, as tensors: read from its type hints, or given as `inputs` and `outputs`.

| hint | tensor | the function gets or returns |
|---|---|---|
| `NDArray[np.float32]` | FP32, one variable dimension | an array |
| `Annotated[NDArray[np.float32], (3, -1)]` | FP32 of that shape; -1 is variable | an array |
| `str`, `bytes`, `float`, `int`, `bool`, `np.float32` … | one value | the value; only without a batch |
| `list[str]`, `list[float]` … | one value per row with a batch, else one variable dimension | a list |
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

import numpy as np

DATA_TYPES: Mapping[np.dtype, str] = {
    np.dtype(kind): f"TYPE_{name}"
    for kind, name in {
        np.bool_: "BOOL", np.uint8: "UINT8", np.uint16: "UINT16", np.uint32: "UINT32", np.uint64: "UINT64", np.int8: "INT8",
        np.int16: "INT16", np.int32: "INT32", np.int64: "INT64", np.float16: "FP16", np.float32: "FP32", np.float64: "FP64",
        np.object_: "STRING",
    }.items()
}  # fmt: skip
#: Types of Python, and what arrays of them hold.
_ELEMENTS = {str: str, bytes: bytes, bool: np.bool_, int: np.int64, float: np.float64}
_STREAMS = (
    collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator,
    collections.abc.AsyncIterator, collections.abc.AsyncIterable, collections.abc.AsyncGenerator,
)  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """
    An input or output of a function. `dtype`: a numpy type, or `str` or `bytes`. `shape`: the dimensions without the batch; -1 is variable.

    `form` is what the function sees: "array", "value" or "list"; `optional` inputs have a default in the function.
    """

    name: str
    dtype: Any
    shape: Tuple[int, ...] = (-1,)
    form: str = "array"
    optional: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.shape, (tuple, list)) and all(isinstance(d, int) and (d > 0 or d == -1) for d in self.shape)):
            raise TypeError(f"tensor '{self.name}' has the shape {self.shape!r}; write a tuple of sizes, with -1 for a variable one")
        object.__setattr__(self, "shape", tuple(self.shape))
        self.data_type  # noqa: B018  raises for an unknown type

    @property
    def numpy(self) -> np.dtype:
        """The numpy type of the array; `object` for texts and bytes."""
        return np.dtype(np.object_ if self.dtype in (str, bytes) else self.dtype)

    @property
    def data_type(self) -> str:
        """The `data_type` of config.pbtxt."""
        try:
            found = DATA_TYPES.get(self.numpy)
        except TypeError:
            found = None
        if found is None:
            raise TypeError(f"tensor '{self.name}' has the type {self.dtype!r}; write a numpy type such as np.float32, or str or bytes")
        return found


@dataclass(frozen=True)
class Signature:
    inputs: Tuple[Tensor, ...]
    outputs: Tuple[Tensor, ...]
    #: The function sends any number of responses.
    streams: bool


def signature_of(function: Callable[..., Any], name: str, batch: Optional[int], inputs: Optional[Sequence[Tensor]], outputs: Optional[Sequence[Tensor]]) -> Signature:
    """
    The signature of a function, or of the `__call__` of a class.

    Raises TypeError with the parameter and what to write.
    """
    method = _method(function)
    if inputs is None or outputs is None:
        try:
            hints = typing.get_type_hints(method, include_extras=True)
        except NameError as error:
            raise TypeError(f"a type hint of '{name}' cannot be read: {error}") from None
    else:
        hints = {}
    hint = hints.get("return")
    streams = inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)
    if typing.get_origin(hint) in _STREAMS:
        streams, hint = True, typing.get_args(hint)[0]
    if streams and batch is not None:
        raise TypeError(f"'{name}' is a generator, which answers one request at a time: leave out batch={batch}")
    if inputs is None:
        inputs = [_input(p, hints, name, batch) for p in _parameters(method, isinstance(function, type))]
        if not inputs:
            raise TypeError(f"'{name}' has no parameters: each one is an input")
    if outputs is None:
        outputs = list(_outputs(hint, name, batch))
    return Signature(tuple(inputs), tuple(outputs), streams)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(function, type):
        if "__call__" not in vars(function) and not any("__call__" in vars(base) for base in function.__mro__[:-1]):
            raise TypeError(f"class '{function.__name__}' has no method __call__: it is what answers requests")
        return function.__call__
    return function if inspect.isroutine(function) else type(function).__call__


def _parameters(method: Callable[..., Any], is_class: bool) -> Sequence[inspect.Parameter]:
    found = list(inspect.signature(method).parameters.values())
    return found[1:] if is_class or (not inspect.isroutine(method)) else found


def _input(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str, batch: Optional[int]) -> Tensor:
    where = f"parameter '{parameter.name}' of '{name}'"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(f"{where} takes any number of values: give inputs=[nereid.Tensor(NAME, DTYPE, SHAPE), ...]")
    if parameter.name not in hints:
        raise TypeError(f"{where} has no type hint: write {parameter.name}: NDArray[np.float32], or give inputs=[...]")
    return _tensor(parameter.name, hints[parameter.name], where, batch, parameter.default is not parameter.empty)


def _outputs(hint: Any, name: str, batch: Optional[int]) -> Sequence[Tensor]:
    where = f"the result of '{name}'"
    if hint is None or hint is type(None):
        raise TypeError(f"{where} has no type hint: write -> NDArray[np.float32], or give outputs=[...]")
    if isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__total__"):  # a TypedDict
        return [_tensor(key, one, f"'{key}' of {where}", batch) for key, one in typing.get_type_hints(hint, include_extras=True).items()]
    several = typing.get_args(hint) if typing.get_origin(hint) is tuple else (hint,)
    return [_tensor(f"OUTPUT{i}", one, where, batch) for i, one in enumerate(several)]


def _tensor(name: str, hint: Any, where: str, batch: Optional[int], optional: bool = False) -> Tensor:
    shape: Tuple[int, ...] = (-1,)
    if typing.get_origin(hint) is typing.Union and optional:
        kinds = [one for one in typing.get_args(hint) if one is not type(None)]
        hint = kinds[0] if len(kinds) == 1 else hint
    if typing.get_origin(hint) is typing.Annotated:
        hint, *rest = typing.get_args(hint)
        shapes = [one for one in rest if isinstance(one, (tuple, list))]
        if shapes:
            shape = tuple(-1 if size is None else size for size in shapes[0])
    kind = _element(hint)
    if kind is not None:
        if batch is not None:
            raise TypeError(f"{where} is {kind.__name__}, but with batch={batch} the function gets all rows at once: write list[{kind.__name__}]")
        return Tensor(name, _ELEMENTS.get(kind, kind), (1,), "value", optional)
    if typing.get_origin(hint) is list:
        kind = _element(typing.get_args(hint)[0])
        if kind is not None:
            return Tensor(name, _ELEMENTS.get(kind, kind), (-1,) if batch is None else (1,), "list", optional)
    if typing.get_origin(hint) is np.ndarray:
        [*_, dtype] = typing.get_args(hint)
        [kind] = typing.get_args(dtype) or [None]
        if isinstance(kind, type) and issubclass(kind, np.generic) and np.dtype(kind) in DATA_TYPES:
            return Tensor(name, kind, shape, "array", optional)
    raise TypeError(
        f"{where} has the type hint {getattr(hint, '__name__', hint)!r}; write NDArray[np.float32] (of numpy.typing), "
        "Annotated[NDArray[np.float32], (3, 224, 224)], str, bytes, int, float, bool, or a list of one of them"
    )


def _element(hint: Any) -> Optional[type]:
    if hint in _ELEMENTS:
        return hint
    return hint if isinstance(hint, type) and issubclass(hint, np.generic) and np.dtype(hint) in DATA_TYPES else None

"""
Decorators of bound functions. `@batch` and `@sample` turn the list of requests into keyword arguments; those above them get the list, those below the arguments.

Errors have PyTriton's texts.
"""

from __future__ import annotations

import inspect
import itertools
from bisect import bisect_left
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from nereid._rows import joined, split
from nereid.pytriton._context import Decorated, ModelConfigDict, TritonContext, decorator, get_model_config, get_triton_context, is_decorated_by
from nereid.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError, PyTritonValidationError
from nereid.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

__all__ = [
    "ConstantPadder", "InferenceRequest", "InferenceRequests", "InferenceResult", "InferenceResults", "InputNames", "ModelConfigDict", "TritonContext", "batch", "convert_output", "fill_optionals", "first_value", "get_inference_request_batch_size",
    "get_model_config", "get_triton_context", "group_by_keys", "group_by_values", "pad_batch", "sample", "triton_context",
]  # fmt: skip

InputNames = List[str]
InferenceRequest = Dict[str, np.ndarray]
InferenceRequests = Sequence[InferenceRequest]
InferenceResult = Dict[str, np.ndarray]
InferenceResults = Sequence[InferenceResult]
Function = Callable[..., Any]
_CONTEXT = "triton_context"
#: Names that are no inputs.
_SPECIAL = ("__triton_context__", _CONTEXT)


def get_inference_request_batch_size(request: Mapping[str, Any]) -> int:
    """The rows of a request."""
    return int(next(iter(request.values())).shape[0])


def convert_output(outputs: Any, wrapped: Any = None, instance: Any = None, model_config: Optional[TritonModelConfig] = None) -> Dict[str, Any]:
    """A result as a dict: a list or tuple has the order of the model's outputs."""
    if isinstance(outputs, dict):
        return outputs
    if not isinstance(outputs, (list, tuple)):
        raise PyTritonValidationError(f"Unsupported output type {type(outputs)}.")
    config = model_config or get_model_config(wrapped, instance)
    if len(outputs) != len(config.outputs):
        raise PyTritonValidationError("Outputs length different than config outputs length")
    return {spec.name: output for spec, output in zip(config.outputs, outputs)}


def _sample(wrapped: Any, instance: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """Calls the function with the inputs of the request, of a model without batching."""
    return [convert_output(wrapped(*args[1:], **{**kwargs, **args[0][0]}), wrapped, instance)]


sample = decorator(_sample)


def _batch(wrapped: Any, instance: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """Calls the function once, with the rows of all requests. They have the same inputs: `@group_by_keys` above sees to that."""
    requests = args[0]
    if any(one.keys() != requests[0].keys() for one in requests):
        raise PyTritonValidationError("Cannot batch requests with different set of inputs keys")
    rows = [get_inference_request_batch_size(one) for one in requests]
    made = wrapped(*args[1:], **{**kwargs, **joined(requests)})

    def results(result: Any) -> List[Dict[str, Any]]:
        outputs = convert_output(result, wrapped, instance)
        wrong = [f"{name}: {array.shape}" for name, array in outputs.items() if array.shape[0] != sum(rows)]
        if wrong:
            raise ValueError(f"Received output tensors with different batch sizes: {', '.join(wrong)}. Expected batch size: {sum(rows)}. ")
        return [dict(zip(outputs, arrays)) for arrays in split(list(outputs.values()), rows)]

    return (results(one) for one in made) if inspect.isgenerator(made) else results(made)


batch = decorator(_batch)


def _group_by_keys(wrapped: Any, instance: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """Calls the function once for the requests that have the same inputs. Above `@batch`."""
    requests = args[0]
    results: List[Any] = [None] * len(requests)
    for indices in _groups([tuple(sorted(one.keys())) for one in requests]):
        for index, result in zip(indices, wrapped([requests[i] for i in indices], *args[1:], **kwargs)):
            results[index] = result
    return results


group_by_keys = decorator(_group_by_keys)


def group_by_values(*keys: str, pad_fn: Optional[Callable[[Any], Any]] = None) -> Callable[[Function], Decorated]:
    """Calls the function once for the rows that have the same values of these inputs. Below `@batch`. `pad_fn` makes results of several shapes one shape."""

    def wrapper(wrapped: Any, instance: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
        if is_decorated_by(wrapped, batch):
            raise PyTritonRuntimeError("The @group_by_values decorator must be used after the @batch decorator.")
        inputs = {name: value for name, value in kwargs.items() if name not in _SPECIAL}
        others = {name: value for name, value in kwargs.items() if name in _SPECIAL}
        rows = get_inference_request_batch_size(inputs)
        groups = list(_groups([tuple(_value_key(inputs[key][row]) for key in keys) for row in range(rows)]))
        results: Sequence[Mapping[str, Any]] = [wrapped(*args, **{name: value[group] for name, value in inputs.items()}, **others) for group in groups]
        if pad_fn is not None:
            results = pad_fn(tuple(results))
        whole = {}
        for name, first in results[0].items():
            # The longest of fixed-size texts, so that none is cut.
            dtype = np.result_type(*(result[name].dtype for result in results)) if first.dtype.kind in "SU" else first.dtype
            whole[name] = np.zeros((rows, *first.shape[1:]), dtype)
        for group, result in zip(groups, results):
            for name, array in result.items():
                whole[name][group] = array
        return whole

    return decorator(wrapper, group_by_values)


def _groups(keys: Sequence[Any]) -> Iterator[List[int]]:
    """The indices of equal keys, in the order of the keys."""
    for _, group in itertools.groupby(sorted(range(len(keys)), key=lambda i: keys[i]), key=lambda i: keys[i]):
        yield list(group)


def _value_key(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "OS":
        return value.tobytes()
    items = [item if isinstance(item, bytes) else str(item).encode() for item in value.reshape(-1).tolist()]
    return b"".join(len(item).to_bytes(4, "little") + item for item in items)


class ConstantPadder:
    """A `pad_fn`: fills results up with a value, texts with empty ones."""

    def __init__(self, pad_value: Any = 0) -> None:
        self.pad_value = pad_value

    def __call__(self, batches_list: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
        made: List[Dict[str, Any]] = [{} for _ in batches_list]
        for name in dict.fromkeys(name for one in batches_list for name in one):
            arrays = {i: one[name] for i, one in enumerate(batches_list) if name in one}
            dtypes = [array.dtype for array in arrays.values()]
            kind = dtypes[0].kind
            if any(dtype.kind != kind or kind not in "SU" and dtype != dtypes[0] for dtype in dtypes):
                raise PyTritonRuntimeError("All input arrays for given input name must have the same dtype.")
            shape = np.max([array.shape[1:] for array in arrays.values()], axis=0)
            fill = b"" if kind in "SUO" else self.pad_value
            for i, array in arrays.items():
                widths = [(0, 0), *((0, most - size) for most, size in zip(shape, array.shape[1:]))]
                made[i][name] = np.pad(array, widths, constant_values=fill).astype(np.result_type(*dtypes))
        return made


def fill_optionals(**defaults: Any) -> Callable[[Function], Decorated]:
    """Adds inputs that a request does not have. The defaults are arrays without a batch. Above `@batch` and `@group_by_keys`."""

    def wrapper(wrapped: Any, instance: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        config = get_model_config(wrapped, instance)
        _check_defaults(defaults, {spec.name: spec for spec in config.inputs})
        [requests] = args
        for one in requests:
            rows = get_inference_request_batch_size(one)
            for name, value in defaults.items():
                if name not in one:
                    one[name] = np.repeat(value[np.newaxis], rows, axis=0) if config.batching else value
        return wrapped(*args, **kwargs)

    return decorator(wrapper, fill_optionals)


def _check_defaults(defaults: Mapping[str, Any], inputs: Mapping[str, TensorSpec]) -> None:
    unknown = sorted(set(defaults) - set(inputs))
    if unknown:
        raise PyTritonBadParameterError(f"Could not found {', '.join(unknown)} inputs")
    others = [f"{name}={value}" for name, value in defaults.items() if not isinstance(value, np.ndarray)]
    if others:
        raise PyTritonBadParameterError(f"Could not use {', '.join(others)} defaults as they are not NumPy arrays")
    wrong = [f"{n}: dtype={v.dtype} expected_dtype={inputs[n].dtype}" for n, v in defaults.items() if v.dtype != inputs[n].dtype]
    if wrong:
        raise PyTritonBadParameterError(f"Could not use {', '.join(wrong)} defaults as they have different than input signature dtypes")
    wrong = [f"{n}: shape={v.shape} expected_shape={inputs[n].shape}" for n, v in defaults.items() if not fits(v.shape, inputs[n].shape)]
    if wrong:
        raise PyTritonBadParameterError(f"Could not use {', '.join(wrong)} defaults as they have different than input signature shapes")


def fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    """Whether a shape without the batch is one of the declared ones."""
    return len(shape) == len(declared) and all(want in (-1, got) for got, want in zip(shape, declared))


def _triton_context(wrapped: Any, instance: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """Adds the argument `triton_context`, whose `model_configs` has the configuration of the function's model."""
    return wrapped(*args, **{**kwargs, _CONTEXT: get_triton_context(wrapped, instance)})


triton_context = decorator(_triton_context)


def _pad_batch(wrapped: Any, instance: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """Repeats the last row up to the next preferred batch size, or the maximum. Below `@batch`."""
    inputs = {name: value for name, value in kwargs.items() if name not in _SPECIAL}
    config = get_model_config(wrapped, instance)
    preferred = config.batcher.preferred_batch_size if config.batcher is not None else None
    sizes = [*sorted(preferred or ()), config.max_batch_size]
    rows = get_inference_request_batch_size(inputs)
    missing = sizes[bisect_left(sizes, rows)] - rows
    padded = {name: np.concatenate([value, np.repeat(value[-1:], missing, axis=0)]) for name, value in inputs.items()}
    return wrapped(*args, **{**kwargs, **padded})


pad_batch = decorator(_pad_batch)


def first_value(*keys: str, squeeze_single_values: bool = True, strict: bool = True) -> Callable[[Function], Decorated]:
    """
    Gives the function the first row of these inputs, as a value if it has one element. Below or above `@batch`, of a model with batching.

    `strict`: all rows of such an input are equal, else PyTritonRuntimeError.
    """
    special = [name for name in keys if name in _SPECIAL]
    if special:
        raise PyTritonBadParameterError(
            f"The keys {', '.join(special)} are not allowed as keys for @first_value wrapper. The set of not allowed keys are {', '.join(_SPECIAL)}"
        )

    def replaced(inputs: Any) -> Any:
        for name in keys:
            if name not in inputs:
                continue
            values = inputs[name]
            # Texts are compared element by element: numpy sorts no rows of objects.
            if strict and len(np.unique(values, axis=None if values.dtype == object else 0)) > 1:
                raise PyTritonRuntimeError(
                    f"The values on the {name!r} input are not equal. To proceed, either disable strict mode in @first_value wrapper "
                    f"or ensure that the values always are consistent. The current values of {name!r} are {values!r}."
                )
            first = values[0]
            is_single = squeeze_single_values and not np.isscalar(first) and all(size == 1 for size in first.shape)
            inputs[name] = first.reshape(())[()] if is_single else first
        return inputs

    def wrapper(wrapped: Any, instance: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        if not get_model_config(wrapped, instance).batching:
            raise PyTritonRuntimeError("The @first_value decorator can only be used with models that support batching.")
        if set(kwargs) - set(_SPECIAL):
            return wrapped(*args, **replaced(dict(kwargs)))
        requests, *others = args
        return wrapped([replaced(one) for one in requests], *others, **kwargs)

    return decorator(wrapper, first_value)

"""The requests of a warm-up."""

from __future__ import annotations

from typing import Any, Iterable, Iterator

import numpy as np

from nereid.pytriton.exceptions import PyTritonBadParameterError
from nereid.pytriton.model_config.common import ModelWarmup, WarmupInput
from nereid.pytriton.proxy.types import Request

_TEXT_BYTES_MIN, _TEXT_BYTES_MAX = 8, 32
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)


def warmup_requests(warmups: Iterable[ModelWarmup]) -> Iterator[Request]:
    """Raises PyTritonBadParameterError for an input without data, or with a file of another shape."""
    for warmup in warmups:
        for _ in range(warmup.count):
            yield Request({name: _data(one, warmup.batch_size) for name, one in warmup.inputs.items()})


def _data(one: WarmupInput, rows: int) -> np.ndarray:
    if not (one.zero_data or one.random_data or one.input_data_file):
        raise PyTritonBadParameterError("One of 'zero_data', 'random_data', or 'input_data_file' must be provided for warmup input.")
    shape = (rows, *one.shape)
    dtype = np.dtype(object if one.dtype in (bytes, np.bytes_, object) else one.dtype)
    if one.input_data_file:
        found = np.load(one.input_data_file)
        if found.ndim == len(one.shape):
            found = found[np.newaxis]
        if found.shape[1:] != shape[1:]:
            raise PyTritonBadParameterError(f"Input data file shape {found.shape} doesn't match expected shape {shape}")
        # The rows of the file again and again.
        return np.take(found, np.arange(rows) % len(found), axis=0).astype(dtype)
    random = np.random.default_rng()
    if dtype == object:
        return _texts(shape, random) if one.random_data and not one.zero_data else np.full(shape, b"", object)
    if one.zero_data:
        return np.zeros(shape, dtype)
    if dtype.kind == "f":
        return random.random(shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    # Wide integers are indices more often than not, and small ones are valid more often.
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max + 1) if dtype.itemsize <= 2 else (0, 100)
    return random.integers(low, high, shape).astype(dtype)


def _texts(shape: Any, random: np.random.Generator) -> np.ndarray:
    made = np.empty(shape, object)
    for index in np.ndindex(*shape):
        made[index] = random.choice(_LETTERS, random.integers(_TEXT_BYTES_MIN, _TEXT_BYTES_MAX + 1)).tobytes()
    return made

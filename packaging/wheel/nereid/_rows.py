"""The rows of several requests as one batch, and the rows of its results."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Sequence

import numpy as np


def joined(requests: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The rows of all requests, by input. They have the same inputs, as arrays or lists."""
    if len(requests) == 1:
        return requests[0]
    return {
        name: [row for one in requests for row in one[name]] if isinstance(value, list) else np.concatenate([one[name] for one in requests])
        for name, value in requests[0].items()
    }


def split(arrays: Sequence[Any], rows: Sequence[int]) -> Iterator[List[Any]]:
    """For each request, which has so many rows, its rows of the arrays."""
    end = 0
    for count in rows:
        start, end = end, end + count
        yield [array[start:end] for array in arrays]

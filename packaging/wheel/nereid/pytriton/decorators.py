"""Decorators that turn a list of requests into keyword arguments. A request is a dict of arrays."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List

import numpy as np

Function = Callable[..., Any]


def batch(function: Function) -> Function:
    """Calls the function once, with the rows of all requests; they have the same inputs."""

    @functools.wraps(function)
    def call(requests: List[Dict[str, Any]]) -> List[Any]:
        names = list(requests[0])
        if any(set(one) != set(names) for one in requests):
            raise ValueError("requests of one batch have different inputs; put @group_by_keys above @batch")
        rows = [len(next(iter(one.values()))) for one in requests]
        result = function(**{name: np.concatenate([one[name] for one in requests]) for name in names})
        is_dict = isinstance(result, dict)
        for array in result.values() if is_dict else result:
            if len(array) != sum(rows):
                raise ValueError(f"the function returned {len(array)} rows; it got {sum(rows)} and returns as many")
        ends = np.cumsum(rows)
        return [
            {name: array[end - count : end] for name, array in result.items()} if is_dict else [array[end - count : end] for array in result]
            for end, count in zip(ends, rows)
        ]

    return call


def sample(function: Function) -> Function:
    """Calls the function for each request, of a model without batching."""
    return functools.wraps(function)(lambda requests: [function(**one) for one in requests])


def first_value(*names: str) -> Callable[[Function], Function]:
    """Gives the function the first row of these inputs, as a value if it has one element. Below `@batch`."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(**inputs: Any) -> Any:
            for name in names:
                if name in inputs:
                    first = inputs[name][0]
                    inputs[name] = first.reshape(-1)[0] if first.size == 1 else first
            return function(**inputs)

        return call

    return decorate


def fill_optionals(**defaults: Any) -> Callable[[Function], Function]:
    """Adds inputs that a request does not have, with the same rows for each. Above `@batch`."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(requests: List[Dict[str, Any]]) -> Any:
            for one in requests:
                rows = len(next(iter(one.values())))
                for name, value in defaults.items():
                    if name not in one:
                        one[name] = np.repeat(np.asarray(value)[np.newaxis], rows, axis=0)
            return function(requests)

        return call

    return decorate


def group_by_keys(function: Function) -> Function:
    """Calls the function once for the requests that have the same inputs."""
    return _grouped(function, lambda one: frozenset(one))


def group_by_values(*names: str) -> Callable[[Function], Function]:
    """Calls the function once for the requests that have the same values of these inputs."""

    def key(one: Dict[str, Any]) -> Any:
        # The number of rows is not compared where all rows are the same.
        rows = {name: one[name].tolist() for name in names if name in one}
        return str({name: some[:1] if all(row == some[0] for row in some) else some for name, some in rows.items()})

    return lambda function: _grouped(function, key)


def _grouped(function: Function, key: Callable[[Dict[str, Any]], Any]) -> Function:
    @functools.wraps(function)
    def call(requests: List[Dict[str, Any]]) -> List[Any]:
        groups: Dict[Any, List[int]] = {}
        for index, one in enumerate(requests):
            groups.setdefault(key(one), []).append(index)
        results: List[Any] = [None] * len(requests)
        for mine in groups.values():
            for index, result in zip(mine, function([requests[i] for i in mine])):
                results[index] = result
        return results

    return call

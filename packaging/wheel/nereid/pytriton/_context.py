"""Decorated functions and methods, and how a decorator finds the model that its function is bound to."""

from __future__ import annotations

import functools
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from nereid.pytriton.exceptions import PyTritonValidationError
from nereid.pytriton.model_config.triton_model_config import TritonModelConfig

#: What a decorator does: called with the decorated function, the object if it is a method, and the arguments.
Wrapper = Callable[[Callable[..., Any], Any, Tuple[Any, ...], Dict[str, Any]], Any]


class Decorated:
    """A function with a decorator. In a class it is a method, like a function; other attributes are the function's."""

    def __init__(self, function: Callable[..., Any], wrapper: Wrapper, decorator: Any, instance: Any = None) -> None:
        # The attributes of the function are not copied: one may change later.
        functools.update_wrapper(self, function, updated=())
        self._wrapper, self._decorator, self._instance = wrapper, decorator, instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._wrapper(self.__wrapped__, self._instance, args, kwargs)  # type: ignore[attr-defined]

    def __get__(self, instance: Any, owner: Any = None) -> Decorated:
        if instance is None:
            return self
        return Decorated(self.__wrapped__.__get__(instance, owner), self._wrapper, self._decorator, instance)  # type: ignore[attr-defined]

    @property
    def __triton_context__(self) -> TritonContext:
        return self.__wrapped__.__triton_context__  # type: ignore[attr-defined, no-any-return]

    @__triton_context__.setter
    def __triton_context__(self, context: TritonContext) -> None:
        self.__wrapped__.__triton_context__ = context  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        # `__wrapped__` itself is missing only in an object that was not initialized.
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)


def decorator(wrapper: Wrapper, of: Any = None) -> Callable[[Callable[..., Any]], Decorated]:
    """A decorator that calls `wrapper`. `of` is what `is_decorated_by` looks for, by default the decorator itself."""

    def decorate(function: Callable[..., Any]) -> Decorated:
        return Decorated(function, wrapper, of or decorate)

    return functools.update_wrapper(decorate, wrapper)


def is_decorated_by(function: Any, wanted: Any) -> bool:
    while function is not None:
        if isinstance(function, Decorated) and function._decorator is wanted:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


class ModelConfigDict(MutableMapping[Any, TritonModelConfig]):
    """The models of bound functions; a decorated function stands for the one that it decorates."""

    def __init__(self) -> None:
        # The function is kept, so that no other gets its id.
        self._found: Dict[Any, Tuple[Any, TritonModelConfig]] = {}

    def __getitem__(self, function: Any) -> TritonModelConfig:
        return self._found[_key(function)][1]

    def __setitem__(self, function: Any, config: TritonModelConfig) -> None:
        self._found[_key(function)] = function, config

    def __delitem__(self, function: Any) -> None:
        del self._found[_key(function)]

    def __iter__(self) -> Iterator[Any]:
        return (function for function, _ in self._found.values())

    def __len__(self) -> int:
        return len(self._found)


def _key(function: Any) -> Any:
    owner = getattr(function, "__self__", None)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
        owner = getattr(function, "__self__", owner)
    function = getattr(function, "__func__", function)
    if owner is None:
        return id(function)
    return id(owner) if getattr(function, "__name__", None) == "__call__" else (id(owner), id(function))


@dataclass
class TritonContext:
    model_configs: ModelConfigDict = field(default_factory=ModelConfigDict)


def inject(context: TritonContext, function: Any) -> None:
    """Makes the context known to the decorators of a function, of the object of a method, or of an object that is called."""
    target = getattr(function, "__self__", function)
    while target is not None:
        target.__triton_context__ = context
        # Decorators of other libraries are functions of their own.
        target = getattr(target, "__wrapped__", None)


def get_triton_context(wrapped: Any, instance: Any) -> TritonContext:
    """
    For decorators. `instance`: the object if the function is a method, else None.

    Raises PyTritonValidationError if the function is not bound.
    """
    context: Optional[TritonContext] = getattr(wrapped if instance is None else instance, "__triton_context__", None)
    if context is None:
        raise PyTritonValidationError("Wrapped function or object must bound with triton to get  __triton_context__")
    return context


def get_model_config(wrapped: Any, instance: Any) -> TritonModelConfig:
    """For decorators: the model of the function. Raises as `get_triton_context`."""
    return get_triton_context(wrapped, instance).model_configs[wrapped]

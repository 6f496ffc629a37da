"""A function as a model: the decorator, its options, and the configuration that the server reads."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Callable, Optional, Sequence, Tuple

from nereid._repository import config_text
from nereid._signature import Signature, Tensor, signature_of

#: The name under which a file that was started as a script is imported, so that `if __name__ == "__main__":` is false.
SCRIPT = "__nereid_script__"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Model:
    """A function or class that a server can serve, made by `model`. A call is a call of the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: Optional[str] = None,
        batch: Optional[int] = None,
        instances: int = 1,
        inputs: Optional[Sequence[Tensor]] = None,
        outputs: Optional[Sequence[Tensor]] = None,
        config: str = "",
    ) -> None:
        if not callable(function):
            raise TypeError(f"a model is a function or a class, not {function!r}")
        self.function = function
        self.name = name if name is not None else getattr(function, "__name__", type(function).__name__)
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is no name for a model: give name=, of letters, digits, '_', '.' and '-'")
        for option, value, least in (("batch", batch, 1), ("instances", instances, 1)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ValueError(f"{option} of '{self.name}' is {value!r}; it is a whole number of at least {least}")
        self.batch = batch
        self.instances = instances
        self.config = config
        self.signature: Signature = signature_of(function, self.name, batch, inputs, outputs)
        self.__doc__ = function.__doc__
        self.__module__ = getattr(function, "__module__", type(function).__module__)
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        def tensors(some: Tuple[Tensor, ...]) -> str:
            return ", ".join(f"{t.name}: {t.data_type[len('TYPE_'):]}{list(t.shape)}" for t in some)

        return f"<nereid.Model {self.name}({tensors(self.signature.inputs)}) -> {tensors(self.signature.outputs)}>"

    def configuration(self, inline: bool) -> str:
        """The text of config.pbtxt."""
        more = []
        if self.batch is not None and not _has(self.config, "dynamic_batching"):
            more.append("dynamic_batching { }")
        if not _has(self.config, "instance_group"):
            more.append(f"instance_group [{{ count: {self.instances} kind: KIND_CPU }}]")
        if self.signature.streams:
            more.append("model_transaction_policy { decoupled: true }")
        return config_text(self.name, self.batch or 0, self.signature.inputs, self.signature.outputs, inline, [*more, self.config])

    def place(self) -> Optional[dict]:
        """Where another process finds the function: file, module or null, and name; None if it cannot be found."""
        module = sys.modules.get(self.__module__)
        file = getattr(module, "__file__", None)
        # IPython has its cells in no file, and a nested function exists only in its caller.
        if file is None or not os.path.isfile(file) or "<" in self.__qualname__:
            return None
        # `python -m package.module` has a name in its spec, which relative imports need; a script has none.
        spec = getattr(module, "__spec__", None)
        name = None if spec is None or spec.name == SCRIPT else spec.name
        return {"file": os.path.abspath(file), "module": name, "name": self.__qualname__, "path": [p for p in sys.path if p]}


def model(function: Optional[Callable[..., Any]] = None, **options: Any) -> Any:
    """
    Makes a function, a generator, an async function or a class a model that `serve` takes.

    `name`: the function's name by default. `batch`: the most rows that the function gets at once; requests that wait are put together, and arrays have the rows as
    first dimension. Without it the function answers one request at a time. `instances`: processes of the function, or threads inline. `inputs`, `outputs`: lists of `Tensor`, instead of type hints. `config`: more lines of config.pbtxt.

        @nereid.model(batch=32)
        def double(x: NDArray[np.float32]) -> NDArray[np.float32]:
            return x * 2

    Raises TypeError for a parameter or result that is no tensor, with what to write.
    """
    if function is None:
        return lambda given: Model(given, **options)
    return Model(function, **options)


def as_model(what: Any) -> Model:
    return what if isinstance(what, Model) else Model(what)


def _has(config: str, field: str) -> bool:
    return re.search(rf"^\s*{field}\b", config, re.MULTILINE) is not None

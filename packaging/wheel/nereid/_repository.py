"""The model repository of functions: a directory that names their files, from which the server starts their processes."""

from __future__ import annotations

import json
import os
import pprint
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

if TYPE_CHECKING:
    from nereid._model import Model
    from nereid._signature import Tensor

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CODE = """# Written by nereid for a function. The package comes last in the path: only its name is looked for there.
import sys

sys.path.append({package!r})
from nereid._runner import model_at

TritonPythonModel = model_at({place})
"""
#: The model.py of a function that runs in this process.
INLINE_CODE = """# Written by nereid for a function that runs in the process that called nereid.serve.
raise RuntimeError("this model runs in the process that started the server; a server started otherwise cannot serve it")
"""


def config_text(name: str, batch: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor], is_inline: bool, more: Sequence[str]) -> str:
    """The text of a config.pbtxt that is complete, so that the server starts no process to ask for it. `more`: further fields."""
    parts = [f"name: {json.dumps(name)}", 'backend: "python"', f"max_batch_size: {batch}"]
    for field, tensors in (("input", inputs), ("output", outputs)):
        for t in tensors:
            optional = " optional: true" if t.optional else ""
            parts.append(f"{field} [{{ name: {json.dumps(t.name)} data_type: {t.data_type} dims: {list(t.shape)}{optional} }}]")
    parts.append(f'parameters {{ key: "nereid.function" value {{ string_value: "{"inline" if is_inline else "process"}" }} }}')
    return "\n".join([*parts, *more, ""])


def write_model(directory: str, name: str, config: str, code: str, version: int = 1) -> None:
    """Writes the files of a model, over those that are there."""
    here = os.path.join(directory, name)
    os.makedirs(os.path.join(here, str(version)), exist_ok=True)
    for path, text in (("config.pbtxt", config), (os.path.join(str(version), "model.py"), code)):
        with open(os.path.join(here, path), "w", encoding="utf-8") as file:
            file.write(text)


def write(directory: str, models: Sequence[Model], places: Sequence[Optional[Mapping[str, Any]]], note: str = "") -> None:
    """
    Writes a repository of the models, over one that is there. A model without a place runs in this process. `note` is the last line of the others' code.

    Raises ValueError for two with one name.
    """
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two models are called '{name}': give one of them another name=")
    for model, place in zip(models, places):
        code = INLINE_CODE if place is None else _CODE.format(package=_PACKAGE, place=pprint.pformat(place, width=120)) + note
        write_model(directory, model.name, model.configuration(place is None), code)

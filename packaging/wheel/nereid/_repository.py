"""The model repository of functions: a directory that names their files, from which the server starts their processes."""

from __future__ import annotations

import os
import pprint
from typing import Sequence

from nereid._model import Model

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CODE = """# Written by nereid for a function. The package comes last in the path: only its name is looked for there.
import sys

sys.path.append({package!r})
from nereid._runner import model_at

TritonPythonModel = model_at({place})
"""
_INLINE = """# Written by nereid for a function that runs in the process that called nereid.serve.
raise RuntimeError("this model runs in the process that started the server; a server started otherwise cannot serve it")
"""


def write(directory: str, models: Sequence[Model], inline: Sequence[Model] = (), note: str = "") -> None:
    """
    Writes a repository of the models, over one that is there. Those of `inline` run in this process. `note` is the last line of their code.

    Raises ValueError for two with one name.
    """
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two models are called '{name}': give one of them another name=")
    for model in models:
        here = os.path.join(directory, model.name)
        os.makedirs(os.path.join(here, "1"), exist_ok=True)
        is_inline = any(model is one for one in inline)
        with open(os.path.join(here, "config.pbtxt"), "w", encoding="utf-8") as config:
            config.write(model.configuration(is_inline))
        with open(os.path.join(here, "1", "model.py"), "w", encoding="utf-8") as code:
            code.write(_INLINE if is_inline else _CODE.format(package=_PACKAGE, place=pprint.pformat(model.place(), width=120)) + note)

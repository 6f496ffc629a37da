"""`nereid serve app.py:fn`: the words after `serve` become those of a server of the functions' repository."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import tempfile
from typing import Any, List, Sequence

_USAGE = "usage: nereid serve FILE.py[:FUNCTION] | MODULE[:FUNCTION] ... [flags of the server]"
# The server has the id of the process that made its directory, which is removed once there is no such process.
_PREFIX = "nereid-functions-"


def arguments(words: Sequence[str]) -> List[str]:
    """Imports the functions, writes their repository and returns the server's arguments. Ends the process with 2 for wrong words, with 1 if an import fails."""
    targets = [word for word in words if not word.startswith("-")]
    flags = [word for word in words if word.startswith("-")]
    if not targets or "--help" in flags:
        print(_USAGE, file=sys.stdout if targets or "--help" in flags else sys.stderr)
        sys.exit(0 if "--help" in flags else 2)
    is_dev = "--dev" in flags
    from nereid import _repository

    models = [model for target in targets for model in _models(target)]
    _remove_left()
    directory = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    try:
        _repository.write(directory, models, [])
    except ValueError as error:
        shutil.rmtree(directory)
        sys.exit(f"nereid serve: {error}")
    if is_dev:
        return ["dev", directory, *(flag for flag in flags if flag != "--dev")]
    return [f"--model-repository={directory}", *flags]


def _models(target: str) -> List[Any]:
    from nereid._model import Model, as_model

    place, _, name = target.partition(":")
    module = _imported(place)
    if name:
        if not hasattr(module, name):
            there = ", ".join(key for key, value in vars(module).items() if isinstance(value, Model)) or "none"
            sys.exit(f"nereid serve: {place} has no '{name}'; its models are: {there}")
        try:
            return [as_model(getattr(module, name))]
        except (TypeError, ValueError) as error:
            sys.exit(f"nereid serve: {error}")
    found = [value for value in vars(module).values() if isinstance(value, Model) and value.__module__ == module.__name__]
    if not found:
        sys.exit(f"nereid serve: {place} has no function with @nereid.model: name one, {place}:FUNCTION")
    return found


def _imported(place: str) -> Any:
    from nereid import _runner

    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is not None and place.startswith(error.name):
                sys.exit(f"nereid serve: there is no module '{place}', and no file of that name; a file ends in .py")
            raise
    if not os.path.isfile(place):
        sys.exit(f"nereid serve: there is no file {place}")
    return _runner.imported(os.path.abspath(place))


def _remove_left() -> None:
    directory = tempfile.gettempdir()
    for name in os.listdir(directory):
        found = re.match(rf"{_PREFIX}(\d+)-", name)
        path = os.path.join(directory, name)
        if found is None or os.path.islink(path) or os.stat(path).st_uid != os.getuid():
            continue
        if not os.path.exists(f"/proc/{found[1]}"):
            shutil.rmtree(path, ignore_errors=True)

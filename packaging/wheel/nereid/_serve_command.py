"""`nereid serve app.py:fn`: the words after `serve` become those of a server of the functions' repository."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, List, NoReturn, Sequence

_USAGE = """usage: nereid serve FILE.py[:FUNCTION] | MODULE[:FUNCTION] ... [--dev] [flags of the server]

Serves functions; without FUNCTION all of the file that have @nereid.model. --dev imports them again when a file is saved."""
# The server has the id of the process that made its directory, which is removed once there is no such process.
_PREFIX = "nereid-functions-"
#: Between two looks at the files, with --dev.
_LOOK_S = 0.3
#: Names that an error lists.
_NAMES_MAX = 10
#: Of a name that an error suggests; a swapped or missing letter of a short one has 0.8.
_SIMILARITY_MIN = 0.7


def arguments(words: Sequence[str]) -> List[str]:
    """Imports the functions, writes their repository and returns the server's arguments. Ends the process with 2 for wrong words, with 1 if an import fails."""
    targets = [word for word in words if not word.startswith("-")]
    flags = [word for word in words if word.startswith("-")]
    if not targets or "--help" in flags:
        print(_USAGE, file=sys.stdout if "--help" in flags else sys.stderr)
        sys.exit(0 if "--help" in flags else 2)
    _remove_left()
    directory = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    try:
        if "--dev" in flags:
            _develop(directory, targets, [flag for flag in flags if flag != "--dev"])
        _write(directory, targets)
    except BaseException:
        # Also the end of --dev.
        shutil.rmtree(directory)
        raise
    return [f"--model-repository={directory}", *flags]


def _write(directory: str, targets: Sequence[str], note: str = "") -> None:
    from nereid import _repository

    models = [model for target in targets for model in _models(target)]
    places = [model.place() for model in models]
    if None in places:
        name = models[places.index(None)].name
        sys.exit(f"nereid serve: '{name}' is defined inside of another function, where its process cannot find it: define it at the top level of its file")
    try:
        _repository.write(directory, models, places, note)
    except ValueError as error:
        sys.exit(f"nereid serve: {error}")


def _models(target: str) -> List[Any]:
    from nereid._model import Model, as_model

    place, _, name = target.partition(":")
    module = _imported(place)
    found = [value for value in vars(module).values() if isinstance(value, Model) and value.__module__ == module.__name__]
    if not name:
        if not found:
            sys.exit(f"nereid serve: {place} has no function with @nereid.model: name one, {place}:FUNCTION")
        return found
    if not hasattr(module, name):
        defined = [key for key, value in vars(module).items() if callable(value) and getattr(value, "__module__", None) == module.__name__]
        near = _did_you_mean(name, defined, f"{place}:")
        sys.exit(f"nereid serve: {place} has no '{name}'; it defines: {', '.join(defined) or 'no function'}{near}")
    try:
        return [as_model(getattr(module, name))]
    except (TypeError, ValueError) as error:
        sys.exit(f"nereid serve: {error}")


def _imported(place: str) -> Any:
    from nereid import _runner

    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        try:
            return _runner.imported(place, "")
        except ModuleNotFoundError as error:
            if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
                sys.exit(f"nereid serve: there is no module '{place}', and no file of that name; a file ends in .py")
            raise
    if not os.path.isfile(place):
        sys.exit(f"nereid serve: there is no file {place}{_files_near(place)}")
    return _runner.imported(None, os.path.abspath(place))


def _files_near(place: str) -> str:
    """The end of the error about a file that is not there: the similar one, and the files of Python beside it."""
    directory = os.path.dirname(place)
    try:
        files = sorted(name for name in os.listdir(directory or ".") if name.endswith(".py"))
    except OSError:
        return f"; there is no directory {directory}"
    names = [os.path.join(directory, name) for name in files]
    if not names:
        return f"; {directory or 'the working directory'} has no file of Python"
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"; files there: {', '.join(names[:_NAMES_MAX])}{more}{_did_you_mean(place[: -len('.py')], [name[: -len('.py')] for name in names], '', '.py')}"


def _did_you_mean(wrong: str, names: Sequence[str], before: str, after: str = "") -> str:
    near = difflib.get_close_matches(wrong, names, 1, _SIMILARITY_MIN)
    return f". Did you mean {before}{near[0]}{after}?" if near else ""


def _develop(directory: str, targets: Sequence[str], flags: Sequence[str]) -> NoReturn:
    """Serves with `nereid dev`. A process of its own imports the functions each time, and says which files it read."""
    from nereid._command import command, environment

    def files_after_writing(note: str) -> List[str]:
        words = [sys.executable, "-c", "from nereid._serve_command import _write_and_tell as f; f()", directory, note, *targets]
        output = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment()).stdout
        files: List[str] = json.loads(output.splitlines()[-1]) if output.strip() else []
        return files

    def stamps(files: Sequence[str]) -> List[Any]:
        return [(file, os.stat(file).st_mtime_ns if os.path.exists(file) else None) for file in files]

    files = files_after_writing("")
    if not files:
        sys.exit(1)
    server = subprocess.Popen([*command(), "dev", directory, *flags], env=environment())
    seen, number = stamps(files), 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while server.poll() is None:
            time.sleep(_LOOK_S)
            now = stamps(files)
            if now != seen:
                number += 1
                # While it cannot be imported the same files are looked at.
                files = files_after_writing(f"# import {number}\n") or files
                seen = stamps(files)
    except KeyboardInterrupt:
        pass  # The server gets the signal of the terminal, too.
    except BaseException as error:
        server.terminate()
        if not isinstance(error, SystemExit):
            server.wait()
            raise
    sys.exit(server.wait())


def _write_and_tell() -> None:
    """Writes the repository, and prints the files below the working directory or beside the functions that were imported."""
    directory, note, *targets = sys.argv[1:]
    places = {os.path.dirname(os.path.abspath(target.partition(":")[0])) for target in targets} | {os.getcwd()}
    _write(directory, targets, note)
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    print(json.dumps([file for file in files if file and "site-packages" not in file and any(os.path.abspath(file).startswith(f"{place}{os.sep}") for place in places)]))


def _remove_left() -> None:
    directory = tempfile.gettempdir()
    for name in os.listdir(directory):
        found = re.match(rf"{_PREFIX}(\d+)-", name)
        path = os.path.join(directory, name)
        if found is None or os.path.islink(path) or os.stat(path).st_uid != os.getuid():
            continue
        if not os.path.exists(f"/proc/{found[1]}"):
            shutil.rmtree(path, ignore_errors=True)

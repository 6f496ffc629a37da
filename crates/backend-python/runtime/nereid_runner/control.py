"""Loading, unloading and readiness of models (B-PY-21), and the directory of the model's file."""
import base64

from . import link
from .kinds import TritonModelException, bind, incompatible, text
from .metrics import reason


def _texts(what, signature, values, args, kwargs):
    try:
        return [text(v) for v in values]
    except TypeError:
        raise incompatible(what, signature, args, kwargs) from None


def _ask(prefix, operation, **members):
    try:
        return link.current.control(operation, **members)
    except link.Refused as e:
        raise TritonModelException(f"{prefix}{reason(e)}") from None


def load_model(*args, **kwargs):
    """Loads a model and waits. `config`: JSON in place of its configuration; `files`: contents by `file:<path>`."""
    signature = "(model_name: str, config: str = '', files: object = None) -> None"
    names = ("model_name", "config", "files")
    name, config, files = bind("load_model", names, {"config": "", "files": None}, signature, args, kwargs)
    name, config = _texts("load_model", signature, (name, config), args, kwargs)
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(f"failed to load model '{name}', files should be a dictionary of file paths and "
            f"file contents")
    sent = {}
    for path, contents in (files or {}).items():
        for value, kind in ((path, str), (contents, bytes)):
            if not isinstance(value, kind):
                raise TypeError(f"Object of type '{type(value).__name__}' is not an instance of '{kind.__name__}'")
        sent[path] = base64.b64encode(contents).decode()
    _ask("Failed to load model: ", "load", model=name, config=config, files=sent)


def unload_model(*args, **kwargs):
    """Starts to unload a model; does not wait."""
    signature = "(model_name: str, unload_dependents: bool = False) -> None"
    names = ("model_name", "unload_dependents")
    name, dependents = bind("unload_model", names, {"unload_dependents": False}, signature, args, kwargs)
    (name,) = _texts("unload_model", signature, (name,), args, kwargs)
    if type(dependents) is not bool and not hasattr(dependents, "__bool__") or dependents is None:
        raise incompatible("unload_model", signature, args, kwargs)
    _ask("Failed to unload model: ", "unload", model=name, dependents=bool(dependents))


def is_model_ready(*args, **kwargs):
    """True if the model, or one of its versions, is ready."""
    signature = "(model_name: str, model_version: str = '') -> bool"
    names = ("model_name", "model_version")
    name, version = bind("is_model_ready", names, {"model_version": ""}, signature, args, kwargs)
    name, version = _texts("is_model_ready", signature, (name, version), args, kwargs)
    return bool(_ask("Failed to check model readiness: ", "is_ready", model=name, version=version)["ready"])


def get_model_dir(*args):
    """The directory of the model's file: that of the version, or one below it."""
    if args:
        raise incompatible("get_model_dir", "() -> str", args)
    return link.current.model_directory

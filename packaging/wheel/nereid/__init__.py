"""Nereid, an inference server with Triton's API: `serve` starts one of functions or of a model repository; `model` makes a function a model."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from nereid._server import Server, ServerError, serve

if TYPE_CHECKING:
    from nereid._model import Model, model
    from nereid._signature import Tensor

__all__ = ["Model", "Server", "ServerError", "Tensor", "model", "serve"]


def __getattr__(name: str) -> Any:
    # numpy is needed for functions only, and takes most of the time of an import.
    if name in ("Model", "model"):
        from nereid import _model

        return getattr(_model, name)
    if name == "Tensor":
        from nereid._signature import Tensor

        return Tensor
    raise AttributeError(f"module 'nereid' has no attribute '{name}'")


try:
    __version__ = version("nereid-server")
except PackageNotFoundError:  # The files are used without being installed.
    __version__ = "unknown"

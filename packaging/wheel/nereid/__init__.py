"""Nereid, an inference server with Triton's API: `serve` starts one for a test or a notebook."""

from importlib.metadata import PackageNotFoundError, version

from nereid._server import Server, ServerError, serve

__all__ = ["Server", "ServerError", "serve"]

try:
    __version__ = version("nereid-server")
except PackageNotFoundError:  # The files are used without being installed.
    __version__ = "unknown"

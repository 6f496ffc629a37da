"""
Functions that run in this process: it is a runner of the server that it starts.

The server inherits one end of a socket, *control*. For each instance of a function five descriptors come through the other end (shm/README.md, "Many connections to one process"), and a thread
of this process serves them with the runtime of Python models. The server ends when this process does, and never ends it.

Each connection has a copy of the runtime under a name of its own: what is one per process there is one per connection here.
"""

from __future__ import annotations

import array
import importlib
import importlib.util
import itertools
import json
import os
import socket
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any, List, Mapping, Tuple

from nereid._command import build

_VARIABLE = "NEREID_INLINE"
_DESCRIPTORS = 5
_numbers = itertools.count()


class Inline:
    """`models`: for each name the class as in a `model.py`. The caller starts the server with `environment` and `pass_fds`, then calls `start`."""

    def __init__(self, models: Mapping[str, type]) -> None:
        self._models = models
        self._control, self._theirs = socket.socketpair()

    def environment(self) -> Mapping[str, str]:
        return {_VARIABLE: str(self._theirs.fileno())}

    @property
    def pass_fds(self) -> Tuple[int, ...]:
        return (self._theirs.fileno(),)

    def start(self) -> None:
        self._theirs.close()
        threading.Thread(target=self._accept, name="nereid-inline", daemon=True).start()

    def stop(self) -> None:
        self._theirs.close()
        self._control.close()

    def _accept(self) -> None:
        came: List[int] = []
        while True:
            try:
                number, ancillary, _, _ = self._control.recvmsg(1, socket.CMSG_SPACE(4), getattr(socket, "MSG_CMSG_CLOEXEC", 0))
            except OSError:
                return
            if not number:
                return
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    came += array.array("i", data[: len(data) - len(data) % 4])
            if len(came) == _DESCRIPTORS:
                threading.Thread(target=_serve, args=(self._models, *came), name="nereid-inline", daemon=True).start()
                came = []


def _serve(models: Mapping[str, type], work_fd: int, side_fd: int, requests_fd: int, responses_fd: int, flags_fd: int) -> None:
    """Serves one connection until the server closes it."""
    runtime = _Runtime()
    protocol, arena = runtime.module("_protocol"), runtime.module("arena")
    channel, run, server = runtime.module("channel"), runtime.module("run"), runtime.module("server")
    with socket.socket(fileno=work_fd) as work_socket, socket.socket(fileno=side_fd) as side_socket:
        work, side = channel.Work(work_socket), channel.Side(side_socket)
        _, frame, version, _, model, instance = work.peek()
        if frame != protocol.FRAME_LOAD or version != protocol.VERSION:
            body = json.dumps({"text": f"the server speaks version {version} of the runner protocol, this package {protocol.VERSION}"}).encode()
            return work.send(protocol.HEADER.pack(len(body), protocol.FRAME_FAILED, protocol.VERSION, 0, model, instance) + body)
        _, buf, start, end = work.read()
        told = json.loads(bytes(buf[start:end]))
        runtime.module("wire").instance = model, instance
        sizes = told["segments"]
        segments = arena.mapped(requests_fd, sizes["request"]), arena.mapped(responses_fd, sizes["response"]), arena.mapped_to_read(flags_fd, sizes["slots"])
        # As `load` of the runtime, which imports a model.py.
        run.load = lambda _: type("TritonPythonModel", (models[told["model"]],), {"utils": runtime.utils()})
        run.run(server.listening(work, side, told, segments), told)


class _Runtime:
    """A copy of the package `nereid_runner`."""

    def __init__(self) -> None:
        directory = os.path.join(build(), "crates", "backend-python", "runtime", "nereid_runner")
        self._name = f"_nereid_runner_{next(_numbers)}"
        if not os.path.isdir(directory):
            raise FileNotFoundError(f"there is no runtime of Python models at {directory}: {build()} is not a build of nereid")
        spec = importlib.util.spec_from_file_location(self._name, os.path.join(directory, "__init__.py"), submodule_search_locations=[directory])
        assert spec is not None and spec.loader is not None, "the file ends in .py"
        package = importlib.util.module_from_spec(spec)
        sys.modules[self._name] = package
        spec.loader.exec_module(package)
        # A runner ends with its connection. Here its thread does: SystemExit in a thread prints nothing.
        for name in ("channel", "server"):
            self.module(name).os = _Os()

    def module(self, name: str) -> Any:
        return importlib.import_module(f"{self._name}.{name}")

    def utils(self) -> SimpleNamespace:
        """What the classes of `_runner` use of `triton_python_backend_utils`, of this copy."""
        response = self.module("response")
        return SimpleNamespace(
            InferenceResponse=response.InferenceResponse, TritonError=response.TritonError, Tensor=self.module("tensor").Tensor, TRITONSERVER_RESPONSE_COMPLETE_FINAL=1
        )


class _Os(ModuleType):
    """The module `os`, whose `_exit` ends the thread."""

    def __init__(self) -> None:
        super().__init__("os")

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def _exit(code: int) -> None:
        raise SystemExit(code)

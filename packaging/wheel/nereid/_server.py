"""
A server of functions or of a model repository: a process of its own on free ports of loopback.

The server says by the protocol of `sd_notify` that it is ready and which ports it has. Its log is not read for that: flags change its form.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any, Callable, Iterator, List, Mapping, Protocol, Sequence, Union

from nereid._command import command, environment

StrPath = Union[str, "os.PathLike[str]"]
Value = Union[str, int, float, "os.PathLike[str]"]
Flag = Union[Value, Sequence[Value], None]

_EXIT_TIMEOUT_S = 30
# Of flags that the caller does not give. Nothing waits for a load balancer here, so the grace after SIGTERM is left out.
_DEFAULTS: Mapping[str, Flag] = {
    "http_address": "127.0.0.1",
    "http_port": 0,
    "grpc_address": "127.0.0.1",
    "grpc_port": 0,
    "metrics_address": "127.0.0.1",
    "metrics_port": 0,
    "exit_timeout_secs": _EXIT_TIMEOUT_S,
    "exit_grace_secs": 0,
}
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}

_POLL_S = 0.05
# What the server may take to end beyond --exit-timeout-secs, before it is killed.
_EXIT_MARGIN_S = 10.0
_MESSAGE_BYTES_MAX = 65536
_TAIL_LINES = 40
_ENDED = "the server ended by itself, with exit code {}"
_REASON_LINES = 10
# A line of an error in the log, in either form, or the last line of a start that failed.
_ERROR = re.compile(r'E\d{4} |error: |\{"time":"[^"]*","level":"error"')
# Kept of the log of a server that has ended.
_LOG_BYTES_MAX = 1 << 20
# The name of a Unix socket has 107 bytes at most.
_DIRECTORY_BYTES_MAX = 80


class Models(Protocol):
    """Models that a server is started for."""

    def write(self, directory: str) -> Any:
        """Writes their repository; returns the `Inline` that runs those of this process, or None."""


class ServerError(RuntimeError):
    """The server failed to start, or ended by itself while it was used. The message has the errors of its log, then its last lines."""

    def __init__(self, message: str, log: str, returncode: int | None) -> None:
        # Tables are wide, and their errors have lines of their own.
        lines = [line for line in log.rstrip().splitlines() if not line.startswith(("+-", "| "))]
        super().__init__("\n".join([f"{message}.", *error_lines(lines), "The end of its log:", *lines[-_TAIL_LINES:]]))
        self.log = log
        #: Exit code of the process, negative for a signal; None if it had to be stopped.
        self.returncode = returncode


def error_lines(lines: Sequence[str]) -> List[str]:
    """The last errors of a log."""
    return [line for line in lines if _ERROR.match(line)][-_REASON_LINES:]


class Server:
    """A running server, made by `serve`. Ends with the `with` block, with `stop`, and when the interpreter exits."""

    def __init__(
        self,
        words: Sequence[str],
        variables: Mapping[str, str],
        flags: Mapping[str, Flag],
        start_timeout_s: float,
        models: Models | None = None,
    ) -> None:
        self._flags = flags
        self._inline = None
        # A process that was forked from this one must not stop the server.
        self._owner = os.getpid()
        self._kept_log: str | None = None
        self._is_stopping = False
        temporary = tempfile.gettempdir()
        self._directory = tempfile.mkdtemp(prefix="nereid-", dir="/tmp" if len(os.fsencode(temporary)) > _DIRECTORY_BYTES_MAX else temporary)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            notify = os.path.join(self._directory, "notify")
            self._notify.bind(notify)
            if models is not None:
                repository = os.path.join(self._directory, "models")
                self._inline = models.write(repository)
                words = [*words, f"--model-repository={repository}"]
                if self._inline is not None:
                    variables = {**variables, **self._inline.environment()}
            with open(self._log_path, "wb") as log:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**variables, "NOTIFY_SOCKET": notify},
                    # An interrupted cell of a notebook, or Ctrl-C during a test, must not end the server before the block does.
                    start_new_session=True,
                    pass_fds=() if self._inline is None else self._inline.pass_fds,
                )
            if self._inline is not None:
                self._inline.start()
        except BaseException:
            self._remove()
            raise
        atexit.register(self.stop)
        try:
            self._ports = self._wait_ready(start_timeout_s)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Id of the server's process."""
        return self._process.pid

    @property
    def http_address(self) -> str:
        """`host:port` of HTTP, as `tritonclient.http.InferenceServerClient` takes it."""
        return self._address("http")

    @property
    def grpc_address(self) -> str:
        """`host:port` of gRPC, as `tritonclient.grpc.InferenceServerClient` takes it."""
        return self._address("grpc")

    @property
    def http_url(self) -> str:
        """Address of HTTP with its scheme, such as `http://127.0.0.1:40123`."""
        return f"{'https' if _is_on(self._flags, 'http_use_ssl') else 'http'}://{self.http_address}"

    @property
    def grpc_url(self) -> str:
        """Address of gRPC with its scheme, `grpc` or, with TLS, `grpcs`."""
        return f"{'grpcs' if _is_on(self._flags, 'grpc_use_ssl', 'grpc_use_ssl_mutual') else 'grpc'}://{self.grpc_address}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus metrics are read: `http://127.0.0.1:40125/metrics`."""
        return f"http://{self._address('metrics')}/metrics"

    @property
    def log(self) -> str:
        """What the server has written so far; the last MiB of it after the server has ended."""
        if self._kept_log is not None:
            return self._kept_log
        with open(self._log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def stop(self) -> int | None:
        """
        Ends the server and returns its exit code: SIGTERM, time for requests in flight, and SIGKILL if it still runs then.

        Does nothing for a server that has ended. In a process that was forked from the one that started it, nothing either, and returns None.
        """
        if os.getpid() != self._owner:
            return None
        if self._kept_log is None:
            self._is_stopping = True
            timeout_s = self._flags["exit_timeout_secs"]
            self._process.terminate()
            try:
                self._process.wait((timeout_s if isinstance(timeout_s, (int, float)) else _EXIT_TIMEOUT_S) + _EXIT_MARGIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._inline is not None:
                self._inline.stop()
            self._kept_log = self.log[-_LOG_BYTES_MAX:]
            self._remove()
            atexit.unregister(self.stop)
        return self._process.returncode

    def wait(self) -> None:
        """
        Waits until the server has ended: by `stop` in another thread, or by itself.

        Raises ServerError if it ended by itself and its exit code is not 0.
        """
        code = self._process.wait()
        if code != 0 and not self._is_stopping:
            raise ServerError(_ENDED.format(code), self.log, code)

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = os.getpid() == self._owner and self._kept_log is None and not self.is_alive()
        code = self.stop()
        # An exception of the block says more than its consequence here.
        if ended and code != 0 and kind is None:
            raise ServerError(_ENDED.format(code), self.log, code)

    def __repr__(self) -> str:
        return f"<nereid.Server pid={self.pid} {'running' if self.is_alive() else 'ended'}>"

    @property
    def _log_path(self) -> str:
        return os.path.join(self._directory, "log")

    def _wait_ready(self, timeout_s: float) -> dict[str, int]:
        deadline = time.monotonic() + timeout_s
        self._notify.settimeout(_POLL_S)
        while True:
            # Looked at before the message: what a server said before it ended is still read.
            code = self._process.poll()
            try:
                told = self._notify.recv(_MESSAGE_BYTES_MAX).decode()
            except socket.timeout:
                told = ""
            fields = dict(line.partition("=")[::2] for line in told.splitlines())
            if fields.get("READY") == "1":
                ports: dict[str, int] = json.loads(fields["X_NEREID_PORTS"])
                return ports
            if code is not None and told == "":
                raise ServerError(f"the server did not start, exit code {code}", self.log, code)
            if time.monotonic() > deadline:
                raise ServerError(f"the server was not ready within {timeout_s:g} s", self.log, None)

    def _address(self, service: str) -> str:
        host = str(self._flags[f"{service}_address"] or "")
        if host.startswith("unix:"):
            return host
        port = self._ports[service]
        if port == 0:
            raise RuntimeError(f"the server has no port for {service}: its flags close it")
        host = _ANY_ADDRESS.get(host, host)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _remove(self) -> None:
        self._notify.close()
        shutil.rmtree(self._directory, ignore_errors=True)


class Functions:
    """Functions to serve. `inline`: True for those in this process, None for those that no other process could import."""

    def __init__(self, given: Sequence[Any], inline: bool | None) -> None:
        from nereid._model import as_model

        self.models = [as_model(one) for one in given]
        #: Where another process finds each; None for those that run in this one.
        self.places = [None if inline else one.place() for one in self.models]
        if inline is False and None in self.places:
            name = self.models[self.places.index(None)].name
            raise ValueError(f"'{name}' is in no file that another process could import, as in a notebook: leave out inline=False")

    def write(self, directory: str) -> Any:
        from nereid import _repository

        _repository.write(directory, self.models, self.places)
        inline = [model for model, place in zip(self.models, self.places) if place is None]
        if not inline:
            return None
        from nereid._inline import Inline
        from nereid._runner import model_class

        return Inline({model.name: model_class(model) for model in inline})


def serve(
    *what: StrPath | Sequence[StrPath] | Callable[..., Any],
    start_timeout_s: float = 300.0,
    env: Mapping[str, str] | None = None,
    inline: bool | None = None,
    **flags: Flag,
) -> Server:
    """
    Starts a server on free ports of loopback, waits until it is ready, and returns it.

    `what`: functions and classes, decorated by `model` or with type hints that say what they take; and paths of model repositories. A function runs in a process of
    its own, which imports its file; with `inline=True` in this process, as does one that is in no file.

    `flags` are those of the command line with underscores: `log_verbose=1` is `--log-verbose=1`, a sequence gives a flag several times, and None leaves
    one out. `env` adds variables to those of this process. The server ends with the `with` block, with `Server.stop`, or when the interpreter exits; an
    interpreter that is killed by a signal leaves it running, unless a function runs in it.

    Raises ServerError with the end of the log if the server does not start or is not ready within `start_timeout_s`, and FileNotFoundError if the package
    with Node is not installed.

        with nereid.serve("models") as server:
            client = tritonclient.http.InferenceServerClient(server.http_address)
    """
    _stop_import()
    repositories: List[Value] = []
    given = []
    for one in [*what, *_several(flags.pop("model_repository", None))]:
        if callable(one):
            given.append(one)
        else:
            repositories += _several(one)
    every: dict[str, Flag] = {**_DEFAULTS, **flags, "model_repository": repositories}
    # The socket and the sockets of a service manager that started this process are not the server's.
    variables = {name: value for name, value in environment().items() if not name.startswith(("LISTEN_", "WATCHDOG_"))}
    functions = Functions(given, inline) if given else None
    return Server([*command(), *_arguments(every)], {**variables, **(env or {})}, every, start_timeout_s, functions)


def _stop_import() -> None:
    """In the process of a model, which imports the file for its functions, ends that import."""
    import sys

    runner = sys.modules.get("nereid._runner")
    if runner is not None and runner.is_importing:
        raise runner.Reached


def _several(value: Any) -> List[Any]:
    return [] if value is None else [value] if isinstance(value, (str, int, float, os.PathLike)) else list(value)


def _arguments(flags: Mapping[str, Flag]) -> Iterator[str]:
    for name, value in flags.items():
        for one in _several(value):
            text = str(one).lower() if isinstance(one, bool) else str(os.fspath(one) if isinstance(one, os.PathLike) else one)
            yield f"--{name.replace('_', '-')}={text}"


def _is_on(flags: Mapping[str, Flag], *names: str) -> bool:
    return any(str(flags.get(name, False)).lower() in ("true", "on", "1") for name in names)

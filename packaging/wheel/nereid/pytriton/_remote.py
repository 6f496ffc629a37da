"""
Functions of another program: `RemoteTriton` hands them to the program that started the server, over a Unix socket whose name has the server's port.

A model has a connection for each instance. The one who binds sends `_Bind`, then `(number, requests)` comes for each call, and `(number, kind, value)` goes back for each result.
The access token of the server authenticates both sides, since they unpickle what they get.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import queue
import socket
import tempfile
import threading
import traceback
import uuid
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing import AuthenticationError
from typing import Any, AsyncGenerator, Callable, Dict, List, Optional, Sequence
from urllib.parse import urlsplit

from nereid.pytriton._bound import each
from nereid.pytriton.exceptions import PyTritonRuntimeError, PyTritonUnrecoverableError
from nereid.pytriton.model_config.triton_model_config import TritonModelConfig

LOGGER = logging.getLogger("nereid.pytriton")
_HTTP_PORT, _GRPC_PORT = 8000, 8001
# The name of a Unix socket has 107 bytes at most.
_DIRECTORY_BYTES_MAX = 70
_RESULT, _END, _ERROR, _UNRECOVERABLE = range(4)
#: Number of the message that has the error of a load, or None.
_LOADED = -1


@dataclass
class _Bind:
    """`key`: the same for all connections of a model, of which there are `count`."""

    key: str
    config: TritonModelConfig
    is_strict: bool
    count: int


class _Model:
    def __init__(self) -> None:
        self.functions: List[_Far] = []
        self.is_loaded = False


def path_of(port: int) -> str:
    """The socket of the server that has this port."""
    temporary = tempfile.gettempdir()
    directory = os.path.join("/tmp" if len(os.fsencode(temporary)) > _DIRECTORY_BYTES_MAX else temporary, f"nereid-pytriton-{os.getuid()}")
    os.makedirs(directory, 0o700, exist_ok=True)
    # In a directory that all users share, another one could have made it to get what is sent.
    if os.stat(directory).st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user")
    return os.path.join(directory, str(port))


def port_of(url: str) -> int:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return parts.port or (_GRPC_PORT if parts.scheme == "grpc" else _HTTP_PORT)


def connect(port: int, key: bytes) -> Connection:
    """Raises ConnectionError if there is no program of the server, and PyTritonRuntimeError if its token is another one."""
    try:
        return Client(path_of(port), "AF_UNIX", authkey=key)
    except AuthenticationError:
        raise PyTritonRuntimeError("the access token is not that of the server: give RemoteTriton its access_token") from None
    except OSError as error:
        raise ConnectionError(f"no program of this machine and user serves with nereid.pytriton on port {port}: {error}") from None


class Broker:
    """In the program of the server: binds what comes. `load` binds functions, `unload` ends a model."""

    def __init__(
        self,
        ports: Sequence[int],
        key: bytes,
        load: Callable[[TritonModelConfig, List[Callable[..., Any]], bool], None],
        unload: Callable[[str], None],
    ) -> None:
        self._key, self._load, self._unload = key, load, unload
        self._lock = threading.Lock()
        self._models: Dict[str, _Model] = {}
        self._paths = [path_of(port) for port in ports]
        for path in self._paths:
            if os.path.lexists(path):
                # Of a program that was killed: this one has the port now.
                os.unlink(path)
        self._listener = Listener(self._paths[0], "AF_UNIX", authkey=key)
        for path in self._paths[1:]:
            os.symlink(self._paths[0], path)
        self._is_closed = False
        threading.Thread(target=self._accept, name="nereid-remote", daemon=True).start()

    def close(self) -> None:
        self._is_closed = True
        # Ends the thread, which waits for a connection.
        try:
            Client(self._paths[0], "AF_UNIX", authkey=self._key).close()
        except OSError:
            pass
        self._listener.close()
        for path in self._paths[1:]:
            os.unlink(path)
        with self._lock:
            for model in self._models.values():
                for far in model.functions:
                    far.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection = self._listener.accept()
            except Exception as error:
                # Of one connection: a wrong token, or a client that went away.
                LOGGER.warning("a remote program was rejected: %s", error)
                continue
            if not self._is_closed:
                threading.Thread(target=self._serve, args=(connection,), name="nereid-remote", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        try:
            told = connection.recv()
        except (EOFError, OSError):
            return
        far = _Far(connection)
        with self._lock:
            model = self._models.setdefault(told.key, _Model())
            model.functions.append(far)
            is_last = len(model.functions) == told.count
        if is_last:
            # This thread reads meanwhile: a warm-up calls the functions.
            threading.Thread(target=self._bind, args=(told, model, far), name="nereid-remote", daemon=True).start()
        far.read()
        with self._lock:
            is_loaded, model.is_loaded = model.is_loaded, False
            self._models.pop(told.key, None)
        if is_loaded and not self._is_closed:
            LOGGER.info("the program of '%s' has ended, the model is unloaded", told.config.model_name)
            self._unload(told.config.model_name)

    def _bind(self, told: _Bind, model: _Model, far: _Far) -> None:
        try:
            self._load(told.config, [one.call for one in model.functions], told.is_strict)
            model.is_loaded, text = True, None
        except Exception as error:
            text = str(error)
        far.send((_LOADED, text))


class _Far:
    """A function at the other end of a connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()
        self._numbers = itertools.count()
        self._calls: Dict[int, Callable[[Any], Any]] = {}

    def send(self, message: Any) -> None:
        with self.lock:
            self.connection.send(message)

    def close(self) -> None:
        """Ends `read`, which `Connection.close` does not."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as one:
            one.shutdown(socket.SHUT_RDWR)

    def read(self) -> None:
        """Until the connection ends."""
        while True:
            try:
                number, kind, value = self.connection.recv()
            except (EOFError, OSError):
                break
            call = self._calls.get(number)
            if call is not None:
                call((kind, value))
        for call in list(self._calls.values()):
            call((_ERROR, "the program of the function has ended"))

    async def call(self, requests: Any) -> AsyncGenerator[Any, None]:
        """As a bound function."""
        loop = asyncio.get_running_loop()
        results: asyncio.Queue[Any] = asyncio.Queue()
        number = next(self._numbers)
        self._calls[number] = lambda message: loop.call_soon_threadsafe(results.put_nowait, message)
        try:
            self.send((number, requests))
            while True:
                kind, value = await results.get()
                if kind == _END:
                    return
                if kind == _RESULT:
                    yield value
                else:
                    raise (PyTritonUnrecoverableError if kind == _UNRECOVERABLE else PyTritonRuntimeError)(value)
        finally:
            del self._calls[number]


class Remote:
    """A bound model, in the program that has its functions."""

    def __init__(self, port: int, key: bytes, config: TritonModelConfig, functions: Sequence[Callable[..., Any]], is_strict: bool, on_end: Callable[[], None]) -> None:
        """Returns when the model is loaded. Raises PyTritonRuntimeError if that fails, and as `connect`. `on_end`: the program of the server has ended."""
        self._on_end = on_end
        self._is_closed = False
        self._loaded: queue.Queue[Optional[str]] = queue.Queue()
        self._connections: List[Connection] = []
        told = _Bind(uuid.uuid4().hex, config, is_strict, len(functions))
        try:
            for function in functions:
                connection = connect(port, key)
                self._connections.append(connection)
                connection.send(told)
                threading.Thread(target=self._read, args=(connection, function), name="nereid-remote", daemon=True).start()
        except BaseException:
            self.close()
            raise
        text = self._loaded.get()
        if text is not None:
            self.close()
            raise PyTritonRuntimeError(text)

    def close(self) -> None:
        self._is_closed = True
        for connection in self._connections:
            _Far(connection).close()

    def _read(self, connection: Connection, function: Callable[..., Any]) -> None:
        lock = threading.Lock()

        def send(*message: Any) -> None:
            # A program of the server that has ended is noticed where it is read.
            with lock, contextlib.suppress(OSError):
                connection.send(message)

        async def answer(number: int, requests: Any) -> None:
            try:
                async for result in each(function(requests)):
                    send(number, _RESULT, result)
                send(number, _END, None)
            except BaseException as error:  # noqa: B036  the loop and the other calls go on
                text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
                send(number, _UNRECOVERABLE if isinstance(error, PyTritonUnrecoverableError) else _ERROR, text)

        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="nereid-async", daemon=True).start()
        try:
            while True:
                number, value = connection.recv()
                if number == _LOADED:
                    self._loaded.put(value)
                else:
                    asyncio.run_coroutine_threadsafe(answer(number, value), loop)
        except (EOFError, OSError):
            pass
        loop.call_soon_threadsafe(loop.stop)
        self._loaded.put("the program of the server has ended")
        if not self._is_closed:
            self._on_end()

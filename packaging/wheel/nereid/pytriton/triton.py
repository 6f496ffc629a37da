"""`Triton`: functions are bound and served by a server that this program starts."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from nereid._command import command, environment
from nereid._inline import Inline
from nereid._repository import INLINE_CODE, write_model
from nereid._server import Server, _arguments, error_lines
from nereid.pytriton._bound import bound_class
from nereid.pytriton._config import pbtxt, specs
from nereid.pytriton._context import TritonContext, inject
from nereid.pytriton._remote import Broker, Remote, connect, port_of
from nereid.pytriton.exceptions import PyTritonInvalidOperationError, PyTritonRuntimeError, PyTritonValidationError
from nereid.pytriton.model_config.common import DeviceKind, ModelConfig, Tensor
from nereid.pytriton.model_config.triton_model_config import ResponseCache, TritonModelConfig

LOGGER = logging.getLogger("nereid.pytriton")
TRITON_ACCESS_HEADER = "triton-access-token"
_ENDPOINTS = ("health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace", "logging")
_PROTECTED = ["shared-memory", "model-repository", "statistics", "trace", "logging"]
_DEFAULTS = {"http_address": "0.0.0.0", "grpc_address": "0.0.0.0", "metrics_address": "0.0.0.0", "exit_timeout_secs": 30, "exit_grace_secs": 0}
_VARIABLES = "PYTRITON_TRITON_CONFIG_"
_START_TIMEOUT_S = 300.0
_LOAD_TIMEOUT_S = 300.0


class TritonConfig:
    """Flags of the server, with underscores: `TritonConfig(http_port=9000)`. None is the server's default."""

    def __init__(self, **flags: Any) -> None:
        self.flags = {name: value for name, value in flags.items() if value is not None}
        if self.allow_http not in (True, None) and self.allow_grpc not in (True, None):
            raise PyTritonValidationError("The `http` or `grpc` endpoint has to be allowed.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "flags":
            raise AttributeError(name)
        return self.flags.get(name)

    def to_dict(self) -> Dict[str, Any]:
        return dict(self.flags)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> TritonConfig:
        return cls(**config)

    @classmethod
    def from_env(cls) -> TritonConfig:
        """Of variables such as PYTRITON_TRITON_CONFIG_GRPC_PORT; a number at the end, as in …_CACHE_CONFIG_0, makes a list."""
        flags: Dict[str, Any] = {}
        lists: Dict[str, Dict[int, str]] = {}
        for variable, value in os.environ.items():
            if variable.startswith(_VARIABLES):
                name = variable[len(_VARIABLES) :].lower()
                numbered = re.fullmatch(r"(.+?)_(\d+)", name)
                if numbered:
                    lists.setdefault(numbered[1], {})[int(numbered[2])] = value
                else:
                    flags[name] = {"true": True, "false": False}.get(value.lower(), value)
        return cls(**flags, **{name: [found[i] for i in sorted(found)] for name, found in lists.items()})


@dataclass
class TritonLifecyclePolicy:
    """`launch_triton_on_startup`: the `with` statement starts the server. `local_model_store`: models are written before it starts."""

    launch_triton_on_startup: bool = True
    local_model_store: bool = False


@dataclass
class TritonSecurityConfig:
    """The endpoints that need the header `triton-access-token`, by default those that change or watch the server; without a token a random one."""

    access_token: Optional[str] = None
    restricted_endpoints: Optional[List[str]] = None

    def __post_init__(self) -> None:
        if self.restricted_endpoints is None:
            self.restricted_endpoints = list(_PROTECTED)
        unknown = sorted(set(self.restricted_endpoints) - set(_ENDPOINTS))
        if unknown:
            raise PyTritonValidationError(f"Invalid endpoint names: {', '.join(unknown)}. Valid endpoints are: {', '.join(sorted(_ENDPOINTS))}")
        if self.access_token is None and self.restricted_endpoints:
            self.access_token = secrets.token_urlsafe(32)

    def rule(self) -> Optional[str]:
        """The value of --http-restricted-api."""
        if not (self.access_token and self.restricted_endpoints):
            return None
        return f"{','.join(self.restricted_endpoints)}:{TRITON_ACCESS_HEADER}={self.access_token}"

    def key(self) -> bytes:
        return (self.access_token or "").encode()


def _model(
    model_name: str,
    infer_func: Union[Callable[..., Any], Sequence[Callable[..., Any]]],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    model_version: int,
    config: Optional[ModelConfig],
) -> Tuple[TritonModelConfig, List[Callable[..., Any]]]:
    if not model_name:
        raise PyTritonValidationError("Model name cannot be empty")
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", model_name):
        raise PyTritonValidationError("Model name can only contain alphanumeric characters, dots, underscores and dashes")
    if not callable(infer_func) and not isinstance(infer_func, Sequence):
        raise PyTritonValidationError("inference_fn has to be either callable or sequence of callables")
    if any(output.optional for output in outputs):
        raise PyTritonValidationError("Output tensors cannot be optional.")
    functions = [infer_func] if callable(infer_func) else list(infer_func)
    config = config or ModelConfig()
    made = TritonModelConfig(
        model_name=model_name,
        model_version=model_version,
        max_batch_size=config.max_batch_size,
        batching=config.batching,
        batcher=config.batcher,
        instance_group={DeviceKind.KIND_CPU: len(functions)},
        decoupled=config.decoupled,
        inputs=specs(inputs, "INPUT"),
        outputs=specs(outputs, "OUTPUT"),
        response_cache=ResponseCache(True) if config.response_cache else None,
        model_warmup=config.model_warmup,
    )
    return made, functions


class Models:
    """The bound functions, by the name of their model; as `nereid._server.Models`."""

    def __init__(self, on_unrecoverable: Callable[[BaseException], None]) -> None:
        self._on_unrecoverable = on_unrecoverable
        self._context = TritonContext()
        self._configs: Dict[str, TritonModelConfig] = {}
        self._classes: Dict[str, type] = {}
        self._directory: Optional[str] = None

    def add(self, config: TritonModelConfig, functions: Sequence[Callable[..., Any]], is_strict: bool) -> None:
        """Raises PyTritonInvalidOperationError for a second model of a name."""
        if any(name.lower() == config.model_name.lower() for name in self._configs):
            raise PyTritonInvalidOperationError("Cannot add model with the same name twice.")
        text = pbtxt(config)
        for function in functions:
            self._context.model_configs[function] = config
            inject(self._context, function)
        self._configs[config.model_name] = config
        self._classes[config.model_name] = bound_class(functions, config, is_strict, self._on_unrecoverable)
        if self._directory is not None:
            write_model(self._directory, config.model_name, text, INLINE_CODE, config.model_version)

    def remove(self, name: str) -> None:
        del self._configs[name], self._classes[name]

    def write(self, directory: str) -> Inline:
        self._directory = directory
        os.makedirs(directory, exist_ok=True)
        for name, config in self._configs.items():
            write_model(directory, name, pbtxt(config), INLINE_CODE, config.model_version)
        # Models that are added later are found in the same dict.
        return Inline(self._classes)


class Triton:
    """
    Serves the bound functions until `stop`. A `with` statement starts the server, and what is bound in it is served at once; else `run` or `serve` starts it.

    `workspace` is not used: the model repository is a temporary directory.
    """

    def __init__(
        self,
        *,
        config: Optional[TritonConfig] = None,
        workspace: Any = None,
        triton_lifecycle_policy: Optional[TritonLifecyclePolicy] = None,
        security_config: Optional[TritonSecurityConfig] = None,
    ) -> None:
        flags = {**_DEFAULTS, **TritonConfig.from_env().flags, **(config.flags if config else {})}
        is_vertex = bool(config is not None and config.allow_vertex_ai)
        self._policy = triton_lifecycle_policy or TritonLifecyclePolicy(not is_vertex, is_vertex)
        self._security = security_config or TritonSecurityConfig()
        rule = self._security.rule()
        for flag in ("http_restricted_api", "grpc_restricted_protocol") if rule else ():
            given = flags.get(flag, [])
            flags[flag] = [*([given] if isinstance(given, str) else given), rule]
        # A model that is bound later is loaded by a request over HTTP.
        self._loads = flags.get("allow_http", True) is True and not self._policy.local_model_store
        self._flags = {"model_control_mode": "explicit", "load_model": "*", **flags}
        self._models = Models(self._stop_for)
        self._lock = threading.RLock()
        self._broker: Optional[Broker] = None
        self.server: Optional[Server] = None

    def bind(
        self,
        model_name: str,
        infer_func: Union[Callable[..., Any], Sequence[Callable[..., Any]]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        model_version: int = 1,
        config: Optional[ModelConfig] = None,
        strict: bool = False,
        trace_config: Optional[List[str]] = None,
    ) -> None:
        """
        `infer_func`: of a list, each function is an instance. With `strict` names, types and shapes of results are compared with `outputs`; without it types are converted,
        and other names are dropped. `trace_config` has no effect here.

        Raises PyTritonValidationError, PyTritonBadParameterError, PyTritonInvalidOperationError for a second model of a name, and PyTritonRuntimeError if a load fails.
        """
        made, functions = _model(model_name, infer_func, inputs, outputs, model_version, config)
        self._bind(made, functions, strict)

    def _bind(self, made: TritonModelConfig, functions: Sequence[Callable[..., Any]], strict: bool) -> None:
        with self._lock:
            if self.server is not None and not self._loads:
                raise PyTritonInvalidOperationError(f"'{made.model_name}' is bound while the server runs, which loads models over HTTP only: bind it before")
            self._models.add(made, functions, strict)
            if self.server is not None:
                try:
                    self._load(made.model_name)
                except BaseException:
                    self._models.remove(made.model_name)
                    raise

    def run(self) -> None:
        """Starts the server, if it does not run, and waits until it is ready."""
        with self._lock:
            if self.server is None:
                self.server = Server([*command(), *_arguments(self._flags)], environment(), self._flags, _START_TIMEOUT_S, self._models)
                # Remote programs bind what is loaded over HTTP, too.
                if self._loads:
                    self._broker = self._broker_of(self.server)

    def _broker_of(self, server: Server) -> Optional[Broker]:
        services = ["http", "grpc"] if self._flags.get("allow_grpc", True) is True else ["http"]
        try:
            return Broker([port_of(getattr(server, f"{one}_address")) for one in services], self._security.key(), self._bind, self._unload)
        except OSError as error:
            LOGGER.warning("remote programs cannot bind functions: %s", error)
            return None

    connect = run

    def serve(self, monitoring_period_s: float = 10.0) -> None:
        """
        As `run`, then waits for `stop`, for an interrupt or for the server's end. `monitoring_period_s` has no effect: an end is noticed at once.

        Raises ServerError with the exit code and the end of the log if the server fails.
        """
        self.run()
        server = self.server
        try:
            if server is not None:
                server.wait()
            if self.server is server:
                LOGGER.warning("the server ended by itself, with exit code 0")
        except KeyboardInterrupt:
            LOGGER.info("SIGINT received, exiting.")
        finally:
            self.stop()

    def stop(self) -> bool:
        """Ends the server and forgets what is bound. False if it does not run."""
        with self._lock:
            server, self.server = self.server, None
            if server is None:
                return False
            self._models = Models(self._stop_for)
            broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()
        server.stop()
        return True

    def is_alive(self) -> bool:
        server = self.server
        return server is not None and server.is_alive()

    def is_connected(self) -> bool:
        return self.server is not None

    def get_access_token(self) -> Optional[str]:
        return self._security.access_token

    def __enter__(self) -> Triton:
        if self._policy.launch_triton_on_startup and self._loads:
            self.run()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _unload(self, name: str) -> None:
        with self._lock:
            if self.server is not None:
                self._models.remove(name)
                self._control(name, "unload")

    def _load(self, name: str) -> None:
        self._control(name, "load")

    def _control(self, name: str, what: str) -> None:
        assert self.server is not None, "called while it runs"
        request = urllib.request.Request(f"{self.server.http_url}/v2/repository/models/{name}/{what}", b"{}", {"Content-Type": "application/json"})
        if self._security.access_token is not None:
            request.add_header(TRITON_ACCESS_HEADER, self._security.access_token)
        # No proxy: the server is this machine's.
        before = len(self.server.log)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            opener.open(request, timeout=_LOAD_TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            body = error.read().decode(errors="replace")
            try:
                body = json.loads(body)["error"]
            except (ValueError, KeyError, TypeError):
                pass
            # The response says only that the load failed; the log says why.
            reasons = error_lines(self.server.log[before:].splitlines())
            raise PyTritonRuntimeError("\n".join([f"'{name}' cannot be {what}ed: {body}", *reasons])) from None

    def _stop_for(self, error: BaseException) -> None:
        # In a thread of its own: the one of the instance, which calls this, has to answer its request.
        threading.Thread(target=self.stop, name="nereid-stop").start()


class RemoteTriton:
    """
    Serves functions of this program by the server that another one started, on this machine and as the same user.

    `url`: of the server's HTTP or gRPC. `access_token`: that of its `TritonSecurityConfig`. `workspace` is not used.
    """

    def __init__(self, url: str, workspace: Any = None, access_token: Optional[str] = None) -> None:
        self._port = port_of(url)
        self._key = (access_token or "").encode()
        self._bound: Dict[str, Tuple[TritonModelConfig, List[Callable[..., Any]], bool]] = {}
        self._remotes: List[Remote] = []
        self._is_connected = False
        self._ended = threading.Event()
        self._context = TritonContext()

    def bind(
        self,
        model_name: str,
        infer_func: Union[Callable[..., Any], Sequence[Callable[..., Any]]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        model_version: int = 1,
        config: Optional[ModelConfig] = None,
        strict: bool = False,
        trace_config: Optional[List[str]] = None,
    ) -> None:
        """As `Triton.bind`."""
        if model_name.lower() in self._bound:
            raise PyTritonInvalidOperationError("Cannot add model with the same name twice.")
        made, functions = _model(model_name, infer_func, inputs, outputs, model_version, config)
        for function in functions:
            self._context.model_configs[function] = made
            inject(self._context, function)
        if self._is_connected:
            self._load(made, functions, strict)
        self._bound[model_name.lower()] = made, functions, strict

    def connect(self) -> None:
        """Loads what is bound. Raises ConnectionError if no program serves there, and PyTritonRuntimeError if its token is another one."""
        if not self._is_connected:
            self._ended.clear()
            connect(self._port, self._key).close()
            for bound in self._bound.values():
                self._load(*bound)
            self._is_connected = True

    def serve(self, monitoring_period_s: float = 10.0) -> None:
        """As `connect`, then waits for `stop`, for an interrupt or for the end of the server's program."""
        self.connect()
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            LOGGER.info("SIGINT received, exiting.")
        finally:
            self.stop()

    def stop(self) -> bool:
        """Unloads what is bound and forgets it. False if it is not connected."""
        was_connected, self._is_connected = self._is_connected, False
        self._bound = {}
        remotes, self._remotes = self._remotes, []
        for remote in remotes:
            remote.close()
        self._ended.set()
        return was_connected

    def is_alive(self) -> bool:
        return not self._ended.is_set() and len(self._remotes) == len(self._bound)

    def is_connected(self) -> bool:
        return self._is_connected

    def __enter__(self) -> RemoteTriton:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _load(self, config: TritonModelConfig, functions: List[Callable[..., Any]], strict: bool) -> None:
        self._remotes.append(Remote(self._port, self._key, config, functions, strict, self._on_end))

    def _on_end(self) -> None:
        LOGGER.warning("the program of the server has ended")
        self._ended.set()

"""Nereid on Ray Serve: each replica starts one server, which listens on Unix sockets of its own, and passes requests on to it as they are.

    PYTHONPATH=docs/deploy/ray serve run docs/deploy/ray/serve.yaml

A request goes to a server once. It is given to the next server of the replica only when it could not be sent at all, or when a server that ends said
that it does not take it any more. Sequences, streams and requests with a compressed body never go to the next server. What was in flight on a server
that died is answered with an error.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import aiohttp
import grpc
from multidict import CIMultiDict
from ray import serve
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from yarl import URL

SERVICE = "inference.GRPCInferenceService"
# Those that change a server (loads, regions, settings) are left out: each would reach one replica of many.
UNARY = ["ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig", "ModelStatistics", "ModelInfer"]
STREAM = "ModelStreamInfer"

# What a server answers to an inference that it did not start, because it ends.
REFUSED = "Server exiting"
# The parameter of a request of a sequence, in JSON and in protobuf.
SEQUENCE = b"sequence_id"
# Headers of one connection: they are not passed on.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
NO_HEADERS_OF_ITS_OWN = ["User-Agent", "Accept", "Accept-Encoding", "Content-Type"]
# The server gets SIGTERM (15) when the replica dies (PR_SET_PDEATHSIG is 1), however that is.
LAUNCH = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.getppid() == int(sys.argv[1]) and os.execvp(sys.argv[2], sys.argv[2:])"


class Server:
    """One process of Nereid. `ready` is done when it serves, `leaving` when it takes nothing new, `ended` when it is gone."""

    def __init__(self, config: dict, home: str):
        loop = asyncio.get_running_loop()
        self.ready, self.leaving, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self._calls = 0
        http, grpc_address, notify = (os.path.join(home, name) for name in ("http", "grpc", "notify"))
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._notices.bind(notify)
        self._notify = notify
        loop.add_reader(self._notices.fileno(), self._read_notices)
        command = [*config.get("command", ["nereid"]), *config.get("arguments", [])]
        command += [f"--http-address=unix:{http}", f"--grpc-address=unix:{grpc_address}", "--allow-metrics=false", "--unix-socket-mode=0600"]
        environment = {**os.environ, **config.get("environment", {}), "NOTIFY_SOCKET": notify}
        self.process = subprocess.Popen([sys.executable, "-ISc", LAUNCH, str(os.getpid()), *command], env=environment, stdin=subprocess.DEVNULL)
        self._pidfd = os.pidfd_open(self.process.pid)
        loop.add_reader(self._pidfd, self._see_end)
        # A connection for each request: one that is kept could be closed while a request is sent over it.
        connector = aiohttp.UnixConnector(http, limit=0, force_close=True)
        self.http = aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout())
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0), ("grpc.client_idle_timeout_ms", 2**31 - 1)]
        self.channel = grpc.aio.insecure_channel(f"unix:{grpc_address}", options=options)

    def _read_notices(self) -> None:
        lines = self._notices.recv(65536).decode().splitlines()
        if "READY=1" in lines:
            # A server that ends goes on listening for a moment while somebody is connected to it: this is that connection.
            self.channel.get_state(try_to_connect=True)
            self.ready.set()
        if "STOPPING=1" in lines:
            self.leaving.set()

    def _see_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.process.wait()
        for event in (self.ready, self.leaving, self.ended, self.idle):
            event.set()

    @contextmanager
    def call(self):
        """Counts a request, to its last byte: connections are closed after it."""
        self._calls += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if self._calls == 0 or self.ended.is_set():
                self.idle.set()

    def takes(self) -> bool:
        return self.ready.is_set() and not self.leaving.is_set()

    async def close(self) -> None:
        """Waits for its graceful end, which SIGTERM began or begins now."""
        if not self.leaving.is_set():
            self.leaving.set()
            self.process.send_signal(signal.SIGTERM)
        await self.idle.wait()
        await self.http.close()
        await self.channel.close()
        await self.ended.wait()
        asyncio.get_running_loop().remove_reader(self._notices.fileno())
        self._notices.close()
        os.unlink(self._notify)


class Raw(bytes):
    """A message of gRPC as it came: Serve asks it for its bytes."""

    def SerializeToString(self) -> bytes:
        return bytes(self)


class Replica:
    """`config`: `arguments` of the server, its `command` (`["nereid"]`), and variables for its `environment`."""

    async def __init__(self, config: dict):
        self._config = config
        # Only this user may enter it.
        self._home = tempfile.mkdtemp(prefix="nereid-")
        self._is_over = False
        self._failed = None
        self._changed = asyncio.Event()
        self._server = Server(config, self._home)
        await self._server.ready.wait()
        if self._server.ended.is_set():
            raise RuntimeError(f"nereid ended with code {self._server.process.returncode} before it was ready: its lines are in the log of this replica")
        self._supervisor = asyncio.create_task(self._supervise())

    async def _supervise(self) -> None:
        """Starts the next server when the last one has ended; one that does not get ready leaves the replica to Serve, which replaces it."""
        while True:
            await self._server.leaving.wait()
            if self._is_over:
                return
            await self._server.close()
            self._server = Server(self._config, self._home)
            await self._server.ready.wait()
            if self._server.ended.is_set():
                self._failed = f"nereid ended with code {self._server.process.returncode} when it was started again"
            self._changed.set()
            self._changed = asyncio.Event()
            if self._failed is not None:
                return

    async def _serving(self) -> Server:
        while not self._server.takes():
            if self._failed is not None:
                raise RuntimeError(self._failed)
            await self._changed.wait()
        return self._server

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        scope = request.scope
        path = scope.get("raw_path", b"").decode("latin-1") or request.url.path
        path = path.removeprefix(scope.get("root_path", "")) or "/"
        query = scope["query_string"].decode("latin-1")
        url = URL(f"http://localhost{path}{'?' if query else ''}{query}", encoded=True)
        headers = CIMultiDict((name, value) for name, value in request.headers.items() if name not in HOP_BY_HOP | {"content-length"})
        length = request.headers.get("inference-header-content-length", "")
        # The state of a sequence is in one server, and a stream is never repeated. Raw tensors behind the JSON are not searched.
        # A compressed body may be of a sequence.
        is_encoded = "content-encoding" in request.headers
        is_once = is_encoded or path.endswith("/generate_stream") or SEQUENCE in (body[: int(length)] if length.isdecimal() else body)
        # Such a request does not come from this machine, whatever connection it comes over.
        headers.add("X-Forwarded-For", request.client.host if request.client else "unknown")
        while True:
            try:
                server = await self._serving()
            except RuntimeError as error:
                return self._error(503, str(error))
            held = server.call()
            held.__enter__()
            try:
                answer = await server.http.request(request.method, url, headers=headers, data=body or None, allow_redirects=False, skip_auto_headers=NO_HEADERS_OF_ITS_OWN)
                if answer.status != 503:
                    return self._stream(answer, held)
                text = await answer.read()
            except aiohttp.ClientConnectorError:
                # Nothing was sent: it is about to end, or to listen.
                held.__exit__(None, None, None)
                if is_once:
                    return self._error(503, "the server of this replica takes no connections, and sequences, streams and compressed requests are not sent to the next one")
                await asyncio.sleep(0.02)
                continue
            except (aiohttp.ClientError, OSError) as error:
                held.__exit__(None, None, None)
                return self._error(502, f"the server of this replica ended while it had the request, which was not sent again: {type(error).__name__}")
            except BaseException:
                held.__exit__(None, None, None)
                raise
            held.__exit__(None, None, None)
            if REFUSED.encode() in text:
                server.leaving.set()
                if not is_once:
                    continue
            return self._with_headers(Response(text, answer.status), answer)

    def _stream(self, answer: aiohttp.ClientResponse, held) -> Response:
        async def pieces():
            try:
                async for piece in answer.content.iter_any():
                    yield piece
            finally:
                answer.close()
                held.__exit__(None, None, None)

        return self._with_headers(StreamingResponse(pieces(), answer.status), answer)

    def _with_headers(self, response: Response, answer: aiohttp.ClientResponse) -> Response:
        response.raw_headers = [(name.lower(), value) for name, value in answer.raw_headers if name.lower().decode("latin-1") not in HOP_BY_HOP]
        return response

    def _error(self, status: int, text: str) -> Response:
        return Response(json.dumps({"error": text}), status, media_type="application/json")

    def _metadata(self, context) -> list:
        """Without what Serve reads, and what each connection has of its own."""
        kept = [(key, value) for key, value in context.invocation_metadata() if key not in ("application", "user-agent") and not key.startswith("grpc-")]
        return [*kept, ("x-forwarded-for", "unknown")]

    def _fail(self, context, error: grpc.aio.AioRpcError) -> RuntimeError:
        context.set_code(error.code())
        context.set_details(error.details())
        return RuntimeError(error.details())

    async def _unary(self, name: str, message: bytes, context) -> Raw:
        while True:
            server = await self._serving()
            try:
                with server.call():
                    return Raw(await server.channel.unary_unary(f"/{SERVICE}/{name}")(message, metadata=self._metadata(context)))
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE or REFUSED not in (error.details() or ""):
                    raise self._fail(context, error) from None
                server.leaving.set()
                if SEQUENCE in message:
                    raise self._fail(context, error) from None

    async def ModelStreamInfer(self, messages, grpc_context):
        server = await self._serving()
        try:
            with server.call():
                async for message in server.channel.stream_stream(f"/{SERVICE}/{STREAM}")(messages, metadata=self._metadata(grpc_context)):
                    yield Raw(message)
        except grpc.aio.AioRpcError as error:
            raise self._fail(grpc_context, error) from None

    async def check_health(self) -> None:
        if self._failed is not None:
            raise RuntimeError(self._failed)
        server = self._server
        if not server.takes():
            return
        try:
            async with server.http.get("http://localhost/v2/health/ready") as answer:
                status = answer.status
        except aiohttp.ClientError:
            # It ended in this moment, or does not listen any more.
            status = None
        if status != 200 and server.takes():
            raise RuntimeError(f"nereid is not ready: {status}")

    async def __del__(self) -> None:
        self._is_over = True
        await self._server.close()
        shutil.rmtree(self._home, ignore_errors=True)


def _method(name: str):
    async def call(self, message, grpc_context):
        return await self._unary(name, message, grpc_context)

    return call


for _name in UNARY:
    setattr(Replica, _name, _method(_name))

# Serve's default of 5 requests at once would keep batches small. Its time to end is above that of the server (--exit-timeout-secs, 30).
Nereid = serve.deployment(name="Nereid", max_ongoing_requests=256, graceful_shutdown_timeout_s=45, health_check_period_s=5, health_check_timeout_s=5)(Replica)


def app(config: dict) -> serve.Application:
    """`config` is that of Replica, with `num_gpus` of each replica, and `options` of the deployment (`num_replicas`, `autoscaling_config` …)."""
    options = dict(config.get("options", {}))
    if "num_gpus" in config:
        options["ray_actor_options"] = {**options.get("ray_actor_options", {}), "num_gpus": float(config["num_gpus"])}
    return Nereid.options(**options).bind({key: config[key] for key in ("arguments", "command", "environment") if key in config})


def add_inference_service(servicer, server) -> None:
    """For `grpc_servicer_functions` of Serve's gRPC proxy: messages stay bytes."""
    handlers = {name: grpc.unary_unary_rpc_method_handler(getattr(servicer, name)) for name in UNARY}
    handlers[STREAM] = grpc.stream_stream_rpc_method_handler(getattr(servicer, STREAM))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

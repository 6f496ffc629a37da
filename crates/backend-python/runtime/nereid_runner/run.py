"""Life of a runner: LOAD, the model, batches, the end (shm/README.md). Imports asyncio, which takes as long as the rest
of the runtime, only for models that use it."""
import importlib
import inspect
import json
import os
import platform
import sys
import threading
from queue import SimpleQueue

import numpy as np

from . import device, failure, link, wire
from ._protocol import (
    ANSWER_FLAG_FAILED, ANSWER_FLAG_FINAL, ANSWER_NONE, ANSWER_RESCHEDULE, CODE_CANCELLED, CODE_INTERNAL, CODE_INVALID_ARG, EXECUTE_FLAG_WAITED, FRAME_EXECUTE, FRAME_FAILED, FRAME_UNLOAD, FRAME_READY,
    VERSION,
)  # fmt: skip
from .model_config import ModelConfig
from .request import RELEASE_RESCHEDULE
from .response import InferenceResponse, TritonError, received
from .server import log_failure

_NOT_ITERATIVE = (
    "Failed to release request: Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model "
    "is not configured to handle such a flag."
)


class Violation(Exception):
    """`execute` broke the rules; the text is the whole message."""


def load(told):
    """Imports the model's code and returns its `TritonPythonModel`."""
    name = f"{told['package']}.{told['module']}" if told["package"] else told["module"]
    return getattr(importlib.import_module(name), "TritonPythonModel")


def complete(told):
    """The configuration as completed by the model, as JSON text; None if unchanged (B-PY-22)."""
    model = load(told)
    if not hasattr(model, "auto_complete_config"):
        return None
    made = model.auto_complete_config(ModelConfig(told["config"]))
    if not isinstance(made, ModelConfig):
        if inspect.iscoroutine(made):
            made.close()
        raise Violation(
            f"auto_complete_config function in model '{told['model']}' must return a valid pb.ModelConfig object."
        )
    try:
        return json.dumps(made.as_dict(), allow_nan=False)
    except ValueError:
        raise Violation("Failed to accept document, invalid JSON.") from None


def message_of(error):
    return failure.text_of(error) if isinstance(error, Violation) else failure.describe(error)


class Runner:
    """One instance: its model and its server."""

    def __init__(self, server, told):
        self.server = server
        self.told = told
        self.model = None
        self._loop = None

    def start(self):
        """Creates the model; its exceptions are raised."""
        model = load(self.told)()
        if hasattr(model, "initialize"):
            made = model.initialize(dict(self.told["arguments"]))
            if inspect.iscoroutine(made):
                made.close()  # As in Triton it is not awaited.
        self.model = model
        self.server.may_call = True
        if hasattr(model, "is_ready"):
            self.server.ready = SimpleQueue()
            threading.Thread(target=self._answer_ready, name="nereid-ready", daemon=True).start()

    def serve(self):
        """Batches until the host says that it is over."""
        work, read, codec = self.server.work, self.server.work.read, self.server.codec
        returned = self.server.returned
        leases = self.server.devices.leases
        while True:
            (_, frame, _, count, _, _), buf, at, _ = read()
            if frame != FRAME_EXECUTE:
                if frame == FRAME_UNLOAD:
                    return
                raise SystemError(f"frame {frame} came where a batch is due")
            batch, freed, flags, requests = codec.execute(buf, at, count)
            if freed:
                returned(freed)
            # While it was prefetched, nothing else looked at cancels.
            if flags & EXECUTE_FLAG_WAITED and all(self.server.is_cancelled(*r._head[:2]) for r in requests):
                answer = self._cancelled(batch, requests)
            else:
                answer = self._batch(batch, requests)
            if leases:
                # A client that has its response may want its region back.
                requests = None
            # Looked up each time: in a process that the model forked it is another function.
            work.send(answer)
            del requests, answer
            self.server.end_if_lost()

    def _cancelled(self, batch, requests):
        parts = [None]
        flags = ANSWER_FLAG_FAILED | ANSWER_FLAG_FINAL
        length = sum(self.server.codec.error(parts, CODE_CANCELLED, "Request cancelled", flags) for _ in requests)
        return self.server.codec.result(batch, self._free(), parts, length, len(requests))

    def _batch(self, batch, requests):
        """Runs a batch; returns the frame that ends it."""
        server = self.server
        server.batch_thread = threading.get_ident()
        server.parent = requests[0]._head[:2] if len(requests) == 1 else None
        try:
            # The model may sort its list, or remove requests. Answers are in the order of ours.
            given = requests[:]
            returned = self._execute(given, requests)
            server.batch_thread = 0
            parts = [None]
            length = self._answers(parts, requests, given, returned)
        except BaseException as e:  # noqa: B036  also SystemExit: a failed request, not an exit
            server.batch_thread = 0
            text = server.failed(message_of(e))
            del e
            log_failure(server, text)
            parts = [None]
            length = self._failures(parts, requests, text)
            if length is None:
                return server.codec.failed(batch, self._free(), text)
        return server.codec.result(batch, self._free(), parts, length, len(requests))

    def _free(self):
        requests = self.server.requests
        return requests.take_free() if requests is not None and requests.free else ()

    def _execute(self, given, requests):
        try:
            execute = self.model.execute
        except AttributeError:
            raise Violation(f"Python model {self.told['file']} does not implement `execute` method.") from None
        returned = execute(given)
        if type(returned) is not list and inspect.iscoroutine(returned):
            # Other threads may call models meanwhile, over the side socket.
            self.server.batch_thread = 0
            if self.server.decoupled:
                for request in requests:
                    request.get_response_sender()
                self._start_coroutine(self._in_background(returned, requests))
                return None
            value, error = self._start_coroutine(_outcome(returned)).result()
            if error is not None:
                raise error
            return value
        return returned

    def _start_coroutine(self, coroutine):
        """Runs it on the loop of all coroutines, in its daemon thread; returns a future of `concurrent.futures`."""
        import asyncio

        if self._loop is None:
            self._loop = loop = asyncio.new_event_loop()
            threading.Thread(target=_run_loop, args=(loop,), name="nereid-asyncio", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _in_background(self, coroutine, requests):
        """A decoupled `async def execute`. An exception ends the open requests."""
        value, error = await _outcome(coroutine)
        if error is None and value is not None:
            error = Violation(self._decoupled_text())
        if error is None:
            return
        text = self.server.failed(message_of(error))
        log_failure(self.server, text)
        for request in requests:
            self._end(request.get_response_sender(), text, is_failed=True)

    def _decoupled_text(self):
        return (f"Python model '{self.server.instance}' is using the decoupled mode and the execute function must "
            "return None.")

    def _end(self, sender, text, is_failed=False):
        if not sender._closed:
            sender._closed = True
            self.server.respond(sender._slot, sender._generation, received([], TritonError(text)), True, is_failed)

    def _answers(self, parts, requests, given, returned):
        """Appends the present answer of each request; returns their length (B-PY-23)."""
        if self.server.decoupled:
            if returned is not None:
                raise Violation(self._decoupled_text())
            returned = [None] * len(requests)
        elif returned is None:
            returned = [None] * len(requests)
        else:
            self._check(given, returned)
            if given != requests:
                found = {id(request): response for request, response in zip(given, returned)}
                returned = [found.get(id(request)) for request in requests]
        length = 0
        codec = self.server.codec
        for request, response in zip(requests, returned):
            if request._release == RELEASE_RESCHEDULE:
                length += self._reschedule(parts, request)
                continue
            sender = request._sender
            if response is None:
                # The holder of the request or its sender answers later.
                request.get_response_sender()
                length += codec.end(parts, ANSWER_NONE)
            elif sender is None or not (sender._sent or sender._closed):
                if sender is not None:
                    sender._closed = True
                length += codec.answer_of_batch(parts, response, request._wanted())
            else:
                # Answered before: the returned value is ignored.
                if not sender._closed:
                    sender._closed = True
                    self.server.respond(sender._slot, sender._generation, None, True)
                length += codec.end(parts, ANSWER_NONE)
        return length

    def _reschedule(self, parts, request):
        if request._sender is not None:
            request._sender._closed = True
        if not self.told["iterative"]:
            return self.server.codec.error(parts, CODE_INVALID_ARG, _NOT_ITERATIVE)
        return self.server.codec.end(parts, ANSWER_RESCHEDULE)

    def _check(self, requests, returned):
        if type(returned) is not list and not isinstance(returned, list):
            raise Violation(f"Expected a list in the execute return, found type '{type(returned)}'.")
        if len(returned) != len(requests):
            raise Violation(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(returned)}\n"
            )
        for request, response in zip(requests, returned):
            if request._release == RELEASE_RESCHEDULE:
                if response is not None:
                    raise Violation(
                        "Expected a None object in the execute function return list for reschduled request, found type "
                        f"'{type(response)}'."
                    )
            elif (type(response) is not InferenceResponse and response is not None
                    and not isinstance(response, InferenceResponse)):
                raise Violation(
                    f"Expected an 'InferenceResponse' object in the execute function return list, found type "
                    f"'{type(response)}'."
                )

    def _failures(self, parts, requests, text):
        """Appends the answer of each request to a failure. None: the same for all, and no request has an answer yet."""
        senders = [r._sender for r in requests]
        if not any(s is not None and (s._sent or s._closed) for s in senders):
            for sender in senders:
                if sender is not None:
                    sender._closed = True
            return None
        length = 0
        for sender in senders:
            if sender is not None and (sender._sent or sender._closed):
                # Its responses, including the last, use the side socket, which keeps their order.
                self._end(sender, text, is_failed=True)
                length += self.server.codec.end(parts, ANSWER_NONE)
            else:
                if sender is not None:
                    sender._closed = True
                length += self.server.codec.error(parts, CODE_INTERNAL, text, ANSWER_FLAG_FAILED | ANSWER_FLAG_FINAL)
        return length

    def _answer_ready(self):
        """Calls the model's `is_ready` (B-PY-26), beside `execute`."""
        server = self.server
        while True:
            question = server.ready.get()
            is_ready = False
            try:
                is_ready = self.model.is_ready()
                if inspect.iscoroutine(is_ready):
                    import asyncio

                    is_ready = asyncio.run(is_ready)
                if type(is_ready) is not bool:
                    log_failure(server, f"Model '{server.instance}': is_ready() must return a boolean value")
            except BaseException as e:  # noqa: B036  a model that exits here is not ready
                log_failure(server, f"Model '{server.instance}' is not ready: {failure.describe(e)}")
            server.answer_ready(question, is_ready is True)

    def finalize(self):
        self.server.may_call = False
        model, self.model = self.model, None
        try:
            if hasattr(model, "finalize"):
                model.finalize()
        except BaseException as e:  # noqa: B036
            log_failure(self.server, f"Model '{self.server.instance}', finalize: {failure.describe(e)}")


async def _outcome(coroutine):
    """`(value, exception)`: SystemExit of a model must not end the loop."""
    try:
        return await coroutine, None
    except BaseException as e:  # noqa: B036
        return None, e


def _run_loop(loop):
    import asyncio

    asyncio.set_event_loop(loop)
    loop.run_forever()


def greet(frame, **members):
    """READY or FAILED, whose flags are the version."""
    body = json.dumps(members).encode()
    return wire.head(len(body), frame, VERSION) + body


def failed(error, told):
    """The FAILED of an exception."""
    return greet(
        FRAME_FAILED,
        text=message_of(error),
        source=failure.source_of(error, told["model_directory"]),
        missing=failure.missing_of(error, told["package"]),
    )


def _has_devices():
    try:
        device.driver()
    except device.Failed:
        return False
    return True


def run(server, told):
    """Runs from LOAD to the end of the process; returns its status."""
    link.current = server
    runner = Runner(server, told)
    completed = {}
    try:
        if told["mode"] == "complete":
            completed["config"] = complete(told)
        else:
            runner.start()
    except BaseException as e:  # noqa: B036  SystemExit in a model is a failed load
        server.work.send(failed(e, told))
        return 1
    text = f"{platform.python_implementation()} {platform.python_version()}, numpy {np.__version__}"
    asks_ready = server.ready is not None
    if told.get("devices"):
        completed["devices"] = _has_devices()
    server.work.send(greet(FRAME_READY, runner=text, pid=os.getpid(), asks_ready=asks_ready, **completed))
    if told["mode"] == "complete":
        return 0
    runner.serve()
    runner.finalize()
    sys.stdout.flush()
    return 0

"""The server as seen by a runner: `link.Unlinked` over its two sockets."""
import itertools
import json
import os
import re
import sys
import threading
import traceback
from queue import SimpleQueue
from struct import Struct

from . import arena, device, failure, link, wire
from ._protocol import (
    CALL_ID, CLOSE_HANDLE, CODE_INTERNAL, FRAME_BYTES_MAX, FRAME_CALL_CANCEL, FRAME_CALL_CLOSE, FRAME_CALL_RESPONSE, FRAME_CLOSE_HANDLE, FRAME_CONTROL, FRAME_CONTROL_RESULT, FRAME_EXECUTE, FRAME_IS_READY,
    FRAME_IS_READY_RESULT, FRAME_LOG, FRAME_METRIC_UPDATE, FRAME_NEED_SEGMENT, FRAME_NO_DEVICES, FRAME_PING, FRAME_PONG, FRAME_RELEASE, FRAME_RESPOND, FRAME_SEGMENT,
    IS_READY_RESULT, LOG_HEAD, LOG_LEVEL_ERROR, METRIC_UPDATE, NEED_SEGMENT, PLACE_REQUEST, QUESTION, RESPOND_HEAD, SEGMENT,
)  # fmt: skip
from .failure import TEXT_CHARS_MAX, cut
from .iterator import iterator_of
from .kinds import TritonModelException
from .response import TritonError, received

_RELEASES_MAX = 8192
_AUTO_COMPLETE = "Model control, metrics and BLS are not available in the 'auto_complete_config' function."
_FORKED = (
    "A process that a model forked has no connection to the server: models are called, loaded and queried, and "
    "metrics made, in the process that the server started."
)


class Server(link.Unlinked):
    def __init__(self, work, side, told, segments):
        """`segments`: mapped `(request, response, flags)`, or None."""
        super().__init__()
        self.instance = told["instance"]
        self.model_directory = told["file_directory"]
        self.outputs = told["outputs"]
        self.decoupled = told["decoupled"]
        self.completes = told["mode"] == "complete"
        self.work = work
        self.side = side
        #: True if models may be called; and the thread in `execute`, which calls over the work socket, or 0.
        self.may_call = False
        self.batch_thread = 0
        #: Slot and generation of the request in `execute`, if it is a single one.
        self.parent = None
        self.requests = self.responses = self._flags = None
        if segments is not None:
            self.requests = arena.Requests(self._report_free)
            self.responses = arena.Responses(self._need)
            self.requests.add(0, segments[0])
            self.responses.add(segments[1])
            self._flags = segments[2]
        self.devices = device.Devices(side.send_later, _releases, lambda: wire.head_of_process(0, FRAME_NO_DEVICES))
        self.codec = wire.Codec(told["model"], self.requests, self.responses, self.devices)
        self._numbers = itertools.count(1)
        self._waiting = {}
        #: Frames of responses before the final one, and their blocks, by slot and generation.
        self._held = {}
        self._calls = {}
        #: The model forked this process: it gets no replies.
        self.is_forked = False
        #: Receives readiness queries; set when there is a model.
        self.ready = None

    def log(self, level, file, line, message):
        self.side.send(_log(level, file, line, message))

    def control(self, operation, **members):
        if self.completes:
            raise TritonModelException(_AUTO_COMPLETE)
        if self.is_forked:
            raise TritonModelException(_FORKED)
        number = next(self._numbers)
        frame = _control(number, operation, members)
        answer = self._waiting[number] = SimpleQueue()
        self.side.send(frame)
        result = answer.get()
        error = result.get("error")
        if error is not None:
            raise link.Refused(error["message"])
        return result

    def post(self, operation, **members):
        self.side.send_later(_control(next(self._numbers), operation, members))

    def update(self, metric, operation, value):
        self.side.send(wire.head(METRIC_UPDATE.size, FRAME_METRIC_UPDATE) + METRIC_UPDATE.pack(metric, value,
            operation))

    def is_cancelled(self, slot, generation):
        flags = self._flags
        return flags is not None and flags[slot] == (generation & 127) << 1 | 1

    def end_if_lost(self):
        """Ends a process that can do no more work: the server starts another one. Called after each answer."""
        if failure.lost is not None:
            log_failure(self, f"Model '{self.instance}' ends, to be started again: {failure.lost}")
            self.side.settle()
            sys.stdout.flush()
            os._exit(1)

    def respond(self, slot, generation, response, final, is_failed=False):
        """Sends a response. `is_failed`: it is the error of an exception, which counts as a failure of the request."""
        if self.decoupled:
            self.side.send(self.codec.respond(slot, generation, response, final, is_failed))
            self.end_if_lost()
            return
        # A request to a default model has one answer: its response is encoded now, and sent at the end.
        taken = []
        key = slot, generation
        if not final:
            self._held[key] = self.codec.respond(slot, generation, response, True, False, taken), taken
            return
        frame, held = self._held.pop(key, (None, ()))
        if response is not None or frame is None:
            self.codec.give_back(held)
            frame = self.codec.respond(slot, generation, response, True, is_failed)
        self.side.send(frame)
        self.end_if_lost()

    def dropped(self, slot, generation):
        self.codec.give_back(self._held.pop((slot, generation), (None, ()))[1])
        text = self.failed("the request has no final response: its response sender ended before it sent one")
        answer = []
        length = 8 + self.codec.error(answer, CODE_INTERNAL, text, 1)
        self.side.send_later(wire.head(length, FRAME_RESPOND) + RESPOND_HEAD.pack(slot, generation) + answer[0])
        self.side.send_later(_log(LOG_LEVEL_ERROR, "model.py", 0, text))

    def execute(self, request, decoupled):
        if self.is_forked:
            raise TritonModelException(_FORKED)
        if not self.may_call:
            raise TritonModelException(link.BLS_ONLY_IN_EXECUTE)
        if decoupled:
            return self._iterate(request)
        if threading.get_ident() == self.batch_thread:
            return self._call_here(request)
        answer = SimpleQueue()
        refused = self._start(request, False, lambda response, last: answer.put(response) if last else None)
        return refused or answer.get()

    def execute_async(self, request, decoupled):
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self.is_forked or not self.may_call:
            future.set_exception(TritonModelException(_FORKED if self.is_forked else link.BLS_ONLY_IN_EXECUTE))
            return future
        if decoupled:
            future.set_result(self._iterate(request))
            return future

        def settle(response):
            if not future.done():
                future.set_result(response)

        def deliver(response, last):
            if last:
                try:
                    loop.call_soon_threadsafe(settle, response)
                except RuntimeError:
                    pass  # The loop is closed.

        call = _Call(self, next(self._numbers))
        future.add_done_callback(lambda f: call.abandon() if f.cancelled() else None)
        refused = self._start(request, False, deliver, call)
        if refused is not None:
            future.set_result(refused)
        return future

    def forsake(self):
        """For a process that the model forked: sockets and the reading thread belong to its parent."""
        self.is_forked = True
        self.work.forsake()
        self.side.forsake()

    def _iterate(self, request):
        call = _Call(self, next(self._numbers))
        iterator, came = iterator_of(call)
        put = came.put
        refused = self._start(request, True, lambda response, last: put((response, last)), call)
        if refused is not None:
            put((refused, True))
        return iterator

    def _start(self, request, decoupled, deliver, call=None):
        """Sends a call over the side socket. Returns a response if it cannot be sent."""
        number = call.number if call else next(self._numbers)
        try:
            parts = self.codec.call(number, request, request._trace._owner, decoupled)
        except (wire.TooLarge, arena.Refused) as e:
            return _refused(request, e)
        # Inputs may lie in a request's memory: kept until the response came.
        self._calls[number] = (deliver if decoupled else _merged(deliver), request)
        self.side.send(b"".join(parts))
        return None

    def _call_here(self, request):
        """A call over the work socket: wakes no other thread."""
        number = next(self._numbers)
        try:
            parts = self.codec.call(number, request, request._trace._owner or self.parent, False)
        except (wire.TooLarge, arena.Refused) as e:
            return _refused(request, e)
        self.work.send(b"".join(parts))
        kept = None
        while True:
            header, buf, at, end = self.work.receive()
            frame = header[1]
            if frame == FRAME_EXECUTE:
                self.work.keep(header, buf[at:end])
                continue
            if frame != FRAME_CALL_RESPONSE:
                raise SystemError(f"frame {frame} arrived instead of the response to a call")
            of, response, last = self.codec.call_response(buf, at)
            if of == number:
                if kept is None or response._parameters:
                    kept = response
                if last:
                    return kept

    def listen(self):
        for (_, frame, _, count, _, _), body in self.side.frames():
            try:
                self._hear(frame, count, body)
            except Exception:
                # No code of a model runs here: this is our own bug, and silence would block the model.
                traceback.print_exc()
                os._exit(2)

    def _hear(self, frame, count, body):
        if frame == FRAME_CALL_RESPONSE:
            number, response, last = self.codec.call_response(body, 0)
            found = self._calls.get(number)
            if found is not None:
                if last:
                    self._calls.pop(number, None)
                found[0](response, last)
        elif frame == FRAME_RELEASE:
            self.returned(Struct(f"<{count}Q").unpack_from(body))
        elif frame == FRAME_CLOSE_HANDLE:
            number, _ = CLOSE_HANDLE.unpack_from(body)
            self.devices.close(number, bytes(body[CLOSE_HANDLE.size :]))
        elif frame == FRAME_SEGMENT:
            size, number, place, refused = SEGMENT.unpack_from(body)
            memory = None if refused else arena.mapped(self.side.descriptors.popleft(), size)
            if place == PLACE_REQUEST:
                self.requests.add(number, memory)
            else:
                self.responses.add(memory)
        elif frame == FRAME_CONTROL_RESULT:
            result = json.loads(body)
            answer = self._waiting.pop(result["id"], None)
            if answer is not None:
                answer.put(result)
        elif frame == FRAME_IS_READY:
            (question,) = QUESTION.unpack_from(body)
            if self.ready is None:
                self.answer_ready(question, True)
            else:
                self.ready.put(question)
        elif frame == FRAME_PING:
            self.side.send(wire.head_of_process(8, FRAME_PONG) + body[:8])
            if self.requests is not None:
                self._report_free()

    def answer_ready(self, question, is_ready):
        self.side.send(wire.head(IS_READY_RESULT.size, FRAME_IS_READY_RESULT) + IS_READY_RESULT.pack(question,
            is_ready))
        self.end_if_lost()

    def _need(self, size):
        self.side.send(wire.head_of_process(NEED_SEGMENT.size, FRAME_NEED_SEGMENT) + NEED_SEGMENT.pack(size))

    def _report_free(self):
        self.side.send_later(self._free_frame)

    def _free_frame(self):
        return _releases(self.requests.take_free())

    def returned(self, ids):
        """Processes blocks and leases that the host returns."""
        ids = self.devices.taken_back(ids)
        if self.responses is not None:
            self.responses.returned.extend(ids)


def _releases(free):
    frames = []
    for at in range(0, len(free), _RELEASES_MAX):
        some = free[at : at + _RELEASES_MAX]
        frames.append(wire.head_of_process(8 * len(some), FRAME_RELEASE, len(some))
            + Struct(f"<{len(some)}Q").pack(*some))
    return b"".join(frames)


class _Call:
    __slots__ = ("_server", "number")

    def __init__(self, server, number):
        self._server = server
        self.number = number

    def _send(self, frame):
        self._server.side.send_later(wire.head(CALL_ID.size, frame) + CALL_ID.pack(self.number))

    def cancel(self):
        if self.number in self._server._calls:
            self._send(FRAME_CALL_CANCEL)

    def close(self):
        if self._server._calls.pop(self.number, None) is not None:
            self._send(FRAME_CALL_CLOSE)

    def abandon(self):
        self.cancel()
        self.close()


def _merged(deliver):
    """For a caller that expects one response: the end may follow it separately."""
    kept = []

    def take(response, last):
        if last and not response._parameters and kept:
            response = kept.pop()
        elif not last:
            kept[:] = [response]
        deliver(response, last)

    return take


def _refused(request, error):
    text = str(error) or "Failed to allocate memory for the request"
    return received([], TritonError(f"Model {request._model} - Error when running inference: {text}"))


def _control(number, operation, members):
    body = json.dumps({"id": number, "operation": operation, **members}).encode()
    if len(body) > FRAME_BYTES_MAX:
        raise link.Refused(f"what is sent to the server at once may have {FRAME_BYTES_MAX} bytes, this has {len(body)}")
    return wire.head(len(body), FRAME_CONTROL) + body


def _log(level, file, line, message):
    file, text = cut(file).encode()[:65535], message[:TEXT_CHARS_MAX].encode("utf-8", "backslashreplace")
    body = LOG_HEAD.pack(level, 0, len(file), line, len(text)) + file + text
    return wire.head(len(body), FRAME_LOG) + body


def listening(work, side, told, segments):
    server = Server(work, side, told, segments)
    threading.Thread(target=server.listen, name="nereid-side", daemon=True).start()
    os.register_at_fork(after_in_child=server.forsake)
    return server


def log_failure(server, text):
    """Logs a failed batch once, with the line of the model's own code if its text has a stack."""
    frames = re.findall(r"^  (.+)\((\d+)\): ", text, re.MULTILINE)
    found = next(((file, line) for file, line in frames if file.startswith(server.model_directory)), ("model.py", 0))
    server.log(LOG_LEVEL_ERROR, os.path.basename(found[0]), int(found[1]), text)


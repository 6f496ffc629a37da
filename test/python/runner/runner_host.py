"""A small host of the runner protocol (shm/README.md) for tests: starts the real runner, with real sockets and shared memory."""
import fcntl
import itertools
import json
import mmap
import os
import queue
import socket
import struct
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RUNTIME = os.path.join(ROOT, "crates/backend-python/runtime")
if RUNTIME not in sys.path:
    sys.path.insert(0, RUNTIME)

import numpy as np  # noqa: E402
from nereid_runner import _protocol as P  # noqa: E402

TYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
LIMIT = 60  # seconds until a test gives up waiting


def bytes_of(items):
    return b"".join(struct.pack("<I", len(i)) + i for i in items)


class In:
    """A tensor on the wire."""

    def __init__(self, name, value, code=None, shape=None):
        self.name = name
        if isinstance(value, np.ndarray) and value.dtype != object:
            self.code = code or next(i for i, t in enumerate(TYPES, 1) if np.dtype(t) == value.dtype)
            self.shape, self.raw = shape if shape is not None else value.shape, value.tobytes()
        elif isinstance(value, bytes):
            self.code, self.shape, self.raw = code, shape, value
        else:
            items = [i.encode() if isinstance(i, str) else i for i in np.ravel(np.array(value, object)).tolist()]
            self.code, self.raw = 13, bytes_of(items)
            self.shape = shape if shape is not None else np.shape(np.array(value, object))


class Out:
    def __init__(self, name, code, shape, raw, place, block):
        self.name, self.code, self.shape, self.raw, self.place, self.block = name, code, tuple(shape), raw, place, block

    @property
    def value(self):
        if self.code == 13:
            found, at = [], 0
            while at < len(self.raw):
                (n,) = struct.unpack_from("<I", self.raw, at)
                found.append(self.raw[at + 4 : at + 4 + n])
                at += 4 + n
            return found
        if self.code == 14:
            return np.frombuffer(self.raw, "u2").reshape(self.shape).tolist()
        return np.frombuffer(self.raw, TYPES[self.code - 1]).reshape(self.shape).tolist()


class Answer:
    def __init__(self, kind, final, code, parameters, error, outputs):
        self.kind, self.final, self.code, self.parameters, self.error, self.outputs = kind, final, code, parameters, error, outputs

    def __getitem__(self, name):
        return next(o for o in self.outputs if o.name == name).value

    def __repr__(self):
        return f"Answer({self.kind}, final={self.final}, {self.code}, {self.error!r}, {[(o.name, o.value) for o in self.outputs]})"


class Host:
    def __init__(self, directory, code, *, mode="run", decoupled=False, iterative=False, segments=(1 << 20, 1 << 20), model="m", inputs=(), outputs=("OUT",),
                 config=None, python=sys.executable, files=None, segment_max=1 << 28, prefix="", env=None, package="1", module="model", stderr=None, on_control=None):  # fmt: skip
        version = os.path.join(str(directory), model, "1")
        os.makedirs(version, exist_ok=True)
        for name, text in {"1/model.py": code, **(files or {})}.items():
            if text is not None:
                path = os.path.join(str(directory), model, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as f:
                    f.write(text if isinstance(text, bytes) else text.encode())
        self.directory = version
        self.instance = f"{model}_0"
        ours, theirs = socket.socketpair()
        self.side, theirs_side = socket.socketpair()
        self.work = ours
        moved = [fcntl.fcntl(s.fileno(), fcntl.F_DUPFD_CLOEXEC, 100) for s in (theirs, theirs_side)]
        self.segments = {}
        self.memory_bytes = 0
        if segments:
            sizes = {"request": segments[0], "response": segments[1], "slots": 4096}
            for size in (segments[0], segments[1], 4096):
                fd = os.memfd_create("test", os.MFD_CLOEXEC)
                os.ftruncate(fd, size)
                moved.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100))
                self.segments[len(self.segments)] = mmap.mmap(fd, size)
                os.close(fd)
            self.request, self.response, self.flags = [self.segments[0]], [self.segments[1]], self.segments[2]
        else:
            sizes = None
        self.used = {}  # request blocks that are lent: id to size
        self.response_seen = []  # response blocks to give back
        self.segment_max = segment_max
        main = os.path.join(RUNTIME, "nereid_runner", "__main__.py")
        actions = [(os.POSIX_SPAWN_DUP2, fd, 3 + i) for i, fd in enumerate(moved)]
        if stderr is not None:
            actions.append((os.POSIX_SPAWN_OPEN, 2, str(stderr), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        self.pid = os.posix_spawn(python, [python, main], {**os.environ, **(env or {})}, file_actions=actions)
        for fd in moved:
            os.close(fd)
        theirs.close()
        theirs_side.close()
        self.status = None
        self.logs, self.controls, self.metrics = [], [], []
        self.responds = queue.Queue()
        self.ready_answers = queue.Queue()
        self.pongs = queue.Queue()
        self.releases = 0
        self.calls = queue.Queue()
        self.on_control = on_control or (lambda m: {})
        self.on_call = None
        self._batch = itertools.count(1)
        self.load_json = {
            "mode": mode, "instance": self.instance if mode == "run" else "", "model": model, "version": "1",
            "model_directory": os.path.dirname(version), "version_directory": version, "file_directory": version, "file": os.path.join(version, "model.py"), "package": package,
            "module": module, "paths": [version, os.path.dirname(version), RUNTIME], "inputs": list(inputs), "outputs": list(outputs),
            "arguments": {"model_config": config or "{}", "model_name": model, "model_instance_name": self.instance, "model_version": "1", "model_repository": os.path.dirname(version), "model_instance_kind": "CPU", "model_instance_device_id": "0"},
            "decoupled": decoupled, "iterative": iterative, "segments": sizes, "config": config,
        }  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()
        self.send(self.work, P.FRAME_LOAD, json.dumps(self.load_json).encode(), P.VERSION)
        frame, _, _, body = self.read(self.work)
        self.greeting = json.loads(body)
        self.failed = frame == P.FRAME_FAILED
        assert frame in (P.FRAME_READY, P.FRAME_FAILED)

    # Frames.

    @staticmethod
    def send(sock, frame, body=b"", flags=0, count=0):
        about_process = frame in (P.FRAME_SEGMENT, P.FRAME_RELEASE, P.FRAME_CLOSE_HANDLE, P.FRAME_PING)
        sock.sendall(P.HEADER.pack(len(body), frame, flags, count, 0 if about_process else 1, 0) + body)

    @staticmethod
    def take(sock, size):
        parts = b""
        sock.settimeout(LIMIT)
        while len(parts) < size:
            got = sock.recv(size - len(parts))
            if not got:
                raise EOFError
            parts += got
        return parts

    def read(self, sock):
        length, frame, flags, count, _, _ = P.HEADER.unpack(self.take(sock, P.HEADER.size))
        assert length <= P.FRAME_BYTES_MAX
        return frame, flags, count, self.take(sock, length)

    def _listen(self):
        try:
            while True:
                frame, flags, count, body = self.read(self.side)
                if frame == P.FRAME_LOG:
                    level, _, f, line, t = P.LOG_HEAD.unpack_from(body)
                    assert len(body) == P.LOG_HEAD.size + f + t
                    self.logs.append((level, body[12 : 12 + f].decode(), line, body[12 + f :].decode()))
                elif frame == P.FRAME_CONTROL:
                    message = json.loads(body)
                    self.controls.append(message)
                    result = self.on_control(message)
                    self.send(self.side, P.FRAME_CONTROL_RESULT, json.dumps({"id": message["id"], **result}).encode())
                elif frame == P.FRAME_METRIC_UPDATE:
                    self.metrics.append(P.METRIC_UPDATE.unpack(body))
                elif frame == P.FRAME_RESPOND:
                    slot, generation = P.RESPOND_HEAD.unpack_from(body)
                    answer, at = self.answer(body, 8)
                    assert at == len(body)
                    self.responds.put((slot, generation, answer))
                elif frame == P.FRAME_NEED_SEGMENT:
                    self._more(*P.NEED_SEGMENT.unpack(body))
                elif frame == P.FRAME_RELEASE:
                    assert len(body) == 8 * count
                    self._freed(struct.unpack(f"<{count}Q", body))
                    self.releases += 1
                elif frame == P.FRAME_CALL:
                    self.call(self.side, body)
                elif frame in (P.FRAME_CALL_CANCEL, P.FRAME_CALL_CLOSE):
                    self.calls.put((frame, P.CALL_ID.unpack(body)[0]))
                elif frame == P.FRAME_IS_READY_RESULT:
                    self.ready_answers.put(P.IS_READY_RESULT.unpack(body))
                elif frame == P.FRAME_PONG:
                    self.pongs.put(P.QUESTION.unpack(body)[0])
                else:
                    raise AssertionError(f"frame {frame} on the side socket")
        except (EOFError, OSError):
            pass

    def _more(self, size):
        number = len(self.response)
        if size > self.segment_max:
            self.send(self.side, P.FRAME_SEGMENT, P.SEGMENT.pack(0, 0, P.PLACE_RESPONSE, 1))
            return
        self.share(self.response, P.PLACE_RESPONSE, number, -(-size // 4096) * 4096)

    def share(self, segments, place, number, size):
        fd = os.memfd_create("more", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        segments.append(mmap.mmap(fd, size))
        body = P.SEGMENT.pack(size, number, place, 0)
        socket.send_fds(self.side, [P.HEADER.pack(len(body), P.FRAME_SEGMENT, 0, 0, 0, 0) + body], [fd])
        os.close(fd)

    def _freed(self, blocks):
        for block in blocks:
            assert block in self.used, f"block {block} is given back that is not lent"
            del self.used[block]

    # Requests.

    def tensors(self, tensors):
        parts, room = [], P.INLINE_BYTES_MAX
        for t in tensors:
            name = t.name.encode()
            dims = struct.pack(f"<{len(t.shape)}q", *t.shape)
            if self.segments == {} or len(t.raw) <= room:
                room -= len(t.raw)
                parts.append(P.TENSOR_HEAD.pack(len(name), t.code, len(t.shape), 0, 0, 0, 0, len(t.raw)) + name + dims + t.raw)
                continue
            segment, offset = self.room(len(t.raw))
            self.request[segment][offset : offset + len(t.raw)] = t.raw
            parts.append(P.TENSOR_HEAD.pack(len(name), t.code, len(t.shape), 1, 0, segment, offset, len(t.raw)) + name + dims)
        return b"".join(parts)

    def room(self, size):
        size = -(-size // 64) * 64
        for number, memory in enumerate(self.request):
            at = 0
            for block in sorted(b for b in self.used if b >> 40 == number):
                if (block & (1 << 40) - 1) - at >= size:
                    break
                at = (block & (1 << 40) - 1) + self.used[block]
            if at + size <= len(memory):
                self.used[number << 40 | at] = size
                return number, at
        self.share(self.request, P.PLACE_REQUEST, len(self.request), max(size, 1 << 20))
        return self.room(size)

    def encode(self, tensors, *, slot=0, generation=1, id="", correlation=0, flags=0, timeout=0, parameters="", trace="", names=None):
        text = correlation.encode() if isinstance(correlation, str) else b""
        number = 0 if isinstance(correlation, str) else correlation
        id, parameters, trace = id.encode(), parameters.encode(), trace.encode()
        listed = b"" if names is None else b"".join(struct.pack("<H", len(n.encode())) + n.encode() for n in names)
        count = P.ALL_OUTPUTS if names is None else len(names)
        head = P.REQUEST_HEAD.pack(slot, generation, number, timeout, flags, len(tensors), count, len(id), len(text), len(parameters), len(trace))
        return head + id + text + parameters + trace + listed + self.tensors(tensors)

    def start(self, *requests, released=()):
        """Sends a batch; its number. A request is a list of tensors, or `(tensors, keywords of encode)`."""
        batch = next(self._batch)
        released = [*released, *self.response_seen]
        self.response_seen = []
        parts = [P.EXECUTE_HEAD.pack(batch, len(released), 0), struct.pack(f"<{len(released)}Q", *released)]
        for slot, request in enumerate(requests):
            tensors, fields = request if isinstance(request, tuple) else (request, {})
            parts.append(self.encode(tensors, **{"slot": slot, "generation": batch, **fields}))
        self.send(self.work, P.FRAME_EXECUTE, b"".join(parts), count=len(requests))
        return batch

    def result(self):
        """Returns the result of the batch: a list of responses, or the text of its failure."""
        while True:
            frame, flags, count, body = self.read(self.work)
            if frame == P.FRAME_CALL:
                self.call(self.work, body)
                continue
            assert frame == P.FRAME_RESULT, frame
            batch, releases, error = P.RESULT_HEAD.unpack_from(body)
            self._freed(struct.unpack_from(f"<{releases}Q", body, 16))
            at = 16 + 8 * releases
            text = body[at : at + error].decode()
            at += error
            if flags & P.RESULT_FLAG_FAILED:
                assert count == 0 and at == len(body)
                return text
            answers = []
            for _ in range(count):
                answer, at = self.answer(body, at)
                answers.append(answer)
            assert at == len(body)
            return answers

    def run(self, *requests):
        self.start(*requests)
        return self.result()

    def answer(self, body, at):
        kind, flags, outputs, code, p, e = P.ANSWER_HEAD.unpack_from(body, at)
        at += 16
        parameters = body[at : at + p].decode()
        error = body[at + p : at + p + e].decode()
        found, at = self.read_tensors(body, at + p + e, outputs)
        return Answer(kind, bool(flags & 1), code, json.loads(parameters) if parameters else None, error, found), at

    def read_tensors(self, body, at, count):
        found = []
        for _ in range(count):
            n, code, rank, place, _, segment, offset, size = P.TENSOR_HEAD.unpack_from(body, at)
            at += 24
            name = body[at : at + n].decode()
            at += n
            shape = struct.unpack_from(f"<{rank}q", body, at)
            at += 8 * rank
            block = None
            if place == P.PLACE_INLINE:
                raw = body[at : at + size]
                at += size
            else:
                memory = (self.request if place == P.PLACE_REQUEST else self.response)[segment]
                assert offset + size <= len(memory)
                raw = memory[offset : offset + size]
                block = segment << 40 | offset
                if place == P.PLACE_RESPONSE:
                    self.response_seen.append(block)
            elements = int(np.prod(shape)) if rank else 1
            if code not in (13,):
                assert elements * (2 if code == 14 else np.dtype(TYPES[code - 1]).itemsize) == len(raw)
            found.append(Out(name, code, shape, raw, place, block))
        return found, at

    def call(self, sock, body):
        number, version, slot, generation, n, flags, _, _ = P.CALL_HEAD.unpack_from(body)
        at = P.CALL_HEAD.size
        model = body[at : at + n].decode()
        at += n
        _, _, correlation, timeout, request_flags, inputs, outputs, a, b, c, d = P.REQUEST_HEAD.unpack_from(body, at)
        at += 48
        id, text, parameters, trace = body[at : at + a], body[at + a : at + a + b], body[at + a + b : at + a + b + c], body[at + a + b + c : at + a + b + c + d]
        at += a + b + c + d
        names = None
        if outputs != P.ALL_OUTPUTS:
            names = []
            for _ in range(outputs):
                (m,) = struct.unpack_from("<H", body, at)
                names.append(body[at + 2 : at + 2 + m].decode())
                at += 2 + m
        tensors, at = self.read_tensors(body, at, inputs)
        assert at == len(body)
        told = dict(call=number, model=model, version=version, parent=(slot, generation), flags=flags, correlation=text.decode() or correlation, timeout=timeout,
                    request_flags=request_flags, id=id.decode(), parameters=parameters.decode(), trace=trace.decode(), names=names, inputs=tensors,
                    on="work" if sock is self.work else "side")  # fmt: skip
        self.calls.put(told)
        if self.on_call is not None:
            for kind, outputs, error, final in self.on_call(told):
                self.reply(number, kind, outputs, error, final, sock)

    def reply(self, number, kind, outputs=(), error=None, final=True, sock=None, parameters=""):
        code, text = error or (0, "")
        text, parameters = text.encode(), parameters.encode()
        head = P.ANSWER_HEAD.pack(kind, int(final), len(outputs), code, len(parameters), len(text))
        self.send(sock or self.side, P.FRAME_CALL_RESPONSE, P.CALL_ID.pack(number) + head + parameters + text + self.tensors(outputs))

    # The end.

    def finalize(self):
        self.send(self.work, P.FRAME_UNLOAD)
        return self.wait()

    def wait(self):
        """The exit status; negative for a signal."""
        end = time.monotonic() + LIMIT
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise TimeoutError("the runner does not end")
            else:
                time.sleep(0.002)
        return self.status

    def close(self):
        self.work.close()
        self.side.shutdown(socket.SHUT_RDWR)
        self.side.close()
        if self.status is None:
            self.wait()


def until(condition, what="it"):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.002)

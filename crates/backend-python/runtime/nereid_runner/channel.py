"""The two sockets of a runner. If the host is gone the process ends at once."""
import os
import socket
import threading
from collections import deque

from ._protocol import HEADER

_HEADER_BYTES = HEADER.size

_BUFFER = 1 << 16
#: Frames of so many bytes may wait for another thread that sends, and so many of them.
_TOGETHER_BYTES_MAX = 1 << 13
_TOGETHER_MAX = 64


def gone():
    """Ends the process without finalizers: its server died, or closed it."""
    os._exit(1)


class Work:
    """Batches, read and written by the main thread."""

    def __init__(self, sock):
        self._sock = sock
        #: Batches that came while one waited for the response of a call.
        self._kept = deque()
        self._buf = self._own = bytearray(_BUFFER)
        self._start = self._end = 0

    def peek(self):
        """The header of the first frame, which is not consumed."""
        try:
            came = self._sock.recv(_HEADER_BYTES, socket.MSG_PEEK | socket.MSG_WAITALL)
        except OSError:
            came = b""
        if len(came) < _HEADER_BYTES:
            gone()
        return HEADER.unpack(came)

    def keep(self, header, body):
        """Keeps a frame, whose body is a bytearray, for `read`."""
        self._kept.append((header, body))

    def read(self):
        """The next frame, as `receive` returns it."""
        if self._kept:
            header, body = self._kept.popleft()
            return header, body, 0, len(body)
        return self.receive()

    def receive(self):
        """`(header, buffer, start, end)`, the header as in `HEADER`; the buffer is valid until the next call."""
        buf, start, end = self._buf, self._start, self._end
        if start == end:
            buf = self._buf = self._own
            start = 0
            try:
                end = self._sock.recv_into(buf)
            except OSError:
                end = 0
            if not end:
                gone()
        while True:
            have = end - start
            if have >= _HEADER_BYTES:
                header = HEADER.unpack_from(buf, start)
                total = header[0] + _HEADER_BYTES
                if have >= total:
                    self._start = start + total
                    self._end = end
                    return header, buf, start + _HEADER_BYTES, start + total
                if total > len(buf) - start:
                    # Frames of this size get a buffer of their own.
                    larger = bytearray(max(total, _BUFFER))
                    larger[:have] = buf[start:end]
                    buf, start, end = larger, 0, have
                    self._buf = buf
            elif start:
                buf[:have] = buf[start:end]
                start, end = 0, have
            try:
                got = self._sock.recv_into(memoryview(buf)[end:])
            except OSError:
                got = 0
            if not got:
                gone()
            end += got

    def send(self, data):
        try:
            sent = self._sock.send(data)
            if sent != len(data):
                self._sock.sendall(memoryview(data)[sent:])
        except OSError:
            gone()


    def forsake(self):
        """For a process that the model forked: its result of `execute` must not answer for this process."""
        self.send = lambda data: os._exit(1)


class Side:
    """Everything else: any thread sends, one thread reads."""

    def __init__(self, sock):
        self._sock = sock
        self._lock = threading.Lock()
        self._later = deque()
        self.is_open = True
        self.descriptors = deque()

    def forsake(self):
        """For a forked process: drops its frames. The lock may be held by a thread that does not exist here."""
        self.is_open = False
        self._lock = threading.Lock()

    def send(self, data):
        """Sends a frame after queued ones. Blocks while the host does not read. While another thread sends, it sends a
        small one, too, together with others."""
        if not self._lock.acquire(False):
            if len(data) <= _TOGETHER_BYTES_MAX and len(self._later) < _TOGETHER_MAX:
                return self.send_later(data)
            self._lock.acquire()
        try:
            self._flush()
            self._write(data)
        finally:
            self._lock.release()
        if self._later:
            self._try()

    def settle(self):
        """Returns once everything that was sent before is written."""
        with self._lock:
            self._flush()

    def send_later(self, data):
        """Like `send`, for finalizers, which may not wait for a lock: a `send` in progress sends it."""
        self._later.append(data)
        self._try()

    def _try(self):
        while self._later and self._lock.acquire(False):
            try:
                self._flush()
            finally:
                self._lock.release()

    def _flush(self):
        later = self._later
        while later:
            frames = []
            while later and len(frames) < _TOGETHER_MAX:
                made = later.popleft()
                frames.append(made() if callable(made) else made)
            self._write(b"".join(frames))

    def _write(self, data):
        if not self.is_open or not data:
            return
        try:
            self._sock.sendall(data)
        except OSError:
            gone()

    def frames(self):
        """Received frames: `(header, bytearray)`. Their descriptors are in `descriptors`, in order."""
        sock, came = self._sock, bytearray()
        piece = bytearray(_BUFFER)
        space = socket.CMSG_SPACE(16 * 4)
        while True:
            while len(came) >= _HEADER_BYTES:
                header = HEADER.unpack_from(came)
                end = _HEADER_BYTES + header[0]
                if len(came) < end:
                    break
                body = came[_HEADER_BYTES:end]
                del came[:end]
                yield header, body
            try:
                got, ancillary, _, _ = sock.recvmsg_into([piece], space, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
            except OSError:
                got = 0
            if not got:
                gone()
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    for at in range(0, len(data) - len(data) % 4, 4):
                        self.descriptors.append(int.from_bytes(data[at : at + 4], "little"))
            came += memoryview(piece)[:got]

"""A process that serves many connections, `library.py FILE`: it answers each batch with its number, and writes FILE when
it is asked to end. Needs only Python."""
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parents[3] / "shm/python/nereid_shm"))
import protocol as p  # noqa: E402

CONTROL = 3


def exactly(sock, n):
    out = bytearray()
    while len(out) < n:
        got = sock.recv(n - len(out))
        if not got:
            raise EOFError
        out += got
    return bytes(out)


def read(sock):
    length, kind, _, _, _, _ = p.HEADER.unpack(exactly(sock, p.HEADER.size))
    return kind, exactly(sock, length)


def frame(kind, body=b"", flags=0, model=1):
    if kind in (p.FRAME_READY, p.FRAME_FAILED):
        flags = p.VERSION
    return p.HEADER.pack(len(body), kind, flags, 0, model, 0) + body


def result(body):
    batch = p.EXECUTE_HEAD.unpack_from(body)[0]
    text = str(os.getpid()).encode()
    return frame(p.FRAME_RESULT, p.RESULT_HEAD.pack(batch, 0, len(text)) + text, flags=p.RESULT_FLAG_FAILED)


def pongs(side):
    try:
        while True:
            kind, body = read(side)
            if kind == p.FRAME_PING:
                side.sendall(frame(p.FRAME_PONG, body, model=0))
    except (EOFError, OSError):
        pass


def serve(work, side):
    threading.Thread(target=pongs, args=(side,), daemon=True).start()
    instance = ""
    while True:
        kind, body = read(work)
        if kind == p.FRAME_LOAD:
            told = json.loads(body)
            instance = told["instance"]
            if instance == "refuses":
                work.sendall(frame(p.FRAME_FAILED, json.dumps({"text": "no", "code": "NOT_FOUND"}).encode()))
                break
            if instance == "starts late":
                time.sleep(0.6)
            ready = {"runner": "test", "pid": os.getpid(), "asks_ready": False}
            if told["mode"] == "complete":
                ready |= {"config": "{}", "groups": [{"kind": "CPU", "count": 2, "gpus": []}]}
            work.sendall(frame(p.FRAME_READY, json.dumps(ready).encode()))
        elif kind == p.FRAME_EXECUTE and instance == "crashes":
            os.abort()
        elif kind == p.FRAME_EXECUTE and instance == "closes":
            break
        elif kind == p.FRAME_EXECUTE:
            work.sendall(result(body))
        elif kind == p.FRAME_UNLOAD:
            if instance == "ends late":
                time.sleep(0.6)
            break
    work.shutdown(socket.SHUT_RDWR)
    side.shutdown(socket.SHUT_RDWR)


control = socket.socket(fileno=CONTROL)
descriptors = []
while True:
    number, came, _, _ = socket.recv_fds(control, 1, 1)
    if not number:
        break
    assert number[0] == len(descriptors), "in order"
    descriptors += came
    if len(descriptors) == 5:
        sockets = [socket.socket(fileno=fd) for fd in descriptors[:2]]
        threading.Thread(target=serve, args=sockets, daemon=True).start()
        for fd in descriptors[2:]:
            os.close(fd)
        descriptors = []
Path(sys.argv[1]).write_text(str(os.getpid()))
os._exit(0)

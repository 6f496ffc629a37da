"""A runner without a model: `runner.py MODE`. MODE selects correct behaviour, protocol errors, crashes or hangs. Needs
only Python."""
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from struct import pack, unpack_from

sys.dont_write_bytecode = True
# The module alone: its package is for clients, and needs numpy.
sys.path.insert(0, str(Path(__file__).parents[3] / "shm/python/nereid_shm"))
import protocol as p  # noqa: E402

MODE = sys.argv[1]
work = socket.socket(fileno=p.FD_WORK)
side = socket.socket(fileno=p.FD_SIDE)
MANY = 1 << 20


def exactly(sock, n):
    out = bytearray()
    while len(out) < n:
        got = sock.recv(n - len(out))
        if not got:
            os._exit(0)
        out += got
    return bytes(out)


def read(sock):
    length, kind, _, count, _, _ = p.HEADER.unpack(exactly(sock, p.HEADER.size))
    return kind, count, exactly(sock, length)


ABOUT_PROCESS = (p.FRAME_NEED_SEGMENT, p.FRAME_NO_DEVICES, p.FRAME_RELEASE, p.FRAME_PONG)


def frame(kind, body=b"", flags=0, count=0, model=1, instance=0):
    if kind in (p.FRAME_READY, p.FRAME_FAILED):
        flags = p.VERSION
    if kind in ABOUT_PROCESS:
        model = 0
    return p.HEADER.pack(len(body), kind, flags, count, model, instance) + body


def tensor_at(body, at):
    name, datatype, rank, place, _, segment, offset, length = p.TENSOR_HEAD.unpack_from(body, at)
    at += p.TENSOR_HEAD.size
    text = body[at : at + name].decode()
    at += name
    dims = unpack_from(f"<{rank}q", body, at)
    at += 8 * rank
    data = None
    if place == p.PLACE_INLINE:
        data = body[at : at + length]
        at += length
    tensor = {"name": text, "datatype": datatype, "dims": dims, "place": place, "segment": segment, "offset": offset}
    return tensor | {"bytes": length, "data": data}, at


def requests_of(body, count):
    batch, releases, _ = p.EXECUTE_HEAD.unpack_from(body)
    at = p.EXECUTE_HEAD.size
    freed = unpack_from(f"<{releases}Q", body, at)
    at += 8 * releases
    found = []
    for _ in range(count):
        head = p.REQUEST_HEAD.unpack_from(body, at)
        at += p.REQUEST_HEAD.size
        slot, generation, correlation, timeout, flags, inputs, outputs, ids, texts, parameters, traces = head
        identity = body[at : at + ids].decode()
        at += ids + texts
        told = body[at : at + parameters].decode()
        at += parameters + traces
        if outputs != p.ALL_OUTPUTS:
            for _ in range(outputs):
                at += 2 + unpack_from("<H", body, at)[0]
        tensors = []
        for _ in range(inputs):
            tensor, at = tensor_at(body, at)
            tensors.append(tensor)
        found.append({"slot": slot, "generation": generation, "id": identity, "parameters": told, "inputs": tensors})
    assert at == len(body), "all of the frame"
    return batch, freed, found


class Memory:
    """Segments of both directions; responses are taken from the beginning of free ones, by the page."""

    def __init__(self, sizes):
        self.requests, self.responses, self.flags = {}, {}, None
        if sizes is not None:
            self.requests[0] = mmap.mmap(p.FD_REQUEST_SEGMENT, sizes["request"])
            self.responses[0] = mmap.mmap(p.FD_RESPONSE_SEGMENT, sizes["response"])
            self.flags = mmap.mmap(p.FD_FLAGS, sizes["slots"], prot=mmap.PROT_READ)
        self.used = {}
        self.changed = threading.Condition()
        self.refused = False
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        came, descriptors = b"", []
        while True:
            got, fds, _, _ = socket.recv_fds(side, 65536, 8)
            if not got:
                os._exit(0)
            descriptors += fds
            came += got
            while len(came) >= p.HEADER.size:
                length, kind, _, count, _, _ = p.HEADER.unpack_from(came)
                end = p.HEADER.size + length
                if len(came) < end:
                    break
                body, came = came[p.HEADER.size : end], came[end:]
                with self.changed:
                    self.handle(kind, count, body, descriptors)
                    self.changed.notify_all()

    def handle(self, kind, count, body, descriptors):
        if kind == p.FRAME_SEGMENT:
            size, segment, place, refused = p.SEGMENT.unpack(body)
            if refused:
                self.refused = True
                return
            descriptor = descriptors.pop(0)
            (self.requests if place == p.PLACE_REQUEST else self.responses)[segment] = mmap.mmap(descriptor, size)
            os.close(descriptor)
        elif kind == p.FRAME_RELEASE:
            self.free(unpack_from(f"<{count}Q", body))
        elif kind == p.FRAME_IS_READY and MODE != "never_ready":
            ready = p.IS_READY_RESULT.pack(p.QUESTION.unpack(body)[0], MODE != "unready")
            side.sendall(frame(p.FRAME_IS_READY_RESULT, ready))
        elif kind == p.FRAME_PING:
            side.sendall(frame(p.FRAME_PONG, body))

    def free(self, blocks):
        for block in blocks:
            assert self.used.pop(block, None) is not None, f"freed twice: {block:x}"

    def get(self, tensor):
        if tensor["data"] is not None:
            return tensor["data"]
        with self.changed:
            while tensor["segment"] not in self.requests:
                self.changed.wait()
        memory = self.requests[tensor["segment"]]
        return memory[tensor["offset"] : tensor["offset"] + tensor["bytes"]]

    def put(self, data):
        """Segment and offset, or None."""
        size = max(64, -(-len(data) // 64) * 64)
        with self.changed:
            while True:
                for segment, memory in self.responses.items():
                    taken = sorted((b & ((1 << 40) - 1), n) for b, n in self.used.items() if b >> 40 == segment)
                    at = 0
                    for start, length in taken + [(len(memory), 0)]:
                        if start - at >= size:
                            self.used[segment << 40 | at] = size
                            memory[at : at + len(data)] = data
                            return segment, at
                        at = start + length
                if self.refused:
                    return None
                side.sendall(frame(p.FRAME_NEED_SEGMENT, p.NEED_SEGMENT.pack(size)))
                known = len(self.responses)
                while len(self.responses) == known and not self.refused:
                    self.changed.wait()


def output(name, tensor, data, memory, inline):
    place, segment, offset, rest = p.PLACE_INLINE, 0, 0, data
    if len(data) > inline and memory.responses:
        found = memory.put(data)
        if found is None:
            return None
        place, (segment, offset), rest = p.PLACE_RESPONSE, found, b""
    head = p.TENSOR_HEAD.pack(len(name), tensor["datatype"], len(tensor["dims"]), place, 0, segment, offset, len(data))
    return head + name.encode() + pack(f"<{len(tensor['dims'])}q", *tensor["dims"]) + rest


def answer(kind, outputs=(), flags=0, code=0, parameters="", error=""):
    head = p.ANSWER_HEAD.pack(kind, flags, len(outputs), code, len(parameters.encode()), len(error.encode()))
    return head + (parameters + error).encode() + b"".join(outputs)


def result(batch, answers, releases=(), error="", flags=0):
    head = p.RESULT_HEAD.pack(batch, len(releases), len(error.encode()))
    body = head + pack(f"<{len(releases)}Q", *releases) + error.encode() + b"".join(answers)
    return frame(p.FRAME_RESULT, body, flags, len(answers))


def respond(request, *args, **options):
    head = p.RESPOND_HEAD.pack(request["slot"], request["generation"])
    side.sendall(frame(p.FRAME_RESPOND, head + answer(*args, **options)))


def blocks(requests):
    shared = [t for r in requests for t in r["inputs"] if t["data"] is None]
    return [t["segment"] << p.BLOCK_OFFSET_BITS | t["offset"] for t in shared]


def echo(request, memory, inline=p.INLINE_BYTES_MAX):
    made = [output(t["name"].replace("IN", "OUT"), t, memory.get(t), memory, inline) for t in request["inputs"]]
    if None in made:
        return answer(p.ANSWER_ERROR, code=p.CODE_UNAVAILABLE, error="no room for outputs")
    return answer(p.ANSWER_RESPONSE, made, parameters=request["parameters"])


def one(place, segment, offset, length, datatype=p.DATA_TYPE_UINT8, dims=None):
    dims = (length,) if dims is None else dims
    head = p.TENSOR_HEAD.pack(3, datatype, len(dims), place, 0, segment, offset, length)
    return head + b"OUT" + pack(f"<{len(dims)}q", *dims)


def violate(batch, requests, memory):
    """One protocol error of each kind, chosen by the id of the request."""
    kind = requests[0]["id"]
    first = requests[0]
    tell = lambda *outputs: work.sendall(result(batch, [answer(p.ANSWER_RESPONSE, outputs)]))
    if kind.isdigit():
        vectors = json.loads((Path(__file__).parents[3] / "shm/vectors/frames.json").read_text())["lies"]
        work.sendall(bytes.fromhex(vectors[int(kind)]["hex"]))
    elif kind == "segment":
        tell(one(p.PLACE_RESPONSE, 9, 0, 100))
    elif kind == "behind the end":
        tell(one(p.PLACE_RESPONSE, 0, len(memory.responses[0]) - 50, 100))
    elif kind == "behind the end of requests":
        tell(one(p.PLACE_REQUEST, 0, len(memory.requests[0]) - 50, 100))
    elif kind == "not wanted and outside":
        tell(one(p.PLACE_RESPONSE, 3, 0, 100).replace(b"OUT", b"ODD"))
    elif kind == "broken strings":
        memory.responses[0][:8] = b"\xff" * 8
        tell(one(p.PLACE_RESPONSE, 0, 0, 5000, p.DATA_TYPE_BYTES, (1,)))
    elif kind == "batch":
        work.sendall(result(batch + 1, [answer(p.ANSWER_NONE)]))
    elif kind == "answers":
        work.sendall(result(batch, [answer(p.ANSWER_NONE)] * 2))
    elif kind == "twice":
        work.sendall(result(batch, [answer(p.ANSWER_NONE)]) * 2)
    elif kind == "block":
        work.sendall(result(batch, [answer(p.ANSWER_NONE)], [1 << 30]))
    elif kind == "a lease that it was not given":
        tell(one(p.PLACE_DEVICE_REQUEST, p.DEVICE_SEGMENT, 7, 100) + p.DEVICE_TENSOR.pack(0, 0, 0) + bytes(64))
    elif kind == "a lease that is not wanted":
        odd = one(p.PLACE_DEVICE_REQUEST, p.DEVICE_SEGMENT, 7, 100).replace(b"OUT", b"ODD")
        tell(odd + p.DEVICE_TENSOR.pack(0, 0, 0) + bytes(64))
    elif kind == "a lease back":
        work.sendall(result(batch, [answer(p.ANSWER_NONE)], [p.DEVICE_SEGMENT << p.BLOCK_OFFSET_BITS | 7]))
    elif kind == "parameters":
        work.sendall(result(batch, [answer(p.ANSWER_RESPONSE, parameters="[1")]))
    elif kind == "nothing":
        respond(first, p.ANSWER_NONE)
    elif kind == "reschedule on the side":
        respond(first, p.ANSWER_RESCHEDULE)
    elif kind == "result on the side":
        side.sendall(result(batch, [answer(p.ANSWER_NONE)]))
    elif kind == "ready again":
        work.sendall(frame(p.FRAME_READY, b"{}"))
    elif kind == "no json":
        work.sendall(frame(p.FRAME_FAILED, b'{"text'))
    elif kind == "another model":
        work.sendall(frame(p.FRAME_LOG, p.LOG_HEAD.pack(0, 0, 0, 0, 0), model=2))
    elif kind == "another instance":
        work.sendall(frame(p.FRAME_RESULT, p.RESULT_HEAD.pack(batch, 0, 0) + answer(p.ANSWER_NONE), 0, 1, instance=1))
    elif kind == "question":
        side.sendall(frame(p.FRAME_IS_READY_RESULT, p.IS_READY_RESULT.pack(77, 1)) * 2)
        work.sendall(frame(99))
    elif kind == "half a frame":
        work.sendall(p.HEADER.pack(1000, p.FRAME_RESULT, 0, 1, 1, 0) + b"x" * 10)
        os.close(p.FD_WORK)
        work.detach()
    elif kind == "closes its sockets":
        os.close(p.FD_SIDE)
        side.detach()
        os.close(p.FD_WORK)
        work.detach()
    time.sleep(60)


def execute(batch, freed, requests, memory):
    with memory.changed:
        memory.free(freed)
    first = requests[0]
    what = first["id"]
    if MODE == "violates":
        violate(batch, requests, memory)
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "exit":
        os._exit(3)
    elif what == "hang":
        while True:
            time.sleep(1)
    elif what == "raise":
        return result(batch, [], blocks(requests), "ValueError: wrong", p.RESULT_FLAG_FAILED)
    elif what == "error":
        error = answer(p.ANSWER_ERROR, code=p.CODE_NOT_FOUND, error="no such thing")
        return result(batch, [error] * len(requests), blocks(requests))
    elif what == "print":
        piece = b"x" * 1023 + b"\n"
        for _ in range(100_000):
            os.write(1, piece)
    elif what == "odd":
        odd = {"datatype": p.DATA_TYPE_INT64, "dims": (3,)}
        outputs = [("OUT", b"a", 4096), ("NONE", b"b", 0), ("OUT", b"c", 0)]
        made = [output(name, odd, data * 24, memory, inline) for name, data, inline in outputs]
        return result(batch, [answer(p.ANSWER_RESPONSE, made)], blocks(requests))
    elif what == "in place":
        made = [one(p.PLACE_REQUEST, t["segment"], t["offset"], t["bytes"]) for t in first["inputs"]]
        return result(batch, [answer(p.ANSWER_RESPONSE, made)], blocks(requests))
    elif what == "again":
        return result(batch, [answer(p.ANSWER_RESCHEDULE)], blocks(requests))
    elif what == "cancelled":
        def later():
            slot, generation = first["slot"], first["generation"]
            while memory.flags[slot] != (generation & 127) << 1 | 1:
                time.sleep(0.002)
            respond(first, p.ANSWER_ERROR, flags=p.ANSWER_FLAG_FINAL, code=p.CODE_CANCELLED, error="I saw it")
        threading.Thread(target=later, daemon=True).start()
        return result(batch, [answer(p.ANSWER_NONE)], blocks(requests))
    elif what == "forks":
        if os.fork() == 0:
            signal.pause()
        os._exit(0)
    elif what.startswith("leaves "):
        # A daemon: outside its runner's group and session.
        if os.fork() == 0:
            os.setsid()
            child = os.fork()
            if child == 0:
                os.execv("/bin/sleep", ["sleep", "600"])
            Path(what.split(" ", 1)[1]).write_text(str(child))
            os._exit(0)
        os.wait()
    elif what.startswith("stream"):
        count = int(what.split()[1])
        for n in range(count):
            tensor = dict(first["inputs"][0], dims=(first["inputs"][0]["bytes"],))
            data = memory.get(first["inputs"][0])
            respond(first, p.ANSWER_RESPONSE, [output("OUT", tensor, bytes([n % 256]) + data[1:], memory, 4096)])
        respond(first, p.ANSWER_NONE, flags=p.ANSWER_FLAG_FINAL)
        return result(batch, [answer(p.ANSWER_NONE)], blocks(requests))
    return result(batch, [echo(r, memory) for r in requests], blocks(requests))


def main():
    length, kind, version, _, model, instance = p.HEADER.unpack(exactly(work, p.HEADER.size))
    told = json.loads(exactly(work, length))
    assert (kind, version, model, instance) == (p.FRAME_LOAD, p.VERSION, 1, 0), told
    if MODE == "old":
        # A header of eight bytes, as in version 1.
        work.sendall(pack("<IBBH", 2, p.FRAME_READY, 0, 0) + b"{}")
        time.sleep(600)
    if MODE == "mute":
        time.sleep(600)
    if MODE == "dies_at_start":
        os._exit(1)
    if MODE == "fails":
        source = {"file": "/m.py", "line": 3, "text": "import no"}
        failure = {"text": "ImportError: no", "source": source, "missing": "no"}
        work.sendall(frame(p.FRAME_FAILED, json.dumps(failure).encode()))
        os._exit(1)
    if MODE == "descriptors":
        import fcntl

        open_ones = []
        for descriptor in range(1024):
            try:
                fcntl.fcntl(descriptor, fcntl.F_GETFD)
                open_ones.append(descriptor)
            except OSError:
                pass
        facts = [open_ones, os.getpgrp() == os.getpid(), os.readlink("/proc/self/fd/0"), sorted(os.environ)]
        facts.append(signal.getsignal(signal.SIGUSR1).name)
        mask = list(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        told["config"] = json.dumps(facts + [mask])
    ready = {"runner": "test", "pid": os.getpid(), "asks_ready": MODE in ("asks", "unready", "never_ready")}
    if told["mode"] == "complete":
        ready["config"] = told.get("config")
    memory = Memory(told["segments"])
    work.sendall(frame(p.FRAME_READY, json.dumps(ready).encode()))
    if told["mode"] == "complete":
        os._exit(0)
    while True:
        kind, count, body = read(work)
        if kind == p.FRAME_UNLOAD:
            print("finalized", flush=True)
            os._exit(0)
        batch, freed, requests = requests_of(body, count)
        work.sendall(execute(batch, freed, requests, memory))


main()

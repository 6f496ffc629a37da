"""One replica of docs/deploy/ray/nereid_serve.py without Ray's cluster: which requests go to its next server when the first one takes none.

    once.py DIRECTORY COMMAND

Prints a line of JSON for each step, as cluster.py does. `COMMAND` starts a server, as a list in JSON; DIRECTORY/models has the models.
"""

import asyncio
import gzip
import json
import pathlib
import sys
import time

import grpc
from starlette.requests import Request
from starlette.responses import StreamingResponse

ROOT = pathlib.Path(__file__).parents[3]
HERE, COMMAND = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
sys.path.insert(0, str(ROOT / "docs/deploy/ray"))
import nereid_serve  # noqa: E402

WAIT_S = 60
# The first server ends after two seconds, and a refusal waits for nothing.
AT_ONCE_S = 1.0
TENSORS = [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": [3] * 16} for name in ("INPUT0", "INPUT1")]


def request_of(path, body, encoding):
    sent = json.dumps(body).encode()
    if encoding == "gzip":
        sent = gzip.compress(sent)

    async def receive():
        return {"type": "http.request", "body": sent, "more_body": False}

    headers = [(b"content-type", b"application/json"), *([(b"content-encoding", encoding.encode())] if encoding else [])]
    return Request({"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers, "root_path": ""}, receive)


async def over_http(replica, path, body, encoding=None):
    """Status, text and seconds."""
    began = time.monotonic()
    answer = await replica(request_of(path, body, encoding))
    text = b"".join([piece async for piece in answer.body_iterator]) if isinstance(answer, StreamingResponse) else answer.body
    return answer.status_code, text.decode(), time.monotonic() - began


class Context:
    """What a method of Serve gets."""

    code = None

    def invocation_metadata(self):
        return []

    def set_code(self, code):
        self.code = code

    def set_details(self, _):
        pass


def message_of(with_sequence):
    """ModelInferRequest for simple with raw contents, and the parameter sequence_id, in protobuf by hand."""

    def field(number, kind, value):
        return bytes([number << 3 | kind]) + (bytes([len(value)]) + value if kind == 2 else bytes([value]))

    def tensor(name):
        return field(5, 2, field(1, 2, name) + field(2, 2, b"INT32") + field(3, 2, bytes([1, 16])))

    # A map entry: key, and InferParameter.int64_param.
    sequence = field(4, 2, field(1, 2, b"sequence_id") + field(2, 2, field(2, 0, 7))) if with_sequence else b""
    raw = (3).to_bytes(4, "little") * 16
    return field(1, 2, b"simple") + sequence + tensor(b"INPUT0") + tensor(b"INPUT1") + field(7, 2, raw) + field(7, 2, raw)


async def over_grpc(replica, message):
    """The code of the failure, None for an answer; and seconds."""
    began, context = time.monotonic(), Context()
    try:
        await replica.ModelInfer(message, context)
    except RuntimeError:
        return context.code, time.monotonic() - began
    return None, time.monotonic() - began


async def started(mode):
    """A replica whose first server refuses, as `mode` says."""
    file = HERE / f"{mode}-first"
    file.unlink(missing_ok=True)
    replica = nereid_serve.Replica.__new__(nereid_serve.Replica)
    refuses = [sys.executable, str(ROOT / "test/heavy/ray/refuses.py"), mode, str(file)]
    await replica.__init__({"command": [*refuses, *COMMAND], "arguments": [f"--model-repository={HERE}/models"]})
    assert file.exists()
    return replica


async def http_step(mode, words):
    replica = await started(mode)
    try:
        of_sequence = {"inputs": TENSORS, "parameters": {"sequence_id": 7, "sequence_start": True}}
        plain, sequence, compressed, stream = await asyncio.gather(
            over_http(replica, "/v2/models/simple/infer", {"inputs": TENSORS}),
            over_http(replica, "/v2/models/simple/infer", of_sequence),
            over_http(replica, "/v2/models/simple/infer", of_sequence, "gzip"),
            over_http(replica, "/v2/models/simple/generate_stream", {"INPUT0": [3] * 16, "INPUT1": [3] * 16}),
        )
        assert plain[0] == 200 and json.loads(plain[1])["outputs"][0]["data"][0] == 6, plain
        for name, (status, text, seconds) in (("a sequence", sequence), ("a compressed sequence", compressed), ("a stream", stream)):
            assert status == 503 and words in text and seconds < AT_ONCE_S, (name, status, text, seconds)
        slowest = max(sequence[2], compressed[2], stream[2])
        return f"a request waited {plain[2]:.1f} s for the next server, a sequence, also compressed, and a stream got 503 after {slowest:.2f} s"
    finally:
        await replica.__del__()


async def grpc_step():
    replica = await started("exiting")
    try:
        plain, sequence = await asyncio.gather(over_grpc(replica, message_of(False)), over_grpc(replica, message_of(True)))
        assert plain[0] is None, plain
        assert sequence[0] == grpc.StatusCode.UNAVAILABLE and sequence[1] < AT_ONCE_S, sequence
        return f"a request waited {plain[1]:.1f} s for the next server, a sequence got UNAVAILABLE after {sequence[1]:.2f} s"
    finally:
        await replica.__del__()


async def main():
    todo = {
        "a connection is refused: a sequence and a stream are not sent again": lambda: http_step("connections", "takes no connections"),
        "a server is exiting: a sequence and a stream are not sent again": lambda: http_step("exiting", "Server exiting"),
        "a server is exiting, over gRPC: a sequence is not sent again": grpc_step,
    }
    for name, work in todo.items():
        began = time.monotonic()
        try:
            told = await asyncio.wait_for(work(), WAIT_S)
            print(json.dumps({"step": name, "told": told, "seconds": round(time.monotonic() - began, 1)}), flush=True)
        except Exception as error:
            print(json.dumps({"step": name, "error": f"{type(error).__name__}: {error}"[:2000]}), flush=True)


asyncio.run(main())

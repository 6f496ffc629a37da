"""Python models for operators: their output, options, the table at the start, and operations that clients may not use."""
import base64
import json
import re

import grpc
import pytest

from crashes import Asker, descendants
from interpreter import python_server
from server import until

MODEL = '''import sys
import triton_python_backend_utils as pb_utils

print("imported")


class TritonPythonModel:
    def execute(self, requests):
        print("to stdout")
        print("to stderr", file=sys.stderr)
        for _ in range(int(requests[0].inputs()[0].as_numpy()[0])):
            print("x" * 1000)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]) for request in requests]
'''
CONFIG = 'backend: "python"\ninput [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
STRINGS = CONFIG.replace("TYPE_INT32", "TYPE_STRING").replace("dims: [ 1 ]", "dims: [ -1 ]")


def repository(directory, config=CONFIG):
    (directory / "loud" / "1").mkdir(parents=True)
    (directory / "loud" / "config.pbtxt").write_text(config)
    (directory / "loud" / "1" / "model.py").write_text(MODEL)
    return directory


@pytest.fixture
def serve(tmp_path):
    running = []

    def go(*flags, config=CONFIG):
        running.append(python_server(repository(tmp_path / "models", config), *flags, log=tmp_path / "server.log"))
        return running[-1]

    yield go
    for one in running:
        one.stop()


def ask(server, lines=0):
    tensor = {"name": "IN", "shape": [1], "datatype": "INT32", "data": [lines]}
    return Asker(server).ask("POST", "/v2/models/loud/infer", {"inputs": [tensor]})


def test_b_pyr_10_printed_lines_are_in_the_log_with_their_instance_and_bounded(serve):
    server = serve("--backend-config=python,output-bytes-per-second=20000")
    assert ask(server)[0] == 200
    for line in ("imported", "to stdout", "to stderr"):
        assert until(lambda line=line: re.search(rf'^[IWE]\d.*"loud_0: {line}"$', server.output(), re.M)), (line, server.tail())
    assert ask(server, 2000)[0] == 200
    # Two megabytes, of which a second's worth or two is kept.
    assert until(lambda: "x" * 1000 in server.output())
    assert ask(server)[0] == 200 and len(server.output()) < 500_000


def test_b_pyr_10_output_raw_passes_it_on_as_it_is(serve):
    server = serve("--backend-config=python,output=raw")
    assert ask(server)[0] == 200
    assert until(lambda: {"to stdout", "to stderr"} <= set(server.output().splitlines())), server.tail()


ENDS = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            number = int(request.inputs()[0].as_numpy()[0])
            sender = request.get_response_sender()
            if number % 2:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1], np.int32))]))
            if number >= 2:
                raise ValueError("an exception")
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("an answer")), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_b_py_24_a_decoupled_model_counts_exceptions_as_failures_but_not_sent_errors(tmp_path):
    (tmp_path / "models/ends/1").mkdir(parents=True)
    (tmp_path / "models/ends/config.pbtxt").write_text(CONFIG + "model_transaction_policy { decoupled: true }\n")
    (tmp_path / "models/ends/1/model.py").write_text(ENDS)
    server = python_server(tmp_path / "models", log=tmp_path / "server.log")

    def counts():
        metrics = server.metrics()
        return [metrics['nv_inference_request_success{model="ends",version="1"}'], server.gauge("nv_inference_request_failure", "ends")]

    # An odd number has a response before its end, and 2 and 3 end with the exception.
    for number, text, counted in [(0, "an answer", 0), (1, "an answer", 0), (2, "an exception", 1), (3, "an exception", 1)]:
        expected = counts()
        expected[counted] += 1
        body = json.dumps({"IN": [number]}).encode()
        _, _, answer = server.request("POST", "/v2/models/ends/generate_stream", body)
        assert text in answer.decode() and ("OUT" in answer.decode()) == bool(number % 2), (number, answer)
        assert counts() == expected, (number, text)
    assert server.stop() == 0, server.tail()


def test_b_core_08_b_core_09_unknown_options_are_named_the_table_has_the_backend(serve):
    server = serve("--backend-config=python,no-such-option=1", "--backend-config=python,thread-pool-size=8")
    assert ask(server)[0] == 200
    assert re.search(r"^W\d.*no-such-option", server.logged("no-such-option", "| python "), re.M), server.tail()
    row = next(line for line in server.output().splitlines() if line.startswith("| python "))
    assert '"no-such-option":"1"' in row and '"thread-pool-size":"8"' in row, row


def test_b_core_12_strings_are_checked_before_a_model_sees_them(serve):
    server = serve(config=STRINGS)
    pid = max(descendants(server.process.pid))
    for raw in (b"\5\0\0\0ab", b"\1\0", b"\1\0\0\0a", b"\1\0\0\0a" * 3):
        head = json.dumps({"inputs": [{"name": "IN", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}}]}).encode()
        status, _, body = server.request("POST", "/v2/models/loud/infer", head + raw, {"Inference-Header-Content-Length": str(len(head))})
        assert status == 400 and re.search(r"string (elements|length|data).*'IN' for model 'loud'", body.decode()), (status, body)
    assert max(descendants(server.process.pid)) == pid


def test_b_sec_08_code_comes_over_the_network_only_where_loads_are_allowed(serve):
    """Without --model-control-mode=explicit a client cannot bring a model.py; with it that is what the mode is for."""
    files = {"file:1/model.py": base64.b64encode(MODEL.encode()).decode()}
    body = {"parameters": {"config": json.dumps({"backend": "python"}), **files}}
    server = serve()
    before = descendants(server.process.pid)
    status, text = Asker(server).ask("POST", "/v2/repository/models/mine/load", body)
    assert status == 503 and "explicit model load / unload is not allowed" in text, text
    assert descendants(server.process.pid) == before


UNSURE = MODEL.replace("class TritonPythonModel:", """class TritonPythonModel:
    def is_ready(self):
        import os
        return not os.path.exists(os.path.join(pb_utils.get_model_dir(), "no"))
""")


def test_b_py_26_watchers_of_health_are_told_what_a_model_says_of_itself(serve, tmp_path):
    server = serve()
    server.stop()
    model = tmp_path / "models" / "loud" / "1"
    (model / "model.py").write_text(UNSURE)
    server = python_server(tmp_path / "models", log=tmp_path / "again.log")
    try:
        with grpc.insecure_channel(server.grpc) as channel:
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
            call, other = watch(b"", timeout=60), watch(b"", timeout=60)
            serving, not_serving = b"\x08\x01", b"\x08\x02"
            assert next(call) == next(other) == serving
            (model / "no").touch()
            assert next(call) == next(other) == not_serving
            # Who comes now hears it at once.
            late = watch(b"", timeout=60)
            assert next(late) == not_serving
            (model / "no").unlink()
            assert next(call) == next(other) == next(late) == serving
            for one in (call, other, late):
                one.cancel()
    finally:
        server.stop()

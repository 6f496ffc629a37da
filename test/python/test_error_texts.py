"""No error of a model reaches a client without a text, and the log has the line that failed."""
import json
import re

import pytest

from interpreter import AS_CONFIGURED, python_server

CONFIG = """
input [ { name: "HOW" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
PYTHON = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        how = pb_utils.get_input_tensor_by_name(requests[0], "HOW").as_numpy()[0]
        if how == b"raise":
            raise ValueError
        error = pb_utils.InferenceResponse(error=pb_utils.TritonError("", pb_utils.TritonError.NOT_FOUND))
        if {decoupled}:
            requests[0].get_response_sender().send(error, flags=1)
            return None
        return [error]
"""
#: In the place of torch, whose device fails with the first error of a kernel, and with every call after it.
LOST = """
import sys, types

class TritonPythonModel:
    def execute(self, requests):
        cuda = types.SimpleNamespace(is_initialized=lambda: True, current_stream=lambda: types.SimpleNamespace(query=self.use))
        sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
        self.use()

    def use(self):
        raise RuntimeError("CUDA error: device-side assert triggered")
"""
TYPESCRIPT = """
import { InferenceResponse, TritonError, type InferenceRequest } from 'nereid/backend'

interface Padding {
  lines: number
}
export default {
  execute([request]: readonly InferenceRequest[]) {
    const how = request?.input('HOW')?.strings()[0]
    if (how === 'raise') throw new RangeError()
    if (how === 'throw') throw new TritonError('NOT_FOUND', '')
    return [InferenceResponse.error('NOT_FOUND', '')]
  },
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("texts")
    for name, backend, file, code in (
        ("python", "python", "model.py", PYTHON.format(decoupled=False)),
        ("decoupled", "python", "model.py", PYTHON.format(decoupled=True)),
        ("lost", "python", "model.py", LOST),
        ("typescript", "javascript", "model.ts", TYPESCRIPT),
    ):
        (repository / name / "1").mkdir(parents=True)
        policy = "model_transaction_policy { decoupled: true }\n" * (name == "decoupled")
        (repository / name / "config.pbtxt").write_text(f'backend: "{backend}"' + CONFIG + policy)
        (repository / name / "1" / file).write_text(code)
    server = python_server(repository, AS_CONFIGURED, log=tmp_path_factory.mktemp("log") / "server.log")
    yield server
    assert server.stop() == 0, server.tail()


def ask(server, model, how, path="generate_stream"):
    body = {"HOW": how}
    if path == "infer":
        body = {"inputs": [{"name": "HOW", "datatype": "BYTES", "shape": [1], "data": [how]}]}
    status, _, answer = server.request("POST", f"/v2/models/{model}/{path}", json.dumps(body).encode())
    return status, json.loads(answer.decode().strip().removeprefix("data: "))["error"]


@pytest.mark.parametrize(
    "model,how,status,text",
    [
        ("python", "raise", 500, r"message: ValueError: <EMPTY MESSAGE>\n\nAt:\n  /\S+/model\.py\(8\): execute"),
        ("python", "answer", 404, "^NOT_FOUND$"),
        ("typescript", "raise", 500, r"message: RangeError: <EMPTY MESSAGE>\n    at Object\.execute \(/\S+/model\.ts:10:"),
        ("typescript", "throw", 404, "^TritonError$"),
        ("typescript", "answer", 404, "^NOT_FOUND$"),
    ],
)
def test_an_error_without_a_text_is_named_by_its_type_or_its_code(server, model, how, status, text):
    found, error = ask(server, model, how, "infer")
    assert found == status and re.search(text, error), error
    _, streamed = ask(server, model, how)
    assert re.search(text, streamed), streamed


@pytest.mark.parametrize("how,text", [("raise", "message: ValueError: <EMPTY MESSAGE>"), ("answer", "^NOT_FOUND$")])
def test_a_stream_does_not_end_with_an_empty_error(server, how, text):
    assert re.search(text, ask(server, "decoupled", how)[1])


def test_the_log_of_a_failing_model_has_the_line_of_its_stack(server):
    ask(server, "python", "raise", "infer")
    ask(server, "typescript", "raise", "infer")
    server.logged(' model.py:8] "Failed to process', ' model.ts:10] "Failed to process')
    assert not re.search(r" model\.(py|ts):0\]", server.output())


def test_a_process_whose_device_is_lost_is_started_again_after_its_answer(server):
    status, error = ask(server, "lost", "raise", "infer")
    assert status == 500 and "RuntimeError: CUDA error: device-side assert triggered" in error
    server.logged("Model 'lost_0' ends, to be started again: RuntimeError: CUDA error", "lost_0: the runner was started again")

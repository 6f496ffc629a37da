"""--log-verbose=1 says what Triton says about requests, and the environment's QA switches delay gRPC calls."""
import http.client
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from clients import SIXTEEN


def tensors(module, names):
    inputs = [module.InferInput(name, [1, 16], "INT32") for name in names]
    for one in inputs:
        one.set_data_from_numpy(SIXTEEN)
    return inputs


def test_requests_and_failed_inferences_are_logged(start, repositories):
    server = start(repositories / "small", "--log-verbose=1")
    web, rpc = httpclient.InferenceServerClient(server.http), grpcclient.InferenceServerClient(server.grpc)
    for module, client in ((httpclient, web), (grpcclient, rpc)):
        client.infer("simple", tensors(module, ["INPUT0", "INPUT1"]))
        with pytest.raises(InferenceServerException):
            client.infer("simple", tensors(module, ["INPUT0"]), request_id="mine")
        with pytest.raises(InferenceServerException):
            client.infer("nope", tensors(module, ["INPUT0"]))
    assert rpc.is_server_live()
    unknown = "[request id: <id_unknown>] Infer failed: Request for unknown model: 'nope' is not found"
    text = server.logged("Process for ServerLive, rpc_ok=1, ")
    for line in (
        "HTTP request: 0 /v2/health/live",
        "HTTP request: 2 /v2/models/simple/infer",
        "Process for ModelInferHandler, rpc_ok=1, ",
        "Done for ModelInferHandler, 0",
        "Process for ServerLive, rpc_ok=1, 0 step COMPLETE",
        "[request id: <id_unknown>] prepared: request id: , model: simple, actual version: 1, flags: 0x0, correlation id: 0, batch size: 1, "
        "priority: 0, timeout (us): 0\\ninputs:\\n"
        "input: INPUT0, type: INT32, original shape: [1,16], batch + shape: [1,16], shape: [16]\\n",
        "requested outputs:\\nOUTPUT0\\nOUTPUT1\\n",
        "add response output: output: OUTPUT0, type: INT32, shape: [1,16]",
        "[request id: mine] Infer failed: ",
        unknown,
    ):
        assert line in text, line
    assert text.count(unknown) == 2, "each failure once"
    assert text.count(" prepared: ") == 2, "what is refused was not prepared"
    assert text.count("[request id: mine] Infer failed: ") == 2, "each failure once"
    web.update_log_settings({"log_verbose_level": 0})
    before = server.logged("/v2/logging").count("HTTP request: 0 /v2/health/ready")
    assert web.is_server_ready()
    time.sleep(0.1)
    assert server.output().count("HTTP request: 0 /v2/health/ready") == before
    web.close()
    rpc.close()


def test_requests_that_no_route_takes_are_logged(start, repositories):
    server = start(repositories / "small", "--log-verbose=1")
    for method, path in (("DELETE", "/v2/health/live"), ("PUT", "/v2/health/live"), ("GET", "/v2/nope")):
        connection = http.client.HTTPConnection(server.http, timeout=10)
        connection.request(method, path)
        assert connection.getresponse().status in (404, 405)
        connection.close()
    text = server.logged("HTTP error: ")
    for line in ("HTTP request: 4 /v2/health/live", "HTTP request: 3 /v2/health/live", "HTTP request: 0 /v2/nope", "HTTP error: 0 /v2/nope - 404"):
        assert line in text, line


def test_without_the_level_nothing_is_logged_of_requests(server):
    server.get("/v2/health/live")
    assert "HTTP request" not in server.output()


def test_a_response_can_be_delayed(start, repositories):
    server = start(repositories / "small", env={"TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC": "1"})
    with grpcclient.InferenceServerClient(server.grpc) as client:
        with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
            client.is_server_live(client_timeout=0.3)
        before = time.monotonic()
        assert client.is_server_live()
        assert 1 <= time.monotonic() - before < 2
        before = time.monotonic()
        client.infer("simple", tensors(grpcclient, ["INPUT0", "INPUT1"]))
        assert time.monotonic() - before < 1, "inferences are not delayed, in Triton neither"


def test_the_notice_of_a_cancellation_can_be_delayed(start, repositories):
    server = start(repositories / "main", "--log-verbose=1", env={"TRITONSERVER_DELAY_GRPC_NOTIFICATION": "500"})
    request = grpcclient.InferInput("INPUT0", [1], "INT32")
    request.set_data_from_numpy(np.array([1], np.int32))
    with grpcclient.InferenceServerClient(server.grpc) as client:
        call = client.async_infer("slow_drain", [request], lambda result, error: None)
        time.sleep(0.2)
        before = time.monotonic()
        call.cancel()
        notice = "Cancellation notification received for ModelInferHandler, rpc_ok=1"
        server.logged(notice)
        assert 0.4 < time.monotonic() - before < 0.9

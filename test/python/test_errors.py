"""Errors of invalid requests: exact texts, HTTP statuses, gRPC codes."""
import json
import threading
import time

import numpy as np
import pytest

from clients import SIXTEEN, check_failure, connect, failure

PAIR = {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
ID = "[request id: <id_unknown>] "

CASES = [
    ("unknown model", "nope", PAIR, {}, "Request for unknown model: 'nope' is not found", 404, "NOT_FOUND"),
    ("unknown version", "simple", PAIR, {"model_version": "7"},
     "Request for unknown model: 'simple' version 7 is not found", 404, "NOT_FOUND"),
    ("missing input", "simple", {"INPUT0": SIXTEEN}, {},
     ID + "expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) ['INPUT0'], but missing required "
     "input(s) ['INPUT1']. Please provide all required input(s).", 400, "INVALID_ARGUMENT"),
    ("unexpected input", "simple", {"INPUT0": SIXTEEN, "WRONG": SIXTEEN}, {},
     "unexpected inference input 'WRONG' for model 'simple'", 400, "INVALID_ARGUMENT"),
    ("datatype", "simple", {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN.astype(np.float32)}, {},
     ID + "inference input 'INPUT1' data-type is 'FP32', but model 'simple' expects 'INT32'", 400, "INVALID_ARGUMENT"),
    ("shape", "simple", {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN[:, :3]}, {},
     ID + "unexpected shape for input 'INPUT1' for model 'simple'. Expected [-1,16], got [1,3]. " + NOTE,
     400, "INVALID_ARGUMENT"),
    ("batch too large", "simple", {n: np.zeros((9, 16), np.int32) for n in PAIR}, {},
     ID + "inference request batch-size must be <= 8 for 'simple'", 400, "INVALID_ARGUMENT"),
    ("batch differs", "simple", {"INPUT0": np.zeros((2, 16), np.int32), "INPUT1": SIXTEEN}, {},
     None, 400, "INVALID_ARGUMENT"),
    ("with an id", "simple", {"INPUT0": SIXTEEN}, {"request_id": "r1"}, None, 400, "INVALID_ARGUMENT"),
]


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_a_wrong_request_gets_the_exact_text(client, case):
    """P-025 P-026 P-167..P-173 P-197..P-201"""
    _, model, arrays, options, text, http, grpc = case
    run = lambda: client.infer(model, arrays, **options)
    if text is not None:
        check_failure(client, run, text, http, grpc)
    elif case[0] == "with an id":
        assert failure(run)[0].startswith("[request id: r1] expected 2 inputs but got 1")
    else:
        assert "batch size does not match other inputs for 'simple'" in failure(run)[0]


def test_an_unexpected_output_is_named(client):
    """P-169"""
    run = lambda: client.infer("simple", PAIR, ["NOPE"])
    check_failure(client, run, "unexpected inference output 'NOPE' for model 'simple'", 400, "INVALID_ARGUMENT")


def test_a_version_that_is_no_number_is_refused(client):
    """P-025"""
    run = lambda: client.infer("simple", PAIR, model_version="abc")
    message, _ = failure(run)
    # Over HTTP the route does not match, and the client words the 404 itself.
    if not client.is_http:
        assert message == (
            "failed to get model version from specified version string 'abc' (details: stol), "
            "version should be an integral value > 0"
        )


def test_a_failing_model_fails_its_own_request_only(client):
    """S-14 P-098: the next request through the same model succeeds."""
    bad = {"INPUT0": np.arange(2, dtype=np.int32), "INPUT1": np.arange(3, dtype=np.int32)}
    message, status = failure(lambda: client.infer("failing", bad))
    assert message.startswith("onnx runtime error")
    assert status in ("500", "StatusCode.INTERNAL")
    good = {name: np.arange(3, dtype=np.int32) for name in bad}
    assert client.infer("failing", good).as_numpy("OUTPUT0").tolist() == [0, 2, 4]


def test_the_last_string_must_be_whole(server):
    """P-174 row 21"""
    head = json.dumps(
        {"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}]}
    ).encode()
    status, _, body = server.request(
        "POST",
        "/v2/models/id_string/infer",
        head + (100).to_bytes(4, "little") + b"ab",
        {"Inference-Header-Content-Length": str(len(head))},
    )
    assert status != 200
    assert "incomplete string data" in json.loads(body)["error"]


def run_all(server, model, count):
    """Starts `count` requests 50 ms apart; returns their failures (None = success) in that order."""
    results = [None] * count

    def one(i):
        client = connect("grpc", server)
        try:
            client.infer(model, {"INPUT0": np.array([[i]], np.int32)})
        except Exception as e:  # noqa: BLE001 - the exception is the result
            results[i] = e
        client.close()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    return results


def test_a_full_queue_refuses_the_next_request(server):
    """P-175 S-05: one running, one waiting, the third is refused."""
    got = run_all(server, "queue_of_one", 3)
    assert got[0] is None and got[1] is None
    assert got[2].message() == ID + "Exceeds maximum queue size"
    assert got[2].status() == "StatusCode.UNAVAILABLE"


def test_a_request_that_waits_too_long_is_refused(server):
    """P-176 S-06: 100 ms in the queue behind a request of 400 ms."""
    got = run_all(server, "impatient", 2)
    assert got[0] is None
    assert got[1].message() == "Request timeout expired"
    assert got[1].status() == "StatusCode.UNAVAILABLE"


@pytest.mark.parametrize(
    "path,status,text",
    [
        ("/v2/nope", 404, "Not Found"),
        ("/v2/models/simple/infer", 405, "Method Not Allowed"),
        ("/v2/models/nope", 404, "Request for unknown model: 'nope' is not found"),
        ("/v2/models/nope/stats", 400, "requested model 'nope' is not available"),
        ("/v2/health/live/", 404, "Not Found: remove the slash at the end: the path is /v2/health/live"),
        ("/v2/repository/models/simple/load/", 404, "Not Found: remove the slash at the end: the path is /v2/repository/models/simple/load"),
    ],
)
def test_plain_http_errors(server, path, status, text):
    """P-005 P-006 P-008 P-034"""
    got, _, body = server.request("GET", path)
    assert (got, json.loads(body)) == (status, {"error": text})


@pytest.mark.parametrize(
    "call", ["load_model", "unload_model"],
)
def test_models_cannot_be_loaded_or_unloaded_in_mode_none(client, call):
    """P-043 R-20"""
    text = "explicit model load / unload is not allowed if polling is enabled"
    check_failure(client, lambda: client.call(call, "simple"), text, 503, "UNAVAILABLE")


def test_json_errors_have_their_own_status(server):
    """P-105"""
    status, _, body = server.request("POST", "/v2/models/simple/infer", b'{"inputs": [')
    assert status == 500
    assert json.loads(body)["error"].startswith("failed to parse the request JSON buffer:")

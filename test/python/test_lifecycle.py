"""Cancelling, stopping, failing at start: what happens to work in flight and what is left behind."""
import json
import os
import signal
import socket
import threading
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from clients import SIXTEEN, connect
from memory import named_memory
from server import until

PAIR = {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}


def cancelled(server, model):
    name = "nv_inference_request_failure"
    return sum(
        value for key, value in server.metrics().items()
        if key.startswith(name + "{") and f'model="{model}"' in key and 'reason="CANCELED"' in key
    )


def test_a_cancelled_grpc_call_leaves_the_queue(server):
    """P-183 S-41: the queue behind a slow request empties as soon as its clients leave."""
    before = cancelled(server, "slow")
    client = grpcclient.InferenceServerClient(server.grpc)
    x = grpcclient.InferInput("INPUT0", [1], "INT32")
    x.set_data_from_numpy(np.array([1], np.int32))
    first = threading.Event()
    client.async_infer("slow", [x], callback=lambda result, error: first.set())
    time.sleep(0.1)
    errors = []
    contexts = [client.async_infer("slow", [x], callback=lambda result, error: errors.append(error)) for _ in range(5)]
    time.sleep(0.05)
    from_here = time.monotonic()
    for context in contexts:
        context.cancel()
    assert until(lambda: len(errors) == 5)
    assert all("ancel" in str(error) for error in errors)
    assert first.wait(5)
    # Five requests of 300 ms would keep the only instance busy for 1.5 s more.
    assert time.monotonic() - from_here < 1.0
    assert until(lambda: cancelled(server, "slow") - before >= 5)
    client.close()


def test_a_dropped_http_connection_cancels_its_request(server):
    """P-010 S-41"""
    before = cancelled(server, "slow")
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "INT32", "data": [1]}]}).encode()
    head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    sockets = [socket.create_connection(("127.0.0.1", server.http_port)) for _ in range(4)]
    for one in sockets:
        one.sendall(head + body)
        time.sleep(0.02)
    for one in sockets:
        one.close()
    # The first may already be running: the identity backend sleeps, and sleeps through.
    assert until(lambda: cancelled(server, "slow") - before >= 3)


def test_a_grpc_deadline_cancels_a_running_model(server):
    """S-41: an ONNX run that nobody waits for any more is terminated."""
    client = connect("grpc", server)
    x = np.zeros((4, 256, 256), np.float32)
    client.infer("heavy", {"INPUT0": x[:1]})
    from_here = time.monotonic()
    client.infer("heavy", {"INPUT0": x})
    whole = time.monotonic() - from_here
    with pytest.raises(Exception, match="Deadline"):
        client.infer("heavy", {"INPUT0": x}, client_timeout=whole / 4)
    from_here = time.monotonic()
    client.infer("heavy", {"INPUT0": x[:1]})
    # Had the abandoned run gone on, this would have waited for three quarters of it first.
    assert time.monotonic() - from_here < whole * 0.75
    client.close()


# The models that they ask: to load all takes as much CPU as three starts.
SLOW = ["--model-control-mode=explicit", "--load-model=slow_drain", "--load-model=simple"]


def can_connect(server):
    try:
        socket.create_connection(("127.0.0.1", server.http_port), 1).close()
        return True
    except OSError:
        return False


def slow_call(server, answers):
    client = connect("grpc", server)
    try:
        answers.append(client.infer("slow_drain", {"INPUT0": np.array([7], np.int32)}).as_numpy("OUTPUT0").tolist())
    except Exception as e:  # noqa: BLE001 - the exception is the result
        answers.append(e)
    client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_stopping_server_finishes_what_it_began(repositories, start, number):
    """P-011 P-016 R-51: readiness goes at once, new work is refused, work in flight is answered, exit code 0."""
    server = start(repositories / "main", *SLOW, "--exit-grace-secs=1")
    keep = socket.create_connection(("127.0.0.1", server.http_port))
    answers = []
    thread = threading.Thread(target=slow_call, args=(server, answers))
    thread.start()
    time.sleep(0.3)
    server.signal(number)
    time.sleep(0.2)
    keep.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
    said = keep.recv(4096)
    assert b" 400 " in said.split(b"\r\n")[0] and said.endswith(b"\r\n\r\n"), said
    if number == signal.SIGTERM:
        # Load balancers send for a moment more, over new connections: they are answered.
        assert server.request("GET", "/v2/health/ready")[::2] == (400, b"")
        status, headers, _ = server.request("GET", "/v2/models/simple")
        assert (status, headers["Connection"]) == (200, "close")
        for protocol in ("http", "grpc"):
            assert (connect(protocol, server).infer("simple", PAIR).as_numpy("OUTPUT0") == SIXTEEN + SIXTEEN).all()
        # And then refused.
        assert until(lambda: not can_connect(server))
    else:
        assert not can_connect(server)
    thread.join()
    assert answers == [[7]]
    assert server.wait() == 0


def test_a_second_signal_ends_the_server_now(repositories, start):
    server = start(repositories / "main", *SLOW)
    thread = threading.Thread(target=slow_call, args=(server, []))
    thread.start()
    time.sleep(0.2)
    server.signal(signal.SIGTERM)
    # Within 250 ms it would be the same one, passed on by npm.
    time.sleep(0.4)
    from_here = time.monotonic()
    server.signal(signal.SIGTERM)
    server.wait()
    assert time.monotonic() - from_here < 0.5
    thread.join()


def test_the_exit_timeout_is_kept(repositories, start):
    """R-51"""
    server = start(repositories / "main", *SLOW, "--exit-timeout-secs=0")
    thread = threading.Thread(target=slow_call, args=(server, []))
    thread.start()
    time.sleep(0.2)
    from_here = time.monotonic()
    server.signal(signal.SIGTERM)
    assert server.wait() == 1
    assert time.monotonic() - from_here < 0.8
    assert "Exit timeout expired. Exiting immediately." in server.output()
    thread.join()


def test_a_broken_model_ends_the_start_by_default(repositories, start):
    """R-49"""
    server = start(repositories / "broken", wait=False)
    assert server.wait() == 1
    assert "error: creating server: Internal - failed to load all models" in server.output()


def test_the_rest_is_served_when_the_operator_says_so(repositories, start):
    """R-49 R-50"""
    server = start(repositories / "broken", "--exit-on-error=false")
    client = connect("http", server)
    assert client.infer("good", PAIR).as_numpy("OUTPUT0").sum() == 240
    assert client.call("is_server_live") is True
    assert client.call("is_server_ready") is False
    rows = {row["name"]: row for row in client.call("get_model_repository_index")}
    assert rows["good"]["state"] == "READY"
    assert rows["not_onnx"]["state"] == "UNAVAILABLE" and rows["not_onnx"]["reason"]
    client.close()
    # The summary names each failure and its reason.
    server.logged("not_onnx", "no_file", "bad_syntax")


def test_readiness_can_be_lenient(repositories, start):
    """R-50"""
    server = start(repositories / "broken", "--exit-on-error=false", "--strict-readiness=false")
    assert server.request("GET", "/v2/health/ready")[0] == 200


def test_a_repository_that_is_not_there_is_an_error(start, tmp_path):
    """R-02"""
    server = start(tmp_path / "nowhere", wait=False)
    assert server.wait() == 1
    assert "failed to stat file" in server.output()


def test_a_port_that_is_taken_is_an_error(repositories, start):
    """P-012"""
    first = start(repositories / "small")
    second = start(repositories / "small", f"--http-port={first.http_port}", wait=False)
    assert second.wait() == 1
    assert f"Socket '127.0.0.1:{first.http_port}' already in use" in second.output()


def test_the_log_says_what_was_started(repositories, start):
    """O-53 R-52"""
    server = start(repositories / "small")
    said = server.logged("Started Metrics Service")
    for text in (
        f"Started GRPCInferenceService at 127.0.0.1:{server.grpc_port}",
        f"Started HTTPService at 127.0.0.1:{server.http_port}",
        f"Started Metrics Service at 127.0.0.1:{server.metrics_port}",
        "successfully loaded 'simple'",
    ):
        assert text in said, text
    assert "| simple" in said and "READY" in said


def test_channels_survive_a_restart(repositories, start):
    first = start(repositories / "small")
    with grpc.insecure_channel(first.grpc) as channel:
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert stub.ServerLive(service_pb2.ServerLiveRequest()).live
        assert first.stop() == 0
        again = start(repositories / "small", f"--grpc-port={first.grpc_port}")
        assert again.grpc_port != first.grpc_port
        assert until(lambda: stub.ServerLive(service_pb2.ServerLiveRequest(), wait_for_ready=True, timeout=5).live)


def test_nothing_is_left_in_dev_shm(repositories, start):
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm on this system")
    before = named_memory()
    server = start(repositories / "small", "--allow-client-shm=true")
    server.stop()
    assert named_memory() - before == set()

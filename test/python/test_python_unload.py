"""Processes of Python models end although they hang, when the model is unloaded or the server ends. (B-PYR-09)"""
import json
import os
import signal
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import steps as step_models
import tritonclient.http as httpclient

from crashes import Asker, descendants, is_running, write
from interpreter import AS_CONFIGURED, python_server
from server import Server, until

# How each process stays with a request that nobody waits for.
HANGS = {
    "asleep": "open({!r}, 'w').close()\ntime.sleep(600)",
    "a loop without end": "open({!r}, 'w').close()\nwhile True: pass",
    "stopped": "open({!r}, 'w').close()\nos.kill(os.getpid(), signal.SIGSTOP)",
}


@contextmanager
def running(directory, *flags):
    """A server with two of the models. It is killed if nobody ended it."""
    models = ("--model-control-mode=explicit", "--load-model=victim", "--load-model=stream")
    one = python_server(write(directory / "models"), AS_CONFIGURED, *models, *flags, log=directory / "server.log")
    try:
        assert until(lambda: Asker(one).ask("GET", "/v2/health/ready")[0] == 200), one.tail()
        yield one
    finally:
        one.process.poll() is None and one.process.kill()
        one.process.wait(10)


@pytest.fixture
def serving(tmp_path):
    """A server that the test ends, and a connection to it."""
    with running(tmp_path) as one:
        yield one, Asker(one)


@pytest.fixture(scope="module")
def with_a_grace(tmp_path_factory):
    with running(tmp_path_factory.mktemp("unload"), "--backend-config=python,exit-grace-seconds=1") as one:
        yield one


@pytest.fixture
def graceful(with_a_grace):
    """The server of all tests that only load and unload, and a connection to it."""
    return with_a_grace, Asker(with_a_grace)


def abandoned(server, code, model="victim"):
    """A request whose client leaves once the model has it."""
    mark = f"{server.log}.mark{time.monotonic_ns()}"
    tensor = {"name": "CODE", "shape": [1], "datatype": "BYTES", "data": [code.format(mark)]}
    path, body = f"/v2/models/{model}/infer", {"inputs": [tensor]}
    if model == "stream":
        path, body = f"/v2/models/{model}/generate_stream", {"CODE": code.format(mark)}
    body = json.dumps(body)
    client = socket.create_connection(("127.0.0.1", server.http_port))
    client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    assert until(lambda: os.path.exists(mark)), server.tail()
    client.close()


@pytest.mark.nightly("a loop without end-stream", "stopped-stream")
@pytest.mark.parametrize("model", ["victim", "stream"])
@pytest.mark.parametrize("hang", HANGS)
def test_b_pyr_09_a_process_that_hangs_ends_with_the_unload_of_its_model(graceful, hang, model):
    server, asker = graceful
    before = descendants(server.process.pid)
    said = f"{model}_0: the process is killed: its model was unloaded, and it worked for 1 s (exit-grace-seconds, less when the server exits) on cancelled requests: 1"
    told = server.output().count(said)
    for _ in range(3):
        pid = asker.pid(model)
        abandoned(server, HANGS[hang], model)
        asker.control("unload", model)
        asker.control("load", model)
        assert until(lambda: not is_running(pid), 20), server.tail()
        assert asker.pid(model) != pid
    assert until(lambda: len(descendants(server.process.pid)) == len(before), 20), server.tail()
    assert until(lambda: server.output().count(said) == told + 3), server.tail()
    assert "started again" not in server.output()


def test_b_pyr_09_a_request_whose_client_waits_is_answered_by_the_unloaded_model(graceful):
    """Longer than the grace: it is told in the log, and goes on."""
    server, asker = graceful
    mark, go = f"{server.log}.began", f"{server.log}.go"
    said = []
    code = f"open({mark!r}, 'w').close()\nwhile not os.path.exists({go!r}): time.sleep(0.01)\nanswer = text('done')"
    client = threading.Thread(target=lambda: said.append(Asker(server).run(code)))
    client.start()
    assert until(lambda: os.path.exists(mark)), server.tail()
    asker.control("unload", "victim")
    asker.control("load", "victim")
    server.logged("and the process still has requests of waiting clients: 1")
    assert asker.run("pass")[0] == 200
    open(go, "w").close()
    client.join(30)
    assert said == [(200, "done")]


def test_b_pyr_09_an_idle_process_that_was_stopped_ends_with_the_unload_of_its_model(tmp_path):
    with running(tmp_path, "--backend-config=python,exit-grace-seconds=20") as server:
        asker = Asker(server)
        pid = asker.pid()
        os.kill(pid, signal.SIGSTOP)
        asker.control("unload", "victim")
        assert until(lambda: not is_running(pid), 15), server.tail()


@pytest.mark.nightly("a loop without end")
@pytest.mark.parametrize("hang", HANGS)
def test_b_pyr_09_a_process_that_hangs_for_nobody_does_not_keep_its_server(serving, hang):
    """With the graces that are the default: it ends with 0, long before --exit-timeout-secs."""
    server, asker = serving
    pid = asker.pid()
    abandoned(server, HANGS[hang])
    server.signal(signal.SIGTERM)
    began = time.monotonic()
    assert server.wait(25) == 0, server.tail()
    assert 9 < time.monotonic() - began < 22
    assert not is_running(pid)
    assert "victim_0: the process is killed: its model was unloaded, and it worked for 10 s" in server.output()


@pytest.mark.parametrize("timeout", [30, 2])
def test_r51_a_sequence_that_is_never_ended_does_not_keep_its_server(tmp_path, timeout):
    """Its model would remember it for an hour: once the server exits it is over after ten seconds without a request, or --exit-timeout-secs."""
    repository = step_models.write(tmp_path / "models")
    config = tmp_path / "models" / "simple_sequence" / "config.pbtxt"
    text = config.read_text().replace("max_sequence_idle_microseconds: 10000000", "max_sequence_idle_microseconds: 3600000000")
    assert "3600000000" in text
    config.write_text(text)
    server = Server(repository, f"--exit-timeout-secs={timeout}", "--exit-grace-secs=0", log=tmp_path / "server.log")
    try:
        with httpclient.InferenceServerClient(server.http) as client:
            tensor = httpclient.InferInput("INPUT", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.full((1, 1), 1, np.int32))
            client.infer("simple_sequence", [tensor], sequence_id=1, sequence_start=True)
            server.signal(signal.SIGTERM)
            began = time.monotonic()
            time.sleep(1)
            # It goes on meanwhile.
            answer = client.infer("simple_sequence", [tensor], sequence_id=1)
            assert answer.as_numpy("OUTPUT").item() == 2
        assert server.wait(25) == 0, server.tail()
        took = time.monotonic() - began
        assert (10 < took < 20) if timeout == 30 else (1.5 < took < 9), took
        assert ("1 sequences in progress are over: --exit-timeout-secs has passed" in server.output()) == (timeout == 2)
    finally:
        server.stop()

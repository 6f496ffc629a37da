"""Unix sockets, and a control address that operations which manage the server have for themselves, with curl and tritonclient."""
import json
import os
import shutil
import signal
import stat
import subprocess
import time

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from server import free_ports

CURL = shutil.which("curl")
pytestmark = pytest.mark.skipif(CURL is None, reason="curl is not here: apt-get install curl")

A, B = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
BODY = json.dumps({"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": v.ravel().tolist()} for n, v in (("INPUT0", A), ("INPUT1", B))]})


def curl(path, *args, socket=None, base="http://localhost"):
    """(status, body)"""
    where = ["--unix-socket", str(socket)] if socket else []
    done = subprocess.run([CURL, "-s", "-m", "20", "-w", "\n%{http_code}", *where, *args, base + path], capture_output=True, text=True, timeout=30)
    body, _, status = done.stdout.rpartition("\n")
    return int(status or 0), body


def wait_at(socket, server):
    """Until the server answers there."""
    end = time.monotonic() + 30
    while curl("/v2/health/ready", socket=socket)[0] != 200:
        assert server.process.poll() is None and time.monotonic() < end, server.tail()
        time.sleep(0.02)


def infer_grpc(url):
    client = tritonclient.grpc.InferenceServerClient(url)
    try:
        inputs = [tritonclient.grpc.InferInput(n, [1, 16], "INT32") for n in ("INPUT0", "INPUT1")]
        for tensor, values in zip(inputs, (A, B)):
            tensor.set_data_from_numpy(values)
        return client.infer("simple", inputs).as_numpy("OUTPUT0")
    finally:
        client.close()


def test_http_and_grpc_on_unix_sockets(repositories, start, tmp_path):
    http, grpc = tmp_path / "h", tmp_path / "g"
    flags = [f"--http-address=unix:{http}", f"--grpc-address=unix://{grpc}", "--unix-socket-mode=0640", "--reactor-threads=2"]
    server = start(repositories / "small", *flags, wait=False)
    wait_at(http, server)
    assert stat.S_IMODE(os.stat(http).st_mode) == stat.S_IMODE(os.stat(grpc).st_mode) == 0o640
    server.logged(f"Started HTTPService at unix:{http}")
    for version in ("--http1.1", "--http2-prior-knowledge"):
        for _ in range(8):
            status, body = curl("/v2/models/simple/infer", version, "-d", BODY, socket=http)
            assert status == 200 and json.loads(body)["outputs"][0]["data"] == (A + B).ravel().tolist()
    assert (infer_grpc(f"unix:{grpc}") == A + B).all()
    # A Unix socket is on this machine: settings may be changed.
    assert curl("/v2/logging", "-d", '{"log_verbose_level":0}', socket=http)[0] == 200
    # A second server does not take it away.
    second = start(repositories / "small", f"--http-address=unix:{http}", "--allow-grpc=false", wait=False)
    assert second.wait() == 1 and f"Socket 'unix:{http}' already in use" in second.output()
    assert curl("/v2/health/live", socket=http)[0] == 200
    assert server.stop() == 0
    assert not http.exists() and not grpc.exists()


def test_what_a_killed_server_left_is_replaced(repositories, start, tmp_path):
    http = tmp_path / "h"
    flags = [f"--http-address=unix:{http}", "--allow-grpc=false"]
    server = start(repositories / "small", *flags, wait=False)
    wait_at(http, server)
    server.signal(signal.SIGKILL)
    server.wait()
    assert http.exists()
    again = start(repositories / "small", *flags, wait=False)
    wait_at(http, again)
    assert again.stop() == 0 and not http.exists()


@pytest.mark.parametrize(
    "flags,text",
    [
        (["--http-address=unix:/tmp/" + "x" * 120], "the path of a Unix socket has 1 to 107 bytes"),
        (["--http-address=unix:/no/such/directory/s"], "No such file or directory"),
        (["--http-address=unix:/etc/passwd"], "a file of this name exists and is not a socket"),
        (["--http-address=unix:tls", "--http-use-ssl=true", "--http-server-cert=c", "--http-server-key=k"], "TLS is not spoken over a Unix socket (unix:tls)"),
        (["--http-address=unix:/tmp/one", "--grpc-address=unix:/tmp/one"], "at the same address and port unix:/tmp/one"),
        (["--unix-socket-mode=rw"], "--unix-socket-mode is the mode of a file in octal"),
        (["--control-address=9000"], "--control-address is HOST:PORT or unix:PATH"),
        (["--metrics-address=unix:/tmp/m"], "Metrics are served at a port"),
    ],
)
def test_what_cannot_be_listened_at_says_why(repositories, start, tmp_path, flags, text):
    server = start(repositories / "small", *flags, wait=False, cwd=tmp_path)
    assert server.wait() != 0
    assert text in server.output()


@pytest.mark.parametrize("kind", ["port", "unix"])
def test_management_lives_at_the_control_address(repositories, start, tmp_path, kind):
    if kind == "port":
        address = url = f"127.0.0.1:{free_ports(1)[0]}"
        at = {"base": f"http://{address}"}
    else:
        address = url = f"unix:{tmp_path / 'c'}"
        at = {"socket": tmp_path / "c"}
    server = start(repositories / "small", f"--control-address={address}", "--model-control-mode=explicit", "--load-model=simple")
    public = {"base": f"http://{server.http}"}
    server.logged(f"Started control service at {address}")
    management = [
        ("/v2/repository/index", "-X", "POST"),
        ("/v2/repository/models/simple/load", "-X", "POST"),
        ("/v2/logging",),
        ("/v2/logging", "-d", '{"log_verbose_level":0}'),
        ("/v2/trace/setting",),
        ("/v2/models/simple/trace/setting", "-d", '{"trace_rate":"10"}'),
        ("/v2/systemsharedmemory/status",),
    ]
    for path, *args in management:
        status, body = curl(path, *args, **public)
        assert status == 403 and body == json.dumps({"error": f"only the control address of this server, {address}, serves operations that manage it"}, separators=(",", ":")), path
        for version in ("--http1.1", "--http2-prior-knowledge"):
            assert curl(path, *args, version, **at)[0] == 200, (path, version)
    for path in ("/v2", "/v2/health/ready", "/v2/models/simple", "/v2/models/simple/config", "/v2/models/simple/stats", "/v2/openapi.json"):
        assert curl(path, **public)[0] == curl(path, **at)[0] == 200, path
    assert curl("/v2/models/simple/infer", "-d", BODY, **public)[0] == 200
    assert curl("/v2/models/simple/infer", "-d", BODY, **at)[0] == 403
    # The same over gRPC, at the same address.
    with_public, with_control = tritonclient.grpc.InferenceServerClient(server.grpc), tritonclient.grpc.InferenceServerClient(url)
    assert with_control.is_server_ready() and with_control.get_server_metadata().name == "triton"
    assert "simple" in {m.name for m in with_control.get_model_repository_index().models}
    with_control.load_model("simple")
    with_control.update_log_settings({"log_verbose_level": 0})
    for refused in (with_public.get_model_repository_index, with_public.get_log_settings, lambda: with_public.unload_model("simple")):
        with pytest.raises(InferenceServerException) as raised:
            refused()
        assert raised.value.status() == "StatusCode.PERMISSION_DENIED" and address in raised.value.message()
    with pytest.raises(InferenceServerException) as raised:
        infer_grpc(url)
    assert raised.value.status() == "StatusCode.PERMISSION_DENIED"
    assert (infer_grpc(server.grpc) == A + B).all()
    with_public.close()
    with_control.close()


def test_a_control_address_alone_serves(repositories, start, tmp_path):
    server = start(repositories / "small", f"--control-address=unix:{tmp_path / 'c'}", "--allow-http=false", "--allow-grpc=false", wait=False)
    wait_at(tmp_path / "c", server)
    assert curl("/v2/repository/index", "-X", "POST", socket=tmp_path / "c")[0] == 200

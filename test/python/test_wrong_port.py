"""Clients at the wrong port: each is told which is the right one, in a form that it reads."""
import re
import shutil
import socket
import subprocess
from pathlib import Path

import grpc
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from server import NODE, free_ports, waits_for
from test_tls import Pki, flags

OPENSSL, CURL = shutil.which("openssl"), shutil.which("curl")
pytestmark = pytest.mark.skipif(not (OPENSSL and CURL), reason="openssl and curl are not here: apt-get install openssl curl")


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def plain(repositories, tmp_path_factory):
    """A server without TLS, and with a control address."""
    from server import Server

    (control,) = free_ports(1)
    one = Server(repositories / "small", f"--control-address=127.0.0.1:{control}", log=tmp_path_factory.mktemp("log") / "plain.log")
    one.control_port = control
    yield one
    assert one.stop() == 0, one.tail()


@pytest.fixture(scope="module")
def secure(pki, repositories, tmp_path_factory):
    """A server with TLS on both ports."""
    from server import Server

    one = Server(repositories / "small", *flags("http", pki.server), *flags("grpc", pki.server), log=tmp_path_factory.mktemp("log") / "tls.log")
    yield one
    assert one.stop() == 0, one.tail()


def raw(port, data):
    """All that the server says to these bytes, until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.settimeout(20)
        one.sendall(data)
        parts = []
        while part := one.recv(65536):
            parts.append(part)
        return b"".join(parts)


def refusal(target, credentials=None):
    """Status and text of a gRPC call."""
    made = grpc.secure_channel(target, credentials) if credentials else grpc.insecure_channel(target)
    with made as channel, pytest.raises(grpc.RpcError) as told:
        channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=20)
    return told.value.code(), told.value.details()


def curl(url, *more):
    done = subprocess.run([CURL, "-sS", "-m", "20", "-w", "\n%{http_code}", *map(str, more), url], capture_output=True, text=True, timeout=40)
    text, _, status = done.stdout.rpartition("\n")
    return done.returncode, int(status), text.strip()


def test_http_at_the_grpc_port_is_told_where_http_is(plain, tmp_path):
    says = f"this is the gRPC port; HTTP is at port {plain.http_port}"
    long = tmp_path / "long"
    long.write_bytes(bytes(200_000))
    for more in ([], ["--data-binary", f"@{long}"], ["-X", "PUT"], ["-X", "OPTIONS"]):
        assert curl(f"http://127.0.0.1:{plain.grpc_port}/v2/health/ready", *more) == (0, 400, says), more
    status, headers, body = plain.request("GET", "/v2/health/ready", port=plain.grpc_port)
    assert (status, headers["content-type"], headers["connection"], body.decode().strip()) == (400, "text/plain", "close", says)
    script = f"const r = await fetch('http://127.0.0.1:{plain.grpc_port}/v2'); console.log(r.status, await r.text())"
    done = subprocess.run([NODE, "--input-type=module", "-e", script], capture_output=True, text=True, timeout=40)
    assert done.stdout.strip() == f"400 {says}", done.stderr
    # HTTP/2 that is no call.
    code, status, text = curl(f"http://127.0.0.1:{plain.grpc_port}/v2", "--http2-prior-knowledge")
    assert (code, status) == (0, 415) and text.startswith(says), text
    # The head in two parts, the first of which could be the beginning of HTTP/2.
    with socket.create_connection(("127.0.0.1", plain.grpc_port), timeout=20) as one:
        one.sendall(b"P")
        one.sendall(b"OST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert one.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_grpc_at_the_http_port_is_told_where_grpc_is(plain):
    says = f"this is the HTTP port; gRPC is at port {plain.grpc_port}"
    assert refusal(plain.http) == (grpc.StatusCode.UNIMPLEMENTED, says)
    with tritonclient.grpc.InferenceServerClient(plain.http) as client, pytest.raises(InferenceServerException) as told:
        client.is_server_ready(client_timeout=20)
    assert (told.value.status(), told.value.message()) == ("StatusCode.UNIMPLEMENTED", says)
    # A path that is none, without a call.
    assert curl(f"http://{plain.http}/inference.GRPCInferenceService/ServerLive", "-X", "POST", "--http2-prior-knowledge")[:2] == (0, 404)


def test_the_control_address_answers_both(plain):
    port = plain.control_port
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        assert client.is_server_live(client_timeout=20)
    assert curl(f"http://127.0.0.1:{port}/v2/health/live")[1] == 200


def test_what_is_not_served_is_not_pointed_at(start, repositories):
    one = start(repositories / "small", "--allow-grpc=false")
    assert refusal(one.http) == (grpc.StatusCode.UNIMPLEMENTED, "this is the HTTP port; gRPC is not served (--allow-grpc)")


@pytest.mark.parametrize(("which", "name", "flag"), [("http", "the HTTP port", "--http-use-ssl=true"), ("grpc", "the gRPC port", "--grpc-use-ssl=true")])
def test_tls_at_a_plain_port_is_closed_at_once_and_the_log_names_the_flag(start, repositories, pki, which, name, flag):
    one = start(repositories / "small")
    port = getattr(one, f"{which}_port")
    for _ in range(30):
        done = subprocess.run([OPENSSL, "s_client", "-connect", f"127.0.0.1:{port}"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        assert done.returncode != 0
    assert curl(f"https://127.0.0.1:{port}/v2")[0] in (35, 56)
    roots = grpc.ssl_channel_credentials(Path(pki.root.certificate).read_bytes())
    assert refusal(f"localhost:{port}", roots)[0] == grpc.StatusCode.UNAVAILABLE
    # A ClientHello that goes on is not waited for, nor one that comes in parts.
    assert raw(port, b"\x16\x03\x01\x40\x00") == b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(b"\x16")
        slow.sendall(b"\x03\x01")
        assert slow.recv(100) == b""
    says = f"127.0.0.1 uses TLS at {name}, which serves plain text; its connection is closed"
    waits_for(lambda: says in one.output(), "a line of the log")
    # One in a minute, however many there were; the server answers as before.
    lines = [line for line in one.output().splitlines() if "uses TLS at" in line]
    assert len(lines) == 1 and flag in lines[0], lines
    assert one.get("/v2/health/ready") == b""


def test_tls_at_a_plain_control_address_is_closed_and_told_apart(plain):
    assert raw(plain.control_port, b"\x16\x03\x01\x00\x05hello") == b""
    waits_for(lambda: re.search(r"uses TLS at the control address.*--http-use-ssl=true", plain.output()), "a line of the log")


def test_plain_text_at_tls_ports_is_told(secure):
    https, grpcs = secure.http_port, secure.grpc_port
    assert curl(f"http://127.0.0.1:{https}/v2") == (0, 400, '{"error":"this port uses TLS: use https:// instead"}')
    assert curl(f"http://127.0.0.1:{grpcs}/v2") == (0, 400, f"this is the gRPC port; HTTP is at port {https}, and this port uses TLS")
    for port in (https, grpcs):
        assert refusal(f"127.0.0.1:{port}")[0] == grpc.StatusCode.UNAVAILABLE
    # One in a minute for each port, however many there were.
    for name in ("the HTTP port", "the gRPC port"):
        says = f"127.0.0.1 uses plain text at {name}, which serves TLS; its connection is closed"
        waits_for(lambda says=says: secure.output().count(says) == 1, "a line of the log")


def test_over_tls_each_is_told_as_without(secure, pki):
    https, grpcs = secure.http_port, secure.grpc_port
    roots = grpc.ssl_channel_credentials(Path(pki.root.certificate).read_bytes())
    assert refusal(f"localhost:{https}", roots) == (grpc.StatusCode.UNIMPLEMENTED, f"this is the HTTP port; gRPC is at port {grpcs}")
    says = f"this is the gRPC port; HTTP is at port {https}"
    # curl agrees on HTTP/2 by ALPN; without ALPN it is HTTP/1.1.
    code, status, text = curl(f"https://localhost:{grpcs}/v2", "--cacert", pki.root.certificate)
    assert (code, status) == (0, 415) and text.startswith(says), text
    assert curl(f"https://localhost:{grpcs}/v2", "--cacert", pki.root.certificate, "--no-alpn") == (0, 400, says)
    assert "uses TLS at" not in secure.output()

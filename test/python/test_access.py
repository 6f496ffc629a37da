"""Restricted APIs and header forwarding."""
import json

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from clients import SIXTEEN, connect, failure

PAIR = {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}


@pytest.fixture(scope="module")
def guarded(repositories, tmp_path_factory):
    from server import Server

    one = Server(
        repositories / "small",
        "--http-restricted-api=model-config,statistics:secret=sesame",
        "--http-restricted-api=inference:pass=word",
        "--grpc-restricted-protocol=model-config,statistics:secret=sesame",
        "--grpc-restricted-protocol=inference:pass=word",
        "--id=guarded",
        log=tmp_path_factory.mktemp("log") / "server.log",
    )
    yield one
    one.stop()


@pytest.mark.parametrize("path,category", [("/v2/models/simple/config", "secret"), ("/v2/models/stats", "secret")])
def test_http_wants_the_header(guarded, path, category):
    """P-116 O-63"""
    status, _, body = guarded.request("GET", path)
    assert (status, json.loads(body)) == (403, {"error": f"This API is restricted, expecting header '{category}'"})
    assert guarded.request("GET", path, headers={"secret": "wrong"})[0] == 403
    assert guarded.request("GET", path, headers={"SECRET": "sesame"})[0] == 200


def test_the_restriction_comes_before_the_method(guarded):
    assert guarded.request("DELETE", "/v2/models/simple/config")[0] == 403


def test_what_is_not_restricted_stays_open(guarded):
    """P-019"""
    assert guarded.json("/v2")["name"] == "guarded"
    assert guarded.request("GET", "/v2/models/simple")[0] == 200


def test_clients_pass_with_their_headers(guarded):
    """P-116 P-163"""
    for kind, key in (("http", "pass"), ("grpc", "triton-grpc-protocol-pass")):
        client = connect(kind, guarded)
        message, status = failure(lambda: client.infer("simple", PAIR))
        if kind == "grpc":
            assert message == "This protocol is restricted, expecting header 'triton-grpc-protocol-pass'"
            assert status == "StatusCode.UNAVAILABLE"
        else:
            assert message == "This API is restricted, expecting header 'pass'"
            assert status == "403"
        got = client.infer("simple", PAIR, headers={key: "word"})
        assert got.as_numpy("OUTPUT0").sum() == 240
        client.close()


def test_grpc_does_not_take_the_plain_header(guarded):
    with grpc.insecure_channel(guarded.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as raised:
            stub.ModelConfig(service_pb2.ModelConfigRequest(name="simple"), metadata=[("secret", "sesame")])
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_reserved_header_cannot_be_forwarded(repositories, start):
    """P-117 P-118 P-164"""
    flags = ["--http-header-forward-pattern=^x-|timeout", "--grpc-header-forward-pattern=^x-|timeout"]
    server = start(repositories / "small", *flags)
    for kind in ("http", "grpc"):
        client = connect(kind, server)
        assert client.infer("simple", PAIR, headers={"x-any": "1"}).as_numpy("OUTPUT0").sum() == 240
        message, _ = failure(lambda: client.infer("simple", PAIR, headers={"timeout": "5"}))
        assert message == "Header 'timeout' is reserved for Triton usage and cannot be forwarded."
        client.close()


def test_an_option_that_makes_no_sense_ends_the_start(repositories, start):
    """R-54"""
    server = start(repositories / "small", "--http-restricted-api=nonsense:a=b", wait=False)
    assert server.wait() == 1


def test_two_values_of_one_api_are_refused(repositories, start):
    flags = ["--http-restricted-api=health:a=b", "--http-restricted-api=health:c=d"]
    assert start(repositories / "small", *flags, wait=False).wait() == 1


def test_strings_travel_through_the_small_repository(guarded):
    client = connect("grpc", guarded)
    want = np.array([[b"a", b"b"]], object)
    got = client.infer("id_string", {"INPUT0": want}, headers={"triton-grpc-protocol-pass": "word"})
    assert got.as_numpy("OUTPUT0").tolist() == want.tolist()
    client.close()

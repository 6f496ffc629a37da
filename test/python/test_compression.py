"""Compressed requests and responses, over both transports."""
import gzip
import json
import os
import zlib

import numpy as np
import pytest

from clients import SIXTEEN

ARRAYS = {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}
BODY = json.dumps(
    {"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": list(range(16))} for n in ARRAYS]}
).encode()
PATH = "/v2/models/simple/infer"


@pytest.mark.parametrize("sent", [None, "gzip", "deflate"])
@pytest.mark.parametrize("wanted", [None, "gzip", "deflate"])
@pytest.mark.parametrize("kind", ["http", "http.aio"])
def test_http_compresses_both_ways(server, kind, sent, wanted):
    """P-099 P-100 P-102 P-103"""
    from clients import connect

    client = connect(kind, server)
    got = client.infer("simple", ARRAYS, request_compression_algorithm=sent, response_compression_algorithm=wanted)
    assert got.as_numpy("OUTPUT0").tolist() == (SIXTEEN * 2).tolist()
    client.close()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("kind", ["grpc", "grpc.aio"])
def test_grpc_takes_compressed_requests(server, kind, algorithm):
    """P-158"""
    from clients import connect

    client = connect(kind, server)
    big = np.zeros(1 << 20, np.float32)
    got = client.infer("echo", {"INPUT0": big}, compression_algorithm=algorithm)
    assert got.as_numpy("OUTPUT0").shape == big.shape
    client.close()


@pytest.mark.parametrize("level", ["low", "high"])
def test_grpc_compresses_responses_when_told_to(repositories, start, level):
    """P-159"""
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    server = start(repositories / "small", f"--grpc-infer-response-compression-level={level}")
    with grpc.insecure_channel(server.grpc) as channel:
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="simple", raw_input_contents=[SIXTEEN.tobytes()] * 2)
        for name in ARRAYS:
            request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        response, done = call.ModelInfer.with_call(request)
        headers = dict(done.initial_metadata())
        assert response.raw_output_contents[0] == (SIXTEEN * 2).tobytes()
    assert headers.get("grpc-encoding", "identity") in ("gzip", "deflate", "identity")


@pytest.mark.parametrize("name,pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_the_answer_is_in_the_encoding_asked_for(server, name, pack):
    status, headers, body = server.request(
        "POST", PATH, pack(BODY), {"Content-Encoding": name, "Accept-Encoding": f"br, {name};q=0.5"}
    )
    assert status == 200, body
    assert headers["Content-Encoding"] == name
    plain = gzip.decompress(body) if name == "gzip" else zlib.decompress(body)
    assert json.loads(plain)["outputs"][0]["data"] == list(range(0, 32, 2))


def test_an_unknown_encoding_is_refused_with_the_ones_we_know(server):
    """P-101"""
    status, headers, body = server.request("POST", PATH, BODY, {"Content-Encoding": "br"})
    assert (status, json.loads(body)) == (501, {"error": "Unsupported compression type"})
    assert headers["Accept-Encoding"] == "gzip, deflate"


@pytest.mark.parametrize("name,pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_truncated_body_is_refused(server, name, pack):
    """COMPAT: the reference goes on with the bytes it got."""
    status, _, body = server.request("POST", PATH, pack(BODY)[:-12], {"Content-Encoding": name})
    assert status == 400 and "error" in json.loads(body)


def test_a_body_that_unpacks_beyond_the_limit_is_refused(server):
    """P-104"""
    # Random bytes now and then keep the ratio below the one that is refused by itself.
    body = gzip.compress(b"".join(b" " * 30_000 + os.urandom(300) for _ in range(2300)), 6)
    status, _, answer = server.request("POST", PATH, body, {"Content-Encoding": "gzip"})
    assert status == 400
    assert json.loads(answer)["error"] == (
        "Decompressed data size exceeds the maximum allowed value of 67108864 bytes. "
        "Use --http-max-input-size to increase the limit."
    )


def test_a_bomb_is_refused_by_its_ratio(server):
    """COMPAT: beyond 16 MiB at most 256 times what was sent."""
    bomb = gzip.compress(b" " * (65 << 20), 9)
    status, _, answer = server.request("POST", PATH, bomb, {"Content-Encoding": "gzip"})
    assert status == 400
    assert json.loads(answer)["error"] == (
        f"Decompressed data size exceeds 256 times the {len(bomb)} bytes received, the maximum for more than 16777216 bytes. "
        "Send the data uncompressed."
    )

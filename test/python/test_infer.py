"""Inference through each client: every datatype, every way to send a tensor, ids, parameters, classification."""
import json

import grpc
import ml_dtypes
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from clients import SIXTEEN, check_failure

RAMP = [[0, 1, 2], [3, 4, 100]]
CASES = {
    "bool": np.array([[True, False, True]]),
    "uint8": np.array([[0, 1, 255]], np.uint8),
    "uint16": np.array([[0, 1, 65535]], np.uint16),
    "uint32": np.array([[0, 1, 2**32 - 1]], np.uint32),
    "uint64": np.array([[0, 2**53 + 1, 2**64 - 1]], np.uint64),
    "int8": np.array([[-128, 0, 127]], np.int8),
    "int16": np.array([[-32768, 0, 32767]], np.int16),
    "int32": np.array([[-(2**31), 0, 2**31 - 1]], np.int32),
    "int64": np.array([[-(2**63), 2**53 + 1, 2**63 - 1]], np.int64),
    "fp16": np.array([[0.5, -2, 65504]], np.float16),
    "fp32": np.array([[0.1, -0.0, 3.4e38]], np.float32),
    "fp64": np.array([[0.1, 5e-324, 1.7976931348623157e308]], np.float64),
    "string": np.array([[b"", "h\u00e9llo".encode(), bytes(range(1, 128))]], object),
}


def same(got, want):
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    # Bytes, not values: -0.0 must stay negative.
    assert got.tolist() == want.tolist() if want.dtype == object else got.tobytes() == want.tobytes()


@pytest.mark.parametrize("name", CASES)
def test_every_datatype_comes_back_unchanged_in_binary(client, name):
    """P-075 P-076 P-091 P-136 P-139 P-197..P-201"""
    want = CASES[name]
    same(client.infer(f"id_{name}", {"INPUT0": want}, ["OUTPUT0"]).as_numpy("OUTPUT0"), want)


@pytest.mark.parametrize("name", [n for n in CASES if n != "fp16"])
@pytest.mark.parametrize("kind", ["http", "http.aio"])
def test_every_json_datatype_comes_back_unchanged_in_json(server, kind, name):
    """P-067 P-070 P-089 P-090: 64-bit integers never pass through a double, floats round-trip."""
    from clients import connect

    client = connect(kind, server)
    want = CASES[name]
    if name == "string":
        want = np.array([[b"", "h\u00e9llo".encode(), b'quote " slash \\ newline \n nul \x00']], object)
    got = client.infer(f"id_{name}", {"INPUT0": want}, ["OUTPUT0"], binary=False).as_numpy("OUTPUT0")
    if name == "string":
        got = np.array([[s if isinstance(s, bytes) else s.encode() for s in got[0]]], object)
    same(got, want)
    client.close()


def test_bf16_comes_back_unchanged(client):
    want = np.array([[1.5, -2.0, 3.140625]], ml_dtypes.bfloat16)
    same(client.infer("id_bf16", {"INPUT0": want}, ["OUTPUT0"]).as_numpy("OUTPUT0"), want)


@pytest.mark.parametrize("dtype", ["FP16", "BF16"])
def test_two_byte_floats_are_refused_in_json(server, dtype):
    """P-069"""
    body = (b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"%s","data":[1]}]}' % dtype.encode())
    status, _, text = server.request("POST", f"/v2/models/id_{dtype.lower()}/infer", body)
    assert status == 400
    assert (
        text.decode() == f'{{"error":"receiving {dtype} data via JSON is not supported. '
        'Please use the binary data format for input INPUT0"}'
    )


@pytest.mark.parametrize("name", ["fp32", "int64", "string", "bool"])
def test_zero_size_tensors_are_answered(client, name):
    """P-071"""
    want = np.empty((1, 0), CASES[name].dtype)
    got = client.infer(f"id_{name}", {"INPUT0": want}, ["OUTPUT0"]).as_numpy("OUTPUT0")
    assert got is None or got.size == 0


def test_batches_keep_their_rows(client):
    want = np.arange(8 * 16, dtype=np.int32).reshape(8, 16)
    got = client.infer("simple", {"INPUT0": want, "INPUT1": want})
    same(got.as_numpy("OUTPUT0"), want * 2)
    same(got.as_numpy("OUTPUT1"), want * 0)


def test_integers_written_as_strings_are_added(client):
    digits = np.array([[str(i).encode() for i in range(16)]], object)
    got = client.infer("simple_string", {"INPUT0": digits, "INPUT1": digits})
    assert [int(s) for s in got.as_numpy("OUTPUT0")[0]] == [2 * i for i in range(16)]


@pytest.mark.parametrize("length", [1, 7, 4096])
def test_a_variable_dimension_takes_any_length(client, length):
    x = np.linspace(-1, 1, length, dtype=np.float32).reshape(1, length)
    got = client.infer("variable", {"X": x})
    same(got.as_numpy("DOUBLED"), x * 2)
    assert got.as_numpy("SUM")[0, 0] == pytest.approx(x.sum(), abs=1e-3)


def test_a_graph_of_rank_zero_is_served_as_one_element(client):
    """R-15: completion gives it dims [1]."""
    got = client.infer("scalar", {"INPUT0": np.array([2.5], np.float32)}).as_numpy("OUTPUT0")
    assert got.tolist() == [2.5]
    check_failure(
        client,
        lambda: client.infer("scalar", {"INPUT0": np.array([1, 2], np.float32)}),
        "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'scalar'. Expected [1], got [2]. ",
        400,
        "INVALID_ARGUMENT",
    )


def test_a_graph_of_rank_one_is_reshaped_to_from_rows(client):
    """C-07: an empty reshape removes the dimension."""
    rows = np.array([[1], [2], [3]], np.float32)
    assert client.infer("scalar_rows", {"INPUT0": rows}).as_numpy("OUTPUT0").tolist() == rows.tolist()


def test_a_model_without_inputs_answers(client):
    assert client.infer("constant", {}).as_numpy("OUTPUT0").tolist() == [4, 8, 15]


def test_an_input_with_an_initialiser_may_be_left_out(client):
    """P-168 C-09"""
    x = np.array([1, 2], np.float32)
    assert client.infer("optional", {"INPUT0": x}).as_numpy("OUTPUT0").tolist() == [3, 6]
    scale = np.array([10], np.float32)
    assert client.infer("optional", {"INPUT0": x, "SCALE": scale}).as_numpy("OUTPUT0").tolist() == [10, 20]


def test_reshape_is_applied_both_ways(client):
    """C-07"""
    x = np.arange(16, dtype=np.int32)
    got = client.infer("reshape", {"INPUT0": x.reshape(1, 2, 8), "INPUT1": x.reshape(1, 4, 4)})
    same(got.as_numpy("OUTPUT0"), (x * 2).reshape(1, 8, 2))
    same(got.as_numpy("OUTPUT1"), (x * 0).reshape(1, 16))


def test_versions_can_be_asked_for(client):
    """R-06 R-08 P-140: without one, the greatest."""
    x = np.array([[1, 2, 3, 4]], np.int32)
    check = {"1": [2, 3, 4, 5], "2": [10, 20, 30, 40], "": [10, 20, 30, 40]}
    for version, want in check.items():
        got = client.infer("versions", {"INPUT0": x}, model_version=version)
        assert got.as_numpy("OUTPUT0").tolist() == [want]
        assert client.response(got)["model_version"] == (version or "2")


def test_the_request_id_is_echoed(client):
    """P-080 P-140"""
    got = client.infer("simple", {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}, request_id="a-1 \u00fc")
    assert client.response(got)["id"] == "a-1 \u00fc"


def test_response_parameters_of_each_type_arrive(client):
    """P-094, backends-native 11.1"""
    got = client.infer("echo", {"INPUT0": np.array([1], np.float32)})
    assert client.parameter(got, "param0") == "an example string parameter"
    assert client.parameter(got, "param1") == 42
    assert client.parameter(got, "param2") is False
    assert client.parameter(got, "param3") == pytest.approx(123.123)


def test_request_parameters_of_each_type_are_accepted(client):
    """P-083 P-141"""
    parameters = {"text": "x", "number": 7, "flag": True}
    got = client.infer("echo", {"INPUT0": np.array([1], np.float32)}, parameters=parameters)
    assert got.as_numpy("OUTPUT0").tolist() == [1]


def test_priority_and_timeout_are_accepted(client):
    """P-082"""
    arrays = {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}
    assert client.infer("simple", arrays, priority=1, timeout=1_000_000).as_numpy("OUTPUT0").sum() == 240


def test_reserved_parameters_are_refused(server):
    """P-084. Sent by hand: tritonclient refuses some of these names itself."""
    tensor = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}
    body = json.dumps({"parameters": {"triton_x": 1}, "inputs": [tensor]}).encode()
    status, _, text = server.request("POST", "/v2/models/echo/infer", body)
    assert (status, json.loads(text)["error"]) == (
        400,
        "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
    )


def test_reserved_parameters_are_refused_over_grpc(server):
    """P-141"""
    request = service_pb2.ModelInferRequest(model_name="echo", raw_input_contents=[bytes(4)])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
    request.parameters["triton_x"].int64_param = 1
    with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.RpcError) as raised:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert raised.value.details() == (
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
        "'triton_' are allowed: triton_enable_empty_final_response"
    )


def test_only_the_outputs_asked_for_come_back(client):
    got = client.infer("simple", {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}, ["OUTPUT1"])
    assert got.as_numpy("OUTPUT0") is None
    assert got.as_numpy("OUTPUT1").tolist() == [[0] * 16]


def test_classification_sorts_and_labels(client):
    """P-096 P-144 C-11: a label that is empty or missing leaves value and index."""
    x = np.array([[0.5, 3, -1, 2, 9, 4]], np.float32)
    got = client.infer("classify", {"INPUT0": x}, [client.output("OUTPUT0", classes=4)]).as_numpy("OUTPUT0")
    assert got.shape == (1, 4)
    assert [s.decode() for s in got[0]] == [
        "9.000000:4:four:colon",
        "4.000000:5",
        "3.000000:1:one",
        "2.000000:3:three with space",
    ]


def test_classification_takes_no_more_than_there_is(client):
    x = np.array([[1, 2], [4, 3]], np.float32)
    got = client.infer("classify", {"INPUT0": x}, [client.output("OUTPUT0", classes=9)]).as_numpy("OUTPUT0")
    assert [[s.decode() for s in row] for row in got] == [
        ["2.000000:1:one", "1.000000:0:zero"],
        ["4.000000:0:zero", "3.000000:1:one"],
    ]


def test_classification_of_nothing_does_not_end_the_server(client, server):
    """P-096: the reference divides by zero here. Any answer is right, a dead server is not."""
    from tritonclient.utils import InferenceServerException

    try:
        client.infer("classify", {"INPUT0": np.empty((1, 0), np.float32)}, [client.output("OUTPUT0", classes=3)])
    except InferenceServerException:
        pass
    assert client.call("is_server_live")
    assert server.process.poll() is None


def test_big_tensors_pass_in_both_directions(client):
    """P-157: 16 MiB, well over any default window or message size."""
    want = np.random.default_rng(7).random(4 << 20, dtype=np.float32)
    same(client.infer("echo", {"INPUT0": want}, ["OUTPUT0"]).as_numpy("OUTPUT0"), want)


def test_ragged_rows_are_batched_and_split(server):
    """S-16"""
    from concurrent.futures import ThreadPoolExecutor

    from clients import connect

    def one(n):
        client = connect("grpc", server)
        x = np.full((1, n), n, np.float32)
        got = client.infer("ragged", {"R": x}).as_numpy("R_OUT")
        client.close()
        return got.tolist() == x.tolist()

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(one, [1, 2, 3, 5, 8, 13] * 5))

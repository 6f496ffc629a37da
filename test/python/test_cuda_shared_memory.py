"""CUDA shared memory with tritonclient's own code, over a libcuda.so.1 without a GPU (crates/device/tests/mock) on both sides. Rows of memory.md §2."""
import base64
import json
import os

import numpy as np
import pytest
from tritonclient.utils import serialize_byte_tensor

from clients import SIXTEEN, connect, failure
from cuda_mock import Region
from interpreter import python_server
from server import Server

BYTES = SIXTEEN.nbytes
IDENTITY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""


@pytest.fixture(scope="module")
def gpu_server(mock, repositories, tmp_path_factory):
    one = Server(repositories / "main", "--allow-client-shm=true", log=tmp_path_factory.mktemp("log") / "server.log", env=mock[0])
    yield one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


@pytest.fixture(params=["http", "grpc"])
def client(request, gpu_server):
    one = connect(request.param, gpu_server)
    yield one
    one.call("unregister_cuda_shared_memory")
    one.close()


@pytest.fixture
def region(mock, client):
    """Makes and registers regions: `region(name, byte_size, device) -> handle`."""
    made = []

    def make(name, byte_size, device=0):
        made.append(mock[1].create_shared_memory_region(name, byte_size, device))
        client.call("register_cuda_shared_memory", name, mock[1].get_raw_handle(made[-1]), device, byte_size)
        return made[-1]

    yield make
    client.call("unregister_cuda_shared_memory")
    while made:
        mock[1].destroy_shared_memory_region(made.pop())


def placed(client, kind, name, shape, datatype, region, size, offset=0):
    one = client.types.InferInput(name, shape, datatype) if kind == "in" else client.types.InferRequestedOutput(name)
    one.set_shared_memory(region, size, offset)
    return one


@pytest.mark.parametrize("device", [0, 1])
def test_m_25_inputs_and_outputs_lie_on_a_device(mock, client, region, device):
    cuda = mock[1]
    given, made = region("given", 2 * BYTES, device), region("made", 2 * BYTES, device)
    other = np.arange(100, 100 + SIXTEEN.size, dtype=np.int32).reshape(SIXTEEN.shape)
    cuda.set_shared_memory_region(given, [SIXTEEN, other])
    shape = list(SIXTEEN.shape)
    inputs = [placed(client, "in", f"INPUT{i}", shape, "INT32", "given", BYTES, i * BYTES) for i in (0, 1)]
    outputs = [placed(client, "out", f"OUTPUT{i}", None, None, "made", BYTES, i * BYTES) for i in (0, 1)]
    answer = client.response(client.call("infer", "simple", inputs, outputs=outputs))
    assert "data" not in answer["outputs"][0] and not any(answer.get("raw_output_contents", ())), "nothing goes through the network"
    found = cuda.get_contents_as_numpy(made, np.int32, [2, *SIXTEEN.shape])
    assert np.array_equal(found[0], SIXTEEN + other) and np.array_equal(found[1], SIXTEEN - other)


def test_m_25_one_region_is_input_and_output_beside_a_body(mock, client, region):
    both = region("both", BYTES)
    mock[1].set_shared_memory_region(both, [SIXTEEN])
    shape = list(SIXTEEN.shape)
    inputs = [placed(client, "in", "INPUT0", shape, "INT32", "both", BYTES), client.input("INPUT1", SIXTEEN)]
    answer = client.call("infer", "simple", inputs, outputs=[placed(client, "out", "OUTPUT0", None, None, "both", BYTES), client.output("OUTPUT1")])
    assert np.array_equal(mock[1].get_contents_as_numpy(both, np.int32, shape), 2 * SIXTEEN)
    assert np.array_equal(answer.as_numpy("OUTPUT1"), 0 * SIXTEEN)


def test_m_23_strings_on_a_device_are_counted_when_they_are_copied(mock, client, region):
    words = np.array([str(n).encode() for n in range(16)], dtype=object).reshape(1, 16)
    raw = serialize_byte_tensor(words)
    size = len(raw.item())
    handle = region("words", size)
    mock[1].set_shared_memory_region(handle, [raw])

    def ask(size):
        inputs = [placed(client, "in", f"INPUT{i}", [1, 16], "BYTES", "words", size) for i in (0, 1)]
        return client.call("infer", "simple_string", inputs)

    assert ask(size).as_numpy("OUTPUT0").reshape(-1).tolist() == [str(2 * n).encode() for n in range(16)]
    assert "expected 16 string elements for inference input 'INPUT0' for model 'simple_string', got" in failure(lambda: ask(size - 6))[0]


def test_m_25_a_python_model_reads_and_writes_a_device_by_copies(mock, tmp_path, tmp_path_factory):
    (tmp_path / "same/1").mkdir(parents=True)
    (tmp_path / "same/config.pbtxt").write_text('backend: "python"\ninput [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]\n')
    (tmp_path / "same/1/model.py").write_text(IDENTITY)
    one = python_server(tmp_path, "--allow-client-shm=true", log=tmp_path_factory.mktemp("log") / "server.log", env=mock[0])
    try:
        caller = connect("grpc", one)
        for count in (16, 100_000):
            values = np.arange(count, dtype=np.float32)
            given, made = (Region(mock, caller, name, count * 4) for name in ("given", "made"))
            given.set(values)
            caller.call("infer", "same", [given.input(count)], outputs=[made.output()])
            assert np.array_equal(made.get(count), values)
            given.drop(), made.drop()
        caller.close()
    finally:
        assert one.stop() == 0, one.tail()


def test_m_5_status_names_the_regions_of_its_kind(mock, client, region):
    region("b", 64, 1), region("a", 128)
    found = client.ask("get_cuda_shared_memory_status")
    if client.is_http:
        assert found == [{"name": "a", "device_id": 0, "byte_size": 128}, {"name": "b", "device_id": 1, "byte_size": 64}]
        assert client.ask("get_system_shared_memory_status") == []
    else:
        assert sorted(found["regions"]) == ["a", "b"] and found["regions"]["b"]["device_id"] == "1"
        assert client.ask("get_system_shared_memory_status") == {}
    text = failure(lambda: client.call("get_system_shared_memory_status", "a"))[0]
    assert text == "The region named 'a' is registered as CUDA shared memory, not system shared memory"
    client.call("unregister_system_shared_memory")
    client.call("unregister_system_shared_memory", "a")
    client.call("unregister_cuda_shared_memory", "b")
    assert failure(lambda: client.call("get_cuda_shared_memory_status", "b"))[0] == "Unable to find cuda shared memory region: 'b'"
    assert client.call("get_cuda_shared_memory_status", "a")


def test_m_23_m_24_what_does_not_fit_is_refused_with_tritons_texts(mock, client, region):
    cuda = mock[1]
    region("there", 64)
    block = cuda.create_shared_memory_region("block", 64, 0)
    handle = cuda.get_raw_handle(block)

    def refusal(name, handle, device, size):
        return failure(lambda: client.call("register_cuda_shared_memory", name, handle, device, size))[0]

    assert refusal("there", handle, 0, 64) == "shared memory region 'there' already in manager"
    assert refusal("more", handle, 0, 65) == "failed to register shared memory region 'more': invalid args"
    anonymous = "failed to register shared memory region: invalid args"
    assert refusal("other", handle, 1, 64) == anonymous, "memory of another device"
    assert refusal("none", handle, 2, 64) == anonymous, "there is no such device"
    assert refusal("junk", base64.b64encode(bytes(64)), 0, 64) == anonymous
    assert refusal("short", base64.b64encode(bytes(63)), 0, 64) == "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
    # One handle under two names is opened once, and stays as long as one of them does.
    client.call("register_cuda_shared_memory", "one", handle, 0, 64)
    client.call("register_cuda_shared_memory", "two", handle, 0, 32)
    client.call("unregister_cuda_shared_memory", "one")
    cuda.set_shared_memory_region(block, [np.arange(16, dtype=np.int32)])
    inputs = [placed(client, "in", "INPUT0", [1, 16], "INT32", "two", 64), client.input("INPUT1", SIXTEEN)]
    assert failure(lambda: client.call("infer", "simple", inputs))[0] == "Invalid offset + byte size for shared memory region: 'two'"
    client.call("unregister_cuda_shared_memory")
    cuda.destroy_shared_memory_region(block)
    del block


@pytest.mark.parametrize("body, code, text", [
    ("{", 500, "failed to parse the request JSON buffer: "),
    ("{}", 400, "Shared memory register request has no 'raw_handle' field"),
    ('{"raw_handle": {}}', 500, "attempt to access non-existing object member 'b64'"),
    ('{"raw_handle": {"b64": 1}}', 500, "attempt to access JSON non-string as string"),
    ('{"raw_handle": {"b64": "AA=="}}', 500, "attempt to access non-existing object member 'byte_size'"),
    ('{"raw_handle": {"b64": "AA=="}, "byte_size": 1}', 500, "attempt to access non-existing object member 'device_id'"),
    ('{"raw_handle": {"b64": "AA=="}, "byte_size": -1, "device_id": 0}', 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ('{"raw_handle": {"b64": "AA=="}, "byte_size": 1, "device_id": 0}', 400, "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"),
])
def test_m_2_bodies_are_checked_in_tritons_order(gpu_server, body, code, text):
    status, _, answer = gpu_server.request("POST", "/v2/cudasharedmemory/region/r/register", body.encode())
    assert status == code and json.loads(answer)["error"].startswith(text), answer


def test_m_22_a_device_that_fails_costs_the_requests_that_need_it(mock, repositories, start):
    one = start(repositories / "small", "--allow-client-shm=true", env={**mock[0], "NEREID_MOCK_CUDA_FAIL": "cuMemcpyDtoH_v2:0:700"})
    cuda = mock[1]
    caller = connect("http", one)
    block = cuda.create_shared_memory_region("block", BYTES, 0)
    cuda.set_shared_memory_region(block, [SIXTEEN])
    caller.call("register_cuda_shared_memory", "block", cuda.get_raw_handle(block), 0, BYTES)
    shape = list(SIXTEEN.shape)
    inputs = [placed(caller, "in", "INPUT0", shape, "INT32", "block", BYTES), caller.input("INPUT1", SIXTEEN)]
    text = failure(lambda: caller.call("infer", "simple", inputs))[0]
    assert "cuMemcpyDtoH failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)" in text
    assert np.array_equal(caller.infer("simple", {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}).as_numpy("OUTPUT0"), 2 * SIXTEEN)
    caller.call("unregister_cuda_shared_memory")
    cuda.destroy_shared_memory_region(block)
    del block
    caller.close()

"""Ensembles of models on a device, over a libcuda.so.1 without a GPU: tensors of tritonclient reach them and come back, by whatever way. Rows of memory.md §3."""
import json
import socket
import subprocess

import numpy as np
import pytest

from clients import connect, failure
from cuda_mock import Region
from server import Server, waits_for
from test_cuda_python import streamed

COUNT = 5000
TENSORS = 'input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'


# Without an instance group it is device 0.
ON_DEVICE = f'backend: "device_identity"\n{TENSORS}'


def step(model, source, target):
    return f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "INPUT0" value: "{source}" }} output_map {{ key: "OUTPUT0" value: "{target}" }} }}'


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    directory = tmp_path_factory.mktemp("devices")
    steps = ", ".join([step("first", "INPUT0", "a"), step("second", "a", "b"), step("first", "b", "OUTPUT0")])
    for name, config in {"first": ON_DEVICE, "second": ON_DEVICE, "steps": f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ step [ {steps} ] }}\n'}.items():
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)
    return directory


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_m_29_tensors_go_through_models_on_a_device_from_regions_of_two(mock, repository, tmp_path, transport):
    one = Server(repository, "--allow-client-shm=true", log=tmp_path / "server.log", env=mock[0])
    try:
        caller = connect(transport, one)
        values = np.arange(COUNT, dtype=np.float32)
        for model in ("first", "second", "steps"):
            assert np.array_equal(caller.infer(model, {"INPUT0": values}).as_numpy("OUTPUT0"), values), model
        for device in (0, 1):
            given, made = (Region(mock, caller, name, COUNT * 4, device) for name in ("given", "made"))
            for n, model in enumerate(("first", "second", "steps")):
                given.set(values + n)
                caller.call("infer", model, [given.input(COUNT, name="INPUT0")], outputs=[made.output(name="OUTPUT0")])
                assert np.array_equal(made.get(COUNT), values + n), (model, device)
            given.drop(), made.drop()
        caller.close()
    finally:
        assert one.stop() == 0, one.tail()


def test_m_29_a_device_without_memory_says_so(mock, repository, tmp_path):
    environment = {**mock[0], "NEREID_MOCK_CUDA_FAIL": "cuMemAlloc_v2:0:2"}
    one = Server(repository, log=tmp_path / "server.log", env=environment)
    try:
        caller = connect("http", one)
        values = np.arange(COUNT, dtype=np.float32)
        assert "there is no memory pool of device" in failure(lambda: caller.infer("steps", {"INPUT0": values}))[0]
        caller.close()
    finally:
        assert one.stop() == 0, one.tail()


BODIES = 16 << 20


@pytest.fixture(scope="module")
def near(mock, tmp_path_factory):
    """A model on a device, an ensemble that begins with it and one of the host, and little pinned memory."""
    directory = tmp_path_factory.mktemp("near")
    on_gpu = f"{ON_DEVICE}instance_group [ {{ kind: KIND_GPU gpus: [ 0 ] }} ]\n"
    steps = step("gpu", "INPUT0", "OUTPUT0")
    for name, config in {"gpu": on_gpu, "steps": f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ step [ {steps} ] }}\n', "host": f'backend: "identity"\n{TENSORS}'}.items():
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)
    one = Server(directory, f"--pinned-memory-pool-byte-size={BODIES}", log=tmp_path_factory.mktemp("log") / "server.log", env=mock[0])
    yield one
    assert one.stop() == 0, one.tail()


def staged(server, work):
    """Bytes that the processor copied for the device meanwhile."""
    before = server.metrics()["nereid_staged_bytes_total"]
    work()
    return server.metrics()["nereid_staged_bytes_total"] - before


@pytest.mark.parametrize("model", ["gpu", "steps"])
@pytest.mark.parametrize("transport", ["http", "grpc", "stream"])
def test_m_30_the_body_of_a_model_on_a_device_is_read_where_the_device_reads_it(near, transport, model):
    caller = connect("grpc" if transport == "stream" else transport, near)
    ask = (lambda values: streamed(near, model, [caller.input("INPUT0", values)])) if transport == "stream" else (lambda values: caller.infer(model, {"INPUT0": values}))
    try:
        for count in (1 << 18, 100_000):
            values = np.arange(count, dtype=np.float32)
            found = []
            assert staged(near, lambda: found.append(ask(values).as_numpy("OUTPUT0"))) == 0
            assert np.array_equal(found[0], values)
        # Beyond the part that one body may have, it is staged.
        values = np.arange((BODIES // 8) // 4 + 1, dtype=np.float32)
        assert staged(near, lambda: found.append(ask(values).as_numpy("OUTPUT0"))) == values.nbytes
        assert np.array_equal(found[1], values)
        # Another thread than the one that answers frees what has 1 MiB or more.
        waits_for(lambda: near.metrics()["nv_pinned_memory_pool_used_bytes"] == 0, "all of it came back")
    finally:
        caller.close()


def test_m_30_bodies_that_are_packed_or_have_no_raw_tensors_are_staged(near):
    caller = connect("http", near)
    values = np.arange(1 << 18, dtype=np.float32)
    try:
        packed = staged(near, lambda: caller.infer("gpu", {"INPUT0": values}, request_compression_algorithm="gzip"))
        assert packed == values.nbytes
        assert staged(near, lambda: caller.infer("gpu", {"INPUT0": values}, binary=False)) == values.nbytes
    finally:
        caller.close()


def test_m_30_over_http_2_without_tls_as_well(near, tmp_path):
    values = np.arange(1 << 18, dtype=np.float32)
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [values.size], "parameters": {"binary_data_size": values.nbytes}}], "parameters": {"binary_data_output": True}}).encode()
    (tmp_path / "body").write_bytes(head + values.tobytes())

    def ask():
        done = subprocess.run(["curl", "-sf", "--http2-prior-knowledge", "-H", f"Inference-Header-Content-Length: {len(head)}", "--data-binary", f"@{tmp_path}/body", f"http://{near.http}/v2/models/gpu/infer"], check=True, capture_output=True)
        assert done.stdout.endswith(values.tobytes())

    assert staged(near, ask) == 0


def test_m_30_clients_that_send_slowly_leave_pinned_memory_to_others(near):
    """Each holds what one body may have; together they have half of it, and who comes then is staged."""
    size = BODIES // 8
    slow = [socket.create_connection(("127.0.0.1", near.http_port)) for _ in range(8)]
    try:
        for one in slow:
            one.sendall(f"POST /v2/models/gpu/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 10\r\nContent-Length: {size - 64}\r\n\r\nx".encode())
        waits_for(lambda: near.metrics()["nv_pinned_memory_pool_used_bytes"] == BODIES // 2, "half of the pool")
        held, most = (near.metrics()[f"nereid_pinned_body_bytes{of}"] for of in ("", "_max"))
        assert most == BODIES // 2 and most - size < held <= most
        caller = connect("http", near)
        values = np.arange(1 << 18, dtype=np.float32)
        found = []
        assert staged(near, lambda: found.append(caller.infer("gpu", {"INPUT0": values}).as_numpy("OUTPUT0"))) == values.nbytes
        assert np.array_equal(found[0], values) and near.metrics()["nv_pinned_memory_pool_used_bytes"] == BODIES // 2
        for one in slow:
            one.close()
        waits_for(lambda: near.metrics()["nv_pinned_memory_pool_used_bytes"] == 0, "what they held")
        assert staged(near, lambda: caller.infer("gpu", {"INPUT0": values})) == 0
        caller.close()
    finally:
        for one in slow:
            one.close()


def test_m_30_models_on_the_host_take_none(near):
    caller = connect("http", near)
    values = np.arange(1 << 18, dtype=np.float32)
    with socket.create_connection(("127.0.0.1", near.http_port)) as one:
        one.sendall(f"POST /v2/models/host/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 10\r\nContent-Length: {1 << 20}\r\n\r\nx".encode())
        assert staged(near, lambda: caller.infer("host", {"INPUT0": values})) == 0
        assert near.metrics()["nv_pinned_memory_pool_used_bytes"] == 0
    caller.close()

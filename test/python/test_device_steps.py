"""Ensembles of models on a device, over a libcuda.so.1 without a GPU: tensors of tritonclient reach them and come back, by whatever way. Rows of memory.md §3."""
import numpy as np
import pytest

from clients import connect, failure
from server import Server
from test_cuda_shared_memory import placed

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
    environment, cuda, _ = mock
    one = Server(repository, "--allow-client-shm=true", log=tmp_path / "server.log", env=environment)
    try:
        caller = connect(transport, one)
        values = np.arange(COUNT, dtype=np.float32)
        for model in ("first", "second", "steps"):
            assert np.array_equal(caller.infer(model, {"INPUT0": values}).as_numpy("OUTPUT0"), values), model
        for device in (0, 1):
            given, made = (cuda.create_shared_memory_region(name, COUNT * 4, device) for name in ("given", "made"))
            for name, handle in (("given", given), ("made", made)):
                caller.call("register_cuda_shared_memory", name, cuda.get_raw_handle(handle), device, COUNT * 4)
            for n, model in enumerate(("first", "second", "steps")):
                cuda.set_shared_memory_region(given, [values + n])
                inputs = [placed(caller, "in", "INPUT0", [COUNT], "FP32", "given", COUNT * 4)]
                caller.call("infer", model, inputs, outputs=[placed(caller, "out", "OUTPUT0", None, None, "made", COUNT * 4)])
                assert np.array_equal(cuda.get_contents_as_numpy(made, np.float32, [COUNT]), values + n), (model, device)
            caller.call("unregister_cuda_shared_memory")
            cuda.destroy_shared_memory_region(given)
            cuda.destroy_shared_memory_region(made)
            del given, made, handle
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

"""Python models with inputs and outputs in regions of clients: the client's bytes are its own, in whatever way the model uses its arrays."""
import json
import os
import sys
import time

import numpy as np
import pytest

from clients import connect, failure
from interpreter import AS_CONFIGURED, python_server
from server import ROOT

sys.path.insert(0, os.path.join(ROOT, "shm/python"))
from nereid_shm import Region  # noqa: E402

CONFIG = """backend: "python"
input [ {{ name: "IN" data_type: {0} dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: {0} dims: [ -1 ] }} ]
"""
MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            {0}
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        return responses
"""
MODELS = {
    "same": ("TYPE_FP32", "pass"),
    "in_place": ("TYPE_FP32", "value += 1"),
    "upper": ("TYPE_STRING", "value = np.array([element.upper() for element in value], object)"),
    "longer": ("TYPE_FP32", "value = np.concatenate([value, value])"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    repository = tmp_path_factory.mktemp("python_regions")
    for name, (datatype, line) in MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(CONFIG.format(datatype))
        (repository / name / "1" / "model.py").write_text(MODEL.format(line))
    one = python_server(repository, AS_CONFIGURED, "--allow-client-shm=true", log=tmp_path_factory.mktemp("log") / "server.log")
    yield one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


@pytest.fixture(params=["http", "grpc"])
def caller(request, models):
    one = connect(request.param, models)
    yield one
    one.close()


def ask(caller, model, region):
    result = caller.call(
        "infer", model, region.infer_inputs(caller.types, "IN"), outputs=region.infer_outputs(caller.types, "OUT")
    )
    return [int(dim) for dim in caller.response(result)["outputs"][0]["shape"]]


# Inline in a frame, in one arena, and larger than an arena is at first.
@pytest.mark.parametrize("count", [1, 1000, 150_000, 6_000_000])
def test_b_py_04_a_model_that_writes_to_its_input_does_not_write_to_the_region(caller, count):
    """M-31 B-PY-04"""
    value = np.arange(count, dtype=np.float32)
    with Region.create({"IN": value, "OUT": ("FP32", [count])}) as region, region.registered(caller.raw):
        for model, wanted in (("in_place", value + 1), ("same", value), ("in_place", value + 1)):
            assert ask(caller, model, region) == [count]
            assert np.array_equal(region.array("OUT"), wanted)
            assert np.array_equal(region.array("IN"), value), "the input is the client's"


def test_b_py_05_strings_in_and_out_of_regions(caller):
    """M-18 B-PY-05"""
    value = np.array(["one", "", "zwei"] * 500, object)
    with Region.create({"IN": value, "OUT": ("BYTES", [-1], 65536)}) as region, region.registered(caller.raw):
        shape = ask(caller, "upper", region)
        assert region.array("OUT", shape).tolist() == [element.upper().encode() for element in value]


def test_one_window_may_be_input_and_output(caller):
    value = np.arange(1000, dtype=np.float32)
    with Region.create({"IN": value}) as region, region.registered(caller.raw):
        output = caller.types.InferRequestedOutput("OUT")
        output.set_shared_memory(region.name, value.nbytes)
        for turn in range(3):
            caller.call("infer", "in_place", region.infer_inputs(caller.types, "IN"), outputs=[output])
            assert np.array_equal(region.array("IN"), value + turn + 1)


def test_an_output_that_does_not_fit_says_both_sizes(caller):
    """M-14"""
    value = np.arange(1000, dtype=np.float32)
    with Region.create({"IN": value, "OUT": value}) as region, region.registered(caller.raw):
        message, _ = failure(lambda: ask(caller, "longer", region))
        assert message == "shared memory size specified with the request for output 'OUT' (4000 bytes) should be at least 8000 bytes to hold the results"
        assert ask(caller, "same", region) == [1000], "the instance goes on"


def test_a_region_that_its_owner_cuts_short_costs_its_request_only(caller):
    """M-17"""
    value = np.ones(150_000, np.float32)
    with Region.create({"IN": value, "OUT": ("FP32", [150_000])}) as region, region.registered(caller.raw):
        os.truncate(f"/dev/shm{region.key}", 4096)
        message, _ = failure(lambda: ask(caller, "same", region))
        assert message == f"Invalid shared memory region: '{region.name}'"
    with Region.create({"IN": value, "OUT": ("FP32", [150_000])}) as region, region.registered(caller.raw):
        assert ask(caller, "same", region) == [150_000]
        assert np.array_equal(region.array("OUT"), value)


def test_regions_of_python_models_are_let_go(models):
    assert json.loads(models.get("/v2/systemsharedmemory/status")) == []

    def mapped():
        with open(f"/proc/{models.process.pid}/maps") as maps:
            return "/dev/shm/nereid-" in maps.read()

    # A thread of its own unmaps them.
    end = time.monotonic() + 30
    while mapped() and time.monotonic() < end:
        time.sleep(0.01)
    assert not mapped()

"""Python models and memory of devices (backends-python.md 14.6), over a libcuda.so.1 without a GPU in the client, the server and the models' processes."""
import os
import queue

import numpy as np
import pytest
import tritonclient.grpc

from clients import connect, failure
from cuda_mock import Region
from device_server import caller, server  # noqa: F401 - fixtures
from interpreter import AS_CONFIGURED, FLAG, python_server
from server import waits_for

HERE = os.path.dirname(__file__)
COUNT = 400_000  # 1.6 MB of FP32
CONFIG = 'backend: "python"\ninput [ {{ name: "IN" data_type: {type} dims: [ -1 ] }} ]\noutput [ {{ name: "OUT" data_type: {type} dims: [ -1 ] }} ]\n{more}\n'
NO = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }'

HEAD = f"""
import os
import sys
sys.path.insert(0, {os.path.join(HERE, "device")!r})
import numpy as np
import triton_python_backend_utils as pb


def answer(tensor, **parameters):
    return pb.InferenceResponse([tensor], parameters=parameters)


class TritonPythonModel:
    def execute(self, requests):
        return [self.one(r.inputs()[0]) for r in requests]
"""
MODELS = {
    # What lies where.
    "where": ("TYPE_FP32", NO, """
    def one(self, t):
        kind, number = t.__dlpack_device__()
        if t.is_cpu():
            return answer(pb.Tensor("OUT", t.as_numpy()), where="cpu", kind=kind, number=number, arrays="arrays" in sys.modules)
        from arrays import Array
        try:
            t.as_numpy()
        except pb.TritonModelException as e:
            refused = str(e)
        array = Array.from_dlpack(t)
        assert array.address == Array.from_dlpack(t).address and array.shape == tuple(t.shape())
        return answer(pb.Tensor("OUT", array.get() + 1), where="gpu", kind=kind, number=number, refused=refused)
"""),
    "forced": ("TYPE_FP32", "", """
    def one(self, t):
        return answer(pb.Tensor("OUT", t.as_numpy() * 3), where="cpu" if t.is_cpu() else "gpu")
"""),
    # An output of its own memory, from a body or a device.
    "made": ("TYPE_FP32", NO, """
    def one(self, t):
        from arrays import Array, exports, live
        values = t.as_numpy() if t.is_cpu() else Array.from_dlpack(t).get()
        before = len(live), len(exports)
        out = pb.Tensor.from_dlpack("OUT", Array.of(values * 2, 1))
        assert not out.is_cpu() and out.__dlpack_device__() == (2, 1)
        return answer(out, blocks=before[0], exports=before[1])
"""),
    # The device still writes the output when its capsule is exported.
    "pending": ("TYPE_FP32", NO, """
    def one(self, t):
        from arrays import Array
        values = t.as_numpy() if t.is_cpu() else Array.from_dlpack(t).get()
        return answer(pb.Tensor.from_dlpack("OUT", Array.of(values * 2, 1, later=True).capsule()))
"""),
    # What came, changed where it lies.
    "same": ("TYPE_FP32", NO, """
    def one(self, t):
        from arrays import Array
        array = Array.from_dlpack(t)
        array.set(array.get() + 5)
        return answer(pb.Tensor.from_dlpack("OUT", array) if array.shape[0] % 2 else t if t.name() == "OUT" else pb.Tensor.from_dlpack("OUT", t))
"""),
    # Answers from a thread of its own, after the batch.
    "later": ("TYPE_FP32", NO + " model_transaction_policy { decoupled: true }", """
    def execute(self, requests):
        import threading
        for r in requests:
            threading.Thread(target=self.later, args=(r.get_response_sender(), r.inputs()[0])).start()

    def later(self, sender, t):
        from arrays import Array
        sender.send(pb.InferenceResponse([pb.Tensor.from_dlpack("OUT", Array.from_dlpack(t))]))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""),
    # Hands its input to another model, and the answer back.
    "calls": ("TYPE_FP32", NO, """
    def one(self, t):
        made = pb.InferenceRequest(model_name="where", requested_output_names=["OUT"], inputs=[pb.Tensor.from_dlpack("IN", t)]).exec()
        assert not made.has_error(), made.error().message()
        return answer(made.output_tensors()[0])
"""),
    "half": ("TYPE_BF16", NO, """
    def one(self, t):
        if t.is_cpu():
            return answer(t if t.name() == "OUT" else pb.Tensor.from_dlpack("OUT", t))
        assert t.__dlpack_device__() == (2, 0)
        return answer(pb.Tensor.from_dlpack("OUT", t), where="gpu")
"""),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, (datatype, more, code) in MODELS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG.format(type=datatype, more=more))
        (root / name / "1/model.py").write_text(HEAD + code)
    return root


def parameter(answer, name):
    found = answer.get_response().parameters[name]
    return getattr(found, found.WhichOneof("parameter_choice"))


def streamed(server, model, inputs):
    """The one answer of a decoupled model, an exception if it is an error."""
    answers = queue.Queue()
    client = tritonclient.grpc.InferenceServerClient(server.grpc)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    try:
        client.async_stream_infer(model, inputs)
        result, error = answers.get(timeout=60)
    finally:
        client.stop_stream()
        client.close()
    if error is not None:
        raise error
    return result


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("count, offset", [(16, 0), (COUNT, 4096)])
def test_b_py_07_b_pyr_14_an_input_is_handed_over_where_it_lies(mock, caller, server, device, count, offset):
    values = np.arange(count, dtype=np.float32)
    region = Region(mock, caller, "given", offset + count * 4, device)
    region.set(np.concatenate([np.zeros(offset // 4, np.float32), values]))
    answer = caller.call("infer", "where", [region.input(count, offset)])
    assert np.array_equal(answer.as_numpy("OUT"), values + 1)
    assert (parameter(answer, "where"), parameter(answer, "kind"), parameter(answer, "number")) == ("gpu", 2, device)
    assert parameter(answer, "refused") == "Tensor is stored in GPU and cannot be converted to NumPy."
    # The model is done with it, and says so without a further batch.
    waits_for(lambda: server.gauge("nereid_runner_leases", "where") == 0, "the lease is given back")
    region.drop()


def test_b_py_07_a_body_lies_in_the_host_and_opens_no_driver(caller, server):
    values = np.arange(COUNT, dtype=np.float32)
    answer = caller.infer("where", {"IN": values})
    assert np.array_equal(answer.as_numpy("OUT"), values)
    assert (parameter(answer, "where"), parameter(answer, "kind"), parameter(answer, "number")) == ("cpu", 1, 0)


def test_b_py_30_inputs_are_copied_to_the_host_where_the_model_does_not_say_no(mock, caller):
    for count in (16, COUNT):
        values = np.arange(count, dtype=np.float32)
        region = Region(mock, caller, "given", count * 4).set(values)
        answer = caller.call("infer", "forced", [region.input(count)], outputs=[region.output()])
        assert parameter(answer, "where") == "cpu" and np.array_equal(region.get(count), values * 3)
        region.drop()


@pytest.mark.parametrize("count", [16, COUNT])
def test_b_py_07_an_output_on_a_device_reaches_the_network_and_a_region(mock, caller, count):
    values = np.arange(count, dtype=np.float32)
    for _ in range(3):
        answer = caller.infer("made", {"IN": values})
        assert np.array_equal(answer.as_numpy("OUT"), values * 2)
    for device in (0, 1):
        region = Region(mock, caller, "made", count * 4, device).set(values)
        caller.call("infer", "made", [region.input(count)], outputs=[region.output()])
        assert np.array_equal(region.get(count), values * 2)
        region.drop()
    # What was sent is given back to the model: nothing is kept but what the last answer may still hold.
    ended = lambda: parameter(caller.infer("made", {"IN": values}), "blocks") == 0  # noqa: E731
    waits_for(ended, "memory of outputs is given back")


@pytest.mark.parametrize("count", [16, COUNT])
def test_b_py_07_an_output_that_the_device_still_writes_is_waited_for(mock, caller, count):
    values = np.arange(count, dtype=np.float32)
    region = Region(mock, caller, "made", count * 4, 1).set(values)
    caller.call("infer", "pending", [region.input(count)], outputs=[region.output()])
    assert np.array_equal(region.get(count), values * 2)
    region.drop()
    assert np.array_equal(caller.infer("pending", {"IN": values}).as_numpy("OUT"), values * 2)


@pytest.mark.parametrize("count", [16, 17, COUNT, COUNT + 1])
def test_b_py_07_memory_that_came_in_goes_out_again_without_an_export(mock, caller, server, count):
    values = np.arange(count, dtype=np.float32)
    given, made = Region(mock, caller, "given", count * 4).set(values), Region(mock, caller, "made", count * 4, 1)
    for round in (1, 2):
        caller.call("infer", "same", [given.input(count)], outputs=[made.output()])
        assert np.array_equal(made.get(count), values + 5 * round) and np.array_equal(given.get(count), values + 5 * round)
    answer = caller.call("infer", "same", [given.input(count)])
    assert np.array_equal(answer.as_numpy("OUT"), values + 15)
    caller.call("infer", "same", [given.input(count)], outputs=[given.output()])
    assert np.array_equal(given.get(count), values + 20)
    waits_for(lambda: server.gauge("nereid_runner_leases", "same") == 0, "the leases are given back")
    given.drop(), made.drop()


def test_b_py_07_a_decoupled_model_answers_from_a_device(mock, caller, server):
    values = np.arange(COUNT, dtype=np.float32)
    region = Region(mock, caller, "given", COUNT * 4).set(values)
    assert np.array_equal(streamed(server, "later", [region.input(COUNT)]).as_numpy("OUT"), values)
    region.drop()


def test_b_py_10_a_call_takes_an_input_on_a_device_along(mock, caller):
    values = np.arange(COUNT, dtype=np.float32)
    region = Region(mock, caller, "given", COUNT * 4).set(values)
    answer = caller.call("infer", "calls", [region.input(COUNT)])
    assert np.array_equal(answer.as_numpy("OUT"), values)
    region.drop()


def test_b_py_06_bf16_is_handed_over_as_it_lies(mock, caller):
    bits = np.arange(COUNT, dtype=np.uint16)
    given, made = Region(mock, caller, "given", COUNT * 2).set(bits), Region(mock, caller, "made", COUNT * 2)
    answer = caller.call("infer", "half", [given.input(COUNT, datatype="BF16", width=2)], outputs=[made.output()])
    assert parameter(answer, "where") == "gpu" and np.array_equal(made.get(COUNT, np.uint16), bits)
    given.drop(), made.drop()


def test_b_pyr_14_a_region_that_is_registered_anew_is_opened_anew(mock, caller):
    for round in range(3):
        values = np.full(64, round, np.float32)
        region = Region(mock, caller, "given", 256).set(values)
        assert np.array_equal(caller.call("infer", "where", [region.input(64)]).as_numpy("OUT"), values + 1)
        region.drop()


# What the driver refuses in a model's process.

FAILING = {
    "blind": ("TYPE_FP32", NO, """
    def initialize(self, args):
        import os
        os.environ["NEREID_LIBCUDA"] = "/nonexistent/libcuda.so.1"

    def one(self, t):
        return answer(pb.Tensor("OUT", t.as_numpy()), where="cpu" if t.is_cpu() else "gpu")
"""),
    # Its parameter says what fails from now on in this process.
    "told": ("TYPE_FP32", NO, """
    def execute(self, requests):
        import json
        answers = []
        for r in requests:
            os.environ["NEREID_MOCK_CUDA_FAIL"] = json.loads(r.parameters()).get("fail", "")
            t = r.inputs()[0]
            answers.append(self.one(t))
        return answers

    def one(self, t):
        from arrays import Array
        values = t.as_numpy() if t.is_cpu() else Array.from_dlpack(t).get()
        made = Array.of(values * 2)
        by_capsule = os.environ["NEREID_MOCK_CUDA_FAIL"].startswith("cuCtxSynchronize")
        return answer(pb.Tensor.from_dlpack("OUT", made.capsule() if by_capsule else made), where="cpu" if t.is_cpu() else "gpu")
"""),
}


@pytest.fixture(scope="module")
def failing(mock, tmp_path_factory):
    root = tmp_path_factory.mktemp("failing")
    for name, (datatype, more, code) in FAILING.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG.format(type=datatype, more=more))
        (root / name / "1/model.py").write_text(HEAD + code)
    one = python_server(root, AS_CONFIGURED, "--allow-client-shm=true", log=tmp_path_factory.mktemp("log") / "server.log", env=mock[0])
    caller = connect("grpc", one)
    yield one, caller
    caller.close()
    assert one.stop() == 0, one.tail()


def test_b_pyr_14_a_process_without_a_device_gets_a_copy_in_the_host(mock, failing):
    values = np.arange(COUNT, dtype=np.float32)
    region = Region(mock, failing[1], "given", COUNT * 4).set(values)
    answer = failing[1].call("infer", "blind", [region.input(COUNT)])
    assert parameter(answer, "where") == "cpu" and np.array_equal(answer.as_numpy("OUT"), values)
    region.drop()


def test_b_pyr_14_memory_of_which_no_handle_can_be_made_is_copied(mock, failing):
    values = np.arange(COUNT, dtype=np.float32)
    for function in ("cuIpcGetMemHandle", "cuMemGetAddressRange_v2"):
        answer = failing[1].infer("told", {"IN": values}, parameters={"fail": f"{function}:0:1"})
        assert np.array_equal(answer.as_numpy("OUT"), values * 2)


@pytest.mark.parametrize("function", ["cuMemcpyDtoH_v2", "cuCtxPushCurrent_v2", "cuStreamCreateWithPriority", "cuStreamSynchronize", "cuCtxSynchronize"])
def test_b_pyr_14_what_the_driver_refuses_fails_the_request_and_no_other(mock, failing, function):
    values = np.arange(16, dtype=np.float32)
    # The stream is made once: where it was before, the call that is to fail does not come.
    refused = None
    try:
        answer = failing[1].infer("told", {"IN": values}, parameters={"fail": f"{function}:0:2"})
        assert function == "cuStreamCreateWithPriority" and np.array_equal(answer.as_numpy("OUT"), values * 2)
    except Exception as e:
        refused = e.message()
    assert refused is None or f"{function} failed with " in refused, refused
    assert np.array_equal(failing[1].infer("told", {"IN": values}).as_numpy("OUT"), values * 2)
    assert failing[0].gauge("nereid_runner_restarts", "told") == 0


def test_b_pyr_14_a_handle_that_cannot_be_opened_fails_once_then_inputs_are_copied(mock, failing):
    values = np.arange(COUNT, dtype=np.float32)
    region = Region(mock, failing[1], "given", COUNT * 4).set(values)
    text = failure(lambda: failing[1].call("infer", "told", [region.input(COUNT)], parameters={"fail": "cuIpcOpenMemHandle_v2:0:801"}))[0]
    assert "an input is on GPU 0 and cannot be opened: cuIpcOpenMemHandle_v2 failed with" in text
    # The process says so on its own socket.
    waits_for(lambda: parameter(failing[1].call("infer", "told", [region.input(COUNT)]), "where") == "cpu", "inputs are copied")
    assert failing[0].gauge("nereid_runner_restarts", "told") == 0
    region.drop()


def test_b_pyr_14_a_process_whose_context_is_lost_is_started_again(mock, failing):
    values = np.arange(16, dtype=np.float32)
    text = failure(lambda: failing[1].infer("told", {"IN": values}, parameters={"fail": "cuMemcpyDtoH_v2:0:700"}))[0]
    assert "cuMemcpyDtoH_v2 failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)" in text

    def serves():
        try:
            return np.array_equal(failing[1].infer("told", {"IN": values}).as_numpy("OUT"), values * 2)
        except Exception:
            return False

    waits_for(serves, "another process serves")
    assert failing[0].gauge("nereid_runner_restarts", "told") == 1
    region = Region(mock, failing[1], "given", 64).set(values)
    waits_for(lambda: parameter(failing[1].call("infer", "told", [region.input(16)]), "where") == "gpu", "its devices are used again")
    region.drop()


# A device that fails for the server.


def test_m_22_a_server_whose_device_failed_says_so_and_serves_the_rest(mock, start, repository):
    one = start(repository, FLAG, AS_CONFIGURED, "--allow-client-shm=true", env={**mock[0], "NEREID_MOCK_CUDA_FAIL": "cuMemcpyDtoH_v2:1:700"})
    caller = connect("grpc", one)
    values = np.arange(16, dtype=np.float32)
    first, other = Region(mock, caller, "first", 64).set(values), Region(mock, caller, "other", 64, 1).set(values)
    why = "cuMemcpyDtoH failed with CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
    ask = lambda region: caller.call("infer", "forced", [region.input(16)])  # noqa: E731
    assert why in failure(lambda: ask(first))[0]
    gone = f"GPU 0 failed: {why}; it cannot be used until the server is started again"
    assert gone in failure(lambda: ask(first))[0], "also by regions that were there"
    assert failure(lambda: Region(mock, caller, "more", 64))[0] == f"failed to register CUDA shared memory region: 'more', {gone}"
    assert np.array_equal(ask(other).as_numpy("OUT"), values * 3), "the other device is used"
    assert np.array_equal(caller.infer("forced", {"IN": values}).as_numpy("OUT"), values * 3)
    # Without an instance group, models have an instance on each device.
    assert one.request("GET", "/v2/health/ready")[0] == 400 and one.request("GET", "/v2/health/live")[0] == 200
    assert one.metrics()["nereid_devices_failed"] == 1
    assert gone.split(";")[0] in one.tail()
    first.drop(), other.drop(), caller.close()
    assert one.stop() == 0, one.tail()


def test_r_49_with_exit_on_device_error_the_process_ends_with_its_reason(mock, start, repository):
    one = start(repository, FLAG, AS_CONFIGURED, "--allow-client-shm=true", "--exit-on-device-error=true", "--exit-grace-secs=2", env={**mock[0], "NEREID_MOCK_CUDA_FAIL": "cuMemcpyDtoH_v2:1:719"})
    caller = connect("grpc", one)
    region = Region(mock, caller, "first", 64).set(np.arange(16, dtype=np.float32))
    assert "cuMemcpyDtoH failed with" in failure(lambda: caller.call("infer", "forced", [region.input(16)]))[0]
    assert one.request("GET", "/v2/health/live")[0] == 400 and one.request("GET", "/v2/health/ready")[0] == 400
    caller.close()
    assert one.process.wait(timeout=60) == 3, one.tail()
    last = [line for line in one.tail().splitlines() if line.strip()][-1]
    assert "Exit code 3: GPU 0 failed: cuMemcpyDtoH failed with" in last, last

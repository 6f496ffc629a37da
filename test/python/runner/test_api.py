"""The module that models import, without a server: B-PY-01, B-PY-04, B-PY-05, B-PY-06, B-PY-09, B-PY-14, B-PY-18, B-PY-19, B-PY-22."""
import gc
import json
import weakref

import c_python_backend_utils as c
import numpy as np
import pytest
import triton_python_backend_utils as pb

SIGNATURE = "incompatible (constructor|function) arguments"


def test_b_py_01_all_names_are_there():
    names = """Tensor InferenceRequest InferenceResponse TritonError TritonModelException Logger PreferredMemory MetricFamily ModelConfig
        TRITONSERVER_MEMORY_CPU TRITONSERVER_MEMORY_GPU load_model unload_model is_model_ready get_model_dir TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
        TRITONSERVER_REQUEST_FLAG_SEQUENCE_END TRITONSERVER_RESPONSE_COMPLETE_FINAL TRITONSERVER_REQUEST_RELEASE_ALL TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
        TRITON_STRING_TO_NUMPY triton_string_to_numpy triton_to_numpy_type numpy_to_triton_type serialize_byte_tensor deserialize_bytes_tensor
        get_input_tensor_by_name get_output_tensor_by_name get_input_config_by_name get_output_config_by_name using_decoupled_model_transaction_policy"""
    assert [n for n in names.split() if not hasattr(pb, n)] == []
    hidden = "InferenceTrace ResponseIterator InferenceResponseSender Metric MetricKind MemoryType SharedMemory COUNTER GAUGE HISTOGRAM"
    assert [n for n in hidden.split() if not hasattr(c, n)] == []
    assert c.Tensor is pb.Tensor and pb.Tensor.__module__ == "c_python_backend_utils"
    assert {n: getattr(pb, n) for n in dir(pb) if n.startswith("TRITONSERVER_RE")} == {
        "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START": 1, "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END": 2, "TRITONSERVER_RESPONSE_COMPLETE_FINAL": 1,
        "TRITONSERVER_REQUEST_RELEASE_ALL": 1, "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE": 2,
    }  # fmt: skip
    assert c.SharedMemory().free_memory() == 0


def test_b_py_01_classes_have_the_methods_of_tritons_and_no_others():
    def public(kind):
        return [n for n in dir(kind) if not n.startswith("_")]

    assert public(pb.Tensor) == ["as_numpy", "from_dlpack", "is_cpu", "name", "shape", "to_dlpack", "triton_dtype"]
    assert public(pb.InferenceRequest) == """async_exec correlation_id exec flags get_response_sender inputs is_cancelled parameters request_id
        requested_output_names set_flags set_release_flags timeout trace""".split()
    assert public(pb.InferenceResponse) == ["error", "has_error", "output_tensors", "parameters"]
    assert public(pb.MetricFamily) == ["COUNTER", "GAUGE", "HISTOGRAM", "Metric"]
    assert public(c.Metric) == ["increment", "observe", "set", "value"]
    assert public(c.InferenceResponseSender) == ["is_cancelled", "send"]
    assert public(c.InferenceTrace) == ["get_context"]
    assert public(c.ResponseIterator) == ["cancel"]
    assert public(pb.Logger) == ["ERROR", "INFO", "LogLevel", "VERBOSE", "WARNING", "log", "log_error", "log_info", "log_verbose", "log_warn"]


def test_b_py_01_types_are_translated():
    assert pb.triton_string_to_numpy("TYPE_FP32") is np.float32 and pb.triton_string_to_numpy("TYPE_BOOL") is bool
    for unknown in ("TYPE_INVALID", "FP32", "", None):
        with pytest.raises(KeyError):
            pb.triton_string_to_numpy(unknown)
    codes = [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.object_]
    assert [pb.triton_to_numpy_type(i) for i in range(-1, 16)] == [None, None, *codes, None, None]
    assert [pb.numpy_to_triton_type(t) for t in codes] == list(range(1, 14))
    assert [pb.numpy_to_triton_type(t) for t in (bool, bytes, object, str, int, None)] == [None] * 6 and pb.numpy_to_triton_type(np.bytes_) == 13
    assert [pb.numpy_to_triton_type(np.dtype(t)) for t in ("?", "u1", "i4", "f8", "O", "S3", "U3", ">i4")] == [1, 2, 8, 12, 13, None, None, None]


def test_b_py_01_configurations_are_looked_through():
    config = {"input": [{"name": "A"}, {"name": "B"}], "output": [{"name": "O"}]}
    assert pb.get_input_config_by_name(config, "B") == {"name": "B"} and pb.get_input_config_by_name(config, "O") is None
    assert pb.get_output_config_by_name(config, "O") == {"name": "O"} and pb.get_output_config_by_name({}, "O") is None
    using = pb.using_decoupled_model_transaction_policy
    assert [using({}), using({"model_transaction_policy": {"decoupled": True}})] == [False, True]


def test_b_py_05_strings_are_put_into_bytes_and_back():
    raw = b"\2\0\0\0ab\0\0\0\0\1\0\0\0c"
    assert pb.serialize_byte_tensor(np.array([b"ab", b"", b"c"], object)) == raw
    assert pb.deserialize_bytes_tensor(raw).tolist() == [b"ab", b"", b"c"]
    assert pb.serialize_byte_tensor(np.array([1, None, 2.5, "x"], object)) == b"\1\0\0\x001\4\0\0\0None\3\0\0\x002.5\1\0\0\0x"
    assert pb.serialize_byte_tensor(np.zeros(0, object)) == () and pb.serialize_byte_tensor(np.zeros(2)) is None
    assert pb.serialize_byte_tensor(np.array([["a", "b"], ["c", "d"]], object).T)[4:5] == b"a"
    with pytest.raises(Exception, match="unpack_from requires a buffer of at least 6 bytes"):
        pb.deserialize_bytes_tensor(b"\2\0\0\0a")


@pytest.mark.parametrize("seed", range(20))
def test_b_py_05_fast_ways_find_what_the_slow_one_finds(seed):
    from nereid_runner import strings

    random = np.random.default_rng(seed)
    pools = [b"abc", b"\0a", b"\0", bytes(range(256))]
    items = [bytes(random.choice(list(pools[seed % 4]), random.integers(0, [4, 40, 300][seed % 3]))) for _ in range(random.integers(1, 300))]
    raw = b"".join(len(i).to_bytes(4, "little") + i for i in items)
    assert strings.encode_items(items) == raw
    assert strings.decode(raw, len(items)) == items == strings.decode(raw)


def test_b_py_04_a_tensor_keeps_the_array_it_was_made_of():
    for array in (np.zeros(3, "f4"), np.zeros((0, 2)), np.array(3.5), np.array(["x", b"y"], object), np.array([b"x", b"yy"]), np.frombuffer(b"abcd", "u1")):
        tensor = pb.Tensor("a", array)
        assert tensor.as_numpy() is array and tensor.shape() == list(array.shape)
    strided = np.zeros(6)[::2]
    assert not np.shares_memory(pb.Tensor("a", strided).as_numpy(), strided)
    fortran = np.asfortranarray(np.arange(6).reshape(2, 3))
    assert pb.Tensor("a", fortran).as_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("array", [[1], None, 5, "x", np.float32(1), (1,), memoryview(b"abc")])
def test_b_py_04_only_arrays_are_taken(array):
    with pytest.raises(TypeError, match=SIGNATURE):
        pb.Tensor("a", array)


@pytest.mark.parametrize("dtype", ["U2", "c8", "M8[s]", "m8[s]", "V4", ">i4", ">f4", np.longdouble, [("a", "i4")]])
def test_b_py_04_types_that_no_client_knows_are_refused(dtype):
    with pytest.raises(pb.TritonModelException, match="^NumPy dtype is not supported.$"):
        pb.Tensor("a", np.zeros(2, dtype))


def test_b_py_04_arguments_are_checked():
    one = np.zeros(1)
    for args, kwargs in (((), {}), (("a",), {}), (("a", one, 1), {}), (("a",), {"numpy_array": one}), ((None, one), {}), ((5, one), {}), (("\udc80", one), {})):
        with pytest.raises(TypeError, match=SIGNATURE):
            pb.Tensor(*args, **kwargs)
    with pytest.raises(pb.TritonModelException, match="^Tensor name cannot be an empty string.$"):
        pb.Tensor("", one)
    tensor = pb.Tensor("a", one)
    assert pb.Tensor(b"b", one).name() == "b" and tensor.is_cpu() and bool(tensor)
    with pytest.raises(TypeError, match=SIGNATURE):
        tensor.name(1)
    with pytest.raises(TypeError):
        len(tensor)
    with pytest.raises(TypeError):
        tensor.triton_dtype()
    with pytest.raises(AttributeError):
        tensor.extra = 5
    assert pb.Tensor("a", one) != pb.Tensor("a", one) and weakref.ref(tensor)() is tensor


def test_b_py_04_tensors_are_subclassed():
    class Twice(pb.Tensor):
        def twice(self):
            return self.name() * 2

    class Empty(pb.Tensor):
        def __init__(self, name):
            pass

    assert Twice("ab", np.zeros(1)).twice() == "abab"
    with pytest.raises(TypeError, match=r"^Empty.__init__\(\) must be called when overriding __init__$"):
        Empty("ab")


TYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]


@pytest.mark.parametrize("dtype", TYPES)
def test_b_py_06_dlpack_goes_round(dtype):
    array = np.array([[0, 1, 2]], dtype)
    for source in (pb.Tensor("a", array), pb.Tensor("a", array).to_dlpack()):
        tensor = pb.Tensor.from_dlpack("b", source)
        gc.collect()
        assert (tensor.name(), tensor.shape(), tensor.as_numpy().dtype, tensor.as_numpy().tolist()) == ("b", [1, 3], array.dtype, array.tolist())
        assert not np.shares_memory(tensor.as_numpy(), array)


def test_b_py_06_numpy_reads_what_is_exported_and_memory_lives():
    tensor = pb.Tensor("a", np.arange(4.0))
    from_dlpack = getattr(np, "from_dlpack", None) or np._from_dlpack  # numpy 1.22 hides it
    array = from_dlpack(tensor)
    del tensor
    gc.collect()
    assert array.tolist() == [0, 1, 2, 3]
    assert from_dlpack(pb.Tensor("a", np.zeros((0, 3)))).shape == (0, 3)
    assert pb.Tensor("a", np.zeros(1)).__dlpack_device__() == (1, 0)
    read_only = pb.Tensor("a", np.frombuffer(b"ab", "u1"))
    assert pb.Tensor.from_dlpack("b", read_only.to_dlpack()).as_numpy().tolist() == [97, 98]


def test_b_py_06_a_capsule_is_used_once_and_its_memory_freed():
    array = np.zeros(1000)
    gone = weakref.ref(array)
    capsule = array.__dlpack__()
    tensor = pb.Tensor.from_dlpack("b", capsule)
    assert "used_dlpack" in repr(capsule)
    with pytest.raises(pb.TritonModelException):
        pb.Tensor.from_dlpack("b", capsule)
    del array, capsule
    gc.collect()
    assert gone() is not None and tensor.as_numpy().sum() == 0
    del tensor
    gc.collect()
    assert gone() is None


class _Speaks:
    def __init__(self, device=(1, 0), give=None):
        self.device, self.give = device, give

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        return np.arange(2.0).__dlpack__() if self.give is None else self.give()


def test_b_py_06_what_cannot_be_taken_is_told():
    take = pb.Tensor.from_dlpack
    no_dlpack = type("Half", (), {"__dlpack__": lambda s, stream=None: None})()
    for value in (None, 5, [1], object(), no_dlpack):
        with pytest.raises(pb.TritonModelException, match="^Provided tensor is not supported. Tensor must be a DLPack capsule"):
            take("b", value)
    assert take("b", _Speaks()).as_numpy().tolist() == [0, 1]
    with pytest.raises(pb.TritonModelException, match="when GPU is not available$"):
        take("b", _Speaks((2, 0)))
    with pytest.raises(ZeroDivisionError):
        take("b", _Speaks(give=lambda: 1 / 0))
    with pytest.raises(TypeError, match="is not an instance of 'capsule'"):
        take("b", _Speaks(give=lambda: 5))
    for strided in (np.arange(6.0).reshape(2, 3).T, np.arange(6.0)[::2]):
        with pytest.raises(pb.TritonModelException, match="^DLPack tensor is not contiguous."):
            take("b", strided)
    assert take("b", np.arange(3.0).reshape(3, 1).T).shape() == [1, 3]
    with pytest.raises(pb.TritonModelException, match="^Dtype is invalid.$"):
        take("b", np.zeros(2, "c8"))
    for name, error in (("", pb.TritonModelException), (None, TypeError)):
        with pytest.raises(error):
            take(name, np.zeros(1))
    with pytest.raises(TypeError, match=SIGNATURE):
        pb.Tensor("q", np.zeros(1)).from_dlpack("b", np.zeros(2))
    strings = pb.Tensor("a", np.array(["x"], object))
    for use in (strings.to_dlpack, strings.__dlpack__, lambda: take("b", strings)):
        with pytest.raises(pb.TritonModelException, match="^DLPack does not have support for string tensors.$"):
            use()
    with pytest.raises(TypeError, match=SIGNATURE):
        pb.Tensor("a", np.zeros(1)).__dlpack__(max_version=(1, 0))


def tensor(name="A"):
    return pb.Tensor(name, np.ones(1, "f4"))


BASE = dict(inputs=[tensor()], requested_output_names=["O"], model_name="m")


def test_b_py_09_a_request_has_what_it_was_given():
    request = pb.InferenceRequest("i", 5, [tensor()], ["b", "a", "b"], "m", 2, 1, 1000)
    assert (request.request_id(), request.correlation_id(), request.flags(), request.timeout()) == ("i", 5, 1, 1000)
    assert request.requested_output_names() == {"a", "b"} and [t.name() for t in request.inputs()] == ["A"]
    request = pb.InferenceRequest(**BASE, correlation_id="c", parameters={"b": "x", "a": 1, "c": True})
    assert (request.correlation_id(), request.parameters(), request.trace().get_context()) == ("c", '{"b": "x", "a": 1, "c": true}', None)
    request.set_flags(2)
    assert request.flags() == 2 and not request.is_cancelled()
    assert pb.InferenceRequest(**BASE, preferred_memory=pb.PreferredMemory(pb.TRITONSERVER_MEMORY_CPU, 0), trace=request.trace()).flags() == 0
    assert [n for n in ("model_name", "model_version", "preferred_memory") if hasattr(request, n)] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": None}, {"inputs": [1]}, {"inputs": tensor()}, {"requested_output_names": None}, {"requested_output_names": [None]}, {"requested_output_names": "ab"},
        {"requested_output_names": {"a"}}, {"model_name": None}, {"model_name": 1}, {"model_version": "1"}, {"model_version": 1.0}, {"request_id": None},
        {"request_id": 5}, {"correlation_id": None}, {"flags": None}, {"flags": -1}, {"flags": 2**32}, {"timeout": -1}, {"timeout": 1.5}, {"preferred_memory": None},
        {"preferred_memory": pb.TRITONSERVER_MEMORY_CPU}, {"trace": None}, {"priority": 1},
    ],
    ids=str,
)  # fmt: skip
def test_b_py_09_wrong_types_of_a_request_are_type_errors(wrong):
    with pytest.raises(TypeError, match=SIGNATURE):
        pb.InferenceRequest(**{**BASE, **wrong})


@pytest.mark.parametrize(
    "wrong, error, text",
    [
        ({"inputs": [None], "request_id": "r"}, pb.TritonModelException, "Input tensor for request with id 'r' and model name 'm' should not be empty."),
        ({"requested_output_names": ["a", ""]}, pb.TritonModelException, "Requested output name for request with id '' and model name 'm' should not be empty."),
        ({"correlation_id": 1.5}, pb.TritonModelException, "Correlation ID must be integer or string"),
        ({"correlation_id": np.uint64(3)}, pb.TritonModelException, "Correlation ID must be integer or string"),
        ({"correlation_id": -1}, RuntimeError, "Unable to cast Python instance of type <class 'int'> to C++ type '?' (#define PYBIND11_DETAILED_ERROR_MESSAGES or compile in debug mode for details)"),
        ({"parameters": {1: 2}}, pb.TritonModelException, "Expect parameters keys to have type str, found type <class 'int'>"),
        ({"parameters": {"a": 1.5}}, pb.TritonModelException, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
        ({"parameters": "x"}, pb.TritonModelException, "Expect N8pybind114dictE, got <class 'str'>"),
    ],
    ids=lambda v: "-".join(v) if isinstance(v, dict) else "",
)  # fmt: skip
def test_b_py_09_wrong_values_of_a_request_have_tritons_texts(wrong, error, text):
    with pytest.raises(error) as caught:
        pb.InferenceRequest(**{**BASE, **wrong})
    assert str(caught.value) == text


def test_b_py_14_a_response_has_outputs_or_an_error():
    one = tensor()
    response = pb.InferenceResponse([one])
    assert response.output_tensors()[0] is one and not response.has_error() and response.error() is None and response.parameters() == "{}"
    response = pb.InferenceResponse([one], pb.TritonError("e", pb.TritonError.NOT_FOUND))
    assert response.has_error() and response.error().message() == "e" and response.output_tensors() == []
    assert json.loads(pb.InferenceResponse([], None, {"a": 2**70}).parameters()) == {"a": 2**70}
    for wrong in ((None,), (one,), ([5],), ([], "text"), ([], ValueError("x")), ([], None, {}, 1), ({one},)):
        with pytest.raises(TypeError, match=SIGNATURE):
            pb.InferenceResponse(*wrong)
    with pytest.raises(pb.TritonModelException, match="^Output tensor for inference response should not be empty.$"):
        pb.InferenceResponse([None])
    with pytest.raises(pb.TritonModelException, match="found type <class 'numpy.int32'>"):
        pb.InferenceResponse([], parameters={"a": np.int32(1)})


def test_b_py_18_error_codes_are_values_with_names():
    for value, name in enumerate(("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED", "RESOURCE_EXHAUSTED")):
        code = pb.TritonError("m", getattr(pb.TritonError, name)).code()
        assert (str(code), int(code), code.name, code.value) == (f"__ErrorCode.{name}", value, name, value)
        assert code == getattr(pb.TritonError, name) and {code: 1}[getattr(pb.TritonError, name)] == 1
    assert pb.TritonError.INTERNAL is not pb.TritonError.INTERNAL and pb.TritonError("m").code() == pb.TritonError.INTERNAL != pb.TritonError.UNKNOWN
    members = sorted(type(pb.TritonError.INTERNAL).__members__)
    assert members[0] == "ALREADY_EXISTS" and "RESOURCE_EXHAUSTED" not in members  # as in Triton, which has none
    for wrong in ((), (None,), (5,), ("m", None), ("m", 2), ("m", "INTERNAL"), (ValueError("x"),)):
        with pytest.raises(TypeError, match=SIGNATURE):
            pb.TritonError(*wrong)
    assert not issubclass(pb.TritonError, BaseException) and pb.TritonError(b"m").message() == "m"
    assert [k.__name__ for k in pb.TritonModelException.__mro__][:2] == ["TritonModelException", "Exception"]


def test_b_py_19_wrong_messages_and_levels_are_type_errors(capsys):
    for wrong in ((None,), (5,), (), ("a", 1), ("a", None), ("a", "INFO")):
        with pytest.raises(TypeError, match=SIGNATURE):
            pb.Logger.log(*wrong)
    for wrong in ((None,), ("%s", 5), (), ("\udc80",)):
        with pytest.raises(TypeError, match=SIGNATURE):
            pb.Logger.log_info(*wrong)
    assert [str(v) for v in (pb.Logger.INFO, pb.Logger.VERBOSE)] == ["LogLevel.INFO", "LogLevel.VERBOSE"]
    pb.Logger.log_warn("without a server lines go to stderr")
    assert "W test_api.py:" in capsys.readouterr().err
    with pytest.raises(TypeError, match="No constructor defined!"):
        pb.Logger()


def config(**more):
    return pb.ModelConfig(json.dumps({"name": "m", "max_batch_size": 4, "input": [], "output": [], **more}))


def test_b_py_22_a_configuration_is_completed():
    made = config(max_batch_size=0)
    made.set_max_batch_size(2)
    made.set_dynamic_batching()
    made.set_dynamic_batching()
    made.add_input({"name": "a", "data_type": "TYPE_FP32", "dims": [1], "optional": True})
    made.add_input({"name": "a", "data_type": "TYPE_FP32", "dims": [1]})
    made.add_output({"name": "o", "data_type": "TYPE_FP32", "dims": [1]})
    made.set_model_transaction_policy({"decoupled": True})
    assert made.as_dict() == {
        "name": "m", "max_batch_size": 2, "input": [{"name": "a", "data_type": "TYPE_FP32", "dims": [1], "optional": True}],
        "output": [{"name": "o", "data_type": "TYPE_FP32", "dims": [1]}], "dynamic_batching": {}, "model_transaction_policy": {"decoupled": True},
    }  # fmt: skip
    made = config(input=[{"name": "a", "data_type": "TYPE_INVALID", "dims": []}])
    made.add_input({"name": "a", "data_type": "TYPE_FP32", "dims": [3]})
    assert made.as_dict()["input"] == [{"name": "a", "data_type": "TYPE_FP32", "dims": [3]}]


FP32 = {"name": "a", "data_type": "TYPE_FP32", "dims": [1]}
IN = "in auto-complete-config function for model 'm'"


@pytest.mark.parametrize(
    "present, call, error, text",
    [
        ({}, lambda m: m.set_max_batch_size(2), ValueError, f"configuration specified max_batch_size 4, but {IN} specified max_batch_size 2"),
        ({}, lambda m: m.set_max_batch_size("4"), TypeError, "'>' not supported between instances of 'int' and 'str'"),
        ({"sequence_batching": {}}, lambda m: m.set_dynamic_batching(), ValueError, "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config function for model 'm' tries to set scheduling_choice as 'dynamic_batching'"),
        ({}, lambda m: m.add_input({**FP32, "reshape": {}}), ValueError, f"input 'a' {IN} contains property other than 'name', 'data_type', 'dims' and 'optional'."),
        ({}, lambda m: m.add_input({"x": 1}), KeyError, "'name'"),
        ({}, lambda m: m.add_input(["name"]), TypeError, "list indices must be integers or slices, not str"),
        ({}, lambda m: m.add_input({}), ValueError, f"input {IN} is missing 'name' property."),
        ({}, lambda m: m.add_input({"name": "a"}), ValueError, f"input 'a' {IN} is missing 'data_type' property."),
        ({}, lambda m: m.add_output({"name": "a", "data_type": "TYPE_FP32"}), ValueError, f"output 'a' {IN} is missing 'dims' property."),
        ({}, lambda m: m.add_output({**FP32, "optional": True}), ValueError, f"output 'a' {IN} contains property other than 'name', 'data_type' and 'dims'."),
        ({"input": [{**FP32, "data_type": "TYPE_INT8"}]}, lambda m: m.add_input(FP32), ValueError, "unable to load model 'm', configuration expects datatype TYPE_INT8 for input 'a', model provides TYPE_FP32"),
        ({"output": [{**FP32, "dims": [-1]}]}, lambda m: m.add_output(FP32), ValueError, "model 'm', tensor 'a': the model expects dims [1] but the model configuration specifies dims [-1]"),
        ({"input": [{**FP32, "optional": False}]}, lambda m: m.add_input({**FP32, "optional": True}), ValueError, "model 'm', tensor 'a': the model expects optional True but the model configuration specifies optional False"),
        ({}, lambda m: m.set_model_transaction_policy({"coupled": 1}), ValueError, "model transaction property in auto-complete-config function for model 'm' contains property other than 'decoupled'."),
        ({"model_transaction_policy": {"decoupled": True}}, lambda m: m.set_model_transaction_policy({"decoupled": False}), ValueError, "trying to change decoupled property in auto-complete-config for model 'm', which is already set to 'True'."),
    ],
    ids=lambda v: "",
)  # fmt: skip
def test_b_py_22_what_contradicts_is_refused(present, call, error, text):
    with pytest.raises(error) as caught:
        call(config(**present))
    assert str(caught.value) == text


def test_b_py_10_without_a_server_nobody_can_be_called():
    with pytest.raises(pb.TritonModelException, match="^BLS is only supported during the 'execute' function.$"):
        pb.InferenceRequest(**BASE).exec()

"""PyTriton's form of serving functions, from packaging/wheel."""
import asyncio
import functools
import inspect
import os
import queue
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from clients import Client
from server import ROOT, until

os.environ["NEREID_MAIN"] = os.environ.get("NEREID_MAIN", os.path.join(ROOT, "dist/cli/main.js"))
sys.path.insert(0, os.path.join(ROOT, "packaging/wheel"))

from nereid import ServerError  # noqa: E402
from nereid.pytriton.decorators import (  # noqa: E402
    ConstantPadder, batch, fill_optionals, first_value, get_model_config, group_by_keys, group_by_values, pad_batch, sample, triton_context,
)  # fmt: skip
from nereid.pytriton.exceptions import (  # noqa: E402
    PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonRuntimeError, PyTritonUnrecoverableError, PyTritonValidationError,
)  # fmt: skip
from nereid.pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor, TimeoutAction  # noqa: E402
from nereid.pytriton.model_config.common import ModelWarmup, WarmupInput  # noqa: E402
from nereid.pytriton.proxy.types import Request  # noqa: E402
from nereid.pytriton.triton import RemoteTriton, Triton, TritonConfig, TritonSecurityConfig  # noqa: E402

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="functions run on Linux"),
    # A thread whose connection was closed ends with SystemExit, which Python itself does not report.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
LOOPBACK = {f"{service}_{what}": value for service in ("http", "grpc", "metrics") for what, value in (("port", 0), ("address", "127.0.0.1"))}


def tensors(*names, dtype=np.float32, shape=(-1,), optional=False):
    return [Tensor(name=name, dtype=dtype, shape=shape, optional=optional) for name in names]


class Scale:
    """Methods are decorated like functions."""

    def __init__(self, factor):
        self.factor = factor

    @batch
    def times(self, **inputs):
        [x] = inputs.values()
        return [x * self.factor]

    @batch
    def __call__(self, x):
        return {"y": x + self.factor}


@fill_optionals(t=np.array([2], np.float32))
@group_by_keys
@batch
@first_value("w")
def add(a, t, w=1):
    return {"sum": a * w + t}


def raw(requests):
    """Parameters, and the order of the inputs."""
    return [{"y": np.array([[";".join(one), one.parameters.get("word", "none")]]).astype("S")} for one in requests]


def cut(function):
    """A decorator that knows nothing of PyTriton: drops the padding of results."""

    @functools.wraps(function)
    def call(x):
        return {name: array[: len(x)] for name, array in function(x=x).items()}

    return call


@batch
@cut
@triton_context
@pad_batch
def padded(x, triton_context):
    """How many rows there are with the padding, and the most rows of the model."""
    most = triton_context.model_configs[padded].max_batch_size
    return {name: np.full((len(x), 1), value, np.int64) for name, value in (("y", len(x)), ("most", most))}


@batch
def count(n):
    for i in range(int(n.max())):
        yield {"y": np.full((len(n), 1), i, np.int64)}
        if i == 2 and n.max() == 99:
            raise LookupError("no more than three")


async def soon(requests):
    await asyncio.sleep(0.01)
    return [{"y": one["x"]} for one in requests]


async def words(requests):
    [one] = requests
    for word in one["text"][0].decode().split():
        await asyncio.sleep(0)
        yield [{"word": np.char.encode([word], "utf-8")}]


WRONG = {
    b"type": {"y": np.zeros((1, 2), np.float64)},
    b"dims": {"y": np.zeros((1, 2, 1), np.float32)},
    b"size": {"y": np.zeros((1, 3), np.float32)},
    b"name": {"z": np.zeros((1, 2), np.float32)},
    b"list": [np.zeros((1, 2), np.float32)],
    b"value": {"y": [[1.0, 2.0]]},
    b"text": {"y": np.array([["a", "b"]], object)},
    b"none": {},
}


def wrong(requests):
    return [WRONG[one["kind"][0, 0]] for one in requests]


@pytest.fixture(scope="module")
def triton():
    with Triton(config=TritonConfig(**LOOPBACK)) as made:
        made.bind("Add", add, [*tensors("a"), *tensors("t", "w", optional=True)], tensors("sum"), config=ModelConfig(max_batch_size=8), strict=True)
        made.bind("One", sample(lambda x: [x * np.float32(2)]), tensors("x"), tensors("y"), config=ModelConfig(batching=False), strict=True)
        made.bind("Raw", [raw, raw], tensors("b", "a"), tensors("y", dtype=bytes, shape=(2,)), strict=True)
        made.bind("Times", Scale(3).times, tensors(None), tensors(None), strict=True)
        made.bind("Plus", Scale(4), tensors("x"), tensors("y"), strict=True)
        sizes = ModelConfig(max_batch_size=8, batcher=DynamicBatcher(preferred_batch_size=[4]))
        made.bind("Padded", padded, tensors("x"), tensors("y", "most", dtype=np.int64), config=sizes)
        made.bind("Count", count, tensors("n", dtype=np.int64, shape=(1,)), tensors("y", dtype=np.int64), config=ModelConfig(decoupled=True), strict=True)
        made.bind("Soon", soon, tensors("x"), tensors("y"), strict=True)
        stream = ModelConfig(batching=False, decoupled=True)
        made.bind("Words", words, tensors("text", dtype=np.bytes_, shape=(1,)), tensors("word", dtype=object), config=stream, strict=True)
        made.bind("Several", count, tensors("n", dtype=np.int64, shape=(1,)), tensors("y", dtype=np.int64))
        for name, strict in (("Strict", True), ("Loose", False)):
            made.bind(name, wrong, tensors("kind", dtype=bytes, shape=(1,)), tensors("y", shape=(2,)), strict=strict)
        yield made


def client_of(triton, kind="http"):
    return Client(kind, triton.server.http_address if kind == "http" else triton.server.grpc_address)


def stream(triton, model, datatype, name, array):
    """The responses of a decoupled model, as arrays, and the error that ends them."""
    responses = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(triton.server.grpc_address) as client:
        client.start_stream(lambda result, error: responses.put((result, error)))
        given = tritonclient.grpc.InferInput(name, array.shape, datatype)
        given.set_data_from_numpy(array)
        client.async_stream_infer(model, [given], enable_empty_final_response=True)
        found = []
        while True:
            result, error = responses.get(timeout=20)
            if error is not None:
                return found, str(error)
            if result.get_response().outputs:
                found.append({output.name: result.as_numpy(output.name) for output in result.get_response().outputs})
            if result.get_response().parameters["triton_final_response"].bool_param:
                return found, None


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_bound_closures_methods_and_objects_answer_with_their_shapes(triton, kind):
    client = client_of(triton, kind)
    a = np.array([[1, 2], [3, 4]], np.float32)
    one = np.full((2, 1), 3, np.float32)
    for arrays, expected in (({"a": a}, a + 2), ({"a": a, "w": one}, a * 3 + 2), ({"a": a, "t": one}, a + 3)):
        found = client.infer("Add", arrays).as_numpy("sum")
        assert found.dtype == np.float32 and found.shape == (2, 2) and found.tolist() == expected.tolist()
    found = client.infer("One", {"x": a[0]}).as_numpy("y")
    assert found.dtype == np.float32 and found.tolist() == [2, 4]
    found = client.infer("Times", {"INPUT_1": a}).as_numpy("OUTPUT_1")
    assert found.dtype == np.float32 and found.tolist() == (a * 3).tolist()
    assert client.infer("Plus", {"x": a}).as_numpy("y").tolist() == (a + 4).tolist()
    assert client.infer("Soon", {"x": a}).as_numpy("y").tolist() == a.tolist()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_inputs_come_in_the_order_of_the_model_with_the_parameters(triton, kind):
    x = np.zeros((1, 1), np.float32)
    client = client_of(triton, kind)
    assert client.infer("Raw", {"a": x, "b": x}, parameters={"word": "w"}).as_numpy("y").tolist() == [[b"b;a", b"w"]]


def test_a_batch_is_padded_to_the_next_preferred_size(triton):
    client = client_of(triton)
    for rows, expected in ((1, 4), (4, 4), (5, 8), (8, 8)):
        found = client.infer("Padded", {"x": np.full((rows, 1), 7, np.float32)})
        assert found.as_numpy("y").tolist() == [[expected]] * rows and found.as_numpy("most").tolist() == [[8]] * rows


def test_generators_are_streams(triton):
    found, error = stream(triton, "Count", "INT64", "n", np.array([[2], [3]]))
    assert error is None and [one["y"].tolist() for one in found] == [[[i], [i]] for i in range(3)]
    assert all(one["y"].dtype == np.int64 for one in found)
    assert stream(triton, "Count", "INT64", "n", np.array([[0]])) == ([], None)
    found, error = stream(triton, "Count", "INT64", "n", np.array([[99]]))
    assert len(found) == 3 and "LookupError: no more than three" in error
    found, error = stream(triton, "Words", "BYTES", "text", np.array([b"a new day"], object))
    assert error is None and [one["word"].tolist() for one in found] == [[b"a"], [b"new"], [b"day"]]


def test_streams_of_an_instance_take_turns(triton):
    ends = []

    def one(n):
        stream(triton, "Count", "INT64", "n", np.array([[n]]))
        ends.append(n)

    threads = [threading.Thread(target=one, args=(n,)) for n in (3000, 3)]
    threads[0].start()
    time.sleep(0.05)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert ends == [3, 3000]


def test_several_results_need_a_decoupled_model(triton):
    client = client_of(triton)
    assert client.infer("Several", {"n": np.array([[1]])}).as_numpy("y").tolist() == [[0]]
    with pytest.raises(InferenceServerException, match=r"'Several' yields more than one result for a call; that needs ModelConfig\(decoupled=True\)"):
        client.infer("Several", {"n": np.array([[2]])})
    with pytest.raises(InferenceServerException, match="'Several' yields no result"):
        client.infer("Several", {"n": np.array([[0]])})


@pytest.mark.parametrize("kind, strict, loose", [
    ("type", "Returned output `y` for model `Strict` has invalid type. Returned: float64 (f). Expected: <class 'numpy.float32'>.", [0, 0]),
    ("dims", "Returned output `y` for model `Strict` has invalid shapes. Returned: (2, 1). Expected: (2,).", [[0], [0]]),
    ("size", "has invalid shapes at one or more positions. Returned: (3,). Expected: (2,).", [0, 0, 0]),
    ("name", "Returned output `z` is not defined in model config for model `Strict`.", None),
    ("list", "model callable must be list of response dicts with numpy arrays. Got response=[array(", "Got response="),
    ("value", "Not all values returned by `Strict` model callable are numpy arrays", "Not all values"),
    ("text", "Use string/byte-string instead of object for passing string in NumPy array from model `Strict`.", "Use string/byte-string"),
])
def test_results_are_compared_if_strict_and_converted_otherwise(triton, kind, strict, loose):
    client = client_of(triton)
    arrays = {"kind": np.array([[kind.encode()]], object)}
    with pytest.raises(InferenceServerException) as raised:
        client.infer("Strict", arrays)
    assert strict in str(raised.value)
    if isinstance(loose, str):
        with pytest.raises(InferenceServerException, match=loose):
            client.infer("Loose", arrays)
    elif loose is None:
        # As in PyTriton the output is left out.
        assert client.infer("Loose", arrays).as_numpy("y") is None
    else:
        found = client.infer("Loose", arrays).as_numpy("y")
        assert found.dtype == np.float32 and found.tolist() == [loose]


def test_statistics_and_loads_need_the_token(triton):
    url = f"{triton.server.http_url}/v2/models/Add/stats"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url)
    token = {"triton-access-token": triton.get_access_token()}
    assert urllib.request.urlopen(urllib.request.Request(url, headers=token)).status == 200


def test_wrong_binds_raise_the_errors_of_pytriton(triton):
    x, y = tensors("x"), tensors("y")
    with pytest.raises(PyTritonInvalidOperationError, match="Cannot add model with the same name twice."):
        triton.bind("ADD", add, x, y)
    with pytest.raises(PyTritonValidationError, match="can only contain alphanumeric characters"):
        triton.bind("a b", add, x, y)
    with pytest.raises(PyTritonValidationError, match="Output tensors cannot be optional."):
        triton.bind("Other", add, x, tensors("y", optional=True))
    with pytest.raises(PyTritonBadParameterError, match="`max_batch_size` must be greater or equal to 1"):
        triton.bind("Other", add, x, y, config=ModelConfig(max_batch_size=0))
    policies = DynamicBatcher(priority_queue_policy={1: QueuePolicy()})
    with pytest.raises(PyTritonBadParameterError, match="Provide the `priority_levels`"):
        triton.bind("Other", add, x, y, config=ModelConfig(batcher=policies))
    with pytest.raises(PyTritonRuntimeError, match="'Other' cannot be loaded: .*\n.*Response Cache does not currently support"):
        triton.bind("Other", count, x, y, config=ModelConfig(decoupled=True, response_cache=True))
    with pytest.raises(PyTritonValidationError, match="Invalid endpoint names: nothing. Valid endpoints are: health"):
        TritonSecurityConfig(restricted_endpoints=["nothing"])
    with pytest.raises(PyTritonValidationError, match="The `http` or `grpc` endpoint has to be allowed."):
        TritonConfig(allow_http=False, allow_grpc=False)


def test_the_configuration_has_the_fields_of_the_batcher(triton):
    policy = QueuePolicy(TimeoutAction.DELAY, 5_000_000, True, 7)
    batcher = DynamicBatcher(100, [2, 4], False, 3, 2, policy, {1: QueuePolicy(max_queue_size=9)})
    triton.bind("Tuned", batch(lambda x: {"y": x}), tensors("x"), tensors("y"), config=ModelConfig(max_batch_size=4, batcher=batcher))
    found = tritonclient.grpc.InferenceServerClient(triton.server.grpc_address).get_model_config("Tuned", as_json=True)["config"]["dynamic_batching"]
    expected_policy = {"timeout_action": "DELAY", "default_timeout_microseconds": "5000000", "allow_timeout_override": True, "max_queue_size": 7}
    assert found == {
        "preferred_batch_size": [2, 4], "max_queue_delay_microseconds": "100", "priority_levels": "3",
        "default_priority_level": "2", "default_queue_policy": expected_policy, "priority_queue_policy": {"1": {"max_queue_size": 9}},
    }  # fmt: skip
    assert client_of(triton).infer("Tuned", {"x": np.ones((1, 1), np.float32)}).as_numpy("y").tolist() == [[1]]


def test_a_warm_up_runs_in_each_instance_before_the_model_is_ready(triton, tmp_path):
    seen = [[], []]
    np.save(tmp_path / "rows.npy", np.array([[1, 2], [3, 4]], np.float32))

    def made(to):
        @batch
        def run(**inputs):
            to.append({name: (value.shape, value.dtype.kind, value.tolist() if name == "file" else None) for name, value in inputs.items()})
            return {"y": inputs["zero"]}

        return run

    warmup = ModelWarmup("w", 3, {
        "zero": WarmupInput(np.float32, (2,), zero_data=True),
        "text": WarmupInput(bytes, (1,), random_data=True),
        "file": WarmupInput(np.float32, (2,), input_data_file=str(tmp_path / "rows.npy")),
    }, 2)  # fmt: skip
    inputs = [*tensors("zero", "file"), *tensors("text", dtype=bytes)]
    triton.bind("Warm", [made(to) for to in seen], inputs, tensors("y"), config=ModelConfig(model_warmup=[warmup]))
    one = {"zero": ((3, 2), "f", None), "text": ((3, 1), "O", None), "file": ((3, 2), "f", [[1, 2], [3, 4], [1, 2]])}
    assert seen == [[one, one]] * 2


def test_a_server_is_stopped_and_started_again_with_other_functions():
    made = Triton(config=TritonConfig(**LOOPBACK))
    for factor in (2, 3):
        made.bind("Scale", Scale(factor).times, tensors("x"), tensors("y"))
        made.run()
        assert made.is_alive()
        assert client_of(made).infer("Scale", {"x": np.ones((1, 1), np.float32)}).as_numpy("y").tolist() == [[factor]]
        assert made.stop() and not made.is_alive() and not made.stop()


def test_flags_come_from_variables_too(monkeypatch):
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_LOG_VERBOSE", "1")
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_CACHE_CONFIG_0", "local,size=1048576")
    config = TritonConfig.from_env()
    assert config.log_verbose == "1" and config.cache_config == ["local,size=1048576"] and config.http_port is None
    cached = []
    with Triton(config=TritonConfig(**LOOPBACK)) as made:
        run = batch(lambda x: cached.append(len(x)) or {"y": x})
        made.bind("Cached", run, tensors("x"), tensors("y"), config=ModelConfig(response_cache=True))
        for _ in range(2):
            assert client_of(made).infer("Cached", {"x": np.ones((1, 1), np.float32)}).as_numpy("y").tolist() == [[1]]
    assert cached == [1]


@pytest.mark.parametrize("kind", ["killed", "stopped", "unrecoverable"])
def test_serve_ends_with_the_server(kind):
    def end(requests):
        raise PyTritonUnrecoverableError("the device is lost")

    made = Triton(config=TritonConfig(**LOOPBACK))
    made.bind("End", end, tensors("x"), tensors("y"))
    made.run()
    raised = []

    def serve():
        try:
            made.serve()
            raised.append(None)
        except ServerError as error:
            raised.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    if kind == "killed":
        os.kill(made.server.pid, signal.SIGKILL)
    elif kind == "stopped":
        made.stop()
    else:
        with pytest.raises(InferenceServerException, match="the device is lost"):
            client_of(made).infer("End", {"x": np.ones((1, 1), np.float32)})
    thread.join(20)
    assert not thread.is_alive() and not made.is_connected()
    if kind == "killed":
        [error] = raised
        assert "the server ended by itself, with exit code -9" in str(error) and error.returncode == -9
    else:
        assert raised == [None]


def test_a_remote_program_binds_functions_to_a_server_that_runs(triton):
    client, token = client_of(triton), triton.get_access_token()
    x, n = np.array([[1, 2]], np.float32), np.array([[2]])
    with RemoteTriton(f"http://{triton.server.http_address}", access_token=token) as remote:
        remote.bind("Far", [Scale(5).times, Scale(5)], tensors("x"), tensors("y"), strict=True)
        found = [client.infer("Far", {"x": x}).as_numpy("y") for _ in range(8)]
        assert {str(one.tolist()) for one in found} <= {"[[5.0, 10.0]]", "[[6.0, 7.0]]"} and found[0].dtype == np.float32
        remote.bind("FarCount", count, tensors("n", dtype=np.int64, shape=(1,)), tensors("y", dtype=np.int64), config=ModelConfig(decoupled=True))
        found, error = stream(triton, "FarCount", "INT64", "n", n)
        assert error is None and [one["y"].tolist() for one in found] == [[[0]], [[1]]]
        found, error = stream(triton, "FarCount", "INT64", "n", np.array([[99]]))
        assert len(found) == 3 and "LookupError: no more than three" in error
        with pytest.raises(PyTritonRuntimeError, match="Cannot add model with the same name twice."):
            remote.bind("add", Scale(5), tensors("x"), tensors("y"))
        assert client.infer("Add", {"a": x}).as_numpy("sum").tolist() == [[3, 4]]
    ready = tritonclient.grpc.InferenceServerClient(triton.server.grpc_address).is_model_ready
    assert ready("Add") and until(lambda: not ready("Far"), 10)
    for wrong_token in ("no", None):
        with pytest.raises(PyTritonRuntimeError, match="the access token is not that of the server"):
            RemoteTriton(triton.server.http_address, access_token=wrong_token).connect()
    with pytest.raises(ConnectionError, match="no program of this machine and user serves with nereid.pytriton on port 1"):
        RemoteTriton("localhost:1").connect()


def test_a_remote_program_notices_the_end_of_the_server():
    with Triton(config=TritonConfig(**LOOPBACK)) as made:
        remote = RemoteTriton(f"grpc://{made.server.grpc_address}", access_token=made.get_access_token())
        remote.bind("Far", Scale(5), tensors("x"), tensors("y"))
        thread = threading.Thread(target=remote.serve)
        thread.start()
        assert until(remote.is_connected, 10)
        assert client_of(made).infer("Far", {"x": np.ones((1, 1), np.float32)}).as_numpy("y").tolist() == [[6]]
    thread.join(20)
    assert not thread.is_alive() and not remote.is_connected()


def bound(function, **fields):
    """Binds a function without a server."""
    inputs = [*tensors("x", "k"), *tensors("word", dtype=object)]
    config = fields.pop("config", ModelConfig())
    Triton(config=TritonConfig(**LOOPBACK)).bind("Bound", function, inputs, tensors("y"), config=config)
    return function


def row(*values, **more):
    return Request({"x": np.array([[value] for value in values], np.float32), **more})


def test_rows_are_grouped_by_values():
    seen = []

    @batch
    @group_by_values("word", pad_fn=ConstantPadder(7))
    def run(x, word):
        seen.append((x[:, 0].tolist(), word[:, 0].tolist()))
        return {"y": np.repeat(x, len(word[0, 0]), axis=1), "word": word.astype("S")}

    a, bb = np.array([[b"a"], [b"bb"]], object), np.array([[b"a"]], object)
    found = run([row(1, 2, word=a), row(3, word=bb)])
    assert seen == [([1, 3], [b"a", b"a"]), ([2], [b"bb"])]
    assert [one["y"].tolist() for one in found] == [[[1, 7], [2, 2]], [[3, 7]]]
    assert [one["word"].tolist() for one in found] == [[[b"a"], [b"bb"]], [[b"a"]]]
    with pytest.raises(PyTritonRuntimeError, match="@group_by_values decorator must be used after the @batch decorator"):
        group_by_values("k")(batch(lambda **_: {}))(**row(1, k=np.ones((1, 1))))


def test_a_first_value_is_a_number_of_equal_rows():
    run = bound(batch(first_value("k")(lambda x, k: {"y": x * k, "k": np.full(len(x), np.ndim(k))})))
    two = np.full((2, 1), 2, np.float32)
    [found] = run([row(1, 2, k=two)])
    assert found["y"].tolist() == [[2], [4]] and found["k"].tolist() == [0, 0]
    with pytest.raises(PyTritonRuntimeError, match="The values on the 'k' input are not equal."):
        run([row(1, k=two[:1]), row(2, k=two[:1] * 2)])
    assert bound(batch(first_value("k", strict=False, squeeze_single_values=False)(lambda x, k: {"y": x * k})))([row(1, 2, k=two * 3)])[0]["y"].tolist() == [[6], [12]]
    with pytest.raises(PyTritonRuntimeError, match="can only be used with models that support batching"):
        bound(first_value("k")(lambda requests: requests), config=ModelConfig(batching=False))([row(1)])
    with pytest.raises(PyTritonBadParameterError, match="The keys triton_context are not allowed"):
        first_value("triton_context")


@pytest.mark.parametrize("defaults, text", [
    ({"other": np.zeros(1, np.float32)}, "Could not found other inputs"),
    ({"k": 1}, "Could not use k=1 defaults as they are not NumPy arrays"),
    ({"k": np.zeros(1)}, "k: dtype=float64 expected_dtype=<class 'numpy.float32'> defaults as they have different than input signature dtypes"),
    ({"k": np.zeros((1, 1), np.float32)}, r"k: shape=\(1, 1\) expected_shape=\(-1,\) defaults as they have different than input signature shapes"),
])
def test_defaults_are_compared_with_the_inputs(defaults, text):
    with pytest.raises(PyTritonBadParameterError, match=text):
        bound(fill_optionals(**defaults)(lambda requests: []))([row(1)])


def test_decorators_say_what_is_missing():
    with pytest.raises(PyTritonValidationError, match="must bound with triton"):
        triton_context(lambda **_: None)()
    with pytest.raises(PyTritonValidationError, match="Cannot batch requests with different set of inputs keys"):
        batch(lambda **_: {})([row(1), row(1, k=np.ones((1, 1)))])
    with pytest.raises(PyTritonValidationError, match="Outputs length different than config outputs length"):
        bound(batch(lambda x: [x, x]))([row(1)])
    with pytest.raises(PyTritonValidationError, match="Unsupported output type <class 'NoneType'>"):
        bound(sample(lambda x: None))([row(1)])


def test_a_decorated_function_looks_like_the_function():
    @batch
    @first_value("k")
    def named(x, k):
        """Text."""

    assert named.__name__ == "named" and named.__doc__ == "Text." and list(inspect.signature(named).parameters) == ["x", "k"]
    assert get_model_config(bound(named), None).model_name == "Bound"

"""PyTriton's form of serving functions, from packaging/wheel."""
import os
import sys

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from clients import Client
from server import ROOT

os.environ["NEREID_MAIN"] = os.environ.get("NEREID_MAIN", os.path.join(ROOT, "dist/cli/main.js"))
sys.path.insert(0, os.path.join(ROOT, "packaging/wheel"))

from nereid.pytriton import ModelConfig, Tensor, Triton, TritonConfig  # noqa: E402
from nereid.pytriton.decorators import batch, fill_optionals, first_value, group_by_keys, group_by_values, sample  # noqa: E402

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="functions run on Linux"),
    # A thread whose connection was closed ends with SystemExit, which Python itself does not report.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
LOOPBACK = {f"{service}_{what}": value for service in ("http", "grpc", "metrics") for what, value in (("port", 0), ("address", "127.0.0.1"))}


@pytest.fixture(scope="module")
def triton():
    factor = np.float32(2)

    @fill_optionals(t=np.array([2], np.float32))
    @group_by_keys
    @batch
    @first_value("w")
    def add(a, t, w=1):
        return {"sum": a * w + t}

    def scaled(requests):
        return [[one["INPUT_1"] * one.parameters["factor"]] for one in requests]

    def row(*names):
        return [Tensor(name=name, dtype=np.float32, shape=(-1,)) for name in names]

    with Triton(config=TritonConfig(**LOOPBACK)) as made:
        optional = [Tensor(name=name, dtype=np.float32, shape=(-1,), optional=True) for name in "tw"]
        made.bind("Add", add, [*row("a"), *optional], row("sum"), ModelConfig(max_batch_size=8))
        made.bind("One", sample(lambda x: [x * factor]), row("x"), row("y"), ModelConfig(batching=False))
        made.bind("Scaled", [scaled, scaled], row(None), row("y"))
        made.bind("Wrong", batch(lambda x: [x.astype(np.float64)]), row("x"), row("y"))
        made.run()
        yield made


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_bound_closures_answer_with_their_shapes(triton, kind):
    client = Client(kind, triton.server.http_address if kind == "http" else triton.server.grpc_address)
    a = np.array([[1, 2], [3, 4]], np.float32)
    one = np.full((2, 1), 3, np.float32)
    for arrays, expected in (({"a": a}, a + 2), ({"a": a, "w": one}, a * 3 + 2), ({"a": a, "t": one}, a + 3)):
        found = client.infer("Add", arrays).as_numpy("sum")
        assert found.dtype == np.float32 and found.tolist() == expected.tolist()
    assert client.infer("One", {"x": a[0]}).as_numpy("y").tolist() == [2, 4]


def test_a_wrong_type_names_the_output(triton):
    with pytest.raises(InferenceServerException, match="output 'y' of 'Wrong' has the type float64; expected float32"):
        Client("http", triton.server.http_address).infer("Wrong", {"x": np.ones((1, 2), np.float32)})


def test_requests_are_grouped_by_values():
    seen = []

    @group_by_values("k")
    def run(requests):
        seen.append(len(requests))
        return [[one["k"]] for one in requests]

    ks = [np.array([[b"a"]], object), np.array([[b"b"]], object), np.array([[b"a"], [b"a"]], object)]
    assert [one[0].tolist() for one in run([{"k": k} for k in ks])] == [k.tolist() for k in ks]
    assert seen == [2, 1]

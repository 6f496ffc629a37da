"""Models of OpenVINO, run by a real openvino: what is read from the file, datatypes, batches, settings, errors (B-PYB-07; spec: backends-native.md, 6)."""
import json
import os
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as httpclient

from framework_server import Place, given, io, parameters
from interpreter import interpreter_with, interpreter_with_numpy_only
from server import COMMAND, ROOT, waits_for

OPENVINO = interpreter_with("openvino")
pytestmark = pytest.mark.skipif(OPENVINO is None, reason="no interpreter has openvino and numpy: pip install openvino, or name one with NEREID_TEST_PYTHON")

X, Y = io("input", ("X", "FP32", -1)), io("output", ("Y", "FP32", -1))
A, B = np.array([[1, 2, 3]], np.float32), np.array([[10, 20, 30]], np.float32)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    one = Place(tmp_path_factory.mktemp("openvino"), "openvino", "model.xml", OPENVINO[0], ["--backend-config=openvino,default-max-batch-size=6"])
    yield one
    one.stop()


@pytest.fixture
def load(place):
    """`load(name, config, stem)` with the IR of that name; `error=True` returns the text of the load that failed."""

    def go(name, config, stem, **options):
        return place.load(name, config, place.files / f"{stem}.xml", *bin_of(place, stem), **options)

    yield go
    place.unload_all()


def bin_of(place, stem):
    """The weights, under the name that OpenVINO looks for."""
    return [Renamed(place.files / f"{stem}.bin", "model.bin")]


class Renamed(os.PathLike):
    """A file that is copied under another name."""

    def __init__(self, path, name):
        self.path, self.name = path, name

    def __fspath__(self):
        return os.fspath(self.path)


# From the file.


def test_inputs_and_outputs_are_read_from_the_file(load):
    one = load("pair", None, "pair")
    config = one.config()
    assert [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config["input"]] == [("A", "TYPE_FP32", [-1, -1]), ("B", "TYPE_FP32", [-1, -1])]
    assert [tensor["name"] for tensor in config["output"]] == ["SUM", "DIFFERENCE"]
    assert (config["backend"], config["max_batch_size"]) == ("openvino", 0)
    answer = one.infer(A=A, B=B)
    assert (answer.as_numpy("SUM").tolist(), answer.as_numpy("DIFFERENCE").tolist()) == ((A + B).tolist(), (A - B).tolist())


def test_a_layout_with_a_batch_makes_a_model_batch(load, place):
    config = load("layout", "", "layout").config()
    assert (config["max_batch_size"], config["input"][0]["dims"], config["output"][0]["dims"], "dynamic_batching" in config) == (6, [3, -1], [3, -1], True)
    place.server.logged("autofilled max_batch_size to 6 for model 'layout' since batching is supported but no max_batch_size is specified in model configuration.")
    # The configured values stay, and only batching is added.
    config = load("layout_of_two", "max_batch_size: 2\n" + io("input", ("X", "FP32", "3, -1")), "layout").config()
    assert (config["max_batch_size"], config["output"][0]["dims"], "dynamic_batching" in config) == (2, [3, -1], True)


def test_an_onnx_file_is_served_as_it_is(place):
    onnx = os.path.join(ROOT, "examples/models/variable/1/model.onnx")
    one = place.load("onnx", 'default_model_filename: "model.onnx"\n', onnx, to="model.onnx")
    answer = one.infer(X=A)
    assert (answer.as_numpy("DOUBLED").tolist(), answer.as_numpy("SUM").tolist()) == ([[2, 4, 6]], [[6]])


# Values.


def test_results_are_those_of_plain_openvino(load, place):
    images, logits = np.load(place.files / "images.npy"), np.load(place.files / "logits.npy")
    # The file has a batch of 1: with max_batch_size any number of rows is one call.
    config = "max_batch_size: 8\n" + io("input", ("image", "FP32", "3, 8, 8")) + io("output", ("logits", "FP32", 5))
    for name, further in (("network", ""), ("padded", parameters(ENABLE_BATCH_PADDING="YES"))):
        one = load(name, config + further, "network")
        for rows in (1, 3, 6):
            np.testing.assert_allclose(one.infer(image=images[:rows]).as_numpy("logits"), logits[:rows], rtol=1e-5, atol=1e-5)


def test_every_datatype_goes_in_and_out(load):
    kinds = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64"]
    numbers = {"BOOL": bool, "FP16": np.float16, "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64}
    one = load("types", None, "types")
    assert [tensor["data_type"] for tensor in one.config()["input"]] == [f"TYPE_{kind}" for kind in kinds]
    arrays = {f"IN{i}": np.array([[0, 1], [2, 3], [1, 0]]).astype(numbers.get(kind) or getattr(np, kind.lower())) for i, kind in enumerate(kinds)}
    answer = one.infer(**arrays)
    for i, kind in enumerate(kinds):
        sent = arrays[f"IN{i}"]
        assert answer.as_numpy(f"OUT{i}").tolist() == (~sent if kind == "BOOL" else (sent + 1).astype(sent.dtype)).tolist(), kind
        assert next(o for o in answer.get_response()["outputs"] if o["name"] == f"OUT{i}")["datatype"] == kind


def test_datatypes_of_the_configuration_are_converted(load):
    one = load("half", "max_batch_size: 4\n" + io("input", ("X", "FP32", 3)) + io("output", ("Y", "FP64", 3)), "half")
    got = one.infer(X=A).as_numpy("Y")
    assert (got.dtype, got.tolist()) == (np.float64, [[2, 4, 6]])


def test_datatypes_that_openvino_does_not_run_are_refused(load):
    assert "unsupported datatype TYPE_STRING for input 'X' for model 'texts'" in load("texts", io("input", ("X", "STRING", "-1, -1")) + io("output", ("Y", "FP32", "-1, -1")), "double", error=True)


# Batches.


def test_rows_of_a_batch_come_back_to_their_requests(load, place):
    one = load("batches", "max_batch_size: 16\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n" + X + Y, "double")
    failures = []

    def ask(seed):
        chance = np.random.default_rng(seed)
        client = httpclient.InferenceServerClient(place.server.http)
        for _ in range(25):
            # Some are of another length, which cannot run together with the others: each answer is sent after the last run.
            sent = chance.random((int(chance.integers(1, 6)), int(chance.choice([3, 3, 3, 5]))), np.float32)
            got = client.infer("batches", [given("X", sent)]).as_numpy("Y")
            if not np.array_equal(got, sent * 2):
                failures.append((seed, sent.shape))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    stats = one.client.get_inference_statistics("batches")["model_stats"][0]
    assert stats["execution_count"] < stats["inference_count"]


@pytest.mark.parametrize(
    "name, config, text",
    [
        ("bounded", X + Y, "model 'bounded', input 'X': the file allows 1..4 rows in a batch and max_batch_size is 8: set max_batch_size: 4, or save the file"),
        ("flattens", io("input", ("X", "FP32", 3)) + Y, "model 'flattens', output 'Y': the file allows 1 rows in a batch and max_batch_size is 8: set max_batch_size: 1, or save the file"),
    ],
)
def test_a_file_that_allows_fewer_rows_than_the_configuration_is_refused(load, name, config, text):
    assert text in load(name, "max_batch_size: 8\n" + config, name, error=True)


@pytest.mark.parametrize("further", ["", parameters(ENABLE_BATCH_PADDING="YES")])
def test_batches_stay_within_the_rows_that_the_file_allows(load, place, further):
    one = load("four", "max_batch_size: 4\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n" + X + Y + further, "bounded")
    with ThreadPoolExecutor(8) as pool:
        sent = [np.full((1, 3), at, np.float32) for at in range(32)]
        got = pool.map(lambda x: httpclient.InferenceServerClient(place.server.http).infer("four", [given("X", x)]).as_numpy("Y"), sent)
        for x, y in zip(sent, got):
            assert (y.shape, y.tolist()) == (x.shape, (x * 2).tolist())
    assert one.infer(X=np.ones((4, 2), np.float32)).as_numpy("Y").shape == (4, 2)


@pytest.mark.parametrize(
    "name, config, stem, shape, expected",
    [
        ("range", None, "bounded", (5, 3), "[1..4,2..6]"),
        ("range_of_rows", "max_batch_size: 4\n" + X + Y, "bounded", (2, 7), "[1..4,2..6]"),
        ("too_few_rows", "max_batch_size: 8\n" + io("input", ("X", "FP32", 3)) + io("output", ("Y", "FP32", 3)), "pairs", (1, 3), "[2..8,3]"),
        ("fixed_dims", "max_batch_size: 8\n" + X + Y, "fixed", (2, 4), "[-1,3]"),
    ],
)
def test_a_shape_that_the_file_does_not_allow_is_the_mistake_of_the_client(load, place, name, config, stem, shape, expected):
    load(name, config, stem)
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": shape, "data": [1.0] * int(np.prod(shape))}]}
    status, _, answer = place.server.request("POST", f"/v2/models/{name}/infer", json.dumps(body).encode())
    text = f"unexpected shape for input 'X' for model '{name}'. Expected {expected}, got [{shape[0]},{shape[1]}]"
    assert (status, json.loads(answer)["error"]) == (400, text)


def test_variables_of_a_model_are_forgotten_behind_each_run(load):
    one = load("remembers", None, "remembers")
    assert [one.infer(X=np.array([[2]], np.float32)).as_numpy("SUM").tolist() for _ in range(3)] == [[[2]]] * 3


def test_several_instances_are_processes_that_share_the_cores(load):
    one = load("instances", "instance_group [ { count: 2 } ]\n" + X.replace("-1", "-1, -1") + Y.replace("-1", "-1, -1"), "double")
    assert [one.infer(X=A).as_numpy("Y").tolist() for _ in range(4)] == [[[2, 4, 6]]] * 4


# Settings.

EVERY = parameters(
    INFERENCE_NUM_THREADS=1, COMPILATION_NUM_THREADS=1, HINT_BF16="yes", NUM_STREAMS="AUTO", PERFORMANCE_HINT="latency", SKIP_OV_DYNAMIC_BATCHSIZE="YES",
    ENABLE_BATCH_PADDING="no", RESHAPE_IO_LAYERS="no", TARGET_DEVICE="cpu",
)  # fmt: skip


def test_parameters_are_those_of_triton_in_any_case(load, place):
    assert load("every", EVERY, "fixed").infer(X=A).as_numpy("Y").tolist() == [[2, 4, 6]]
    place.server.logged("model 'every': COMPILATION_NUM_THREADS has no effect")
    assert load("streams", parameters(NUM_STREAMS="2", PERFORMANCE_HINT="throughput"), "fixed").infer(X=A).as_numpy("Y").tolist() == [[2, 4, 6]]


def test_a_model_computes_in_the_precision_that_the_configuration_names(load):
    # 1.001 and 1.003 are the same in BF16, whose steps above 1 are 1/128. Where the processor has none, both answers are exact.
    x = np.array([[1.001, 1.003, 257]], np.float32)
    exact = load("exact", parameters(INFERENCE_PRECISION_HINT="F32"), "fixed").infer(X=x).as_numpy("Y")
    np.testing.assert_array_equal(exact, x * 2)
    rough = load("rough", parameters(INFERENCE_PRECISION_HINT="bf16"), "fixed").infer(X=x).as_numpy("Y")
    np.testing.assert_allclose(rough, x * 2, rtol=1 / 128)


@pytest.mark.nightly("COMPILATION", "HINT_BF16", "PRECISION", "NUM_STREAMS", "PERFORMANCE")
@pytest.mark.parametrize(
    "key, value, text",
    [
        ("INFERENCE_NUM_THREADS", "-1", "a non-negative number, got -1"),
        ("COMPILATION_NUM_THREADS", "Two", "a non-negative number, got two"),
        ("HINT_BF16", "NO", "YES, got no"),
        ("NUM_STREAMS", "Many", "either AUTO/NUMA/<int_value>, got many"),
        ("INFERENCE_PRECISION_HINT", "FP32", "F32/F16/BF16, got fp32"),
        ("PERFORMANCE_HINT", "FAST", "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT, got fast"),
    ],
)
def test_a_parameter_that_cannot_be_fails_the_load_with_tritons_text(load, key, value, text):
    told = load(f"bad_{key.lower()}", parameters(**{key: value}), "fixed", error=True)
    assert f"expected the parameter '{key}' to be {text}" in told and "At:" not in told


def test_a_device_that_is_not_there_fails_the_load(load):
    assert "openvino error in loading model : " in load("no_device", parameters(TARGET_DEVICE="gpu"), "fixed", error=True)
    text = "unable to load model 'on_gpu', Triton OpenVINO backend supports only Kind CPU and AUTO"
    assert text in load("on_gpu", "instance_group [ { kind: KIND_MODEL } ]\n", "fixed", error=True)


def test_layers_are_reshaped_to_the_configuration_where_it_says_so(load):
    dims = "-1, -1"
    config = io("input", ("X", "FP32", dims)) + io("output", ("Y", "FP32", dims))
    told = load("rigid", config, "fixed", error=True)
    assert "model 'rigid', tensor 'X': the model expects 2 dimensions (shape [1,3]) but the model configuration specifies 2 dimensions (shape [-1,-1])" in told
    one = load("reshaped", config + parameters(RESHAPE_IO_LAYERS="YES"), "fixed")
    assert one.infer(X=np.ones((2, 5), np.float32)).as_numpy("Y").shape == (2, 5)


# Errors and the page.


@pytest.mark.nightly("few", "made_up", "flat")
@pytest.mark.parametrize(
    "name, config, text",
    [
        ("few", io("input", ("A", "FP32", "-1, -1")), "unable to load model 'few', configuration expects 1 inputs, model provides 2"),
        ("odd", io("input", ("A", "FP32", "-1, -1"), ("C", "FP32", "-1, -1")), "unexpected inference input 'C', allowed inputs are: A, B"),
        ("made_up", io("output", ("PRODUCT", "FP32", "-1, -1")), "unexpected inference output 'PRODUCT', allowed outputs are: SUM, DIFFERENCE"),
        (
            "flat",
            "max_batch_size: 2\n" + io("input", ("A", "FP32", "-1, -1"), ("B", "FP32", "-1, -1")),
            "model 'flat', tensor 'A': the model expects 2 dimensions (shape [-1,-1]) but the model configuration specifies 3 dimensions (an initial batch dimension because "
            "max_batch_size > 0 followed by the explicit tensor shape, making complete shape [2,-1,-1])",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_fails_the_load(load, name, config, text):
    told = load(name, config, "pair", error=True)
    assert text in told and "At:" not in told


def test_what_openvino_says_of_a_run_is_the_answer(load):
    one = load("differ", None, "pair")
    assert "openvino error in running inference : " in one.error(A=A, B=np.ones((2, 2), np.float32))
    assert one.infer(A=A, B=B).as_numpy("SUM").tolist() == (A + B).tolist()


def test_a_file_that_is_no_model_fails_the_load(place):
    assert "openvino error in reading model : " in place.load("garbage", "", b"<net>", error=True)
    missing = place.load("no_file", "", error=True)
    assert f"unable to find '{place.models}/no_file/1/model.xml' for model 'no_file'" in missing


def test_without_openvino_the_error_says_what_is_missing_where_and_what_gets_it(start, tmp_path):
    python = interpreter_with_numpy_only(tmp_path / "environment")
    directory = tmp_path / "models" / "one" / "1"
    directory.mkdir(parents=True)
    (directory / "model.xml").write_text("<net/>")
    server = start(tmp_path / "models", "--model-control-mode=explicit", f"--backend-config=python,python-executable={python}")
    status, _, body = server.request("POST", "/v2/repository/models/one/load", b"{}")
    told = json.loads(body)["error"]
    assert status != 200
    assert f"its backend needs OpenVINO, and {python} (Python " in told and "has no module 'openvino'" in told
    assert "NEREID_PYTHON" in told and f"Get it with: {python} -m pip install openvino" in told


def test_the_example_of_the_page_runs(start, tmp_path):
    page = open(os.path.join(ROOT, "docs/openvino.md")).read()
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.S)
    (code,) = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "convert.py").write_text(code)
    (tmp_path / "examples").symlink_to(os.path.join(ROOT, "examples"))
    subprocess.run([OPENVINO[0], "convert.py"], cwd=tmp_path, check=True)
    (tmp_path / "models/doubler/config.pbtxt").write_text(next(text for kind, text in blocks if kind == "pbtxt"))
    one = start(tmp_path / "models", f"--backend-config=python,python-executable={OPENVINO[0]}")
    waits_for(lambda: one.request("GET", "/v2/models/doubler/ready")[0] == 200, "the model is ready")
    (ask,) = [re.search(r"-d '(.*)'", text, re.S)[1] for kind, text in blocks if kind == "sh" and "curl" in text]
    status, _, body = one.request("POST", "/v2/models/doubler/infer", ask.encode())
    assert (status, json.loads(body)) == (200, json.loads(next(text for kind, text in blocks if kind == "json")))


def test_init_writes_a_repository_with_what_the_file_says(place, tmp_path):
    environment = {**os.environ, "NEREID_PYTHON": OPENVINO[0]}
    told = subprocess.run([*COMMAND, "init", str(place.files / "pair.xml"), f"--out={tmp_path}/out"], env=environment, capture_output=True, text=True, check=True).stdout
    config = (tmp_path / "out/pair/config.pbtxt").read_text()
    # Whether it batches depends on how long batches took on this machine; the rows are independent.
    size = int(re.search(r'backend: "openvino"\nmax_batch_size: (\d+)\n', config)[1])
    dims = "[ -1 ]" if size > 0 else "[ -1, -1 ]"
    assert f'name: "SUM" data_type: TYPE_FP32 dims: {dims}' in config and ("dynamic_batching" in config) and "independent" in config, config
    assert "Send a request, in another terminal:" in told and "Note:" not in told, told

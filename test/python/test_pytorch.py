"""Models of PyTorch, run by a real torch: names of inputs and outputs, what a model may return, datatypes, batches, errors, settings, files (spec: backends-native.md, 4)."""
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from clients import connect
from framework_server import Loaded, given, io, parameters
from interpreter import interpreter_with
from server import ROOT, Server, waits_for

sys.path.insert(0, os.path.join(ROOT, "shm/python"))
from nereid_shm import Region  # noqa: E402

TORCH = interpreter_with("torch")
pytestmark = pytest.mark.skipif(TORCH is None, reason="no interpreter has torch and numpy: apt install python3-torch, or name one with NEREID_TEST_PYTHON")
HERE = os.path.dirname(__file__)

X = io("input", ("INPUT__0", "FP32", -1))
Y = io("output", ("OUTPUT__0", "FP32", -1))
PAIR = io("output", ("OUTPUT__0", "FP32", -1), ("OUTPUT__1", "FP32", -1))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files of models, a repository that tests write into, and its server."""
    root = tmp_path_factory.mktemp("pytorch")
    (root / "files").mkdir()
    (root / "models").mkdir()
    subprocess.run([TORCH[0], os.path.join(HERE, "frameworks/pytorch_models.py"), str(root / "files")], check=True, stdout=(root / "expected.json").open("w"))
    flags = ["--model-control-mode=explicit", "--allow-client-shm=true", f"--backend-config=python,python-executable={TORCH[0]}"]
    one = Server(root / "models", *flags, log=root / "server.log")
    yield root, one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


@pytest.fixture
def load(place):
    """`load(name, config, file)` writes a model and loads it; `error=True` returns the text of the load that failed."""
    root, server = place
    made = []

    def go(name, config, file=None, code=None, to="model.pt", error=False, backend='backend: "pytorch"\n'):
        directory = root / "models" / name / "1"
        directory.mkdir(parents=True, exist_ok=True)
        (root / "models" / name / "config.pbtxt").write_text(backend + config)
        if isinstance(file, bytes):
            (directory / to).write_bytes(file)
        elif file is not None:
            shutil.copy(root / "files" / file, directory / to)
        if code is not None:
            (directory / "model.py").write_text(code)
        one = Loaded(server, name)
        if error:
            with pytest.raises(InferenceServerException) as told:
                one.client.load_model(name)
            return told.value.message()
        one.client.load_model(name)
        made.append(one)
        return one

    yield go
    for one in made:
        one.client.unload_model(one.name)


A, B = np.array([[1, 2, 3]], np.float32), np.array([[10, 20, 30]], np.float32)


# Names.


@pytest.mark.parametrize(
    "first, second",
    [(("b", "a"), ("OUTPUT__1", "OUTPUT__0")), (("INPUT__1", "INPUT__0"), ("y__1", "x__0")), (("B", "A"), ("D", "S"))],
    ids=["arguments", "indices", "order"],
)
def test_inputs_and_outputs_are_found_by_name_then_by_index_then_by_order(load, place, first, second):
    config = "max_batch_size: 4\n" + io("input", (first[0], "FP32", -1), (first[1], "FP32", -1)) + io("output", (second[0], "FP32", -1), (second[1], "FP32", -1))
    name = "names_" + "_".join(first)
    one = load(name, config, "Named.pt")
    answer = one.infer(**{first[0]: B, first[1]: A})
    if first == ("B", "A"):
        # By order: B is the first argument, D the first output.
        assert (answer.as_numpy("D").tolist(), answer.as_numpy("S").tolist()) == ((A + B).tolist(), (B - A).tolist())
        place[1].logged(
            f"input 'B' or previous input(s) are neither an input argument to the model '{name}' nor do they follow the <name>__<index> naming convention. "
            "Falling back to enforcing strict ordering from model configuration.",
            f"output 'D' or previous output(s) of the model '{name}' do not follow the <name>__<index> naming convention.",
        )
    else:
        assert (answer.as_numpy(second[1]).tolist(), answer.as_numpy(second[0]).tolist()) == ((A + B).tolist(), (A - B).tolist())


def test_an_argument_with_a_default_needs_no_input(load):
    one = load("default", X + Y, "Default.pt")
    assert one.infer(INPUT__0=A[0]).as_numpy("OUTPUT__0").tolist() == [3, 6, 9]


@pytest.mark.parametrize(
    "name, config, file, text",
    [
        ("few", X + PAIR, "Named.pt", "unable to load model 'few', configuration expects 1 inputs, model provides 2: a, b"),
        ("many", io("input", ("a", "FP32", -1), ("c", "FP32", -1)) + Y, "One.pt", "unable to load model 'many', configuration expects 2 inputs, model provides 1: x"),
        ("far", io("input", ("A__0", "FP32", -1), ("A__2", "FP32", -1)) + PAIR, "Named.pt", "input 'A__2' of model 'far' is argument 2 of forward, which has 2"),
        ("twice", io("input", ("A__0", "FP32", -1), ("B__0", "FP32", -1)) + PAIR, "Named.pt", "inputs 'A__0' and 'B__0' of model 'twice' are both argument 0 of forward"),
    ],
)
def test_inputs_that_are_no_arguments_fail_the_load(load, name, config, file, text):
    assert text in load(name, config, file, error=True)


# Return values of a model.


def test_a_list_of_tensors_and_a_single_tensor_are_outputs(load):
    assert [load("listed", X + PAIR, "Listed.pt").infer(INPUT__0=A[0]).as_numpy(f"OUTPUT__{i}").tolist() for i in (0, 1)] == [[2, 3, 4], [3, 4, 5]]


def test_a_dictionary_is_an_input_and_an_output_by_names(load):
    config = io("input", ("b", "FP32", -1), ("a", "FP32", -1)) + io("output", ("difference", "FP32", -1), ("sum", "FP32", -1))
    answer = load("by_key", config, "ByKey.pt").infer(a=A[0], b=B[0])
    assert (answer.as_numpy("sum").tolist(), answer.as_numpy("difference").tolist()) == ([11, 22, 33], [-9, -18, -27])


def test_texts_are_lists_of_strings_both_ways(load):
    config = io("input", ("texts", "STRING", -1)) + io("output", ("LOUD__0", "STRING", -1), ("LENGTH__1", "INT64", -1))
    one = load("strings", config, "Strings.pt")
    answer = one.infer(texts=np.array(["one", "über", ""], object))
    assert [text.decode() for text in answer.as_numpy("LOUD__0")] == ["one!", "über!", "!"]
    assert answer.as_numpy("LENGTH__1").shape == (3,)
    assert "has a text that is not UTF-8" in one.error(texts=np.array([b"\xff\xfe"], object))


def test_texts_of_a_batch_are_one_for_each_row(load):
    config = "max_batch_size: 8\ndynamic_batching { }\n" + io("input", ("texts", "STRING", 1)) + io("output", ("SAME__0", "STRING", 1))
    one = load("rows_of_texts", config, "OnlyStrings.pt")

    def ask(seed):
        texts = np.array([[f"{seed}.{row}"] for row in range(seed % 3 + 1)], object)
        client = httpclient.InferenceServerClient(one.server.http)
        got = [client.infer("rows_of_texts", [given("texts", texts)]).as_numpy("SAME__0") for _ in range(10)]
        return all(array.tolist() == [[row[0].encode()] for row in texts] for array in got)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(6)))
    wide = "max_batch_size: 8\n" + io("input", ("texts", "STRING", -1)) + io("output", ("SAME__0", "STRING", 1))
    assert "Triton only supports 1 dimensional List of String as input for 'texts' for model 'wide'" in load("wide", wide, "OnlyStrings.pt", error=True)


def test_every_datatype_goes_in_and_out(load):
    kinds = ["BF16", "FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "INT64", "UINT8", "BOOL"]
    numbers = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "UINT8": np.uint8, "BOOL": bool, "BF16": ml_dtypes.bfloat16}
    config = "max_batch_size: 4\n" + io("input", *[(f"IN__{i}", kind, 2) for i, kind in enumerate(kinds)]) + io("output", *[(f"OUT__{i}", kind, 2) for i, kind in enumerate(kinds)])
    one = load("types", config, "Types.pt")
    arrays = {f"IN__{i}": np.array([[0, 1], [2, 3], [1, 0]]).astype(numbers.get(kind) or getattr(np, kind.lower())) for i, kind in enumerate(kinds)}
    answer = one.infer(**arrays)
    for i, kind in enumerate(kinds):
        sent, got = arrays[f"IN__{i}"], answer.as_numpy(f"OUT__{i}")
        assert got.tolist() == (~sent if kind == "BOOL" else sent if kind == "BF16" else sent + 1).tolist(), kind
        assert next(o for o in answer.get_response()["outputs"] if o["name"] == f"OUT__{i}")["datatype"] == kind


# Batches.


def test_rows_of_a_batch_come_back_to_their_requests(load, place):
    config = "max_batch_size: 16\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n" + X + Y
    one = load("batches", config, "One.pt")

    def ask(seed):
        chance = np.random.default_rng(seed)
        client = httpclient.InferenceServerClient(place[1].http)
        for _ in range(25):
            # Some are of another length, which cannot run together with the others.
            sent = chance.random((int(chance.integers(1, 6)), int(chance.choice([3, 3, 3, 700]))), np.float32)
            got = client.infer("batches", [given("INPUT__0", sent)]).as_numpy("OUTPUT__0")
            if not np.array_equal(got, sent * 2):
                return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(6)))
    stats = one.client.get_inference_statistics("batches")["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] == 150
    assert stats["execution_count"] < 150


def test_results_are_those_of_torch_itself(load, place):
    one = load("linear", "max_batch_size: 8\n" + io("input", ("INPUT__0", "FP32", 4)) + io("output", ("OUTPUT__0", "FP32", 2)), "Linear.pt")
    sent = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(one.infer(INPUT__0=sent).as_numpy("OUTPUT__0"), json.loads((place[0] / "expected.json").read_text()), rtol=1e-6)


def test_a_model_that_writes_into_its_input_changes_nothing_of_the_clients(load, place):
    load("in_place", "max_batch_size: 4\n" + X + Y, "InPlace.pt")
    caller = connect("http", place[1])
    # Inline in a frame, in an arena.
    for width in (3, 150_000):
        values = np.arange(width, dtype=np.float32).reshape(1, width)
        with Region.create({"INPUT__0": values, "OUTPUT__0": ("FP32", [1, width])}) as region, region.registered(caller.raw):
            for _ in range(2):
                caller.call("infer", "in_place", region.infer_inputs(caller.types, "INPUT__0"), outputs=region.infer_outputs(caller.types, "OUTPUT__0"))
                assert np.array_equal(region.array("OUTPUT__0"), values + 1)
                assert np.array_equal(region.array("INPUT__0"), values), "the input is the client's"
    caller.close()


def test_a_model_saved_in_training_mode_is_served_in_evaluation_mode(load):
    one = load("dropout", X + Y, "Dropout.pt")
    assert one.infer(INPUT__0=np.ones(64, np.float32)).as_numpy("OUTPUT__0").tolist() == [1] * 64


# Errors of requests.


def test_errors_of_a_request_have_tritons_texts(load):
    one = load("wrong", "max_batch_size: 4\n" + X + PAIR, "Wrong.pt")
    send = lambda which: one.error(INPUT__0=np.array([[which, 5]], np.float32))  # noqa: E731
    assert send(1) == "output 'OUTPUT__0' is a scalar which is not supported."
    assert send(2) == "configuration expects datatype TYPE_FP32 for output 'OUTPUT__0', model provides TYPE_FP64"
    assert send(3) == "failed to split the output tensor 'OUTPUT__0' in responses: expected batch size of at least 1 in model output, got 2"
    assert send(4).startswith("PyTorch execute failure: ") and "four is too many" in send(4)
    assert one.infer(INPUT__0=np.zeros((1, 2), np.float32)).as_numpy("OUTPUT__1").tolist() == [[0, 0]]


def test_an_output_with_too_high_an_index_is_told_with_the_number_of_outputs(load):
    one = load("high", X + io("output", ("OUTPUT__0", "FP32", -1), ("OUTPUT__2", "FP32", -1)), "Listed.pt")
    assert one.error(INPUT__0=A[0]) == "The output OUTPUT__2 in the model configuration refers to an output index which doesn't exist. This model has 2 outputs"


# Classes of model.py.

CLASS = """import torch


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.mark.parametrize("runtime, kind", [('runtime: "model.py"\n', "CPU"), ("", "CPU"), ('runtime: "model.py"\n', "MODEL")])
def test_a_class_of_model_py_is_served_with_the_weights_beside_it(load, place, runtime, kind):
    name = f"class_{kind}_{len(runtime)}"
    config = runtime + "max_batch_size: 8\n" + io("input", ("x", "FP32", 4)) + io("output", ("y", "FP32", 2)) + f"instance_group [ {{ kind: KIND_{kind} }} ]\n"
    one = load(name, config, "weights.pt", CLASS)
    sent = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(one.infer(x=sent).as_numpy("y"), json.loads((place[0] / "expected.json").read_text()), rtol=1e-6)


def test_a_model_py_without_a_class_says_so(load):
    config = io("input", ("x", "FP32", 4)) + io("output", ("y", "FP32", 2))
    assert "Cannot find a subclass of torch.nn.Module in '" in load("classless", config, None, "import torch\n", error=True)
    told = load("other_weights", config, "weights.pt", CLASS.replace("(4, 2)", "(4, 3)"), error=True)
    assert "failed to load model 'other_weights': Error(s) in loading state_dict" in told


TELLS = """import torch


class Tells(torch.nn.Module):
    def forward(self, x):
        return torch.tensor([
            torch.get_num_threads(), torch.get_num_interop_threads(), torch.is_inference_mode_enabled(), torch.is_grad_enabled(),
            torch._C._jit_texpr_fuser_enabled(), torch._C._get_graph_executor_optimize(), torch.backends.cudnn.enabled,
        ], dtype=torch.int64)
"""


def test_parameters_set_up_the_process_of_a_model(load):
    config = io("input", ("x", "FP32", -1)) + io("output", ("y", "INT64", -1))
    usual = load("usual", config, None, TELLS).infer(x=A[0]).as_numpy("y").tolist()
    assert usual == [1, 1, 1, 0, usual[4], 1, 1]
    told = load(
        "told",
        config + parameters(NUM_THREADS=3, NUM_INTEROP_THREADS=2, INFERENCE_MODE="off", ENABLE_TENSOR_FUSER="False", DISABLE_OPTIMIZED_EXECUTION="true", DISABLE_CUDNN="1"),
        None,
        TELLS,
    )
    assert told.infer(x=A[0]).as_numpy("y").tolist() == [3, 2, 0, 0, 0, 0, 0]


def test_parameters_of_torchscript_are_taken_and_wrong_values_refused(load, place):
    every = parameters(
        INTRA_OP_THREAD_COUNT=1, INTER_OP_THREAD_COUNT=1, ENABLE_JIT_EXECUTOR="false", ENABLE_JIT_PROFILING="false", ENABLE_TENSOR_FUSER="true", ENABLE_WEIGHT_SHARING="true",
        ENABLE_CACHE_CLEANING="true", INFERENCE_MODE="true",
    )  # fmt: skip
    three = "instance_group [ { count: 3 kind: KIND_CPU } ]\n"
    assert load("all_parameters", X + Y + every + three, "One.pt").infer(INPUT__0=A[0]).as_numpy("OUTPUT__0").tolist() == [2, 4, 6]
    # Each line once for a version (QA L0_libtorch_inference_mode and others count them).
    log = (place[0] / "server.log").read_text()
    for line in ("Optimized execution is enabled", "Cache Cleaning is enabled", "Inference Mode is enabled", "cuDNN is enabled", "Intra op thread count is set to 1", "Inter op thread count is set to 1"):
        assert log.count(f"{line} for model instance 'all_parameters'") == 1, line
    assert "failed to convert 'maybe' to boolean" in load("maybe", X + Y + parameters(INFERENCE_MODE="maybe"), "One.pt", error=True)
    assert "parameter 'INTRA_OP_THREAD_COUNT' of model 'none' must be at least 1, not 0" in load("none", X + Y + parameters(INTRA_OP_THREAD_COUNT=0), "One.pt", error=True)


# Files.


@pytest.mark.parametrize(
    "name, file, text",
    [
        ("garbage", b"garbage", "is no file of PyTorch"),
        ("nothing", b"", "is empty"),
        ("pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "is a pointer of Git LFS and not the file itself"),
        ("page", b"<!DOCTYPE html><html></html>", "is a page of HTML or XML"),
        ("weights", "weights.pt", "has weights and no graph"),
        ("module", "module.pt", "is a pickle of a model whose code is elsewhere"),
        ("half", None, "is a zip archive that cannot be read"),
    ],
)
def test_a_file_that_is_no_torchscript_is_told_apart(load, place, name, file, text):
    if name == "half":
        file = (place[0] / "files" / "Linear.pt").read_bytes()[:-200]
    told = load(f"file_{name}", X + Y, file, error=True)
    assert f"failed to load model 'file_{name}': '" in told and text in told
    # The text is for the user: no frames of ours.
    assert "At:" not in told and "Traceback" not in told, told


def test_a_file_that_is_not_there_is_told_with_its_path(load):
    assert "unable to find '" in load("no_file", X + Y, error=True)


def test_a_model_without_inputs_and_outputs_says_that_the_configuration_has_them(load):
    assert "model 'no_io' must specify its inputs and outputs: they are not read from a file of PyTorch" in load("no_io", "", "One.pt", error=True)


def test_a_gpu_group_without_torch_support_fails_and_an_open_one_uses_the_cpu(place, tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    shutil.copy(place[0] / "files" / "Named.pt", tmp_path / "m" / "1" / "model.pt")
    ran = subprocess.run([TORCH[0], os.path.join(HERE, "frameworks/pytorch_devices.py"), str(tmp_path / "m")], check=True, capture_output=True, text=True)
    told = json.loads(ran.stdout)
    assert told["asked"].startswith("instance group m_0 of model m has kind KIND_GPU but torch ") and "instance_group [ { kind: KIND_CPU } ]" in told["asked"]
    assert len(told["warned"]) == 1 and told["warned"][0].startswith("model 'm' is served on the CPU: torch ")
    # The control of the sequence is the second argument.
    assert told["answer"] == [[6, 7]]


# AOT-Inductor.


def is_new():
    """A torch that runs packages, and was named: to compile one takes minutes on a slow machine."""
    return TORCH is not None and os.environ.get("NEREID_TEST_PYTHON") == TORCH[0] and tuple(map(int, TORCH[1].split(".")[:2])) >= (2, 6) and shutil.which("c++") is not None


@pytest.mark.timeout(900)
@pytest.mark.skipif(not is_new(), reason="NEREID_TEST_PYTHON names no torch 2.6 or later, or there is no C++ compiler")
def test_a_package_of_aot_inductor_is_served_and_a_program_refused(load, place):
    script = os.path.join(HERE, "frameworks/pytorch_package.py")
    subprocess.run([TORCH[0], script, str(place[0] / "files")], check=True, capture_output=True, timeout=600)
    for name, inputs, outputs in (
        ("indices", ("INPUT__0", "INPUT__1"), ("OUTPUT__0", "OUTPUT__1")),
        ("paths", ("ARGS[0]", "ARGS[1]"), ("RESULT[0]", "RESULT[1][total]")),
    ):
        config = "max_batch_size: 8\n" + io("input", *[(one, "FP32", 3) for one in inputs]) + io("output", (outputs[0], "FP32", 3), (outputs[1], "FP32", 1))
        if name == "indices":
            # Its second value is a dictionary.
            config = config.replace('{ name: "OUTPUT__1" data_type: TYPE_FP32 dims: [ 1 ] }', "").replace(",  ]", " ]")
        one = load(f"package_{name}", config, "package.pt2", to="model.pt2", backend='platform: "torch_aoti"\n')
        answer = one.infer(**{inputs[0]: np.vstack([A, B]), inputs[1]: np.vstack([B, A])})
        assert answer.as_numpy(outputs[0]).tolist() == [[10, 40, 90], [10, 40, 90]]
        if name == "paths":
            assert answer.as_numpy(outputs[1]).tolist() == [[6], [60]]
    told = load("program", X + Y, "program.pt2", to="model.pt2", backend='platform: "torch_aoti"\n', error=True)
    assert "is a program that torch.export.save wrote" in told and "aoti_compile_and_package(torch.export.load('" in told


# The page.


def test_the_example_of_the_page_runs(start, tmp_path):
    page = open(os.path.join(ROOT, "docs/pytorch.md")).read()
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.S)
    (code,) = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "export.py").write_text(code)
    subprocess.run([TORCH[0], "export.py"], cwd=tmp_path, check=True)
    (tmp_path / "models/scale/config.pbtxt").write_text(next(text for kind, text in blocks if kind == "pbtxt"))
    one = start(tmp_path / "models", f"--backend-config=python,python-executable={TORCH[0]}")
    waits_for(lambda: one.request("GET", "/v2/models/scale/ready")[0] == 200, "the model is ready")
    (ask,) = [re.search(r"-d '(.*)'", text, re.S)[1] for kind, text in blocks if kind == "sh" and "curl" in text]
    status, _, body = one.request("POST", "/v2/models/scale/infer", ask.encode())
    assert (status, json.loads(body)) == (200, json.loads(next(text for kind, text in blocks if kind == "json")))


def test_without_torch_the_error_says_what_is_missing_where_and_what_gets_it(start, tmp_path):
    directory = tmp_path / "models" / "one" / "1"
    directory.mkdir(parents=True)
    (directory.parent / "config.pbtxt").write_text('backend: "pytorch"\n' + X + Y)
    (directory / "model.pt").write_bytes(b"PK\3\4")
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"
    if subprocess.run([sys.executable, "-c", code]).returncode != 0:
        pytest.skip("the interpreter of the tests has torch")
    one = start(tmp_path / "models", "--model-control-mode=explicit", f"--backend-config=python,python-executable={sys.executable}")
    status, _, body = one.request("POST", "/v2/repository/models/one/load", b"{}")
    told = json.loads(body)["error"]
    assert status != 200
    assert f"its backend needs PyTorch, and {sys.executable} (Python " in told and "has no module 'torch'" in told
    assert "NEREID_PYTHON" in told and f"Get it with: {sys.executable} -m pip install torch" in told

"""Models of TensorFlow, run by a real tensorflow: signatures, datatypes, batches, settings, files, errors (B-PYB-08; spec: backends-native.md, 5)."""
import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.http as httpclient

from framework_server import Place, given, io, parameters
from interpreter import interpreter_with, interpreter_with_numpy_only
from server import COMMAND, ROOT, waits_for

TENSORFLOW = interpreter_with("tensorflow")
# To import it takes seconds, and a minute on a machine that does something else.
pytestmark = [
    pytest.mark.skipif(TENSORFLOW is None, reason="no interpreter has tensorflow and numpy: pip install tensorflow, or name one with NEREID_TEST_PYTHON"),
    pytest.mark.timeout(600),
]
HERE = os.path.dirname(__file__)

ONE = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
X, Y = io("input", ("X", "FP32", -1)), io("output", ("Y", "FP32", -1))
A, B = np.array([[1, 2, 3]], np.float32), np.array([[10, 20, 30]], np.float32)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    flags = ["--backend-config=tensorflow,default-max-batch-size=6", "--backend-config=python,stub-timeout-seconds=300"]
    one = Place(tmp_path_factory.mktemp("tensorflow"), "tensorflow", "model.savedmodel", TENSORFLOW[0], flags)
    yield one
    one.stop()


@pytest.fixture
def load(place):
    """`load(name, config, stem)` with the SavedModel of that name, in one instance; `error=True` returns the text of the load that failed."""

    def go(name, config, stem, **options):
        return place.load(name, ONE + config, place.files / stem, **options)

    yield go
    place.unload_all()


def shown(config, field):
    return [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config[field]]


# From the file.


def test_inputs_outputs_and_batching_are_read_from_the_signature(place, load):
    # Without a configuration there are two instances, as in Triton.
    one = place.load("pair", None, place.files / "pair")
    config = one.config()
    assert (config["backend"], config["platform"], config["max_batch_size"], "dynamic_batching" in config) == ("tensorflow", "tensorflow_savedmodel", 6, True)
    assert shown(config, "input") == [("A", "TYPE_FP32", [-1]), ("B", "TYPE_FP32", [-1])]
    assert shown(config, "output") == [("DIFFERENCE", "TYPE_FP32", [-1]), ("SUM", "TYPE_FP32", [-1])]
    assert [group["count"] for group in config["instance_group"]] == [2]
    place.server.logged("autofilled max_batch_size to 6 for model 'pair' since batching is supporrted but no max_batch_size is specified in model configuration.")
    answer = one.infer(A=A, B=B)
    assert (answer.as_numpy("SUM").tolist(), answer.as_numpy("DIFFERENCE").tolist()) == ((A + B).tolist(), (A - B).tolist())
    # The error of TensorFlow is the answer, and the model goes on.
    assert "ncompatible shapes: [1,3] vs. [1,2]" in one.error(A=A, B=B[:, :2])
    assert one.infer(A=A, B=B).as_numpy("SUM").tolist() == (A + B).tolist()


def test_what_the_configuration_says_stays_and_the_rest_is_completed(load):
    config = load("named", io("input", ("B", "FP32", "-1, 3")) + io("output", ("SUM", "FP32", "-1, -1")), "pair").config()
    # Dims with a batch dimension: the model does not batch.
    assert (config["max_batch_size"], shown(config, "input")) == (0, [("B", "TYPE_FP32", [-1, 3]), ("A", "TYPE_FP32", [-1, -1])])
    assert [tensor["name"] for tensor in config["output"]] == ["SUM"]
    told = load("both", io("input", ("A", "FP32", "-1, 3")) + io("output", ("SUM", "FP32", "-1")), "pair", error=True)
    assert "unable to autofill for 'both', model tensor configurations are contradicting each other in terms of whether batching is supported" in told


def test_a_signature_with_fixed_sizes_does_not_batch(load, place):
    one = load("fixed", "", "fixed")
    assert (one.config()["max_batch_size"], shown(one.config(), "input")) == (0, [("X", "TYPE_FP32", [1, 3])])
    assert one.infer(X=A).as_numpy("Y").tolist() == [[2, 4, 6]]
    place.server.logged("model 'fixed': unable to find serving signature 'serving_default', using signature 'only'")
    told = load("fixed_batch", "max_batch_size: 4\n", "fixed", error=True)
    assert "unable to autofill for 'fixed_batch', configuration specified max-batch 4 but model signature does not support batching" in told


def test_scalars_are_vectors_of_one_for_clients(load):
    one = load("scalar", "", "scalar")
    assert (one.config()["max_batch_size"], shown(one.config(), "input")) == (0, [("BY", "TYPE_FP32", [1]), ("X", "TYPE_FP32", [-1])])
    answer = one.infer(X=A[0], BY=np.array([3], np.float32))
    assert (answer.as_numpy("Y").tolist(), answer.as_numpy("TEXT").tolist()) == ([3, 6, 9], [b"3.000000"])
    told = load("scalar_batch", "max_batch_size: 4\n", "scalar", error=True)
    assert "Unable to autofill for 'scalar_batch': the rank of model tensor 'BY' is 0 and dimensions are not defined" in told


# Values.


@pytest.mark.parametrize("stem", ["network", "network_by_tensorflow"])
def test_results_of_keras_are_those_of_plain_keras(load, place, stem):
    images, classes = np.load(place.files / "images.npy"), np.load(place.files / "classes.npy")
    one = load(stem, "", stem)
    (image,), (output,) = one.config()["input"], one.config()["output"]
    assert (image["dims"], output["dims"]) == ([8, 8, 3], [5])
    for rows in (1, 3, 6):
        np.testing.assert_allclose(one.infer(**{image["name"]: images[:rows]}).as_numpy(output["name"]), classes[:rows], rtol=1e-4, atol=1e-5)


def test_every_datatype_goes_in_and_out(load):
    kinds = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"]
    numbers = {"BOOL": bool, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
    one = load("types", "", "types")
    assert {tensor["name"]: tensor["data_type"] for tensor in one.config()["input"]} == {f"IN{i}": f"TYPE_{kind}" for i, kind in enumerate(kinds)}
    arrays = {f"IN{i}": np.array([[0, 1], [2, 3], [1, 0]]).astype(numbers.get(kind) or getattr(np, kind.lower())) for i, kind in enumerate(kinds)}
    answer = one.infer(**arrays)
    for i, kind in enumerate(kinds):
        sent = arrays[f"IN{i}"]
        assert answer.as_numpy(f"OUT{i}").tolist() == (~sent if kind == "BOOL" else (sent + 1).astype(sent.dtype)).tolist(), kind
        assert next(o for o in answer.get_response()["outputs"] if o["name"] == f"OUT{i}")["datatype"] == kind


def test_texts_of_one_for_each_row_and_tables_of_words(load):
    one = load("texts", "", "texts")
    # Dims may not be empty, so a row is a vector of one for clients.
    assert [(tensor["dims"], tensor["reshape"]) for tensor in one.config()["input"]] == [([1], {"shape": []})]
    answer = one.infer(TEXT=np.array([["one"], ["über"], [""]], object))
    assert answer.as_numpy("LOUD").tolist() == [[b"one!"], ["über!".encode()], [b"!"]]
    assert answer.as_numpy("LENGTH").tolist() == [[3], [5], [0]]
    # Bytes that are no text are passed on.
    assert one.infer(TEXT=np.array([[b"\xff\x00"]], object)).as_numpy("LOUD").tolist() == [[b"\xff\x00!"]]
    words = load("words", "", "words")
    (output,) = words.config()["output"]
    assert words.infer(**{words.config()["input"][0]["name"]: np.array([["three", "one"], ["two", "four"]], object)}).as_numpy(output["name"]).tolist() == [[2, 0], [1, 3]]


# Batches.


def test_rows_of_a_batch_come_back_to_their_requests(load, place):
    one = load("batches", "max_batch_size: 16\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n" + X + Y, "double")

    def ask(seed):
        chance = np.random.default_rng(seed)
        client = httpclient.InferenceServerClient(place.server.http, network_timeout=300)
        for _ in range(25):
            # Some are of another length, which cannot run together with the others.
            sent = chance.random((int(chance.integers(1, 6)), int(chance.choice([3, 3, 3, 700]))), np.float32)
            if not np.array_equal(client.infer("batches", [given("X", sent)]).as_numpy("Y"), sent * 2):
                return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(6)))
    stats = one.client.get_inference_statistics("batches")["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] == 150
    assert stats["execution_count"] < 150


def test_a_model_that_makes_more_rows_fails_the_batch(load):
    one = load("more", "max_batch_size: 4\n" + io("input", ("X", "FP32", 3)) + io("output", ("Y", "FP32", 3)), "more")
    assert one.error(X=A) == "failed to split the output tensor 'Y' in responses: expected batch size of at least 1 in model output, got 2"


# Signatures, tags, operations.

OLD = "max_batch_size: 4\n" + io("input", ("X", "FP32", 3)) + io("output", ("Y", "FP32", 3))


def test_a_signature_and_a_graph_are_chosen_by_parameters(load):
    assert load("swapped", parameters(TF_SIGNATURE_DEF="swapped"), "pair").infer(A=A, B=B).as_numpy("SUM").tolist() == (B - A).tolist()
    # A model of TensorFlow 1, whose second graph has another default of its second input.
    optional = OLD.replace("} ]", '}, { name: "BY" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } optional: true } ]', 1)
    second = load("second", optional + parameters(TF_GRAPH_TAG="second", TF_SIGNATURE_DEF="first"), "old")
    assert second.infer(X=A).as_numpy("Y").tolist() == [[13, 16, 19]]
    assert second.infer(X=A, BY=np.array([[1]], np.float32)).as_numpy("Y").tolist() == [[11, 12, 13]]
    told = load("no_signature", parameters(TF_SIGNATURE_DEF="none"), "pair", error=True)
    assert "unable to load model 'no_signature', expected 'none' signature; it has: __saved_model_init_op, serving_default, swapped" in told
    assert "MetaGraphDef associated with tags 'none' could not be found in SavedModel, with available tags" in load("no_tag", parameters(TF_GRAPH_TAG="none"), "pair", error=True)


def test_outputs_may_share_a_tensor_and_be_an_input(load):
    config = OLD.replace("output [", 'output [ { name: "AGAIN" data_type: TYPE_FP32 dims: [ 3 ] }, { name: "SAME" data_type: TYPE_FP32 dims: [ 3 ] },')
    answer = load("shared", config + parameters(TF_SIGNATURE_DEF="shared"), "old").infer(X=A)
    assert [answer.as_numpy(name).tolist() for name in ("Y", "AGAIN", "SAME")] == [[[12, 14, 16]], [[12, 14, 16]], A.tolist()]


def test_operations_that_initialise_are_run_from_the_file_that_a_parameter_names(load, place):
    local = OLD + parameters(TF_SIGNATURE_DEF="local")
    assert "Could not find variable local" in load("without", local, "old").error(X=A)
    directory = place.models / "with"
    directory.mkdir()
    (directory / "begin.json").write_text('{"init_ops": ["begin"]}')
    config = local + parameters(TF_INIT_OPS_FILE="begin.json")
    assert load("with", config, "old").infer(X=A).as_numpy("Y").tolist() == [[101, 102, 103]]
    # The one of the version goes first.
    (directory / "1" / "begin.json").write_text('{"init_ops": "begin"}')
    shutil.rmtree(directory / "1" / "model.savedmodel")
    told = load("with", config, "old", error=True)
    assert "parameter 'TF_INIT_OPS_FILE' of model 'with': '" in told and "/1/begin.json' must be JSON of the form" in told


# Settings.


def test_parameters_are_taken_and_wrong_values_refused_with_tritons_texts(load):
    every = parameters(TF_NUM_INTRA_THREADS=1, TF_NUM_INTER_THREADS=2, TF_USE_PER_SESSION_THREADS="On", MAX_SESSION_SHARE_COUNT=2)
    assert load("every", every, "double").infer(X=A).as_numpy("Y").tolist() == [[2, 4, 6]]
    complete = "max_batch_size: 1\n" + X + Y
    assert "parameter 'TF_NUM_INTRA_THREADS' must be non-negative number for TensorFlow model 'few'" in load("few", complete + parameters(TF_NUM_INTRA_THREADS=-1), "double", error=True)
    assert "parameter 'MAX_SESSION_SHARE_COUNT' must be positive number for TensorFlow model 'none'" in load("none", complete + parameters(MAX_SESSION_SHARE_COUNT=0), "double", error=True)
    assert "failed to convert 'yes' to boolean" in load("yes", complete + parameters(TF_USE_PER_SESSION_THREADS="yes"), "double", error=True)


def test_a_gpu_group_without_tensorflow_support_fails_and_an_open_one_uses_the_cpu(place, tmp_path):
    shutil.copytree(place.files / "pair", tmp_path / "m/1/model.savedmodel")
    ran = subprocess.run([TENSORFLOW[0], os.path.join(HERE, "frameworks/tensorflow_devices.py"), str(tmp_path / "m")], check=True, capture_output=True, text=True)
    told = json.loads(ran.stdout)
    assert told["asked"].startswith("instance group m_0 of model m has kind KIND_GPU but tensorflow ") and "cannot use GPU 1 (it finds 1 of them)" in told["asked"]
    assert len(told["warned"]) == 1 and told["warned"][0].startswith("model 'm' is served on the CPU: tensorflow ")
    # The control of the sequence is the second input.
    assert told["answer"] == [[6, 7]]
    assert (told["seen"], told["grows"], told["xla"]) == ("1", True, 1)


# Repositories as guides to Triton print them: the tutorial of TensorFlow, one that completes everything, examples of the server, a backend beside the platform.

TUTORIAL = """name: "resnet50"
platform: "tensorflow_savedmodel"
max_batch_size : 0
input [
  {
    name: "input_1"
    data_type: TYPE_FP32
    dims: [-1, 224, 224, 3 ]
  }
]
output [
  {
    name: "predictions"
    data_type: TYPE_FP32
    dims: [-1, 1000]
  }
]
"""
IDENTITY = """name: "simple_identity"
platform: "tensorflow_savedmodel"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_STRING dims: [ -1 ] } ]
"""
LABELS = """name: "add_sub"
platform: "tensorflow_savedmodel"
backend: "tensorflow"
max_batch_size: 8
version_policy: { latest { num_versions: 1 }}
input [
  { name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
  { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] }
]
output [
  { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] label_filename: "output0_labels.txt" },
  { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ] }
]
dynamic_batching { preferred_batch_size: [ 2, 4, 8 ] max_queue_delay_microseconds: 100 }
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters: {
key: "TF_GRAPH_TAG"
value: {
string_value: "serve"
}
}
parameters: {
key: "TF_SIGNATURE_DEF"
value: {
string_value: "serving_default"
}
}
"""


def test_repositories_of_guides_load_as_they_are(place):
    images = np.random.default_rng(3).random((2, 224, 224, 3), np.float32)
    for config, shape in ((TUTORIAL, [-1, 224, 224, 3]), ('name: "resnet50"\nplatform: "tensorflow_savedmodel"\n', [224, 224, 3])):
        shutil.rmtree(place.models / "resnet50", ignore_errors=True)
        one = place.load("resnet50", config, place.files / "resnet50", whole=True)
        assert shown(one.config(), "input") == [("input_1", "TYPE_FP32", shape)]
        predictions = one.infer(input_1=images).as_numpy("predictions")
        assert predictions.shape == (2, 1000)
        np.testing.assert_allclose(predictions[:, 7] - 7, images.mean((1, 2, 3)), rtol=1e-4)
        place.unload_all()
    texts = np.array([["one", "zwei"], ["", "drei"]], object)
    assert place.load("simple_identity", IDENTITY, place.files / "identity", whole=True).infer(INPUT0=texts).as_numpy("OUTPUT0").tolist() == [[b"one", b"zwei"], [b"", b"drei"]]
    place.unload_all()
    (place.models / "add_sub").mkdir()
    (place.models / "add_sub/output0_labels.txt").write_text("".join(f"label {at}\n" for at in range(16)))
    one = place.load("add_sub", LABELS, place.files / "add_sub", whole=True)
    first, second = np.arange(16, dtype=np.int32)[None], np.ones((1, 16), np.int32)
    answer = one.client.infer("add_sub", [given("INPUT0", first), given("INPUT1", second)], outputs=[httpclient.InferRequestedOutput("OUTPUT0", class_count=1), httpclient.InferRequestedOutput("OUTPUT1")])
    assert (answer.as_numpy("OUTPUT0").tolist(), answer.as_numpy("OUTPUT1").tolist()) == ([[b"16:15:label 15"]], (first - second).tolist())
    place.unload_all()


# Errors and the page.


@pytest.mark.parametrize(
    "name, config, text",
    [
        ("odd", io("input", ("A", "FP32", -1), ("C", "FP32", -1)), "unexpected inference input 'C', allowed inputs are: A, B"),
        ("made_up", io("output", ("PRODUCT", "FP32", -1)), "unexpected inference output 'PRODUCT', allowed outputs are: DIFFERENCE, SUM"),
        ("halves", io("input", ("A", "FP16", -1), ("B", "FP32", -1)), "unable to load model 'halves', configuration expects datatype TYPE_FP16 for input 'A', model provides TYPE_FP32"),
        (
            "flat",
            "max_batch_size: 2\n" + io("input", ("A", "FP32", "-1, -1"), ("B", "FP32", "-1, -1")) + io("output", ("SUM", "FP32", "-1")),
            "model 'flat', tensor 'A': the model expects 2 dimensions (shape [-1,-1]) but the model configuration specifies 3 dimensions (an initial batch dimension because "
            "max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,-1,-1])",
        ),
        ("narrow", "max_batch_size: 2\n" + io("output", ("SUM", "FP32", "3")), "model 'narrow', tensor 'SUM': the model expects 2 dimensions (shape [-1,-1]) but the model configuration"),
        ("bits", "max_batch_size: 2\n" + io("output", ("SUM", "BF16", "-1")), "unsupported datatype 'TYPE_BF16' for tensor 'SUM' for model 'bits'"),
    ],
)
def test_a_configuration_that_does_not_fit_fails_the_load(load, name, config, text):
    told = load(name, config, "pair", error=True)
    assert text in told and "At:" not in told


def test_what_is_no_savedmodel_is_told_apart(place, load):
    assert "unable to process input 'X' for 'complex', unsupported datatype 'DT_COMPLEX64'" in load("complex", "", "complex", error=True)
    directory = place.models / "garbage" / "1" / "model.savedmodel"
    directory.mkdir(parents=True)
    (directory / "saved_model.pb").write_bytes(b"garbage")
    told = place.load("garbage", ONE, error=True)
    assert f"unable to auto-complete model configuration for 'garbage', failed to load model: Cannot parse file b'{directory}/saved_model.pb'" in told and "At:" not in told


def test_the_commands_in_errors_make_savedmodels_that_are_served(place, load):
    """GraphDef and models of Keras are refused by their names."""
    config = io("input", ("x", "FP32", 3)) + io("output", ("y", "FP32", 3))
    told = place.load("frozen", 'platform: "tensorflow_graphdef"\nmax_batch_size: 4\n' + ONE + config, place.files / "frozen.graphdef", to="model.graphdef", error=True)
    assert "model.graphdef' is a GraphDef, whose inputs and outputs have no signature: make a SavedModel of it, and serve it with platform: \"tensorflow_savedmodel\": python -c '" in told
    run_command_in(told)
    one = place.load("frozen", "max_batch_size: 4\n" + ONE + config)
    assert one.infer(x=A).as_numpy("y").tolist() == [[2, 3, 4]]
    told = place.load("network_file", ONE, place.files / "network.keras", to="network.keras", error=True)
    assert "there is 'network.keras', a model of Keras: make a SavedModel of it" in told
    run_command_in(told)
    images, classes = np.load(place.files / "images.npy"), np.load(place.files / "classes.npy")
    two = place.load("network_file", ONE)
    np.testing.assert_allclose(two.infer(image=images).as_numpy(two.config()["output"][0]["name"]), classes, rtol=1e-4, atol=1e-5)


def run_command_in(told):
    command = re.search(r"python -c '.*'", told, re.S)[0]
    subprocess.run(command.replace("python", TENSORFLOW[0], 1), shell=True, check=True, capture_output=True)


def test_without_tensorflow_the_error_says_what_is_missing_where_and_what_gets_it(start, tmp_path):
    python = interpreter_with_numpy_only(tmp_path / "environment")
    directory = tmp_path / "models/one/1/model.savedmodel"
    directory.mkdir(parents=True)
    (directory / "saved_model.pb").write_bytes(b"garbage")
    server = start(tmp_path / "models", "--model-control-mode=explicit", f"--backend-config=python,python-executable={python}")
    status, _, body = server.request("POST", "/v2/repository/models/one/load", b"{}")
    told = json.loads(body)["error"]
    assert status != 200
    assert f"its backend needs TensorFlow, and {python} (Python " in told and "has no module 'tensorflow'" in told
    assert "NEREID_PYTHON" in told and f"Get it with: {python} -m pip install tensorflow" in told


def test_the_example_of_the_page_runs(start, tmp_path):
    page = open(os.path.join(ROOT, "docs/tensorflow.md")).read()
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.S)
    (code,) = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "export.py").write_text(code)
    subprocess.run([TENSORFLOW[0], "export.py"], cwd=tmp_path, check=True)
    (tmp_path / "models/scale/config.pbtxt").write_text(next(text for kind, text in blocks if kind == "pbtxt"))
    # The port is open while the model loads: the wait for that is longer than the one for a start.
    flags = [f"--backend-config=python,python-executable={TENSORFLOW[0]}", "--backend-config=python,stub-timeout-seconds=300", "--listen-early=true"]
    one = start(tmp_path / "models", *flags)
    waits_for(lambda: one.request("GET", "/v2/models/scale/ready")[0] == 200, "the model is ready", 300)
    (ask,) = [re.search(r"-d '(.*)'", text, re.S)[1] for kind, text in blocks if kind == "sh" and "curl" in text]
    status, _, body = one.request("POST", "/v2/models/scale/infer", ask.encode())
    assert (status, json.loads(body)) == (200, json.loads(next(text for kind, text in blocks if kind == "json")))


def test_init_writes_a_repository_with_what_the_file_says(place, tmp_path):
    environment = {**os.environ, "NEREID_PYTHON": TENSORFLOW[0]}
    told = subprocess.run([*COMMAND, "init", str(place.files / "pair"), f"--out={tmp_path}/out"], env=environment, capture_output=True, text=True, check=True).stdout
    config = (tmp_path / "out/pair/config.pbtxt").read_text()
    assert 'backend: "tensorflow"\nmax_batch_size: 0\n' in config and 'name: "SUM" data_type: TYPE_FP32 dims: [ -1, -1 ]' in config
    assert os.listdir(tmp_path / "out/pair/1") == ["model.savedmodel"]
    assert "Send a request, in another terminal:" in told and "Note:" not in told, told

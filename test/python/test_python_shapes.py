"""What the code of a Python model sees of its configuration: shapes (C-07), and its directory (B-PY-21)."""
import numpy as np
import pytest
import tritonclient.http as httpclient

from interpreter import AS_CONFIGURED, python_server

SHAPES = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            shape = np.array([str(list(array.shape))] * (array.shape[0] if BATCHES else 1), dtype=object)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array), pb_utils.Tensor("SHAPE", shape)]))
        return answers
"""
PLACE = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        said = np.array([pb_utils.get_model_dir()], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SHAPE", said)]) for _ in requests]
"""

# dims, reshape, most rows, the shape that a client sends, the one that the model sees.
RESHAPED = [
    ("1", "", 4, [1, 1], "[1]"),
    ("1", "", 4, [3, 1], "[3]"),
    ("2, 2", "4", 4, [3, 2, 2], "[3, 4]"),
    ("-1, 2", "-1, 1, 2", 4, [2, 3, 2], "[2, 3, 1, 2]"),
    ("4", "2, 2", 0, [4], "[2, 2]"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("shapes") / "models"

    def model(name, file, code, config):
        path = root / name / "1" / file
        path.parent.mkdir(parents=True)
        path.write_text(code)
        (root / name / "config.pbtxt").write_text(f'backend: "python"\n{config}')

    text = 'output [ { name: "SHAPE" data_type: TYPE_STRING dims: [ %s ] } ]\n'
    for n, (dims, reshape, rows, _, _) in enumerate(RESHAPED):
        shape = f"dims: [ {dims} ] reshape {{ shape: [ {reshape} ] }}"
        said = text % "1" if rows == 0 else 'output [ { name: "SHAPE" data_type: TYPE_STRING dims: [ 1 ] reshape { shape: [ ] } } ]\n'
        config = f'max_batch_size: {rows}\ninput [ {{ name: "IN" data_type: TYPE_FP32 {shape} }} ]\noutput [ {{ name: "OUT" data_type: TYPE_FP32 {shape} }} ]\n{said}'
        model(f"m{n}", "model.py", SHAPES.replace("BATCHES", str(rows > 0)), config)
    place = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]\n' + text % "1"
    model("place", "model.py", PLACE, place)
    model("below", "sub/deep/model.py", PLACE, place + 'default_model_filename: "sub/deep/model.py"\n')
    log = tmp_path_factory.mktemp("log") / "server.log"
    one = python_server(root, AS_CONFIGURED, log=log)
    one.root = root
    yield one
    assert one.stop() == 0


def ask(server, model, array, outputs=("SHAPE",)):
    with httpclient.InferenceServerClient(server.http) as client:
        tensor = httpclient.InferInput("IN", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        answer = client.infer(model, [tensor], outputs=[httpclient.InferRequestedOutput(name) for name in outputs])
        return [answer.as_numpy(name) for name in outputs]


@pytest.mark.parametrize("n", range(len(RESHAPED)), ids=[f"{row[0]} as [{row[1]}], {row[3]}" for row in RESHAPED])
def test_c_07_the_code_of_a_model_sees_shapes_as_reshape_says_and_clients_do_not(server, n):
    _, _, rows, shape, seen = RESHAPED[n]
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    back, said = ask(server, f"m{n}", array, ("OUT", "SHAPE"))
    assert said.reshape(-1)[0].decode() == seen
    assert said.shape == ((shape[0], 1) if rows else (1,))
    assert back.shape == array.shape and (back == array).all()


def test_b_py_21_the_directory_of_a_model_is_that_of_its_file(server):
    one = np.zeros(1, np.float32)
    for model, directory in (("place", "place/1"), ("below", "below/1/sub/deep")):
        assert ask(server, model, one)[0][0].decode() == str(server.root / directory)

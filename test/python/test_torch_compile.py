"""TORCH_COMPILE_OPTIONAL_PARAMETERS of classes of PyTorch (spec: backends-native.md, 4): the arguments that
torch.compile gets, with a stand-in of torch (frameworks/torch_stand_in); and compiled classes of a live torch."""
import json
import os
import shutil

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from framework_server import Loaded, io
from interpreter import interpreter_with, python_server
from server import Server

STAND_IN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "frameworks/torch_stand_in")
NAME = "TORCH_COMPILE_OPTIONAL_PARAMETERS"
CONFIG = (
    'backend: "pytorch"\nruntime: "model.py"\nmax_batch_size: 8\n' + io("input", ("x", "FP32", -1))
    + io("output", ("y", "FP32", -1))
)  # fmt: skip
DOUBLE = """import torch


class Double(torch.nn.Module):
    def forward(self, x):
        return x * 2
"""
#: Adds 100 if it is compiled.
TELLS = """import torch


class Tells(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        torch.nn.init.eye_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def forward(self, x):
        return torch.relu(self.layer(x)) + (100 if torch.compiler.is_compiling() else 0)
"""
X = np.array([[1, 2, 3]], np.float32)


def load(server, repository, name, code, options):
    """The loaded model, or the text of the load that failed."""
    directory = repository / name / "1"
    directory.mkdir(parents=True)
    (directory / "model.py").write_text(code)
    text = "" if options is None else options.replace("\\", "\\\\").replace('"', '\\"')
    value = f'parameters {{ key: "{NAME}" value {{ string_value: "{text}" }} }}\n'
    (directory.parent / "config.pbtxt").write_text(CONFIG + ("" if options is None else value))
    one = Loaded(server, name)
    try:
        one.client.load_model(name)
    except InferenceServerException as error:
        return error.message()
    return one


# A stand-in.


@pytest.fixture(params=[True, False], ids=["compiles", "before_2.0"])
def stand_in(request, tmp_path):
    """A server with the stand-in, and the file to which torch.compile writes its arguments."""
    (tmp_path / "models").mkdir()
    written = tmp_path / "compiled.json"
    env = {"PYTHONPATH": STAND_IN, **({"STAND_IN_COMPILED": str(written)} if request.param else {})}
    log = tmp_path / "server.log"
    one = python_server(tmp_path / "models", "--model-control-mode=explicit", log=log, env=env)
    yield one, tmp_path / "models", written
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


@pytest.mark.parametrize("stand_in", [True], indirect=True)
def test_the_parameter_has_the_arguments_of_torch_compile(stand_in):
    server, models, written = stand_in
    plain = load(server, models, "plain", DOUBLE, None)
    assert plain.infer(x=X).as_numpy("y").tolist() == [[2, 4, 6]]
    assert not written.exists()
    for name, options in (
        ("defaults", {}),
        ("several", {"backend": "inductor", "mode": "max-autotune", "dynamic": False, "fullgraph": True}),
        ("nested", {"options": {"triton.cudagraphs": True, "max_autotune": False}, "disable": False}),
    ):
        one = load(server, models, name, DOUBLE, json.dumps(options))
        assert json.loads(written.read_text()) == options
        assert one.infer(x=X).as_numpy("y").tolist() == [[102, 104, 106]]


@pytest.mark.parametrize("stand_in", [True], indirect=True)
def test_a_wrong_parameter_fails_the_load(stand_in):
    server, models, written = stand_in
    for name, options, text in (
        ("no_json", "{", f"parameter '{NAME}' of model 'no_json' must be a JSON object: "),
        ("a_list", "[1]", f"parameter '{NAME}' of model 'a_list' must be a JSON object: "),
        ("itself", '{"model": 1}', "'model' is not an optional parameter for torch.compile"),
    ):
        assert text in load(server, models, name, DOUBLE, options)
    assert not written.exists()


@pytest.mark.parametrize("stand_in", [False], indirect=True)
def test_a_torch_before_2_0_fails_the_load_of_a_compiled_class_only(stand_in):
    server, models, _ = stand_in
    told = load(server, models, "compiled", DOUBLE, "{}")
    assert "torch.compile came with torch 2.0, and " in told and " has torch 1.13.1+stand.in" in told
    assert load(server, models, "plain", DOUBLE, None).infer(x=X).as_numpy("y").tolist() == [[2, 4, 6]]


# A live torch.


def reason():
    """Why the torch that is found compiles nothing; None if it does."""
    found = interpreter_with("torch")
    if found is None:
        return "absent: no interpreter has torch and numpy: name one with NEREID_TEST_PYTHON"
    if int(found[1].split(".")[0]) < 2:
        return f"absent: torch {found[1]} has no torch.compile"
    return None


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    root = tmp_path_factory.mktemp("torch_compile")
    (root / "models").mkdir()
    python, _ = interpreter_with("torch")
    flags = ["--model-control-mode=explicit", f"--backend-config=python,python-executable={python}"]
    one = Server(root / "models", *flags, log=root / "server.log", env={"TORCHINDUCTOR_CACHE_DIR": str(root / "cache")})
    yield one, root / "models"
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


def check_live(live, name, options, added):
    one = load(*live, name, TELLS, options)
    assert isinstance(one, Loaded), one
    # The number of rows changes, which compiles again.
    for rows in (1, 3, 8):
        sent = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        np.testing.assert_allclose(one.infer(x=sent).as_numpy("y"), np.maximum(sent, 0) + added, rtol=1e-5)


@pytest.mark.timeout(300)
@pytest.mark.skipif(reason() is not None, reason=str(reason()))
def test_a_class_is_compiled_only_with_the_parameter(live):
    check_live(live, "plain", None, 0)
    check_live(live, "eager", '{"backend": "eager", "fullgraph": true}', 100)
    told = load(*live, "unknown", TELLS, '{"no_such_argument": 1}')
    assert "no_such_argument" in told, told


def reason_without_inductor():
    if reason() is not None:
        return reason()
    if shutil.which("c++") is None:
        return "absent: no C++ compiler, which Inductor uses"
    if not os.environ.get("NEREID_TEST_PYTHON"):
        return "NEREID_TEST_PYTHON names no torch: Inductor takes a minute or more"
    return None


@pytest.mark.timeout(900)
@pytest.mark.skipif(reason_without_inductor() is not None, reason=str(reason_without_inductor()))
def test_inductor_compiles_a_class_for_the_cpu(live):
    check_live(live, "inductor", '{"dynamic": true}', 100)

"""Models of XGBoost and LightGBM that a script trains with the live framework (frameworks/trees_models.py), served by
`backend: "fil"`: the answers are the framework's predictions. And the example of docs/trees.md with scikit-learn."""
import json
import os
import re
import shlex
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from clients import KINDS, connect
from frameworks import trees_models
from interpreter import interpreter_with
from server import COMMAND, ROOT, Server, waits_for

PACKAGES = {"xgboost": "xgboost-cpu", "lightgbm": "lightgbm"}
SIZES = [1, 8, 64]
CONVERTER = interpreter_with("skl2onnx")


class Family:
    """A server over the models of a framework, with rows and their predictions."""

    def __init__(self, name, root):
        found = interpreter_with(name)
        if found is None:
            reason = f"absent: no interpreter has {name} and numpy: pip install {PACKAGES[name]} numpy"
            pytest.skip(f"{reason}, and name its Python with NEREID_TEST_PYTHON")
        python, self.version = found
        subprocess.run([python, "-W", "ignore", trees_models.__file__, name, str(root)], check=True)
        # Without the flag, an idle instance of such a fast model does not wait for the second request of a batch.
        self.server = Server(root / "models", "--strict-batching-delay=true", log=root / "server.log")
        self.cases = {path.stem: dict(np.load(path)) for path in root.glob("*.npz")}

    def check(self, client, model, rows):
        """Asks for rows, whose answers are the predictions. The sums have another order than in the framework."""
        case = self.cases[model]
        result = client.infer(model, {"input__0": case["x"][rows]})
        np.testing.assert_allclose(result.as_numpy("output__0"), case["y"][rows], rtol=1e-5, atol=1e-5, err_msg=model)


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """`families(name)`: the family, whose server starts at the first call."""
    made = {}

    def go(name):
        if name not in made:
            made[name] = Family(name, tmp_path_factory.mktemp(name))
        return made[name]

    yield go
    for one in made.values():
        assert one.server.process.poll() is None, f"the server ended by itself:\n{one.server.tail()}"
        assert one.server.stop() == 0, one.server.tail()


@pytest.mark.parametrize("name, model", [(name, model) for name in PACKAGES for model in trees_models.KINDS[name]])
def test_answers_are_the_predictions_of_the_framework_at_each_batch_size(families, name, model):
    family = families(name)
    if model not in family.cases:
        pytest.skip(f"absent: XGBoost {family.version} has no objective {trees_models.KINDS[name][model].objective}")
    rows = np.arange(len(family.cases[model]["x"]))
    clients = [connect(kind, family.server) for kind in ("http", "grpc")]
    for size in SIZES:
        for at, start in enumerate(range(0, len(rows) - size + 1, max(size, 16))):
            family.check(clients[at % 2], model, rows[start : start + size])
    for client in clients:
        client.close()


@pytest.mark.parametrize("name", PACKAGES)
def test_rows_of_mixed_clients_come_back_to_their_requests(families, name):
    family, workers, each = families(name), 8, 6
    together = threading.Barrier(workers, timeout=60)

    def ask(seed):
        chance = np.random.default_rng(seed)
        client = connect(KINDS[seed % len(KINDS)], family.server)
        try:
            for model in family.cases:
                for _ in range(each):
                    together.wait()
                    family.check(client, model, chance.choice(len(family.cases[model]["x"]), chance.choice(SIZES)))
        except Exception:
            # The others would wait for this one.
            together.abort()
            raise
        finally:
            client.close()

    before = executions(family.server)
    with ThreadPoolExecutor(workers) as pool:
        errors = [asked.exception() for asked in [pool.submit(ask, seed) for seed in range(workers)]]
    assert not [error for error in errors if error and not isinstance(error, threading.BrokenBarrierError)]
    requests = workers * each * len(family.cases)
    assert executions(family.server) - before < requests, "some requests run in one batch"


def executions(server):
    return sum(model["execution_count"] for model in server.json("/v2/models/stats")["model_stats"])


@pytest.mark.skipif(
    CONVERTER is None,
    reason="absent: no interpreter has skl2onnx and numpy: pip install scikit-learn skl2onnx, and name its Python with "
    "NEREID_TEST_PYTHON",
)
def test_the_example_of_scikit_learn_runs(start, tmp_path):
    page = open(os.path.join(ROOT, "docs/trees.md")).read().split("\n## scikit-learn\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.S)
    (code,) = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "train.py").write_text(code)
    subprocess.run([CONVERTER[0], "train.py"], cwd=tmp_path, check=True)
    lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
    (line,) = [line for line in lines if line.startswith("npx nereid init ")]
    command = [*COMMAND, *shlex.split(line)[2:]]
    told = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "models/iris/config.pbtxt" in told and "Note: " not in told
    one = start(tmp_path / "models")
    waits_for(lambda: one.request("GET", "/v2/models/iris/ready")[0] == 200, "the model is ready")
    (ask,) = [re.search(r"-d '(.*)'", text, re.S)[1] for kind, text in blocks if kind == "sh" and "curl" in text]
    status, _, body = one.request("POST", "/v2/models/iris/infer", ask.encode())
    assert (status, json.loads(body)) == (200, json.loads(next(text for kind, text in blocks if kind == "json")))

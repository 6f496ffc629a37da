"""The example of docs/trees.md with scikit-learn: what skl2onnx writes is put into a repository by `nereid init`, and served."""
import json
import os
import re
import shlex
import subprocess

import pytest

from interpreter import interpreter_with
from server import COMMAND, ROOT, waits_for

CONVERTER = interpreter_with("skl2onnx")
pytestmark = pytest.mark.skipif(CONVERTER is None, reason="no interpreter has skl2onnx and numpy: pip install scikit-learn skl2onnx, and name it with NEREID_TEST_PYTHON")


def test_the_example_of_scikit_learn_runs(start, tmp_path):
    page = open(os.path.join(ROOT, "docs/trees.md")).read().split("\n## scikit-learn\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.S)
    (code,) = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "train.py").write_text(code)
    subprocess.run([CONVERTER[0], "train.py"], cwd=tmp_path, check=True)
    (line,) = [line for kind, text in blocks if kind == "sh" for line in text.splitlines() if line.startswith("npx nereid init ")]
    told = subprocess.run([*COMMAND, *shlex.split(line)[2:]], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "models/iris/config.pbtxt" in told and "Note: " not in told
    one = start(tmp_path / "models")
    waits_for(lambda: one.request("GET", "/v2/models/iris/ready")[0] == 200, "the model is ready")
    (ask,) = [re.search(r"-d '(.*)'", text, re.S)[1] for kind, text in blocks if kind == "sh" and "curl" in text]
    status, _, body = one.request("POST", "/v2/models/iris/infer", ask.encode())
    assert (status, json.loads(body)) == (200, json.loads(next(text for kind, text in blocks if kind == "json")))

"""The function of README.md, served by the Python package of this clone."""
import importlib
import json
import os
import re
import sys
import urllib.request

import pytest

from server import ROOT

PACKAGE = os.path.join(ROOT, "packaging/wheel")
os.environ["NEREID_MAIN"] = os.path.join(ROOT, "dist/cli/main.js")
sys.path.insert(0, PACKAGE)

import nereid  # noqa: E402


@pytest.mark.skipif(sys.platform != "linux", reason="functions run on Linux")
def test_the_function_of_the_readme_answers(tmp_path, monkeypatch):
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        (text,) = re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
    (tmp_path / "app.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("app")
    body = {"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4.5]}]}
    with nereid.serve(module.double) as server:
        request = urllib.request.Request(f"http://{server.http_address}/v2/models/double/infer", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            (output,) = json.load(answer)["outputs"]
    assert output == {"name": "OUTPUT0", "datatype": "FP32", "shape": [2, 2], "data": [2, 4, 6, 9]}

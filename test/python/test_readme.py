"""What README.md prints is what happens: its curl, Python and Node examples, run as written but for the ports."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from interpreter import python_server
from server import NODE, ROOT, Server

with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
    BLOCKS = re.findall(r"```(\w+)\n(.*?)```", f.read(), re.S)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    models = tmp_path_factory.mktemp("examples")
    subprocess.run([NODE, os.path.join(ROOT, "scripts/models/examples.mjs"), str(models)], check=True)
    one = Server(models, "--allow-client-shm=true", log=tmp_path_factory.mktemp("log") / "server.log")
    one.models = models
    yield one
    one.stop()


def block(language, containing):
    found = [text for name, text in BLOCKS if name == language and containing in text]
    assert len(found) == 1, f"README.md has {len(found)} {language} blocks with {containing}"
    return found[0]


def here(text, server):
    for theirs, ours in ((8000, server.http_port), (8001, server.grpc_port), (8002, server.metrics_port)):
        text = text.replace(f"localhost:{theirs}", f"127.0.0.1:{ours}")
    return text


def test_the_curl_examples(examples):
    """P-217"""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    commands = here(block("sh", "health/ready"), examples).replace("curl ", "curl -sS ")
    said = subprocess.run(["bash", "-euc", commands], capture_output=True, text=True, check=True).stdout
    assert said.startswith("HTTP/1.1 200 OK")
    assert '{"name":"simple","versions":["1"],"platform":"onnxruntime_onnx"' in said
    assert block("json", '"model_name":"versions"').strip() in said
    assert "nv_inference_request_success" in said


def test_the_ensemble(examples):
    """S-26"""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = here(block("sh", "models/chain"), examples).replace("curl ", "curl -sS ")
    said = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True).stdout
    assert said == block("json", '"model_name":"chain"').strip()


def test_the_stream_of_events(examples):
    """P-107"""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = here(block("sh", "models/repeat/generate_stream"), examples).replace("curl ", "curl -sS ")
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        printed = re.search(r"```\n(data: .*?)```", f.read(), re.S).group(1)
    assert subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True).stdout == printed


def test_the_python_example(examples):
    code = here(block("python", "tritonclient.grpc"), examples)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    labels = re.findall(r"b'(\d\.\d{6}):(\d):(\w+)'", said)
    assert len(labels) == 3 and labels == sorted(labels, reverse=True), said


def test_the_region_examples(examples):
    """M-31"""
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "shm/python")}
    code = here(block("python", "nereid_shm"), examples)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
    assert re.findall(r"\d+", said) == ["40"] * 16 + ["21"] * 16
    code = here(block("ts", "nereid/shm"), examples)
    # In the repository itself, so that the package finds itself by name.
    command = [NODE, "--input-type=module", "-e", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert re.findall(r"\d+", said.split("[")[1]) == ["40"] * 16
    assert examples.json("/v2/systemsharedmemory/status") == []


def test_the_node_example(examples):
    code = block("ts", "Server.start").replace("'examples/models'", json.dumps(str(examples.models)))
    # In the repository itself, so that the package finds itself by name.
    command = [NODE, "--input-type=module", "-e", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("40") == 16, done.stdout
    assert re.findall(r"Int32Array\(1\) \[ (\d) \]", done.stdout) == ["7", "8", "9"], done.stdout


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """`examples/text` and `examples/text_stream`, each in a server of its own."""
    out = tmp_path_factory.mktemp("texts")
    subprocess.run([NODE, os.path.join(ROOT, "scripts/models/text.mjs"), str(out)], check=True)
    running = {name: python_server(out / name, log=tmp_path_factory.mktemp("log") / "server.log") for name in ("text", "text_stream")}
    yield running
    for one in running.values():
        one.stop()


def test_b_py_33_the_text_pipeline_answers_a_string_with_json(texts):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = here(block("sh", "models/text/infer"), texts["text"]).replace("curl ", "curl -sS ")
    said = json.loads(subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True).stdout)
    assert json.loads(said["outputs"][0]["data"][0])["label"] == "weather"


def test_b_py_33_the_python_example_of_the_text_pipeline(texts):
    code = here(block("python", 'client.infer("text"'), texts["text"])
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "weather\nsport\n"


def test_b_py_33_the_words_that_stream(texts):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    [command] = [line for line in block("sh", "text_stream/generate_stream").splitlines() if line.startswith("curl")]
    command = here(command, texts["text_stream"]).replace("curl ", "curl -sS ")
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        printed = next(text for text in re.findall(r"```\n(data: .*?)```", f.read(), re.S) if "text_output" in text)
    assert subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True).stdout == printed

"""The models that the tests and examples use are models: the checker of the ONNX project says so."""
import glob
import os
import subprocess

import onnx
import pytest

from conftest import NODE
from server import ROOT


@pytest.fixture(scope="module")
def directories(tmp_path_factory, repositories):
    examples = tmp_path_factory.mktemp("examples")
    subprocess.run([NODE, os.path.join(ROOT, "scripts/models/examples.mjs"), str(examples)], check=True)
    return [examples, repositories / "main", repositories / "small"]


def test_every_generated_model_passes_the_checker(directories):
    files = [f for d in directories for f in glob.glob(f"{d}/*/*/model.onnx")]
    assert len(files) > 25
    for file in files:
        onnx.checker.check_model(onnx.load(file), full_check=True)


def test_generation_has_the_same_bytes_every_time(directories, tmp_path):
    subprocess.run([NODE, os.path.join(ROOT, "scripts/models/examples.mjs"), str(tmp_path)], check=True)
    first = {os.path.relpath(f, directories[0]): open(f, "rb").read()
             for f in glob.glob(f"{directories[0]}/**", recursive=True) if os.path.isfile(f)}
    second = {os.path.relpath(f, tmp_path): open(f, "rb").read()
              for f in glob.glob(f"{tmp_path}/**", recursive=True) if os.path.isfile(f)}
    assert first == second

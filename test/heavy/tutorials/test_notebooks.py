"""The notebooks beside the tutorials run from the first cell to the last; their checks are asserts in their cells."""
import os
import shutil

import nbclient
import nbformat
import pytest

TUTORIALS = os.path.join(os.path.dirname(__file__), "../../../docs/tutorials")
NOTEBOOKS = sorted(name for name in os.listdir(TUTORIALS) if name.endswith(".ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs(name, tmp_path):
    notebook = nbformat.read(os.path.join(TUTORIALS, name), as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), f"{name} is kept without outputs"
    shutil.copytree(os.path.join(TUTORIALS, "../../examples"), tmp_path / "examples", ignore=shutil.ignore_patterns("node_modules"))
    nbclient.NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}}).execute()

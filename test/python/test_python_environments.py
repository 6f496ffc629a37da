"""Archives as the tools of users make them: venv-pack, and conda-pack of a prefix that is laid out like one of conda (there is no conda on PyPI)."""
import json
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import conda_pack
import numpy
import pytest
import venv_pack

from crashes import Asker
from interpreter import python_server
from server import Server

MODEL = '''import json
import sys
from pathlib import Path

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        where = Path(sys.prefix) / "etc" / "where"
        found = {"prefix": sys.prefix, "numpy": numpy.__file__, "where": where.read_text() if where.exists() else None}
        out = pb_utils.Tensor("OUT", numpy.array([json.dumps(found).encode()], dtype=object))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
'''
CONFIG = '''backend: "python"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }
'''


@pytest.fixture
def environment(tmp_path):
    """An environment with numpy and nothing else."""
    root = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True, timeout=120)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = Path(numpy.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (packages / name).exists():
            shutil.copytree(packages / name, root / "lib" / version / "site-packages" / name, ignore=shutil.ignore_patterns("tests"))
    return root


def answered(tmp_path, pack):
    """What a model says that runs in the environment that `pack` packs."""
    directory = tmp_path / "models" / "inside"
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(CONFIG)
    (directory / "1" / "model.py").write_text(MODEL)
    pack(str(directory / "env.tar.gz"))
    # Where it was made there is nothing any more.
    (tmp_path / "env").rename(tmp_path / "gone")
    server = python_server(tmp_path / "models", log=tmp_path / "server.log")
    try:
        body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}]}
        status, answer = Asker(server).ask("POST", "/v2/models/inside/infer", body)
        assert status == 200, (answer, server.tail())
        found = json.loads(json.loads(answer)["outputs"][0]["data"][0])
    finally:
        server.stop()
    assert found["numpy"].startswith(found["prefix"] + "/lib/"), found
    assert not found["prefix"].startswith(str(tmp_path)), found
    assert not Path(found["prefix"]).exists(), "the unpacked environment goes with the server"
    return found


def test_b_pyr_06_b_sec_06_an_archive_of_venv_pack_is_an_environment(tmp_path, environment):
    def pack(archive):
        venv_pack.pack(prefix=str(environment), output=archive, compress_level=1)
        with tarfile.open(archive) as tar:
            outside = [member for member in tar if member.issym() and member.linkname.startswith("/")]
        assert [member.name for member in outside] != [], "it links to the interpreter of the system"

    answered(tmp_path, pack)


def test_b_pyr_06_an_archive_of_conda_pack_is_an_environment_with_fixed_paths(tmp_path, environment):
    # conda-pack brings its own.
    for script in (environment / "bin").glob("[Aa]ctivate*"):
        script.unlink()
    (environment / "etc").mkdir()
    (environment / "etc" / "where").write_text(str(environment))
    paths = [{"_path": "etc/where", "path_type": "hardlink", "file_mode": "text", "prefix_placeholder": str(environment)}]
    record = {
        "name": "python", "fn": "python", "version": sys.version.split()[0], "build": "0", "build_number": 0, "channel": "local", "url": "",
        "files": ["etc/where"], "paths_data": {"paths": paths, "paths_version": 1}, "link": {"source": "", "type": 1},
    }
    (environment / "conda-meta").mkdir()
    (environment / "conda-meta" / "history").write_text("")
    (environment / "conda-meta" / "python-0.json").write_text(json.dumps(record))

    def pack(archive):
        with pytest.warns(UserWarning, match="package cache"):
            conda_pack.pack(prefix=str(environment), output=archive, compress_level=1)

    found = answered(tmp_path, pack)
    # What conda-unpack is there for.
    assert found["where"] == found["prefix"]


def test_stub_timeout_seconds_bounds_the_question_what_an_interpreter_is(tmp_path):
    """An interpreter that says nothing, as one on a disk that hangs: the load fails in that time, and says by which setting."""
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 100\n")
    silent.chmod(0o755)
    (tmp_path / "models/m/1").mkdir(parents=True)
    (tmp_path / "models/m/config.pbtxt").write_text(CONFIG.replace("EXECUTION_ENV_PATH", "nothing"))
    (tmp_path / "models/m/1/model.py").write_text(MODEL)
    began = time.monotonic()
    flags = [f"--backend-config=python,python-executable={silent}", "--backend-config=python,stub-timeout-seconds=2", "--exit-on-error=false"]
    server = Server(tmp_path / "models", *flags, log=tmp_path / "server.log")
    try:
        server.logged("did not report its version within 2 s (stub-timeout-seconds); the next load tries again")
        # Ten seconds without the setting.
        assert 2 <= time.monotonic() - began < 9, server.tail()
    finally:
        assert server.stop() == 0, server.tail()

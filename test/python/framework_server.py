"""A server of models of a framework, whose files a script wrote with that framework, and which tests configure and load one by one."""
import json
import os
import shutil
import subprocess

import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from server import Server

HERE = os.path.dirname(__file__)


def io(field, *tensors):
    """Lines of a configuration: `io("input", ("X", "FP32", -1))`."""
    lines = ", ".join(f'{{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] }}' for name, kind, dims in tensors)
    return f"{field} [ {lines} ]\n"


def parameters(**values):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def given(name, array):
    return httpclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)).set_data_from_numpy(array)


class Loaded:
    """A model that is loaded, and asked over HTTP."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        # A framework takes seconds to import, and much longer on a machine that does something else.
        self.client = httpclient.InferenceServerClient(server.http, network_timeout=300)

    def infer(self, **arrays):
        return self.client.infer(self.name, [given(name, array) for name, array in arrays.items()])

    def error(self, **arrays):
        with pytest.raises(InferenceServerException) as told:
            self.infer(**arrays)
        return told.value.message()

    def config(self):
        return self.client.get_model_config(self.name)


class Place:
    """Files of models, a repository that tests write into, and its server."""

    def __init__(self, root, backend, default_file, python, flags=()):
        self.files, self.models = root / "files", root / "models"
        self.files.mkdir()
        self.models.mkdir()
        self.backend, self.default_file = backend, default_file
        self.python = python
        subprocess.run([python, os.path.join(HERE, f"frameworks/{backend}_models.py"), str(self.files)], check=True, stdout=(root / "script.txt").open("w"))
        flags = ["--model-control-mode=explicit", f"--backend-config=python,python-executable={python}", *flags]
        self.server = Server(self.models, *flags, log=root / "server.log")
        self.loaded = []

    def load(self, name, config, *files, to=None, error=False, whole=False):
        """Writes a model and loads it; with `error` the text of the load that failed. `files`: those of the script, or bytes; the first becomes the model's file. `whole`: the configuration names its backend itself."""
        directory = self.models / name / "1"
        directory.mkdir(parents=True, exist_ok=True)
        if config is not None:
            (directory.parent / "config.pbtxt").write_text(config if whole else f'backend: "{self.backend}"\n{config}')
        for file in files:
            target = directory / ((to or self.default_file) if file == files[0] else file.name)
            if isinstance(file, bytes):
                target.write_bytes(file)
            elif os.path.isdir(file):
                shutil.copytree(file, target)
            else:
                shutil.copy(file, target)
        status, _, body = self.server.request("POST", f"/v2/repository/models/{name}/load", b"{}", timeout=300)
        if error:
            assert status != 200
            return json.loads(body)["error"]
        assert status == 200, body
        self.loaded.append(name)
        return Loaded(self.server, name)

    def unload_all(self):
        while self.loaded:
            self.server.request("POST", f"/v2/repository/models/{self.loaded.pop()}/unload", b"{}")

    def stop(self):
        assert self.server.process.poll() is None, f"the server ended by itself:\n{self.server.tail()}"
        assert self.server.stop() == 0, self.server.tail()

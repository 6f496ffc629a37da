"""Repositories behind links, as Kubernetes mounts them: KServe's modelcar (a link to /proc/PID/root/models of a container in another mount namespace, whose
canonical path does not exist here), and volumes of ConfigMaps (files that are links through `..data`)."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from crashes import Asker
from interpreter import python_server
from server import NODE, ROOT

CODE = """import { defineModel, InferenceResponse, Tensor } from 'nereid/backend'
import { twice } from '%s'
const X = { datatype: 'FP32', dims: [-1] } as const
export default defineModel({ maxBatchSize: 0, inputs: { X }, outputs: { Y: X }, execute: (requests) =>
  requests.map((request) => new InferenceResponse([Tensor.from('Y', request.input('X').data.map(twice))])) })
"""
PYTHON = """import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("Y", pb.get_input_tensor_by_name(r, "X").as_numpy() * 2)]) for r in requests]
"""
TENSORS = 'input [{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }] output [{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }]\n'
WARMUP = 'model_warmup [{ name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "raw" } } }]\n'
ENVIRONMENT = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }\n'
SUM = 'model_repository_agents { agents [{ name: "checksum" parameters [{ key: "MD5:1/model.onnx" value: "%s" }] }] }\n'
PROCESS = 'backend: "javascript" parameters { key: "isolation" value { string_value: "process" } }\n'


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def doubling():
    """Y = 2 X in ONNX."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "XY"]
    graph = helper.make_graph([helper.make_node("Mul", ["X", "W"], ["Y"])], "g", value[:1], value[1:], [numpy_helper.from_array(numpy.float32([2]), "W")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def repository(root, tmp_path):
    """A model of each kind that reads other files; all double."""
    write(root / "ts/1/model.ts", CODE % "./helper.js")
    write(root / "ts/1/helper.ts", "export const twice = (x: number): number => 2 * x\n")
    shutil.copytree(root / "ts", root / "process")
    write(root / "process/config.pbtxt", PROCESS)
    write(root / "js/1/model.js", (CODE % "twice").replace(" as const", ""))
    write(root / "js/1/package.json", '{ "type": "module" }')
    write(root / "js/1/node_modules/twice/package.json", '{ "name": "twice", "main": "index.cjs" }')
    write(root / "js/1/node_modules/twice/index.cjs", "exports.twice = require('./other.cjs').twice\n")
    write(root / "js/1/node_modules/twice/other.cjs", "exports.twice = (x) => 2 * x\n")
    write(root / "onnx/config.pbtxt", WARMUP)
    write(root / "onnx/1/model.onnx", doubling().SerializeToString())
    write(root / "onnx/warmup/raw", bytes(8))
    write(root / "sum/config.pbtxt", SUM % hashlib.md5((root / "onnx/1/model.onnx").read_bytes()).hexdigest())
    shutil.copytree(root / "onnx/1", root / "sum/1")
    (root / "external/1").mkdir(parents=True)
    onnx.save(doubling(), root / "external/1/model.onnx", save_as_external_data=True, location="model.data", size_threshold=0)
    for name, more in (("py", ""), ("env", ENVIRONMENT)):
        write(root / name / "config.pbtxt", f'backend: "python" {TENSORS}{more}')
        write(root / name / "1/model.py", PYTHON)
    environment = tmp_path / "env"
    write(environment / "bin/activate", "")
    write(environment / "bin/python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (environment / "bin/python3").chmod(0o755)
    with tarfile.open(root / "env/env.tar.gz", "w:gz") as tar:
        tar.add(environment, ".")
    return ["env", "external", "js", "onnx", "process", "py", "sum", "ts"]


def leaking(root, tmp_path):
    """Models with a link to a file of nobody's business; `leak` is another directory's file of the same name and content."""
    write(tmp_path / "secret", bytes(8))
    shutil.copytree(root / "onnx", root / "leakwarm")
    (root / "leakwarm/warmup/raw").unlink()
    (root / "leakwarm/warmup/raw").symlink_to(tmp_path / "secret")
    shutil.copytree(root / "sum", root / "leaksum")
    (root / "leaksum/1/model.onnx").unlink()
    (root / "leaksum/1/model.onnx").symlink_to("../../onnx/1/model.onnx")
    shutil.copytree(root / "external", root / "leakdata")
    (root / "leakdata/1/model.data").unlink()
    (root / "leakdata/1/model.data").symlink_to("../../external/1/model.data")


@pytest.fixture
def modelcar(tmp_path):
    """Serves a directory from another mount namespace: returns the link to it."""
    cars = []

    def mounted(files):
        place = tmp_path / "mount"
        place.mkdir()
        script = 'mount -t tmpfs none "$1" && cp -a "$2" "$1/models" && echo ready && exec sleep 600'
        flags = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]
        car = subprocess.Popen(["unshare", *flags, "sh", "-c", script, "sh", place, files], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        cars.append(car)
        if car.stdout.readline() != "ready\n":
            pytest.skip(f"no mount namespace can be made here: {car.stderr.read().strip()}")
        link = tmp_path / "models"
        link.symlink_to(f"/proc/{car.pid}/root{place}/models")
        assert link.is_dir() and not os.path.exists(os.path.realpath(link)), "its canonical path is of another namespace"
        return link

    yield mounted
    for car in cars:
        car.kill()
        car.communicate()


def checked(link, names):
    """The lines of `nereid check`."""
    command = [NODE, os.path.join(ROOT, "dist/cli/main.js"), "check", link]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1].startswith(f"{len(names)} models"), done.stdout
    return done.stdout


def doubles(server, names):
    body = {"inputs": [{"name": "X", "shape": [2], "datatype": "FP32", "data": [1.5, -2]}]}
    answers = {name: Asker(server).ask("POST", f"/v2/models/{name}/infer", body) for name in names}
    outputs = {name: json.loads(answer).get("outputs", answer) for name, (_, answer) in answers.items()}
    assert outputs == {name: [{"name": "Y", "datatype": "FP32", "shape": [2], "data": [3.0, -4.0]}] for name in names}, server.tail()


def test_models_of_a_modelcar_load_and_links_out_of_their_directories_do_not(tmp_path, modelcar):
    files = tmp_path / "files"
    names = repository(files, tmp_path)
    leaking(files, tmp_path)
    link = modelcar(files)
    # What is only known at its load is not the check's to say.
    text = checked(link, [*names, *"123"])
    assert not [line for line in text.splitlines() for name in names if f"/{name}/" in line or f"/{name}:" in line], text
    server = python_server(link, "--exit-on-error=false", log=tmp_path / "server.log")
    try:
        doubles(server, names)
        server.logged("leakwarm/warmup/raw' is a link to a place outside the model's directory")
        server.logged("for read 1/model.onnx: it is outside the model's directory")
        status, _ = Asker(server).ask("GET", "/v2/models/leakdata/ready")
        assert status == 400, server.tail()
    finally:
        server.stop()


def test_models_of_a_config_map_load(tmp_path):
    files = tmp_path / "files"
    names = repository(files, tmp_path)
    for directory, directories, _ in list(os.walk(files)):
        if not directories:
            shutil.move(directory, tmp_path / "moved")
            os.mkdir(directory)
            shutil.move(tmp_path / "moved", f"{directory}/..2026_11_29")
            os.symlink("..2026_11_29", f"{directory}/..data")
            for name in os.listdir(f"{directory}/..data"):
                os.symlink(f"..data/{name}", f"{directory}/{name}")
    assert os.path.realpath(files / "ts/1/model.ts").endswith("/ts/1/..2026_11_29/model.ts")
    assert checked(files, names).endswith(f"{len(names)} models, 0 errors, 0 warnings\n")
    server = python_server(files, log=tmp_path / "server.log")
    try:
        doubles(server, names)
    finally:
        server.stop()

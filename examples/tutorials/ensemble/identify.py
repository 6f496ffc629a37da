"""Asks the server at the given address for the types of five files in one request, and magika for the same files."""

import sys
from pathlib import Path

import magika
import numpy as np
import tritonclient.http as triton

files = [
    Path("models/ends/1/model.py"),
    Path("models/network/1/model.onnx"),
    Path("models/label/1/config.min.json"),
    Path("README.md"),
    Path(sys.executable),
]
contents = np.array([[path.read_bytes()] for path in files], dtype=np.object_)
data = triton.InferInput("content", list(contents.shape), "BYTES").set_data_from_numpy(contents)
answer = triton.InferenceServerClient(sys.argv[1]).infer("filetype", [data])
types, scores = answer.as_numpy("type"), answer.as_numpy("score")
print("type", types.shape, "score", scores.dtype, scores.shape)

own = magika.Magika()
differences = []
for path, [kind], [score] in zip(files, types, scores):
    print(f"{path.name}: {kind.decode()}")
    result = own.identify_path(path)
    differences.append(abs(result.score - score))
    assert result.dl.label == kind.decode(), f"{path}: magika says {result.dl.label}"
print("differs from magika by less than 1e-4:", bool(max(differences) < 1e-4))

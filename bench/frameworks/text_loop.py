"""Texts through tokenizers and onnxruntime in a bare loop, and nothing else: `python text_loop.py SPEC`.

SPEC is a file of JSON: `folder` has model.onnx and tokenizer.json, `stub` another model.onnx of the same inputs that computes nothing to speak of; `texts`
are lists of texts by name, `tokens_max` cuts them. Beside SPEC it writes the vectors of the first texts, `vectors-NAME.bin`.

A call is named by its parameters: texts, how many of them are known at once (`window`), whether they are sorted and run under a budget of tokens
(`budget`; 0: one by one), and the threads: callers, each with a session, and threads of a session (0: the library's choice), which `spin` or do not.
`encode` only tokenises, `stub` runs the stub.
"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import onnxruntime
import tokenizers

from loops import serve

CHECKED = 8


def batches(lengths, budget):
    """Indices of texts that run together, shortest first: padded to the longest, a batch has at most `budget` tokens."""
    batch = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[i] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(i)
    yield batch


def sessions(path, callers, intra, spin):
    """So many sessions of a model, and as many threads to call them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = intra
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
    made = [onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for _ in range(callers)]
    return made, ThreadPoolExecutor(callers)


def share_out(groups, made, pool, run):
    """Calls `run(session, group)` for all groups, the last ones first, each by the next caller that is free."""

    def caller(session):
        while True:
            try:
                group = groups.pop()
            except IndexError:
                return
            run(session, group)

    list((map if len(made) == 1 else pool.map)(caller, made))


class Loop:
    def __init__(self, spec):
        self.spec = spec
        self.tokenizer = tokenizers.Tokenizer.from_file(f"{spec['folder']}/tokenizer.json")
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(spec["tokens_max"])

    @cache
    def sessions(self, stub, *threads):
        return sessions(f"{self.spec['stub' if stub else 'folder']}/model.onnx", *threads)

    def encode(self, texts):
        # The fast form makes no offsets, as the server needs none. Its own threads are off.
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]

    def run(self, session, ids):
        shape = (len(ids), max(map(len, ids)))
        tokens, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, some in enumerate(ids):
            tokens[row, :len(some)], mask[row, :len(some)] = some, 1
        feeds = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        (states,) = session.run(None, {one.name: feeds[one.name] for one in session.get_inputs()})
        pooled = (states * mask[..., None].astype(np.float32)).sum(1) / mask.sum(1, keepdims=True)
        return (pooled / np.linalg.norm(pooled, axis=1, keepdims=True)).astype(np.float32)

    def vectors(self, texts, *, budget, callers, intra, spin=False, stub=False):
        made, pool = self.sessions(stub, callers, intra, spin)
        ids = self.encode(texts)
        groups = list(batches([len(some) for some in ids], budget)) if budget else [[i] for i in range(len(ids))]
        rows = [None] * len(ids)

        def run(session, group):
            for i, row in zip(group, self.run(session, [ids[i] for i in group])):
                rows[i] = row

        share_out(groups, made, pool, run)
        return np.array(rows)

    def __getitem__(self, call):
        """`calls[name]` of loops.serve: what the i-th call does."""
        asked = json.loads(call)
        texts, window = self.spec["texts"][asked.pop("texts")], asked.pop("window")
        at = lambda i: [texts[(i * window + k) % len(texts)] for k in range(window)]
        if asked.pop("encode", False):
            return lambda i: self.encode(at(i))
        return lambda i: self.vectors(at(i), **asked)


def main(path):
    with open(path) as file:
        loop = Loop(json.load(file))
    for name, texts in loop.spec["texts"].items():
        rows = loop.vectors(texts[:CHECKED], budget=0, callers=1, intra=1)
        rows.tofile(os.path.join(os.path.dirname(path), f"vectors-{name}.bin"))
    serve({"onnxruntime": onnxruntime.__version__, "tokenizers": tokenizers.__version__}, loop)


os.environ["TOKENIZERS_PARALLELISM"] = "false"
if __name__ == "__main__":
    main(sys.argv[1])

"""Requests of tensors through onnxruntime in a bare loop, and nothing else: `python compute_loop.py SPEC`.

SPEC is a file of JSON: `model` is a path; `requests` are lists of tensors, `[name, type, shape, offset]`, whose bytes lie in `data`. Where `varied` is true they differ in
their second dim, and are padded with zeros to run together. What the first one is answered with is written to `expected.bin` beside SPEC.

A call is named by its parameters, as in text_loop.py. A request counts as its second dim in a budget, or as 1 if all are the same.
"""
import json
import os
import sys
from functools import cache

import numpy as np
import onnxruntime

from loops import serve
from text_loop import batches, sessions, share_out

TYPES = {"FP32": np.float32, "INT64": np.int64, "INT32": np.int32}


class Loop:
    def __init__(self, spec):
        self.model, self.varied = spec["model"], spec["varied"]
        with open(spec["data"], "rb") as file:
            data = file.read()
        array = lambda type, shape, at: np.frombuffer(data, TYPES[type], int(np.prod(shape)), at).reshape(shape)
        self.requests = [{name: array(*rest) for name, *rest in tensors} for tensors in spec["requests"]]

    @cache
    def sessions(self, *threads):
        return sessions(self.model, *threads)

    def together(self, some):
        """One request of several."""
        if len(some) == 1:
            return some[0]
        if not self.varied:
            return {name: np.concatenate([one[name] for one in some]) for name in some[0]}
        feeds = {name: np.zeros((len(some), max(one[name].shape[1] for one in some)), first.dtype) for name, first in some[0].items()}
        for row, one in enumerate(some):
            for name, array in one.items():
                feeds[name][row, :array.shape[1]] = array[0]
        return feeds

    def answers(self, window, *, budget, callers, intra, spin):
        made, pool = self.sessions(callers, intra, spin)
        sizes = [next(iter(one.values())).shape[1] if self.varied else 1 for one in window]
        results = []
        share_out(list(batches(sizes, budget)), made, pool, lambda session, group: results.append(session.run(None, self.together([window[i] for i in group]))))
        return results

    def __getitem__(self, call):
        """`calls[name]` of loops.serve: what the i-th call does."""
        asked = json.loads(call)
        count = asked.pop("window")
        return lambda i: self.answers([self.requests[(i * count + k) % len(self.requests)] for k in range(count)], **asked)


def main(path):
    with open(path) as file:
        loop = Loop(json.load(file))
    (outputs,) = loop.answers(loop.requests[:1], budget=1, callers=1, intra=1, spin=False)
    with open(os.path.join(os.path.dirname(path), "expected.bin"), "wb") as file:
        file.write(b"".join(output.tobytes() for output in outputs))
    serve({"onnxruntime": onnxruntime.__version__}, loop)


if __name__ == "__main__":
    main(sys.argv[1])

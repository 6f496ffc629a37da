"""What the scripts of the bare loops share: the layers of the networks, and the clock.

A script is started with the repository that it writes its models into. Then it prints a line of JSON, `{"versions": …}`, and waits: each line of its
standard input, `{"call": "deep", "seconds": 0.5}`, is one measurement, whose figures it prints as a line of JSON. So a framework is imported once in a
run, and its loop is measured in turn with the server.
"""
import json
import os
import sys
import time

import numpy as np

#: Sizes from layer to layer, with tanh between. `deep` takes more than 5 ms for `ROWS` rows on one thread; `mlp` takes microseconds.
LAYERS = {"deep": [1024] * 13, "mlp": [64, 256, 256, 16]}
ROWS = 32


def layers(name):
    """Weights and bias of each layer, the same in each framework."""
    random = np.random.default_rng(1)
    sizes = LAYERS[name]
    pairs = [((random.uniform(-1, 1, (a, b)) * (3 / a) ** 0.5), random.uniform(-0.02, 0.02, b)) for a, b in zip(sizes, sizes[1:])]
    return [(weights.astype(np.float32), bias.astype(np.float32)) for weights, bias in pairs]


def inputs(name, rows, count=8):
    """Inputs that are sent in turn."""
    random = np.random.default_rng(2)
    return [random.uniform(-1, 1, (rows, LAYERS[name][0])).astype(np.float32) for _ in range(count)]


def place(repository, model, file):
    """Path of a model's file, whose directory is made."""
    path = os.path.join(repository, model, "1", file)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _measure(call, seconds):
    warm = time.perf_counter() + 0.15 * seconds
    i = 0
    while i == 0 or time.perf_counter() < warm:
        call(i)
        i += 1
    times = []
    cpu, begin = time.process_time(), time.perf_counter()
    last = begin
    while last - begin < seconds:
        call(i)
        i += 1
        now = time.perf_counter()
        times.append(now - last)
        last = now
    cpu = time.process_time() - cpu
    percentiles = {f"p{str(p).replace('.', '')}_us": float(np.percentile(times, p)) * 1e6 for p in (50, 90, 99, 99.9)}
    return {"rate": len(times) / (last - begin), "requests": len(times), "cpu_us": cpu / len(times) * 1e6, **percentiles}


def serve(versions, calls):
    """Answers requests for measurements of `calls[name](i)`, the i-th call of a loop, until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # What a framework prints is no answer.
    os.dup2(2, 1)
    print(json.dumps({"versions": versions}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_measure(calls[asked["call"]], asked["seconds"])), file=answers, flush=True)

"""Asks the model at the given address without a pause, while it goes to version 2, back to version 1, and to both again."""

import re
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import tritonclient.http as triton

CONFIG = Path("models/digits/config.pbtxt")
pixels = np.load("test.npz")["pixels"]
versions, failures, over = Counter(), [], threading.Event()


def ask():
    client = triton.InferenceServerClient(sys.argv[1])
    row = triton.InferInput("X", [1, 64], "FP32").set_data_from_numpy(pixels[:1])
    while not over.is_set():
        try:
            # No version is named, so the greatest one that is ready answers.
            versions[client.infer("digits", [row]).get_response()["model_version"]] += 1
        except triton.InferenceServerException as error:
            failures.append(error)


threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
control = triton.InferenceServerClient(sys.argv[1])
for policy in ["2", "1", "2", "1", "1, 2"]:
    CONFIG.write_text(re.sub(r"versions: \[.*?\]", f"versions: [ {policy} ]", CONFIG.read_text()))
    control.load_model("digits")
    seen = sum(versions.values())
    while sum(versions.values()) < seen + 200:
        over.wait(0.01)
over.set()
for thread in threads:
    thread.join()
print(f"{len(failures)} of {sum(versions.values()) + len(failures)} requests failed {failures[:1] or ''}".strip())
print("both versions answered:", min(versions["1"], versions["2"]) >= 100)

"""The server, the pictures as Pillow reads them, and what was measured."""
import json
import os
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

URL = os.environ["NEREID_PICTURES_URL"]
DIRECTORY = Path(os.environ["NEREID_PICTURES"])
PICTURES = sorted((DIRECTORY / "pictures").iterdir())
LINES = sorted((DIRECTORY / "lines").iterdir())
MEASURED = DIRECTORY / "measured.txt"


def infer(model, file):
    """The outputs for a file, which is the body of the request."""
    body = file.read_bytes()
    headers = {"content-type": "image/*", "accept": "application/octet-stream"}
    request = urllib.request.Request(f"{URL}/v2/models/{model}/infer", body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        # Absent if no output has a byte.
        length = answer.headers["inference-header-content-length"]
        head, raw = json.loads(answer.read(None if length is None else int(length))), answer.read()
    types = {"FP32": np.float32, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8}
    outputs = {}
    for output in head["outputs"]:
        count = output["parameters"]["binary_data_size"]
        part, raw = raw[:count], raw[count:]
        if output["datatype"] in types:
            outputs[output["name"]] = np.frombuffer(part, types[output["datatype"]]).reshape(output["shape"])
        else:
            outputs[output["name"]] = texts(part)
    return outputs


def texts(raw):
    found = []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        found.append(raw[4:end].decode())
        raw = raw[end:]
    return found


def pillow(file):
    """RGB as Pillow has it, upright. Of 16 bits in grey, it keeps all, and its conversion to RGB would cut them."""
    picture = ImageOps.exif_transpose(Image.open(file))
    if picture.mode.startswith("I"):
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    return np.ascontiguousarray(picture.convert("RGB"))


def pair(found, wanted):
    """Pairs of boxes of one class that overlap most, greatest scores first, and those that remain of both. Each is
    (corners, score, class)."""
    pairs, rest = [], list(found)
    missed = []
    for one in wanted:
        same = [other for other in rest if other[2] == one[2]]
        best = min(same, key=lambda other: np.abs(np.subtract(other[0], one[0])).max(), default=None)
        if best is None or np.abs(np.subtract(best[0], one[0])).max() > max(8, 0.1 * np.ptp(one[0])):
            missed.append(one)
        else:
            rest = [other for other in rest if other is not best]
            pairs.append((best, one))
    return pairs, rest, missed


@pytest.fixture(scope="session")
def measured():
    """Lines that the runner prints, and that the last result of the suite has."""
    told = []
    yield told.append
    with MEASURED.open("a") as file:
        file.writelines(f"{line}\n" for line in told)

"""Prints the faces of a picture, in its pixels: `detect.py ADDRESS PICTURE`."""
import sys
import time

import numpy as np
import tritonclient.http as triton
from PIL import Image

SIDE = 640
SCORE_MIN = 0.5
OVERLAP_MAX = 0.3


def letterbox(picture):
    """The picture as the network takes it, scaled into the top left of a square, and the scale."""
    scale = SIDE / max(picture.size)
    square = Image.new("RGB", (SIDE, SIDE), (114, 114, 114))
    square.paste(picture.convert("RGB").resize([round(side * scale) for side in picture.size]))
    return np.array(square, np.float32).transpose(2, 0, 1), scale


def decode(heat, size, offset):
    """Boxes (left, top, right, bottom) and their scores, from maps of 160 x 160 cells."""
    rows, columns = np.where(heat[0] >= SCORE_MIN)
    # A cell is 4 pixels. The maps have y before x.
    x, y = 4 * (columns + 0.5 + offset[1, rows, columns]), 4 * (rows + 0.5 + offset[0, rows, columns])
    width, height = 4 * np.exp(size[1, rows, columns]), 4 * np.exp(size[0, rows, columns])
    boxes = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=1)
    return boxes, heat[0, rows, columns]


def overlap(a, b):
    """The common area of two boxes, as a part of the area of both."""
    width, height = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    common = max(width, 0) * max(height, 0)
    return common / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common)


def suppress(boxes, scores):
    """The rows of the best boxes (NMS): each box that overlaps a better one is left out."""
    kept = []
    for row in np.argsort(-scores):
        if all(overlap(boxes[row], boxes[other]) < OVERLAP_MAX for other in kept):
            kept.append(row)
    return kept


def detector(address):
    """A function from a picture to the boxes in its pixels, and their scores; the best first."""
    client = triton.InferenceServerClient(address)

    def detect(picture):
        array, scale = letterbox(picture)
        tensor = triton.InferInput("input.1", [1, *array.shape], "FP32")
        tensor.set_data_from_numpy(array[None])
        response = client.infer("faces", [tensor])
        boxes, scores = decode(*(response.as_numpy(name)[0] for name in ("537", "538", "539")))
        kept = suppress(boxes, scores)
        return boxes[kept] / scale, scores[kept]

    return detect


if __name__ == "__main__":
    address, path = sys.argv[1:]
    detect, picture = detector(address), Image.open(path)
    for box, score in zip(*detect(picture)):
        print(f"{score:.1f}", *box.round().astype(int))
    start = time.perf_counter()
    for _ in range(10):
        detect(picture)
    print(f"{(time.perf_counter() - start) * 100:.0f} ms a picture", file=sys.stderr)

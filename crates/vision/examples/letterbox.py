"""Compares the CPU time of a letterbox of 640 x 640 with Pillow and OpenCV: the same work, in turns, medians.

    pip install pillow==13.0.0 numpy==2.4.6 opencv-python-headless==5.0.0.93
    cargo build --release -p nereid-vision --example letterbox
    python letterbox.py target/release/examples/letterbox [RUNS]

The picture is a JPEG of 4000 x 3000 (gradients with noise, quality 90, 4:2:0) that it makes.
"""

import io
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import cv2
import numpy as np
from PIL import Image

SIDE, BORDER = 640, 114


def picture():
    y, x = np.mgrid[0:3000, 0:4000].astype(np.float32)
    ramps = [x / 20 + 20 * np.sin(y / 37), y / 15 + 20 * np.sin(x / 53), (x + y) / 35]
    rgb = np.stack(ramps, -1) + np.random.default_rng(0).normal(0, 8, (3000, 4000, 3))
    data = io.BytesIO()
    Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8)).save(data, "JPEG", quality=90, subsampling=2)
    return data.getvalue()


def tensor(rgb):
    return np.ascontiguousarray(rgb.transpose(2, 0, 1)).astype(np.float32) / np.float32(255)


def sizes(width, height):
    ratio = min(SIDE / width, SIDE / height)
    width, height = round(width * ratio), round(height * ratio)
    return width, height, (SIDE - width) // 2, (SIDE - height) // 2


def with_pillow(data, filter):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    width, height, left, top = sizes(*image.size)
    canvas = Image.new("RGB", (SIDE, SIDE), (BORDER,) * 3)
    canvas.paste(image.resize((width, height), filter), (left, top))
    return tensor(np.asarray(canvas))


def with_opencv(data, filter):
    bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    width, height, left, top = sizes(bgr.shape[1], bgr.shape[0])
    bgr = cv2.resize(bgr, (width, height), interpolation=filter)
    rest = (SIDE - height - top, left, SIDE - width - left)
    bgr = cv2.copyMakeBorder(bgr, top, *rest, cv2.BORDER_CONSTANT, value=(BORDER,) * 3)
    return tensor(bgr[..., ::-1])


def main():
    program, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15
    cv2.setNumThreads(1)
    data = picture()
    filters = {
        "bilinear": (Image.Resampling.BILINEAR, cv2.INTER_LINEAR),
        "bicubic": (Image.Resampling.BICUBIC, cv2.INTER_CUBIC),
        "area": (Image.Resampling.BOX, cv2.INTER_AREA),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "picture.jpg"
        file.write_bytes(data)
        print(f"{len(data)} bytes, {runs} runs; CPU ms: nereid (of which decoding), library, ratio")
        for name, (pillow, opencv) in filters.items():
            for library, work, filter in ("pillow", with_pillow, pillow), ("opencv", with_opencv, opencv):
                ours = subprocess.Popen(
                    [program, file, name, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                times = []
                for _ in range(runs):
                    ours.stdin.write("\n")
                    ours.stdin.flush()
                    decoded, total = map(int, ours.stdout.readline().split())
                    start = time.process_time_ns()
                    work(data, filter)
                    times.append((total, decoded, time.process_time_ns() - start))
                ours.stdin.close()
                ours.wait()
                total, decoded, theirs = (statistics.median(column) / 1e6 for column in zip(*times))
                print(f"{library} {name}: {total:.1f} ({decoded:.1f}), {theirs:.1f}, {total / theirs:.2f}", flush=True)


main()

"""Measures what pictures cost beside other ways on the same machine, in turn, and prints ratios.

Usage: speed.py URL PID DIRECTORY
"""
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import cv2
import numpy as np
from PIL import Image

URL, PID, DIRECTORY = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
SIDE = 640
ROUNDS = 5


def letterbox_size(width, height):
    ratio = min(SIDE / width, SIDE / height)
    to = round(width * ratio), round(height * ratio)
    return to, ((SIDE - to[0]) // 2, (SIDE - to[1]) // 2)


def with_pillow(file):
    with Image.open(file) as picture:
        to, at = letterbox_size(*picture.size)
        canvas = Image.new("RGB", (SIDE, SIDE), (114,) * 3)
        canvas.paste(picture.convert("RGB").resize(to, Image.Resampling.BILINEAR), at)
    return np.ascontiguousarray(np.asarray(canvas).transpose(2, 0, 1)).astype(np.float32) / 255


def with_opencv(file):
    picture = cv2.imread(str(file))
    to, (left, top) = letterbox_size(picture.shape[1], picture.shape[0])
    small = cv2.resize(picture, to)
    bottom, right = SIDE - to[1] - top, SIDE - to[0] - left
    canvas = cv2.copyMakeBorder(small, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(114,) * 3)
    return cv2.dnn.blobFromImage(canvas, 1 / 255, swapRB=True)


def with_server(file):
    """Asks for the placement only: the tensor is made all the same, and 4.9 MB of it would cost the connection."""
    body = file.read_bytes()
    parameters = {"binary_data_size": len(body) + 4}
    picture = {"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "parameters": parameters}
    head = json.dumps({"inputs": [picture], "outputs": [{"name": "PLACEMENT"}]}).encode()
    request = urllib.request.Request(
        f"{URL}/v2/models/letterbox/infer",
        head + len(body).to_bytes(4, "little") + body,
        {"inference-header-content-length": str(len(head))},
    )
    urllib.request.urlopen(request, timeout=60).read()


def cpu_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu():
    return time.process_time()


def per_call(work, clock, calls):
    before = clock()
    for _ in range(calls):
        work()
    return (clock() - before) / calls * 1000


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def letterboxes():
    cv2.setNumThreads(1)
    for name in ("large.jpg", "large_progressive.jpg"):
        file = DIRECTORY / "pictures" / name
        ways = {
            "server": (lambda: with_server(file), lambda: cpu_of(PID)),
            "Pillow": (lambda: with_pillow(file), own_cpu),
            "OpenCV": (lambda: with_opencv(file), own_cpu),
        }
        times = {way: [] for way in ways}
        for turn in range(ROUNDS + 1):
            for way, (work, clock) in ways.items():
                found = per_call(work, clock, 3)
                # The first turn warms up.
                if turn > 0:
                    times[way].append(found)
        ratios = [[other / own for own, other in zip(times["server"], times[way])] for way in ("Pillow", "OpenCV")]
        print(
            f"letterbox of {name}, CPU of the server {statistics.median(times['server']):.0f} ms; "
            f"of Pillow and numpy x {spread(ratios[0])}, of OpenCV x {spread(ratios[1])}"
        )


APP = '''
import io
import numpy, onnxruntime
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from PIL import Image
session = onnxruntime.InferenceSession(PATH, providers=["CPUExecutionProvider"])
mean, std = (numpy.array(v, numpy.float32) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
app = FastAPI()
def classify(body):
    picture = Image.open(io.BytesIO(body)).convert("RGB")
    ratio = 256 / min(picture.size)
    picture = picture.resize([int(side * ratio) for side in picture.size], Image.Resampling.BICUBIC)
    left, top = [(side - 224) // 2 for side in picture.size]
    pixels = numpy.asarray(picture.crop((left, top, left + 224, top + 224)))[:, :, ::-1]
    tensor = ((pixels.astype(numpy.float32) / 255 - mean) / std).transpose(2, 0, 1)[None]
    [scores] = session.run(None, {"x": numpy.ascontiguousarray(tensor)})[0]
    order = numpy.argsort(-scores)
    return {"classes": order.tolist(), "scores": scores[order].tolist()}
@app.post("/classify")
async def answer(request: Request):
    return await run_in_threadpool(classify, await request.body())
'''


def rate(address, path, body, seconds, clients=8):
    """Requests per second of this many connections, and the last answer."""
    count, last = [0] * clients, [b""] * clients
    end = time.monotonic() + seconds

    def client(i):
        connection = HTTPConnection(address, timeout=60)
        while time.monotonic() < end:
            connection.request("POST", path, body, {"content-type": "image/jpeg"})
            answer = connection.getresponse()
            last[i] = answer.read()
            assert answer.status == 200, last[i]
            count[i] += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(count) / seconds, json.loads(last[0])


def whole_way():
    """The classifier of pages in the server, and in FastAPI with Pillow and onnxruntime."""
    network = DIRECTORY / "repository" / "orientation_network" / "1" / "model.onnx"
    (DIRECTORY / "app.py").write_text(f"PATH = {str(network)!r}\n{APP}")
    port = 24000 + os.getpid() % 3999
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "warning"]
    other = subprocess.Popen(command, cwd=DIRECTORY)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/docs").read()
                break
            except OSError:
                time.sleep(0.1)
        own, its = (urlsplit(URL).netloc, "/v2/models/orientation/infer"), (f"127.0.0.1:{port}", "/classify")
        for name in ("baseline.jpg", "page.jpg"):
            body = (DIRECTORY / "pictures" / name).read_bytes()
            rates, costs = {own: [], its: []}, {own: [], its: []}
            for turn in range(ROUNDS + 1):
                for to in rates:
                    pid = PID if to == own else other.pid
                    seconds, before = 1 if turn == 0 else 3, cpu_of(pid)
                    per_second, answer = rate(*to, body, seconds)
                    found = answer["outputs"][0]["data"][0] if to == own else answer["classes"][0]
                    assert found == 0 or name != "page.jpg", answer
                    if turn > 0:
                        rates[to].append(per_second)
                        costs[to].append((cpu_of(pid) - before) / per_second / seconds)
            faster = [mine / theirs for mine, theirs in zip(*rates.values())]
            cheaper = [theirs / mine for mine, theirs in zip(*costs.values())]
            print(
                f"classifier, {name}, 8 connections: {statistics.median(rates[own]):.0f} per second, "
                f"x {spread(faster)} FastAPI, with {1000 * statistics.median(costs[own]):.1f} ms of CPU, "
                f"FastAPI x {spread(cheaper)}"
            )
    finally:
        other.terminate()
        other.wait()


if __name__ == "__main__":
    letterboxes()
    whole_way()

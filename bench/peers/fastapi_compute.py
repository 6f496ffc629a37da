"""A model behind FastAPI with the defaults of onnxruntime's session: raw tensors in and out, or a text in and its vector out."""
import json
import os

import numpy
from fastapi import FastAPI, Request, Response

import compute_loop
import text_loop

with open(os.environ["BENCH_SPEC"]) as file:
    spec = json.load(file)
is_text = "texts" in spec
loop = (text_loop if is_text else compute_loop).Loop(spec)
DEFAULTS = {"callers": 1, "intra": 0, "spin": True}
app = FastAPI()


def raw(arrays):
    return Response(b"".join(array.tobytes() for array in arrays), media_type="application/octet-stream")


@app.get("/ready")
async def ready():
    return {}


@app.post("/embed")
async def embed(request: Request):
    return raw(loop.vectors([(await request.json())["input"]], budget=0, **DEFAULTS))


@app.post("/infer")
async def infer(request: Request):
    body, at, feeds = await request.body(), 0, {}
    for one in request.headers["tensors"].split(","):
        name, datatype, dims = one.split("/")
        feeds[name] = numpy.frombuffer(body, compute_loop.TYPES[datatype], numpy.prod(shape := [int(d) for d in dims.split("x")]), at).reshape(shape)
        at += feeds[name].nbytes
    return raw(loop.answers([feeds], budget=1, **DEFAULTS)[0])

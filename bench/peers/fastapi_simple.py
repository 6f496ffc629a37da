"""`simple` behind FastAPI: raw bytes in, raw bytes out."""
import os

import numpy
import onnxruntime
from fastapi import FastAPI, Request, Response

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(os.environ["BENCH_MODEL"], options)
app = FastAPI()


@app.get("/ready")
async def ready():
    return {}


@app.post("/simple")
async def simple(request: Request):
    both = numpy.frombuffer(await request.body(), numpy.int32).reshape(2, -1, 16)
    outputs = session.run(None, {"INPUT0": both[0], "INPUT1": both[1]})
    return Response(b"".join(o.tobytes() for o in outputs), media_type="application/octet-stream")

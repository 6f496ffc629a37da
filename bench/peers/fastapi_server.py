"""A model behind FastAPI: the bytes of its inputs in and those of its outputs out, or a text in JSON."""
from fastapi import FastAPI, Request, Response

import models

model = models.make()
app = FastAPI()


@app.post("/infer")
async def infer(request: Request):
    (outputs,) = model.run([model.of_bytes(await request.body())])
    return Response(b"".join(output.tobytes() for output in outputs), media_type="application/octet-stream")

"""Starts a server as a notebook does, with the package of the wheel, and asks it: `serve.py MODELS`. Ends with 1 for a wrong answer."""

import json
import os
import sys
import urllib.request

import nereid
from client import ask_both



def triple(x: int) -> tuple[int, int]:
    return x * 3, os.getpid()


def ask_function(inline):
    body = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [2]}]}
    with nereid.serve(triple, inline=inline) as server:
        answer = urllib.request.urlopen(f"{server.http_url}/v2/models/triple/infer", json.dumps(body).encode())
        result, pid = (output["data"][0] for output in json.load(answer)["outputs"])
    assert (result, pid == os.getpid()) == (6, inline), (result, pid, inline)


ask_function(inline=False)
ask_function(inline=True)
with nereid.serve(sys.argv[1], log_verbose=1) as server:
    ask_both(server.http_address, server.grpc_address)
    assert b"nv_inference_count" in urllib.request.urlopen(server.metrics_url).read()
    assert f"runs in {sys.executable} " in server.log, server.log
try:
    os.kill(server.pid, 0)
except ProcessLookupError:
    print(nereid.__version__)
else:
    sys.exit(f"the server {server.pid} still runs")

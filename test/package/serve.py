"""Starts a server as a notebook does, with the package of the wheel, and asks it: `serve.py MODELS`. Ends with 1 for a wrong answer."""

import os
import sys
import urllib.request

import nereid
from client import ask_both

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

"""Asks a server with tritonclient over gRPC: `ask_grpc.py ADDRESS NUMBER` prints what came, as JSON. Ray's own packages contradict those of tritonclient."""

import json
import queue
import sys
import time

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException


def tensor(number):
    given = InferInput("ID", [1], "INT64")
    given.set_data_from_numpy(np.array([number], np.int64))
    return [given]


def main():
    client = InferenceServerClient(sys.argv[1])
    told = {"ready": client.is_server_ready(), "pid": int(client.infer("counts", tensor(int(sys.argv[2]))).as_numpy("PID")[0])}
    try:
        client.infer("none", tensor(1))
    except InferenceServerException as error:
        told["error"] = f"{error.status()} {error.message()}"
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((time.monotonic(), result, error)))
    client.async_stream_infer("pieces", tensor(1))
    came = [answers.get(timeout=20) for _ in range(5)]
    client.stop_stream()
    told["stream"] = [str(error) if error else int(result.as_numpy("PID")[0]) for _, result, error in came]
    told["seconds"] = came[-1][0] - came[0][0]
    print(json.dumps(told))


main()

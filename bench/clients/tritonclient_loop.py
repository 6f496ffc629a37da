"""NVIDIA's client in Python, as clients/node.mjs: `URL MODEL BYTES C`, then `run SECONDS` line by line. Over HTTP its greenlets, over gRPC threads, as its documentation has it."""
import json
import resource
import sys
import threading
import time

url, model, size, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
scheme, address = url.split("://")
if scheme == "http":
    import gevent
    import tritonclient.http as triton

    client = triton.InferenceServerClient(address, concurrency=concurrency)
else:
    import tritonclient.grpc as triton

    client = triton.InferenceServerClient(address)

import numpy as np  # noqa: E402

if model == "simple":
    arrays = {"INPUT0": np.full((1, 16), 3, np.int32), "INPUT1": np.full((1, 16), 1, np.int32)}
    names = ["OUTPUT0", "OUTPUT1"]
else:
    arrays = {"INPUT0": np.full(size // 4, 4, np.float32)}
    names = ["OUTPUT0"]


def asks(until, counts, i):
    # Data are set for each request: they differ, for users.
    inputs = [triton.InferInput(name, list(a.shape), "INT32" if a.dtype == np.int32 else "FP32") for name, a in arrays.items()]
    outputs = [triton.InferRequestedOutput(name) for name in names]
    while time.perf_counter() < until:
        for tensor, array in zip(inputs, arrays.values()):
            tensor.set_data_from_numpy(array)
        assert client.infer(model, inputs, outputs=outputs).as_numpy("OUTPUT0").flat[0] == 4
        counts[i] += 1


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(seconds):
    counts = [0] * concurrency
    before, begun = cpu(), time.perf_counter()
    until = begun + seconds
    if concurrency == 1:
        asks(until, counts, 0)
    elif scheme == "http":
        gevent.joinall([gevent.spawn(asks, until, counts, i) for i in range(concurrency)], raise_error=True)
    else:
        threads = [threading.Thread(target=asks, args=(until, counts, i)) for i in range(concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    done = sum(counts)
    return {"rate": done / (time.perf_counter() - begun), "cpuUs": (cpu() - before) * 1e6 / done}


for line in sys.stdin:
    print(json.dumps(run(float(line.split()[1]))), flush=True)

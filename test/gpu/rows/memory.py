"""CUDA shared memory between two processes, page-locked memory, and what is copied. Rows of memory.md §2 and §3."""
import json
import mmap
import os
import statistics
import struct
import time

import place
from context import NotRun, placed, region_body

from . import row

LARGE = 16 << 20


def counted(t, *models, **env):
    """A server behind the library that counts copies, and a function that says how many bytes it has copied so far."""
    path = os.path.join(t.directory, f"count-{t.servers}")
    one = t.server(*models, env={"NEREID_LIBCUDA": os.path.join(place.COUNTER, "libcount.so"), "NEREID_COUNT": path, **env})

    def copied():
        with open(path, "rb") as file:
            return struct.unpack("<QQ", file.read(16))[1]

    return one, copied


def add_and_subtract(t, kind, server, model, device=0):
    """`model` reads both inputs from one region and writes both outputs into another; the client writes and reads them with its own calls."""
    import numpy as np
    from tritonclient.utils import cuda_shared_memory as cuda

    client = t.client(kind, server)
    a = np.arange(16, dtype=np.int32).reshape(1, 16)
    b = np.arange(100, 116, dtype=np.int32).reshape(1, 16)
    given, made = (t.region(client, f"{name}_{kind}", 2 * a.nbytes, device) for name in ("given", "made"))
    cuda.set_shared_memory_region(given, [a, b])
    inputs = [placed(client, "in", f"INPUT{i}", [1, 16], "INT32", f"given_{kind}", a.nbytes, i * a.nbytes) for i in (0, 1)]
    outputs = [placed(client, "out", f"OUTPUT{i}", None, None, f"made_{kind}", a.nbytes, i * a.nbytes) for i in (0, 1)]
    answer = client.response(client.call("infer", model, inputs, outputs=outputs))
    assert "data" not in answer["outputs"][0] and not any(answer.get("raw_output_contents", ())), f"tensors went through the network: {answer}"
    found = cuda.get_contents_as_numpy(made, np.int32, [2, 1, 16])
    assert np.array_equal(found, [a + b, a - b]), f"{model} wrote {found.tolist()}"
    return client


def names(client):
    """Of the regions that are registered."""
    found = client.ask("get_cuda_shared_memory_status")
    return sorted(r["name"] for r in found) if client.is_http else sorted(found.get("regions", {}))


def on_the_cpu(t, kind):
    server = t.server("simple_cpu")
    client = add_and_subtract(t, kind, server, "simple_cpu")
    assert names(client) == [f"given_{kind}", f"made_{kind}"], names(client)
    client.call("unregister_cuda_shared_memory", f"given_{kind}")
    assert names(client) == [f"made_{kind}"], names(client)
    client.call("unregister_cuda_shared_memory")
    assert names(client) == []


@row("shm-http")
def shm_http(t):
    on_the_cpu(t, "http")


@row("shm-grpc")
def shm_grpc(t):
    on_the_cpu(t, "grpc")


@row("shm-refused")
def shm_refused(t):
    import base64

    from clients import failure
    from tritonclient.utils import cuda_shared_memory as cuda

    client = t.client("http", t.server("simple_cpu"))
    there = t.region(client, "there", 64)
    handle = cuda.get_raw_handle(there)

    def refusal(name, handle, device, size):
        return failure(lambda: client.call("register_cuda_shared_memory", name, handle, device, size))[0]

    anonymous = "failed to register shared memory region: invalid args"
    assert refusal("there", handle, 0, 64) == "shared memory region 'there' already in manager"
    # Allocations of a device are larger than was asked for: by how much is the driver's secret, so what is refused is far beyond.
    assert refusal("more", handle, 0, 1 << 40) == "failed to register shared memory region 'more': invalid args"
    assert refusal("none", handle, 99, 64) == anonymous
    assert refusal("junk", base64.b64encode(bytes(64)), 0, 64) == anonymous
    client.call("register_cuda_shared_memory", "again", handle, 0, 32)
    client.call("unregister_cuda_shared_memory", "there")
    assert names(client) == ["again"]
    client.call("unregister_cuda_shared_memory", "again")
    # As it was: what the row gives back is registered.
    client.call("register_cuda_shared_memory", "there", handle, 0, 64)


@row("shm-staged")
def shm_staged(t):
    server, copied = counted(t, "simple_cpu")
    add_and_subtract(t, "http", server, "simple_cpu")
    tensors = 4 * 64
    return copied() / tensors


@row("shm-in-place")
def shm_in_place(t):
    server = t.server("simple_gpu")
    for kind in ("http", "grpc"):
        add_and_subtract(t, kind, server, "simple_gpu")


def identity_body(t, client, device=0):
    """16 MiB from one region into another, as a request that can be sent again; `check` says whether they arrived."""
    import numpy as np
    from tritonclient.utils import cuda_shared_memory as cuda

    given, made = (t.region(client, name, LARGE, device) for name in ("from", "into"))
    values = np.arange(LARGE // 4, dtype=np.float32)
    cuda.set_shared_memory_region(given, [values])

    def check():
        assert np.array_equal(cuda.get_contents_as_numpy(made, np.float32, [LARGE // 4]), values), "the output is not the input"

    return region_body([("INPUT0", "FP32", [LARGE // 4], "from", LARGE)], [("OUTPUT0", "into", LARGE)]), check


def uncopied(t, model, *others):
    """Bytes that the server copies for a request of 16 MiB from region to region."""
    server, copied = counted(t, model, *others, "simple_cpu")
    # A counter that sees nothing would also say 0.
    add_and_subtract(t, "http", server, "simple_cpu")
    assert copied() > 0, "the library in front of the driver counts nothing"
    client = t.client("http", server)
    body, check = identity_body(t, client)
    ask = lambda: server.request("POST", f"/v2/models/{model}/infer", body)  # noqa: E731
    status, _, answer = ask()
    assert status == 200, answer
    check()
    before = copied()
    for _ in range(10):
        assert ask()[0] == 200
    return (copied() - before) / 10


@row("shm-no-copies")
def shm_no_copies(t):
    return uncopied(t, "same_gpu")


@row("ort-offsets")
def ort_offsets(t):
    """Numbers that steer memory, and floats 4 bytes behind where a kernel could begin: each tensor is copied once, and the answers are right."""
    import numpy as np
    from tritonclient.utils import cuda_shared_memory as cuda

    server, copied = counted(t, "simple_gpu", "same_gpu")
    client = add_and_subtract(t, "http", server, "simple_gpu")
    steering = copied()
    values = np.arange(1000, dtype=np.float32)
    given, made = (t.region(client, name, 4 + values.nbytes) for name in ("from", "into"))
    cuda.set_shared_memory_region(given, [np.zeros(1, dtype=np.float32), values])
    for _ in range(2):
        # The first time nobody knows the output's shape.
        before = copied()
        inputs = [placed(client, "in", "INPUT0", [1000], "FP32", "from", values.nbytes, 4)]
        client.call("infer", "same_gpu", inputs, outputs=[placed(client, "out", "OUTPUT0", None, None, "into", values.nbytes, 4)])
        assert np.array_equal(cuda.get_contents_as_numpy(made, np.float32, [1001])[1:], values)
    return (steering + copied() - before) / (4 * 64 + 2 * values.nbytes)


@row("ensemble-device")
def ensemble_device(t):
    return uncopied(t, "same_three_times", "same_gpu")


@row("pools")
def pools(t):
    """Staging takes page-locked memory of the pool, and gives it back; a pool of 0 bytes is none, and requests are answered all the same."""
    server = t.server("simple_cpu", "same_gpu", flags=["--pinned-memory-pool-byte-size=134217728", "--cuda-memory-pool-byte-size=0:134217728"])
    client = t.client("http", server)
    import numpy as np

    values = np.arange(LARGE // 4, dtype=np.float32)
    for _ in range(5):
        assert np.array_equal(client.infer("same_gpu", {"INPUT0": values}).as_numpy("OUTPUT0"), values)
    found = server.metrics()
    assert found["nv_pinned_memory_pool_total_bytes"] == 128 << 20, found["nv_pinned_memory_pool_total_bytes"]
    assert found['nereid_device_pool_bytes_max{device="0"}'] == 128 << 20, {k: v for k, v in found.items() if "pool" in k}
    assert found["nv_pinned_memory_pool_used_bytes"] <= 128 << 20
    server.stop()
    bare = t.server("same_gpu", flags=["--pinned-memory-pool-byte-size=0", "--cuda-memory-pool-byte-size=0:0"])
    other = t.client("http", bare)
    assert np.array_equal(other.infer("same_gpu", {"INPUT0": values}).as_numpy("OUTPUT0"), values)


@row("device-steps")
def device_steps(t):
    """What three models copy more than one of them does."""
    alone = uncopied(t, "device_one")
    three = uncopied(t, "device_three_times", "device_one")
    return {"figure": three - alone, "note": f"one of them copies {alone:.0f} bytes, from region to region"}


def asked(t, port, body, seconds):
    """The median of requests of the load generator on one connection, in microseconds."""
    found = t.load("load", protocol="http", address=f"127.0.0.1:{port}", path="/v2/models/same_gpu/infer", body=t.file("body", body), headers="Content-Type:application/json", connections=1, duration=seconds)
    assert found["errors"] == 0, found["first_error"]
    return found["p50_us"]


@row("shm-server-time")
def shm_server_time(t):
    """What a request takes beyond the model and beyond a server that answers at once: an epoll loop that writes the same bytes. Where the time goes is read from traces of a second server."""
    server = t.server("same_gpu")
    body, check = identity_body(t, t.client("http", server))
    answer = server.request("POST", "/v2/models/same_gpu/infer", body)[2]
    took, floor = [], []
    for _ in range(3):
        took.append(asked(t, server.http_port, body, 2))
        floor.append(asked(t, t.floor(answer), body, 1))
    check()
    spent = server.json("/v2/models/same_gpu/stats")["model_stats"][0]["inference_stats"]["compute_infer"]
    model = spent["ns"] / spent["count"] / 1000
    server.stop()
    return {
        "figure": statistics.median(took) - statistics.median(floor) - model,
        "note": f"p50 of a request {statistics.median(took)} µs, of the loop {statistics.median(floor)} µs, mean of the model {model:.1f} µs; µs up to each stage in traces: {stages(t)}",
    }


def stages(t):
    """Medians of what lies between the timestamps of traced requests."""
    trace = os.path.join(t.directory, "trace.json")
    server = t.server("same_gpu", flags=[f"--trace-config=triton,file={trace}", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS"])
    asked(t, server.http_port, identity_body(t, t.client("http", server))[0], 2)
    assert server.stop() == 0, server.tail()
    times = {}
    with open(trace) as file:
        for one in json.load(file):
            times.setdefault(one["id"], {}).update({s["name"]: s["ns"] for s in one.get("timestamps", ())})
    answered = [one for one in times.values() if "HTTP_SEND_END" in one]
    assert len(answered) >= 100, f"{len(answered)} requests were traced: {server.tail(4)}"
    names = ("HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END")
    return ", ".join(f"{b} {statistics.median(one[b] - one[a] for one in answered) / 1000:.1f}" for a, b in zip(names, names[1:]))


@row("region-locked")
def region_locked(t):
    import numpy as np

    server = t.server("same_gpu")
    client = t.client("http", server)
    key, path = f"/nereid_gpu_{os.getpid()}", f"/dev/shm/nereid_gpu_{os.getpid()}"
    with open(path, "w+b") as file:
        t.stack.callback(os.unlink, path)
        file.truncate(2 * LARGE)
        memory = mmap.mmap(file.fileno(), 2 * LARGE)
    values = np.arange(LARGE // 4, dtype=np.float32)
    memory[:LARGE] = values.tobytes()
    before = server.metrics()
    client.call("register_system_shared_memory", "host", key, 2 * LARGE)
    t.stack.callback(client.call, "unregister_system_shared_memory", "host")
    one = placed(client, "in", "INPUT0", [LARGE // 4], "FP32", "host", LARGE)
    out = placed(client, "out", "OUTPUT0", None, None, "host", LARGE, LARGE)
    client.call("infer", "same_gpu", [one], outputs=[out])
    assert memory[LARGE:] == values.tobytes(), "the output is not the input"
    assert before["nereid_pinned_region_bytes"] == 0
    locked = server.metrics()["nereid_pinned_region_bytes"]
    assert locked >= 2 * LARGE, f"{locked} bytes of the region are page-locked"
    began = time.perf_counter()
    for _ in range(20):
        client.call("infer", "same_gpu", [one], outputs=[out])
    return f"{(time.perf_counter() - began) / 20 * 1e3:.2f} ms a request of 16 MiB in and out"


@row("pinned-copy")
def pinned_copy(t):
    try:
        found = t.load("device-copy", bytes=64 << 20, duration=3)
    except AssertionError as e:
        if "usage:" in str(e):
            raise NotRun("the load generator has no device-copy") from e
        raise
    return {"figure": found["ratio"], "note": f"{found['planner_gbps']:.1f} against {found['bare_gbps']:.1f} GB/s"}

"""ONNX Runtime on devices: right answers in each of its configurations, and the rate beside a bare loop. Rows of backends-native.md §2.7 and §3."""
import os
import shutil
import threading

import place
from context import NotRun, region_body
from server import until

from . import row

IMAGE = 3 * 224 * 224


def sums(client, model, seed=0):
    """One request to an add model, in the body."""
    import numpy as np

    a = np.arange(seed, seed + 16, dtype=np.int32).reshape(1, 16)
    answer = client.infer(model, {"INPUT0": a, "INPUT1": 2 * a})
    assert np.array_equal(answer.as_numpy("OUTPUT0"), 3 * a) and np.array_equal(answer.as_numpy("OUTPUT1"), -a), f"{model} answered {answer.get_response()}"


def network(client, model, count=3):
    """Requests with one shape; the answers."""
    import numpy as np

    random = np.random.default_rng(7)
    return [client.infer(model, {"INPUT0": random.standard_normal((32, 512), dtype=np.float32)}).as_numpy("OUTPUT0") for _ in range(count)]


def close(found, wanted):
    """TF32 and other kernels round differently; values are tangents, of size 1."""
    import numpy as np

    worst = max(float(np.abs(f - w).max()) for f, w in zip(found, wanted))
    assert worst < 2e-2, f"answers differ by {worst} from those of the CPU"
    return f"at most {worst:.2g} from the answers of the CPU"


@row("ort-cuda")
def ort_cuda(t):
    import numpy as np

    server = t.server("simple_gpu", "same_gpu", "fixed_gpu", "fixed_cpu")
    for kind in ("http", "grpc"):
        client = t.client(kind, server)
        for seed in range(20):
            sums(client, "simple_gpu", seed)
        for count in (1, 1000, 1 << 20):
            values = np.arange(count, dtype=np.float32)
            assert np.array_equal(client.infer("same_gpu", {"INPUT0": values}).as_numpy("OUTPUT0"), values), count
    return close(network(client, "fixed_gpu"), network(client, "fixed_cpu"))


@row("ort-auto")
def ort_auto(t):
    server = t.server("simple_auto")
    client = t.client("http", server)
    sums(client, "simple_auto")
    groups = server.json("/v2/models/simple_auto/config")["instance_group"]
    assert {group["kind"] for group in groups} == {"KIND_GPU"}, groups
    return f"devices {sorted(gpu for group in groups for gpu in group['gpus'])}"


@row("ort-instances")
def ort_instances(t):
    """Eight clients of a model with four instances; each has its own numbers back."""
    import numpy as np

    server = t.server("same_four")
    wrong = []

    def ask(which):
        from clients import connect

        client = connect("grpc", server)
        try:
            for i in range(200):
                values = np.full(4096, which * 1000 + i, dtype=np.float32)
                if not np.array_equal(client.infer("same_four", {"INPUT0": values}).as_numpy("OUTPUT0"), values):
                    wrong.append((which, i))
        except Exception as e:  # noqa: BLE001 - told as this row's failure
            wrong.append((which, str(e)))
        finally:
            client.close()

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == [], f"{len(wrong)} of 1600 answers were wrong, such as {wrong[:3]}"


@row("ort-graphs")
def ort_graphs(t):
    try:
        server = t.server("fixed_graphs", "fixed_cpu")
    except AssertionError as e:
        if "not in this release" in str(e):
            raise NotRun("CUDA graphs are not in this release") from e
        raise
    client = t.client("grpc", server)
    # The first runs are recorded, the later ones replayed.
    return close(network(client, "fixed_graphs", 8), network(client, "fixed_cpu", 8))


@row("ort-tensorrt")
def ort_tensorrt(t):
    server = t.server("fixed_tensorrt", "fixed_cpu")
    client = t.client("grpc", server)
    return close(network(client, "fixed_tensorrt"), network(client, "fixed_cpu"))


@row("plan")
def plan(t):
    """Of an engine that TensorRT's own tool makes here: plans fit one version of it and one kind of device."""
    tool = shutil.which("trtexec")
    if tool is None:
        raise NotRun("there is no trtexec, which makes the plan")
    import subprocess

    models = t.models("fixed_cpu")
    directory = os.path.join(t.directory, "plans", "fixed_plan", "1")
    os.makedirs(directory)
    made = subprocess.run([tool, f"--onnx={models}/fixed_cpu/1/model.onnx", f"--saveEngine={directory}/model.plan"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise NotRun(f"trtexec failed: {made.stdout.strip()[-200:]}")
    with open(os.path.join(directory, "../config.pbtxt"), "w") as out:
        out.write('platform: "tensorrt_plan"\ninput [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 32, 512 ] } ]\noutput [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 32, 512 ] } ]\n')
    server = t.server("fixed_cpu", "fixed_plan", flags=[f"--model-repository={t.directory}/plans"])
    client = t.client("grpc", server)
    return close(network(client, "fixed_plan"), network(client, "fixed_cpu"))


@row("ort-reload")
def ort_reload(t):
    """Convolutions load more of CUDA's libraries than other operators. What is given up here is a session and its memory, not those libraries."""
    import numpy as np

    server = t.server("resnet50_gpu")
    client = t.client("grpc", server)
    values = np.random.default_rng(5).standard_normal((2, 3, 224, 224), dtype=np.float32)
    first = client.infer("resnet50_gpu", {"INPUT0": values}).as_numpy("OUTPUT0")
    for _ in range(3):
        client.call("unload_model", "resnet50_gpu")
        assert until(lambda: server.request("GET", "/v2/models/resnet50_gpu/ready")[0] == 400)
        client.call("load_model", "resnet50_gpu")
        assert np.allclose(client.infer("resnet50_gpu", {"INPUT0": values}).as_numpy("OUTPUT0"), first, rtol=1e-2, atol=1e-2)
    client.call("unload_model", "resnet50_gpu")
    assert until(lambda: server.request("GET", "/v2/models/resnet50_gpu/ready")[0] == 400)
    assert server.request("GET", "/v2/health/live")[0] == 200
    assert server.stop() == 0, server.tail()


def resnet(t, rows):
    """The rate of two clients whose tensors lie on the device, beside one caller with IoBinding that has its tensors there too."""
    if t.provider is None:
        raise NotRun("no provider")
    models = t.models("resnet50_gpu")
    # Interleaved: what the device does at a time falls on both.
    server = t.server("resnet50_gpu")
    client = t.client("http", server)
    sizes = {"given": rows * IMAGE * 4, "made": rows * 4000}
    for name, size in sizes.items():
        t.region(client, name, size)
    body = region_body([("INPUT0", "FP32", [rows, 3, 224, 224], "given", sizes["given"])], [("OUTPUT0", "made", sizes["made"])])
    asked = {"protocol": "http", "address": f"127.0.0.1:{server.http_port}", "path": "/v2/models/resnet50_gpu/infer", "body": t.file("body", body), "headers": "Content-Type:application/json", "connections": 2}
    bare = {"library": runtime(t), "model": f"{models}/resnet50_gpu/1/model.onnx", "inputs": f"INPUT0:FP32:{rows}x3x224x224", "provider": "cuda"}
    env = {"LD_LIBRARY_PATH": os.pathsep.join([*place.cuda_libraries(), os.environ.get("LD_LIBRARY_PATH", "")]).strip(os.pathsep)}
    ratios, rates = [], []
    for _ in range(5):
        served = t.load("load", duration=3, **asked)
        assert served["errors"] == 0, served["first_error"]
        alone = t.load("ort-loop", env=env, duration=3, **bare)
        ratios.append(served["rate"] / alone["rate"])
        rates.append((served["rate"], alone["rate"]))
    ratios.sort()
    spent = server.json("/v2/models/resnet50_gpu/stats")["model_stats"][0]["inference_stats"]
    parts = ", ".join(f"{part} {spent[part]['ns'] / spent[part]['count'] / 1000:.0f}" for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"))
    return {"figure": ratios[2], "note": f"µs of a request: {parts}; {ratios[0]:.3f} to {ratios[4]:.3f} in 5 pairs; {rates[2][0]:.1f} against {rates[2][1]:.1f} runs a second"}


def runtime(t):
    """The libonnxruntime that the server opens, by a link in a directory that also has the provider: it looks for it beside itself."""
    directory = os.path.join(t.directory, "runtime")
    os.makedirs(directory, exist_ok=True)
    for name in os.listdir(t.provider):
        if name.startswith("libonnxruntime_providers_") and not os.path.lexists(os.path.join(directory, name)):
            os.symlink(os.path.join(t.provider, name), os.path.join(directory, name))
    link = os.path.join(directory, "libonnxruntime.so.1")
    for place_of in ("node_modules/@nereid/linux-x64-gnu/libonnxruntime.so.1", "node_modules/onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1"):
        path = os.path.join(place.ROOT, place_of)
        if os.path.exists(path):
            if not os.path.lexists(link):
                os.symlink(path, link)
            return link
    raise NotRun("there is no libonnxruntime")


@row("resnet50-1")
def resnet50_1(t):
    return resnet(t, 1)


@row("resnet50-32")
def resnet50_32(t):
    return resnet(t, 32)

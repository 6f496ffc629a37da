"""One request has the same figures in its trace, its line of the access log, the statistics and the metrics."""
import concurrent.futures
import json

import pytest

from interpreter import AS_CONFIGURED, python_server
from server import until
from test_access_log import Log
from test_decoupled import repeat_inputs, stream
from test_trace import IO, REPEAT, STEP

PYTHON = "import triton_python_backend_utils as pb\nclass TritonPythonModel:\n    def execute(self, requests):\n        if requests[0].request_id() == 'fails':\n            raise ValueError('as asked')\n        return [pb.InferenceResponse([pb.Tensor('OUTPUT0', pb.get_input_tensor_by_name(r, 'INPUT0').as_numpy())]) for r in requests]\n"
BATCHED = 'max_batch_size: 2\ndynamic_batching { max_queue_delay_microseconds: 60000000 preferred_batch_size: 2 }\n'
MODELS = {
    "inline": f'backend: "identity"\n{IO}',
    "batched": f'backend: "identity"\n{BATCHED}{IO}',
    "cached": f'backend: "identity"\n{IO}response_cache {{ enable: true }}\n',
    "python": f'backend: "python"\n{IO}',
    "ensemble": f'platform: "ensemble"\n{IO}ensemble_scheduling {{ step [ {STEP % ("INPUT0", "mid")}, {STEP % ("mid", "OUTPUT0")} ] }}\n'.replace('"one"', '"inline"'),
    "repeat": REPEAT,
}
POINTS = {"queue": ("QUEUE_START", "COMPUTE_START"), "input": ("COMPUTE_START", "COMPUTE_INPUT_END"), "infer": ("COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"), "output": ("COMPUTE_OUTPUT_START", "COMPUTE_END")}


PHASES = {"queue": "queue", "compute_input": "input", "compute_infer": "infer", "compute_output": "output"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    at = tmp_path_factory.mktemp("figures")
    for name, config in MODELS.items():
        (at / "models" / name / "1").mkdir(parents=True)
        (at / "models" / name / "config.pbtxt").write_text(config)
    (at / "models/python/1/model.py").write_text(PYTHON)
    flags = [AS_CONFIGURED, "--strict-batching-delay=true", f"--trace-config=triton,file={at}/trace", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS", "--trace-config=triton,log-frequency=1", f"--access-log={at}/access.log", "--cache-config=local,size=1048576"]
    one = python_server(at / "models", *flags, log=at / "server.log")
    one.at, one.access = at, Log(at / "access.log")
    assert until(lambda: one.request("GET", "/v2/health/ready")[0] == 200), one.tail()
    yield one
    assert one.stop() == 0, one.tail()


def ask(server, model, name):
    """Sends a request. Returns the size of its body, the status and the size of the answer."""
    body = json.dumps({"id": name, "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 2] if model == "batched" else [2], "data": [1, 2]}]}).encode()
    status, _, answer = server.request("POST", f"/v2/models/{model}/infer", body)
    return len(body), status, len(answer)


def statistics(server, model):
    [found] = server.json(f"/v2/models/{model}/versions/1/stats")["model_stats"]
    return {name: (figure["count"], figure["ns"]) for name, figure in found["inference_stats"].items()}, found["batch_stats"], found


class Since:
    """What the statistics of a model count after this was made."""

    def __init__(self, server, model):
        self.server, self.model = server, model
        self.before, _, _ = statistics(server, model)

    def counted(self):
        now, _, _ = statistics(self.server, self.model)
        return {name: (count - self.before[name][0], ns - self.before[name][1]) for name, (count, ns) in now.items() if count > self.before[name][0]}


def traces(server, name):
    """Times of each point of the traces of a request, and of its calls: the request itself first."""
    found = {}
    for path in server.at.glob("trace.*"):
        text = path.read_text()
        # A file that is not closed yet is read again.
        for part in json.loads(text) if text.endswith("]") else []:
            one = found.setdefault(part["id"], {"at": {}})
            one.update({key: part[key] for key in ("model_name", "request_id", "parent_id") if key in part})
            one["at"].update({point["name"]: point["ns"] for point in part.get("timestamps", [])})
    own = [one for _, one in sorted(found.items()) if one.get("request_id") == name]
    return sorted(own, key=lambda one: one.get("parent_id", 0))


def traced(server, name, count=1):
    assert until(lambda: len(traces(server, name)) == count), (name, traces(server, name))
    return traces(server, name)


def phases(trace):
    """Nanoseconds of each phase of a trace."""
    return {name: trace["at"][to] - trace["at"][of] for name, (of, to) in POINTS.items() if of in trace["at"] and to in trace["at"]}


def whole(trace):
    return trace["at"]["REQUEST_END"] - trace["at"]["REQUEST_START"]


def check_line(line, trace):
    """The log has tenths of a microsecond, rounded."""
    for name, ns in phases(trace).items():
        assert abs(line["phases_us"][name] * 1000 - ns) <= 51, (name, line, trace)


def check_metrics(server, model):
    """Metrics are whole microseconds of the same sums."""
    figures, _, found = statistics(server, model)
    of = {"request": figures["success"]} | {name: figures[name] for name in PHASES}
    metrics = server.metrics()
    labels = f'{{model="{model}",version="1"}}'
    assert {name: metrics[f"nv_inference_{name}_duration_us{labels}"] for name in of} == {name: ns // 1000 for name, (_, ns) in of.items()}
    counts = {"count": found["inference_count"], "exec_count": found["execution_count"], "request_success": figures["success"][0]}
    assert {name: metrics[f"nv_inference_{name}{labels}"] for name in counts} == counts


def check_one(server, model, name):
    """Sends a request that the model runs."""
    since = Since(server, model)
    bytes_in, status, bytes_out = ask(server, model, name)
    line, [trace], counted = server.access.until(lambda line: line.get("id") == name), traced(server, name), since.counted()
    assert (line["status"], line["bytes_in"], line["bytes_out"], status) == (200, bytes_in, bytes_out, 200)
    assert {of: counted[of] for of in PHASES} == {of: (1, phases(trace)[phase]) for of, phase in PHASES.items()}
    check_line(line, trace)
    check_metrics(server, model)
    return line, trace, counted


@pytest.mark.parametrize("model", ["inline", "python"])
def test_one_request(server, model):
    for name in (f"{model} first", f"{model} again"):
        line, trace, counted = check_one(server, model, name)
        assert counted["success"] == (1, whole(trace))
        # The rows of a batch are known in this process only.
        assert line.get("batch", 1) == 1


def test_two_requests_of_one_batch(server):
    since = Since(server, "batched")
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        sizes = list(threads.map(lambda name: ask(server, "batched", name), ["left", "right"]))
    assert until(lambda: {"left", "right"} <= {line.get("id") for line in server.access.lines()})
    lines = {line["id"]: line for line in server.access.lines() if line.get("id") in ("left", "right")}
    both = {name: traced(server, name)[0] for name in lines}
    for name, trace in both.items():
        assert (lines[name]["batch"], lines[name]["status"]) == (2, 200), lines
        check_line(lines[name], trace)
    assert {status for _, status, _ in sizes} == {200}
    counted = since.counted()
    sums = {of: sum(phases(trace)[phase] for trace in both.values()) for of, phase in PHASES.items()}
    assert {of: counted[of] for of in sums} == {of: (2, ns) for of, ns in sums.items()}
    assert counted["success"] == (2, sum(whole(trace) for trace in both.values()))
    [batch] = statistics(server, "batched")[1]
    of_one = phases(both["left"])
    assert batch["batch_size"] == 2
    assert {name: batch[f"compute_{name}"] for name in ("input", "infer", "output")} == {name: {"count": 1, "ns": of_one[name]} for name in ("input", "infer", "output")}
    check_metrics(server, "batched")


def test_a_response_of_the_cache(server):
    _, trace, counted = check_one(server, "cached", "miss")
    # The request takes as long as its trace, and the lookup and the insertion on top (O-21).
    assert counted["success"] == (1, whole(trace) + counted["cache_miss"][1])
    since = Since(server, "cached")
    ask(server, "cached", "hit")
    line, [trace], counted = server.access.until(lambda line: line.get("id") == "hit"), traced(server, "hit"), since.counted()
    ns = whole(trace)
    assert counted == {"success": (1, ns), "queue": (1, 0), "cache_hit": (1, ns)}
    assert abs(line["phases_us"]["model"] * 1000 - ns) <= 51 and phases(trace) == {}
    check_metrics(server, "cached")


def test_an_ensemble_has_the_sums_of_its_steps(server):
    since, of_steps = Since(server, "ensemble"), Since(server, "inline")
    ask(server, "ensemble", "steps")
    line, [trace, *steps] = server.access.until(lambda line: line.get("id") == "steps"), traced(server, "steps", 3)
    counted, in_steps = since.counted(), of_steps.counted()
    sums = {f"compute_{phase}": sum(phases(step)[phase] for step in steps) for phase in ("input", "infer", "output")}
    assert {name: counted[name] for name in sums} == {name: (1, ns) for name, ns in sums.items()}
    assert {name: in_steps[name] for name in sums} == {name: (2, ns) for name, ns in sums.items()}
    assert in_steps["queue"] == (2, sum(phases(step)["queue"] for step in steps))
    assert counted["success"] == (1, whole(trace)) and in_steps["success"] == (2, sum(map(whole, steps)))
    # Until its first step begins; traces of ensembles have no such point (2.2).
    assert 0 <= counted["queue"][1] <= whole(trace)
    assert abs(line["phases_us"]["model"] * 1000 - whole(trace)) <= 51
    check_metrics(server, "ensemble")


def test_a_stream_of_responses(server):
    since = Since(server, "repeat")
    stream(server, [("repeat", repeat_inputs([4, 5, 6], [0, 0, 0]), {"request_id": "stream"})], lambda seen: len(seen) == 3)
    [trace], counted = traced(server, "stream"), since.counted()
    line = server.access.until(lambda line: line.get("id") == "stream")
    assert {of: counted[of] for of in PHASES} == {of: (1, phases(trace)[phase]) for of, phase in PHASES.items()}
    assert counted["success"] == (1, whole(trace)) and line["responses"] >= 3
    check_line(line, trace)
    check_metrics(server, "repeat")


def test_a_failure(server):
    since = Since(server, "python")
    bytes_in, status, bytes_out = ask(server, "python", "fails")
    line, [trace], counted = server.access.until(lambda line: line.get("id") == "fails"), traced(server, "fails"), since.counted()
    assert (line["status"], line["bytes_in"], line["bytes_out"], status) == (500, bytes_in, bytes_out, 500)
    assert counted == {"fail": (1, whole(trace))}
    check_metrics(server, "python")

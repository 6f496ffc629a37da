"""Trace files, switched on and read as NVIDIA's clients and tools do it."""
import json
import os
import time

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from test_decoupled import finals, repeat_inputs, stream

IO = 'input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]\noutput [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]\n'
STEP = '{ model_name: "one" model_version: -1 input_map { key: "INPUT0" value: "%s" } output_map { key: "OUTPUT0" value: "%s" } }'
REPEAT = """backend: "repeat"
model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
        { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]
"""
COMPUTE = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
SECONDS = 20


@pytest.fixture
def traced(tmp_path, start):
    """A server with a trace file and level OFF, and the path of that file."""
    models = {
        "one": f'backend: "identity"\n{IO}',
        "two": f'platform: "ensemble"\n{IO}ensemble_scheduling {{ step [ {STEP % ("INPUT0", "mid")}, {STEP % ("mid", "OUTPUT0")} ] }}\n',
        "repeat": REPEAT,
        "custom": f'backend: "identity"\n{IO}parameters {{ key: "enable_custom_tracing" value {{ string_value: "true" }} }}\n',
    }
    for name, config in models.items():
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
    path = tmp_path / "trace.json"
    return start(tmp_path / "models", f"--trace-config=triton,file={path}"), path


def ask(server, model="one", kind="http", request_id=""):
    module = httpclient if kind == "http" else grpcclient
    client = module.InferenceServerClient(getattr(server, kind))
    one = module.InferInput("INPUT0", [2], "INT32")
    one.set_data_from_numpy(np.array([1, 2], np.int32))
    client.infer(model, [one], request_id=request_id)
    client.close()


def update(server, kind="http", model=None, **settings):
    module = httpclient if kind == "http" else grpcclient
    client = module.InferenceServerClient(getattr(server, kind))
    answer = client.update_trace_settings(model_name=model, settings=settings)
    client.close()
    return answer


def read(path):
    """The file's traces by id: its names, and activities in the order of time. Waits for the file."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            objects = json.loads(path.read_text())
            break
        except (OSError, ValueError):
            assert time.monotonic() < end, f"{path} did not come: {sorted(os.listdir(path.parent))}"
            time.sleep(0.02)
    traces = {}
    for o in objects:
        trace = traces.setdefault(o["id"], {"times": []})
        trace.update({k: v for k, v in o.items() if k in ("model_name", "parent_id", "request_id")})
        trace["times"] += [(t["ns"], t["name"]) for t in o.get("timestamps", [])]
    for trace in traces.values():
        trace["names"] = [name for _, name in sorted(trace.pop("times"), key=lambda t: t[0])]
    return traces


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_o_40_a_request_is_a_trace_in_its_file(traced, kind):
    server, path = traced
    ask(server, kind=kind)
    update(server, kind, trace_level=["TIMESTAMPS"], trace_rate="1", log_frequency="1")
    ask(server, kind=kind, request_id='odd "id"\\\n')
    (trace,) = read(path.with_name("trace.json.0")).values()
    assert (trace["model_name"], trace["request_id"]) == ("one", 'odd "id"\\\n')
    front = {"http": ["HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"],
             "grpc": ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END"]}[kind]
    core = ["REQUEST_START", "QUEUE_START", *COMPUTE, "REQUEST_END", "INFER_RESPONSE_COMPLETE"]
    assert trace["names"] == front[:2] + core + front[2:]


def test_o_48_activities_that_a_backend_reports_stand_in_the_file(traced):
    server, path = traced
    update(server, trace_level=["TIMESTAMPS"], trace_rate="1", log_frequency="1")
    ask(server, "custom")
    (trace,) = read(path.with_name("trace.json.0")).values()
    custom = ["CUSTOM_ACTIVITY_START", "CUSTOM_ACTIVITY_END", "CUSTOM_SINGLE_ACTIVITY"]
    assert [name for name in trace["names"] if name.startswith("CUSTOM")] == custom
    inside = trace["names"][trace["names"].index("COMPUTE_INPUT_END"):trace["names"].index("COMPUTE_OUTPUT_START")]
    assert inside[1:] == custom, "while the model ran"


def test_o_41_steps_of_an_ensemble_name_their_parent(traced):
    server, path = traced
    update(server, trace_level=["TIMESTAMPS"], trace_rate="1", log_frequency="1")
    ask(server, "two", request_id="r")
    traces = read(path.with_name("trace.json.0"))
    (top,) = [i for i, t in traces.items() if "parent_id" not in t]
    assert traces[top]["model_name"] == "two" and not set(COMPUTE) & set(traces[top]["names"])
    steps = [t for i, t in traces.items() if i != top]
    assert [(t["model_name"], t["parent_id"], t["request_id"]) for t in steps] == [("one", top, "r")] * 2
    assert all(t["names"] == ["REQUEST_START", "QUEUE_START", *COMPUTE, "REQUEST_END"] for t in steps)


def test_o_40_a_decoupled_request_ends_once_and_sends_each_message(traced):
    server, path = traced
    update(server, trace_level=["TIMESTAMPS"], trace_rate="1", log_frequency="1")
    options = {"enable_empty_final_response": True}
    stream(server, [("repeat", repeat_inputs([1, 2, 3], [0, 0, 0]), options)], finals(1))
    (trace,) = read(path.with_name("trace.json.0")).values()
    assert trace["names"].count("GRPC_SEND_END") == trace["names"].count("GRPC_SEND_START") == 4
    assert trace["names"].count("INFER_RESPONSE_COMPLETE") == trace["names"].count("REQUEST_END") == 1


def test_o_39_rate_and_count_say_which_requests_and_the_count_tells_what_is_left(traced):
    server, path = traced
    assert update(server, trace_level=["TIMESTAMPS"], trace_rate="3", trace_count="2")["trace_count"] == "2"
    for i in range(1, 10):
        ask(server, request_id=str(i))
    client = httpclient.InferenceServerClient(server.http)
    assert client.get_trace_settings()["trace_count"] == "0"
    with pytest.raises(InferenceServerException, match="Attempting to set invalid trace setting :"):
        update(server, trace_rate="1")
    client.close()
    assert server.stop() == 0
    assert [t["request_id"] for t in read(path).values()] == ["3", "6"]


def test_o_40_successive_settings_share_the_file_which_is_complete_after_the_stop(traced):
    server, path = traced
    for name, settings in (("a", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}), ("b", {"trace_rate": "1"})):
        update(server, **settings)
        ask(server, request_id=name)
    update(server, model="one", trace_level=["OFF"])
    ask(server, request_id="not traced")
    update(server, model="one", trace_level=None)
    ask(server, request_id="c")
    assert server.stop() == 0
    assert sorted(t["request_id"] for t in read(path).values()) == ["a", "b", "c"]
    assert os.listdir(path.parent).count("trace.json.0") == 0


def test_o_38_the_file_is_no_setting_of_the_network(traced):
    server, path = traced
    for kind in ("http", "grpc"):
        with pytest.raises(InferenceServerException, match="trace file location can not be updated through network protocol"):
            update(server, kind, trace_file=str(path) + "2")


def test_o_42_tensors_of_requests_and_answers(traced):
    server, path = traced
    update(server, trace_level=["TENSORS"], trace_rate="1", log_frequency="1")
    ask(server)
    read(path.with_name("trace.json.0"))
    seen = {o["activity"]: o["tensor"] for o in json.loads(path.with_name("trace.json.0").read_text())}
    tensor = {"data": "1,2", "shape": "2", "dtype": "INT32"}
    assert seen == {"TENSOR_QUEUE_INPUT": {"name": "INPUT0", **tensor}, "TENSOR_BACKEND_OUTPUT": {"name": "OUTPUT0", **tensor}}

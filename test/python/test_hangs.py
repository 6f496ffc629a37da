"""Executions that do not end: the log names them, and a gauge shows the oldest."""
import re
import time
import urllib.request

import pytest

import tritonclient.grpc as triton
from interpreter import AS_CONFIGURED, python_server
from server import until, waits_for

IO = """
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
PYTHON = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        {body}

    def stuck(self):
        while True:
            time.sleep(0.01)
"""
STREAM = """sender = requests[0].get_response_sender()
        while not sender.is_cancelled():
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))]))
            time.sleep(0.2)
        sender.send(flags=1)"""
LATER = """self.kept = [request.get_response_sender() for request in requests]"""
TYPESCRIPT = """
interface Counted {{
  count: number
}}
function spin(of: Counted): never {{
  for (;;) of.count += 1
}}
export default {{
  execute() {{
    return {body}
  }},
}}
"""
MODELS = {
    "python_loop": ("python", PYTHON.format(body="self.stuck()")),
    "python_later": ("python", PYTHON.format(body=LATER)),
    "python_stream": ("python", PYTHON.format(body=STREAM)),
    "typescript_loop": ("javascript", TYPESCRIPT.format(body="spin({ count: 0 })")),
    "typescript_promise": ("javascript", TYPESCRIPT.format(body="new Promise(() => {})")),
    "typescript_timeout": ("javascript", TYPESCRIPT.format(body="spin({ count: 0 })")),
    "native": ("identity", None),
}
SECONDS = 1


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("hangs")
    for name, (backend, code) in MODELS.items():
        config = f'backend: "{backend}"' + IO
        if name in ("python_later", "python_stream"):
            config += "model_transaction_policy { decoupled: true }\n"
        if name == "typescript_timeout":
            config += 'parameters { key: "nereid.javascript.execute-timeout-ms" value { string_value: "700" } }\n'
        if backend == "identity":
            config = config.replace('"IN"', '"INPUT0"').replace('"OUT"', '"OUTPUT0"')
            config += 'parameters { key: "execute_delay_ms" value { string_value: "60000" } }\n'
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
        if code is not None:
            (repository / name / "1" / ("model.py" if backend == "python" else "model.ts")).write_text(code)
    flags = [AS_CONFIGURED, f"--hang-warning-secs={SECONDS}", "--backend-config=python,exit-grace-seconds=0", "--exit-timeout-secs=1"]
    server = python_server(repository, *flags, log=tmp_path_factory.mktemp("log") / "server.log")
    yield server
    server.stop()


@pytest.fixture
def asked(server):
    """Sends a request that is cancelled at the end of the test."""
    clients = []

    def ask(model):
        client = triton.InferenceServerClient(server.grpc)
        clients.append(client)
        request = triton.InferInput("INPUT0" if model == "native" else "IN", [1], "FP32")
        request.set_data_from_numpy(__import__("numpy").ones(1, "float32"))
        client.start_stream(lambda result, error: None)
        client.async_stream_infer(model, [request])

    yield ask
    for client in clients:
        client.stop_stream(cancel_requests=True)


def lines(server, model):
    with open(server.log) as log:
        return [line for line in log if f"'{model}'" in line or f"{model}_0" in line]


def oldest(server, model):
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=10).read().decode()
    return float(re.search(rf'^nereid_oldest_execution_seconds{{model="{model}",version="1"}} (\S+)$', text, re.M).group(1))


ENDS = {
    "python": "the parameter 'nereid.python.execute-timeout-ms' of the model ends such executions",
    "javascript": "the parameter 'nereid.javascript.execute-timeout-ms' of the model ends such executions",
    "identity": "no option ends it; it runs native code in a thread of the server (nereid-worker), whose stack cannot be read",
}


@pytest.mark.parametrize(
    "model,stack",
    [
        ("python_loop", r'model\.py\\?", line \d+ in stuck'),
        ("python_later", None),
        ("typescript_loop", r"runs:\\n    at spin \(/\S+/typescript_loop/1/model\.ts:6:"),
        ("typescript_promise", "does not run JavaScript now: it waits for a promise or for native code"),
        ("native", None),
    ],
)
def test_a_hang_is_logged_with_its_stack_and_seen_in_the_gauge(server, asked, model, stack):
    assert oldest(server, model) == 0
    asked(model)
    warning = f"model '{model}' version 1: instance '{model}_0' has sent no response for "
    waits_for(lambda: any(warning in line for line in lines(server, model)), "a warning")
    found = next(line for line in lines(server, model) if warning in line)
    assert "(--hang-warning-secs); requests: 1; " in found and ENDS[MODELS[model][0]] in found, found
    assert float(re.search(r"no response for (\d+) s", found).group(1)) >= SECONDS
    assert stack is None or waits_for(lambda: any(re.search(stack, line) for line in lines(server, model)), stack)
    assert SECONDS < oldest(server, model) < 30


def test_a_hang_is_reported_again_after_twice_the_time(server, asked):
    asked("native")
    before = len(lines(server, "native"))
    waits_for(lambda: oldest(server, "native") > 4.5 * SECONDS, "an old execution")
    told = lines(server, "native")[before:]
    assert 2 <= len(told) <= 3, told


def test_a_stream_that_sends_is_no_hang(server, asked):
    asked("python_stream")
    begun = time.monotonic()
    seen = []
    until(lambda: seen.append(oldest(server, "python_stream")) or time.monotonic() > begun + 3 * SECONDS)
    assert max(seen) < SECONDS, max(seen)
    assert not [line for line in lines(server, "python_stream") if "no response" in line]


def test_the_time_out_of_a_typescript_model_logs_its_stack(server, asked):
    asked("typescript_timeout")
    text = server.logged("typescript_timeout_0: the runner was started again") # X
    text = "".join(lines(server, "typescript_timeout"))
    assert re.search(r"runs:\\n    at spin \(/\S+/typescript_timeout/1/model\.ts:6:", text), text

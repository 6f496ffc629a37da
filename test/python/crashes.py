"""Python models that fail in every way there is, the server they run in, and what may be left of them: processes, descriptors, memory."""
import http.client
import json
import os
import threading
import time
from pathlib import Path

# The input is code. It answers with the process's id, unless it sets `answer`; `keep` lives as long as the process.
PRELUDE = '''import ctypes, os, resource, signal, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

keep = []


def text(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(value)], dtype=object))])


def code_of(request):
    return pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy().reshape(-1)[0].decode()


def call(model, code):
    tensor = pb_utils.Tensor("CODE", np.array([code], dtype=object))
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=[tensor])


def run(code, request):
    # One scope: functions of the code see its names.
    scope = dict(globals(), request=request, answer=text(os.getpid()))
    exec(compile(code, "<code>", "exec"), scope)
    return scope["answer"]


'''

ANSWERS = PRELUDE + '''class TritonPythonModel:
    def initialize(self, args):
        # Configurable, so that a test can tell the cost of a restart from the model's own part of it.
        wait = os.path.join(args["model_repository"], "seconds")
        if os.path.exists(wait):
            time.sleep(float(open(wait).read()))

    def execute(self, requests):
        return [run(code_of(request), request) for request in requests]
'''

STREAMS = PRELUDE + '''class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(text("first"))
            answer = run(code_of(request), request)
            if not isinstance(answer, pb_utils.InferenceResponse):
                return answer
            sender.send(answer, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''

IDENTITY = '''import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]) for request in requests]
'''

CODE = 'input [ { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
BYTES = 'input [ { name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]\n'


def write(directory: Path):
    """`victim` and `stream` run code; `helper` is called by them; `two` has two instances; `other` and `native` are bystanders."""

    def model(name, code, io, more="", backend="python"):
        version = directory / name / "1"
        version.mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(f'backend: "{backend}"\n{io}{more}')
        if code is not None:
            (version / "model.py").write_text(code)

    model("victim", ANSWERS, CODE)
    model("stream", STREAMS, CODE, "model_transaction_policy { decoupled: true }\n")
    model("helper", ANSWERS, CODE)
    model("two", ANSWERS, CODE, "instance_group [ { count: 2 kind: KIND_CPU } ]\n")
    model("other", IDENTITY, BYTES)
    model("native", None, BYTES.replace('"IN"', '"INPUT0"').replace('"OUT"', '"OUTPUT0"'), backend="identity")
    return directory


class Asker:
    """One keep-alive connection."""

    def __init__(self, server, timeout=90):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=timeout)

    def ask(self, method, path, body=None):
        """(status, text)"""
        body = json.dumps(body) if isinstance(body, (dict, list)) else body
        self.connection.request(method, path, body)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")

    def run(self, code, model="victim"):
        """Has a model run code: status, and the output or the error's text."""
        tensor = {"name": "CODE", "shape": [1], "datatype": "BYTES", "data": [code]}
        status, text = self.ask("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]})
        found = json.loads(text)
        return status, found["outputs"][0]["data"][0] if status == 200 else found["error"]

    def stream(self, code, model="stream"):
        """Data of the events of a decoupled model, in order."""
        status, text = self.ask("POST", f"/v2/models/{model}/generate_stream", {"CODE": code})
        events = [json.loads(line[len("data:"):]) for line in text.split("\n") if line.startswith("data:")]
        return status, [event.get("OUT", event.get("error")) for event in events] or [text]

    def pid(self, model="victim"):
        return int(self.run("pass", model)[1]) if model != "stream" else int(self.stream("pass")[1][-1])

    def is_ready(self, model="victim"):
        return self.ask("GET", f"/v2/models/{model}/ready")[0] == 200

    def control(self, what, model):
        status, text = self.ask("POST", f"/v2/repository/models/{model}/{what}", {})
        assert status == 200, text

    def reason(self, model):
        rows = json.loads(self.ask("POST", "/v2/repository/index", {})[1])
        return next(row for row in rows if row["name"] == model).get("reason", "")


class Bystanders:
    """Requests to models that have nothing to do with what happens: each must be answered, and answered right."""

    def __init__(self, server):
        self.server, self.stopped, self.count, self.wrong = server, threading.Event(), 0, []
        self.threads = [threading.Thread(target=self.go, args=row, daemon=True) for row in (("other", "IN"), ("native", "INPUT0"))]

    def go(self, model, name):
        asker, n = Asker(self.server), 0
        while not self.stopped.is_set():
            n += 1
            data = [n % 256, model == "other", 7]
            status, text = asker.ask("POST", f"/v2/models/{model}/infer", {"inputs": [{"name": name, "shape": [3], "datatype": "UINT8", "data": [int(x) for x in data]}]})
            if status != 200 or json.loads(text)["outputs"][0]["data"] != data:
                self.wrong.append((model, status, text[:200]))
            self.count += 1
            # Leaves the cores to what is measured.
            time.sleep(0.005)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads), "a bystander's request was never answered"


def status_of(pid):
    """(state, parent, group) of a process, or None."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[0], int(fields[1]), int(fields[2])
    except (OSError, IndexError):
        return None


def is_running(pid):
    found = status_of(pid)
    return found is not None and found[0] not in "ZX"


def descendants(pid):
    """Processes below this one, and those of the groups that they lead."""
    everyone = {int(name): status_of(name) for name in os.listdir("/proc") if name.isdigit()}
    below, groups = set(), set()
    grown = True
    while grown:
        grown = False
        for one, found in everyone.items():
            if found is not None and one not in below and (found[1] == pid or found[1] in below or found[2] in groups):
                below.add(one)
                groups |= {one} if found[2] == one else set()
                grown = True
    return below


def descriptors(pid):
    """The target of each descriptor of a process."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            pass
    return found


def segments(pid):
    """Bytes of anonymous shared memory that a process has mapped."""
    total = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "/memfd:" in line:
            first, last = line.split(" ", 1)[0].split("-")
            total += int(last, 16) - int(first, 16)
    return total


def resident(pid):
    """KiB"""
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))

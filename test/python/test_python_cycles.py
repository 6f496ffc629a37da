"""Models in Python that call one another in a ring: each way ends by itself, while its client waits. (B-SEC-07)"""
import json
import threading
import time

import pytest

from crashes import Asker
from interpreter import AS_CONFIGURED, python_server

# The next model of the ring is the model's parameter.
RING = """import asyncio
import json
import numpy as np
import triton_python_backend_utils as pb_utils


def text(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(value)], dtype=object))])


class TritonPythonModel:
    def initialize(self, args):
        self.next = json.loads(args["model_config"])["parameters"]["next"]["string_value"]

    def call(self, request):
        tensor = pb_utils.Tensor("CODE", request.inputs()[0].as_numpy())
        return pb_utils.InferenceRequest(model_name=self.next, requested_output_names=["OUT"], inputs=[tensor])

    def said(self, response):
        if response.has_error():
            return "failed: " + response.error().message()
        return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy().reshape(-1)[0].decode()

"""
SYNC = RING + """    def execute(self, requests):
        return [text(self.said(self.call(request).exec())) for request in requests]
"""
ASYNC = RING + """    async def execute(self, requests):
        return [text(self.said(await self.call(request).async_exec())) for request in requests]
"""
# Both answer from a thread of their own: their instance is free for the next of the ring.
STREAM = RING + """    def execute(self, requests):
        import threading
        for request in requests:
            threading.Thread(target=self.go, args=(request, request.get_response_sender()), daemon=True).start()

    def go(self, request, sender):
        try:
            answers = [self.said(r) for r in self.call(request).exec(decoupled=True) if r.has_error() or r.output_tensors()]
            sender.send(text(answers[-1] if answers else "nothing"))
        finally:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
ASYNC_STREAM = "from concurrent.futures import ThreadPoolExecutor\nPOOL = ThreadPoolExecutor(64)\n" + RING + """    async def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            answers = await self.call(request).async_exec(decoupled=True)
            # Elsewhere, one thread for each: the thread of all coroutines must not wait.
            wait = lambda: [self.said(r) for r in answers if r.has_error() or r.output_tensors()]
            last = (await asyncio.get_running_loop().run_in_executor(POOL, wait) or ["nothing"])[-1]
            sender.send(text(last))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

# Its input is code, which sets `answer`. `meet` returns when two have called it.
MEETS = """import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils


def text(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(value)], dtype=object))])


def meet(place, me, other):
    open(os.path.join(place, me), "w").close()
    while not os.path.exists(os.path.join(place, other)):
        time.sleep(0.01)


def ask(model, code):
    tensor = pb_utils.Tensor("CODE", np.array([code], dtype=object))
    response = pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=[tensor]).exec()
    if response.has_error():
        return "failed: " + response.error().message()
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy().reshape(-1)[0].decode()


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            scope = dict(globals(), answer="done")
            exec(request.inputs()[0].as_numpy().reshape(-1)[0].decode(), scope)
            answers.append(text(scope["answer"]))
        return answers
"""

IO = 'input [ { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
DEEP = "more than 32 models call one another for one request"
WAITS = "a call waited for 10 s for an instance of model"
# Code, more of the configuration, and why it ends.
RINGS = {
    "sync": (SYNC, "", WAITS),
    "async": (ASYNC, "", WAITS),
    "stream": (STREAM, DECOUPLED, DEEP),
    "async_stream": (ASYNC_STREAM, DECOUPLED, DEEP),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("rings") / "models"

    def model(name, code, following, more):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.py").write_text(code)
        parameter = f'parameters {{ key: "next" value {{ string_value: "{following}" }} }}\n'
        (root / name / "config.pbtxt").write_text(f'backend: "python"\n{IO}{more}{parameter}')

    for ring, (code, more, _) in RINGS.items():
        for name, following in (("a", "b"), ("b", "c"), ("c", "a")):
            model(f"{ring}_{name}", code, f"{ring}_{following}", more)
    model("alone", SYNC, "alone", "")
    for name, count in (("left", 1), ("middle", 4), ("right", 1), ("pair", 2)):
        model(name, MEETS, "", f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n")
    batch = "max_batch_size: 2\ndynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 60000000 }\n"
    model("together", SYNC, "together", batch)
    (root / "behind_right" / "1").mkdir(parents=True)
    step = 'ensemble_scheduling { step [ { model_name: "right" model_version: -1 input_map { key: "CODE" value: "CODE" } output_map { key: "OUT" value: "OUT" } } ] }\n'
    (root / "behind_right" / "config.pbtxt").write_text('platform: "ensemble"\n' + IO + step)
    # By way of an ensemble whose step it is.
    model("inside", SYNC, "around", "")
    (root / "around" / "1").mkdir(parents=True)
    step = 'ensemble_scheduling { step [ { model_name: "inside" model_version: -1 input_map { key: "CODE" value: "CODE" } output_map { key: "OUT" value: "OUT" } } ] }\n'
    (root / "around" / "config.pbtxt").write_text('platform: "ensemble"\n' + IO + step)
    log = tmp_path_factory.mktemp("log") / "server.log"
    one = python_server(root, AS_CONFIGURED, log=log)
    yield one
    assert one.stop() == 0


def ended(server, model, why):
    began = time.monotonic()
    asker = Asker(server)
    if model.startswith(("stream", "async_stream")):
        status, said = asker.stream("x", model)
        said = said[-1]
    else:
        status, said = asker.run("x", model)
    assert status == 200 and "failed: " in said and why in said, (status, said)
    return time.monotonic() - began


@pytest.mark.parametrize("ring", RINGS)
def test_b_sec_07_a_ring_of_calls_ends_while_its_client_waits(server, ring):
    _, _, why = RINGS[ring]
    assert ended(server, f"{ring}_a", why) < 30
    # And again: nothing of it stays.
    assert ended(server, f"{ring}_b", why) < 30


@pytest.mark.parametrize("model", ["alone", "inside", "around"])
def test_b_sec_07_a_model_that_waits_for_itself_hears_of_it(server, model):
    assert ended(server, model, WAITS) < 30


def at_once(server, asked):
    """Runs code in models, each for a client of its own; what each was answered, in order."""
    said = [None] * len(asked)

    def one(at, model, code):
        said[at] = Asker(server).run(code, model)

    threads = [threading.Thread(target=one, args=(at, model, code)) for at, (model, code) in enumerate(asked)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(answer and answer[0] == 200 for answer in said), said
    return [text for _, text in said]


# How each of the two calls the model that the other one holds.
WAYS = {
    "at once": ('ask("right", "pass")', 'ask("left", "pass")'),
    "by way of another model": ("ask('middle', 'answer = ask(\"right\", \"pass\")')", 'ask("left", "pass")'),
    "by way of an ensemble": ('ask("behind_right", "pass")', 'ask("left", "pass")'),
}


@pytest.mark.parametrize("way", WAYS)
def test_b_sec_07_one_of_two_clients_in_a_deadlock_fails_and_one_succeeds(server, tmp_path, way):
    left, right = WAYS[way]
    began = time.monotonic()
    said = at_once(server, [
        ("left", f'meet({str(tmp_path)!r}, "a", "b"); answer = {left}'),
        ("right", f'meet({str(tmp_path)!r}, "b", "a"); answer = {right}'),
    ])
    assert 10 <= time.monotonic() - began < 30
    failed = [text for text in said if "failed: " in text]
    assert len(failed) == 1 and "done" in said, said
    assert WAITS in failed[0] and "'left'" in failed[0] and "'right'" in failed[0] and "instance_group" in failed[0]


def test_b_sec_07_a_ring_that_waits_for_a_slow_queue_is_answered(server, tmp_path):
    # One instance of `pair` works for longer than calls wait in a ring, the other one waits for a call to `pair` itself.
    said = at_once(server, [
        ("pair", f'meet({str(tmp_path)!r}, "a", "b"); time.sleep(14)'),
        ("pair", f"meet({str(tmp_path)!r}, 'b', 'a'); answer = ask('middle', 'answer = ask(\"pair\", \"pass\")')"),
    ])
    assert said == ["done", "done"]


def test_b_sec_07_a_slow_chain_of_calls_is_answered(server, tmp_path):
    # Both wait for the only instance of `right` for longer than calls wait in a ring.
    slow = 'ask("right", "time.sleep(12)")'
    assert at_once(server, [("left", f"answer = {slow}"), ("middle", f"answer = {slow}")]) == ["done", "done"]


def test_b_sec_07_a_batch_of_several_that_waits_for_itself_hears_of_it(server):
    """Which of its requests made the call is not known: the batch did."""
    said = []

    def one():
        tensor = {"name": "CODE", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}
        status, text = Asker(server).ask("POST", "/v2/models/together/infer", {"inputs": [tensor]})
        said.append((status, json.loads(text)["outputs"][0]["data"][0] if status == 200 else text))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(said) == 2 and all(status == 200 and WAITS in text for status, text in said), said

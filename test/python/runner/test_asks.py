"""Requests of a model to the server: other models (B-PY-10 to B-PY-13, B-PYR-04), metrics (B-PY-20), model control (B-PY-21)."""
import numpy as np
import pytest
from runner_host import In, P, until
from test_execute import HEAD, SNIPPET, code
from test_requests import ASYNC, DECOUPLED, seen

Q = "q = lambda **k: pb.InferenceRequest(**dict(dict(model_name='other', requested_output_names=['Y'], inputs=[pb.Tensor('X', np.arange(3, dtype='f4'))]), **k))\n"
BLS = "TritonModelException: BLS is only supported during the 'execute' function."
ASYNC_SNIPPET = (
    SNIPPET.replace("def execute", "async def execute").replace('"def snippet', '"async def snippet').replace('return names["snippet"]', 'return await names["snippet"]')
)


def echoes(told):
    """Another model: its output is its input."""
    tensor = told["inputs"][0]
    yield P.ANSWER_RESPONSE, [In("Y", tensor.raw, tensor.code, tensor.shape)], None, True


def test_b_py_10_a_call_in_execute_goes_over_the_work_socket(host):
    one = host(SNIPPET)
    one.on_call = echoes
    (answer,) = one.run(code(Q + "r = q().exec()\na = r.output_tensors()[0].as_numpy()\na += 1\nreturn [out([type(r).__name__, r.has_error(), r.error(), a.tolist(), r.parameters()])]"))
    assert seen(answer) == ["InferenceResponse", False, None, [1, 2, 3], "{}"]
    told = one.calls.get()
    assert (told["on"], told["model"], told["version"], told["names"], told["flags"]) == ("work", "other", -1, ["Y"], P.CALL_FLAG_DEVICES)
    assert told["parent"] == (0, 1)


def test_b_py_13_what_a_request_was_given_is_passed_on(host):
    one = host(SNIPPET)
    one.on_call = echoes
    text = Q + "q(request_id='\u00e9', correlation_id='c', flags=3, timeout=7, model_version=2, parameters={'a': 'b'}, trace=request.trace(), requested_output_names=[]).exec()\nq(correlation_id=5).exec()\nreturn [out(1)]"
    one.run((code(text), {"trace": '{"traceparent": "x"}'}))
    told = one.calls.get()
    assert (told["id"], told["correlation"], told["request_flags"], told["timeout"], told["version"], told["parameters"], told["names"]) == ("\u00e9", "c", 3, 7, 2, '{"a": "b"}', None)
    assert (told["trace"], told["flags"]) == ('{"traceparent": "x"}', P.CALL_FLAG_TRACED | P.CALL_FLAG_DEVICES)
    assert one.calls.get()["correlation"] == 5


def test_b_py_13_a_batch_of_several_names_a_parent_only_by_its_trace(host):
    one = host(SNIPPET)
    one.on_call = echoes
    one.run(code(Q + "q().exec()\nq(trace=requests[1].trace()).exec()\nreturn [out(1), out(2)]"), code(""))
    assert [one.calls.get()["parent"] for _ in range(2)] == [((1 << 32) - 1, 0), (1, 1)]


FORKED = """import asyncio, json, os
def said(ask):
    try:
        return str(ask())
    except pb.TritonModelException as e:
        return str(e)
asks = [q().exec, lambda: q().exec(decoupled=True), lambda: pb.is_model_ready('other'), lambda: asyncio.run(later())]
async def later():
    return await q().async_exec()
r, w = os.pipe()
pid = os.fork()
if not pid:
    os.write(w, json.dumps([said(ask) for ask in asks]).encode())
    os._exit(0)
os.close(w)
os.waitpid(pid, 0)
return [out(json.loads(os.read(r, 9999)))]
"""


@pytest.mark.parametrize("thread", [False, True], ids=["by execute", "by a thread"])
def test_b_py_10_a_process_that_a_model_forked_is_told_that_it_cannot_ask_the_server(host, thread):
    one = host(SNIPPET)
    one.on_call = echoes
    text = Q + FORKED
    if thread:
        text = "got = []\ndef go():\n" + "".join(f"    {line}\n" for line in text.splitlines()) + "import threading\nt = threading.Thread(target=lambda: got.extend(go()))\nt.start()\nt.join()\nreturn got"
    (answer,) = one.run(code(text))
    texts = seen(answer)
    assert len(texts) == 4 and all(said.startswith("A process that a model forked has no connection to the server") for said in texts), texts
    (answer,) = one.run(code(Q + "return [out(q().exec().has_error())]"))
    assert seen(answer) is False, "the model itself calls on"


@pytest.mark.parametrize("size", [10, 100_000])
def test_b_py_10_large_inputs_and_outputs_lie_in_memory(host, size):
    one = host(SNIPPET)
    one.on_call = echoes
    for _ in range(10):
        (answer,) = one.run(code(Q + f"r = q(inputs=[pb.Tensor('X', np.arange({size}.0))]).exec()\nself.kept['a'] = r.output_tensors()[0].as_numpy()\nreturn [out(self.kept['a'].sum())]"))
        assert seen(answer) == sum(range(size))
    assert len(one.response) == 1 or size > 1000
    (answer,) = one.run([*code(Q + "return [out(q(inputs=[requests[0].inputs()[1]]).exec().output_tensors()[0].as_numpy().sum())]"), In("B", np.ones(size))])
    assert seen(answer) == size
    told = [one.calls.get() for _ in range(11)][-1]
    assert told["inputs"][0].place == (P.PLACE_INLINE if size == 10 else P.PLACE_REQUEST), "memory of a request is passed on as it is"


def test_b_py_10_errors_come_back_as_they_are(host):
    one = host(SNIPPET)
    one.on_call = lambda told: [(P.ANSWER_ERROR, [], (P.CODE_NOT_FOUND, "Model other - Error when running inference: n\u00f6"), True)]
    (answer,) = one.run(code(Q + "r = q().exec()\nreturn [out([r.has_error(), str(r.error().code()), r.error().message(), r.output_tensors()]), ][:1]"))
    assert seen(answer) == [True, "__ErrorCode.NOT_FOUND", "Model other - Error when running inference: n\u00f6", []]
    (answer,) = one.run(code(Q + "return [q().exec()]"))
    assert (answer.kind, answer.code) == (P.ANSWER_ERROR, P.CODE_NOT_FOUND)


def test_b_py_10_calls_of_threads_go_over_the_side_socket(host):
    one = host(SNIPPET)
    one.on_call = echoes
    text = Q + "r = []\nts = [threading.Thread(target=lambda: r.append(q().exec().output_tensors()[0].as_numpy().tolist())) for _ in range(6)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nreturn [out(r)]"
    assert seen(one.run(code(text))[0]) == [[0, 1, 2]] * 6
    assert {one.calls.get()["on"] for _ in range(6)} == {"side"}


def test_b_py_10_only_while_there_are_requests(host):
    one = host(SNIPPET.replace("self.kept = {}", "self.kept = {'init': attempt(lambda: pb.InferenceRequest(model_name='x', inputs=[], requested_output_names=[]).exec())}"))
    assert seen(one.run(code("return [out(self.kept['init'])]"))[0]) == BLS


def test_b_py_26_is_ready_may_call(host):
    one = host(HEAD + "    def is_ready(self):\n        return not pb.InferenceRequest(model_name='o', inputs=[], requested_output_names=[]).exec().has_error()\n")
    one.on_call = lambda told: [(P.ANSWER_RESPONSE, [], None, True)]
    one.send(one.side, P.FRAME_IS_READY, P.QUESTION.pack(3))
    assert one.ready_answers.get(timeout=60) == (3, 1)


def test_b_py_11_calls_of_a_coroutine_run_together(host):
    one = host(ASYNC_SNIPPET)
    waiting = []

    def all_at_once(told):
        waiting.append(told)
        if len(waiting) == 3:
            for t in reversed(waiting):
                one.reply(t["call"], P.ANSWER_RESPONSE, [In("Y", np.array([t["inputs"][0].value[0]]))])
        return []

    one.on_call = all_at_once
    text = Q + "rs = await asyncio.gather(*[q(inputs=[pb.Tensor('X', np.array([float(i)]))]).async_exec() for i in range(3)])\nreturn [out([r.output_tensors()[0].as_numpy().tolist() for r in rs])]"
    assert seen(one.run(code(text))[0]) == [[0.0], [1.0], [2.0]]
    assert {t["on"] for t in waiting} == {"side"}


def test_b_py_11_needs_a_running_loop_and_hears_of_cancellation(host):
    one = host(SNIPPET)
    assert seen(one.run(code(Q + "return [out(attempt(q().async_exec))]"))[0]) == "RuntimeError: no running event loop"
    text = Q + "async def go():\n    await asyncio.wait_for(q().async_exec(), 0.05)\nreturn [out(attempt(lambda: asyncio.run(go())))]"
    assert seen(one.run(code(text))[0]).startswith("TimeoutError")
    call = one.calls.get()["call"]
    assert [one.calls.get(timeout=60) for _ in range(2)] == [(P.FRAME_CALL_CANCEL, call), (P.FRAME_CALL_CLOSE, call)]
    one.reply(call, P.ANSWER_RESPONSE, [In("Y", np.zeros(5000))])
    # It is told with the end of a batch.
    until(lambda: one.run(code("return [out(1)]")) and one.used == {}, "giving back what came too late")


def repeat(told):
    for i in range(int(told["inputs"][0].value[0])):
        yield P.ANSWER_RESPONSE, [In("I", np.array([i]))], None, False
    yield P.ANSWER_NONE, [], None, True


R = "r = lambda n: pb.InferenceRequest(model_name='repeat', requested_output_names=['I'], inputs=[pb.Tensor('N', np.array([n], 'i4'))])\nshow = lambda x: [t.as_numpy().tolist() for t in x.output_tensors()]\n"


@pytest.mark.parametrize("model, end", [(SNIPPET, "return [out(%s)]"), (ASYNC_SNIPPET, "return [out(%s)]")], ids=["sync", "async"])
@pytest.mark.parametrize("ask", ["r(2).exec(decoupled=True)", "await r(2).async_exec(decoupled=True)"], ids=["exec", "async_exec"])
def test_b_py_12_responses_are_iterated_and_kept(host, model, end, ask):
    if "await" in ask and model is SNIPPET:
        ask = "asyncio.run(go())"
        head = R + "async def go():\n    return await r(2).async_exec(decoupled=True)\n"
    else:
        head = R
    one = host(model)
    one.on_call = repeat
    text = head + f"it = {ask}\nfirst = [show(x) for x in it]\nagain = [[show(x), x.parameters()] for x in it]\nlast = attempt(next, it)\n" + end % "[first, again, last, type(it).__name__]"
    want = [[[[0]], [[1]], []], [[[[0]], "{}"], [[[1]], "{}"], [[], ""]], "StopIteration: Iteration is done for the responses.", "ResponseIterator"]
    assert seen(one.run(code(text))[0]) == want
    told = one.calls.get()
    assert (told["on"], told["flags"]) == ("side", P.CALL_FLAG_DECOUPLED | P.CALL_FLAG_DEVICES)


def test_b_py_12_an_iterator_is_cancelled_and_dropped(host):
    one = host(SNIPPET)
    one.on_call = lambda told: [(P.ANSWER_RESPONSE, [], None, False)]
    one.run(code(R + "it = r(1).exec(decoupled=True)\nnext(it)\nit.cancel()\nit.cancel()\nself.kept['it'] = it\nreturn [out(1)]"))
    call = one.calls.get()["call"]
    assert [one.calls.get(timeout=60) for _ in range(2)] == [(P.FRAME_CALL_CANCEL, call)] * 2
    one.reply(call, P.ANSWER_ERROR, (), (P.CODE_CANCELLED, "stopped"))
    assert seen(one.run(code("rest = [x.error().message() for x in self.kept['it'] if x.has_error()]\nself.kept['it'].cancel()\nreturn [out(rest)]"))[0]) == ["stopped"]
    one.run(code(R + "next(r(1).exec(decoupled=True))\nreturn [out(1)]"))
    told = one.calls.get()
    assert one.calls.get(timeout=60) == (P.FRAME_CALL_CLOSE, told["call"])


@pytest.mark.parametrize("model", [DECOUPLED, ASYNC], ids=["sync", "async"])
def test_b_py_11_decoupled_models_call_too(host, model):
    one = host(model, decoupled=True)
    one.on_call = echoes
    ask = "(await q().async_exec())" if model is ASYNC else "q().exec()"
    one.run(code(Q + f"send({ask}.output_tensors()[0].as_numpy().tolist(), 1)"))
    assert seen(one.responds.get(timeout=60)[2]) == [0, 1, 2]
    one.run(code(Q + "def w():\n    send(q().exec().has_error(), 1)\nthreading.Thread(target=w).start()"))
    assert seen(one.responds.get(timeout=60)[2]) is False


def test_b_pyr_04_a_thousand_calls_in_execute_cannot_block_the_sockets(host):
    one = host(SNIPPET, segments=(1 << 20, 1 << 20))
    one.on_call = echoes
    text = Q + "n = 0\nfor i in range(1000):\n    n += q().exec().output_tensors()[0].as_numpy().sum()\n    if i % 10 == 0: pb.Logger.log_info('x' * 2000)\nreturn [out(float(n))]"
    assert seen(one.run(code(text))[0]) == 3000


def refuses(text):
    return lambda message: {"error": {"code": "NOT_FOUND", "message": text}}


def test_b_py_21_models_are_controlled(host):
    one = host(SNIPPET)
    one.on_control = lambda m: {"ready": True} if m["operation"] == "is_ready" else {}
    text = "return [out([pb.load_model('a'), pb.load_model(model_name='b', config='{}', files={'file:1/model.py': b'\\xff'}), pb.unload_model('a', True), pb.is_model_ready('a', '1')])]"
    assert seen(one.run(code(text))[0]) == [None, None, None, True]
    for message in one.controls:
        assert isinstance(message.pop("id"), int)
    assert one.controls == [
        {"operation": "load", "model": "a", "config": "", "files": {}},
        {"operation": "load", "model": "b", "config": "{}", "files": {"file:1/model.py": "/w=="}},
        {"operation": "unload", "model": "a", "dependents": True},
        {"operation": "is_ready", "model": "a", "version": "1"},
    ]


def test_b_py_21_refusals_have_tritons_prefixes(host):
    one = host(SNIPPET)
    one.on_control = refuses("because")
    text = "return [out([attempt(pb.load_model, 'a'), attempt(pb.unload_model, 'a'), attempt(pb.is_model_ready, 'a')])]"
    prefix = "TritonModelException: Failed to %s: Failed to process the request for model 'm_0', message: because"
    assert seen(one.run(code(text))[0]) == [prefix % "load model", prefix % "unload model", prefix % "check model readiness"]


def test_b_py_21_wrong_arguments_are_refused_here(host):
    one = host(SNIPPET)
    calls = "pb.load_model(None)|pb.load_model()|pb.load_model('a', {})|pb.unload_model('a', None)|pb.unload_model('a', 'x')|pb.is_model_ready('a', 1)|pb.is_model_ready()"
    text = "return [out([" + ", ".join(f"attempt(lambda: {c})" for c in calls.split("|")) + "])]"
    got = seen(one.run(code(text))[0])
    assert all(g.startswith("TypeError: ") and "incompatible function arguments" in g for g in got), got
    text = "return [out([attempt(pb.load_model, 'a', '', []), attempt(pb.load_model, 'a', '', {'file:x': 'text'})])]"
    assert seen(one.run(code(text))[0]) == [
        "TritonModelException: failed to load model 'a', files should be a dictionary of file paths and file contents",
        "TypeError: Object of type 'str' is not an instance of 'bytes'",
    ]
    assert one.controls == []


def test_b_py_21_works_while_the_model_starts_and_ends(host):
    text = HEAD + "    def initialize(self, args):\n        assert pb.is_model_ready('a')\n\n    def finalize(self):\n        pb.Logger.log_info(str(pb.is_model_ready('b')))\n"

    one = host(text, on_control=lambda m: {"ready": True})
    assert not one.failed
    assert one.finalize() == 0
    until(lambda: one.logs)
    assert one.logs[0][3] == "True"


class Metrics:
    """Numbers for families and metrics, and values."""

    def __init__(self, one):
        self.one, self.last = one, 0

    def __call__(self, message):
        if message["operation"] == "metric_value":
            value = 0.0
            for metric, number, operation in self.one.metrics:
                if metric == message["metric"]:
                    value = number if operation == P.METRIC_OPERATION_SET else value + number
            return {"value": None if value != value else value}
        self.last += 1
        return {"family_new": {"family": self.last}, "metric_new": {"metric": self.last}}.get(message["operation"], {})


def metrics(host, text):
    one = host(SNIPPET)
    one.on_control = Metrics(one)
    one.controls.clear()
    one.metrics.clear()
    family = "F = lambda kind, name='n': pb.MetricFamily(name=name, description='d', kind=getattr(pb.MetricFamily, kind))\n"
    return one, seen(one.run(code(family + text))[0])


def test_b_py_20_values_are_changed_without_waiting_and_asked_for(host):
    one, got = metrics(host, "c, g, h = F('COUNTER'), F('GAUGE'), F('HISTOGRAM')\na, b, d = c.Metric(labels={'k': 'v'}), g.Metric(), h.Metric({}, [0.5, 1, float('inf')])\na.increment(2)\na.increment(np.float32(1))\nb.set(5)\nb.increment(-7.5)\nd.observe(0.25)\nself.kept['m'] = c, g, h, a, b, d\nreturn [out([a.value(), b.value(), type(a).__name__])]")
    assert got == [3.0, -2.5, "Metric"]
    assert one.controls[0] == {"id": one.controls[0]["id"], "operation": "family_new", "name": "n", "description": "d", "kind": "counter"}
    made = [m for m in one.controls if m["operation"] == "metric_new"]
    assert [(m["family"], m["labels"], m["buckets"]) for m in made] == [(1, {"k": "v"}, []), (2, {}, []), (3, {}, [0.5, 1.0])]
    assert [m for m in one.metrics if m[0] == 6] == [(6, 0.25, P.METRIC_OPERATION_OBSERVE)]


REASON = "Failed to process the request for model 'm_0', message: "


@pytest.mark.parametrize(
    "text, told",
    [
        ("F('COUNTER').Metric(labels=[1])", "TritonModelException: Failed to create metric. Labels must be a dictionary."),
        ("F('HISTOGRAM').Metric({}, (1.0,))", "TritonModelException: Failed to create metric. Buckets must be a list."),
        ("F('COUNTER').Metric(buckets=[])", "TritonModelException: Failed to create metric. Unexpected buckets found."),
        ("F('HISTOGRAM').Metric()", "TritonModelException: Failed to create metric. Missing required buckets."),
        ("F('COUNTER').Metric(labels={'a': 1})", f"TritonModelException: Error when creating Metric: {REASON}attempt to access JSON non-string as string"),
        ("c.increment(-1)", f"TritonModelException: Failed to increment metric value: {REASON}TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."),
        ("c.set(1)", f"TritonModelException: Failed to set metric value: {REASON}TRITONSERVER_METRIC_KIND_COUNTER does not support Set"),
        ("c.observe(1)", f"TritonModelException: Failed to observe metric value: {REASON}TRITONSERVER_METRIC_KIND_COUNTER does not support Observe"),
        ("h.increment(1)", f"TritonModelException: Failed to increment metric value: {REASON}TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment"),
        ("F('COUNTER').Metric().increment(1)", "TritonModelException: Failed to increment metric value: Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been deleted."),
        ("F('COUNTER').Metric().value()", "TritonModelException: Failed to get metric value: Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been deleted."),
    ],
    ids=lambda v: v if len(v) < 40 else "",
)  # fmt: skip
def test_b_py_20_what_is_refused_has_tritons_texts(shared, text, told):
    _, got = metrics(shared, f"f, g = F('COUNTER'), F('HISTOGRAM')\nc, h = f.Metric(), g.Metric({{}}, [1.0])\nr = attempt(lambda: {text})\nreturn [out(r)]")
    assert got == told


def test_b_py_20_wrong_types_are_type_errors(host):
    calls = "pb.MetricFamily()|pb.MetricFamily('a', None, pb.MetricFamily.GAUGE)|pb.MetricFamily('a', 'd', 0)|F('GAUGE').Metric({}, [], 1)|c.increment('1')|c.increment(None)|c.increment()|c.value(1)"
    _, got = metrics(host, "f = F('COUNTER')\nc = f.Metric()\nreturn [out([" + ", ".join(f"attempt(lambda: {c})" for c in calls.split("|")) + "])]")
    assert all(g.startswith("TypeError: ") and "incompatible" in g for g in got), got


def test_b_py_20_objects_that_end_are_told_and_the_servers_reasons_too(host):
    one, _ = metrics(host, "f = F('GAUGE')\nm = f.Metric()\ndel m, f\nreturn [out(1)]")
    until(lambda: [m["operation"] for m in one.controls] == ["family_new", "metric_new", "metric_delete", "family_delete"])
    one.on_control = refuses("Invalid metric name")
    (answer,) = one.run(code("return [out(attempt(lambda: pb.MetricFamily('1x', 'd', pb.MetricFamily.GAUGE)))]"))
    assert seen(answer) == f"TritonModelException: Error when creating MetricFamily: {REASON}Invalid metric name"


def test_b_py_20_b_py_19_many_threads_use_one_socket(host):
    one = host(SNIPPET)
    one.on_control = Metrics(one)
    text = "f = pb.MetricFamily('n', 'd', pb.MetricFamily.COUNTER)\nself.kept['f'] = f\nm = f.Metric()\ndef w():\n    for i in range(200):\n        m.increment(1)\n        pb.Logger.log_info('x')\n        f.Metric()\nts = [threading.Thread(target=w) for _ in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nreturn [out(m.value())]"
    assert seen(one.run(code(text))[0]) == 1600
    until(lambda: len(one.logs) == 1600)

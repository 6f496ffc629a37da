"""Requests as a model sees them, and responses that it sends later: B-PY-08, B-PY-15, B-PY-16, B-PY-17, B-PY-25, B-PY-27, B-PY-28, B-PY-29, B-PY-31."""
import json

import numpy as np
import pytest
from runner_host import In, P, until
from test_execute import HEAD, HELPERS, SNIPPET, code, in_batch

SEE = HEAD + '''
    def execute(self, requests):
        made = []
        for q in requests:
            d = [q.request_id(), q.correlation_id(), q.flags(), q.timeout(), q.parameters(), sorted(q.requested_output_names()), q.trace().get_context(),
                 q.is_cancelled(), [t.name() for t in q.inputs()], type(requests).__name__]
            made.append(pb.InferenceResponse([pb.Tensor("OUT", np.array([json.dumps(d)], dtype=object))]))
        return made
'''
DECOUPLED = HEAD + '''
    def initialize(self, args):
        self.kept = {}

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            text = request.inputs()[0].as_numpy().reshape(-1)[0].decode()
            body = "def snippet(self, requests, request, sender, send):\\n" + "\\n".join("    " + line for line in text.split("\\n"))
            names = {}
            exec(compile(body, "<snippet>", "exec"), globals(), names)
            returned = names["snippet"](self, requests, request, sender, lambda d=None, flags=0, sender=sender: sender.send(out(d), flags))
        return returned
''' + HELPERS


def seen(answer):
    return json.loads(answer["OUT"][0])


def test_b_py_08_a_request_tells_what_came(host):
    one = host(SEE, outputs=["OUT", "Y"])
    x = In("X", np.zeros(1))
    plain, full, texts = one.run(
        [x],
        ([x, In("S", ["a"])], dict(id="i\u00e9", correlation=7, flags=3, timeout=5, parameters='{"a": 1.5}', trace='{"traceparent": "x"}', names=["OUT"])),
        ([], dict(correlation="text", names=["OUT", "\u00e9" * 200])),
    )
    assert seen(plain) == ["", 0, 0, 0, "{}", ["OUT", "Y"], None, False, ["X"], "list"]
    assert seen(full) == ["i\u00e9", 7, 3, 5, '{"a": 1.5}', ["OUT"], '{"traceparent": "x"}', False, ["X", "S"], "list"]
    assert seen(texts) == ["", "text", 0, 0, "{}", ["OUT", "\u00e9" * 200], None, False, [], "list"]


def test_b_py_29_an_input_that_was_not_sent_is_none(host):
    one = host(SNIPPET)
    (answer,) = one.run(code("return [out([pb.get_input_tensor_by_name(request, n) is None for n in ('CODE', 'X')])]"))
    assert seen(answer) == [False, True]


def test_b_py_27_cancellation_is_seen_without_asking(host):
    one = host(SNIPPET)
    text = "for i in range(2000):\n    if request.is_cancelled(): break\n    time.sleep(0.005)\nreturn [out([request.is_cancelled(), request.get_response_sender().is_cancelled()])]"
    batch = one.start(code(text))
    one.flags[0] = (batch & 127) << 1
    one.flags[0] = (batch & 127) << 1 | 1
    assert seen(one.result()[0]) == [True, True]
    one.flags[0] = (batch & 127) << 1 | 1
    (answer,) = one.run(code("return [out(request.is_cancelled())]"))
    assert seen(answer) is False, "the flag of an earlier request in that slot"


def test_b_py_15_decoupled_responses_come_in_order_with_a_final(host):
    one = host(DECOUPLED, decoupled=True)
    (answer,) = one.run(code("send('a')\nsend('b')\nsender.send(flags=1)"))
    assert answer.kind == P.ANSWER_NONE
    got = [one.responds.get(timeout=60) for _ in range(3)]
    assert [(s, g) for s, g, _ in got] == [(0, 1)] * 3
    assert [(a.kind, a.final) for _, _, a in got] == [(P.ANSWER_RESPONSE, False), (P.ANSWER_RESPONSE, False), (P.ANSWER_NONE, True)]
    assert [seen(a) for _, _, a in got[:2]] == ["a", "b"]
    one.run(code("send('last', 1)"))
    _, _, answer = one.responds.get(timeout=60)
    assert (answer.kind, answer.final, seen(answer)) == (P.ANSWER_RESPONSE, True, "last")


UNABLE = "TritonModelException: Unable to send response. "
MUST = "TritonModelException: Inference Response object must be provided when the response flags is set to zero."


def test_b_py_15_wrong_sends_have_tritons_texts(host):
    one = host(DECOUPLED, decoupled=True)
    text = "send([attempt(sender.send), attempt(sender.send, None, 0), attempt(sender.send, None, 2), attempt(sender.send, out(1), 3), attempt(sender.send, 5), attempt(sender.send, out(1), None), attempt(sender.send, out(1), -1)], 1)\nself.kept['after'] = [attempt(send, 2), attempt(lambda: sender.send(flags=1))]"
    one.run(code(text))
    signature = "TypeError: send(): incompatible function arguments. The following argument types are supported:"
    assert seen(one.responds.get(timeout=60)[2]) == [MUST, MUST, UNABLE + "Unsupported flag provided.", UNABLE + "Unsupported flag provided.", signature, signature, signature]
    one.run(code("send(self.kept['after'], 1)"))
    assert seen(one.responds.get(timeout=60)[2]) == [UNABLE + "Response sender has been closed."] * 2


def test_b_py_15_a_default_model_sends_one_response(host):
    one = host(SNIPPET)
    start = "s = request.get_response_sender()\n"
    text = "r = [attempt(s.send, None, 1), s is request.get_response_sender()]\ns.send(out(r))\nr = [attempt(s.send, out(2)), attempt(s.send, out(2), 1)]\ns.send(flags=1)\nself.kept['r'] = r + [attempt(lambda: s.send(flags=1)), attempt(s.send, out(1))]\nreturn [None]"
    (answer,) = one.run(code(start + text))
    assert answer.kind == P.ANSWER_NONE
    only = one.responds.get(timeout=60)[2]
    assert seen(only) == [UNABLE + "Non-decoupled model cannot send complete final before sending a response.", True]
    assert (only.kind, only.final, one.responds.empty()) == (P.ANSWER_RESPONSE, True, True)
    (answer,) = one.run(code("return [out(self.kept['r'])]"))
    more = UNABLE + "Non-decoupled model cannot send more than one response."
    assert seen(answer) == [more, more, UNABLE + "Response sender has been closed.", more]


def test_b_py_15_what_is_returned_behind_a_response_does_not_count(host):
    one = host(SNIPPET)
    start = "s = request.get_response_sender()\n"
    (answer,) = one.run(code(start + "s.send(out('sent'), 1)\nreturn [out('returned')]"))
    assert answer.kind == P.ANSWER_NONE
    assert seen(one.responds.get(timeout=60)[2]) == "sent"
    (answer,) = one.run(code(start + "s.send(out('sent'))\nreturn [out('returned')]"))
    only = one.responds.get(timeout=60)[2]
    assert (only.final, seen(only)) == (True, "sent")
    (answer,) = one.run(code(start + "return [out('by return')]"))
    assert seen(answer) == "by return" and one.responds.empty()


def test_b_py_15_a_default_model_answers_once_whatever_it_sent(host):
    one = host(SNIPPET, segments=(1 << 20, 1 << 18))
    send = "s = request.get_response_sender()\na = np.zeros(20000)\ns.send(pb.InferenceResponse([pb.Tensor('OUT', a)]))\na[:] = 1\n"
    one.run(code(send + "s.send(flags=1)\nreturn [None]"))
    only = one.responds.get(timeout=60)[2]
    assert only.final and set(only["OUT"]) == {0.0}, "as it was when it was sent"
    for end, text in (("raise ValueError('x')", in_batch("ValueError: x")), ("del s\nreturn [None]", DROPPED)):
        for _ in range(5):
            one.run(code(send + end))
            only = one.responds.get(timeout=60)[2]
            assert only.final and only.error.startswith(text)
    assert one.responds.empty() and len(one.response) == 1, "memory of what was not sent is free again"


@pytest.mark.parametrize("model, decoupled", [(DECOUPLED, True), (SNIPPET, False)], ids=["decoupled", "default"])
def test_b_py_16_threads_answer_after_execute_returned(host, model, decoupled):
    one = host(model, decoupled=decoupled)
    text = "s = request.get_response_sender()\ndef later():\n    while not self.kept.get('go'): time.sleep(0.001)\n    s.send(out('later'), 1)\nthreading.Thread(target=later).start()"
    assert one.run(code(text))[0].kind == P.ANSWER_NONE
    assert one.responds.empty()
    one.run(code("self.kept['go'] = 1\nrequest.get_response_sender().send(out(1), 1)"))
    assert sorted(str(seen(one.responds.get(timeout=60)[2])) for _ in range(2)) == ["1", "later"]


def test_b_py_16_many_threads_share_a_sender(host):
    one = host(DECOUPLED, decoupled=True)
    text = "def part(i):\n    for j in range(50): send([i, j])\nts = [threading.Thread(target=part, args=(i,)) for i in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nsender.send(flags=1)"
    one.run(code(text))
    got = [one.responds.get(timeout=60)[2] for _ in range(401)]
    assert got[-1].final and sorted(seen(a) for a in got[:-1]) == [[i, j] for i in range(8) for j in range(50)]


DROPPED = in_batch("the request has no final response: its response sender ended before it sent one")


@pytest.mark.parametrize("model, decoupled", [(DECOUPLED, True), (SNIPPET, False)], ids=["decoupled", "default"])
@pytest.mark.parametrize("text", ["return None", "request.get_response_sender()\nreturn None"], ids=["untouched", "asked"])
def test_b_py_17_b_py_31_a_request_that_nobody_answers_fails(host, model, decoupled, text):
    one = host(model, decoupled=decoupled)
    assert one.run(code(text))[0].kind == P.ANSWER_NONE
    _, _, answer = one.responds.get(timeout=60)
    assert (answer.kind, answer.final, answer.code, answer.error) == (P.ANSWER_ERROR, True, P.CODE_INTERNAL, DROPPED)
    assert one.responds.empty()


def test_b_py_17_an_unfinished_thread_ends_its_request(host):
    one = host(DECOUPLED, decoupled=True)
    one.run(code("def w(s):\n    s.send(out(1))\n    raise SystemExit\nthreading.Thread(target=w, args=(sender,)).start()"))
    first, last = (one.responds.get(timeout=60)[2] for _ in range(2))
    assert seen(first) == 1 and last.error == DROPPED


def test_b_py_24_a_decoupled_failure_ends_what_is_open(host):
    one = host(DECOUPLED, decoupled=True)
    assert one.run(code("raise ValueError('first')")).startswith(in_batch("ValueError: first\n\nAt:\n  <snippet>(2): snippet\n"))
    (answer,) = one.run(code("send(1)\nraise ValueError('second')"))
    first, last = (one.responds.get(timeout=60)[2] for _ in range(2))
    assert answer.kind == P.ANSWER_NONE and seen(first) == 1
    assert last.final and last.error.startswith(in_batch("ValueError: second\n"))
    answers = one.run(code("send(1, 1)"), code("raise ValueError('third')"))
    assert [a.kind for a in answers] == [P.ANSWER_NONE, P.ANSWER_ERROR] and answers[1].error.startswith(in_batch("ValueError: third\n"))
    assert one.responds.get(timeout=60)[2].final and one.responds.empty()


def test_b_py_23_a_decoupled_model_returns_nothing(host):
    one = host(DECOUPLED, decoupled=True)
    text = in_batch("Python model 'm_0' is using the decoupled mode and the execute function must return None.")
    for value in ("[out(1)]", "5", "[]", "False"):
        assert one.run(code(f"return {value}")) == text
    (answer,) = one.run(code("send(1, 1)\nreturn 5"))
    assert answer.kind == P.ANSWER_NONE and one.responds.get(timeout=60)[2].final
    assert one.responds.empty()


ASYNC = DECOUPLED.replace("def execute", "async def execute").replace('"def snippet', '"async def snippet').replace('returned = names["snippet"]', 'returned = await names["snippet"]')


def test_b_py_25_an_async_decoupled_model_takes_the_next_batch_meanwhile(host):
    one = host(ASYNC, decoupled=True)
    text = "while not self.kept.get('go'): await asyncio.sleep(0.001)\nsend('slow', 1)"
    assert one.run(code(text))[0].kind == P.ANSWER_NONE
    assert one.run(code("send('fast', 1)\nself.kept['go'] = 1"))[0].kind == P.ANSWER_NONE
    assert [seen(one.responds.get(timeout=60)[2]) for _ in range(2)] == ["fast", "slow"]


@pytest.mark.parametrize("text, told", [("raise ValueError('in async')", "ValueError: in async\n\nAt:\n  <snippet>"), ("return 5", "Python model 'm_0' is using"), ("sys.exit()", "SystemExit: ")])
def test_b_py_25_what_fails_in_the_background_is_told_to_the_client(host, text, told):
    one = host(ASYNC, decoupled=True)
    for _ in range(2):
        assert one.run(code("send(1)\nawait asyncio.sleep(0)\n" + text))[0].kind == P.ANSWER_NONE
        first, last = (one.responds.get(timeout=60)[2] for _ in range(2))
        assert seen(first) == 1 and last.final and last.error.startswith(in_batch(told))


RESCHEDULE = "request.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)\n"


def test_b_py_28_a_request_is_rescheduled(host):
    one = host(SNIPPET, iterative=True)
    assert one.run(code(RESCHEDULE + "return [None]"))[0].kind == P.ANSWER_RESCHEDULE
    assert one.run(code(RESCHEDULE + "return None"))[0].kind == P.ANSWER_RESCHEDULE
    text = "Expected a None object in the execute function return list for reschduled request, found type '<class 'c_python_backend_utils.InferenceResponse'>'."
    assert one.run(code(RESCHEDULE + "return [out(1)]")) == in_batch(text)
    assert one.run(code(RESCHEDULE + "raise ValueError(5)")).startswith(in_batch("ValueError: 5"))
    assert one.responds.empty()


def test_b_py_28_only_models_with_iterative_sequences_may(host):
    (answer,) = host(SNIPPET).run(code(RESCHEDULE + "return [None]"))
    assert (answer.kind, answer.code) == (P.ANSWER_ERROR, P.CODE_INVALID_ARG)
    assert "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured" in answer.error


def test_b_py_16_large_responses_in_their_own_time_are_copied(host):
    one = host(DECOUPLED, decoupled=True, segments=(1 << 20, 1 << 18))
    text = "a = np.zeros(10000)\nfor i in range(20):\n    a[:] = i\n    sender.send(pb.InferenceResponse([pb.Tensor('OUT', a)]))\nsender.send(flags=1)"
    one.start(code(text))
    for i in range(20):
        _, _, answer = one.responds.get(timeout=60)
        assert set(answer["OUT"]) == {float(i)} and answer.outputs[0].place == P.PLACE_RESPONSE
        blocks, one.response_seen = one.response_seen, []
        one.send(one.side, P.FRAME_RELEASE, b"".join(b.to_bytes(8, "little") for b in blocks), count=len(blocks))
    assert one.result()[0].kind == P.ANSWER_NONE
    until(lambda: one.responds.qsize() == 1)
